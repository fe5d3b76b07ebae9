"""The contract between the driver loop and whatever runs its tasks.

A task is a plain function of its arguments. Arguments may be handles of earlier tasks, alone
or in lists; the executor puts the results in their place. Blocks and orders of summation are
fixed by the driver, so every executor gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

__all__ = ["Executor", "Handle"]

Handle = Any
"""A result to come; opaque to everyone but the executor that made it."""


class Executor(Protocol):
    """Runs tasks. Entered for the length of a fit."""

    @property
    def description(self) -> str:
        """One line for people: what runs the tasks."""
        ...

    @property
    def n_workers(self) -> int:
        """Tasks that can run at the same time."""
        ...

    @property
    def memory_limit_bytes(self) -> int | None:
        """Memory for one task at a time: that of the smallest worker over its threads.

        None when there is no limit to know.
        """
        ...

    @property
    def shares_memory(self) -> bool:
        """Whether tasks see the driver's arrays; if not, these travel inside the tasks."""
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
        """Results in the order of the handles; raises the first error of a task."""
        ...

    def release(self, handles: Sequence[Handle]) -> None:
        """Say that these results are not needed any more."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
