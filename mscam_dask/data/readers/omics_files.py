"""Files of AnnData (.h5ad) and MuData (.h5mu), which anndata reads; dense arrays are read with h5py, by blocks."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from mscam_dask.data.readers.base import (
    Selection,
    Source,
    SourceContents,
    check_row_size,
    check_samples_on_rows,
    check_size,
    unreadable,
)
from mscam_dask.data.readers.fields import tell_rows_apart
from mscam_dask.data.readers.hdf5 import by_blocks, open_hdf5
from mscam_dask.data.sparse import checked_sparse, is_sparse
from mscam_dask.data.views.as_multi_view import arrays_of, main_arrays
from mscam_dask.data.views.conversion import as_text, label_rank
from mscam_dask.errors import DataError


def read_omics(source: Source, selection: Selection, stack: ExitStack) -> SourceContents:
    """Read X (of each modality), or selected arrays: dense ones by blocks, later, and sparse ones now."""
    check_samples_on_rows(source, "rows (obs)")
    with unreadable(source, f"an HDF5 file ({source.suffix})", unpacks=True):
        file = open_hdf5(source, stack, extra="omics", needs=("h5py", "anndata"))
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
        usual = asked or [name for name in data.obs if label_rank(name)]
        known = {name: data.obs[name].to_numpy() for name in usual if name in data.obs}
        may_be = [name for name in known if asked or not tell_rows_apart(known[name].tolist())]
        label = next(iter(may_be), None)
        labels = None if label is None else known[label]
    skipped = tuple(name for name in arrays if name not in wanted)
    notes = [] if label is None else [f"{source.path}: column {label!r} of obs taken as labels."]
    if skipped and selection.views is None:
        notes.append(f"{source.path}: left out {', '.join(skipped)} (--view NAME takes one).")
    if wanted and "mod" not in file and "feature_types" in data.var:  # of 10x Genomics
        kinds = sorted({*map(str, data.var["feature_types"])})
        split = "write each to a file of its own (adata[:, adata.var.feature_types == KIND])"
        notes += [f"{source.path}: features of {kinds} are one view; {split}."] if kinds[1:] else []
    return SourceContents(
        where=str(source.path),
        views=views,
        labels=labels,
        sample_ids=tuple(map(as_text, data.obs_names)),
        labels_explicit=label is not None and selection.labels is not None,
        notes=tuple(notes),
        skipped=skipped,
    )


class _Omics:
    """Group of a file with the attributes of an AnnData, or of a MuData if it has modalities; arrays are read at their first use."""

    def __init__(self, group: Any, source: Source) -> None:
        self.file, self._group = str(source.path), _Arrays(group, source)
        self.obs = _in_memory(group["obs"], source)
        self.obs_names = self.obs.index
        self.obsm = _Arrays(group.get("obsm", {}), source)
        if "mod" in group:
            self.axis = int(group.attrs.get("axis", 0))
            order = group["mod"].attrs.get("mod-order", list(group["mod"]))
            self.mod = {name: _Omics(group["mod"][name], source) for name in map(as_text, order)}
            return
        self.has_x = "X" in group
        self.var = _in_memory(group["var"], source)
        self.var_names = self.var.index
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
        if hasattr(node, "dtype") and node.ndim:
            return by_blocks(node)
        value = _in_memory(node, source)
        if not is_sparse(value):
            return value
        return check_row_size(checked_sparse(value, f"{source.path}: {node.name!r}"), source)


def _in_memory(node: Any, source: Source) -> Any:
    """Dataset or group as anndata reads it; refused if its datasets exceed the source's limit."""
    from anndata.io import read_elem

    parts = [node]
    if not hasattr(node, "dtype"):
        node.visititems(lambda _, part: parts.append(part))
    n_bytes = sum(part.nbytes for part in parts if hasattr(part, "dtype"))
    check_size(source, repr(node.name), n_bytes)
    with warnings.catch_warnings(action="ignore"):  # of files that older versions wrote
        return read_elem(node)
