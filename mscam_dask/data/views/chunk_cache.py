"""Chunk cache for tasks that read a view several times."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.presence import PresentRows
from mscam_dask.data.views.sampling import SampledRows
from mscam_dask.data.views.sources import (
    RowSource,
    ViewType,
    as_rows,
    check_row_range,
    rows_of_chunk,
)

__all__ = ["KEPT_CHUNK_BYTES", "CachedChunkRows", "cache_chunks"]

KEPT_CHUNK_BYTES = 16 * 2**20
"""Largest decoded chunk that is kept: a default chunk of a store, from single to double precision."""


class CachedChunkRows:
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
        self._source = source
        self._chunk_rows = rows_of_chunk(source)
        self._start = -1
        self._rows: NDArray[np.float64] | None = None

    @property
    def name(self) -> str:
        return self._source.name

    @property
    def view_type(self) -> ViewType:
        return self._source.view_type

    @property
    def shape(self) -> tuple[int, int]:
        return self._source.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._source.dtype

    def read(self, start: int, stop: int) -> NDArray[np.float64]:
        """Return rows start..stop-1 as read-only float64; no copy where one chunk has them all."""
        check_row_range(self, start, stop)
        # the chunk begun before, whole chunks, and the one that the next block goes on with
        begun = min(stop, start - start % self._chunk_rows + self._chunk_rows)
        whole = max(begun, stop - stop % self._chunk_rows)
        parts = [self._from_chunk(start, begun)]
        if begun < whole:
            parts.append(self._source.read(begun, whole))
        if whole < stop:
            parts.append(self._from_chunk(whole, stop))
        return parts[0] if len(parts) == 1 else as_rows(np.concatenate(parts))

    def _from_chunk(self, start: int, stop: int) -> NDArray[np.float64]:
        """Rows of one chunk, which is kept."""
        first = start - start % self._chunk_rows
        if self._rows is None or first != self._start:
            self._rows = None  # two are never held
            last = min(first + self._chunk_rows, self.shape[0])
            self._start, self._rows = first, self._source.read(first, last)
        return self._rows[start - first : stop - first]


def cache_chunks(view: RowSource) -> RowSource:
    """Return a view for several passes: a sample in memory, or a view that keeps the last chunk.

    Chunks of more than `KEPT_CHUNK_BYTES` as float64 are not kept; views in memory are returned as
    they are.
    """
    if isinstance(view, SampledRows):
        return view.in_memory()
    if isinstance(view, PresentRows):
        return PresentRows(cache_chunks(view.source), view.samples)
    chunk_size = rows_of_chunk(view)
    if chunk_size > 1 and 8 * chunk_size * view.shape[1] <= KEPT_CHUNK_BYTES:
        return CachedChunkRows(view)
    return view
