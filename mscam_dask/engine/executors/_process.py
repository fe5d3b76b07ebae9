"""Processes that run tasks: their settings, and the arrays between them.

One BLAS and OpenMP thread for each task makes results independent of the executor.

Dask starts workers with MALLOC_TRIM_THRESHOLD_=65536: glibc then returns every block of 128 KiB
or more to the system as soon as it is freed and fetches it again, page by page and zeroed, for the
next array of that size. Kernels with temporary arrays of the size of the second-level cache take
more than twice the time. Without any threshold, free memory below a block in use stays with the
process, however large it is. Hence a process keeps a bounded amount: docs/decisions/0002.

An array from another process may start at an address in its message that is not a multiple of its
item size. NumPy computes with it in another order, so the last bits of a product would depend on
the worker that a task ran on. A copy is aligned. Dask moves and spills results by `dask.sizeof`,
which counts a dataclass as a few dozen bytes whatever arrays it holds; `n_bytes` counts these.
"""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import functools
import gc
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, ClassVar, Self

import numpy as np
import psutil
from dask.sizeof import sizeof
from scipy.sparse import csr_array, issparse
from threadpoolctl import OpenBLASController, threadpool_limits


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


DASK_TRIM = ("MALLOC_TRIM_THRESHOLD_", "65536")
"""Variable and value that Dask's nanny sets; another value is a choice of the user."""

# Parameters of mallopt, from glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

# Free memory that a process keeps.
_KEPT_BYTES = 64 * 2**20

BASE_BYTES = 257 * 2**20 + _KEPT_BYTES
"""Memory of a worker without data: interpreter, libraries, and freed memory that it keeps."""

# Arrays above this size still go back to the system as soon as they are freed.
_MAPPED_BYTES = 16 * 2**20


@functools.cache
def keep_freed_memory() -> bool:
    """Undo Dask's setting in this process, once.

    Returns
    -------
    bool
        Whether Dask had set it and glibc took the change.
    """
    name, value = DASK_TRIM
    if os.environ.get(name) != value or not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is None:
        return False
    return bool(
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES) and mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
    )


@functools.cache
def exempt_from_collection() -> bool:
    """Exempt all existing objects from garbage collection, once, in a worker process.

    Nearly all of them belong to imported modules. A full collection looks at each of them, and no other thread
    runs meanwhile, so any task may wait for it: 0.17 s with them and some 0.03 s without them.

    Returns
    -------
    bool
        Whether objects were exempted: another Python process started this one.
    """
    if multiprocessing.parent_process() is None:  # it may be the process of the user
        return False
    gc.freeze()
    return True


def prepare_worker() -> None:
    """Prepare the process and the thread of a worker for tasks."""
    PinnedBlas.pin_permanently()
    keep_freed_memory()
    exempt_from_collection()


class _Resident:
    """Smallest resident set of this process since freed memory was last returned."""

    min_bytes: ClassVar[int] = 0


def return_freed_memory() -> bool:
    """Return free memory anywhere in the heap to the system, if the process has grown by 64 MiB.

    For use after each task of a process in which `keep_freed_memory` undid Dask's setting;
    elsewhere it does nothing.

    Returns
    -------
    bool
        Whether memory was returned.

    Notes
    -----
    Growth by memory in use costs one useless call for each 64 MiB of it.
    """
    if not keep_freed_memory():
        return False
    process = psutil.Process()
    resident = process.memory_info().rss
    if resident <= _Resident.min_bytes + _KEPT_BYTES:
        _Resident.min_bytes = min(resident, _Resident.min_bytes)
        return False
    returned = bool(ctypes.CDLL(None).malloc_trim(0))
    _Resident.min_bytes = process.memory_info().rss
    return returned


def without_dask_trim(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment for a process that a worker starts, without Dask's setting."""
    name, value = DASK_TRIM
    return {key: text for key, text in environment.items() if (key, text) != (name, value)}


def aligned(value: Any) -> Any:
    """Return `value` with unaligned arrays in it replaced by copies of the same memory order.

    Parameters
    ----------
    value
        Array, sparse array, dataclass, list, tuple or mapping of them, of any depth; anything
        else is returned as it is. Nothing is changed in place.
    """
    if isinstance(value, np.ndarray):
        return value if value.flags.aligned else value.copy(order="K")
    if isinstance(value, csr_array):
        parts = (value.data, value.indices, value.indptr)
        copies = tuple(aligned(part) for part in parts)
        return value if _same(copies, parts) else csr_array(copies, shape=value.shape)
    if isinstance(value, list) or type(value) is tuple:
        items = type(value)(aligned(item) for item in value)
        return value if _same(items, value) else items
    if isinstance(value, dict):
        values = {key: aligned(item) for key, item in value.items()}
        return value if _same(values.values(), value.values()) else values
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _dataclass(value)
    return value


def _dataclass(value: Any) -> Any:
    names = [field.name for field in dataclasses.fields(value)]
    parts = [getattr(value, name) for name in names]
    copies = [aligned(part) for part in parts]
    if _same(copies, parts):
        return value
    whole = copy.copy(value)
    for name, part in zip(names, copies, strict=True):
        object.__setattr__(whole, name, part)  # frozen, and validated when it was made
    return whole


def _same(first: Any, second: Any) -> bool:
    return all(left is right for left, right in zip(first, second, strict=True))


def n_bytes(value: Any) -> int:
    """Return the bytes of a value, including what dataclasses and sequences in it hold."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return sys.getsizeof(value) + sum(n_bytes(getattr(value, field.name)) for field in fields)
    if isinstance(value, list | tuple):
        return sys.getsizeof(value) + sum(map(n_bytes, value))
    if issparse(value):
        arrays = (getattr(value, name, None) for name in ("data", "indices", "indptr"))
        return sum(int(array.nbytes) for array in arrays if array is not None)
    return int(sizeof(value))


def make_measurable(value: Any) -> None:
    """Register `n_bytes` with Dask for a value's type, or for those of its items."""
    for item in value if isinstance(value, list | tuple) else (value,):
        kind = type(item)
        if dataclasses.is_dataclass(kind) and kind not in _measurable:
            sizeof.register(kind, n_bytes)
            _measurable.add(kind)


_measurable: set[type] = set()
