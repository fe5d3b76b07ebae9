"""Progress of a run: live in a terminal or notebook, lines of a log otherwise."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import time
from collections import deque
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import IO, TYPE_CHECKING, Any, Self

from mscam_dask.monitor.events import Event, FitResumed, StepFinished, StepStarted
from mscam_dask.monitor.messages import (
    ProgressTracker,
    duration,
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
    IterationFinished,
    NClustersSelected,
    RefinementFinished,
    SettingsSelected,
)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

_ROWS = 8  # iterations shown
# Columns of the table of iterations and their widths; a narrow terminal shows the first ones.
_WIDTHS = {"iteration": 9, "components": 10, "\u03bb": 8, "score": 7, "residual": 8, "seconds": 7}
_INDENT = 12  # of lines that belong to a step
_UNSURE = ("NONE", "PARTLY")  # structures that get an exclamation mark


class Progress(contextlib.AbstractContextManager["Progress"]):
    """Observer that shows events; a context manager for the length of a run."""

    def __init__(self) -> None:
        self._tracker = ProgressTracker()
        self._settings: list[str] = []
        self._rows: deque[IterationFinished] = deque(maxlen=_ROWS)
        self._since = time.monotonic()

    def __call__(self, event: Event) -> None:
        raise NotImplementedError

    def __exit__(self, *_: object) -> None:
        pass

    def _lines(self, event: Event) -> list[str]:
        """Lines of a log, each of which begins with its step."""
        match event:
            case StepStarted():
                lines = [f"{event.step} ..."]
            case StepFinished():
                lines = [f"{event.step}: {event.summary} ({event.seconds:.1f} s)"]
                lines += [f"{event.step}: note: {note}" for note in event.notes]
            case _:
                lines = [f"fit: {line}" for line in format_event(event, self._tracker)]
        return list(map(printable, lines))

    def _track(self, event: Event) -> None:
        """Update the state of a live display."""
        self._tracker.add(event)
        match event:
            case StepStarted() | FitFinished() | FitFailed():
                self._tracker.started = self._tracker.max_iter = None
            case SettingsSelected():
                self._settings = [printable(line) for line in format_settings(event)]
            case IterationFinished():
                self._rows.append(event)
        if isinstance(event, StepStarted | FitStarted):
            self._since = time.monotonic()
            self._rows.clear()
            self._settings = []


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
        self._tracker.add(event)
        for line in self._lines(event):
            self._stream.write(f"{dt.datetime.now().astimezone():%H:%M:%S} {line}\n")
        self._stream.flush()


class NotebookProgress(Progress):
    """Progress of a fit or a run: one output below the notebook cell, which the kernel updates."""

    def __init__(self) -> None:
        super().__init__()
        self._shown: Any = None
        self._said: list[str] = []

    def __exit__(self, *_: object) -> None:
        self._show()

    def __call__(self, event: Event) -> None:
        self._track(event)
        if isinstance(event, StepFinished):
            self._said = [line for line in self._said if line != f"{event.step} ..."]
        if not isinstance(event, SettingsSelected | IterationFinished):  # which are in the table
            self._said += self._lines(event)
        if isinstance(event, FitFailed) and event.message:
            self._said.append(printable(event.message))
        self._show()

    def _show(self) -> None:
        from IPython.display import HTML, display

        content = HTML(self.html())
        if self._shown is None:
            self._shown = display(content, display_id=True)
        else:
            self._shown.update(content)

    def html(self) -> str:
        """HTML of the output; everything that came from data is escaped."""
        return str(
            _template().render(
                lines=self._said,
                settings=self._settings,
                titles=_WIDTHS,
                rows=list(map(_cells, self._rows)),
                tracker=self._tracker,
                elapsed=duration(time.monotonic() - self._since),
            )
        )


@cache
def _template() -> Any:
    from jinja2 import Environment

    text = files(__package__).joinpath("progress.html.j2").read_text("utf-8")
    return Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(text)


def _cells(record: IterationFinished) -> tuple[str, ...]:
    return (
        str(record.iteration + 1),
        f"{record.n_connected_components} of {record.n_clusters}",
        f"{record.graph_weight:.4g}",
        f"{record.score:.4f}",
        f"{largest_residual(record):.1e}",
        f"{record.seconds:.2f}",
    )


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
        self._structure: str | None = None
        self._mark = "*" if console.options.ascii_only else "✓"

    def __enter__(self) -> Self:
        self._entered = True
        return self

    def __exit__(self, *_: object) -> None:
        self._entered = False
        self._stop()

    def __call__(self, event: Event) -> None:
        self._start()
        self._track(event)
        match event:
            case StepStarted():
                self._step = (event.step, self._since)
            case StepFinished():
                self._step = None
                self._done(event.step, event.summary, event.seconds, event.notes)
            case FitStarted():
                self._step = self._step or ("fit", self._since)
            case FitResumed() | NClustersSelected() | RefinementFinished():
                line, *notes = format_event(event, self._tracker)
                self._done("fit", line, None, notes)
            case FitFinished() | FitFailed():
                self._structure = event.structure if isinstance(event, FitFinished) else None
                if not self._entered and isinstance(event, FitFinished):
                    line, *notes = format_event(event, self._tracker)
                    self._done("fit", line, None, notes)
                    self._step = None
                if not self._entered:
                    self._stop()

    def _start(self) -> None:
        from rich.live import Live

        if self._live is None:
            show: Any = {"get_renderable": self._render, "refresh_per_second": 8}
            self._live = Live(console=self._console, transient=True, **show)
            self._live.start()

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _done(self, step: str, summary: str, seconds: float | None, notes: Sequence[str]) -> None:
        from rich.padding import Padding
        from rich.table import Table
        from rich.text import Text

        line = Table.grid(expand=True, padding=(0, 1))
        line.add_column(width=1)
        line.add_column(width=9)
        line.add_column(ratio=1)
        line.add_column(justify="right", no_wrap=True)
        line.add_row(
            Text("!", style="red" if self._structure == "NONE" else "yellow")
            if self._structure in _UNSURE and step in ("fit", "cluster")
            else Text(self._mark, style="green"),
            Text(step, style="bold"),
            Text(printable(summary)),
            Text("" if seconds is None else f"{seconds:.1f} s", style="dim"),
        )
        indent = (0, 0, 0, _INDENT)
        below = [Padding(Text(printable(note), style="yellow"), indent) for note in notes]
        # Rich redraws in its own thread. Without the lock it would lose count of the lines to
        # erase, and parts of the live display would stay on the screen.
        with contextlib.nullcontext() if self._live is None else self._live._lock:
            self._console.print(line, *below, sep="\n")

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.spinner import Spinner
        from rich.text import Text

        if self._step is None:
            return Text()
        step, since = self._step
        elapsed = f"{duration(time.monotonic() - since)} elapsed"
        started = self._tracker.started
        size = "" if started is None else format_started(started)
        if started is not None and not self._entered:
            size += f", {started.executor}"
        name = "line" if self._console.options.ascii_only else "dots"
        head = Spinner(
            name, Text.assemble((f"{step:<9}", "bold"), f" {printable(size)}"), style="cyan"
        )
        if started is None:
            return Group(head, Text(f"{'':{_INDENT}}{elapsed}", style="dim"))
        return Group(head, *self._fit(started, elapsed))

    def _fit(self, started: FitStarted, elapsed: str) -> list[RenderableType]:
        from rich.padding import Padding
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        n_columns = _n_columns(self._console.width - _INDENT)
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
        for title in list(_WIDTHS)[:n_columns]:
            table.add_column(title, justify="right", no_wrap=True)
        for record in tuple(self._rows):
            number, components, *others = _cells(record)
            is_reached = record.n_connected_components == record.n_clusters
            colored = Text(components, style="green" if is_reached else "")
            row: tuple[str | Text, ...] = (number, colored, *others)
            table.add_row(*row[:n_columns])
        if not self._rows:
            task = "first iteration" if self._settings else "precomputing views, selecting settings"
            return [Text(f"{'':{_INDENT}}{task}, {elapsed}", style="dim")]
        width = max(6, min(24, self._console.width - 70))
        foot = Table.grid(padding=(0, 2, 0, 0))
        foot.add_row(
            ProgressBar(total=self._tracker.max_iter, completed=self._tracker.n_done, width=width),
            Text(
                f"iteration {self._tracker.n_done_of_max}, {elapsed}, ETA {self._tracker.eta}",
                style="dim",
            ),
        )
        indent = (0, 0, 0, _INDENT)
        settings = Text("\n".join(self._settings), style="dim")
        return [Padding(part, indent) for part in (settings, table, foot)]


def _n_columns(width: int) -> int:
    """Number of columns that fit into a width, at least two."""
    edges = itertools.accumulate(_WIDTHS.values(), lambda left, column: left + 2 + column)
    return max(2, sum(edge <= width for edge in edges))
