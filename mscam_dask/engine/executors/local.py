"""Executors inside this process: one task at a time, or on a pool of threads."""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import psutil

from mscam_dask.engine.executors._threadpools import PinnedBlas
from mscam_dask.engine.executors.base import Handle, single_handles

__all__ = ["SerialExecutor", "ThreadExecutor", "available_memory_bytes", "usable_cores"]


class _Value:
    """Handle of the serial executor: a finished result."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def available_memory_bytes() -> int:
    """Memory this process can still take, within the limit of its container."""
    return int(psutil.virtual_memory().available)


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
