"""Executors inside this process: one task at a time, or on a pool of threads."""

from __future__ import annotations

import concurrent.futures
import os
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, ClassVar, Self

import psutil
from threadpoolctl import OpenBLASController, threadpool_limits

from mscam_dask.engine.executor import Handle
from mscam_dask.engine.shared_setting import SharedSetting

__all__ = ["PinnedBlas", "SerialExecutor", "ThreadExecutor", "usable_cores"]


class _OneBlasThread:
    """One BLAS thread for the process, from whichever of its threads it is asked and taken back.

    Notes
    -----
    From version 3.8 on threadpoolctl listens to one thread alone, the first that set a limit of
    OpenBLAS, and passes over the others in silence; so that thread is forgotten first.
    """

    def __enter__(self) -> Self:
        _forget_who_set_limits()
        self._limits = threadpool_limits(limits=1, user_api="blas")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _forget_who_set_limits()
        self._limits.restore_original_limits()
        _forget_who_set_limits()  # anybody may set one now


def _forget_who_set_limits() -> None:
    if hasattr(OpenBLASController, "clear_controlling_thread"):
        OpenBLASController.clear_controlling_thread(force=True)


class PinnedBlas:
    """One BLAS and one OpenMP thread per task: other counts give other bits, and oversubscribe.

    Notes
    -----
    The BLAS limit is the process's, and fits that overlap share it. The OpenMP limit belongs to
    the thread that sets it, so every thread that runs tasks has to.
    """

    _blas: ClassVar[SharedSetting] = SharedSetting(_OneBlasThread)
    _thread: ClassVar[threading.local] = threading.local()

    def __init__(self) -> None:
        self._openmp: threadpool_limits | None = None

    def __enter__(self) -> Self:
        self._blas.__enter__()
        self._openmp = threadpool_limits(limits=1, user_api="openmp")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._openmp is None:
            return
        self._openmp.restore_original_limits()
        self._openmp = None
        self._blas.__exit__(kind, error, trace)

    @classmethod
    def pin_thread(cls) -> None:
        """Pin OpenMP in the calling thread, for as long as it lives."""
        if not getattr(cls._thread, "pinned", False):
            threadpool_limits(limits=1, user_api="openmp")
            cls._thread.pinned = True

    @classmethod
    def pin_for_good(cls) -> None:
        """Pin a thread of a worker, and its process unless a fit in this process has.

        This does not count as a fit. A worker inside the driver's process may start a task when
        its fit has left already; the next fit must pin, and give the threads back, all the same.
        """
        cls.pin_thread()
        cls._blas.set_for_good()


class _Value:
    """The handle of the serial executor: a result already there."""

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
    """Runs each task when it is submitted."""

    description = "in this process, one task at a time"
    n_workers = 1
    shares_memory = True

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

    shares_memory = True

    def __init__(self, n_threads: int) -> None:
        super().__init__()
        self.n_workers = n_threads
        self.description = f"in this process, {n_threads} threads"
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None

    @property
    def memory_limit_bytes(self) -> int | None:
        """See `Executor.memory_limit_bytes`: what this machine has free, over the threads."""
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
        # the task holds what it waits for itself: handles may be released before it runs
        return _Pending(self._pool.submit(_run, function, [_future(arg) for arg in args]))

    def gather(self, handles: Sequence[Handle]) -> list[Any]:
        """See `Executor.gather`."""
        return [handle.future.result() for handle in handles]

    def release(self, handles: Sequence[Handle]) -> None:
        """See `Executor.release`."""
        for handle in handles:
            handle.future = None


class _Pending:
    """The handle of the thread executor: a future, until it is released."""

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
