"""Files that lie, explode, point elsewhere or are damaged, each made by one function.

`HOSTILE` has the function of each by the name of the file. A function gets the path to write to and the
path of the canary. Importing this module fills the registry.
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
from tests.faults import hostile_hdf5  # noqa: F401 - enters its files
from tests.faults.hostile_registry import (
    CANARY,
    HOSTILE,
    TABLE,
    Hostile,
    hostile,
    overwrite,
    truncate,
    write_canary,
)

__all__ = ["CANARY", "HOSTILE", "Hostile", "write_canary"]


# -- NumPy ------------------------------------------------------------------------------------


def npy(shape: tuple[Any, ...], descr: str = "<f8", body: bytes = bytes(100)) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    return stream.getvalue() + body


def raw_npy(header: str, body: bytes = bytes(480)) -> bytes:
    text = header.encode("latin1") + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


def archive(path: Path, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)


@hostile("huge_shape.npy")
def _(path: Path, canary: Path) -> None:
    path.write_bytes(npy((10**12, 100)))


@hostile("negative_shape.npy")
def _(path: Path, canary: Path) -> None:
    path.write_bytes(npy((-20, 3)))


@hostile("fractional_shape.npy")
def _(path: Path, canary: Path) -> None:
    path.write_bytes(raw_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (20.5, 3)}"))


@hostile("unfinished_header.npy")
def _(path: Path, canary: Path) -> None:
    path.write_bytes(raw_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (20, 3"))


@hostile("nested_header.npy")
def _(path: Path, canary: Path) -> None:
    path.write_bytes(raw_npy("(" * 4000 + ")" * 4000))


@hostile("objects.npy")
def _(path: Path, canary: Path) -> None:
    np.save(path, np.array([[{}]], dtype=object), allow_pickle=True)


@hostile("version_9.npy")
def _(path: Path, canary: Path) -> None:
    path.write_bytes(b"\x93NUMPY\x09\x00" + bytes(100))


@hostile("huge_items.npy")
def _(path: Path, canary: Path) -> None:
    path.write_bytes(npy((20, 3), descr=f"<U{2**29 - 1}"))


@hostile("empty.npy")
def _(path: Path, canary: Path) -> None:
    path.write_bytes(b"")


@hostile("huge_shape.npz")
def _(path: Path, canary: Path) -> None:
    archive(path, view_0=npy((10**12, 100)))


@hostile("bomb.npz")
def _(path: Path, canary: Path) -> None:
    """1.25 GiB of zeros in 1.3 MB."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file,
        file.open("view_0.npy", "w", force_zip64=True) as stream,
    ):
        stream.write(npy((1280 * 2**17, 1), body=b""))
        for _ in range(1280):
            stream.write(bytes(2**20))


@hostile("declared_size.npz")
def _(path: Path, canary: Path) -> None:
    """The directory of the archive says that a member unpacks to 4 GB."""
    archive(path, view_0=npy((2**28, 1)))
    content = bytearray(path.read_bytes())
    place = content.rindex(b"PK\x01\x02")
    content[place + 24 : place + 28] = struct.pack("<I", 2**32 - 2)
    path.write_bytes(content)


@hostile("unknown_method.npz")
def _(path: Path, canary: Path) -> None:
    archive(path, view_0=npy((20, 3), body=TABLE.tobytes()))
    content = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        place = content.index(mark) + offset
        content[place : place + 2] = struct.pack("<H", 97)
    path.write_bytes(content)


@hostile("encrypted.npz")
def _(path: Path, canary: Path) -> None:
    archive(path, view_0=npy((20, 3), body=TABLE.tobytes()))
    content = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = content.index(mark) + offset
        content[place] |= 1
    path.write_bytes(content)


@hostile("damaged_member.npz")
def _(path: Path, canary: Path) -> None:
    np.savez_compressed(path, view_0=TABLE)
    overwrite(path, 150, b"\xff" * 8)


@hostile("no_array.npz")
def _(path: Path, canary: Path) -> None:
    archive(path, view_0=b"nothing")


@hostile("traversal.npz")
def _(path: Path, canary: Path) -> None:
    content = npy((20, 3), body=TABLE.tobytes())
    members: dict[str, Any] = {"../../evil": content, "view_0": content}
    archive(path, **members)


@hostile("two_of_a_name.npz")
def _(path: Path, canary: Path) -> None:
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as file:
        warnings.simplefilter("ignore")
        file.writestr("view_0.npy", npy((20, 3), body=TABLE.tobytes()))
        file.writestr("view_0.npy", npy((10**12, 3), body=TABLE.tobytes()))


@hostile("many_members.npz")
def _(path: Path, canary: Path) -> None:
    archive(path, **{f"a{i}": npy((2, 2), body=bytes(32)) for i in range(300)})


@hostile("sparse_far_index.npz")
def _(path: Path, canary: Path) -> None:
    save_sparse(path, indices=np.full(20, 10**6, dtype=np.int32))


@hostile("sparse_huge_shape.npz")
def _(path: Path, canary: Path) -> None:
    save_sparse(path, shape=np.array([20, 10**13]))


@hostile("sparse_negative_shape.npz")
def _(path: Path, canary: Path) -> None:
    save_sparse(path, shape=np.array([-20, 4]))


@hostile("sparse_fractional_shape.npz")
def _(path: Path, canary: Path) -> None:
    save_sparse(path, shape=np.array([20.5, np.nan]))


def save_sparse(path: Path, **parts: Any) -> None:
    good = {
        "format": b"csr",
        "shape": np.array([20, 4]),
        "data": np.ones(20),
        "indices": np.zeros(20, dtype=np.int32),
        "indptr": np.arange(21, dtype=np.int32),
    }
    np.savez(path, allow_pickle=False, **(good | parts))


# -- MATLAB versions 4 and 5 --------------------------------------------------------------------


def element(kind: int, content: bytes, *, declared: int | None = None) -> bytes:
    size = len(content) if declared is None else declared
    return struct.pack("<2I", kind, size) + content + bytes(-len(content) % 8)


def matrix(
    matlab_class: int = 6,
    shape: tuple[int, ...] = (20, 3),
    *parts: bytes,
    name: bytes = b"colour",
    flags: int = 0,
) -> bytes:
    """A matrix of version 5, by default of one element of 60 doubles."""
    return element(
        14,
        element(6, struct.pack("<2I", matlab_class | flags, 0))
        + element(5, struct.pack(f"<{len(shape)}i", *shape))
        + element(1, name)
        + b"".join(parts or (DOUBLES,)),
    )


DOUBLES = element(9, TABLE.T.tobytes())


def version_5(path: Path, *elements: bytes) -> None:
    path.write_bytes(b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM" + b"".join(elements))


def compressed(content: bytes) -> bytes:
    packed = zlib.compress(content)
    return struct.pack("<2I", 15, len(packed)) + packed


# A code of a type that is out of SciPy's table, in the place of each of the element types.
for _code in (0, 8, 10, 11, 19, 25, 255, 65535):

    @hostile(f"type_{_code}.mat")
    def _(path: Path, canary: Path, code: int = _code) -> None:
        version_5(path, matrix(6, (20, 3), struct.pack("<2I", code, 480) + TABLE.tobytes()))


@hostile("distancematrices17gcfeat06.mat")
def _(path: Path, canary: Path) -> None:
    """A name that the reader of the Flowers 17 data claims."""
    version_5(path, matrix(6, (20, 3), element(44, TABLE.tobytes()), name=b"D_hog"))


@hostile("type_in_compressed.mat")
def _(path: Path, canary: Path) -> None:
    version_5(path, compressed(matrix(6, (20, 3), element(44, TABLE.tobytes()))))


@hostile("type_of_small_element.mat")
def _(path: Path, canary: Path) -> None:
    version_5(path, matrix(), matrix(6, (1, 1), struct.pack("<2H4s", 99, 4, b"abcd"), name=b"b"))


@hostile("type_in_cell.mat")
def _(path: Path, canary: Path) -> None:
    inner = matrix(6, (20, 3), element(2000, TABLE.tobytes()), name=b"")
    version_5(path, matrix(1, (1, 1), inner, name=b"X"))


@hostile("type_of_sparse.mat")
def _(path: Path, canary: Path) -> None:
    pointers = element(5, struct.pack("<4i", 0, 1, 1, 1))
    rows = element(5, struct.pack("<i", 0))
    version_5(path, matrix(5, (20, 3), rows, pointers, element(200, struct.pack("<d", 1.0))))


@hostile("type_of_field.mat")
def _(path: Path, canary: Path) -> None:
    inner = matrix(6, (20, 3), element(70, TABLE.tobytes()), name=b"")
    names = element(5, struct.pack("<i", 8)) + element(1, b"a".ljust(8, b"\0"))
    version_5(path, matrix(), matrix(2, (1, 1), names, inner, name=b"s"))


@hostile("class_200.mat")
def _(path: Path, canary: Path) -> None:
    version_5(path, matrix(200))


@hostile("huge_dimensions.mat")
def _(path: Path, canary: Path) -> None:
    version_5(path, matrix(6, (2**31 - 1, 2**31 - 1)))


@hostile("negative_dimensions.mat")
def _(path: Path, canary: Path) -> None:
    version_5(path, matrix(6, (-20, -3)))


@hostile("hundred_dimensions.mat")
def _(path: Path, canary: Path) -> None:
    version_5(path, matrix(6, (1,) * 100))


@hostile("one_dimension.mat")
def _(path: Path, canary: Path) -> None:
    version_5(path, matrix(5, (60,)))


@hostile("huge_cells_5.mat")
def _(path: Path, canary: Path) -> None:
    version_5(path, matrix(1, (2**31 - 1, 2**20), matrix(name=b"")))


@hostile("huge_struct.mat")
def _(path: Path, canary: Path) -> None:
    names = element(5, struct.pack("<i", 1)) + element(1, b"")
    version_5(path, matrix(2, (2**31 - 1, 2**10), names))


@hostile("field_names_of_length_0.mat")
def _(path: Path, canary: Path) -> None:
    names = element(5, struct.pack("<i", 0)) + element(1, b"ab")
    version_5(path, matrix(2, (1, 1), names, matrix(name=b"")))


@hostile("huge_text_5.mat")
def _(path: Path, canary: Path) -> None:
    version_5(path, matrix(4, (2**31 - 1, 4), element(16, b"")))


@hostile("declared_beyond_the_end.mat")
def _(path: Path, canary: Path) -> None:
    version_5(path, matrix(6, (20, 3), element(9, TABLE.tobytes(), declared=2**31 - 8)))


@hostile("deep_cells.mat")
def _(path: Path, canary: Path) -> None:
    inner = matrix(name=b"")
    for _ in range(5000):
        inner = matrix(1, (1, 1), inner, name=b"")
    version_5(path, inner)


@hostile("bomb_5.mat")
def _(path: Path, canary: Path) -> None:
    """9.6 GB of zeros in 9.6 MB."""
    nbytes = 12 * 10**8
    head = matrix(6, (nbytes // 8, 1), struct.pack("<2I", 9, nbytes))
    packer = zlib.compressobj()
    parts = [packer.compress(struct.pack("<2I", 14, len(head) - 8 + nbytes) + head[8:])]
    parts += [packer.compress(bytes(10**7)) for _ in range(120)]
    packed = b"".join(parts) + packer.flush()
    version_5(path, *[struct.pack("<2I", 15, len(packed)) + packed] * 8)


@hostile("damaged_zlib.mat")
def _(path: Path, canary: Path) -> None:
    packed = bytearray(compressed(matrix()))
    packed[60:70] = bytes(10)
    version_5(path, bytes(packed))


@hostile("no_matrix_inside.mat")
def _(path: Path, canary: Path) -> None:
    version_5(path, compressed(element(9, TABLE.tobytes())))


@hostile("byte_order.mat")
def _(path: Path, canary: Path) -> None:
    savemat(path, {"colour": TABLE})
    overwrite(path, 126, b"XX")


@hostile("truncated_5.mat")
def _(path: Path, canary: Path) -> None:
    savemat(path, {"colour": TABLE, "X": cells(TABLE, TABLE)})
    truncate(path, 0.7)


@hostile("sparse_far_index.mat")
def _(path: Path, canary: Path) -> None:
    pointers = element(5, struct.pack("<4i", 0, 1, 1, 1))
    rows = element(5, struct.pack("<i", 10**7))
    version_5(path, matrix(5, (20, 3), rows, pointers, element(9, struct.pack("<d", 1.0))))


@hostile("version_4_huge.mat")
def _(path: Path, canary: Path) -> None:
    path.write_bytes(struct.pack("<5i", 0, 2**31 - 1, 2**20, 0, 2) + b"a\0" + TABLE.tobytes())


@hostile("version_4_negative.mat")
def _(path: Path, canary: Path) -> None:
    path.write_bytes(struct.pack("<5i", 0, -20, 3, 0, 2) + b"a\0" + TABLE.tobytes())


# -- Zarr ---------------------------------------------------------------------------------------


def edited_zarr(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """A group with one array whose metadata are changed; `change` may return their text."""
    group = zarr.create_group(path)
    array = group.create_array(
        "colour", shape=(20, 3), chunks=(10, 3), dtype="f8", dimension_names=("sample", "feature")
    )
    array[...] = TABLE
    file = path / "colour" / "zarr.json"
    metadata = json.loads(file.read_text())
    text = change(metadata)
    file.write_text(text if isinstance(text, str) else json.dumps(metadata))


def reshaped(path: Path, shape: list[Any], chunks: list[Any]) -> None:
    def change(metadata: dict[str, Any]) -> None:
        metadata["shape"] = shape
        metadata["chunk_grid"]["configuration"]["chunk_shape"] = chunks

    edited_zarr(path, change)


@hostile("huge_shape.zarr")
def _(path: Path, canary: Path) -> None:
    reshaped(path, [10**15, 10**6], [10**6, 10**6])


@hostile("huge_chunk.zarr")
def _(path: Path, canary: Path) -> None:
    reshaped(path, [20, 3], [10**9, 10**9])


@hostile("many_chunks.zarr")
def _(path: Path, canary: Path) -> None:
    reshaped(path, [10**8, 3], [4, 3])


@hostile("fill_values.zarr")
def _(path: Path, canary: Path) -> None:
    reshaped(path, [10**8, 100], [10**6, 100])


@hostile("negative_shape.zarr")
def _(path: Path, canary: Path) -> None:
    reshaped(path, [-20, 3], [10, 3])


@hostile("fractional_shape.zarr")
def _(path: Path, canary: Path) -> None:
    reshaped(path, [20.5, 3], [10, 3])


@hostile("nan_shape.zarr")
def _(path: Path, canary: Path) -> None:
    reshaped(path, [float("nan"), 3], [10, 3])


@hostile("empty_chunks.zarr")
def _(path: Path, canary: Path) -> None:
    reshaped(path, [20, 3], [0, 3])


@hostile("true_shape.zarr")
def _(path: Path, canary: Path) -> None:
    reshaped(path, [True, 3], [10, 3])


@hostile("two_shapes.zarr")
def _(path: Path, canary: Path) -> None:
    edited_zarr(path, lambda metadata: json.dumps(metadata)[:-1] + ', "shape": [400000000, 3]}')


@hostile("deep.zarr")
def _(path: Path, canary: Path) -> None:
    deep = '{"a":' * 100_000 + "1" + "}" * 100_000
    edited_zarr(path, lambda metadata: json.dumps(metadata)[:-1] + f', "more": {deep}}}')


@hostile("unknown_codec.zarr")
def _(path: Path, canary: Path) -> None:
    edited_zarr(path, lambda metadata: metadata["codecs"].append({"name": "surprise"}))


@hostile("pickles.zarr")
def _(path: Path, canary: Path) -> None:
    edited_zarr(path, lambda metadata: metadata["codecs"].append({"name": "numcodecs.pickle"}))


@hostile("damaged_chunk.zarr")
def _(path: Path, canary: Path) -> None:
    edited_zarr(path, lambda metadata: None)
    overwrite(path / "colour" / "c" / "0" / "0", 3, b"\xff" * 8)


@hostile("short_chunk.zarr")
def _(path: Path, canary: Path) -> None:
    edited_zarr(path, lambda metadata: None)
    (path / "colour" / "c" / "1" / "0").write_bytes(b"")


@hostile("long_chunk.zarr")
def _(path: Path, canary: Path) -> None:
    """A chunk of 240 bytes that unpacks to 1 GiB."""
    group = zarr.create_group(path)
    array = group.create_array(
        "colour",
        shape=(2**27, 1),
        chunks=(2**27, 1),
        dtype="f8",
        dimension_names=("sample", "feature"),
        config={"write_empty_chunks": True},
    )
    array[...] = 1.0
    file = path / "colour" / "zarr.json"
    metadata = json.loads(file.read_text())
    metadata["shape"], metadata["chunk_grid"]["configuration"]["chunk_shape"] = [20, 1], [20, 1]
    file.write_text(json.dumps(metadata))


@hostile("device.zarr")
def _(path: Path, canary: Path) -> None:
    edited_zarr(path, lambda metadata: None)
    chunk = path / "colour" / "c" / "0" / "0"
    chunk.unlink()
    os.mkfifo(chunk)


@hostile("link.zarr")
def _(path: Path, canary: Path) -> None:
    edited_zarr(path, lambda metadata: None)
    chunk = path / "colour" / "c" / "0" / "0"
    chunk.unlink()
    chunk.symlink_to(canary)


# -- text and names -------------------------------------------------------------------------------


@hostile("wide.csv")
def _(path: Path, canary: Path) -> None:
    path.write_text("\n".join(",".join([str(row)] * 500_000) for row in range(2)))


@hostile("long_field.csv")
def _(path: Path, canary: Path) -> None:
    path.write_text('a,b\n"' + "x" * 5_000_000 + '",1\n')


@hostile("open_quote.csv")
def _(path: Path, canary: Path) -> None:
    path.write_text('1,2\n"3,4\n5,6\n' * 10)


@hostile("nul.csv")
def _(path: Path, canary: Path) -> None:
    path.write_bytes(b"1,2\n\0,3\n")


@hostile("utf_16.csv")
def _(path: Path, canary: Path) -> None:
    path.write_text("a,b\n1,2\n3,4\n", encoding="utf-16")


@hostile("escapes.csv")
def _(path: Path, canary: Path) -> None:
    path.write_text("id,a\n" + "".join(f"s{i}\x1b[2J,{i}\n" for i in range(9)))


@hostile("device.npy")
def _(path: Path, canary: Path) -> None:
    os.mkfifo(path)


@hostile("zeros.csv")
def _(path: Path, canary: Path) -> None:
    path.symlink_to("/dev/zero")


@hostile("circle.npz")
def _(path: Path, canary: Path) -> None:
    path.symlink_to(path)


@hostile("directory.npz")
def _(path: Path, canary: Path) -> None:
    path.mkdir()
