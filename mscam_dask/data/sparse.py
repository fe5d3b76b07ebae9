"""The format check of sparse arrays, made before anything converts them.

SciPy's conversions trust indices and index pointers: one that is out of range reads or writes memory
outside the array, or moves a value to another sample. Its own `check_format` skips the pointers of
arrays without values and writes to the arrays it checks, so it is not used here.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mscam_dask.errors import DataError

_Parts = Mapping[str, Any]


def is_sparse(value: object) -> bool:
    """Return whether a value is a SciPy sparse array or matrix."""
    return bool(sparse.issparse(value))


def checked_sparse(value: Any, where: str) -> Any:
    """Return a SciPy sparse array or matrix as it is, once all of its indices are in range.

    Nothing of it is copied, converted or written to. `where` is the view, or the file and variable, as
    the subject of the message.
    """
    _Check(where, value.format, value.shape).run(_parts_of(value))
    return value


def sparse_from_parts(form: str, parts: _Parts, shape: Any, where: str) -> Any:
    """Make a sparse array of the arrays that a file holds, once these have been checked.

    `parts` has "data", with "indices" and "indptr", "coords" or "offsets", as the format needs. Values
    beyond the last index pointer, which belong to no row or column, are refused too.
    """
    if form not in _IN_FILES:
        raise DataError(
            f"{where} is a sparse array of format {form!r}; allowed are {', '.join(_IN_FILES)}. Save "
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
    make = getattr(sparse, f"{form}_array")
    return make(tuple(parts[name] for name in _IN_FILES[form]), shape=check.shape)


def dense_rows(array: sparse.csr_array[Any], start: int, stop: int, where: str) -> NDArray[Any]:
    """Return rows start..stop-1 of a compressed sparse row array as a dense array.

    They are checked once more: the arrays are the caller's, who may have written to them.
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


# Formats that files hold, and the arguments of their constructors.
_IN_FILES = {
    "csr": ("data", "indices", "indptr"),
    "csc": ("data", "indices", "indptr"),
    "bsr": ("data", "indices", "indptr"),
    "coo": ("data", "coords"),
    "dia": ("data", "offsets"),
}


def _parts_of(value: Any) -> dict[str, Any]:
    """The arrays that a sparse array consists of."""
    if value.format == "dok":
        return {"keys": list(value.keys())}
    names = ("data", "indices", "indptr", "coords", "offsets", "rows")
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


class _Check:
    """The check of one sparse array; `run` takes its parts."""

    def __init__(self, where: str, form: str, shape: tuple[Any, ...]) -> None:
        self.where, self.form, self.shape = where, form, shape

    def refuse(self, fault: str) -> NoReturn:
        raise DataError(
            f"{self.where} is not a valid sparse array ({self.form}, shape {self.shape}): {fault}. Make it "
            "again from the original data; it is damaged or was assembled wrongly."
        )

    def run(self, parts: _Parts) -> None:
        if len(self.shape) != 2:
            self.refuse(f"it has {len(self.shape)} dimension(s), allowed are two")
        if self.form == "dok":
            self._coordinates(list(zip(*parts["keys"], strict=True)) or [[], []])
            return
        data = parts["data"]
        dimensions = {"bsr": 3, "dia": 2}.get(self.form, 1)
        self._dimensions("data", data, dimensions)
        if self.form in ("csr", "csc", "bsr"):
            self._compressed(parts, data)
        elif self.form == "coo":
            self._coordinates(parts["coords"], len(data))
        elif self.form == "dia":
            self._indices("offset", parts["offsets"], 1 - self.shape[0], self.shape[1], len(data))
            if np.unique(parts["offsets"]).size < len(data):
                self.refuse("an offset occurs more than once")
        elif self.form == "lil":
            if not len(parts["rows"]) == len(data) == self.shape[0]:
                self.refuse(f"rows or data is not an array of {self.shape[0]} lists")
            for row, (indices, values) in enumerate(zip(parts["rows"], data, strict=True)):
                if len(indices) != len(values):
                    self.refuse(f"row {row} has {len(indices)} indices and {len(values)} values")
            self._indices(
                "column index", list(chain.from_iterable(parts["rows"])), 0, self.shape[1]
            )
        else:
            self.refuse("allowed formats are csr, csc, bsr, coo, dia, lil, dok")

    def _compressed(self, parts: _Parts, data: NDArray[Any]) -> None:
        """Check the index pointers and the indices of rows, columns or blocks."""
        lines, size = self.shape if self.form != "csc" else self.shape[::-1]
        name = "row index" if self.form == "csc" else "column index"
        if self.form == "bsr":
            height, width = data.shape[1:]
            if min(height, width) < 1 or lines % height or size % width:
                self.refuse(f"blocks of shape {(height, width)} do not tile it")
            lines, size, name = lines // height, size // width, f"block {name}"
        indices, indptr = parts["indices"], parts["indptr"]
        self._whole_numbers("indptr", indptr, lines + 1)
        self._whole_numbers("indices", indices, len(data))
        if indptr[0] != 0:
            self.refuse(f"indptr starts at {indptr[0]}, allowed is 0")
        falls = np.flatnonzero(indptr[1:] < indptr[:-1])
        if falls.size:
            at = int(falls[0])
            self.refuse(f"indptr falls from {indptr[at]} to {indptr[at + 1]} at entry {at + 1}")
        if indptr[-1] > len(indices):
            self.refuse(f"indptr ends at {indptr[-1]}, allowed are 0 to {len(indices)}")
        self._indices(name, indices[: int(indptr[-1])], 0, size)

    def _coordinates(self, coords: Any, n_values: int | None = None) -> None:
        if len(coords) != 2:
            self.refuse(f"it has {len(coords)} arrays of indices, allowed are two")
        for name, indices, size in zip(("row", "column"), coords, self.shape, strict=True):
            self._indices(f"{name} index", indices, 0, size, n_values)

    def _dimensions(self, name: str, values: Any, allowed: int) -> None:
        if not isinstance(values, np.ndarray | np.generic):
            self.refuse(f"{name} is a {type(values).__qualname__}, allowed is a NumPy array")
        if values.ndim != allowed:
            self.refuse(f"{name} has {values.ndim} dimension(s), allowed is {allowed}")

    def _whole_numbers(self, name: str, values: Any, n_values: int | None) -> None:
        self._dimensions(name, values, 1)
        if values.dtype.kind not in "iu":
            self.refuse(f"{name} has dtype {values.dtype}, allowed are whole numbers")
        if n_values is not None and len(values) != n_values:
            self.refuse(f"{name} has {len(values)} entries, allowed are {n_values}")

    def _indices(
        self, name: str, values: Any, low: int, stop: int, n_values: int | None = None
    ) -> None:
        """Refuse indices that are not whole numbers from `low` to `stop` - 1."""
        if not isinstance(values, np.ndarray):
            values = np.array(values, dtype=None if len(values) else np.intp)
        self._whole_numbers(name, values, n_values)
        if values.size and (values.min() < low or values.max() >= stop):
            at = int(np.argmax((values < low) | (values >= stop)))
            allowed = f"allowed are {low} to {stop - 1}" if low < stop else "allowed is none"
            self.refuse(f"{name} {values[at]} in entry {at}, {allowed}")
