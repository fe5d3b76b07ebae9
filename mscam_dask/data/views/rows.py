"""Some rows of views, read when they are needed: of samples in another order, of those that a view has, corrected, kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mscam_dask.data.views.sample_ids import places_of
from mscam_dask.data.views.sources import (
    DIGEST_ROWS,
    ArrayRows,
    DaskRows,
    RowsOf,
    RowSource,
    is_numbering,
    row_ranges,
    rows_at,
)
from mscam_dask.linalg.incomplete import PresentSamples
from mscam_dask.linalg.scaling import BatchCorrection
from mscam_dask.types.parameters import ImputeMethod

# Most blocks of rows of a view.
_MAX_BLOCKS = 64

# Largest decoded chunk that is kept: a default chunk of a store, from single to double precision.
_KEPT_CHUNK_BYTES = 16 * 2**20


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
        names, columns = self.source.feature_names, self._columns
        if names is None or columns is None:
            return names
        is_named = not is_numbering(names) and (columns >= 0).all()
        return tuple(names[column] for column in columns) if is_named else None

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
    if view.present is not None:
        has = (places >= 0) & (view.present.positions[places] >= 0)
        places = np.where(has, places, -1)
        columns = None if columns is None else np.where(has, columns, -1)
    return LiftedRows(view.whole, places, columns)


class PresentRows(LiftedRows):
    """Rows of the samples that an incomplete view has, and the same columns of a pairwise view."""

    @property
    def present(self) -> PresentSamples:
        return PresentSamples(self.places, self.n_samples)

    @property
    def n_samples(self) -> int:
        return self.source.shape[0]

    @property
    def whole(self) -> RowSource:
        return self.source

    @property
    def impute(self) -> ImputeMethod | None:
        return self.source.impute

    @property
    def recorded_digest(self) -> str:
        return self.source.recorded_digest if self.columns is None else ""


def replaced_view(view: RowSource, **changes: Any) -> RowSource:
    """Return a view with another name or view type; the view itself where they are the same."""
    if all(getattr(view, what) == new for what, new in changes.items()):
        return view
    if isinstance(view, RowsOf):
        changes = {"source": replaced_view(view.source, **changes)}
    return cast("RowSource", replace(cast("Any", view), **changes))


def with_all_columns(view: RowSource) -> RowSource:
    """Return a view of new samples with all columns, in their order, also where there are as many as rows."""
    if not isinstance(view, LiftedRows) or view.columns is not None:
        return view
    return replace(
        view, source=with_all_columns(view.source), columns=np.arange(view.source.shape[1])
    )


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
    absent = np.zeros(0, dtype=np.int64)
    if not isinstance(view, ArrayRows | DaskRows) or (isinstance(view, DaskRows) and not view.file):
        return absent
    if view.dtype.kind != "f" or 0 in view.shape:
        return absent
    array: Any = view.array if columns is None else view.array[:, columns]
    if isinstance(array, sparse.csr_array):
        n_nan = np.concatenate(([0], np.cumsum(np.isnan(array.data))))
        return np.flatnonzero(np.diff(n_nan[array.indptr]) == array.shape[1])
    has_diagonal = view.view_type != "features" and array.shape[0] == array.shape[1] > 1
    view = replace(view, array=array, feature_names=None)
    first = replace(view, array=array[:, :1]).read(0, view.shape[0])
    may_be_gone = np.isnan(first[:, 0])
    may_be_gone[0] |= has_diagonal
    for start, stop in row_ranges(view) if may_be_gone.any() else ():
        rows = np.flatnonzero(may_be_gone[start:stop]) + start
        gone = np.isnan(replace(view, array=array[rows]).read(0, len(rows)))
        if has_diagonal:
            gone[np.arange(len(rows)), rows] = True
        absent = np.append(absent, rows[gone.all(axis=1)])
    return absent


class SampledRows(LiftedRows):
    """Sample of the rows of a view, which each task reads itself and keeps nothing of: see `cache_chunks`."""


def blocks_of_rows(view: RowSource) -> list[RowSource]:
    """Return the rows of a complete feature view by blocks of whole blocks of a `ViewDigest`; other views whole."""
    n = view.shape[0]
    step = DIGEST_ROWS * -(-n // (_MAX_BLOCKS * DIGEST_ROWS))
    if view.view_type != "features" or isinstance(view, PresentRows) or n <= step:
        return [view]
    edges = [(start, min(start + step, n)) for start in range(0, n, step)]
    return [
        rows_in_memory(view, start, stop) or SampledRows(view, np.arange(start, stop))
        for start, stop in edges
    ]


def sampled_view(view: RowSource, rows: NDArray[np.int64]) -> ArrayRows | SampledRows | PresentRows:
    """Return some rows of a view: now if it is in memory, else lazily."""
    if isinstance(view, PresentRows):
        has = view.present.positions[rows] >= 0
        return PresentRows(sampled_view(view.source, rows), np.flatnonzero(has))
    sampled = SampledRows(view, rows)
    return sampled.in_memory() if isinstance(view, ArrayRows) else sampled


class CachedChunkRows(RowsOf):
    """View that keeps the chunk read last, so that blocks smaller than it decode it once; for one task and thread."""

    def __init__(self, source: RowSource) -> None:
        self.source = source
        self._chunk_rows = source.chunk_size
        self._start = -1
        self._chunk: NDArray[np.float64] | None = None

    def _rows(self, start: int, stop: int) -> NDArray[Any]:
        # the chunk begun before, whole chunks, and the one that the next block goes on with
        begun = min(stop, start - start % self._chunk_rows + self._chunk_rows)
        whole = max(begun, stop - stop % self._chunk_rows)
        parts = [self._from_chunk(start, begun)]
        if begun < whole:
            parts.append(self.source.read(begun, whole))
        if whole < stop:
            parts.append(self._from_chunk(whole, stop))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _from_chunk(self, start: int, stop: int) -> NDArray[np.float64]:
        """Rows of one chunk, which is kept."""
        first = start - start % self._chunk_rows
        if self._chunk is None or first != self._start:
            self._chunk = None  # two are never held
            last = min(first + self._chunk_rows, self.shape[0])
            self._start, self._chunk = first, self.source.read(first, last)
        return self._chunk[start - first : stop - first]


def cache_chunks(view: RowSource) -> RowSource:
    """Return a view for several passes: a sample in memory, or a view that keeps its last chunk of up to 16 MiB."""
    if isinstance(view, SampledRows):
        return view.in_memory()
    if isinstance(view, PresentRows):
        return PresentRows(cache_chunks(view.source), view.places)
    if view.chunk_size > 1 and 8 * view.chunk_size * view.shape[1] <= _KEPT_CHUNK_BYTES:
        return CachedChunkRows(view)
    return view


@dataclass(frozen=True, eq=False)
class CorrectedRows(RowsOf):
    """Rows of a view, corrected for their batches (n,) when they are read; what is sparse stays sparse."""

    source: RowSource
    batches: NDArray[np.int64]
    correction: BatchCorrection

    @property
    def chunk_size(self) -> int:
        return self.source.chunk_size

    def _rows(self, start: int, stop: int) -> NDArray[Any]:
        rows = self.source.read(start, stop)
        return self.correction.of_rows(rows, self.batches[start:stop])


def rows_in_memory(view: RowSource, start: int, stop: int) -> RowSource | None:
    """Return some rows of an array as a view of their own, without the others; None for other views."""
    if isinstance(view, ArrayRows):
        return ArrayRows(view.array[start:stop], view.name)
    if isinstance(view, CorrectedRows):
        rows = rows_in_memory(view.source, start, stop)
        return rows and CorrectedRows(rows, view.batches[start:stop], view.correction)
    return None


def corrected_view(
    view: RowSource, batches: NDArray[np.int64], correction: BatchCorrection
) -> RowSource:
    """Return a feature view without batch effects: a copy of a dense array, else rows corrected when they are read."""
    if isinstance(view, PresentRows):
        return PresentRows(corrected_view(view.source, batches, correction), view.places)
    if isinstance(view, ArrayRows) and isinstance(view.array, np.ndarray):
        rows: NDArray[Any] = correction.of_rows(view.array, batches)
        if view.dtype == np.float32:
            rows = rows.astype(np.float32)
        return ArrayRows(rows, view.name, view.view_type, view.feature_names)
    return CorrectedRows(view, batches, correction)
