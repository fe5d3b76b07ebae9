"""Memory alignment of arrays that come from another process.

Such an array may start at an address in its message that is not a multiple of its
item size. NumPy computes with it in another order, so the last bits of a product would depend on
the worker that a task ran on. A copy is aligned.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
from scipy.sparse import csr_array

__all__ = ["aligned"]


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
