"""MATLAB files: v5 to v7.2 through SciPy, v7.3 (HDF5) through h5py.

Views are the numeric matrices of a file, and the cells of one-level cell arrays of numeric
matrices (the form in which multi-view data sets are published), but for what is labels
(`mscam_dask.data.readers.named_arrays`), such as a cell array of text. Structs, function handles
and nested cells are refused as views.
"""

from __future__ import annotations

import math
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.base import (
    Selection,
    Source,
    SourceContents,
    check_row_size,
    check_size,
    oriented,
    unreadable,
)
from mscam_dask.data.readers.hdf5 import check_hdf5
from mscam_dask.data.readers.named_arrays import MatlabCellArray, NoMatrix, describe, find_labels
from mscam_dask.data.sparse import checked_sparse, is_sparse, sparse_from_parts
from mscam_dask.data.views.conversion import rows_of
from mscam_dask.data.views.sources import BLOCK_BYTES, RowSource
from mscam_dask.errors import DataError

__all__ = ["check_elements", "read_mat"]


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


_HEADER_BYTES = 128
_MATRIX, _COMPRESSED = 14, 15
_INT8, _INT32, _UINT32, _UTF8 = 1, 5, 6, 16
_NUMBER_BYTES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 9: 8, 12: 8, 13: 8}
_TEXT_BYTES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 16: 1, 17: 2, 18: 4}
_CELL, _STRUCT, _OBJECT, _CHAR, _SPARSE, _FUNCTION, _OPAQUE = 1, 2, 3, 4, 5, 16, 17
_NUMERIC_CLASSES = range(6, 16)
_MAX_DIMENSIONS = 32
_MAX_DEPTH = 64
_MAX_CELLS = 10**6
_STEP = 2**20

_VERSION_4_BYTES = (8, 4, 4, 2, 2, 1)


def check_elements(source: Source) -> None:
    """Refuse a MATLAB file whose elements have types, sizes or dimensions that do not fit it.

    Raises
    ------
    DataError
        With the place of the first such element; or when the variables take more than
        `Source.max_bytes` in memory.
    """
    size = source.file.stat().st_size
    with source.file.open("rb") as stream:
        head = stream.read(_HEADER_BYTES)
        if len(head) < 4 or 0 in head[:4]:
            _Version4(source, stream, size).run()
        else:
            _Version5(source, stream, size, head).run()


def _refuse(file: str | Path | object, place: int, fault: str) -> NoReturn:
    raise DataError(
        f"{file} is damaged: at byte {place}, {fault}. Restore the file from a copy, or save it again "
        "in MATLAB."
    )


class _Version4:
    """The matrices of a version 4 file: five numbers, a name and the values."""

    def __init__(self, source: Source, stream: BinaryIO, size: int) -> None:
        self.source, self.stream, self.size = source, stream, size

    def run(self) -> None:
        place = 0
        while place < self.size:
            self.stream.seek(place)
            head = self.stream.read(20)
            if len(head) < 20:
                _refuse(
                    self.source.path, place, f"a matrix has {len(head)} of 20 bytes of its header"
                )
            code, *rest = struct.unpack("<5i", head)
            if not 0 <= code <= 5000:
                code, *rest = struct.unpack(">5i", head)
            n_rows, n_columns, is_complex, name_bytes = rest
            precision = code // 10 % 10
            if not 0 <= code <= 5000 or precision >= len(_VERSION_4_BYTES) or min(rest) < 0:
                _refuse(self.source.path, place, f"a matrix has the header {(code, *rest)}")
            nbytes = n_rows * n_columns * _VERSION_4_BYTES[precision]
            place += 20 + name_bytes + nbytes * (2 if is_complex == 1 else 1)
            if place > self.size:
                _refuse(
                    self.source.path,
                    self.size,
                    f"the file ends before the end of a matrix at byte {place}",
                )


class _Version5:
    """The elements of a version 5 file, those that are compressed among them."""

    def __init__(self, source: Source, stream: BinaryIO, size: int, head: bytes) -> None:
        self.source, self.stream, self.size = source, stream, size
        self.order = ">" if head[126:128] == b"MI" else "<"
        if len(head) < _HEADER_BYTES or head[126:128] not in (b"MI", b"IM"):
            _refuse(source.path, 126, f"{head[126:128]!r} is not a byte order (IM or MI)")

    def run(self) -> None:
        total, place = 0, _HEADER_BYTES
        while place < self.size:
            self.stream.seek(place)
            tag = self.stream.read(8)
            if len(tag) < 8:
                _refuse(self.source.path, place, f"an element has {len(tag)} of 8 bytes of its tag")
            kind, nbytes = struct.unpack(f"{self.order}2I", tag)
            start, place = place + 8, place + 8 + nbytes
            if place > self.size:
                _refuse(
                    self.source.path,
                    start,
                    f"{nbytes} bytes are declared, {self.size - start} left",
                )
            if kind == _COMPRESSED:
                total += self._inflated(start, nbytes)
            elif kind == _MATRIX:
                total += nbytes
                elements = _Elements(self, _Plain(self.stream, nbytes), start)
                if nbytes:
                    elements.matrix(nbytes, 0)
            else:
                _refuse(self.source.path, start - 8, f"element type {kind} (allowed are 14 and 15)")
            check_size(self.source, "its variables", total)

    def _inflated(self, start: int, nbytes: int) -> int:
        """Check a compressed matrix; the size it has in memory."""
        content = _Inflated(self.stream, nbytes)
        elements = _Elements(self, content, start)
        kind, size = elements.full_tag()
        if kind != _MATRIX:
            _refuse(self.source.path, start, f"a compressed element of type {kind} (allowed is 14)")
        check_size(self.source, "a compressed variable", size)
        if size:
            elements.matrix(size, 0)
        content.finish()
        return size


class _Plain:
    """Bytes of a file as they are."""

    def __init__(self, stream: BinaryIO, nbytes: int) -> None:
        self.stream, self.left = stream, nbytes

    def take(self, nbytes: int) -> bytes:
        return self.stream.read(nbytes)

    def skip(self, nbytes: int) -> int:
        self.stream.seek(nbytes, os.SEEK_CUR)
        return nbytes


class _Inflated:
    """Bytes of a compressed element, of which some are held at a time."""

    def __init__(self, stream: BinaryIO, nbytes: int) -> None:
        self.stream, self.left = stream, nbytes
        self.inflate = zlib.decompressobj()
        self.held = b""

    def take(self, nbytes: int) -> bytes:
        parts = []
        while nbytes:
            if not self.held and not self._more():
                break
            parts.append(self.held[:nbytes])
            self.held = self.held[nbytes:]
            nbytes -= len(parts[-1])
        return b"".join(parts)

    def skip(self, nbytes: int) -> int:
        skipped = 0
        while skipped < nbytes:
            part = len(self.take(min(_STEP, nbytes - skipped)))
            if not part:
                break
            skipped += part
        return skipped

    def finish(self) -> None:
        """Read on to the checksum, which zlib compares."""
        while not self.inflate.eof and self._more():
            pass

    def _more(self) -> bool:
        while not self.inflate.eof:
            content = self.inflate.unconsumed_tail
            if not content and self.left:
                content = self.stream.read(min(_STEP, self.left))
                self.left -= len(content)
            if not content:
                return False
            self.held = self.inflate.decompress(content, _STEP)
            if self.held:
                return True
        return False


class _Elements:
    """The elements inside one top-level element, in their order."""

    def __init__(self, file: _Version5, content: _Plain | _Inflated, place: int) -> None:
        self.file, self.content = file, content
        self.place, self.used, self.n_cells = place, 0, 0

    def refuse(self, fault: str) -> NoReturn:
        _refuse(self.file.source.path, self.place, f"{fault} ({self.used} bytes into the variable)")

    def take(self, nbytes: int) -> bytes:
        content = self.content.take(nbytes)
        self.used += nbytes
        if len(content) < nbytes:
            self.refuse("the variable ends within an element")
        return content

    def full_tag(self) -> tuple[int, int]:
        kind, nbytes = struct.unpack(f"{self.file.order}2I", self.take(8))
        return int(kind), int(nbytes)

    def element(self, end: int, allowed: dict[int, int], what: str) -> tuple[int, int]:
        """Pass over an element of numbers or text; its type and bytes."""
        kind, nbytes, _ = self._read(end, allowed, what, keep=False)
        return kind, nbytes

    def numbers(self, end: int, what: str) -> list[int]:
        """The whole numbers of a short element."""
        kind, nbytes, content = self._read(end, {_INT32: 4, _UINT32: 4}, what, keep=True)
        form = "i" if kind == _INT32 else "I"
        return list(struct.unpack(f"{self.file.order}{nbytes // 4}{form}", content[:nbytes]))

    def text(self, end: int, what: str) -> int:
        """Pass over a name; its bytes."""
        return self.element(end, {_INT8: 1, _UTF8: 1}, what)[1]

    def _read(
        self, end: int, allowed: dict[int, int], what: str, *, keep: bool
    ) -> tuple[int, int, bytes]:
        tag = self.take(8)
        kind, nbytes = struct.unpack(f"{self.file.order}2I", tag)
        is_small = bool(kind >> 16)
        if is_small:
            kind, nbytes = kind & 0xFFFF, kind >> 16
        if kind not in allowed:
            self.refuse(f"{what} of element type {kind} (allowed are {sorted(allowed)})")
        if nbytes % allowed[kind] or (is_small and nbytes > 4):
            self.refuse(f"{what} of {nbytes} bytes in items of {allowed[kind]}")
        if is_small:
            return kind, nbytes, tag[4:]
        padded = nbytes + -nbytes % 8
        if self.used + nbytes > end:
            self.refuse(f"{what} of {nbytes} bytes where {max(0, end - self.used)} are left")
        if keep:
            if nbytes > 4 * _MAX_DIMENSIONS:
                self.refuse(f"{what} of {nbytes} bytes (allowed are {4 * _MAX_DIMENSIONS})")
            return kind, nbytes, self.take(padded)
        if self.content.skip(nbytes) < nbytes:
            self.refuse("the variable ends within an element")
        self.used += nbytes
        # The padding of the last element may be missing.
        self.used += self.content.skip(min(padded - nbytes, max(0, end - self.used)))
        return kind, nbytes, b""

    def inner_matrix(self, end: int, depth: int) -> None:
        kind, nbytes = self.full_tag()
        if kind != _MATRIX:
            self.refuse(f"element type {kind} where a matrix (14) has to be")
        if self.used + nbytes > end:
            self.refuse(f"a matrix of {nbytes} bytes where {max(0, end - self.used)} are left")
        if nbytes:
            self.matrix(self.used + nbytes, depth + 1)

    def matrix(self, end: int, depth: int) -> None:
        """Check the parts of a matrix that ends at most `end` bytes into the variable."""
        if depth > _MAX_DEPTH:
            self.refuse(f"matrices inside each other more than {_MAX_DEPTH} deep")
        self.take(8)  # the tag of the flags, which SciPy passes over
        (flags,) = struct.unpack(f"{self.file.order}I4x", self.take(8))
        matlab_class, is_complex = flags & 0xFF, bool(flags >> 11 & 1)
        if matlab_class == _OPAQUE:
            for _ in range(3):
                self.text(end, "a name")
            self.inner_matrix(end, depth)
            return
        shape = self.numbers(end, "dimensions")
        if len(shape) < 2 or min(shape) < 0:
            self.refuse(f"dimensions {shape} (allowed are two or more, not negative)")
        self.text(end, "a name")
        n_items = math.prod(shape)
        if matlab_class in _NUMERIC_CLASSES:
            self._numeric(end, n_items, is_complex=is_complex)
        elif matlab_class == _CHAR:
            check_size(self.file.source, "a text", 4 * n_items)
            self.element(end, _TEXT_BYTES, "a text")
        elif matlab_class == _SPARSE:
            for what in ("row indices", "column pointers", *("values",) * (1 + is_complex)):
                self._sparse_part(end, what)
        elif matlab_class == _CELL:
            self._matrices(end, n_items, depth)
        elif matlab_class in (_STRUCT, _OBJECT):
            self._fields(end, n_items, depth, is_object=matlab_class == _OBJECT)
        elif matlab_class == _FUNCTION:
            self.inner_matrix(end, depth)
        else:
            self.refuse(f"array class {matlab_class} (allowed are 1 to 17)")

    def _numeric(self, end: int, n_items: int, *, is_complex: bool) -> None:
        for _ in range(1 + is_complex):
            kind, nbytes = self.element(end, _NUMBER_BYTES, "values")
            if nbytes // _NUMBER_BYTES[kind] != n_items:
                self.refuse(
                    f"{nbytes // _NUMBER_BYTES[kind]} values where the dimensions say {n_items}"
                )

    def _sparse_part(self, end: int, what: str) -> None:
        """Logical values may have one byte each, whatever type is declared."""
        self.element(end, dict.fromkeys(_NUMBER_BYTES, 1), what)

    def _matrices(self, end: int, n_matrices: int, depth: int) -> None:
        if n_matrices > (end - self.used) // 8:
            self.refuse(f"{n_matrices} cells or fields where {end - self.used} bytes are left")
        self.n_cells += n_matrices
        if self.n_cells > _MAX_CELLS:
            self.refuse(f"{self.n_cells} cells or fields (allowed are {_MAX_CELLS})")
        for _ in range(n_matrices):
            self.inner_matrix(end, depth)

    def _fields(self, end: int, n_items: int, depth: int, *, is_object: bool) -> None:
        if is_object:
            self.text(end, "a name of a class")
        length = self.numbers(end, "length of field names")
        if len(length) != 1 or length[0] < 1:
            self.refuse(f"length of field names {length} (allowed is one number, at least 1)")
        n_fields = self.text(end, "names of fields") // length[0]
        if not n_fields:
            check_size(self.file.source, "a struct without fields", 8 * n_items)
        self._matrices(end, n_items * n_fields, depth)
