"""Processes that run tasks: their settings, and the arrays between them.

One BLAS and OpenMP thread for each task makes results independent of the executor.

Dask starts workers with MALLOC_TRIM_THRESHOLD_=65536, by which large arrays are fetched from the system
again and again: kernels take twice the time. A process keeps a bounded amount instead (docs/decisions/0002).

An array from another process may be unaligned. NumPy computes with it in another order, so the last bits
would depend on the worker; a copy is aligned. Dask's `sizeof` does not see the arrays in a dataclass;
`n_bytes` does.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import dataclasses
import functools
import gc
import operator
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Self

import numpy as np
import psutil
from scipy.sparse import csr_array, issparse
from threadpoolctl import OpenBLASController, threadpool_limits


class RefCountedContext:
    """A process-wide setting: the first of overlapping fits sets it, the last restores it."""

    def __init__(self, setting: Callable[[], AbstractContextManager[Any]]) -> None:
        self._setting = setting
        self._lock = threading.Lock()
        self._depth = 0
        self._stack = contextlib.ExitStack()
        self._is_permanent = False

    def __enter__(self) -> Self:
        with self._lock:
            if self._depth == 0:
                self._stack.enter_context(self._setting())
            self._depth += 1
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._stack.close()

    def enter_permanently(self) -> None:
        """Set it once in this process and keep it, unless a fit has it set."""
        if self._is_permanent or self._depth > 0:
            return
        with self._lock:
            if not self._is_permanent and self._depth == 0:
                self._setting().__enter__()
                self._is_permanent = True


@contextlib.contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Limit the process to one BLAS thread, from whichever of its threads.

    Since version 3.8 threadpoolctl accepts limits of OpenBLAS from the first thread that set one
    and silently ignores the others, so that thread is cleared before and after.
    """
    clear = getattr(OpenBLASController, "clear_controlling_thread", lambda **_: None)
    clear(force=True)
    limits = threadpool_limits(limits=1, user_api="blas")
    yield
    clear(force=True)
    limits.restore_original_limits()
    clear(force=True)


class PinnedBlas:
    """A limit of one BLAS and one OpenMP thread: other counts change bits and oversubscribe cores.

    The BLAS limit holds for the process and is shared by overlapping fits. The OpenMP limit holds
    for the thread that sets it, so every thread that runs tasks sets it.
    """

    _blas: ClassVar[RefCountedContext] = RefCountedContext(_one_blas_thread)
    _thread: ClassVar[threading.local] = threading.local()

    def __init__(self) -> None:
        self._openmp: threadpool_limits | None = None

    def __enter__(self) -> Self:
        self._blas.__enter__()
        self._openmp = threadpool_limits(limits=1, user_api="openmp")
        return self

    def __exit__(self, *error: object) -> None:
        if self._openmp is not None:
            self._openmp.restore_original_limits()
            self._openmp = None
            self._blas.__exit__(*error)

    @classmethod
    def pin_thread(cls) -> None:
        """Limit OpenMP in the calling thread for the rest of its life."""
        if not getattr(cls._thread, "pinned", False):
            threadpool_limits(limits=1, user_api="openmp")
            cls._thread.pinned = True

    @classmethod
    def pin_permanently(cls) -> None:
        """Limit a worker's thread and process; not as a fit, after whose end a task may start."""
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
    """Undo Dask's setting in this process, once; whether Dask had set it and glibc took the change."""
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
def keep_loaded_objects() -> None:
    """Leave modules and what else is loaded out of later garbage collections, which take 0.1 s each with them."""
    gc.collect()
    gc.freeze()


def prepare_process() -> None:
    """Prepare the process of a worker for tasks."""
    if keep_freed_memory():  # not the process of a driver, whose objects are of users
        keep_loaded_objects()


_resident_bytes = [0]
"""Smallest resident set of this process since freed memory was last returned, 0 before."""


def return_freed_memory() -> bool:
    """Return free memory to the system after growth by 64 MiB, where Dask's setting is undone."""
    if not keep_freed_memory():
        return False
    process = psutil.Process()
    resident = process.memory_info().rss
    if resident <= _resident_bytes[0] + _KEPT_BYTES:
        _resident_bytes[0] = min(resident, _resident_bytes[0])
        return False
    returned = bool(ctypes.CDLL(None).malloc_trim(0))
    _resident_bytes[0] = process.memory_info().rss
    return returned


def without_dask_trim(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment for a process that a worker starts, without Dask's setting."""
    name, value = DASK_TRIM
    return {key: text for key, text in environment.items() if (key, text) != (name, value)}


def aligned(value: Any) -> Any:
    """Return `value` with unaligned arrays in it replaced by copies of the same memory order."""
    if isinstance(value, np.ndarray):
        return value if value.flags.aligned else value.copy(order="K")
    if isinstance(value, list) or type(value) is tuple:
        items = type(value)(map(aligned, value))
        return items if any(map(operator.is_not, items, value)) else value
    if isinstance(value, dict):
        copied = {key: aligned(item) for key, item in value.items()}
        return copied if any(copied[key] is not value[key] for key in value) else value
    names: tuple[str, ...] = ()
    if isinstance(value, csr_array):
        names = ("data", "indices", "indptr")
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = tuple(field.name for field in dataclasses.fields(value))
    parts = [getattr(value, name) for name in names]
    copies = aligned(parts)
    if copies is parts:
        return value
    whole = copy.copy(value)
    for name, part in zip(names, copies, strict=True):
        object.__setattr__(whole, name, part)  # frozen, and validated when it was made
    return whole


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
    from dask.sizeof import sizeof

    return int(sizeof(value))


def make_measurable(value: Any) -> None:
    """Register `n_bytes` with Dask for a value's type, or for those of its items."""
    from dask.sizeof import sizeof

    for item in value if isinstance(value, list | tuple) else (value,):
        kind = type(item)
        if dataclasses.is_dataclass(kind) and kind not in _measurable:
            sizeof.register(kind, n_bytes)
            _measurable.add(kind)


_measurable: set[type] = set()
