"""Files of AnnData (.h5ad) and MuData (.h5mu), as anndata 0.7 and later write them, through h5py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.base import (
    Selection,
    Source,
    SourceContents,
    check_row_size,
    check_samples_on_rows,
    unreadable,
)
from mscam_dask.data.readers.fields import tell_rows_apart
from mscam_dask.data.readers.hdf5 import by_blocks, in_memory, open_hdf5
from mscam_dask.data.sparse import sparse_from_parts
from mscam_dask.data.views.as_multi_view import arrays_of, main_arrays
from mscam_dask.data.views.conversion import as_text, label_rank
from mscam_dask.errors import DataError


def read_omics(source: Source, selection: Selection, stack: ExitStack) -> SourceContents:
    """Read X (of each modality), or selected arrays: dense ones by blocks, later, and sparse ones now."""
    check_samples_on_rows(source, "rows (obs)")
    with unreadable(source, f"an HDF5 file ({source.suffix})", unpacks=True):
        file = open_hdf5(source, stack, extra="omics")
        data = _Omics(file, source)
        arrays = arrays_of(data, main=source.view_name)
        main = main_arrays(data, main=source.view_name) if selection.views is None else arrays
        wanted = [name for name in arrays if name in main and selection.wants(name)]
        if not wanted and selection.views is None:
            raise DataError(
                f"{source.path} has no X; it has {list(arrays)}. Name the views: views=[...] (--view "
                "NAME for each)."
            )
        views = tuple(arrays[name](name) for name in wanted)
        asked = [] if selection.labels is None else [selection.labels]
        usual = asked or [name for name in file["obs"] if label_rank(name)]
        known = {name: _column(file["obs"][name], source) for name in usual if name in file["obs"]}
        may_be = [name for name in known if asked or not tell_rows_apart(known[name].tolist())]
        label = next(iter(may_be), None)
        labels = None if label is None else known[label]
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


class _Omics:
    """Group of a file with the attributes of an AnnData, or of a MuData if it has modalities; values are read at their first use."""

    def __init__(self, group: Any, source: Source) -> None:
        self.file, self._group = str(source.path), _Arrays(group, source)
        self.obs_names = _index(group["obs"], source)
        self.obsm = _Arrays(group.get("obsm", {}), source)
        if "mod" in group:
            self.axis = int(group.attrs.get("axis", 0))
            order = group["mod"].attrs.get("mod-order", list(group["mod"]))
            self.mod = {name: _Omics(group["mod"][name], source) for name in map(as_text, order)}
            return
        self.has_x = "X" in group
        self.var_names = _index(group["var"], source)
        self.layers = _Arrays(group.get("layers", {}), source)

    @property
    def X(self) -> Any:  # noqa: N802 - as AnnData calls it
        return self._group["X"]


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
