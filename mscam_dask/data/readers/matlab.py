"""MATLAB files: v4 to v7.2 through SciPy, v7.3 (HDF5) through h5py."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np

from mscam_dask.data.readers.base import (
    Selection,
    Source,
    SourceContents,
    check_row_size,
    check_size,
    unreadable,
)
from mscam_dask.data.readers.hdf5 import by_blocks, check_hdf5, in_memory, open_hdf5
from mscam_dask.data.readers.named_arrays import contents_of, is_matrix
from mscam_dask.data.sparse import checked_sparse, is_sparse, sparse_from_parts
from mscam_dask.data.views.conversion import as_text


def read_mat(source: Source, selection: Selection, stack: ExitStack) -> SourceContents:
    """Read the variables of a MATLAB file; those of v7.3 are read lazily, by blocks.

    They are arrays, cell arrays as lists, structs as dicts, and the kind of others as text.
    """
    with unreadable(source, "a MATLAB file (.mat)", unpacks=True):
        with source.file.open("rb") as stream:
            is_hdf5 = stream.read(10) == b"MATLAB 7.3"
        variables = dict(_version_73(source, stack) if is_hdf5 else _version_5(source))
        return contents_of(variables, source, selection, least_columns=2)


def _cells(items: list[Any]) -> Any:
    """Cells that are all matrices, or all one text as an array."""
    if items and all(is_matrix(item) for item in items):
        return items
    texts = [item for item in items if isinstance(item, np.ndarray) and item.dtype.kind == "U"]
    if items and len(texts) == len(items) and all(text.size == 1 for text in texts):
        return np.concatenate([text.ravel() for text in texts])
    return "cell array"


# -- v4 to v7.2 -----------------------------------------------------------------------------------


def _version_5(source: Source) -> Iterator[tuple[str, Any]]:
    from scipy.io import loadmat

    _check_by_trial(source)
    for name, value in loadmat(source.file, spmatrix=False).items():
        if not name.startswith("__"):
            yield name, _value(value, source, f"{source.path}: {name!r}")


_VARIABLE, _FIELD, _CELL_ITEM = range(3)


def _value(value: Any, source: Source, where: str, place: int = _VARIABLE) -> Any:
    if is_sparse(value):
        return check_row_size(checked_sparse(value, where), source)
    if type(value) is not np.ndarray:  # a subclass, as of function handles
        return "object"
    if value.dtype.kind == "O" and place < _CELL_ITEM:
        items = enumerate(value.ravel(order="F"))
        return _cells(
            [_value(item, source, f"{where}, cell {i},", _CELL_ITEM) for i, item in items]
        )
    if value.dtype.names is not None and value.size == 1 and place == _VARIABLE:
        fields = zip(value.dtype.names, value.item(), strict=True)
        return {
            name: _value(item, source, f"{where}, field {name!r},", _FIELD) for name, item in fields
        }
    if value.dtype.kind == "U":  # rows of a matrix of characters are padded with blanks
        return np.strings.rstrip(value)
    kind = {"O": "cell array", "V": "struct"}.get(value.dtype.kind)
    return value if kind is None else f"{kind}, shape {value.shape}"


# Program that tries a file first: SciPy trusts the types, sizes and depth that it declares, and wrong ones end the process.
_TRIAL = """
import math, resource, sys
from scipy.io import loadmat, whosmat
file, limit = sys.argv[1], 2 * int(sys.argv[2]) + 2**30
sizes = dict(int8=1, uint8=1, logical=1, int16=2, uint16=2, int32=4, uint32=4, single=4, sparse=0)
print(sum(sizes.get(kind, 8) * math.prod(shape) for _, shape, kind in whosmat(file)), flush=True)
hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
loadmat(file, spmatrix=False)
"""


def _check_by_trial(source: Source) -> None:
    """Refuse a file that SciPy cannot read in a process of its own, or that takes too much memory there."""
    check_size(source, "its variables", source.file.stat().st_size)
    command = [sys.executable, "-P", "-c", _TRIAL, str(source.file), str(source.max_bytes)]
    threads = {"OPENBLAS_NUM_THREADS": "1"}  # each of which reserves memory
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **threads}
    )
    if done.stdout.strip().isdecimal():
        check_size(source, "its variables", int(done.stdout))
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"SciPy ends with {done.returncode}"]
        raise ValueError(said[-1])


# -- v7.3 -----------------------------------------------------------------------------------------

_NUMERIC = re.compile(r"(double|single|logical|u?int(8|16|32|64))?")


def _version_73(source: Source, stack: ExitStack) -> Iterator[tuple[str, Any]]:
    file = open_hdf5(source, stack, extra="mat", instead="save the file with -v7 in MATLAB")
    for name in list(file):  # not file.items(): its iterator holds h5py's lock between items
        if not name.startswith("#"):  # MATLAB's group with the contents of cells
            yield name, _hdf5_value(file[name], source, f"{source.path}: {name!r}")


def _hdf5_value(node: Any, source: Source, where: str, place: int = _VARIABLE) -> Any:
    """A dataset as lazy array, a group as sparse matrix or struct, text as an array, the kind of others."""
    if "MATLAB_sparse" in node.attrs:
        parts = {
            "data": in_memory(node["data"], source) if "data" in node else np.zeros(0),
            "indices": in_memory(node["ir"], source) if "ir" in node else np.zeros(0, np.int64),
            "indptr": in_memory(node["jc"], source),
        }
        shape = (int(node.attrs["MATLAB_sparse"]), len(parts["indptr"]) - 1)
        return check_row_size(sparse_from_parts("csc", parts, shape, where), source)
    kind = as_text(node.attrs.get("MATLAB_class", ""))
    kind, is_array = "empty" if "MATLAB_empty" in node.attrs else kind, hasattr(node, "dtype")
    if kind == "struct" and not is_array and place == _VARIABLE:
        return {
            name: _hdf5_value(node[name], source, f"{where}, field {name!r},", _FIELD)
            for name in list(node)
        }
    if kind == "cell" and is_array and place < _CELL_ITEM:
        # HDF5 stores MATLAB's column order as C order of the reversed shape.
        items = [node.file[reference] for reference in in_memory(node, source).ravel()]
        for item in items:
            check_hdf5(item, source)  # which no link of the file need lead to
        return _cells(
            [
                _hdf5_value(item, source, f"{where}, cell {index},", _CELL_ITEM)
                for index, item in enumerate(items)
            ]
        )
    if kind == "char":
        # the text of each row of a matrix of UTF-16 code units stored by columns
        rows = np.atleast_2d(in_memory(node, source)).T.astype("<u2")
        return np.array([row.tobytes().decode("utf-16-le", "replace").rstrip() for row in rows])
    is_numeric = _NUMERIC.fullmatch(kind) and is_array and node.dtype.kind in "biuf"
    if not is_numeric or node.ndim < 2:
        return f"{node.dtype}, shape {node.shape}" if is_numeric else kind or "not numeric"
    return by_blocks(node, axis=0 if source.samples_in == "columns" else node.ndim - 1).T
