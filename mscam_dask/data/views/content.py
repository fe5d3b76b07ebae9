"""What a view may hold: a two-dimensional table of real numbers, all of them known."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mscam_dask.errors import DataError

__all__ = ["check_view", "unmasked"]

_UNUSABLE_KINDS = {
    "O": "Python objects",
    "c": "complex numbers",
    "M": "dates",
    "m": "time differences",
    "S": "byte strings",
    "U": "text",
    "T": "text",
    "V": "structured or raw records",
}

_REMEDIES = {
    "O": "convert it to numbers first, for example with numpy.asarray(view, dtype=float)",
    "c": "give the real and imaginary parts (or modulus and phase) as columns",
    "M": "give a number instead, for example days since a reference date",
    "m": "divide by a unit, for example view / numpy.timedelta64(1, 's')",
    "S": "encode it as numbers first, for example one column per category",
    "U": "encode it as numbers first, for example one column per category",
    "T": "encode it as numbers first, for example one column per category",
    "V": "pick the numeric fields and stack them as columns",
}


def check_view(name: str, shape: tuple[Any, ...], dtype: DTypeLike) -> None:
    """Refuse a view that is not a two-dimensional table of real numbers.

    Raises
    ------
    DataError
        Naming the view, what it holds and how to convert it.
    """
    resolved = np.dtype(dtype)
    if resolved.kind not in "biuf":
        held = _UNUSABLE_KINDS.get(resolved.kind, "values that are not numbers")
        remedy = _REMEDIES.get(resolved.kind, "convert it to numbers first")
        raise DataError(
            f"View {name!r} holds {held} (dtype {resolved}); allowed are real numbers "
            f"(bool, integer, floating point). To use it, {remedy}."
        )
    if len(shape) != 2:
        raise DataError(
            f"View {name!r} has {len(shape)} dimension(s), shape {tuple(shape)}; allowed is a "
            "two-dimensional array (samples, features). Reshape a single feature to (n, 1), "
            "flatten images to one row per sample."
        )


def unmasked(
    values: NDArray[Any], name: str, *, rows: tuple[int, int] | None = None
) -> NDArray[Any]:
    """Return the plain array of a masked one; any other array as it is.

    Parameters
    ----------
    values
        The view, or a block of its rows.
    name
        Of the view.
    rows
        (start, stop) of the block, for the message.

    Raises
    ------
    DataError
        With the number of masked values: what lies under a mask is no value of the view.
    """
    if not isinstance(values, np.ma.MaskedArray):
        return values
    n_masked = int(np.count_nonzero(np.ma.getmaskarray(values)))
    if n_masked:
        where = "" if rows is None else f" in rows {rows[0]}:{rows[1]}"
        raise DataError(
            f"View {name!r} has {n_masked} masked (missing) value(s){where}; every value must be "
            "known. Impute them or drop the samples, then pass a plain array."
        )
    plain: NDArray[Any] = values.data
    return plain
