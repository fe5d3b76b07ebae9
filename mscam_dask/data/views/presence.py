"""Some rows of views: samples in another order, and views without the samples whose rows are all NaN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mscam_dask.data.views.sample_ids import places_of
from mscam_dask.data.views.sources import (
    ArrayRows,
    DaskRows,
    RowsOf,
    RowSource,
    row_ranges,
    rows_at,
)
from mscam_dask.linalg.incomplete import PresentSamples
from mscam_dask.types.parameters import ImputeMethod


@dataclass(frozen=True, eq=False)
class LiftedRows(RowsOf):
    """Rows of a view at `places` (m,), NaN for −1, read lazily; of a pairwise view also `columns`, else `places`."""

    source: RowSource
    places: NDArray[np.int64]
    columns: NDArray[np.int64] | None = None

    @property
    def _columns(self) -> NDArray[np.int64] | None:
        """Columns that are taken; None for all, where they are no samples."""
        if self.columns is None and self.source.shape[0] != self.source.shape[1]:
            return None
        if self.view_type == "features":
            return None
        return self.places if self.columns is None else self.columns

    @property
    def shape(self) -> tuple[int, int]:
        columns = self._columns
        return len(self.places), self.source.shape[1] if columns is None else len(columns)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        return self.source.feature_names if self._columns is None else None

    def _rows(self, start: int, stop: int) -> NDArray[Any]:
        return rows_at(self.source, self.places[start:stop], self._columns)

    def in_memory(self) -> ArrayRows:
        """Return the rows as an array, for which the source is read once; those of an array are of its kind."""
        columns = self._columns
        if isinstance(self.source, ArrayRows) and (self.places >= 0).all():
            array: Any = self.source.array
            held = array[self.places if columns is None else np.ix_(self.places, columns)]
            return ArrayRows(held, self.name, self.view_type, self.feature_names)
        # single precision stays: half the memory, and no digit lost
        dtype = np.float32 if self.dtype == np.float32 else np.float64
        rows = rows_at(self.source, self.places, columns, dtype=dtype)
        return ArrayRows(rows, self.name, self.view_type, self.feature_names)


def lifted(
    view: RowSource, places: NDArray[np.int64], own: Sequence[str], wanted: Sequence[str]
) -> RowSource:
    """Return a view with the row at `places` (n,), NaN for −1, and its columns if `own` ids name them."""
    names = view.feature_names
    columns = None
    if names is not None and tuple(names) != tuple(own) and set(names) == set(own):
        columns = places_of(names, wanted)
    if columns is None and np.array_equal(places, np.arange(view.n_samples)):
        return view
    if isinstance(view, PresentRows):
        has = presence_table([view])[places, 0] & (places >= 0)
        places = np.where(has, places, -1)
        columns = None if columns is None else np.where(has, columns, -1)
        view = view.source
    return LiftedRows(view, places, columns)


class PresentRows(LiftedRows):
    """Rows of the samples that an incomplete view has, and the same columns of a pairwise view."""

    @property
    def samples(self) -> NDArray[np.int64]:
        """Positions of the samples among all, (m,), ascending."""
        return self.places

    @property
    def n_samples(self) -> int:
        return self.source.shape[0]

    @property
    def impute(self) -> ImputeMethod | None:
        return self.source.impute

    @property
    def recorded_digest(self) -> str:
        return self.source.recorded_digest if self.columns is None else ""


def present_samples(source: RowSource) -> PresentSamples | None:
    """Return the samples that a view has, None for all."""
    if isinstance(source, PresentRows):
        return PresentSamples(source.samples, source.n_samples)
    return None


def replaced_view(view: RowSource, **changes: Any) -> RowSource:
    """Return a view with another name or view type; the view itself where they are the same."""
    if all(getattr(view, what) == new for what, new in changes.items()):
        return view
    if isinstance(view, RowsOf):
        changes = {"source": replaced_view(view.source, **changes)}
    return cast("RowSource", replace(cast("Any", view), **changes))


def is_in_memory(source: RowSource) -> bool:
    """Return whether the rows of a view are in the memory of this process."""
    while isinstance(source, RowsOf):
        source = source.source
    return isinstance(source, ArrayRows)


def presence_table(views: Sequence[RowSource]) -> NDArray[np.bool_]:
    """Return whether each view (columns) has each sample (rows)."""
    table = np.ones((views[0].n_samples, len(views)), dtype=np.bool_)
    for column, view in enumerate(views):
        if isinstance(view, PresentRows):
            table[:, column] = False
            table[view.samples, column] = True
    return table


def restrict_to_present(
    view: RowSource,
    absent: NDArray[np.int64] | None = None,
    *,
    columns: NDArray[np.int64] | None = None,
) -> RowSource:
    """Return a view without absent samples, by default the rows that are NaN in all (kept) `columns`."""
    if isinstance(view, PresentRows):
        return view
    if absent is None:
        if isinstance(view, LiftedRows):
            absent = np.flatnonzero(view.places < 0)
            if not absent.size and isinstance(view.source, ArrayRows):
                n_rows, n_columns = view.source.shape
                may_be_pairs = view.view_type == "features" and n_rows == n_columns
                if not may_be_pairs:  # whose type may be set later
                    return restrict_to_present(view.in_memory(), columns=columns)
            nowhere = np.isin(view.places, _rows_of_nan(view.source, None))
            absent = np.union1d(absent, np.flatnonzero(nowhere))
        else:
            absent = _rows_of_nan(view, columns)
    if not absent.size and columns is None:
        return view
    return PresentRows(view, np.setdiff1d(np.arange(view.shape[0]), absent), columns)


def _rows_of_nan(view: RowSource, columns: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Positions of the rows of an array or a file that are all NaN, but for the diagonal of a square pairwise view."""
    nowhere = np.zeros(0, dtype=np.int64)
    if not isinstance(view, ArrayRows | DaskRows) or (isinstance(view, DaskRows) and not view.file):
        return nowhere
    if view.dtype.kind != "f" or 0 in view.shape:
        return nowhere
    array: Any = view.array if columns is None else view.array[:, columns]
    if isinstance(array, sparse.csr_array):
        n_nan = np.concatenate(([0], np.cumsum(np.isnan(array.data))))
        return np.flatnonzero(np.diff(n_nan[array.indptr]) == array.shape[1])
    has_diagonal = view.view_type != "features" and array.shape[0] == array.shape[1] > 1
    view = replace(view, array=array, feature_names=None)
    # few rows, if any, have NaN in the first or last column: the others are read only for these
    ends = replace(view, array=array[:, :: max(1, array.shape[1] - 1)]).read(0, view.shape[0])
    some = np.flatnonzero(np.isnan(ends).any(axis=1))
    absent = []
    for start, stop in row_ranges(view):
        here = some[(some >= start) & (some < stop)]
        if here.size:
            first = int(here[0])
            gone = np.isnan(view.read(first, int(here[-1]) + 1)[here - first])
            if has_diagonal:
                gone[np.arange(len(here)), here] = True
            absent.append(here[gone.all(axis=1)])
    return np.concatenate([nowhere, *absent])


def recorded_presence(view: RowSource) -> str:
    """Return text that identifies the samples of an incomplete view, for digests; else ""."""
    if not isinstance(view, PresentRows):
        return ""
    runs = np.flatnonzero(np.diff(view.samples, prepend=-2) != 1)
    starts, stops = view.samples[runs], view.samples[np.append(runs[1:] - 1, len(view.samples) - 1)]
    return f"{view.n_samples}:" + ",".join(
        f"{a}-{b}" for a, b in zip(starts.tolist(), stops.tolist(), strict=True)
    )
