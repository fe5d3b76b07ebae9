"""MATLAB files: v4 to v7.2 through SciPy, v7.3 (HDF5) through h5py."""

from __future__ import annotations

import io
import math
import struct
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO, Any

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


def read_mat(source: Source, selection: Selection, stack: ExitStack) -> SourceContents:
    """Read the variables of a MATLAB file; those of v7.3 are read lazily, by blocks."""
    with unreadable(source, "a MATLAB file (.mat)"):
        return contents_of(variables_of(source, stack), source, selection, least_columns=2)


def variables_of(source: Source, stack: ExitStack) -> dict[str, Any]:
    """Variables by name: arrays, cell arrays as lists, structs as dicts, the kind of others as text."""
    with source.file.open("rb") as stream:
        is_hdf5 = stream.read(10) == b"MATLAB 7.3"
    return dict(_version_73(source, stack) if is_hdf5 else _version_5(source))


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

    _check_elements(source)
    for name, value in loadmat(source.file).items():
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
    kind = {"O": "cell array", "V": "struct"}.get(value.dtype.kind)
    return value if kind is None else f"{kind}, shape {value.shape}"


_NUMBERS = {1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 16, 17, 18}  # of SciPy's table; others end the process
_MATRIX, _COMPRESSED = 14, 15
_CELL, _STRUCT, _OBJECT, _CHAR, _SPARSE, _FUNCTION, _OPAQUE = 1, 2, 3, 4, 5, 16, 17
_MAX_DEPTH = 64
_MAX_CELLS = 10**6
_STEP = 2**20


def _check_elements(source: Source) -> None:
    """Follow a file as SciPy reads it, which trusts the types, sizes and depth that it declares.

    A type of an element that SciPy does not know ends the process, as do cells deep inside each other.
    """
    check_size(source, "its variables", source.file.stat().st_size)
    with source.file.open("rb") as stream:
        head = stream.read(128)
        if len(head) < 4 or 0 in head[:4]:  # version 4, which has no types and is not compressed
            return
        order = ">" if head[126:128] == b"MI" else "<"
        check_size(source, "its variables", sum(n for _, n in _variables(stream, order)))
        for content, nbytes in _variables(stream, order):
            if nbytes:
                _Elements(source, content, order, nbytes).matrix(0)


def _variables(stream: IO[bytes], order: str) -> Iterator[tuple[IO[bytes], int]]:
    """The bytes of each variable, inflated as they are read, and their number."""
    end = stream.seek(0, io.SEEK_END)
    place = 128
    while place < end:
        stream.seek(place)
        kind, nbytes = _tag(stream, order)
        place += 8 + nbytes
        if place > end:
            raise ValueError(f"a variable has {nbytes} bytes, more than are left")
        content = stream
        if kind == _COMPRESSED:
            content = io.BufferedReader(_Inflated(stream, nbytes), _STEP)
            kind, nbytes = _tag(content, order)
        if kind != _MATRIX:
            raise ValueError(f"an element has type {kind} in the place of a matrix")
        yield content, nbytes


def _taken(content: IO[bytes], nbytes: int) -> bytes:
    taken = content.read(nbytes)
    if len(taken) < nbytes:
        raise EOFError("a matrix ends within an element")
    return taken


def _tag(content: IO[bytes], order: str) -> tuple[int, int]:
    """Type and bytes of an element."""
    kind, nbytes = struct.unpack(f"{order}2I", _taken(content, 8))
    return kind, nbytes


class _Inflated(io.RawIOBase):
    """Bytes of a compressed element, inflated as they are read."""

    def __init__(self, stream: IO[bytes], nbytes: int) -> None:
        self._stream, self._left = stream, nbytes
        self._inflate = zlib.decompressobj()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._inflate.eof:
            packed = self._inflate.unconsumed_tail
            if not packed:
                packed = self._stream.read(min(_STEP, self._left))
                self._left -= len(packed)
            content = self._inflate.decompress(packed, len(buffer))
            if content or not packed:
                buffer[: len(content)] = content
                return len(content)
        return 0


class _Elements:
    """The elements of one variable of `nbytes`, in their order."""

    def __init__(self, source: Source, content: IO[bytes], order: str, nbytes: int) -> None:
        self._source, self._content, self._order, self._left = source, content, order, nbytes
        self._n_cells = 0

    def matrix(self, depth: int) -> None:
        """Pass over a matrix, after its tag."""
        if depth > _MAX_DEPTH:
            raise ValueError(f"cells are inside each other more than {_MAX_DEPTH} deep")
        (flags,) = struct.unpack(f"{self._order}8xI4x", self._take(16))
        matlab_class, is_complex = flags & 0xFF, bool(flags >> 11 & 1)
        if matlab_class == _OPAQUE:
            for _ in range(3):
                self._element()
            self._inner(1, depth)
            return
        dimensions = np.frombuffer(self._element(), f"{self._order}i4").tolist()
        if len(dimensions) < 2 or min(dimensions) < 0:
            raise ValueError(f"a matrix has the dimensions {dimensions}")
        n_items = math.prod(dimensions)
        self._element()  # its name
        if matlab_class in (_STRUCT, _OBJECT):
            if matlab_class == _OBJECT:
                self._element()
            length = int(np.frombuffer(self._element(), f"{self._order}i4")[0])
            n_fields = len(self._element()) // length
            check_size(self._source, "a struct", 8 * n_items)
            self._inner(n_items * n_fields, depth)
        elif matlab_class in (_CELL, _FUNCTION):
            self._inner(n_items if matlab_class == _CELL else 1, depth)
        else:
            check_size(self._source, "a text", 4 * n_items * (matlab_class == _CHAR))
            for _ in range(1 + is_complex + 2 * (matlab_class == _SPARSE)):
                self._element(is_kept=False)

    def _inner(self, n_matrices: int, depth: int) -> None:
        self._n_cells += n_matrices
        if self._n_cells > _MAX_CELLS:
            raise ValueError(f"it has {self._n_cells} cells; allowed are {_MAX_CELLS}")
        for _ in range(n_matrices):
            kind, nbytes = struct.unpack(f"{self._order}2I", self._take(8))
            if kind != _MATRIX:
                raise ValueError(f"an element has type {kind} in the place of a matrix")
            if nbytes:
                self.matrix(depth + 1)

    def _element(self, *, is_kept: bool = True) -> bytes:
        """Pass over an element of numbers or text; its bytes, unless they are not kept."""
        tag = self._take(8)
        kind, nbytes = struct.unpack(f"{self._order}2I", tag)
        is_small = kind > 0xFFFF
        if is_small:
            kind, nbytes = kind & 0xFFFF, kind >> 16
        if kind not in _NUMBERS or nbytes > (4 if is_small else _STEP if is_kept else self._left):
            raise ValueError(f"an element has type {kind} and {nbytes} bytes")
        if is_small:
            return tag[4 : 4 + nbytes]
        content = self._take(nbytes, is_kept=is_kept)
        self._take(min(-nbytes % 8, self._left))  # the padding, which may be missing at the end
        return content

    def _take(self, nbytes: int, *, is_kept: bool = True) -> bytes:
        self._left -= nbytes
        if is_kept or not self._content.seekable():
            content = b""
            for start in range(0, nbytes, _STEP):
                content = _taken(self._content, min(_STEP, nbytes - start))
            return content
        self._content.seek(nbytes, io.SEEK_CUR)
        return b""


# -- v7.3 -----------------------------------------------------------------------------------------

_NUMERIC = {
    "",
    "double",
    "single",
    "logical",
    *(f"{u}int{8 * b}" for u in ("", "u") for b in (1, 2, 4, 8)),
}


def _version_73(source: Source, stack: ExitStack) -> Iterator[tuple[str, Any]]:
    file = open_hdf5(source, stack, extra="mat", instead="save the file with -v7 in MATLAB")
    for name in list(file):  # not file.items(): its iterator holds h5py's lock between items
        if name.startswith("#"):  # MATLAB's group with the contents of cells
            continue
        node, where = file[name], f"{source.path}: {name!r}"
        if _class_of(node) == "struct" and not hasattr(node, "dtype"):
            yield (
                name,
                {
                    field: _cells_or_value(node[field], source, f"{where}, field {field!r},", file)
                    for field in list(node)
                },
            )
        else:
            yield name, _cells_or_value(node, source, where, file)


def _cells_or_value(node: Any, source: Source, where: str, file: Any) -> Any:
    if _class_of(node) != "cell" or not hasattr(node, "dtype") or "MATLAB_empty" in node.attrs:
        return _hdf5_value(node, source, where)
    # HDF5 stores MATLAB's column order as C order of the reversed shape.
    items = [file[reference] for reference in in_memory(node, source).ravel()]
    for item in items:
        check_hdf5(item, source)  # which no link of the file need lead to
    return _cells(
        [_hdf5_value(item, source, f"{where}, cell {index},") for index, item in enumerate(items)]
    )


def _class_of(node: Any) -> str:
    value = node.attrs.get("MATLAB_class", b"")
    return value.decode() if isinstance(value, bytes) else str(value)


def _hdf5_value(node: Any, source: Source, where: str) -> Any:
    """A dataset as lazy array, a group as sparse matrix, text as an array, the kind of others."""
    if "MATLAB_sparse" in node.attrs:
        parts = {
            "data": in_memory(node["data"], source) if "data" in node else np.zeros(0),
            "indices": in_memory(node["ir"], source) if "ir" in node else np.zeros(0, np.int64),
            "indptr": in_memory(node["jc"], source),
        }
        shape = (int(node.attrs["MATLAB_sparse"]), len(parts["indptr"]) - 1)
        return check_row_size(sparse_from_parts("csc", parts, shape, where), source)
    matlab_class = "empty" if "MATLAB_empty" in node.attrs else _class_of(node)
    if matlab_class == "char":
        # the text of each row of a matrix of UTF-16 code units stored by columns
        rows = np.atleast_2d(in_memory(node, source)).T.astype("<u2")
        return np.array([row.tobytes().decode("utf-16-le", "replace") for row in rows])
    if matlab_class not in _NUMERIC or not hasattr(node, "dtype") or node.dtype.kind not in "biuf":
        return matlab_class or "not numeric"
    if node.ndim < 2:
        return f"{node.dtype}, shape {node.shape}"
    return by_blocks(node, axis=0 if source.samples_in == "columns" else node.ndim - 1).T
