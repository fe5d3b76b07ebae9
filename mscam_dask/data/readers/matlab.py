"""MATLAB files: v5 to v7.2 through SciPy, v7.3 (HDF5) through h5py.

Views are the numeric matrices of a file, and the cells of one-level cell arrays of numeric
matrices (the form in which multi-view data sets are published), but for what is labels
(`mscam_dask.data.readers.array_labels`), such as a cell array of text. Structs, function handles
and nested cells are refused as views.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.array_labels import MatlabCellArray, NoMatrix, describe, find_labels
from mscam_dask.data.readers.base import (
    Selection,
    Source,
    SourceContents,
    check_row_size,
    check_size,
    oriented,
    unreadable,
)
from mscam_dask.data.readers.hdf5_check import check_hdf5
from mscam_dask.data.readers.matlab_elements import check_elements
from mscam_dask.data.sparse import checked_sparse, is_sparse, sparse_from_parts
from mscam_dask.data.views.conversion import rows_of
from mscam_dask.data.views.sources import BLOCK_BYTES, RowSource
from mscam_dask.errors import DataError

__all__ = ["read_mat"]


def read_mat(source: Source, selection: Selection, stack: ExitStack) -> SourceContents:
    """Read the matrices of a MATLAB file; those of v7.3 are read lazily, by blocks."""
    with unreadable(source, "a MATLAB file (.mat)"):
        with source.file.open("rb") as stream:
            is_hdf5 = stream.read(10) == b"MATLAB 7.3"
        found = _version_73(source, stack) if is_hdf5 else _version_5(source)
        return _collect(found, source, selection)


def _collect(
    found: Iterator[tuple[str, Any]], source: Source, selection: Selection
) -> SourceContents:
    variables = dict(found)
    matrices = {
        name: value.named(name) if isinstance(value, MatlabCellArray) else {name: value}
        for name, value in variables.items()
    }
    by_name = variables | {
        name: item for group in matrices.values() for name, item in group.items()
    }
    labels = find_labels(by_name, by_name.__getitem__, source=source, selection=selection)
    views: list[RowSource] = []
    ignored: list[str] = []
    skipped: list[str] = []
    for variable, group in matrices.items():
        for name, values in group.items():
            if not labels.names.isdisjoint((variable, name)):
                continue
            if not selection.wants(name, cell_array=variable):
                skipped += [name] if _is_matrix(values, single_column=True) else []
            elif _is_matrix(values, single_column=selection.views is not None):
                views.append(rows_of(oriented(values, source), name=name, file=str(source.path)))
            elif selection.views is not None:
                raise DataError(
                    f"{source.path}: {name!r} is {describe(values)}; allowed are numeric matrices, and "
                    "cell arrays of them. In MATLAB, save each view as a matrix of its own."
                )
            else:
                ignored.append(f"{name} ({describe(values)})")
    notes = labels.notes
    if ignored:
        notes += (f"{source.path}: left out {', '.join(ignored)}: not numeric matrices.",)
    if not views and selection.views is None and labels.values is None:
        raise DataError(
            f"{source.path} has no view: {', '.join(ignored) or 'no variables'}; allowed are numeric "
            "matrices, and cell arrays of them. In MATLAB, save each view as a matrix of its own."
        )
    return SourceContents(
        where=str(source.path),
        views=tuple(views),
        labels=labels.values,
        labels_explicit=labels.values is not None and selection.labels is not None,
        notes=notes,
        skipped=tuple(skipped),
        cell_arrays={
            variable: tuple(view.name for view in views if view.name in matrices[variable])
            for variable, value in variables.items()
            if isinstance(value, MatlabCellArray)
        },
    )


def _is_matrix(values: Any, *, single_column: bool) -> bool:
    shape, dtype = getattr(values, "shape", ()), getattr(values, "dtype", None)
    if dtype is None or dtype.kind not in "biufc" or len(shape) != 2:
        return False
    return single_column or min(shape) > 1


def _version_5(source: Source) -> Iterator[tuple[str, Any]]:
    from scipy.io import loadmat

    check_elements(source)
    for name, values in loadmat(source.file, mat_dtype=False).items():
        if name.startswith("__"):
            continue
        where = f"{source.path}: {name!r}"
        if is_sparse(values):
            yield name, check_row_size(checked_sparse(values, where), source)
        elif isinstance(values, np.ndarray) and values.dtype.kind == "O":
            items = list(values.ravel(order="F"))
            for index, item in enumerate(items):
                if is_sparse(item):
                    check_row_size(checked_sparse(item, f"{where}, cell {index},"), source)
            yield name, _cells(items, values)
        else:
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
    check_hdf5(file, source)
    for name in list(file):  # not file.items(): its iterator holds h5py's lock between items
        node = file[name]
        if name.startswith("#"):  # MATLAB's group with the contents of cells
            continue
        where = f"{source.path}: {name!r}"
        if _class_of(node) == "cell" and isinstance(node, h5py.Dataset):
            # HDF5 stores MATLAB's column order as C order of the reversed shape.
            nodes = [file[reference] for reference in _in_memory(node, source).ravel()]
            for item in nodes:
                check_hdf5(item, source)  # which no link of the file need lead to
            items = [
                _hdf5_value(item, source, f"{where}, cell {index},")
                for index, item in enumerate(nodes)
            ]
            yield name, _cells(items, _hdf5_value(node, source, where))
        else:
            yield name, _hdf5_value(node, source, where)


def _cells(items: list[Any], otherwise: Any) -> Any:
    """Return a `MatlabCellArray` if all items are matrices, an array if each is one text, else `otherwise`."""
    if items and all(_is_matrix(item, single_column=True) for item in items):
        return MatlabCellArray(tuple(items))
    if items and all(_is_text(item) for item in items):
        return np.concatenate([item.ravel() for item in items])
    return otherwise


def _is_text(item: Any) -> bool:
    return isinstance(item, np.ndarray) and item.dtype.kind == "U" and item.size == 1


def _class_of(node: Any) -> str:
    value = node.attrs.get("MATLAB_class", b"")
    return value.decode() if isinstance(value, bytes) else str(value)


def _hdf5_value(node: Any, source: Source, where: str) -> Any:
    """Return a dataset as lazy matrix, a group as sparse matrix, text as array, others as `NoMatrix`."""
    import dask.array as da

    if "MATLAB_sparse" in node.attrs:
        parts = {
            "data": _in_memory(node["data"], source) if "data" in node else np.zeros(0),
            "indices": _in_memory(node["ir"], source)
            if "ir" in node
            else np.zeros(0, dtype=np.int64),
            "indptr": _in_memory(node["jc"], source),
        }
        shape = (int(node.attrs["MATLAB_sparse"]), len(parts["indptr"]) - 1)
        return check_row_size(sparse_from_parts("csc", parts, shape, where), source)
    matlab_class = "empty" if "MATLAB_empty" in node.attrs else _class_of(node)
    if matlab_class == "char":
        return _texts(_in_memory(node, source))
    is_numeric = matlab_class not in ("empty", "cell", "struct") and hasattr(node, "dtype")
    if not is_numeric or node.ndim != 2 or node.dtype.kind not in "biuf":
        return NoMatrix(matlab_class or "not numeric")
    n_columns, n_rows = node.shape
    rows = max(1, min(n_rows, BLOCK_BYTES // max(1, node.dtype.itemsize * n_columns)))
    matrix = da.from_array(node, chunks=(n_columns, rows), name=False)
    return matrix.T


def _in_memory(dataset: Any, source: Source) -> Any:
    """All values of a dataset, if they fit into the source's limit."""
    check_size(source, repr(dataset.name), dataset.size * dataset.dtype.itemsize)
    return dataset[()]


def _texts(columns: NDArray[Any]) -> NDArray[np.str_]:
    """Return the text of each row of a matrix of UTF-16 code units stored by columns."""
    rows = np.atleast_2d(columns).T.astype("<u2")
    return np.array([row.tobytes().decode("utf-16-le", "replace") for row in rows])
