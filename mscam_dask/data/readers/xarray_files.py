"""NetCDF files and Zarr stores, through xarray; stores of this package through `open_store`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from mscam_dask.data.readers.base import (
    Selection,
    Source,
    SourceContents,
    check_lazy_size,
    check_samples_on_rows,
    unreadable,
)
from mscam_dask.data.readers.hdf5 import open_hdf5
from mscam_dask.data.readers.named_arrays import contents_of, one_table
from mscam_dask.data.store.dataset import is_store, open_store
from mscam_dask.data.store.filesystem import check_tree
from mscam_dask.data.views.conversion import as_text, sample_dimension, sample_ids_of
from mscam_dask.errors import DataError

_CODECS = ("codecs", "compressor", "filters")


def read_netcdf(source: Source, selection: Selection, stack: ExitStack) -> SourceContents:
    """Read the two-dimensional variables of a NetCDF file, by blocks, later; of NetCDF-4 it is checked as HDF5."""
    import xarray as xr

    with unreadable(source, "a NetCDF file", unpacks=True):
        with source.file.open("rb") as stream:
            is_classic = stream.read(3) == b"CDF"
        groups: list[str] = []
        if not is_classic:
            needs, instead = ("h5py", "h5netcdf"), "save the file as NetCDF-3"
            with ExitStack() as closing:
                file = open_hdf5(source, closing, extra="netcdf", needs=needs, instead=instead)
                groups = [name for name in file if not hasattr(file[name], "dtype")]
        engine: Any = "scipy" if is_classic else "h5netcdf"
        dataset = stack.enter_context(xr.open_dataset(source.file, engine=engine, chunks={}))
        return _from_dataset(dataset, source, selection, groups)


def read_store(source: Source, selection: Selection) -> SourceContents:
    """Read a store of this package, from a directory or a URL."""
    check_samples_on_rows(source, "rows, as all stores of this package")
    return SourceContents.of_data(open_store(source.path), str(source.path), selection)


def read_zarr(source: Source, selection: Selection, stack: ExitStack) -> SourceContents:
    """Read a store of this package, an xarray store, or a single (n, d) Zarr array."""
    import dask.array as da
    import xarray as xr
    import zarr

    if is_store(source.file):
        return read_store(source, selection)
    check_tree(source.file)
    with unreadable(source, "a Zarr store", unpacks=True):
        node = zarr.open(source.file, mode="r")
        if (form := node.attrs.get("encoding-type")) in ("anndata", "MuData"):
            raise DataError(
                f"{source.path} is a store of {form}, of which the names of samples are not read. Write it as HDF5: "
                "anndata.read_zarr(FILE).write_h5ad('a.h5ad'), or mudata.read_zarr(FILE).write_h5mu('a.h5mu')."
            )
        _check_arrays(node, source)
        if isinstance(node, zarr.Array):
            return one_table(da.from_zarr(node), source)
        groups = sorted(node.group_keys())
        try:
            dataset = stack.enter_context(xr.open_zarr(source.file, chunks={}, consolidated=False))
        except KeyError:  # without names of dimensions, as zarr itself writes arrays
            arrays = {name: da.from_zarr(array) for name, array in sorted(node.arrays())}
            return contents_of(arrays | dict.fromkeys(groups, "group"), source, selection)
        dataset = dataset[sorted(dataset)]  # of any order
        return _from_dataset(dataset, source, selection, groups)


def _from_dataset(
    dataset: Any, source: Source, selection: Selection, groups: Sequence[str]
) -> SourceContents:
    """Contents of the variables of a dataset; `groups` beside them are named as left out."""
    kept = [
        name for name, v in dataset.data_vars.items() if v.ndim < 2 or selection.wants(str(name))
    ]
    skipped = [str(name) for name in dataset.data_vars if name not in kept]
    dataset = dataset[kept]
    tables = [variable for variable in dataset.data_vars.values() if variable.ndim == 2]
    dimension = sample_dimension(dataset) if tables else ""
    of_samples = [name for name, one in dataset.coords.items() if one.dims == (dimension,)]
    dataset = dataset.reset_coords([name for name in of_samples if name != dimension])  # labels
    if any(table.dims[0] == dimension for table in tables):
        check_samples_on_rows(source, f"rows, by the name of their dimension, {dimension!r}")
    variables = {
        str(name): _variable(variable, dimension) for name, variable in dataset.data_vars.items()
    }
    return contents_of(
        variables | dict.fromkeys(groups, "group"),
        replace(source, samples_in="rows"),
        selection,
        sample_ids=sample_ids_of(tables[0].transpose(dimension, ...)) if tables else None,
        skipped=skipped,
        view_types={
            str(table.name): table.attrs["view_type"]
            for table in tables
            if "view_type" in table.attrs
        },
    )


def _variable(variable: Any, dimension: str) -> Any:
    """A table with samples on rows, or the values of another variable."""
    if variable.ndim == 2:
        return variable.transpose(dimension, ...)
    if variable.ndim > 2:
        return variable.data
    values = np.asarray(variable)
    # xarray writes a missing text as an empty one
    are_texts = values.dtype.kind in "OT" and all(
        isinstance(v, str | bytes) and v for v in values.flat
    )
    return np.array([as_text(v) for v in values.flat]) if are_texts else values


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
        files = (file for file in (source.file / path).rglob("*") if file.is_file())
        stored = sum(file.stat().st_size for file in files)
        chunks = array.shards or array.chunks
        check_lazy_size(source, name, array, chunks=chunks, stored_bytes=stored)
