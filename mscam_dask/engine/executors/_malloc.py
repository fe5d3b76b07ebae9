"""Settings of glibc's malloc in worker processes: a bounded amount of freed memory is kept.

Dask starts workers with MALLOC_TRIM_THRESHOLD_=65536: glibc then returns every block of 128 KiB
or more to the system as soon as it is freed and fetches it again, page by page and zeroed, for the
next array of that size. Kernels with temporary arrays of the size of the second-level cache take
more than twice the time. Without any threshold, free memory below a block in use stays with the
process, however large it is. See docs/decisions/0048.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Mapping
from typing import ClassVar

import psutil

__all__ = [
    "DASK_TRIM",
    "KEPT_BYTES",
    "keep_freed_memory",
    "return_freed_memory",
    "without_dask_trim",
]

DASK_TRIM = ("MALLOC_TRIM_THRESHOLD_", "65536")
"""Variable and value that Dask's nanny sets; another value is a choice of the user."""

# Parameters of mallopt, from glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

KEPT_BYTES = 64 * 2**20
"""Free memory that a process keeps."""

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
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES) and mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
    )


class _Resident:
    """Smallest resident set of this process since freed memory was last returned."""

    min_bytes: ClassVar[int] = 0


def return_freed_memory() -> bool:
    """Return free memory anywhere in the heap to the system, if the process has grown by `KEPT_BYTES`.

    For use after each task of a process in which `keep_freed_memory` undid Dask's setting;
    elsewhere it does nothing.

    Returns
    -------
    bool
        Whether memory was returned.

    Notes
    -----
    Growth by memory in use costs one useless call for each `KEPT_BYTES` of it.
    """
    if not keep_freed_memory():
        return False
    process = psutil.Process()
    resident = process.memory_info().rss
    if resident <= _Resident.min_bytes + KEPT_BYTES:
        _Resident.min_bytes = min(resident, _Resident.min_bytes)
        return False
    returned = bool(ctypes.CDLL(None).malloc_trim(0))
    _Resident.min_bytes = process.memory_info().rss
    return returned


def without_dask_trim(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment for a process that a worker starts, without Dask's setting."""
    name, value = DASK_TRIM
    return {key: text for key, text in environment.items() if (key, text) != (name, value)}
