"""NetCDF files and Zarr stores, through xarray; our own stores through `open_store`."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from mscam_dask.data.readers.base import (
    Selection,
    Source,
    SourceContents,
    oriented,
    unreadable,
    view_type_named,
)
from mscam_dask.data.store.read import is_store, open_store
from mscam_dask.data.views.conversion import dataset_views, rows_of, sample_dimension
from mscam_dask.errors import DataError

__all__ = ["read_netcdf", "read_store", "read_zarr"]

_ERRORS = (ValueError, KeyError, TypeError, RuntimeError, AttributeError)
_METADATA = (".zarray", "zarr.json", ".zmetadata")


def read_netcdf(source: Source, selection: Selection, stack: ExitStack) -> SourceContents:
    """Read the two-dimensional variables of a NetCDF file, by blocks, later."""
    import xarray as xr

    with unreadable(
        source, "a NetCDF file (pip install 'mscam-dask[netcdf]' if no engine is found)", *_ERRORS
    ):
        dataset = stack.enter_context(xr.open_dataset(source.file, chunks={}))
        return _from_dataset(dataset, source, selection)


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
    _refuse_pickles(source.file)
    with unreadable(source, "a Zarr store", *_ERRORS):
        node = zarr.open(source.file, mode="r")
        if isinstance(node, zarr.Array):
            values = da.from_zarr(node)
            return SourceContents(
                where=str(source.path),
                views=(rows_of(oriented(values, source), name=source.view_name),),
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
            f"samples_in='columns' (--samples-in columns) for {source.path}, whose dimensions have "
            f"names: {dimension!r} are the samples, on the rows of {', '.join(on_rows)}. Leave the "
            "option out; if the samples are the other dimension, rename that one to 'sample'."
        )


def _refuse_pickles(root: Path) -> None:
    """Refuse stores with pickled objects before anything is decoded: unpickling runs code."""
    for file in root.rglob("*"):
        if file.is_symlink():
            raise DataError(
                f"{file} is a symbolic link; a store is read as one directory, without what lies "
                "elsewhere. Copy it with its links resolved (cp -rL)."
            )
        if file.name not in _METADATA or not file.is_file():
            continue
        try:
            codecs = json.dumps(_codec_names(json.loads(file.read_bytes())))
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{file} is no usable Zarr metadata ({error}). Restore it from a copy."
            ) from error
        if "pickle" in codecs.lower():
            raise DataError(
                f"{file} declares pickled Python objects; they are refused, since reading them runs "
                "code of whoever wrote the store. Write it again with numeric arrays only."
            )


def _codec_names(metadata: Any) -> list[str]:
    """Every "id" and "name" of a codec or filter, at any depth, attributes aside."""
    if isinstance(metadata, list):
        return [name for item in metadata for name in _codec_names(item)]
    if not isinstance(metadata, dict):
        return []
    names = [str(metadata[field]) for field in ("id", "name") if field in metadata]
    nested = [value for key, value in metadata.items() if key != "attributes"]
    return names + _codec_names(nested)
