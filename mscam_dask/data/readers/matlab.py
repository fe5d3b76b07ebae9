"""MATLAB files: v5 to v7.2 through SciPy, v7.3 (HDF5) through h5py.

Views are the numeric matrices of a file, and the cells of one-level cell arrays of numeric
matrices (the form in which multi-view data sets are published). Structs, function handles
and nested cells are refused as views.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mscam_dask.data.conversion import is_sparse, rows_of
from mscam_dask.data.readers.base import (
    Loaded,
    Selection,
    Source,
    is_label_vector,
    oriented,
    unreadable,
)
from mscam_dask.data.sources import BLOCK_BYTES, RowSource
from mscam_dask.errors import DataError

__all__ = ["read_mat"]

_ERRORS = (ValueError, TypeError, KeyError, IndexError, EOFError, NotImplementedError, zlib.error)


def read_mat(source: Source, selection: Selection, stack: ExitStack) -> Loaded:
    """Read the matrices of a MATLAB file; those of v7.3 are read by blocks, later."""
    from scipy.io.matlab import MatReadError

    with unreadable(source, "a MATLAB file (.mat)", MatReadError, *_ERRORS):
        with source.file.open("rb") as stream:
            is_hdf5 = stream.read(10) == b"MATLAB 7.3"
        found = _version_73(source, stack) if is_hdf5 else _version_5(source)
        return _collect(found, source, selection)


def _collect(found: Iterator[tuple[str, Any]], source: Source, selection: Selection) -> Loaded:
    views: list[RowSource] = []
    labels: NDArray[Any] | None = None
    notes: list[str] = []
    ignored: list[str] = []
    passed_over: list[str] = []
    for name, values in found:
        if selection.is_labels(name) and labels is None and _is_labels(values):
            labels = _in_memory(values).ravel()
            notes.append(f"{source.path}: {name!r} taken as labels.")
        elif not selection.wants(name):
            passed_over.append(name)
        elif _is_matrix(values, single_column=selection.views is not None):
            views.append(rows_of(oriented(values, source), name=name))
        elif selection.views is not None:
            raise DataError(
                f"{source.path}: {name!r} is {_describe(values)}; allowed are numeric matrices, and "
                "cell arrays of them. In MATLAB, save each view as a matrix of its own."
            )
        else:
            ignored.append(f"{name} ({_describe(values)})")
    if ignored:
        notes.append(f"{source.path}: left out {', '.join(ignored)}: not numeric matrices.")
    if not views and not passed_over:
        raise DataError(
            f"{source.path} has no view: {', '.join(ignored) or 'no variables'}; allowed are numeric "
            "matrices, and cell arrays of them. In MATLAB, save each view as a matrix of its own."
        )
    return Loaded(
        where=str(source.path),
        views=tuple(views),
        labels=labels,
        labels_are_chosen=labels is not None and selection.labels is not None,
        notes=tuple(notes),
        passed_over=tuple(passed_over),
    )


@dataclass(frozen=True)
class _NoMatrix:
    """A variable that cannot be a view."""

    matlab_class: str


def _is_labels(values: Any) -> bool:
    is_array = hasattr(values, "dtype") and hasattr(values, "size") and not is_sparse(values)
    return is_array and is_label_vector(values)


def _in_memory(values: Any) -> NDArray[Any]:
    if hasattr(values, "compute"):
        values = values.compute(scheduler="synchronous")
    return np.asarray(values)


def _is_matrix(values: Any, *, single_column: bool) -> bool:
    shape, dtype = getattr(values, "shape", ()), getattr(values, "dtype", None)
    if dtype is None or dtype.kind not in "biufc" or len(shape) != 2:
        return False
    return single_column or min(shape) > 1


def _describe(values: Any) -> str:
    if isinstance(values, _NoMatrix):
        return values.matlab_class
    dtype, shape = getattr(values, "dtype", None), getattr(values, "shape", ())
    kind = {"O": "cell or object array", "V": "struct", "U": "text"}.get(
        getattr(dtype, "kind", "O"), str(dtype)
    )
    return f"{kind}, shape {tuple(shape)}"


def _expanded(name: str, cells: list[Any]) -> Iterator[tuple[str, Any]]:
    for index, cell in enumerate(cells):
        yield f"{name}_{index}", cell


def _version_5(source: Source) -> Iterator[tuple[str, Any]]:
    from scipy.io import loadmat

    for name, values in loadmat(source.file, mat_dtype=False).items():
        if name.startswith("__"):
            continue
        if isinstance(values, np.ndarray) and values.dtype.kind == "O":
            cells = list(values.ravel(order="F"))
            if cells and all(_is_matrix(cell, single_column=True) for cell in cells):
                yield from _expanded(name, cells)
                continue
        yield name, values


def _version_73(source: Source, stack: ExitStack) -> Iterator[tuple[str, Any]]:
    try:
        import h5py
    except ImportError as error:
        raise DataError(
            f"{source.path} is a MATLAB v7.3 (HDF5) file, which needs h5py. Install it (pip install "
            "'mscam-dask[mat]'), or save the file with -v7 in MATLAB."
        ) from error

    file = stack.enter_context(h5py.File(source.file, "r"))
    for name in list(file):  # not file.items(): its iterator holds h5py's lock between items
        node = file[name]
        if name.startswith("#"):  # where MATLAB keeps the contents of cells
            continue
        if _class_of(node) == "cell" and isinstance(node, h5py.Dataset):
            # HDF5 stores MATLAB's column order as C order of the reversed shape.
            nodes = [file[reference] for reference in node[()].ravel()]
            cells = [_hdf5_value(item) for item in nodes]
            if cells and all(_is_matrix(cell, single_column=True) for cell in cells):
                yield from _expanded(name, cells)
                continue
        yield name, _hdf5_value(node)


def _class_of(node: Any) -> str:
    value = node.attrs.get("MATLAB_class", b"")
    return value.decode() if isinstance(value, bytes) else str(value)


def _hdf5_value(node: Any) -> Any:
    """Matrix of a dataset (lazy, transposed back), sparse matrix of a group, or what it is."""
    import dask.array as da

    if "MATLAB_sparse" in node.attrs:
        n_rows = int(node.attrs["MATLAB_sparse"])
        pointers = node["jc"][()].astype(np.int64)
        indices = node["ir"][()].astype(np.int64) if "ir" in node else np.zeros(0, dtype=np.int64)
        data = node["data"][()] if "data" in node else np.zeros(0)
        shape = (n_rows, len(pointers) - 1)
        return sparse.csc_array((data, indices, pointers), shape=shape)
    matlab_class = "empty" if "MATLAB_empty" in node.attrs else _class_of(node)
    is_numeric = matlab_class not in ("empty", "char", "cell", "struct") and hasattr(node, "dtype")
    if not is_numeric or node.ndim != 2 or node.dtype.kind not in "biuf":
        return _NoMatrix(matlab_class or "not numeric")
    n_columns, n_rows = node.shape
    rows = max(1, min(n_rows, BLOCK_BYTES // max(1, node.dtype.itemsize * n_columns)))
    matrix = da.from_array(node, chunks=(n_columns, rows), name=False)
    return matrix.T
