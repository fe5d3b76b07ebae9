"""Files of AnnData (.h5ad) and MuData (.h5mu), through h5py.

The packages anndata and mudata are not needed. The format is that of anndata 0.7 and later:
https://anndata.readthedocs.io/en/stable/fileformat-prose.html.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.base import (
    Selection,
    Source,
    SourceContents,
    check_row_size,
    check_size,
    unreadable,
)
from mscam_dask.data.readers.hdf5 import check_hdf5
from mscam_dask.data.readers.text_layout import LABEL_COLUMNS
from mscam_dask.data.sparse import sparse_from_parts
from mscam_dask.data.views.as_multi_view import arrays_of
from mscam_dask.data.views.conversion import as_text
from mscam_dask.data.views.sources import BLOCK_BYTES
from mscam_dask.errors import DataError

__all__ = ["read_omics"]


def read_omics(source: Source, selection: Selection, stack: ExitStack) -> SourceContents:
    """Read arrays of an AnnData or MuData file: dense ones by blocks, later, and sparse ones now.

    Without a selection the views are X, named by the file, or X of each modality. Others are selected
    by name: "FILE/layers/NAME" and "FILE/obsm/NAME", FILE without suffix; in a MuData file
    "MODALITY/layers/NAME", "MODALITY/obsm/NAME" and "obsm/NAME". Rows of samples that a modality lacks are NaN.
    A column of obs with a usual name of labels, or that of the selection, is the ground truth.
    """
    try:
        import h5py
    except ImportError as error:
        raise DataError(
            f"{source.path} is an HDF5 file, which needs h5py. Install it: pip install "
            "'mscam-dask[omics]'."
        ) from error
    if source.samples_in == "columns":
        raise DataError(
            f"samples_in='columns' (--samples-in columns) for {source.path}, which has samples on rows "
            "(obs). Leave the option out."
        )
    with unreadable(source, f"an HDF5 file ({source.suffix})"):
        file = stack.enter_context(h5py.File(source.file, "r"))
        check_hdf5(file, source)
        data = _MuData(file, source) if "mod" in file else _AnnData(file, source)
        arrays = arrays_of(data, main=source.view_name)
        wanted = [
            name
            for name, array in arrays.items()
            if (array.is_main if selection.views is None else selection.wants(name))
        ]
        if not wanted and selection.views is None:
            raise DataError(
                f"{source.path} has no X; it has {list(arrays)}. Name the views: views=[...] (--view "
                "NAME for each)."
            )
        views = tuple(arrays[name].make(name) for name in wanted)
        label = _label_column(file["obs"], selection)
        labels = None if label is None else _column(file["obs"][label], source)
    skipped = tuple(name for name in arrays if name not in wanted)
    notes = [] if label is None else [f"{source.path}: column {label!r} of obs taken as labels."]
    if skipped and selection.views is None:
        notes.append(f"{source.path}: left out {', '.join(skipped)} (--view NAME takes one).")
    return SourceContents(
        where=str(source.path),
        views=views,
        labels=labels,
        sample_ids=data.obs_names,
        labels_explicit=label is not None and selection.labels is not None,
        notes=tuple(notes),
        skipped=skipped,
    )


def _label_column(obs: Any, selection: Selection) -> str | None:
    if selection.labels is not None:
        return selection.labels if selection.labels in obs else None
    return next((name for name in obs if name.lower() in LABEL_COLUMNS), None)


class _AnnData:
    """Group of a file with the attributes of an AnnData; values are read at their first use."""

    def __init__(self, group: Any, source: Source) -> None:
        self.file = str(source.path)
        self.has_x = "X" in group
        self.obs_names = _index(group, "obs", source)
        self.var_names = _index(group, "var", source)
        self.layers = _Arrays(group, "layers", source)
        self.obsm = _Arrays(group, "obsm", source)
        self._main = _Arrays({"X": {"X": group["X"]}} if self.has_x else {}, "X", source)

    @property
    def X(self) -> Any:  # noqa: N802 - as AnnData calls it
        return self._main["X"]


class _MuData:
    """File with the attributes of a MuData."""

    def __init__(self, file: Any, source: Source) -> None:
        self.file = str(source.path)
        self.axis = int(file.attrs.get("axis", 0))
        self.obs_names = _index(file, "obs", source)
        self.obsm = _Arrays(file, "obsm", source)
        modalities = file["mod"]
        order = [as_text(name) for name in modalities.attrs.get("mod-order", list(modalities))]
        self.mod = {name: _AnnData(modalities[name], source) for name in order}


class _Arrays(Mapping[str, Any]):
    """Arrays of a group by name: dense as Dask arrays, sparse and frames in memory."""

    def __init__(self, group: Any, name: str, source: Source) -> None:
        self._held = group.get(name, {})
        self._source = source

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __getitem__(self, key: str) -> Any:
        node, source = self._held[key], self._source
        form = as_text(node.attrs.get("encoding-type", ""))
        if form in ("csr_matrix", "csc_matrix"):
            parts = {part: _in_memory(node[part], source) for part in ("data", "indices", "indptr")}
            values = sparse_from_parts(
                form[:3], parts, node.attrs["shape"], f"{source.path}: {node.name!r}"
            )
            return check_row_size(values, source)
        if form == "dataframe":
            return _frame(node, source)
        if not hasattr(node, "dtype"):
            raise DataError(
                f"{source.path}: {node.name!r} is {form or 'a group'!r}; allowed are dense arrays, sparse arrays "
                "and data frames. Write it again with anndata 0.8 or later, or leave it out."
            )
        return _by_blocks(node)


def _by_blocks(node: Any) -> Any:
    """A dense dataset as a Dask array, of whole chunks of the file."""
    import dask.array as da

    if node.ndim != 2:
        return da.from_array(node, name=False)  # which is refused as a view
    n_rows, n_columns = node.shape
    rows = max(1, min(n_rows, BLOCK_BYTES // max(1, node.dtype.itemsize * n_columns)))
    in_chunk = node.chunks[0] if node.chunks else 1
    rows = max(in_chunk, rows - rows % in_chunk)
    return da.from_array(node, chunks=(rows, n_columns), name=False)


def _frame(node: Any, source: Source) -> Any:
    import pandas as pd

    names = [as_text(name) for name in node.attrs["column-order"]]
    return pd.DataFrame({name: _column(node[name], source) for name in names})


def _index(group: Any, name: str, source: Source) -> tuple[str, ...]:
    """Names of observations or variables."""
    frame = group[name]
    if "_index" not in frame.attrs:
        raise DataError(
            f"{source.path}: {frame.name!r} has no index; it was written by anndata before 0.7, or is "
            "damaged. Read it with anndata and write it again."
        )
    return tuple(map(as_text, _column(frame[as_text(frame.attrs["_index"])], source).tolist()))


def _column(node: Any, source: Source) -> NDArray[Any]:
    """Column of a data frame; missing values of categories and nullable columns are None or NaN."""
    if hasattr(node, "dtype"):
        values = np.asarray(_in_memory(node, source))
        return _decoded(values.tolist()) if values.dtype.kind in "OS" else values
    form = as_text(node.attrs.get("encoding-type", ""))
    if form == "categorical":
        codes = _in_memory(node["codes"], source)
        categories = _column(node["categories"], source)
        if codes.size and (codes.min() < -1 or codes.max() >= len(categories)):
            raise DataError(
                f"{source.path}: {node.name!r} has codes from {codes.min()} to {codes.max()}; allowed are "
                f"-1 to {len(categories) - 1}. Restore the file from a copy."
            )
        named = np.full(len(codes), None, dtype=object)
        named[codes >= 0] = categories[codes[codes >= 0]]
        return named if (codes < 0).any() else named.astype(categories.dtype)
    if form.startswith("nullable-"):
        values = _column(node["values"], source)
        missing = np.asarray(_in_memory(node["mask"], source), dtype=bool)
        if missing.any() and values.dtype.kind in "biuf":
            return np.where(missing, np.nan, values.astype(np.float64))
        if missing.any():
            values = values.astype(object)
            values[missing] = None
        return values
    raise DataError(
        f"{source.path}: {node.name!r} is a column of encoding {form!r}; allowed are arrays, categories "
        "and nullable columns. Write it again with anndata 0.8 or later, or leave it out."
    )


def _decoded(items: Sequence[Any]) -> NDArray[Any]:
    return np.array([as_text(item) for item in items], dtype=object)


def _in_memory(dataset: Any, source: Source) -> Any:
    """All values of a dataset, if they fit into the source's limit."""
    check_size(source, repr(dataset.name), dataset.size * dataset.dtype.itemsize)
    return dataset[()]
