"""NumPy archives (.npz) and arrays (.npy); MATLAB files, v4 to v7.2 through SciPy, and v7.3 (HDF5) through h5py."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack, nullcontext, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.base import (
    Selection,
    Source,
    SourceContents,
    check_row_size,
    check_size,
    unreadable,
)
from mscam_dask.data.readers.hdf5 import by_blocks, check_hdf5, in_memory, open_hdf5
from mscam_dask.data.readers.named_arrays import (
    contents_of,
    ids_in,
    is_matrix,
    labels_in,
    may_be_usual,
    one_table,
)
from mscam_dask.data.sparse import checked_sparse, is_sparse, sparse_from_parts
from mscam_dask.data.views.conversion import CERTAIN, as_text, id_strength
from mscam_dask.errors import DataError

_NUMBERED = re.compile(r"view_(\d+)")
_DESCRIPTIVE = ("view_names", "kind")  # of numbered views
_NUMERIC = re.compile(r"(double|single|logical|u?int(8|16|32|64))?")


def load_npy(source: Source, **options: Any) -> NDArray[Any]:
    """The array of a .npy file of numbers or text."""
    with source.file.open("rb") as stream:
        shape, dtype = _header(stream, source)
        n_bytes = stream.tell() + math.prod(shape) * dtype.itemsize
    if n_bytes < source.file.stat().st_size:
        raise DataError(
            f"{source.path} has data behind its first array, of shape {shape}, which np.load does not read. Save each array in "
            "a file of its own, or all in one with np.savez."
        )
    return np.asanyarray(np.load(source.file, allow_pickle=False, **options))


def _header(stream: Any, source: Source, where: str = "") -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type that an array declares, which are not those of Python objects."""
    is_first = np.lib.format.read_magic(stream) == (1, 0)
    shape, _, dtype = (
        np.lib.format.read_array_header_1_0(stream)
        if is_first
        else np.lib.format.read_array_header_2_0(stream)
    )
    if dtype.hasobject:
        raise DataError(
            f"{source.path} holds Python objects{where}; they are refused, since loading them can run code of the person "
            "who wrote the file. Save numbers or text arrays only (values.astype(float), labels.astype(str))"
            f"{', or name the other arrays as views (--view NAME)' if where else ''}."
        )
    return shape, dtype


def read_npy(source: Source, selection: Selection, stack: ExitStack) -> SourceContents:  # noqa: ARG001 - a reader's signature
    """Read one (n, d) array, or V kernels (n, n, V), mapped into memory rather than loaded."""
    with unreadable(source, "a NumPy array (.npy) of numbers"):
        values = load_npy(source, mmap_mode="r")
        if values.ndim == 3:
            return contents_of({source.view_name: values}, source, selection)
        return one_table(values, source)


def read_npz(source: Source, selection: Selection, stack: ExitStack) -> SourceContents:
    """Read an archive with view_0, view_1, ..., of scipy.sparse.save_npz, or under other names."""
    with unreadable(source, "a NumPy archive (.npz) of numbers", unpacks=True):
        # Opened here: np.load leaves a damaged archive open.
        stream = stack.enter_context(source.file.open("rb"))
        archive = stack.enter_context(np.load(stream, allow_pickle=False))
        keys = list(archive.files)
        if {"format", "shape", "data"} <= set(keys) and not _array(archive, "format", source).ndim:
            return one_table(_sparse_matrix(archive, source), source)
        numbered = sorted(filter(_NUMBERED.fullmatch, keys), key=lambda key: int(key[5:]))
        texts = {
            key: [as_text(item) for item in _array(archive, key, source).ravel().tolist()]
            for key in _DESCRIPTIVE
            if key in keys and numbered
        }
        names = texts.get("view_names", numbered)
        kinds = texts.get("kind", ["features"] * len(numbered))
        for key, found in (("view_names", names), ("kind", kinds)):
            if len(found) != len(numbered):
                raise DataError(
                    f"{source.path} has {len(found)} entries under {key!r} for {len(numbered)} views; there must "
                    "be one for each."
                )
        name_of = dict(zip(numbered, names, strict=True))
        variables: dict[str, Any] = {}
        left: list[str] = []
        for key in (*numbered, *(key for key in keys if key not in {*numbered, *texts})):
            name = name_of.get(key, key)
            if name in (*variables, *left):
                raise DataError(
                    f"{source.path} has two arrays called {name!r}; names must be unique. Rename one of them."
                )
            may_be_view = key in name_of or not numbered
            has_role = key == selection.labels or may_be_usual(key) or id_strength(key) == CERTAIN
            is_wanted = not selection.views or any(
                each.startswith(name) for each in selection.views
            )
            if may_be_view and not (has_role or is_wanted):
                left.append(name)
                continue
            value = None
            with (
                nullcontext() if may_be_view or has_role else suppress(DataError)
            ):  # objects are no ids
                value = _array(archive, key, source)
            if may_be_view or labels_in(value) is not None or ids_in(value):
                variables[name] = value
            else:
                variables[name] = f"beside {numbered[0]}"
        is_view = "sample_ids" in (selection.views or ())
        ids = () if is_view else ids_in(variables.get("sample_ids"))
        if ids:  # also repeated ones, or too few, which are refused later
            del variables["sample_ids"]
        types = dict(zip(names, kinds, strict=True))
        return contents_of(
            variables, source, selection, sample_ids=ids or None, skipped=left, view_types=types
        )


def _sparse_matrix(archive: Any, source: Source) -> Any:
    """The matrix of an archive that scipy.sparse.save_npz wrote."""
    known = ("data", "indices", "indptr", "coords", "offsets", "row", "col", "format", "shape")
    parts: dict[str, Any] = {
        name: _array(archive, name, source) for name in known if name in archive.files
    }
    if {"row", "col"} <= set(parts):
        parts["coords"] = (parts["row"], parts["col"])
    form, shape = as_text(parts.pop("format").item()), parts.pop("shape")
    return check_row_size(sparse_from_parts(form, parts, shape, str(source.path)), source)


def _array(archive: Any, key: str, source: Source) -> NDArray[Any]:
    """An array of an archive, once its sizes and type have been looked at."""
    names = archive.zip.namelist()
    member = archive.zip.getinfo(key if key in names else f"{key}.npy")
    check_size(source, repr(key), member.file_size)
    with archive.zip.open(member) as stream:
        shape, dtype = _header(stream, source, f" under {key!r}")
    if math.prod(shape) * dtype.itemsize > member.file_size:
        raise ValueError(f"{key!r} declares shape {shape}, more than its {member.file_size} bytes")
    return np.asarray(archive[key])


# MATLAB -----------------------------------------------------------------------------------------


def read_mat(source: Source, selection: Selection, stack: ExitStack) -> SourceContents:
    """Read the variables of a MATLAB file; those of v7.3 are read lazily, by blocks.

    They are arrays, cell arrays as lists, structs as dicts, and the kind of others as text.
    """
    from scipy.io import loadmat

    with unreadable(source, "a MATLAB file (.mat)", unpacks=True):
        with source.file.open("rb") as stream:
            is_hdf5 = stream.read(10) == b"MATLAB 7.3"
        read: Callable[..., Any] = _hdf5_value if is_hdf5 else _value
        if is_hdf5:
            nodes = open_hdf5(
                source, stack, extra="mat", instead="save the file with -v7 in MATLAB"
            )
        else:
            _check_by_trial(source)
            nodes = loadmat(source.file, spmatrix=False)
        variables = {
            name: read(nodes[name], source, f"{source.path}: {name!r}")
            for name in list(nodes)  # not items(): its iterator holds h5py's lock between items
            if not name.startswith(("#", "__"))  # contents of cells, and remarks
        }
        return contents_of(variables, source, selection, least_columns=2)


def _cells(cells: Iterable[Any], read: Callable[..., Any], source: Source, where: str) -> Any:
    """Cells that are all matrices, or all one text as an array."""
    items = [read(one, source, f"{where}, cell {i},", _CELL_ITEM) for i, one in enumerate(cells)]
    if items and all(is_matrix(item) for item in items):
        return items
    texts = [item for item in items if isinstance(item, np.ndarray) and item.dtype.kind == "U"]
    if items and len(texts) == len(items) and all(text.size == 1 for text in texts):
        return np.concatenate([text.ravel() for text in texts])
    return "cell array"


_VARIABLE, _FIELD, _CELL_ITEM = range(3)


def _value(value: Any, source: Source, where: str, place: int = _VARIABLE) -> Any:
    if is_sparse(value):
        return check_row_size(checked_sparse(value, where), source)
    if type(value) is not np.ndarray:  # a subclass, as of function handles
        return "object"
    if value.dtype.kind == "O" and place < _CELL_ITEM:
        return _cells(value.ravel(order="F"), _value, source, where)
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
        return _cells(items, _hdf5_value, source, where)
    if kind == "char":
        # the text of each row of a matrix of UTF-16 code units stored by columns
        rows = np.atleast_2d(in_memory(node, source)).T.astype("<u2")
        return np.array([row.tobytes().decode("utf-16-le", "replace").rstrip() for row in rows])
    is_numeric = _NUMERIC.fullmatch(kind) and is_array and node.dtype.kind in "biuf"
    if not is_numeric or node.ndim < 2:
        return f"{node.dtype}, shape {node.shape}" if is_numeric else kind or "not numeric"
    return by_blocks(node, axis=0 if source.samples_in == "columns" else node.ndim - 1).T
