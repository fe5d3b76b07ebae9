"""Progress of a run: live in a terminal or notebook, lines of a log otherwise."""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import itertools
import time
from collections.abc import Sequence
from typing import IO, Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from mscam_dask.monitor.events import Event, FitResumed, FitState, StepFinished, StepStarted
from mscam_dask.monitor.messages import (
    duration,
    eta,
    format_event,
    format_settings,
    format_started,
    largest_residual,
    printable,
)
from mscam_dask.types.events import (
    FitFailed,
    FitFinished,
    FitStarted,
    NClustersSelected,
    RefinementFinished,
)

_ROWS = 8  # iterations shown
# Columns of the table of iterations and their widths; a narrow terminal shows the first ones.
_WIDTHS = {"iteration": 9, "components": 10, "\u03bb": 8, "score": 7, "residual": 8, "seconds": 7}
_INDENT = 12  # of lines that belong to a step
_MARKS = {"NONE": ("!", "red"), "PARTLY": ("!", "yellow")}  # of structures, and their colors
_NOTEBOOK_WIDTH = 100
_NOTEBOOK_HTML = """<pre style="white-space:pre;overflow-x:auto;line-height:1.35;
font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace">{code}</pre>"""


class Progress(contextlib.AbstractContextManager["Progress"]):
    """Observer that shows events; a context manager for the length of a run."""

    def __init__(self) -> None:
        self._fit = FitState()

    def __call__(self, event: Event) -> None:
        raise NotImplementedError

    def __exit__(self, *_: object) -> None:
        pass


def progress_on(console: Console) -> Progress:
    """Return live progress for a terminal or a notebook, and plain lines for other streams.

    Plain lines are for files, pipes and terminals that cannot redraw.

    Examples
    --------
    >>> from rich.console import Console
    >>> from mscam_dask import MSCAM
    >>> model = MSCAM(n_clusters=10, callbacks=[progress_on(Console())])
    """
    if console.is_jupyter:
        return NotebookProgress()
    if console.is_terminal and not console.is_dumb_terminal:
        return TerminalProgress(console)
    return PlainProgress(console.file)


class PlainProgress(Progress):
    """One line for each step and each iteration, in a text file that is flushed after each event."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__()
        self._stream = stream

    def __call__(self, event: Event) -> None:
        self._fit.add(event)
        match event:
            case StepStarted():
                lines = [f"{event.step} ..."]
            case StepFinished():
                lines = [f"{event.step}: {event.summary} ({duration(event.seconds)})"]
                lines += [f"{event.step}: note: {note}" for note in event.notes]
            case _:
                lines = [f"fit: {line}" for line in format_event(event, self._fit)]
        for line in map(printable, lines):
            self._stream.write(f"{dt.datetime.now().astimezone():%H:%M:%S} {line}\n")
        self._stream.flush()


class TerminalProgress(Progress):
    """Lines of the finished steps, and below them the running one, which is redrawn.

    Parameters
    ----------
    console : rich.console.Console
        A terminal.

    Notes
    -----
    The display starts with the first event. As a callback of an estimator it ends with the fit.
    Use it as a context manager (``with TerminalProgress(console) as progress``) to show several
    fits or whole runs, and to restore the terminal after an error.
    """

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._live: Live | None = None
        self._entered = False
        self._step: tuple[str, float] | None = None
        self._good = ("*" if console.options.ascii_only else "✓", "green")
        self._outcome = self._good  # of the fit

    def __enter__(self) -> Self:
        self._entered = True
        return self

    def __exit__(self, *_: object) -> None:
        self._entered = False
        self._stop()

    def __call__(self, event: Event) -> None:
        self._start()
        now = time.monotonic()
        if isinstance(event, StepStarted):
            self._fit = FitState()
        self._fit.add(event)
        match event:
            case StepStarted():
                self._step = (event.step, now)
            case StepFinished():
                self._step = None
                self._done(event.step, event.summary, event.seconds, event.notes)
            case FitStarted():
                self._step = self._step or ("fit", now)
                self._outcome = self._good
            case FitResumed() | NClustersSelected() | RefinementFinished():
                self._done_in_fit(event)
            case FitFinished() | FitFailed():
                structure = event.structure if isinstance(event, FitFinished) else "NONE"
                self._outcome = _MARKS.get(structure or "", self._good)
                if not self._entered:
                    self._done_in_fit(event)
                    self._step = None
                    self._stop()

    def _start(self) -> None:
        if self._live is None:
            show: Any = {"get_renderable": self._render, "refresh_per_second": 8}
            self._live = Live(console=self._console, transient=True, **show)
            self._live.start()

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _done_in_fit(self, event: Event) -> None:
        line, *notes = format_event(event, self._fit)
        self._done("fit", line, None, notes)

    def _done(self, step: str, summary: str, seconds: float | None, notes: Sequence[str]) -> None:
        line = Table.grid(expand=True, padding=(0, 1))
        line.add_column(width=1)
        line.add_column(width=9)
        line.add_column(ratio=1)
        line.add_column(justify="right", no_wrap=True)
        line.add_row(
            Text(*(self._outcome if step in ("fit", "cluster") else self._good)),
            Text(step, style="bold"),
            Text(printable(summary)),
            Text("" if seconds is None else duration(seconds), style="dim"),
        )
        indent = (0, 0, 0, _INDENT)
        below = [Padding(Text(printable(note), style="yellow"), indent) for note in notes]
        self._print(line, *below)

    def _print(self, *parts: RenderableType) -> None:
        """Print above the running step."""
        # Rich redraws in its own thread. Without the lock it would lose count of the lines to
        # erase, and parts of the live display would stay on the screen.
        with contextlib.nullcontext() if self._live is None else self._live._lock:
            self._console.print(*parts, sep="\n")

    def _render(self) -> RenderableType:
        if self._step is None:
            return Text()
        step, since = self._step
        elapsed = f"{duration(time.monotonic() - since)} elapsed"
        started = None if self._fit.end else self._fit.started
        size = "" if started is None else format_started(started)
        if started is not None and not self._entered:
            size += f", {started.executor}"
        name = "line" if self._console.options.ascii_only else "dots"
        head = Spinner(
            name, Text.assemble((f"{step:<9}", "bold"), f" {printable(size)}"), style="cyan"
        )
        if started is None:
            return Group(head, Text(f"{'':{_INDENT}}{elapsed}", style="dim"))
        return Group(head, *self._running_fit(elapsed))

    def _running_fit(self, elapsed: str) -> list[RenderableType]:
        fit = self._fit
        edges = itertools.accumulate(_WIDTHS.values(), lambda left, column: left + 2 + column)
        n_columns = max(2, sum(edge <= self._console.width - _INDENT for edge in edges))
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
        for title in list(_WIDTHS)[:n_columns]:
            table.add_column(title, justify="right", no_wrap=True)
        for record in [*fit.iterations][-_ROWS:]:
            is_reached = record.n_connected_components == record.n_clusters
            components = f"{record.n_connected_components} of {record.n_clusters}"
            row = (
                str(record.iteration + 1),
                Text(components, style="green" if is_reached else ""),
                f"{record.graph_weight:.4g}",
                f"{record.score:.4f}",
                f"{largest_residual(record):.1e}",
                f"{record.seconds:.2f}",
            )
            table.add_row(*row[:n_columns])
        if not fit.iterations:
            is_selected = fit.settings_selected is not None
            task = "first iteration" if is_selected else "precomputing views, selecting settings"
            return [Text(f"{'':{_INDENT}}{task}, {elapsed}", style="dim")]
        width = max(6, min(24, self._console.width - 70))
        foot = Table.grid(padding=(0, 2, 0, 0))
        foot.add_row(
            ProgressBar(total=fit.max_iter, completed=fit.n_done, width=width),
            Text(f"iteration {fit.n_done_of_max}, {elapsed}, ETA {eta(fit)}", style="dim"),
        )
        indent = (0, 0, 0, _INDENT)
        selected = [] if fit.settings_selected is None else format_settings(fit.settings_selected)
        settings = Text("\n".join(map(printable, selected)), style="dim")
        return [Padding(part, indent) for part in (settings, table, foot)]


class NotebookProgress(TerminalProgress):
    """The same in a notebook: one output below the cell, which the kernel updates with each event."""

    def __init__(self) -> None:
        options: Any = {"width": _NOTEBOOK_WIDTH, "force_jupyter": False, "force_terminal": True}
        super().__init__(Console(file=io.StringIO(), record=True, markup=False, **options))
        self._printed: list[RenderableType] = []
        self._shown: Any = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, FitFinished | FitFailed) and self._fit.started is not None:
            self._done_in_fit(self._fit.started)
            self._print(*self._running_fit("")[:-1])  # the settings and the iterations stay
        super().__call__(event)
        self._show()

    def _start(self) -> None:
        pass

    def _stop(self) -> None:
        self._step = None
        if self._shown is not None:
            self._show()

    def _print(self, *parts: RenderableType) -> None:
        self._printed += parts

    def _show(self) -> None:
        from IPython.display import HTML, display

        running = [] if self._step is None else [self._render()]
        self._console.print(*self._printed, *running, sep="\n")
        content = HTML(self._console.export_html(code_format=_NOTEBOOK_HTML, inline_styles=True))
        if self._shown is None:
            self._shown = display(content, display_id=True)
        else:
            self._shown.update(content)
