"""Arrays between processes: memory alignment, and sizes that Dask does not know.

An array from another process may start at an address in its message that is not a multiple of its
item size. NumPy computes with it in another order, so the last bits of a product would depend on
the worker that a task ran on. A copy is aligned.

Dask moves and spills results by `dask.sizeof`, which counts a dataclass as a few dozen bytes
whatever arrays it holds; `n_bytes` counts these.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
from typing import Any

import numpy as np
from dask.sizeof import sizeof
from scipy.sparse import csr_array, issparse

__all__ = ["aligned", "make_measurable", "n_bytes"]


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
