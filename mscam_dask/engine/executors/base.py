"""Executors of a fit: their protocol, and those inside this process, serial or on threads.

A task is a plain function of its arguments. Arguments may be handles of earlier tasks, alone
or in lists; the executor puts the results in their place. Blocks and orders of summation are
fixed by the driver, so that every executor gives identical bits.
"""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

import psutil

from mscam_dask.engine.executors._process import PinnedBlas

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
    def spill_threshold_bytes(self) -> int | None:
        """Bytes of results that a worker thread keeps in memory; the worker spills others to its disk.

        None if a worker keeps all results in memory.
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


class _Value:
    """Handle of the serial executor: a finished result."""

    __slots__ = ("__weakref__", "value")

    def __init__(self, value: Any) -> None:
        self.value = value


def available_memory_bytes() -> int:
    """Memory this process can still take, within the limits of its container and of `ulimit -v`."""
    free = int(psutil.virtual_memory().available)
    if not hasattr(psutil, "RLIMIT_AS"):  # not on Linux
        return free
    process = psutil.Process()
    limit, _ = process.rlimit(psutil.RLIMIT_AS)
    return free if limit < 0 else min(free, max(0, limit - process.memory_info().vms))


def usable_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS or Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class SerialExecutor(PinnedBlas):
    """Executor that runs each task when it is submitted."""

    description = "in this process, one task at a time"
    n_workers = 1
    shares_memory = True
    spill_threshold_bytes = None

    @property
    def memory_limit_bytes(self) -> int | None:
        """See `Executor.memory_limit_bytes`: the free memory of this machine."""
        return available_memory_bytes()

    def submit(self, function: Callable[..., Any], /, *args: Any, key: str) -> Handle:
        """See `Executor.submit`."""
        return _Value(function(*(_value(arg) for arg in args)))

    def gather(self, handles: Sequence[Handle]) -> list[Any]:
        """See `Executor.gather`."""
        return [handle.value for handle in handles]

    def release(self, handles: Sequence[Handle]) -> None:
        """See `Executor.release`."""
        for handle in single_handles(handles):
            handle.value = None


def _value(argument: Any) -> Any:
    if isinstance(argument, _Value):
        return argument.value
    if isinstance(argument, list):
        return [_value(item) for item in argument]
    return argument


class ThreadExecutor(PinnedBlas):
    """Executor on a pool of threads, in the order of submission.

    Parameters
    ----------
    n_threads : int
        Number of tasks at the same time; results do not depend on it.

    Notes
    -----
    A task waits for its arguments inside its thread. Arguments were always submitted before,
    and the pool is first-in first-out, so the oldest unfinished task can always run.
    """

    shares_memory = True
    spill_threshold_bytes = None

    def __init__(self, n_threads: int) -> None:
        super().__init__()
        self.n_workers = n_threads
        self.description = f"in this process, {n_threads} threads"
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None

    @property
    def memory_limit_bytes(self) -> int | None:
        """See `Executor.memory_limit_bytes`: the free memory of this machine divided by the threads."""
        return available_memory_bytes() // self.n_workers

    def __enter__(self) -> Self:
        self._pool = concurrent.futures.ThreadPoolExecutor(
            self.n_workers, thread_name_prefix="mscam", initializer=PinnedBlas.pin_thread
        )
        return super().__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
        super().__exit__(kind, error, trace)

    def submit(self, function: Callable[..., Any], /, *args: Any, key: str) -> Handle:
        """See `Executor.submit`."""
        assert self._pool is not None, "submit outside of the executor's context"
        # the task refers to its arguments itself: handles may be released before it runs
        return _Pending(self._pool.submit(_run, function, [_future(arg) for arg in args]))

    def gather(self, handles: Sequence[Handle]) -> list[Any]:
        """See `Executor.gather`."""
        return [handle.future.result() for handle in handles]

    def release(self, handles: Sequence[Handle]) -> None:
        """See `Executor.release`."""
        for handle in single_handles(handles):
            handle.future = None


class _Pending:
    """Handle of the thread executor: a future, until it is released."""

    __slots__ = ("future",)

    def __init__(self, future: concurrent.futures.Future[Any]) -> None:
        self.future: concurrent.futures.Future[Any] | None = future


def _future(argument: Any) -> Any:
    if isinstance(argument, _Pending):
        return argument.future
    if isinstance(argument, list):
        return [_future(item) for item in argument]
    return argument


def _run(function: Callable[..., Any], args: list[Any]) -> Any:
    return function(*(_result(arg) for arg in args))


def _result(argument: Any) -> Any:
    if isinstance(argument, concurrent.futures.Future):
        return argument.result()
    if isinstance(argument, list):
        return [_result(item) for item in argument]
    return argument
