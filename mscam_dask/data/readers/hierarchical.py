"""Hierarchical files: HDF5, checked before anything of it is read, AnnData and MuData, NetCDF, and Zarr stores."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.base import (
    Selection,
    Source,
    SourceContents,
    check_lazy_size,
    check_row_size,
    check_samples_on_rows,
    check_size,
    needing,
    unreadable,
)
from mscam_dask.data.readers.named_arrays import contents_of, one_table
from mscam_dask.data.sparse import sparse_from_parts
from mscam_dask.data.store.dataset import is_store, open_store
from mscam_dask.data.store.filesystem import check_tree
from mscam_dask.data.views.as_multi_view import arrays_of, main_arrays
from mscam_dask.data.views.conversion import as_text, label_rank, sample_dimension, sample_ids_of
from mscam_dask.data.views.sources import BLOCK_BYTES
from mscam_dask.errors import DataError


def open_hdf5(
    source: Source,
    stack: ExitStack,
    *,
    extra: str,
    needs: Sequence[str] = ("h5py",),
    instead: str = "convert it",
) -> Any:
    """Open a file that `check_hdf5` passes; else say which `extra` installs what it needs, or what to do `instead`."""
    with needing(source, f"'mscam-dask[{extra}]'", instead):
        h5py, *_ = map(import_module, needs)
    file = stack.enter_context(h5py.File(source.file, "r"))
    check_hdf5(file, source)
    return file


def check_hdf5(node: Any, source: Source) -> None:
    """Refuse a group or dataset that reads other files, or whose declared sizes are too large."""
    import h5py

    if isinstance(node, h5py.Dataset):
        _check_dataset(node, source)
    if not isinstance(node, h5py.Group):
        return
    links: list[tuple[str, Any]] = []
    node.visititems_links(lambda name, link: links.append((name, link)))
    for name, link in links:
        if isinstance(link, h5py.HardLink) and isinstance(node[name], h5py.Dataset):
            _check_dataset(node[name], source)
        elif not isinstance(link, h5py.HardLink | h5py.SoftLink):
            raise _elsewhere(source, name, "is a link to another file")


def _check_dataset(dataset: Any, source: Source) -> None:
    import h5py

    name, plan = dataset.name or "a dataset without a name", dataset.id.get_create_plist()
    if plan.get_external_count():
        raise _elsewhere(source, name, f"has its values in {plan.get_external(0)[0].decode()}")
    if plan.get_layout() == h5py.h5d.VIRTUAL:
        raise _elsewhere(source, name, "is virtual, with its values in other datasets or files")
    for attribute in ("DIMENSION_LIST", "REFERENCE_LIST"):
        if attribute in dataset.attrs and not _are_scales(dataset, attribute):
            raise DataError(
                f"{source.path}: attribute {attribute} of {name!r} is no list of dimension scales. "
                "Restore the file from a copy."
            )
    if dataset.shape is None:
        return
    stored = dataset.id.get_storage_size()
    check_lazy_size(
        source,
        repr(name),
        shape=dataset.shape,
        item_bytes=dataset.dtype.itemsize,
        chunks=dataset.chunks,
        stored_bytes=stored,
    )
    if dataset.chunks is None and stored > source.file.stat().st_size:
        raise DataError(
            f"{source.path}: {name!r} declares {math.prod(dataset.shape)} values, more than the file "
            "holds. Restore it from a copy."
        )


def _are_scales(dataset: Any, attribute: str) -> bool:
    """Return whether HDF5 can read an attribute of dimension scales: else it writes past a buffer."""
    import h5py

    found = dataset.attrs.get_id(attribute)
    if attribute == "DIMENSION_LIST":
        item = h5py.check_vlen_dtype(found.dtype)
        is_right = item is not None and found.shape == (dataset.ndim,)
    else:
        fields = found.dtype.fields or {}
        item = fields["dataset"][0] if list(fields) == ["dataset", "dimension"] else None
        is_right = len(found.shape) == 1 and item and fields["dimension"][0].kind in "iu"
    return bool(is_right) and h5py.check_ref_dtype(item) is not None


def _elsewhere(source: Source, name: str, fault: str) -> DataError:
    return DataError(
        f"{source.path}: {name!r} {fault}; what refers to another file is refused. Copy its values "
        "into the file (in Python: new[name] = old[name][()])."
    )


def in_memory(dataset: Any, source: Source) -> Any:
    """All values of a dataset, if they fit into the source's limit."""
    check_size(source, repr(dataset.name), dataset.size * dataset.dtype.itemsize)
    return dataset[()]


def by_blocks(dataset: Any, axis: int = 0) -> Any:
    """A dataset as a Dask array, in whole chunks of the file along the `axis` of the samples."""
    import dask.array as da

    row_bytes = dataset.dtype.itemsize * dataset.size // max(1, dataset.shape[axis])
    rows = max(1, min(dataset.shape[axis], BLOCK_BYTES // max(1, row_bytes)))
    in_chunk = dataset.chunks[axis] if dataset.chunks else 1
    shape = list(dataset.shape)
    shape[axis] = max(in_chunk, rows - rows % in_chunk)
    return da.from_array(dataset, chunks=tuple(shape), name=False)


# AnnData and MuData -------------------------------------------------------------------------------


def read_omics(source: Source, selection: Selection, stack: ExitStack) -> SourceContents:
    """Read X (of each modality), or selected arrays: dense ones by blocks, later, and sparse ones now."""
    check_samples_on_rows(source, "rows (obs)")
    with unreadable(source, f"an HDF5 file ({source.suffix})", unpacks=True):
        file = open_hdf5(source, stack, extra="omics")
        data = _MuData(file, source) if "mod" in file else _AnnData(file, source)
        arrays = arrays_of(data, main=source.view_name)
        main = main_arrays(data, main=source.view_name) if selection.views is None else arrays
        wanted = [name for name in arrays if name in main and selection.wants(name)]
        if not wanted and selection.views is None:
            raise DataError(
                f"{source.path} has no X; it has {list(arrays)}. Name the views: views=[...] (--view "
                "NAME for each)."
            )
        views = tuple(arrays[name](name) for name in wanted)
        usual = (name for name in file["obs"] if label_rank(name))
        label = selection.labels or next(usual, None)
        label = label if label is not None and label in file["obs"] else None
        labels = None if label is None else _column(file["obs"][label], source)
    skipped = tuple(name for name in arrays if name not in wanted)
    notes = [] if label is None else [f"{source.path}: column {label!r} of obs taken as labels."]
    if skipped and selection.views is None:
        notes.append(f"{source.path}: left out {', '.join(skipped)} (--view NAME takes one).")
    if wanted and "mod" not in file and "feature_types" in file["var"]:  # of 10x Genomics
        kinds = sorted({*map(as_text, _column(file["var"]["feature_types"], source).tolist())})
        split = "write each to a file of its own (adata[:, adata.var.feature_types == KIND])"
        notes += [f"{source.path}: features of {kinds} are one view; {split}."] if kinds[1:] else []
    return SourceContents(
        where=str(source.path),
        views=views,
        labels=labels,
        sample_ids=data.obs_names,
        labels_explicit=label is not None and selection.labels is not None,
        notes=tuple(notes),
        skipped=skipped,
    )


class _AnnData:
    """Group of a file with the attributes of an AnnData; values are read at their first use."""

    def __init__(self, group: Any, source: Source) -> None:
        self.file = str(source.path)
        self.has_x = "X" in group
        self.obs_names = _index(group["obs"], source)
        self.var_names = _index(group["var"], source)
        self.layers = _Arrays(group.get("layers", {}), source)
        self.obsm = _Arrays(group.get("obsm", {}), source)
        self._arrays = _Arrays(group, source)

    @property
    def X(self) -> Any:  # noqa: N802 - as AnnData calls it
        return self._arrays["X"]


class _MuData:
    """File with the attributes of a MuData."""

    def __init__(self, file: Any, source: Source) -> None:
        self.file = str(source.path)
        self.axis = int(file.attrs.get("axis", 0))
        self.obs_names = _index(file["obs"], source)
        self.obsm = _Arrays(file.get("obsm", {}), source)
        order = file["mod"].attrs.get("mod-order", list(file["mod"]))
        self.mod = {name: _AnnData(file["mod"][name], source) for name in map(as_text, order)}


class _Arrays(Mapping[str, Any]):
    """Arrays of a group by name: dense as Dask arrays, sparse and frames in memory."""

    def __init__(self, group: Any, source: Source) -> None:
        self._group, self._source = group, source

    def __iter__(self) -> Iterator[str]:
        return iter(self._group)

    def __len__(self) -> int:
        return len(self._group)

    def __getitem__(self, key: str) -> Any:
        node, source = self._group[key], self._source
        form = as_text(node.attrs.get("encoding-type", ""))
        if form in ("csr_matrix", "csc_matrix"):
            parts = {part: in_memory(node[part], source) for part in ("data", "indices", "indptr")}
            where = f"{source.path}: {node.name!r}"
            matrix = sparse_from_parts(form[:3], parts, node.attrs["shape"], where)
            return check_row_size(matrix, source)
        if form == "dataframe":
            import pandas as pd

            names = map(as_text, node.attrs["column-order"])
            return pd.DataFrame({name: _column(node[name], source) for name in names})
        if not hasattr(node, "dtype"):
            raise _unknown(node, source, "arrays, sparse arrays and data frames")
        return by_blocks(node) if node.ndim else in_memory(node, source)


def _index(frame: Any, source: Source) -> tuple[str, ...]:
    """Names of observations or variables."""
    return tuple(map(as_text, _column(frame[as_text(frame.attrs["_index"])], source).tolist()))


def _column(node: Any, source: Source) -> NDArray[Any]:
    """Column of a data frame; missing values of categories and nullable columns are NaN."""
    import pandas as pd

    if hasattr(node, "dtype"):
        values = np.asarray(in_memory(node, source))
        is_text = values.dtype.kind in "OS"
        return np.array([as_text(item) for item in values.tolist()], object) if is_text else values
    form = as_text(node.attrs.get("encoding-type", ""))
    if form == "categorical":
        codes, categories = (_column(node[part], source) for part in ("codes", "categories"))
        return np.asarray(pd.Categorical.from_codes(codes, categories))
    if form.startswith("nullable-"):
        missing = np.asarray(in_memory(node["mask"], source), dtype=bool)
        return np.asarray(pd.Series(_column(node["values"], source)).mask(missing))
    raise _unknown(node, source, "arrays, categories and nullable columns")


def _unknown(node: Any, source: Source, allowed: str) -> DataError:
    return DataError(
        f"{source.path}: {node.name!r} is {as_text(node.attrs.get('encoding-type', 'a group'))!r}; allowed "
        f"are {allowed}. Write it again with anndata 0.8 or later, or leave it out."
    )


# NetCDF and Zarr, through xarray; stores of this package through `open_store` ---------------------

_CODECS = ("codecs", "compressor", "filters")


def read_netcdf(source: Source, selection: Selection, stack: ExitStack) -> SourceContents:
    """Read the two-dimensional variables of a NetCDF file, by blocks, later; of NetCDF-4 it is checked as HDF5."""
    import xarray as xr

    with unreadable(source, "a NetCDF file", unpacks=True):
        with source.file.open("rb") as stream:
            is_classic = stream.read(3) == b"CDF"
        if not is_classic:
            needs, instead = ("h5py", "h5netcdf"), "save the file as NetCDF-3"
            with ExitStack() as closing:
                open_hdf5(source, closing, extra="netcdf", needs=needs, instead=instead)
        engine: Any = "scipy" if is_classic else "h5netcdf"
        dataset = stack.enter_context(xr.open_dataset(source.file, engine=engine, chunks={}))
        return _from_dataset(dataset, source, selection)


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
        _check_arrays(node, source)
        if isinstance(node, zarr.Array):
            return one_table(da.from_zarr(node), source)
        try:
            dataset = stack.enter_context(xr.open_zarr(source.file, chunks={}, consolidated=False))
        except KeyError:  # without names of dimensions, as zarr itself writes arrays
            arrays = {name: da.from_zarr(array) for name, array in sorted(node.arrays())}
            return contents_of(arrays, source, selection)
        return _from_dataset(dataset[sorted(dataset)], source, selection)  # of any order


def _from_dataset(dataset: Any, source: Source, selection: Selection) -> SourceContents:
    kept = [
        name for name, v in dataset.data_vars.items() if v.ndim < 2 or selection.wants(str(name))
    ]
    skipped = [str(name) for name in dataset.data_vars if name not in kept]
    dataset = dataset[kept]
    tables = [variable for variable in dataset.data_vars.values() if variable.ndim == 2]
    dimension = sample_dimension(dataset) if tables or not skipped else ""
    of_samples = [name for name, one in dataset.coords.items() if one.dims == (dimension,)]
    dataset = dataset.reset_coords([name for name in of_samples if name != dimension])  # labels
    if any(table.dims[0] == dimension for table in tables):
        check_samples_on_rows(source, f"rows, by the name of their dimension, {dimension!r}")
    variables = {
        str(name): _variable(variable, dimension) for name, variable in dataset.data_vars.items()
    }
    return contents_of(
        variables,
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
        check_lazy_size(
            source,
            name,
            shape=array.shape,
            item_bytes=array.dtype.itemsize,
            chunks=array.shards or array.chunks,
            stored_bytes=sum(
                file.stat().st_size for file in (source.file / path).rglob("*") if file.is_file()
            ),
        )
