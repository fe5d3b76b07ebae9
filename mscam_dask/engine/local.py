"""Executors inside this process: one task at a time, or on a pool of threads."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, ClassVar, Self

import psutil
from threadpoolctl import threadpool_limits

from mscam_dask.engine.executor import Handle

__all__ = ["PinnedBlas", "SerialExecutor", "ThreadExecutor"]


class PinnedBlas:
    """One BLAS/OpenMP thread per task: other counts give other bits, and oversubscribe."""

    _lock: ClassVar[threading.Lock] = threading.Lock()
    _depth: ClassVar[int] = 0

    def __init__(self) -> None:
        self._limits: threadpool_limits | None = None

    def __enter__(self) -> Self:
        with PinnedBlas._lock:
            self._limits = threadpool_limits(limits=1)
            PinnedBlas._depth += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with PinnedBlas._lock:
            if self._limits is not None:
                self._limits.restore_original_limits()
                self._limits = None
                PinnedBlas._depth -= 1

    @classmethod
    def pin_for_good(cls) -> None:
        """Pin a worker process once; does nothing where a fit in this process has pinned."""
        if cls._depth == 0:
            with cls._lock:
                threadpool_limits(limits=1)
                PinnedBlas._depth = 1


class _Value:
    """The handle of the serial executor: a result already there."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def available_memory_bytes() -> int:
    """Memory this process can still take, within the limit of its container."""
    return int(psutil.virtual_memory().available)


class SerialExecutor(PinnedBlas):
    """Runs each task when it is submitted."""

    description = "in this process, one task at a time"
    n_workers = 1

    @property
    def memory_limit_bytes(self) -> int | None:
        """See `Executor.memory_limit_bytes`: what this machine has free."""
        return available_memory_bytes()

    def submit(self, function: Callable[..., Any], /, *args: Any, key: str) -> Handle:
        """See `Executor.submit`."""
        return _Value(function(*(_value(arg) for arg in args)))

    def gather(self, handles: Sequence[Handle]) -> list[Any]:
        """See `Executor.gather`."""
        return [handle.value for handle in handles]

    def release(self, handles: Sequence[Handle]) -> None:
        """See `Executor.release`."""
        for handle in handles:
            handle.value = None


def _value(argument: Any) -> Any:
    if isinstance(argument, _Value):
        return argument.value
    if isinstance(argument, list):
        return [_value(item) for item in argument]
    return argument


class ThreadExecutor(PinnedBlas):
    """Runs tasks on a pool of threads, in the order of submission.

    Parameters
    ----------
    n_threads : int
        Tasks at the same time; results do not depend on it.

    Notes
    -----
    A task waits for its arguments inside its thread. Arguments were always submitted before,
    and the pool is first-in first-out, so the oldest unfinished task can always run.
    """

    def __init__(self, n_threads: int) -> None:
        super().__init__()
        self.n_workers = n_threads
        self.description = f"in this process, {n_threads} threads"
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None

    @property
    def memory_limit_bytes(self) -> int | None:
        """See `Executor.memory_limit_bytes`: what this machine has free."""
        return available_memory_bytes()

    def __enter__(self) -> Self:
        self._pool = concurrent.futures.ThreadPoolExecutor(
            self.n_workers, thread_name_prefix="mscam"
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
        return self._pool.submit(_run, function, args)

    def gather(self, handles: Sequence[Handle]) -> list[Any]:
        """See `Executor.gather`."""
        return [handle.result() for handle in handles]

    def release(self, handles: Sequence[Handle]) -> None:
        """See `Executor.release`. Dropping the handle frees the result."""


def _run(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    return function(*(_result(arg) for arg in args))


def _result(argument: Any) -> Any:
    if isinstance(argument, concurrent.futures.Future):
        return argument.result()
    if isinstance(argument, list):
        return [_result(item) for item in argument]
    return argument
