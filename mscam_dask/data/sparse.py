"""The format check of sparse arrays: SciPy's conversions trust indices, and one out of range reads other memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from scipy import sparse

from mscam_dask.errors import DataError

# Formats that files hold, and the arguments of their constructors.
_IN_FILES = {
    "csr": ("data", "indices", "indptr"),
    "csc": ("data", "indices", "indptr"),
    "bsr": ("data", "indices", "indptr"),
    "coo": ("data", "coords"),
    "dia": ("data", "offsets"),
}


def is_sparse(value: object) -> bool:
    """Return whether a value is a SciPy sparse array or matrix."""
    return bool(sparse.issparse(value))


def checked_sparse(value: Any, where: str) -> Any:
    """Return a sparse array in compressed form or as coordinates, all in range; `where` begins errors."""
    with _refused(where, value.format, value.shape):
        if len(value.shape) != 2:
            raise ValueError(f"it has {len(value.shape)} dimension(s), allowed are two")
        if value.format in ("dia", "dok"):  # which are converted by checked coordinates
            return value.tocoo()
        if value.format == "coo":
            return type(value)((value.data, value.coords), shape=value.shape)
        if value.format == "lil":
            if list(map(len, value.rows)) != list(map(len, value.data)):
                raise ValueError("a row has more indices than values, or fewer")
            value = value.tocsr()
        parts = value.data, value.indices, value.indptr
        same = type(value)(parts, shape=value.shape)
        same.check_format(full_check=True)
        if np.any(same.indptr[1:] < same.indptr[:-1]):  # not looked at without values
            raise ValueError("index pointers fall")
        return same


def sparse_from_parts(form: str, parts: Mapping[str, Any], shape: Any, where: str) -> Any:
    """Make a sparse array of the arrays that a file holds by name, and check it."""
    if form not in _IN_FILES:
        raise DataError(
            f"{where} is a sparse array of format {form!r}; allowed are {', '.join(_IN_FILES)}. Save "
            "it in one of these formats."
        )
    sizes = tuple(np.ravel(shape).tolist())
    with _refused(where, form, sizes):
        data = np.asarray(parts["data"])
        if data.dtype.kind not in "biufc":
            raise ValueError(f"data has dtype {data.dtype}, allowed are numbers")
        if "indptr" in parts and np.any(data[int(parts["indptr"][-1]) :]):
            raise ValueError(f"indptr ends at {parts['indptr'][-1]}, before the last value")
        make = getattr(sparse, f"{form}_array")
        return checked_sparse(
            make(tuple(parts[name] for name in _IN_FILES[form]), shape=sizes), where
        )


@contextmanager
def _refused(where: str, form: str, shape: tuple[Any, ...]) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, IndexError, OverflowError, AttributeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{where} is not a valid sparse array ({form}, shape {shape}): {error}. Make it again from the "
            "original data; it is damaged or was assembled wrongly."
        ) from error
