"""Hostile HDF5 files: MATLAB 7.3 and NetCDF-4 that read other files, or declare wrong sizes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray as xr

from tests.data.readers.matlab_files import save_version_73

Hostile = Callable[[Path, Path], object]

TABLE = np.random.default_rng(0).normal(size=(20, 3))
CANARY = 12345.678901 + np.arange(60.0).reshape(20, 3)
"""Values of a file outside, which no store may hold."""

Fill = Callable[[Any, Path], object]
"""Write into an open file; the second argument is the path of the canary."""


def write_canary(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=CANARY)
        as_class(file.create_dataset("turned", data=CANARY.T), "double")


def overwrite(path: Path, place: int, content: bytes) -> None:
    changed = bytearray(path.read_bytes())
    changed[place : place + len(content)] = content
    path.write_bytes(changed)


def truncate(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])


def version_73(fill: Fill) -> Hostile:
    """A MATLAB file with one view and what `fill` adds."""

    def write(path: Path, canary: Path) -> None:
        save_version_73(path, colour=TABLE)
        with h5py.File(path, "r+") as file:
            fill(file, canary)

    return write


def netcdf(make: Callable[[Any, Path], Any], more: Fill = lambda *_: None) -> Hostile:
    """A NetCDF file with one array of two dimensions, and what `more` adds."""

    def write(path: Path, canary: Path) -> None:
        with h5py.File(path, "w") as file:
            node = make(file, canary)
            for index, name in enumerate(("sample", "feature")):
                chunks = (1000,) if node.shape[index] > 1000 else None
                axis = file.create_dataset(name, node.shape[index : index + 1], "i4", chunks=chunks)
                axis.make_scale(name)
                node.dims[index].attach_scale(axis)
        with h5py.File(path, "r+") as file:
            more(file, canary)

    return write


def as_class(node: Any, name: str) -> Any:
    """Give a dataset a class of MATLAB."""
    node.attrs["MATLAB_class"] = np.bytes_(name)
    return node


# -- other files --------------------------------------------------------------------------------


def external(file: Any, canary: Path, name: str = "stolen") -> Any:
    size = canary.stat().st_size
    shape = (20, size // 20)
    node = file.create_dataset(name, shape=shape, dtype="u1", external=[(str(canary), 0, size)])
    return as_class(node, "uint8")


def virtual(file: Any, canary: Path) -> Any:
    layout = h5py.VirtualLayout(shape=(3, 20), dtype="f8")
    layout[:] = h5py.VirtualSource(str(canary), "turned", shape=(3, 20))
    return as_class(file.create_virtual_dataset("stolen", layout), "double")


def through_a_door(file: Any, canary: Path) -> None:
    file.create_group("#refs#2")["door"] = h5py.ExternalLink(str(canary), "/")
    file["stolen"] = h5py.SoftLink("/#refs#2/door/turned")


def external_cell(file: Any, canary: Path) -> None:
    """A cell that no link leads to: only its reference does."""
    hidden = external(file, canary, "hidden")
    node = file.create_dataset("X", data=np.array([[hidden.ref]], dtype=h5py.ref_dtype))
    as_class(node, "cell")
    del file["hidden"]


def sparse(file: Any, n_rows: int, columns: list[int], rows: list[int], values: Any) -> None:
    group = file.create_group("words")
    group.attrs["MATLAB_sparse"] = np.uint64(n_rows)
    group["jc"] = np.array(columns, dtype=np.uint64)
    group["ir"] = np.array(rows, dtype=np.uint64)
    group["data"] = values


def table(file: Any, _: Path) -> Any:
    return file.create_dataset("colour", data=TABLE)


def attribute(dataset: str, name: str, value: Any) -> Hostile:
    """Another value of an attribute that HDF5 reads into a buffer of its own kind."""
    return netcdf(table, lambda file, _: file[dataset].attrs.__setitem__(name, value))


# -- sizes --------------------------------------------------------------------------------------


def empty(
    name: str, matlab_class: str, shape: tuple[int, int], chunks: tuple[int, int] | None, dtype: Any
) -> Hostile:
    """A dataset that is declared and not written."""
    return version_73(
        lambda file, _: as_class(
            file.create_dataset(name, shape=shape, chunks=chunks, dtype=dtype), matlab_class
        )
    )


def circle(file: Any, _: Path) -> None:
    group = file.create_group("a")
    group["itself"] = group
    group["root"] = file["/"]


def damaged_chunk(path: Path, canary: Path) -> None:
    place = []

    def fill(file: Any, _: Path) -> None:
        node = file.create_dataset("zipped", data=TABLE.T, chunks=(3, 20), compression="gzip")
        place.append(as_class(node, "double").id.get_chunk_info(0).byte_offset)

    version_73(fill)(path, canary)
    overwrite(path, place[0] + 8, b"\xff" * 16)


def truncated_73(path: Path, canary: Path) -> None:
    version_73(lambda *_: None)(path, canary)
    truncate(path, 0.6)


def truncated_nc(path: Path, _: Path) -> None:
    xr.Dataset({"a": (("sample", "f"), TABLE)}).to_netcdf(path, engine="h5netcdf")
    truncate(path, 0.5)


def classic_huge(path: Path, _: Path) -> None:
    xr.Dataset({"a": (("sample", "f"), TABLE)}).to_netcdf(path, engine="scipy")
    overwrite(path, path.read_bytes().index(struct.pack(">i", 20)), struct.pack(">i", 2**30))


HDF5: dict[str, Hostile] = {
    "external_storage.mat": version_73(external),
    "external_link.mat": version_73(
        lambda file, canary: file.__setitem__("stolen", h5py.ExternalLink(str(canary), "turned"))
    ),
    "soft_link_through_external_link.mat": version_73(through_a_door),
    "virtual.mat": version_73(virtual),
    "external_cell.mat": version_73(external_cell),
    "external_sparse.mat": version_73(
        lambda file, canary: sparse(
            file, 20, [0, 20], list(range(20)), h5py.ExternalLink(str(canary), "x")
        )
    ),
    "external_storage.nc": netcdf(external),
    "numbers_for_scales.nc": attribute("colour", "DIMENSION_LIST", np.ones((2, 2, 2))),
    "number_for_a_scale.nc": attribute("colour", "DIMENSION_LIST", 3),
    "numbers_for_users_of_a_scale.nc": attribute("sample", "REFERENCE_LIST", np.arange(40.0)),
    "huge_shape.mat": empty("big", "double", (3, 10**13), (3, 1000), "f8"),
    "huge_chunk.mat": empty("big", "double", (40_000, 30_000), (20_000, 25_000), "f8"),
    "many_chunks.mat": empty("big", "double", (10_000, 10_000), (1, 1), "f8"),
    "huge_contiguous.mat": empty("big", "double", (3, 10**12), None, "f8"),
    "huge_cells.mat": empty("X", "cell", (1, 10**11), (1, 1000), h5py.ref_dtype),
    "null_reference.mat": empty("X", "cell", (1, 3), None, h5py.ref_dtype),
    "huge_rows_of_sparse.mat": version_73(
        lambda file, _: sparse(file, 2**63, [0, 1], [2**62], np.ones(1))
    ),
    "circle_of_groups.mat": version_73(circle),
    "dangling_link.mat": version_73(
        lambda file, _: file.__setitem__("gone", h5py.SoftLink("/nowhere"))
    ),
    "damaged_chunk.mat": damaged_chunk,
    "truncated.mat": truncated_73,
    "huge_shape.nc": netcdf(
        lambda file, _: file.create_dataset("big", (10**12, 3), "f8", chunks=(1000, 3))
    ),
    "truncated.nc": truncated_nc,
    "classic_huge.nc": classic_huge,
}
