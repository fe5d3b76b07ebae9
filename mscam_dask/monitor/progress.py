"""Progress of a run: live in a terminal or notebook, lines of a log otherwise."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import time
from collections import deque
from collections.abc import Sequence
from html import escape
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Protocol, Self

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

__all__ = ["NotebookProgress", "PlainProgress", "Progress", "TerminalProgress", "progress_on"]


class Progress(Protocol):
    """Observer that shows events; a context manager for the length of a run."""

    def __call__(self, event: Event) -> None:
        """Show an event."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


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


class PlainProgress:
    """One line for each step and each iteration.

    Parameters
    ----------
    stream : text file
        Flushed after every line.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._tracker = ProgressTracker()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stream.flush()

    def __call__(self, event: Event) -> None:
        """Show an event."""
        self._tracker.add(event)
        match event:
            case StepStarted():
                self._write(f"{event.step} ...")
            case StepFinished():
                self._write(f"{event.step}: {event.summary} ({event.seconds:.1f} s)")
                for note in event.notes:
                    self._write(f"{event.step}: note: {note}")
            case _:
                for line in format_event(event, self._tracker):
                    self._write(f"fit: {line}")

    def _write(self, line: str) -> None:
        self._stream.write(f"{dt.datetime.now().astimezone():%H:%M:%S} {printable(line)}\n")
        self._stream.flush()


_ROWS = 8  # iterations shown
# Columns of the table of iterations and their widths; a narrow terminal shows the first ones.
_WIDTHS = {
    "iteration": 9,
    "components": 10,
    "\u03bb": 8,
    "score": 7,
    "residual": 8,
    "seconds": 7,
}
_CELL = 'style="text-align:right;padding:1px 14px 1px 0;font-variant-numeric:tabular-nums"'


class NotebookProgress:
    """Progress of a fit or a run, below the notebook cell that runs it.

    Notes
    -----
    The kernel updates the HTML of one output. It works in Jupyter, in editors and in notebooks
    that run unattended, whose files keep the last state.
    """

    def __init__(self) -> None:
        self._shown: Any = None
        self._lines: list[str] = []
        self._tracker = ProgressTracker()
        self._settings: list[str] = []
        self._rows: deque[IterationFinished] = deque(maxlen=_ROWS)
        self._since = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._show()

    def __call__(self, event: Event) -> None:
        """Show an event."""
        self._tracker.add(event)
        lines = format_event(event, self._tracker)
        match event:
            case StepStarted():
                self._since = time.monotonic()
                self._lines.append(f"{event.step} ...")
            case StepFinished():
                self._lines[-1:] = [f"{event.step}: {event.summary} ({event.seconds:.1f} s)"]
                self._lines += [f"note: {note}" for note in event.notes]
            case FitStarted():
                self._since = time.monotonic()
                self._rows.clear()
                self._settings = []
                self._lines += lines
            case SettingsSelected():
                self._settings = lines
            case IterationFinished():
                self._rows.append(event)
            case FitFailed():
                self._lines += [*lines, *([event.message] if event.message else [])]
                self._tracker.started = self._tracker.max_iter = None
            case _:
                self._lines += lines
                if isinstance(event, FitFinished):
                    self._tracker.started = self._tracker.max_iter = None
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
        return (
            f'<div style="font-size:90%;line-height:1.5">{_divs(self._lines)}{self._table()}</div>'
        )

    def _table(self) -> str:
        if not self._rows and self._tracker.started is None:
            return ""
        if not self._rows:
            elapsed = duration(time.monotonic() - self._since)
            return f"<div>selecting settings, {elapsed} elapsed</div>"
        rows = "".join(
            f"<tr>{''.join(f'<td {_CELL}>{cell}</td>' for cell in _cells(record))}</tr>"
            for record in self._rows
        )
        titles = "".join(f"<th {_CELL}>{title}</th>" for title in _WIDTHS)
        bar = ""
        if self._tracker.max_iter is not None:
            bar = (
                f'<div><progress max="{self._tracker.max_iter}" value="{self._tracker.n_done}">'
                f"</progress> iteration {self._tracker.n_done_of_max}, ETA "
                f"{escape(self._tracker.eta)}</div>"
            )
        return (
            f"{_divs(self._settings)}<table><thead><tr>{titles}</tr></thead>"
            f"<tbody>{rows}</tbody></table>{bar}"
        )


def _divs(lines: list[str]) -> str:
    return "".join(f"<div>{escape(printable(line))}</div>" for line in lines)


def _cells(record: IterationFinished) -> tuple[str, ...]:
    return (
        str(record.iteration + 1),
        f"{record.n_connected_components} of {record.n_clusters}",
        f"{record.graph_weight:.4g}",
        f"{record.score:.4f}",
        f"{largest_residual(record):.1e}",
        f"{record.seconds:.2f}",
    )


_INDENT = 12  # of lines that belong to a step
_UNSURE = ("NONE", "PARTLY")  # structures that get an exclamation mark


class TerminalProgress:
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
        self._console = console
        self._live: Live | None = None
        self._entered = False
        self._step: tuple[str, float] | None = None
        self._tracker = ProgressTracker()
        self._settings: list[str] = []
        self._structure: str | None = None
        self._rows: deque[IterationFinished] = deque(maxlen=_ROWS)
        self._mark = "*" if console.options.ascii_only else "✓"

    def __enter__(self) -> Self:
        self._entered = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._entered = False
        self._stop()

    def __call__(self, event: Event) -> None:
        """Show an event."""
        self._start()
        self._tracker.add(event)
        match event:
            case StepStarted():
                self._step = (event.step, time.monotonic())
                self._rows.clear()
                self._tracker.started = self._tracker.max_iter = None
            case StepFinished():
                self._step = None
                self._done(event.step, event.summary, event.seconds, event.notes)
            case FitStarted():
                self._rows.clear()
                self._settings = []
                if self._step is None:
                    self._step = ("fit", time.monotonic())
            case SettingsSelected():
                self._settings = [printable(line) for line in format_settings(event)]
            case IterationFinished():
                self._rows.append(event)
            case FitResumed() | NClustersSelected() | RefinementFinished():
                line, *notes = format_event(event, self._tracker)
                self._done("fit", line, None, notes)
            case FitFinished() | FitFailed():
                self._structure = event.structure if isinstance(event, FitFinished) else None
                self._over(event)

    def _over(self, event: FitFinished | FitFailed) -> None:
        self._tracker.started = self._tracker.max_iter = None
        if self._entered:
            return
        if isinstance(event, FitFinished):
            line, *notes = format_event(event, self._tracker)
            self._done("fit", line, None, notes)
            self._step = None
        self._stop()

    def _start(self) -> None:
        from rich.live import Live

        if self._live is None:
            self._live = Live(
                console=self._console,
                get_renderable=self._render,
                refresh_per_second=8,
                transient=True,
            )
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
            return Group(head, Text(f"{'':12}{elapsed}", style="dim"))
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
            return [Text(f"{'':12}{task}, {elapsed}", style="dim")]
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
