"""Worker processes keep a little of the memory they have freed, and no more.

Dask starts workers with MALLOC_TRIM_THRESHOLD_=65536, which has glibc hand every block of 128 KiB
or more back to the system as soon as it is freed, and fetch it again, page by page and zeroed, for
the next array of that size. Kernels whose temporary arrays are made for the second-level cache
take more than twice the time so. Without it, what is free below a block that is still used stays with
the process however large it is. See docs/decisions/0048.
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
    "give_freed_memory_back",
    "keep_freed_memory",
    "without_dask_trim",
]

DASK_TRIM = ("MALLOC_TRIM_THRESHOLD_", "65536")
"""Variable and value that Dask's nanny sets; another value is somebody's choice."""

# Of mallopt, in glibc's malloc.h.
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
        Whether there was something to undo and a glibc to undo it in.
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
    """The smallest resident set of this process since freed memory was last given back."""

    least_bytes: ClassVar[int] = 0


def give_freed_memory_back() -> bool:
    """Give back what lies free anywhere in the heap, if the process has grown by `KEPT_BYTES`.

    To be called after each task of a process in which `keep_freed_memory` undid Dask's setting;
    elsewhere it does nothing.

    Returns
    -------
    bool
        Whether something was given back.

    Notes
    -----
    A growth that is still used makes one call in vain for each `KEPT_BYTES` of it.
    """
    if not keep_freed_memory():
        return False
    process = psutil.Process()
    resident = process.memory_info().rss
    if resident <= _Resident.least_bytes + KEPT_BYTES:
        _Resident.least_bytes = min(resident, _Resident.least_bytes)
        return False
    given = bool(ctypes.CDLL(None).malloc_trim(0))
    _Resident.least_bytes = process.memory_info().rss
    return given


def without_dask_trim(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment for a process of its own that a worker starts."""
    name, value = DASK_TRIM
    return {key: text for key, text in environment.items() if (key, text) != (name, value)}
