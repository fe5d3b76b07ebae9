"""Zarr arrays and groups of them; stores of this package through `open_store`."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from mscam_dask.data.readers.base import (
    Selection,
    Source,
    SourceContents,
    check_lazy_size,
    check_samples_on_rows,
    of_library,
    unreadable,
)
from mscam_dask.data.readers.named_arrays import contents_of, one_table
from mscam_dask.data.store.dataset import is_store, open_store
from mscam_dask.data.store.filesystem import check_tree
from mscam_dask.errors import DataError

_CODECS = ("codecs", "compressor", "filters")


def read_store(source: Source, selection: Selection) -> SourceContents:
    """Read a store of this package, from a directory or a URL."""
    check_samples_on_rows(source, "rows, as all stores of this package")
    return SourceContents.of_data(open_store(source.path), str(source.path), selection)


def read_zarr(source: Source, selection: Selection, stack: ExitStack) -> SourceContents:  # noqa: ARG001 - a reader's signature
    """Read a store of this package, a single (n, d) Zarr array, or the arrays of a group, by blocks, later."""
    import dask.array as da
    import zarr

    if is_store(source.file):
        return read_store(source, selection)
    check_tree(source.file)
    with unreadable(source, "a Zarr store", unpacks=True):
        node = zarr.open(source.file, mode="r")
        if isinstance(node, zarr.Array):
            _check_array(source.view_name, node, source)
            return one_table(da.from_zarr(node), source)
        arrays = dict(sorted(node.arrays()))
        if "encoding-type" in node.attrs:
            raise of_library(source, "anndata or mudata")
        if any(map(_has_names_of_dimensions, arrays.values())):
            raise of_library(source, "xarray")
        for name, array in arrays.items():
            _check_array(name, array, source)
        found = {name: da.from_zarr(array) for name, array in arrays.items()}
        return contents_of(found, source, selection)


def _has_names_of_dimensions(array: Any) -> bool:
    """Return whether an array says how its dimensions are called, as those of xarray do."""
    names = getattr(array.metadata, "dimension_names", None)
    return "_ARRAY_DIMENSIONS" in array.attrs or any(names or ())


def _check_array(name: str, array: Any, source: Source) -> None:
    """Refuse an array that is pickled or declares sizes that are too large."""
    codecs = {key: array.metadata.to_dict().get(key) for key in _CODECS}
    if "pickle" in str(codecs).lower():
        raise DataError(
            f"{source.path}: {name!r} has pickled Python objects; they are refused, because reading them "
            "can run code of the person who wrote the store. Write it again with numeric arrays only."
        )
    folder = source.file / array.path
    check_lazy_size(
        source,
        repr(name),
        shape=array.shape,
        item_bytes=array.dtype.itemsize,
        chunks=array.shards or array.chunks,
        stored_bytes=sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
    )
