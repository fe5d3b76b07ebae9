"""Limits of BLAS and OpenMP threads: one for each task, so that results do not depend on executors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, ClassVar, Self

from threadpoolctl import OpenBLASController, threadpool_limits

__all__ = ["PinnedBlas", "RefCountedContext"]


class RefCountedContext:
    """A process-wide setting: the first of overlapping fits sets it, the last restores it.

    Parameters
    ----------
    setting
        Returns a context that sets it, at the latest on entering, and restores it on leaving.
    """

    def __init__(self, setting: Callable[[], AbstractContextManager[Any]]) -> None:
        self._setting = setting
        self._lock = threading.Lock()
        self._depth = 0
        self._set: AbstractContextManager[Any] | None = None
        self._is_permanent = False

    def __enter__(self) -> Self:
        with self._lock:
            if self._depth == 0:
                self._set = self._setting()
                self._set.__enter__()
            self._depth += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0 and self._set is not None:
                self._set.__exit__(None, None, None)
                self._set = None

    def enter_permanently(self) -> None:
        """Set it once in this process and keep it, unless a fit has it set."""
        if self._is_permanent or self._depth > 0:
            return
        with self._lock:
            if not self._is_permanent and self._depth == 0:
                self._setting().__enter__()
                self._is_permanent = True


class _OneBlasThread:
    """A limit of one BLAS thread for the process, set and restored from any of its threads.

    Notes
    -----
    Since version 3.8 threadpoolctl accepts limits of OpenBLAS from the first thread that set one
    and silently ignores the others, so that thread is cleared before.
    """

    def __enter__(self) -> Self:
        _clear_controlling_thread()
        self._limits = threadpool_limits(limits=1, user_api="blas")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _clear_controlling_thread()
        self._limits.restore_original_limits()
        _clear_controlling_thread()  # any thread may set one now


def _clear_controlling_thread() -> None:
    if hasattr(OpenBLASController, "clear_controlling_thread"):
        OpenBLASController.clear_controlling_thread(force=True)


class PinnedBlas:
    """A limit of one BLAS and one OpenMP thread: other counts change bits and oversubscribe cores.

    Notes
    -----
    The BLAS limit holds for the process and is shared by overlapping fits. The OpenMP limit holds
    for the thread that sets it, so every thread that runs tasks sets it.
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
        """Limit OpenMP in the calling thread for the rest of its life."""
        if not getattr(cls._thread, "pinned", False):
            threadpool_limits(limits=1, user_api="openmp")
            cls._thread.pinned = True

    @classmethod
    def pin_permanently(cls) -> None:
        """Limit a worker's thread, and its process unless a fit in this process does.

        This does not count as a fit: a worker inside the driver's process may start a task after
        its fit has ended, and the next fit still sets and restores the limit.
        """
        cls.pin_thread()
        cls._blas.enter_permanently()
