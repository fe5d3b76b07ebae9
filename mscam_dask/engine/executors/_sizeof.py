"""Memory of task results, registered with `dask.sizeof`.

Dask moves and spills results by `dask.sizeof`, which counts a dataclass as a few dozen bytes
whatever arrays it holds.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from dask.sizeof import sizeof
from scipy.sparse import issparse

__all__ = ["make_measurable", "n_bytes"]


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
        if dataclasses.is_dataclass(kind) and kind not in _known:
            sizeof.register(kind, n_bytes)
            _known.add(kind)


_known: set[type] = set()
