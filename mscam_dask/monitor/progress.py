"""Progress of a run: live in a terminal or notebook, lines of a log otherwise."""

from __future__ import annotations

import datetime as dt
from types import TracebackType
from typing import IO, TYPE_CHECKING, Protocol, Self

from mscam_dask.monitor.events import Event, StepFinished, StepStarted
from mscam_dask.monitor.messages import ProgressTracker, format_event, printable
from mscam_dask.monitor.notebook import NotebookProgress
from mscam_dask.monitor.terminal import TerminalProgress

if TYPE_CHECKING:
    from rich.console import Console

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
