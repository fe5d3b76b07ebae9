"""Ground-truth labels as one int64 per sample, and checks of names and ids."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.errors import DataError

__all__ = [
    "UNLABELED",
    "as_text",
    "check_printable",
    "encode_labels",
    "is_missing",
    "labeled_samples",
]

UNLABELED = -1
"""Label of samples without one."""

_TWO = 2

# Control characters act on a terminal and break lines of a CSV file; surrogates are no UTF-8.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def as_text(item: object) -> str:
    """Return an id or a name as text; bytes, which HDF5 stores, are decoded."""
    return item.decode("utf-8", "backslashreplace") if isinstance(item, bytes) else str(item)


def check_printable(texts: Iterable[str], what: str) -> None:
    """Refuse texts with control characters, line separators or surrogates.

    Raises
    ------
    DataError
        With the first such text, escaped.
    """
    texts = tuple(texts)
    if not _UNPRINTABLE.search("".join(texts)):
        return
    at = next(index for index, text in enumerate(texts) if _UNPRINTABLE.search(text))
    raise DataError(
        f"The {what} {texts[at]!a} at position {at} has control characters; allowed are texts that "
        "can be printed in one line. Remove them."
    )


def labeled_samples(labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which samples have a label: all but those of −1, if there are two other labels or more.

    Two classes may be called −1 and 1.
    """
    classes = np.unique(labels)
    has_unlabeled = len(classes) > _TWO and classes[0] == UNLABELED
    return labels != UNLABELED if has_unlabeled else np.ones(len(labels), dtype=np.bool_)


def encode_labels(values: Any) -> tuple[NDArray[np.int64], tuple[str, ...] | None]:
    """Return (codes, names): whole numbers as they are, text as positions in the sorted names.

    Parameters
    ----------
    values
        (n,), (n, 1) or (1, n) whole numbers of any dtype (MATLAB stores them as double),
        booleans, or text, also as bytes.

    Returns
    -------
    codes
        (n,) int64.
    names
        Names of the codes 0, 1, ... for text, None for numbers.

    Raises
    ------
    DataError
        When labels are not one whole number or text per sample.
    """
    array = np.asarray(values)
    if array.ndim == 0 or array.size != max(array.shape, default=0):
        raise DataError(
            f"Labels have shape {array.shape}; allowed is one label per sample, (n,). "
            "From an indicator matrix take indicator.argmax(axis=1)."
        )
    flat = array.ravel()
    if flat.dtype.kind == "O":
        gone = [row for row, item in enumerate(flat) if is_missing(item)]
        if gone:
            raise DataError(
                f"{len(gone)} label(s) are missing, the first {flat[gone[0]]} in row {gone[0]}. Give "
                "unlabeled samples a number of their own, for example -1, or a name where labels are "
                "text."
            )
    if flat.dtype.kind == "S" or (
        flat.dtype.kind == "O" and all(isinstance(item, str | bytes) for item in flat)
    ):
        flat = np.array([as_text(item) for item in flat.tolist()], dtype=np.str_)
    if flat.dtype.kind in "UT":
        names, codes = np.unique(flat.astype(np.str_), return_inverse=True)
        return codes.astype(np.int64), tuple(names.tolist())
    if flat.dtype.kind in "bi" or (flat.dtype.kind == "u" and flat.dtype.itemsize < 8):
        return flat.astype(np.int64), None
    if flat.dtype.kind in "fu":
        whole = np.isfinite(flat) & (np.abs(flat) < 2.0**62)
        whole &= np.floor(flat) == flat
        if whole.all():
            return flat.astype(np.int64), None
        rows = np.flatnonzero(~whole)
        raise DataError(
            f"{rows.size} label(s) are not whole numbers, the first {flat[rows[0]]} in row "
            f"{rows[0]}; allowed are integers or text, one per sample. Give unlabeled samples a "
            "number of their own, for example -1."
        )
    raise DataError(
        f"Labels have dtype {flat.dtype}; allowed are integers or text, one per sample. Encode "
        "them with numpy.unique(y, return_inverse=True)[1]."
    )


def is_missing(item: object) -> bool:
    """Return whether a Python object is a missing value, as pandas defines it."""
    if isinstance(item, float | np.floating):
        return bool(np.isnan(item))
    return item is None or type(item).__name__ in ("NAType", "NaTType")
