"""Files that lie, explode, point elsewhere or are damaged, each made by one function.

`HOSTILE` has the function of each by the name of the file. A function gets the path to write to and the
path of the canary: an HDF5 file outside, whose values no store may hold.
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

import h5py
import numpy as np
import xarray as xr
import zarr
from scipy.io import savemat

from tests.data.readers.matlab_files import cells, save_version_73

__all__ = ["CANARY", "HOSTILE", "Hostile", "write_canary"]

Hostile = Callable[[Path, Path], object]

RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(20, 3))
CANARY = 12345.678901 + np.arange(60.0).reshape(20, 3)

HOSTILE: dict[str, Hostile] = {}


def hostile(name: str) -> Callable[[Hostile], Hostile]:
    """Enter a function under the name of the file that it writes."""

    def enter(build: Hostile) -> Hostile:
        assert name not in HOSTILE
        HOSTILE[name] = build
        return build

    return enter


def write_canary(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=CANARY)
        node = file.create_dataset("turned", data=CANARY.T)
        node.attrs["MATLAB_class"] = np.bytes_("double")


# -- HDF5: MATLAB v7.3 and NetCDF-4 that read other files ---------------------------------------


def version_73(path: Path, fill: Callable[[Any], object]) -> None:
    save_version_73(path, colour=TABLE)
    with h5py.File(path, "r+") as file:
        fill(file)


def external(file: Any, canary: Path, name: str = "stolen") -> Any:
    size = canary.stat().st_size
    shape = (20, size // 20)
    node = file.create_dataset(name, shape=shape, dtype="u1", external=[(str(canary), 0, size)])
    node.attrs["MATLAB_class"] = np.bytes_("uint8")
    return node


def virtual(file: Any, canary: Path, name: str = "stolen") -> Any:
    layout = h5py.VirtualLayout(shape=(3, 20), dtype="f8")
    layout[:] = h5py.VirtualSource(str(canary), "turned", shape=(3, 20))
    node = file.create_virtual_dataset(name, layout)
    node.attrs["MATLAB_class"] = np.bytes_("double")
    return node


@hostile("external_storage.mat")
def _(path: Path, canary: Path) -> None:
    version_73(path, lambda file: external(file, canary))


@hostile("external_link.mat")
def _(path: Path, canary: Path) -> None:
    version_73(
        path, lambda file: file.__setitem__("stolen", h5py.ExternalLink(str(canary), "turned"))
    )


@hostile("soft_link_through_external_link.mat")
def _(path: Path, canary: Path) -> None:
    def fill(file: Any) -> None:
        file.create_group("#refs#2")["door"] = h5py.ExternalLink(str(canary), "/")
        file["stolen"] = h5py.SoftLink("/#refs#2/door/turned")

    version_73(path, fill)


@hostile("virtual.mat")
def _(path: Path, canary: Path) -> None:
    version_73(path, lambda file: virtual(file, canary))


@hostile("external_cell.mat")
def _(path: Path, canary: Path) -> None:
    """A cell that no link leads to: only its reference does."""

    def fill(file: Any) -> None:
        hidden = external(file, canary, "hidden")
        node = file.create_dataset("X", data=np.array([[hidden.ref]], dtype=h5py.ref_dtype))
        node.attrs["MATLAB_class"] = np.bytes_("cell")
        del file["hidden"]

    version_73(path, fill)


@hostile("external_sparse.mat")
def _(path: Path, canary: Path) -> None:
    def fill(file: Any) -> None:
        group = file.create_group("words")
        group.attrs["MATLAB_sparse"] = np.uint64(20)
        group["jc"] = np.array([0, 20], dtype=np.uint64)
        group["ir"] = np.arange(20, dtype=np.uint64)
        group["data"] = h5py.ExternalLink(str(canary), "x")

    version_73(path, fill)


def netcdf(path: Path, make: Callable[[Any], Any]) -> None:
    with h5py.File(path, "w") as file:
        node = make(file)
        for index, name in enumerate(("sample", "feature")):
            axis = file.create_dataset(name, data=np.arange(node.shape[index]))
            axis.make_scale(name)
            node.dims[index].attach_scale(axis)


@hostile("external_storage.nc")
def _(path: Path, canary: Path) -> None:
    netcdf(path, lambda file: external(file, canary))


@hostile("virtual.nc")
def _(path: Path, canary: Path) -> None:
    netcdf(path, lambda file: virtual(file, canary))


@hostile("external_link.nc")
def _(path: Path, canary: Path) -> None:
    netcdf(path, lambda file: file.create_dataset("colour", data=TABLE))
    with h5py.File(path, "r+") as file:
        file["stolen"] = h5py.ExternalLink(str(canary), "x")


def scales(path: Path, dataset: str, attribute: str, value: Any) -> None:
    """A file with another value of an attribute that HDF5 reads into a buffer of its own kind."""
    netcdf(path, lambda file: file.create_dataset("colour", data=TABLE))
    with h5py.File(path, "r+") as file:
        file[dataset].attrs[attribute] = value


@hostile("numbers_for_scales.nc")
def _(path: Path, canary: Path) -> None:
    scales(path, "colour", "DIMENSION_LIST", np.ones((2, 2, 2)))


@hostile("number_for_a_scale.nc")
def _(path: Path, canary: Path) -> None:
    scales(path, "colour", "DIMENSION_LIST", 3)


@hostile("numbers_for_users_of_a_scale.nc")
def _(path: Path, canary: Path) -> None:
    scales(path, "sample", "REFERENCE_LIST", np.arange(40.0))


# -- HDF5: sizes ------------------------------------------------------------------------------


def empty_dataset(path: Path, shape: tuple[int, int], chunks: tuple[int, int] | None) -> None:
    def fill(file: Any) -> None:
        node = file.create_dataset("big", shape=shape, chunks=chunks, dtype="f8", fillvalue=1.0)
        node.attrs["MATLAB_class"] = np.bytes_("double")

    version_73(path, fill)


@hostile("huge_shape.mat")
def _(path: Path, canary: Path) -> None:
    empty_dataset(path, (3, 10**13), (3, 1000))


@hostile("huge_chunk.mat")
def _(path: Path, canary: Path) -> None:
    empty_dataset(path, (40_000, 30_000), (20_000, 25_000))


@hostile("many_chunks.mat")
def _(path: Path, canary: Path) -> None:
    empty_dataset(path, (10_000, 10_000), (1, 1))


@hostile("huge_contiguous.mat")
def _(path: Path, canary: Path) -> None:
    empty_dataset(path, (3, 10**12), None)


@hostile("huge_cells.mat")
def _(path: Path, canary: Path) -> None:
    def fill(file: Any) -> None:
        node = file.create_dataset("X", shape=(1, 10**11), chunks=(1, 1000), dtype=h5py.ref_dtype)
        node.attrs["MATLAB_class"] = np.bytes_("cell")

    version_73(path, fill)


@hostile("huge_text.mat")
def _(path: Path, canary: Path) -> None:
    def fill(file: Any) -> None:
        node = file.create_dataset("text", shape=(10**11, 1), chunks=(1000, 1), dtype="u2")
        node.attrs["MATLAB_class"] = np.bytes_("char")

    version_73(path, fill)


@hostile("huge_rows_of_sparse.mat")
def _(path: Path, canary: Path) -> None:
    def fill(file: Any) -> None:
        group = file.create_group("words")
        group.attrs["MATLAB_sparse"] = np.uint64(2**63)
        group["jc"] = np.array([0, 1], dtype=np.uint64)
        group["ir"] = np.array([2**62], dtype=np.uint64)
        group["data"] = np.ones(1)

    version_73(path, fill)


@hostile("null_reference.mat")
def _(path: Path, canary: Path) -> None:
    def fill(file: Any) -> None:
        node = file.create_dataset("X", shape=(1, 3), dtype=h5py.ref_dtype)
        node.attrs["MATLAB_class"] = np.bytes_("cell")

    version_73(path, fill)


@hostile("circle_of_groups.mat")
def _(path: Path, canary: Path) -> None:
    def fill(file: Any) -> None:
        group = file.create_group("a")
        group["itself"] = group
        group["root"] = file["/"]

    version_73(path, fill)


@hostile("dangling_link.mat")
def _(path: Path, canary: Path) -> None:
    version_73(path, lambda file: file.__setitem__("gone", h5py.SoftLink("/nowhere")))


@hostile("damaged_chunk.mat")
def _(path: Path, canary: Path) -> None:
    def fill(file: Any) -> None:
        node = file.create_dataset("zipped", data=TABLE.T, chunks=(3, 20), compression="gzip")
        node.attrs["MATLAB_class"] = np.bytes_("double")
        place = node.id.get_chunk_info(0).byte_offset
        file.attrs["place"] = place

    version_73(path, fill)
    with h5py.File(path, "r") as file:
        place = int(file.attrs["place"])
    overwrite(path, place + 8, b"\xff" * 16)


@hostile("truncated.mat")
def _(path: Path, canary: Path) -> None:
    save_version_73(path, colour=TABLE)
    truncate(path, 0.6)


@hostile("huge_shape.nc")
def _(path: Path, canary: Path) -> None:
    with h5py.File(path, "w") as file:
        node = file.create_dataset("big", shape=(10**12, 3), chunks=(1000, 3), dtype="f8")
        for index, name in enumerate(("sample", "feature")):
            axis = file.create_dataset(
                name,
                shape=node.shape[index : index + 1],
                chunks=(1000,) if not index else None,
                dtype="i4",
            )
            axis.make_scale(name)
            node.dims[index].attach_scale(axis)


@hostile("truncated.nc")
def _(path: Path, canary: Path) -> None:
    xr.Dataset({"a": (("sample", "f"), TABLE)}).to_netcdf(path, engine="h5netcdf")
    truncate(path, 0.5)


@hostile("classic_huge.nc")
def _(path: Path, canary: Path) -> None:
    xr.Dataset({"a": (("sample", "f"), TABLE)}).to_netcdf(path, engine="scipy")
    content = bytearray(path.read_bytes())
    place = content.index(struct.pack(">i", 20))
    content[place : place + 4] = struct.pack(">i", 2**30)
    path.write_bytes(content)


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
    """1.2 GB of zeros in 1.2 MB."""
    nbytes = 12 * 10**8
    head = matrix(6, (nbytes // 8, 1), struct.pack("<2I", 9, nbytes))
    packer = zlib.compressobj()
    parts = [packer.compress(struct.pack("<2I", 14, len(head) - 8 + nbytes) + head[8:])]
    parts += [packer.compress(bytes(10**7)) for _ in range(120)]
    packed = b"".join(parts) + packer.flush()
    version_5(path, struct.pack("<2I", 15, len(packed)), packed)


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


def overwrite(path: Path, place: int, content: bytes) -> None:
    changed = bytearray(path.read_bytes())
    changed[place : place + len(content)] = content
    path.write_bytes(changed)


def truncate(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
