"""Check of the elements of a MATLAB file before SciPy reads it: version 4 and versions 5 to 7.2.

SciPy's reader trusts types, sizes and dimensions: a damaged one ends the process or allocates memory
without limit. The check follows the same path through a file as SciPy's reader does, without
keeping values, and refuses each element that does not fit its file.
"""

from __future__ import annotations

import math
import os
import struct
import zlib
from pathlib import Path
from typing import BinaryIO, NoReturn

from mscam_dask.data.readers.base import Source, check_size
from mscam_dask.errors import DataError

__all__ = ["check_elements"]

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
                    self.source.path, self.size, f"the file ends where a matrix goes on to {place}"
                )


class _Version5:
    """The elements of a version 5 file, those that are compressed among them."""

    def __init__(self, source: Source, stream: BinaryIO, size: int, head: bytes) -> None:
        self.source, self.stream, self.size = source, stream, size
        self.order = ">" if head[126:128] == b"MI" else "<"
        if len(head) < _HEADER_BYTES or head[126:128] not in (b"MI", b"IM"):
            _refuse(source.path, 126, f"{head[126:128]!r} is no byte order (IM or MI)")

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
