"""Progress that redraws itself, for a terminal."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Self

from mscam_dask.monitor.events import Event, FitResumed, StepFinished, StepStarted
from mscam_dask.monitor.messages import (
    ProgressTracker,
    count_sentence,
    duration,
    end_sentence,
    fit_sentence,
    largest_residual,
    learning_sentence,
    printable,
    resumed_sentence,
    setting_sentence,
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

__all__ = ["TerminalProgress"]

_ROWS = 8  # iterations kept in sight
_INDENT = 12  # of what belongs to a step

# Columns of the iterations with their widths; a narrow terminal has the first of them.
_WIDTHS = {
    "iteration": 9,
    "components": 10,
    "graph weight": 12,
    "score": 7,
    "residual": 8,
    "seconds": 7,
}


class TerminalProgress:
    """Steps that are done, one under the other, and the running one live below them.

    Parameters
    ----------
    console : rich.console.Console
        A terminal.

    Notes
    -----
    Starts with the first event. As a callback of an estimator it ends with the fit; enter it
    (``with TerminalProgress(console) as progress``) to show several fits or whole runs, and to
    leave the terminal clean after an error.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._entered = False
        self._step: tuple[str, float] | None = None
        self._pace = ProgressTracker()
        self._setting: str | None = None
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
        self._pace.add(event)
        match event:
            case StepStarted():
                self._step = (event.step, time.monotonic())
                self._rows.clear()
                self._pace.started = None
            case StepFinished():
                self._step = None
                self._done(event.step, event.summary, event.seconds, event.notes)
            case FitResumed():
                self._done("fit", resumed_sentence(event), None, event.notes)
            case FitStarted():
                self._rows.clear()
                self._setting = None
                if self._step is None:
                    self._step = ("fit", time.monotonic())
            case NClustersSelected():
                self._done("clusters", count_sentence(event), event.seconds, ())
            case SettingsSelected():
                self._setting = printable(setting_sentence(event))
            case IterationFinished():
                self._rows.append(event)
            case RefinementFinished():
                self._done(
                    "learning", learning_sentence(event.scores, event.taken), event.seconds, ()
                )
            case FitFinished() | FitFailed():
                self._over(event)

    def _over(self, event: FitFinished | FitFailed) -> None:
        self._pace.started = None
        if self._entered:
            return
        if isinstance(event, FitFinished):
            self._done("fit", end_sentence(event), event.seconds, ())
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

    def _done(self, step: str, summary: str, seconds: float | None, notes: tuple[str, ...]) -> None:
        from rich.padding import Padding
        from rich.table import Table
        from rich.text import Text

        line = Table.grid(expand=True, padding=(0, 1))
        line.add_column(width=1)
        line.add_column(width=9)
        line.add_column(ratio=1)
        line.add_column(justify="right", no_wrap=True)
        line.add_row(
            Text(self._mark, style="green"),
            Text(step, style="bold"),
            Text(printable(summary)),
            Text("" if seconds is None else f"{seconds:.1f} s", style="dim"),
        )
        indent = (0, 0, 0, _INDENT)
        said = [Padding(Text(printable(note), style="yellow"), indent) for note in notes]
        # Rich redraws in a thread of its own: half-way through, it would forget how many lines
        # to take back, and the live part would stay on the screen.
        with contextlib.nullcontext() if self._live is None else self._live._lock:
            self._console.print(line, *said, sep="\n")

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.spinner import Spinner
        from rich.text import Text

        if self._step is None:
            return Text()
        step, since = self._step
        elapsed = duration(time.monotonic() - since)
        started = self._pace.started
        said = "" if started is None else fit_sentence(started)
        if started is not None and not self._entered:
            said += f", {started.executor}"
        name = "line" if self._console.options.ascii_only else "dots"
        head = Spinner(
            name, Text.assemble((f"{step:<9}", "bold"), f" {printable(said)}"), style="cyan"
        )
        if started is None:
            return Group(head, Text(f"{'':12}{elapsed} so far", style="dim"))
        return Group(head, *self._fit(started, elapsed))

    def _fit(self, started: FitStarted, elapsed: str) -> list[RenderableType]:
        from rich.padding import Padding
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        n_columns = _that_fit(self._console.width - _INDENT)
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
        for title in list(_WIDTHS)[:n_columns]:
            table.add_column(title, justify="right", no_wrap=True)
        for record in tuple(self._rows):
            reached = record.n_connected_components == record.n_clusters
            cells = (
                str(record.iteration + 1),
                Text(
                    f"{record.n_connected_components} of {record.n_clusters}",
                    style="green" if reached else "",
                ),
                f"{record.graph_weight:.4g}",
                f"{record.score:.4f}",
                f"{largest_residual(record):.1e}",
                f"{record.seconds:.2f}",
            )
            table.add_row(*cells[:n_columns])
        if not self._rows:
            doing = "first iteration" if self._setting else "preparing views, choosing a setting"
            return [Text(f"{'':12}{elapsed} so far, {doing}", style="dim")]
        width = max(6, min(24, self._console.width - 70))
        foot = Table.grid(padding=(0, 2, 0, 0))
        foot.add_row(
            ProgressBar(total=started.max_iter, completed=self._pace.n_done, width=width),
            Text(
                f"{self._pace.n_done} of at most {started.max_iter}, {elapsed} so far, "
                f"at most {self._pace.at_most} to go",
                style="dim",
            ),
        )
        indent = (0, 0, 0, _INDENT)
        setting = Text(self._setting or "", style="dim")
        return [Padding(part, indent) for part in (setting, table, foot)]


def _that_fit(width: int) -> int:
    """How many columns of the iterations have room beside each other, at least two."""
    edges = itertools.accumulate(_WIDTHS.values(), lambda left, column: left + 2 + column)
    return max(2, sum(edge <= width for edge in edges))
