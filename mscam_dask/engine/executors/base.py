"""Protocol of the executors of a fit.

A task is a plain function of its arguments. Arguments may be handles of earlier tasks, alone
or in lists; the executor puts the results in their place. Blocks and orders of summation are
fixed by the driver, so that every executor gives identical bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

__all__ = ["Executor", "Handle", "HandleGroup", "single_handles"]

Handle = Any
"""Future result of a task, opaque to everything except its executor."""


class HandleGroup:
    """Base of handles that belong together, such as those of the blocks of a graph."""

    def handles(self) -> Sequence[Handle]:
        """Return the handles, which may be groups."""
        raise NotImplementedError


def single_handles(handles: Sequence[Handle]) -> Iterator[Handle]:
    """Return the single handles of handles and groups of handles."""
    for handle in handles:
        if isinstance(handle, HandleGroup):
            yield from single_handles(handle.handles())
        else:
            yield handle


class Executor(Protocol):
    """Executor of tasks; a context that is entered for the length of a fit."""

    @property
    def description(self) -> str:
        """Name of the executor for users, in one line."""
        ...

    @property
    def n_workers(self) -> int:
        """Number of tasks that can run at the same time."""
        ...

    @property
    def memory_limit_bytes(self) -> int | None:
        """Memory for one task: that of the smallest worker divided by its threads.

        None when no limit is known.
        """
        ...

    @property
    def shares_memory(self) -> bool:
        """True if tasks read the arrays of the driver; otherwise arrays are sent inside the tasks."""
        ...

    def submit(self, function: Callable[..., Any], /, *args: Any, key: str) -> Handle:
        """Start a task.

        Parameters
        ----------
        function : callable
            Importable at module level.
        *args
            Values, handles, or lists of handles.
        key : str
            Name of the task, "stage/iteration/view"; unique within the fit.
        """
        ...

    def gather(self, handles: Sequence[Handle]) -> list[Any]:
        """Return results in the order of the handles, or raise the first error of a task."""
        ...

    def release(self, handles: Sequence[Handle]) -> None:
        """Release results that are not needed any more; handles may be groups."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
