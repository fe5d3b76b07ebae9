"""One thread of BLAS and of OpenMP for each task: who runs a task changes no bit of its result."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import ClassVar, Self

from threadpoolctl import OpenBLASController, threadpool_limits

from mscam_dask.engine.executors._refcount import RefCountedContext

__all__ = ["PinnedBlas"]


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

    _blas: ClassVar[RefCountedContext] = RefCountedContext(_OneBlasThread)
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
    def pin_permanently(cls) -> None:
        """Pin a thread of a worker, and its process unless a fit in this process has.

        This does not count as a fit. A worker inside the driver's process may start a task when
        its fit has left already; the next fit must pin, and give the threads back, all the same.
        """
        cls.pin_thread()
        cls._blas.enter_permanently()
