"""Rows of views: samples of them, the same number of samples of every class, and a cache of the last chunk."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.presence import PresentRows
from mscam_dask.data.views.sources import (
    DIGEST_ROWS,
    ArrayRows,
    RowsOf,
    RowSource,
    as_rows,
    check_row_range,
    row_ranges,
    rows_of_chunk,
)
from mscam_dask.errors import DataError
from mscam_dask.linalg.incomplete import PresentSamples

__all__ = [
    "CachedChunkRows",
    "SampledRows",
    "blocks_of_rows",
    "cache_chunks",
    "sample_per_class",
    "sampled_view",
]

# Most blocks of rows of a view.
_MAX_BLOCKS = 64


@dataclasses.dataclass(frozen=True, eq=False)
class SampledRows(RowsOf):
    """Some rows of a view, and the same columns of a pairwise view; read lazily.

    A task that gets this reads the rows itself: they pass through no other process. Nothing is kept,
    since a worker keeps the arguments of a task for as long as its result: see
    `mscam_dask.data.views.sampling.cache_chunks`.

    Parameters
    ----------
    source
        The whole view.
    rows
        (m,) ascending.
    """

    source: RowSource
    rows: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, int]:
        m = len(self.rows)
        return m, self.source.shape[1] if self.view_type == "features" else m

    def read(self, start: int, stop: int) -> NDArray[np.float64]:
        """Return rows start..stop-1 of the sample."""
        check_row_range(self, start, stop)
        return _taken(self.source, self.rows[start:stop], self.rows).read(0, stop - start)

    def in_memory(self) -> ArrayRows:
        """Return the rows as an array; the whole view is read for it, once."""
        return _taken(self.source, self.rows)


@dataclasses.dataclass(frozen=True, eq=False)
class _ConsecutiveRows(RowsOf):
    """Consecutive rows of a feature view, read lazily."""

    source: RowSource
    start: int
    stop: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.stop - self.start, self.source.shape[1]

    def read(self, start: int, stop: int) -> NDArray[np.float64]:
        check_row_range(self, start, stop)
        return self.source.read(self.start + start, self.start + stop)


def blocks_of_rows(view: RowSource) -> list[RowSource]:
    """Return the consecutive rows of a complete feature view by blocks; other views whole.

    Blocks depend on the number of rows only, and hold whole blocks of a `ViewDigest`.
    """
    n = view.shape[0]
    step = DIGEST_ROWS * -(-n // (_MAX_BLOCKS * DIGEST_ROWS))
    if view.view_type != "features" or isinstance(view, PresentRows) or n <= step:
        return [view]
    edges = [(start, min(start + step, n)) for start in range(0, n, step)]
    if isinstance(view, ArrayRows):
        return [ArrayRows(view.array[start:stop], view.name) for start, stop in edges]
    return [_ConsecutiveRows(view, start, stop) for start, stop in edges]


def sampled_view(view: RowSource, rows: NDArray[np.int64]) -> ArrayRows | SampledRows | PresentRows:
    """Return some rows of a view: now if it is in memory, else lazily."""
    if isinstance(view, PresentRows):
        has = PresentSamples(view.samples, view.n_samples).positions[rows] >= 0
        return PresentRows(sampled_view(view.source, rows), np.flatnonzero(has))
    return _taken(view, rows) if isinstance(view, ArrayRows) else SampledRows(view, rows)


def sample_per_class(
    data: MultiViewData, per_class: int, *, rng: np.random.Generator
) -> MultiViewData:
    """Draw the same number of samples of every class, without replacement, in the given order.

    The protocol of NUS-WIDE-Object in the literature: 100 images of each of its 31 classes.

    Parameters
    ----------
    data
        With labels; read once, by blocks.
    per_class
        Samples of each class, at least 1.
    rng

    Returns
    -------
    MultiViewData
        In memory, samples in the order of `data`.

    Raises
    ------
    DataError
        When there are no labels, or a class has fewer samples.
    """
    if data.labels is None:
        raise DataError("There are no labels, so no samples can be drawn by class.")
    if per_class < 1:
        raise DataError(f"per_class={per_class}; allowed is at least 1 sample of each class.")
    classes, sizes = np.unique(data.labels, return_counts=True)
    small = [
        f"{_name(data, label)} ({size})"
        for label, size in zip(classes.tolist(), sizes.tolist(), strict=True)
        if size < per_class
    ]
    if small:
        raise DataError(
            f"per_class={per_class}, but {len(small)} of {len(classes)} classes have fewer samples: "
            f"{', '.join(small[:5])}. Allowed here are 1 to {int(sizes.min())}."
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
        views=tuple(_taken(view, chosen) for view in data.views),
        labels=data.labels[chosen],
        sample_ids=None if ids is None else tuple(ids[index] for index in chosen),
    )


def _name(data: MultiViewData, label: int) -> str:
    names = data.label_names
    return names[label] if names is not None and 0 <= label < len(names) else str(label)


def _taken(
    view: RowSource, chosen: NDArray[np.int64], columns: NDArray[np.int64] | None = None
) -> ArrayRows:
    """Return some rows (ascending) and, for a pairwise view, `columns` or those of the same numbers."""
    square = view.view_type != "features"
    columns = chosen if columns is None else columns
    # single precision stays: half the memory, and no digit lost
    dtype = np.float32 if view.dtype == np.float32 else np.float64
    rows = np.empty((len(chosen), len(columns) if square else view.shape[1]), dtype=dtype)
    for start, stop in row_ranges(view):
        first, last = np.searchsorted(chosen, (start, stop))
        if first < last:
            block = view.read(start, stop)[chosen[first:last] - start]
            rows[first:last] = block[:, columns] if square else block
    return ArrayRows(rows, view.name, view.view_type)


# Largest decoded chunk that is kept: a default chunk of a store, from single to double precision.
_KEPT_CHUNK_BYTES = 16 * 2**20


class CachedChunkRows(RowsOf):
    """View in chunks that keeps the chunk read last.

    Blocks smaller than a chunk would have each chunk read, checked and decoded once for every
    block, on every pass.

    Parameters
    ----------
    source
        With `chunk_size`, the rows of a chunk.

    Notes
    -----
    Use within one task and one thread: as an argument of a task, the chunk would stay in the memory
    of the worker.
    """

    def __init__(self, source: RowSource) -> None:
        self.source = source
        self._chunk_rows = rows_of_chunk(source)
        self._start = -1
        self._rows: NDArray[np.float64] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.source.shape

    def read(self, start: int, stop: int) -> NDArray[np.float64]:
        """Return rows start..stop-1 as read-only float64; no copy where one chunk has them all."""
        check_row_range(self, start, stop)
        # the chunk begun before, whole chunks, and the one that the next block goes on with
        begun = min(stop, start - start % self._chunk_rows + self._chunk_rows)
        whole = max(begun, stop - stop % self._chunk_rows)
        parts = [self._from_chunk(start, begun)]
        if begun < whole:
            parts.append(self.source.read(begun, whole))
        if whole < stop:
            parts.append(self._from_chunk(whole, stop))
        return parts[0] if len(parts) == 1 else as_rows(np.concatenate(parts))

    def _from_chunk(self, start: int, stop: int) -> NDArray[np.float64]:
        """Rows of one chunk, which is kept."""
        first = start - start % self._chunk_rows
        if self._rows is None or first != self._start:
            self._rows = None  # two are never held
            last = min(first + self._chunk_rows, self.shape[0])
            self._start, self._rows = first, self.source.read(first, last)
        return self._rows[start - first : stop - first]


def cache_chunks(view: RowSource) -> RowSource:
    """Return a view for several passes: a sample in memory, or a view that keeps the last chunk.

    Chunks of more than 16 MiB as float64 are not kept; views in memory are returned as
    they are.
    """
    if isinstance(view, SampledRows):
        return view.in_memory()
    if isinstance(view, PresentRows):
        return PresentRows(cache_chunks(view.source), view.samples)
    chunk_size = rows_of_chunk(view)
    if chunk_size > 1 and 8 * chunk_size * view.shape[1] <= _KEPT_CHUNK_BYTES:
        return CachedChunkRows(view)
    return view
