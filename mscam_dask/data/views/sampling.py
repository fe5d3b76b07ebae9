"""Samples of views: some rows, or the same number of samples of every class."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.presence import PresentRows
from mscam_dask.data.views.sources import (
    ArrayRows,
    RowSource,
    ViewType,
    check_row_range,
    row_ranges,
)
from mscam_dask.errors import DataError
from mscam_dask.linalg.incomplete_blocks import PresentSamples

__all__ = ["SampledRows", "sample_per_class", "sampled_view"]


@dataclasses.dataclass(frozen=True, eq=False)
class SampledRows:
    """Some rows of a view, and the same columns of a pairwise view; read lazily.

    A task that gets this reads the rows itself: they pass through no other process. Nothing is kept,
    since a worker keeps the arguments of a task for as long as its result: see
    `mscam_dask.data.views.chunk_cache.cache_chunks`.

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
    def name(self) -> str:
        return self.source.name

    @property
    def view_type(self) -> ViewType:
        return self.source.view_type

    @property
    def shape(self) -> tuple[int, int]:
        m = len(self.rows)
        return m, self.source.shape[1] if self.view_type == "features" else m

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.source.dtype

    def read(self, start: int, stop: int) -> NDArray[np.float64]:
        """Return rows start..stop-1 of the sample."""
        check_row_range(self, start, stop)
        return _taken(self.source, self.rows[start:stop], self.rows).read(0, stop - start)

    def in_memory(self) -> ArrayRows:
        """Return the rows as an array; the whole view is read for it, once."""
        return _taken(self.source, self.rows)


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
