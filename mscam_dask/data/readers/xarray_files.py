"""NetCDF files and Zarr stores, through xarray; stores of this package through `open_store`."""

from __future__ import annotations

import json
import math
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mscam_dask.data.readers.base import (
    Selection,
    Source,
    SourceContents,
    check_lazy_size,
    check_size,
    oriented,
    unreadable,
    view_type_named,
)
from mscam_dask.data.readers.hdf5 import check_hdf5
from mscam_dask.data.store.read import is_store, open_store
from mscam_dask.data.views.conversion import dataset_views, rows_of, sample_dimension
from mscam_dask.errors import DataError

__all__ = ["read_netcdf", "read_store", "read_zarr"]

_METADATA = (".zarray", ".zgroup", ".zattrs", "zarr.json", ".zmetadata")
_SHAPES = ("shape", "chunks", "chunk_shape")
_MAX_METADATA_BYTES = 64 * 2**20
_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"


def read_netcdf(source: Source, selection: Selection, stack: ExitStack) -> SourceContents:
    """Read the two-dimensional variables of a NetCDF file, by blocks, later."""
    import xarray as xr

    with unreadable(source, "a NetCDF file"):
        engine = _checked_engine(source)
        dataset = stack.enter_context(xr.open_dataset(source.file, engine=engine, chunks={}))
        if engine == "scipy":
            _check_classic(dataset, source)
        return _from_dataset(dataset, source, selection)


def _checked_engine(source: Source) -> Literal["h5netcdf", "scipy"]:
    """Name of xarray's engine for a file, which is checked where it is HDF5 (NetCDF-4)."""
    with source.file.open("rb") as stream:
        is_classic = stream.read(3) == b"CDF"
    if is_classic:
        return "scipy"
    try:
        import h5netcdf  # noqa: F401 - xarray imports it by name
        import h5py
    except ImportError as error:
        raise DataError(
            f"{source.path} is a NetCDF-4 (HDF5) file, which needs h5netcdf. Install it (pip install "
            "'mscam-dask[netcdf]'), or save the file as NetCDF-3."
        ) from error
    with h5py.File(source.file, "r") as file:
        check_hdf5(file, source)
    return "h5netcdf"


def _check_classic(dataset: Any, source: Source) -> None:
    """Refuse a NetCDF-3 file, which is never compressed, that declares more than it holds."""
    size = source.file.stat().st_size
    for name, variable in dataset.variables.items():
        stored = np.dtype(variable.encoding.get("dtype", variable.dtype)).itemsize * variable.size
        if stored > size:
            raise DataError(
                f"{source.path}: {name!r} declares shape {variable.shape}, {stored} bytes, and the file "
                f"has {size}. Restore it from a copy."
            )


def read_store(source: Source, selection: Selection) -> SourceContents:
    """Read a store of this package, from a directory or a URL."""
    if source.samples_in == "columns":
        raise DataError(
            f"samples_in='columns' (--samples-in columns) for {source.path}, a store of this "
            "package, which has samples on rows. Leave the option out."
        )
    data = open_store(source.path)
    views = tuple(view for view in data.views if selection.wants(view.name))
    return SourceContents(
        where=str(source.path),
        views=views,
        labels=data.labels,
        label_names=data.label_names,
        sample_ids=data.sample_ids,
        labels_explicit=selection.labels == "labels" and data.labels is not None,
        skipped=tuple(name for name in data.view_names if not selection.wants(name)),
    )


def read_zarr(source: Source, selection: Selection, stack: ExitStack) -> SourceContents:
    """Read a store of this package, an xarray store, or a single (n, d) Zarr array."""
    import dask.array as da
    import xarray as xr
    import zarr

    if is_store(source.file):
        return read_store(source, selection)
    _check_files(source.file)
    with unreadable(source, "a Zarr store"):
        node = zarr.open(source.file, mode="r")
        _check_arrays(node, source)
        if isinstance(node, zarr.Array):
            values = da.from_zarr(node)
            return SourceContents(
                where=str(source.path),
                views=(
                    rows_of(oriented(values, source), name=source.view_name, file=str(source.path)),
                ),
            )
        dataset = stack.enter_context(xr.open_zarr(source.file, chunks={}, consolidated=False))
        return _from_dataset(dataset, source, selection)


def _from_dataset(dataset: Any, source: Source, selection: Selection) -> SourceContents:
    are_chosen = selection.labels is not None and selection.labels in dataset.data_vars
    label_name = (selection.labels or "labels") if are_chosen else "labels"
    notes: tuple[str, ...] = ()
    by_convention = dataset.data_vars.get("labels")
    if by_convention is not None and label_name != "labels" and by_convention.ndim == 1:
        # which gives way to what was asked for by name
        dataset = dataset.drop_vars("labels")
        notes = (f"{source.path}: left out 'labels': {label_name!r} are the labels.",)
    skipped = [
        str(name)
        for name in dataset.data_vars
        if name != label_name and not selection.wants(str(name))
    ]
    kept = dataset.drop_vars(skipped)
    if skipped and set(kept.data_vars) <= {label_name}:
        labels = kept.get(label_name)
        return SourceContents(
            where=str(source.path),
            views=(),
            labels=None if labels is None else np.asarray(labels),
            labels_explicit=are_chosen,
            notes=notes,
            skipped=tuple(skipped),
        )
    tables, ids, labels = dataset_views(kept, label_name=label_name)
    _check_samples_on(kept, source)
    views = tuple(
        rows_of(
            table,
            name=name,
            view_type=view_type_named(table.attrs.get("view_type", "features"), name, source),
            file=str(source.path),
        )
        for name, table in tables.items()
    )
    return SourceContents(
        where=str(source.path),
        views=views,
        labels=labels,
        sample_ids=ids,
        labels_explicit=are_chosen,
        notes=notes,
        skipped=tuple(skipped),
    )


def _check_samples_on(dataset: Any, source: Source) -> None:
    """Refuse samples_in="columns" where the names of dimensions say otherwise."""
    if source.samples_in == "rows":
        return
    dimension = sample_dimension(dataset)
    on_rows = [
        f"{name!r} {variable.dims}"
        for name, variable in dataset.data_vars.items()
        if variable.ndim == 2 and variable.dims[0] == dimension
    ]
    if on_rows:
        raise DataError(
            f"samples_in='columns' (--samples-in columns) contradicts {source.path}: its dimension "
            f"{dimension!r} names the samples, and is on the rows of {', '.join(on_rows)}. Remove the "
            "option; if the samples are the other dimension, rename that one to 'sample'."
        )


def _check_files(root: Path) -> None:
    """Refuse stores with links, devices, pickled objects or unusable metadata; decodes nothing."""
    for file in root.rglob("*"):
        if file.is_symlink():
            raise DataError(
                f"{file} is a symbolic link; links are refused in a store. Copy the store with its "
                "links resolved (cp -rL)."
            )
        if file.is_dir():
            continue
        if not file.is_file():
            raise DataError(
                f"{file} is not a regular file; a store has only directories and regular files. Remove it."
            )
        if file.name in _METADATA:
            _check_metadata(file)


def _check_metadata(file: Path) -> None:
    size = file.stat().st_size
    if size > _MAX_METADATA_BYTES:
        raise DataError(
            f"{file} has {size} bytes; allowed are {_MAX_METADATA_BYTES} for Zarr metadata. Restore it "
            "from a copy."
        )
    try:
        metadata = json.loads(file.read_bytes(), object_pairs_hook=_without_repeats)
        _check_shapes(metadata)
        codecs = json.dumps(_codec_names(metadata))
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{file} is not valid Zarr metadata ({error}). Restore it from a copy."
        ) from error
    if "pickle" in codecs.lower():
        raise DataError(
            f"{file} declares pickled Python objects; they are refused, because reading them can run "
            "code of the person who wrote the store. Write it again with numeric arrays only."
        )


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its members; each has a name of its own."""
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"an object has several members called {repeated[:3]}")
    return members


def _check_shapes(metadata: Any) -> None:
    """Refuse shapes that are not of whole numbers, outside attributes; a chunk has at least one row."""
    if isinstance(metadata, list):
        for item in metadata:
            _check_shapes(item)
    if not isinstance(metadata, dict):
        return
    for key, value in metadata.items():
        if key in _SHAPES and isinstance(value, list):
            lowest = 0 if key == "shape" else 1
            if any(type(size) is not int or size < lowest for size in value):
                raise ValueError(f"{key} {value[:8]} is not of whole numbers from {lowest}")
        elif key != "attributes":
            _check_shapes(value)


def _check_arrays(node: Any, source: Source) -> None:
    """Check the declared sizes of the arrays of a Zarr group, or of one array."""
    import zarr

    is_array = isinstance(node, zarr.Array)
    arrays = (
        [("", node)]
        if is_array
        else [item for item in node.members(max_depth=None) if isinstance(item[1], zarr.Array)]
    )
    for path, array in arrays:
        files = [file for file in (source.file / path).rglob("*") if file.is_file()]
        chunks = array.shards or array.chunks
        check_lazy_size(
            source,
            repr(path or source.view_name),
            shape=array.shape,
            item_bytes=array.dtype.itemsize,
            chunks=array.chunks,
            stored_bytes=sum(file.stat().st_size for file in files),
        )
        n_bytes = math.prod(chunks) * array.dtype.itemsize
        check_size(source, f"a shard {chunks} of {path or source.view_name!r}", n_bytes)


def _codec_names(metadata: Any) -> list[str]:
    """Every "id" and "name" of a codec or filter, at any depth, attributes aside."""
    if isinstance(metadata, list):
        return [name for item in metadata for name in _codec_names(item)]
    if not isinstance(metadata, dict):
        return []
    names = [str(metadata[field]) for field in ("id", "name") if field in metadata]
    nested = [value for key, value in metadata.items() if key != "attributes"]
    return names + _codec_names(nested)
