"""The format check of sparse arrays, made before anything converts them.

SciPy's conversions trust indices and index pointers: one that is out of range reads or writes memory
outside the array, or moves a value to another sample. Its own `check_format` skips the pointers of
arrays without values and writes to the arrays it checks, so it is not used here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mscam_dask.errors import DataError

__all__ = ["checked_sparse", "dense_rows", "is_sparse", "sparse_from_parts"]

_Parts = Mapping[str, Any]


def is_sparse(value: object) -> bool:
    """Return whether a value is a SciPy sparse array or matrix."""
    return bool(sparse.issparse(value))


def checked_sparse(value: Any, where: str) -> Any:
    """Return a SciPy sparse array or matrix as it is, once all of its indices are in range.

    Parameters
    ----------
    value
        Of any format; nothing of it is copied, converted or written to.
    where
        The view, or the file and variable, as the subject of the message.

    Raises
    ------
    DataError
        With the index or pointer that was got, its place and the allowed range.
    """
    _Check(where, value.format, value.shape).run(_parts_of(value))
    return value


def sparse_from_parts(form: str, parts: _Parts, shape: Any, where: str) -> Any:
    """Make a sparse array of the arrays that a file holds, once these have been checked.

    Parameters
    ----------
    form
        "csr", "csc", "bsr", "coo" or "dia".
    parts
        "data", with "indices" and "indptr", "coords" or "offsets", as the format needs.
    shape
        Numbers of rows and columns, as the file gives them.
    where
        See `checked_sparse`.

    Raises
    ------
    DataError
        As `checked_sparse`; also when values lie beyond the last index pointer, which belong to no
        row or column.
    """
    make = _CONSTRUCTORS.get(form)
    if make is None:
        raise DataError(
            f"{where} is a sparse array of format {form!r}; allowed are {', '.join(_CONSTRUCTORS)}. Save "
            "it in one of these formats."
        )
    sizes = np.asarray(shape)
    check = _Check(where, form, tuple(sizes.ravel().tolist()))
    if sizes.shape != (2,) or sizes.dtype.kind not in "iu" or sizes.min() < 0:
        check.refuse("allowed is a shape of two whole numbers, not negative")
    check.run(parts)
    data = parts["data"]
    if data.dtype.kind not in "biufc":
        check.refuse(f"data has dtype {data.dtype}, allowed are numbers")
    if "indptr" in parts:
        end = int(parts["indptr"][-1])
        if np.any(data[end:]):
            check.refuse(f"indptr ends at {end}, but there are values up to {len(data)}")
    return make(parts, check.shape)


def dense_rows(array: sparse.csr_array[Any], start: int, stop: int, where: str) -> NDArray[Any]:
    """Return rows start..stop-1 of a compressed sparse row array as a dense array.

    They are checked once more: the arrays are the caller's, who may have written to them.

    Raises
    ------
    DataError
        As `checked_sparse`.
    """
    where = f"{where}, rows {start}:{stop},"
    pointers = array.indptr[start : stop + 1]
    if len(pointers) != stop - start + 1 or pointers[0] < 0:
        _Check(where, "csr", array.shape).refuse("indptr is too short or negative")
    inside = slice(int(pointers[0]), int(pointers[-1]))
    parts = {
        "data": array.data[inside],
        "indices": array.indices[inside],
        "indptr": pointers - pointers[0],
    }
    rows = sparse_from_parts("csr", parts, (stop - start, array.shape[1]), where)
    dense: NDArray[Any] = rows.toarray()
    return dense


_CONSTRUCTORS: dict[str, Callable[[_Parts, Any], Any]] = {
    "csr": lambda parts, shape: sparse.csr_array(_compressed(parts), shape=shape),
    "csc": lambda parts, shape: sparse.csc_array(_compressed(parts), shape=shape),
    "bsr": lambda parts, shape: sparse.bsr_array(_compressed(parts), shape=shape),
    "coo": lambda parts, shape: sparse.coo_array((parts["data"], parts["coords"]), shape=shape),
    "dia": lambda parts, shape: sparse.dia_array((parts["data"], parts["offsets"]), shape=shape),
}


def _compressed(parts: _Parts) -> tuple[Any, Any, Any]:
    return parts["data"], parts["indices"], parts["indptr"]


def _parts_of(value: Any) -> dict[str, Any]:
    """The arrays that a sparse array consists of."""
    if value.format == "dok":
        return {"keys": list(value.keys())}
    names = ("data", "indices", "indptr", "coords", "offsets", "rows")
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


class _Check:
    """The check of one sparse array; `run` takes its parts."""

    def __init__(self, where: str, form: str, shape: tuple[Any, ...]) -> None:
        self.where = where
        self.form = form
        self.shape = shape

    def refuse(self, fault: str) -> NoReturn:
        raise DataError(
            f"{self.where} is not a valid sparse array ({self.form}, shape {self.shape}): {fault}. Make it "
            "again from the original data; it is damaged or was assembled wrongly."
        )

    def run(self, parts: _Parts) -> None:
        if len(self.shape) != 2:
            self.refuse(f"it has {len(self.shape)} dimension(s), allowed are two")
        checks = {
            "csr": self._csr,
            "csc": self._csc,
            "bsr": self._bsr,
            "coo": self._coo,
            "dia": self._dia,
            "lil": self._lil,
            "dok": self._dok,
        }
        if self.form not in checks:
            self.refuse(f"allowed formats are {', '.join(checks)}")
        checks[self.form](parts)

    def _csr(self, parts: _Parts) -> None:
        self._dimensions("data", parts["data"], 1)
        self._pointed(parts, self.shape[0], self.shape[1])

    def _csc(self, parts: _Parts) -> None:
        self._dimensions("data", parts["data"], 1)
        self._pointed(parts, self.shape[1], self.shape[0])

    def _bsr(self, parts: _Parts) -> None:
        self._dimensions("data", parts["data"], 3)
        height, width = parts["data"].shape[1:]
        if min(height, width) < 1 or self.shape[0] % height or self.shape[1] % width:
            self.refuse(f"blocks of shape {(height, width)} do not tile it")
        self._pointed(parts, self.shape[0] // height, self.shape[1] // width)

    def _coo(self, parts: _Parts) -> None:
        self._dimensions("data", parts["data"], 1)
        if isinstance(parts["coords"], np.ndarray):
            self._dimensions("coords", parts["coords"], 2)
        if len(parts["coords"]) != 2:
            self.refuse(f"coords has {len(parts['coords'])} array(s), allowed are two")
        for name, indices, size in zip(("row", "column"), parts["coords"], self.shape, strict=True):
            self._whole_numbers(f"{name} indices", indices)
            self._equal_lengths(f"{name} indices", indices, parts["data"])
            self._in_range(f"{name} index", indices, 0, size - 1)

    def _dia(self, parts: _Parts) -> None:
        offsets, data = parts["offsets"], parts["data"]
        self._whole_numbers("offsets", offsets)
        self._dimensions("data", data, 2)
        self._equal_lengths("offsets", offsets, data)
        self._in_range("offset", offsets, 1 - self.shape[0], self.shape[1] - 1)
        if np.unique(offsets).size < offsets.size:
            self.refuse("an offset occurs more than once")

    def _lil(self, parts: _Parts) -> None:
        rows, data = parts["rows"], parts["data"]
        for name, lists in (("rows", rows), ("data", data)):
            self._dimensions(name, lists, 1)
            if lists.shape != self.shape[:1] or not all(isinstance(one, list) for one in lists):
                self.refuse(f"{name} is not an array of {self.shape[0]} lists")
        for row, (indices, values) in enumerate(zip(rows, data, strict=True)):
            if len(indices) != len(values):
                self.refuse(f"row {row} has {len(indices)} indices and {len(values)} values")
        self._listed("column index", list(chain.from_iterable(rows)), self.shape[1])

    def _dok(self, parts: _Parts) -> None:
        keys = parts["keys"]
        if not all(isinstance(key, tuple) and len(key) == 2 for key in keys):
            self.refuse("allowed keys are pairs (row, column)")
        for axis, name in enumerate(("row", "column")):
            self._listed(f"{name} index", [key[axis] for key in keys], self.shape[axis])

    def _pointed(self, parts: _Parts, n_lines: int, size: int) -> None:
        """Check `indptr` and `indices` of lines (rows or columns) that are `size` long."""
        indices, indptr = parts["indices"], parts["indptr"]
        self._whole_numbers("indptr", indptr)
        self._whole_numbers("indices", indices)
        self._equal_lengths("indices", indices, parts["data"])
        if len(indptr) != n_lines + 1:
            self.refuse(f"indptr has {len(indptr)} entries, allowed are {n_lines + 1}")
        if indptr[0] != 0:
            self.refuse(f"indptr starts at {indptr[0]}, allowed is 0")
        falls = np.flatnonzero(indptr[1:] < indptr[:-1])
        if falls.size:
            at = int(falls[0])
            self.refuse(
                f"indptr falls from {indptr[at]} to {indptr[at + 1]} at entry {at + 1}, and it must not "
                "decrease"
            )
        if indptr[-1] > len(indices):
            self.refuse(f"indptr ends at {indptr[-1]}, allowed are 0 to {len(indices)}")
        name = "row index" if self.form == "csc" else "column index"
        name = f"block {name}" if self.form == "bsr" else name
        self._in_range(name, indices[: int(indptr[-1])], 0, size - 1)

    def _whole_numbers(self, name: str, values: Any) -> None:
        self._dimensions(name, values, 1)
        if values.dtype.kind not in "iu":
            self.refuse(f"{name} has dtype {values.dtype}, allowed are whole numbers")

    def _dimensions(self, name: str, values: Any, allowed: int) -> None:
        if not isinstance(values, np.ndarray):
            self.refuse(f"{name} is a {type(values).__qualname__}, allowed is a NumPy array")
        if values.ndim != allowed:
            self.refuse(f"{name} has {values.ndim} dimension(s), allowed is {allowed}")

    def _equal_lengths(self, name: str, values: NDArray[Any], data: NDArray[Any]) -> None:
        if len(values) != len(data):
            self.refuse(f"{name} has {len(values)} entries and data has {len(data)}")

    def _listed(self, name: str, values: list[Any], size: int) -> None:
        """Check indices in a Python list."""
        unusable = [index for index in values if not isinstance(index, int | np.integer)]
        if unusable:
            self.refuse(f"{name} {unusable[0]!r} is not a whole number")
        outside = [index for index in values if not 0 <= index < size]
        if outside:
            self._out_of_range(name, outside[0], values.index(outside[0]), 0, size - 1)

    def _in_range(self, name: str, values: NDArray[Any], low: int, high: int) -> None:
        if values.size and (values.min() < low or values.max() > high):
            at = int(np.argmax((values < low) | (values > high)))
            self._out_of_range(name, values[at], at, low, high)

    def _out_of_range(self, name: str, value: Any, at: int, low: int, high: int) -> NoReturn:
        allowed = f"allowed are {low} to {high}" if low <= high else "allowed is none"
        self.refuse(f"{name} {value} in entry {at}, {allowed}")
