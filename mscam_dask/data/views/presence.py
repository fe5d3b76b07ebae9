"""Some rows of views: samples in another order, and views that do not have all samples.

Rows that are all NaN stand for absent samples.
"""

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
    RowsOf,
    RowSource,
    as_rows,
    check_row_range,
    feature_names_of,
    recorded_digest,
    rows_at,
)
from mscam_dask.errors import DataError
from mscam_dask.linalg.incomplete import PresentSamples
from mscam_dask.types.parameters import ImputeMethod

_SHOWN = 5


@dataclass(frozen=True, eq=False)
class LiftedRows(RowsOf):
    """Some rows of a view, in any order, and the same columns of a square pairwise view; read lazily.

    `places` (m,) are their positions in the source; −1 stands for a row of NaN. `columns` are those of a pairwise
    view, by default `places`.
    """

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
        return feature_names_of(self.source) if self._columns is None else None

    def read(self, start: int, stop: int) -> NDArray[np.float64]:
        """Return rows start..stop-1 as read-only float64."""
        check_row_range(self, start, stop)
        return as_rows(rows_at(self.source, self.places[start:stop], self._columns))

    def in_memory(self) -> ArrayRows:
        """Return the rows as an array, for which the source is read once."""
        # single precision stays: half the memory, and no digit lost
        dtype = np.float32 if self.dtype == np.float32 else np.float64
        rows = rows_at(self.source, self.places, self._columns, dtype=dtype)
        return ArrayRows(rows, self.name, self.view_type, self.feature_names)

    def of_array(self) -> ArrayRows:
        """Return the rows of an array as an array of its kind; all rows are there."""
        array: Any = cast("ArrayRows", self.source).array
        columns = self._columns
        index = self.places if columns is None else np.ix_(self.places, columns)
        return ArrayRows(array[index], self.name, self.view_type, self.feature_names)


def lifted(
    view: RowSource, places: NDArray[np.int64], own: Sequence[str], wanted: Sequence[str]
) -> RowSource:
    """Return a view with a row for each sample, NaN for those that it does not have.

    `places` (n,) is the row of each sample, −1 for absent ones; `own` are the ids of the rows, `wanted` of the
    samples. Columns that are named by the same ids are those of a pairwise view, in whichever order.
    """
    names = feature_names_of(view)
    columns = None
    if names is not None and tuple(names) != tuple(own) and set(names) == set(own):
        columns = places_of(names, wanted)
    if columns is None and np.array_equal(places, np.arange(n_samples_of(view))):
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
        """Number of all samples n."""
        return self.source.shape[0]

    @property
    def impute(self) -> ImputeMethod | None:
        """Method by which a store says that missing cells were filled."""
        return getattr(self.source, "impute", None)

    @property
    def recorded_digest(self) -> str:
        """Digest of these rows that a store has recorded; else an empty text."""
        return recorded_digest(self.source) if self.columns is None else ""


def present_samples(source: RowSource) -> PresentSamples | None:
    """Return the samples that a view has, None for all."""
    if isinstance(source, PresentRows):
        return PresentSamples(source.samples, source.n_samples)
    return None


def replaced_view(view: RowSource, **changes: Any) -> RowSource:
    """Return a view with another name or view type."""
    if isinstance(view, RowsOf):
        changes = {"source": replaced_view(view.source, **changes)}
    return cast("RowSource", replace(cast("Any", view), **changes))


def n_samples_of(source: RowSource) -> int:
    """Return the number of samples of the data that a view is part of."""
    return source.n_samples if isinstance(source, PresentRows) else source.shape[0]


def is_in_memory(source: RowSource) -> bool:
    """Return whether the rows of a view are in the memory of this process."""
    return isinstance(source.source if isinstance(source, PresentRows) else source, ArrayRows)


def presence_table(views: Sequence[RowSource]) -> NDArray[np.bool_]:
    """Return whether each view (columns) has each sample (rows)."""
    table = np.ones((n_samples_of(views[0]), len(views)), dtype=np.bool_)
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
    """Return a view without its absent samples; the view itself if it has all or is without them.

    `absent` are their positions, by default the rows of an array that are all NaN, and samples whose ids the view
    does not have; other views that are not in memory have all samples then. `columns` of a pairwise view are
    kept, and rows may be all NaN in them.
    """
    if isinstance(view, PresentRows):
        return view
    if absent is None:
        absent = np.zeros(0, dtype=np.int64)
        if isinstance(view, LiftedRows):
            absent = np.flatnonzero(view.places < 0)
            if isinstance(view.source, ArrayRows):
                n_rows, n_columns = view.source.shape
                may_be_pairs = view.view_type == "features" and n_rows == n_columns
                if not absent.size and not may_be_pairs:  # whose type may be set later
                    return restrict_to_present(view.of_array(), columns=columns)
                nowhere = np.isin(view.places, _rows_of_nan(view.source, None))
                absent = np.union1d(absent, np.flatnonzero(nowhere))
        elif isinstance(view, ArrayRows):
            absent = _rows_of_nan(view, columns)
    if not absent.size and columns is None:
        return view
    return PresentRows(view, np.setdiff1d(np.arange(view.shape[0]), absent), columns)


def _rows_of_nan(view: ArrayRows, columns: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Positions of the rows that are all NaN, but for the diagonal of a square pairwise view."""
    array = view.array if columns is None else view.array[:, columns]
    if array.dtype.kind != "f" or 0 in array.shape:
        return np.zeros(0, dtype=np.int64)
    if isinstance(array, sparse.csr_array):
        n_nan = np.concatenate(([0], np.cumsum(np.isnan(array.data))))
        return np.flatnonzero(np.diff(n_nan[array.indptr]) == array.shape[1])
    has_diagonal = view.view_type != "features" and array.shape[0] == array.shape[1] > 1
    # few rows, if any, have NaN in one column: the other columns are read only for these
    some = np.flatnonzero(np.isnan(array[:, 0]) | np.isnan(array[:, -1]))
    absent = [
        row
        for row in some.tolist()
        if np.isnan(np.delete(array[row], row) if has_diagonal else array[row]).all()
    ]
    return np.array(absent, dtype=np.int64)


def check_presence(views: Sequence[RowSource], sample_ids: Sequence[str] | None = None) -> None:
    """Refuse samples that no view has, with a `DataError`."""
    nowhere = np.flatnonzero(~presence_table(views).any(axis=1))
    if nowhere.size:
        first = nowhere[:_SHOWN].tolist()
        shown = first if sample_ids is None else [sample_ids[row] for row in first]
        raise DataError(
            f"{nowhere.size} sample(s) are absent from every view: all their values are NaN (first "
            f"{'rows' if sample_ids is None else 'ids'}: {shown}). Drop these samples; every sample must be "
            "in at least one view."
        )


def recorded_presence(view: RowSource) -> str:
    """Return text that identifies the samples of an incomplete view, for digests; else ""."""
    if not isinstance(view, PresentRows):
        return ""
    runs = np.flatnonzero(np.diff(view.samples, prepend=-2) != 1)
    starts, stops = view.samples[runs], view.samples[np.append(runs[1:] - 1, len(view.samples) - 1)]
    return f"{view.n_samples}:" + ",".join(
        f"{a}-{b}" for a, b in zip(starts.tolist(), stops.tolist(), strict=True)
    )
