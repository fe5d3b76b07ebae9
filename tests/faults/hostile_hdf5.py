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
from tests.faults.hostile_registry import TABLE, hostile, overwrite, truncate

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
