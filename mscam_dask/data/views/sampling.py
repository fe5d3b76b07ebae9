"""Rows of views that are made when they are read: samples, rows without batch effects, and a cache of the last chunk."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.presence import LiftedRows, PresentRows
from mscam_dask.data.views.sources import (
    DIGEST_ROWS,
    ArrayRows,
    RowsOf,
    RowSource,
)
from mscam_dask.errors import DataError
from mscam_dask.linalg.incomplete import PresentSamples
from mscam_dask.linalg.scaling import BatchCorrection

# Most blocks of rows of a view.
_MAX_BLOCKS = 64


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
        has = PresentSamples(view.samples, view.n_samples).positions[rows] >= 0
        return PresentRows(sampled_view(view.source, rows), np.flatnonzero(has))
    sampled = SampledRows(view, rows)
    return sampled.in_memory() if isinstance(view, ArrayRows) else sampled


def sample_per_class(
    data: MultiViewData, per_class: int, *, rng: np.random.Generator
) -> MultiViewData:
    """Draw the same number of samples of every class, without replacement, in the given order."""
    if data.labels is None:
        raise DataError("There are no labels, so no samples can be drawn by class.")
    classes, sizes = np.unique(data.labels, return_counts=True)
    if not 1 <= per_class <= sizes.min():
        raise DataError(
            f"per_class={per_class}; allowed are 1 to {sizes.min()}, the samples of the smallest of {len(classes)} "
            "classes."
        )
    chosen = np.sort(
        np.concatenate(
            [
                rng.choice(np.flatnonzero(data.labels == label), size=per_class, replace=False)
                for label in classes
            ]
        )
    )
    ids = data.sample_ids
    return dataclasses.replace(
        data,
        views=tuple(cache_chunks(sampled_view(view, chosen)) for view in data.views),
        labels=data.labels[chosen],
        sample_ids=None if ids is None else tuple(ids[index] for index in chosen),
    )


# Largest decoded chunk that is kept: a default chunk of a store, from single to double precision.
_KEPT_CHUNK_BYTES = 16 * 2**20


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
        return PresentRows(cache_chunks(view.source), view.samples)
    if view.chunk_size > 1 and 8 * view.chunk_size * view.shape[1] <= _KEPT_CHUNK_BYTES:
        return CachedChunkRows(view)
    return view


@dataclasses.dataclass(frozen=True, eq=False)
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
        return PresentRows(corrected_view(view.source, batches, correction), view.samples)
    if isinstance(view, ArrayRows) and isinstance(view.array, np.ndarray):
        rows: NDArray[Any] = correction.of_rows(view.array, batches)
        if view.dtype == np.float32:
            rows = rows.astype(np.float32)
        return ArrayRows(rows, view.name, view.view_type, view.feature_names)
    return CorrectedRows(view, batches, correction)
