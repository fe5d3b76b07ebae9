"""NetCDF files and Zarr stores, through xarray; stores of this package through `open_store`."""

from __future__ import annotations

import math
from contextlib import ExitStack
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
from mscam_dask.data.readers.hdf5 import open_hdf5
from mscam_dask.data.store.filesystem import check_tree
from mscam_dask.data.store.read import is_store, open_store
from mscam_dask.data.views.conversion import dataset_views, rows_of, sample_dimension
from mscam_dask.data.views.sources import RowSource
from mscam_dask.errors import DataError

_CODECS = ("codecs", "compressor", "filters")


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
        if stream.read(3) == b"CDF":
            return "scipy"
    with ExitStack() as closing:
        needs, instead = ("h5py", "h5netcdf"), "save the file as NetCDF-3"
        open_hdf5(source, closing, extra="netcdf", needs=needs, instead=instead)
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
    check_tree(source.file)
    with unreadable(source, "a Zarr store"):
        node = zarr.open(source.file, mode="r")
        _check_arrays(node, source)
        if isinstance(node, zarr.Array):
            table, file = oriented(da.from_zarr(node), source), str(source.path)
            return SourceContents(
                where=file, views=(rows_of(table, name=source.view_name, file=file),)
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
    views: tuple[RowSource, ...] = ()
    ids, labels = None, kept.get(label_name)
    if not skipped or set(kept.data_vars) - {label_name}:
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
        labels=None if labels is None else np.asarray(labels),
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


def _check_arrays(node: Any, source: Source) -> None:
    """Refuse arrays of a Zarr group, or one array, that are pickled or declare sizes that are too large."""
    import zarr

    nodes = {"": node} if isinstance(node, zarr.Array) else dict(node.members(max_depth=None))
    for path, array in nodes.items():
        if not isinstance(array, zarr.Array):
            continue
        name = repr(path or source.view_name)
        codecs = {key: array.metadata.to_dict().get(key) for key in _CODECS}
        if "pickle" in str(codecs).lower():
            raise DataError(
                f"{source.path}: {name} has pickled Python objects; they are refused, because reading them "
                "can run code of the person who wrote the store. Write it again with numeric arrays only."
            )
        chunks, item_bytes = array.shards or array.chunks, array.dtype.itemsize
        check_size(source, f"a chunk {chunks} of {name}", math.prod(chunks) * item_bytes)
        check_lazy_size(
            source,
            name,
            shape=array.shape,
            item_bytes=item_bytes,
            chunks=array.chunks,
            stored_bytes=sum(
                file.stat().st_size for file in (source.file / path).rglob("*") if file.is_file()
            ),
        )
