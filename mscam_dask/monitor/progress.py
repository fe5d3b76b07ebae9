"""Progress of a run: live in a terminal or notebook, one line an iteration anywhere else."""

from __future__ import annotations

import datetime as dt
from types import TracebackType
from typing import IO, TYPE_CHECKING, Protocol, Self

from mscam_dask.monitor.events import Event, FitResumed, StepFinished, StepStarted
from mscam_dask.monitor.messages import (
    ProgressTracker,
    count_sentence,
    end_sentence,
    failure_sentence,
    fit_sentence,
    largest_residual,
    learning_sentence,
    printable,
    resumed_sentence,
    setting_sentence,
)
from mscam_dask.monitor.notebook import NotebookProgress
from mscam_dask.monitor.terminal import TerminalProgress
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
    from rich.console import Console

__all__ = ["NotebookProgress", "PlainProgress", "Progress", "TerminalProgress", "progress_on"]


class Progress(Protocol):
    """An observer that shows what it sees; entered for the length of a run."""

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
    """Return live progress for a terminal or a notebook, plain lines for anything else.

    Anything else is a file, a pipe or a terminal that cannot redraw.

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
    """One line for each step and each outer iteration.

    Parameters
    ----------
    stream : text file
        Flushed after every line.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._pace = ProgressTracker()

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
        self._pace.add(event)
        match event:
            case StepStarted():
                self._write(f"{event.step} ...")
            case StepFinished():
                self._write(f"{event.step}: {event.summary} ({event.seconds:.1f} s)")
                for note in event.notes:
                    self._write(f"{event.step}: note: {note}")
            case FitResumed():
                self._write(f"fit: {resumed_sentence(event)}")
                for note in event.notes:
                    self._write(f"fit: note: {note}")
            case FitStarted():
                self._write(f"fit: {fit_sentence(event)}, {event.executor}")
            case NClustersSelected() | SettingsSelected() | RefinementFinished():
                self._write(f"fit: {_chosen_sentence(event)} ({event.seconds:.1f} s)")
            case IterationFinished():
                assert self._pace.started is not None
                self._write(
                    f"fit: outer iteration {event.iteration + 1} of at most "
                    f"{self._pace.started.max_iter}: {event.n_connected_components} of "
                    f"{event.n_clusters} components, graph weight {event.graph_weight:.4g}, score "
                    f"{event.score:.4f}, largest residual {largest_residual(event):.1e}, "
                    f"{event.seconds:.2f} s, at most {self._pace.at_most} to go"
                )
            case FitFinished():
                self._write(f"fit: {end_sentence(event)} ({event.seconds:.1f} s)")
            case FitFailed():
                self._write(f"fit: {failure_sentence(event)} ({event.seconds:.1f} s)")

    def _write(self, line: str) -> None:
        self._stream.write(f"{dt.datetime.now().astimezone():%H:%M:%S} {printable(line)}\n")
        self._stream.flush()


def _chosen_sentence(event: NClustersSelected | SettingsSelected | RefinementFinished) -> str:
    match event:
        case NClustersSelected():
            return count_sentence(event)
        case SettingsSelected():
            return setting_sentence(event)
        case RefinementFinished():
            return learning_sentence(event.scores, event.taken)
