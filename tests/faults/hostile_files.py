"""Files that lie, explode, point elsewhere or are damaged: one table of their names and makers.

A maker gets the path to write to and the path of the canary, an HDF5 file outside, whose values no store
may hold.
"""

from __future__ import annotations

import io
import json
import os
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from scipy.io import savemat

from tests.data.readers.matlab_files import cells
from tests.faults.hostile_hdf5 import HDF5, TABLE, Hostile, overwrite, truncate

BYTES = TABLE.tobytes()

# -- NumPy ------------------------------------------------------------------------------------


def npy(shape: tuple[Any, ...], descr: str = "<f8", body: bytes = bytes(100)) -> bytes:
    stream = io.BytesIO()
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue() + body


def raw_npy(header: str) -> bytes:
    text = header.encode("latin1") + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(480)


def content(value: bytes) -> Hostile:
    return lambda path, _: path.write_bytes(value)


def archive(**members: bytes) -> Hostile:
    def write(path: Path, _: Path) -> None:
        with warnings.catch_warnings(), zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            warnings.simplefilter("ignore")
            for name, value in members.items():
                file.writestr(f"{name.rstrip('+')}.npy", value)  # two may have one name

    return write


GOOD = npy((20, 3), body=BYTES)
MEMBERS: dict[str, bytes] = {"../../evil": GOOD, "view_0": GOOD}


def edited_archive(*changes: tuple[bytes, int, bytes], view: bytes = GOOD) -> Hostile:
    """An archive with other bytes at distances from the first of some marks."""

    def write(path: Path, canary: Path) -> None:
        archive(view_0=view)(path, canary)
        for mark, offset, value in changes:
            overwrite(path, path.read_bytes().index(mark) + offset, value)

    return write


FILE_HEADER, DIRECTORY = b"PK\x03\x04", b"PK\x01\x02"


def zip_bomb(path: Path, _: Path) -> None:
    """1.25 GiB of zeros in 1.3 MB."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file,
        file.open("view_0.npy", "w", force_zip64=True) as stream,
    ):
        stream.write(npy((1280 * 2**17, 1), body=b""))
        stream.writelines(bytes(2**20) for _ in range(1280))


def damaged_member(path: Path, _: Path) -> None:
    np.savez_compressed(path, view_0=TABLE)
    overwrite(path, 150, b"\xff" * 8)


def sparse_huge_shape(path: Path, _: Path) -> None:
    parts = {"data": np.ones(20), "indices": np.zeros(20, "i4"), "indptr": np.arange(21)}
    np.savez(path, allow_pickle=False, format=b"csr", shape=[20, 10**13], **parts)


NUMPY: dict[str, Hostile] = {
    "huge_shape.npy": content(npy((10**12, 100))),
    "negative_shape.npy": content(npy((-20, 3))),
    "unfinished_header.npy": content(
        raw_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (20, 3")
    ),
    "nested_header.npy": content(raw_npy("(" * 4000 + ")" * 4000)),
    "huge_items.npy": content(npy((20, 3), descr=f"<U{2**29 - 1}")),
    "empty.npy": content(b""),
    "huge_shape.npz": archive(view_0=npy((10**12, 100))),
    "bomb.npz": zip_bomb,
    # the directory of the archive says that the member unpacks to 4 GB
    "declared_size.npz": edited_archive(
        (DIRECTORY, 24, struct.pack("<I", 2**32 - 2)), view=npy((2**28, 1))
    ),
    "unknown_method.npz": edited_archive((FILE_HEADER, 8, b"a\0"), (DIRECTORY, 10, b"a\0")),
    "encrypted.npz": edited_archive((FILE_HEADER, 6, b"\1"), (DIRECTORY, 8, b"\1")),
    "damaged_member.npz": damaged_member,
    "no_array.npz": archive(view_0=b"nothing"),
    "traversal.npz": archive(**MEMBERS),
    "two_of_a_name.npz": archive(**{"view_0": GOOD, "view_0+": npy((10**12, 3), body=BYTES)}),
    "many_members.npz": archive(**{f"a{i}": npy((2, 2), body=bytes(32)) for i in range(300)}),
    "sparse_huge_shape.npz": sparse_huge_shape,
}

# -- MATLAB versions 4 and 5, which SciPy tries in a process of its own ---------------------------


def element(kind: int, value: bytes) -> bytes:
    return struct.pack("<2I", kind, len(value)) + value + bytes(-len(value) % 8)


def ints(*values: int) -> bytes:
    return element(5, struct.pack(f"<{len(values)}i", *values))


def matrix(
    matlab_class: int = 6, shape: tuple[int, ...] = (20, 3), *parts: bytes, name: bytes = b"colour"
) -> bytes:
    """A matrix of version 5, by default of one element of 60 doubles."""
    flags = element(6, struct.pack("<2I", matlab_class, 0))
    values = b"".join(parts or (element(9, TABLE.T.tobytes()),))
    return element(14, flags + ints(*shape) + element(1, name) + values)


def version_5(*elements: bytes) -> Hostile:
    return content(b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM" + b"".join(elements))


def typed(code: int) -> bytes:
    """A matrix whose values have a type that is out of SciPy's table."""
    return matrix(6, (20, 3), struct.pack("<2I", code, len(BYTES)) + BYTES)


def deep_cells(path: Path, canary: Path) -> None:
    inner = matrix(name=b"")
    for _ in range(5000):
        inner = matrix(1, (1, 1), inner, name=b"")
    version_5(inner)(path, canary)


def bomb_5(path: Path, canary: Path) -> None:
    """9.6 GB of zeros in 9.6 MB."""
    nbytes = 12 * 10**8
    head = matrix(6, (nbytes // 8, 1), struct.pack("<2I", 9, nbytes))
    packer = zlib.compressobj()
    parts = [packer.compress(struct.pack("<2I", 14, len(head) - 8 + nbytes) + head[8:])]
    parts += [packer.compress(bytes(10**7)) for _ in range(120)]
    packed = b"".join(parts) + packer.flush()
    version_5(*[struct.pack("<2I", 15, len(packed)) + packed] * 8)(path, canary)


def damaged_zlib(path: Path, canary: Path) -> None:
    packed = bytearray(zlib.compress(matrix()))
    packed[60:70] = bytes(10)
    version_5(struct.pack("<2I", 15, len(packed)) + packed)(path, canary)


def truncated_5(path: Path, _: Path) -> None:
    savemat(path, {"colour": TABLE, "X": cells(TABLE, TABLE)})
    truncate(path, 0.7)


def version_4(rows: int, columns: int) -> Hostile:
    return content(struct.pack("<5i", 0, rows, columns, 0, 2) + b"a\0" + BYTES)


MATLAB: dict[str, Hostile] = {
    **{f"type_{code}.mat": version_5(typed(code)) for code in (10, 44, 65535)},
    "class_200.mat": version_5(matrix(200)),
    "huge_dimensions.mat": version_5(matrix(6, (2**31 - 1, 2**31 - 1))),
    "negative_dimensions.mat": version_5(matrix(6, (-20, -3))),
    "huge_cells_5.mat": version_5(matrix(1, (2**31 - 1, 2**20), matrix(name=b""))),
    "deep_cells.mat": deep_cells,
    "bomb_5.mat": bomb_5,
    "damaged_zlib.mat": damaged_zlib,
    "truncated_5.mat": truncated_5,
    "sparse_far_index.mat": version_5(
        matrix(5, (20, 3), ints(10**7), ints(0, 1, 1, 1), element(9, struct.pack("<d", 1.0)))
    ),
    "version_4_huge.mat": version_4(2**31 - 1, 2**20),
}

# -- Zarr ---------------------------------------------------------------------------------------


def edited_zarr(change: Callable[[dict[str, Any]], Any]) -> Hostile:
    """A group with one array whose metadata are changed; `change` may return their text."""

    def write(path: Path, _: Path) -> None:
        group = zarr.create_group(path)
        names = ("sample", "feature")
        array = group.create_array(
            "colour", shape=(20, 3), chunks=(10, 3), dtype="f8", dimension_names=names
        )
        array[...] = TABLE
        file = path / "colour" / "zarr.json"
        metadata = json.loads(file.read_text())
        text = change(metadata)
        file.write_text(text if isinstance(text, str) else json.dumps(metadata))

    return write


def shaped(shape: list[Any], chunks: list[Any]) -> Hostile:
    def change(metadata: dict[str, Any]) -> None:
        metadata["shape"] = shape
        metadata["chunk_grid"]["configuration"]["chunk_shape"] = chunks

    return edited_zarr(change)


def added(text: str) -> Hostile:
    """Metadata with a further entry."""
    return edited_zarr(lambda metadata: f"{json.dumps(metadata)[:-1]}, {text}}}")


def codec(name: str) -> Hostile:
    return edited_zarr(lambda metadata: metadata["codecs"].append({"name": name}))


def chunk(change: Callable[[Path, Path], object], *, keeps_file: bool = False) -> Hostile:
    """A group whose first chunk is changed, or something else in its place."""

    def write(path: Path, canary: Path) -> None:
        edited_zarr(lambda metadata: None)(path, canary)
        file = path / "colour" / "c" / "0" / "0"
        if not keeps_file:
            file.unlink()
        change(file, canary)

    return write


def long_chunk(path: Path, _: Path) -> None:
    """A chunk of 240 bytes that unpacks to 1 GiB."""
    group = zarr.create_group(path)
    size: dict[str, Any] = {"shape": (2**27, 1), "chunks": (2**27, 1), "dtype": "f8"}
    size |= {"dimension_names": ("sample", "feature"), "config": {"write_empty_chunks": True}}
    array = group.create_array("colour", **size)
    array[...] = 1.0
    file = path / "colour" / "zarr.json"
    metadata = json.loads(file.read_text())
    metadata["shape"], metadata["chunk_grid"]["configuration"]["chunk_shape"] = [20, 1], [20, 1]
    file.write_text(json.dumps(metadata))


ZARR: dict[str, Hostile] = {
    "huge_shape.zarr": shaped([10**15, 10**6], [10**6, 10**6]),
    "huge_chunk.zarr": shaped([20, 3], [10**9, 10**9]),
    "many_chunks.zarr": shaped([10**8, 3], [4, 3]),
    "fill_values.zarr": shaped([10**8, 100], [10**6, 100]),
    "negative_shape.zarr": shaped([-20, 3], [10, 3]),
    "fractional_shape.zarr": shaped([20.5, 3], [10, 3]),
    "nan_shape.zarr": shaped([float("nan"), 3], [10, 3]),
    "empty_chunks.zarr": shaped([20, 3], [0, 3]),
    "true_shape.zarr": shaped([True, 3], [10, 3]),
    "two_shapes.zarr": added('"shape": [400000000, 3]'),
    "deep.zarr": added('"more": ' + '{"a":' * 100_000 + "1" + "}" * 100_000),
    "unknown_codec.zarr": codec("surprise"),
    "damaged_chunk.zarr": chunk(lambda file, _: overwrite(file, 3, b"\xff" * 8), keeps_file=True),
    "short_chunk.zarr": chunk(lambda file, _: file.write_bytes(b"")),
    "long_chunk.zarr": long_chunk,
    "device.zarr": chunk(lambda file, _: os.mkfifo(file)),
    "link.zarr": chunk(lambda file, canary: file.symlink_to(canary)),
}

# -- text and names -------------------------------------------------------------------------------


def text(value: str, encoding: str = "utf-8") -> Hostile:
    return lambda path, _: path.write_text(value, encoding=encoding)


TEXT: dict[str, Hostile] = {
    "wide.csv": text("\n".join(",".join([str(row)] * 500_000) for row in range(2))),
    "long_field.csv": text('a,b\n"' + "x" * 5_000_000 + '",1\n'),
    "open_quote.csv": text('1,2\n"3,4\n5,6\n' * 10),
    "nul.csv": text("1,2\n\0,3\n"),
    "utf_16.csv": text("a,b\n1,2\n3,4\n", encoding="utf-16"),
    "escapes.csv": text("id,a\n" + "".join(f"s{i}\x1b[2J,{i}\n" for i in range(9))),
    "device.npy": lambda path, _: os.mkfifo(path),
    "zeros.csv": lambda path, _: path.symlink_to("/dev/zero"),
    "circle.npz": lambda path, _: path.symlink_to(path),
    "directory.npz": lambda path, _: path.mkdir(),
}

# -- spreadsheets ---------------------------------------------------------------------------------


def workbook(*names: str, cells: str, size: int = 0) -> Hostile:
    """A workbook of one part, and others that have nothing, with cells and as many MiB of blanks."""

    def write(path: Path, _: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            for name in names[1:]:
                file.writestr(name, "<a/>")
            with file.open(names[0], "w") as stream:
                stream.write(cells.encode())
                stream.writelines(b" " * 2**20 for _ in range(size))

    return write


_FAR = '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'

SHEETS: dict[str, Hostile] = {
    "far_cell.xlsx": workbook(
        "xl/worksheets/sheet1.xml",
        "xl/workbook.xml",
        cells=f"<worksheet><sheetData>{_FAR}</sheetData></worksheet>",
    ),
    "bomb.xlsx": workbook("xl/worksheets/sheet1.xml", "xl/workbook.xml", cells="", size=900),
    "truncated.xlsx": workbook("xl/worksheets/sheet1.xml", "xl/workbook.xml", cells="<worksheet>"),
}

HOSTILE: dict[str, Hostile] = {**NUMPY, **MATLAB, **HDF5, **ZARR, **TEXT, **SHEETS}
