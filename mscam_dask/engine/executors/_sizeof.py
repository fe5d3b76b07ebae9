"""How much memory the results of our tasks take, told to Dask.

Dask moves and spills by `dask.sizeof`, which sees a dataclass as a few dozen bytes whatever
arrays it holds.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from dask.sizeof import sizeof
from scipy.sparse import issparse

__all__ = ["make_measurable", "n_bytes"]


def n_bytes(value: Any) -> int:
    """Return the bytes of a value with all that dataclasses and sequences in it hold."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return sys.getsizeof(value) + sum(n_bytes(getattr(value, one.name)) for one in fields)
    if isinstance(value, list | tuple):
        return sys.getsizeof(value) + sum(map(n_bytes, value))
    if issparse(value):
        arrays = (getattr(value, name, None) for name in ("data", "indices", "indptr"))
        return sum(int(array.nbytes) for array in arrays if array is not None)
    return int(sizeof(value))


def make_measurable(value: Any) -> None:
    """Have Dask measure a value's type, or that of its items, by `n_bytes` from now on."""
    for one in value if isinstance(value, list | tuple) else (value,):
        kind = type(one)
        if dataclasses.is_dataclass(kind) and kind not in _known:
            sizeof.register(kind, n_bytes)
            _known.add(kind)


_known: set[type] = set()
