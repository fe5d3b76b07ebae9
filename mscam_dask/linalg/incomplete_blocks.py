"""Points given by blocks of columns that not every point has: samples that are absent from views.

The squared distance of two points is the mean over the blocks that both have, in units of the mean
distance of each block, so that it averages to one over the pairs of any set of blocks. Each other
block counts a tenth, at its mean distance. Points without a common block are infinitely far from each
other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.linalg.distances import distances_to, squared_distances
from mscam_dask.linalg.neighbors import top_k_columns
from mscam_dask.types.rules import CONSTANTS

__all__ = [
    "IncompleteBlocks",
    "PresentSamples",
    "SharedDistances",
    "as_incomplete_blocks",
    "nearest_sharing",
    "with_finite_distances",
]


# Neighbors proposed beyond K + K/4, as in the search of complete points.
_PADDING = 8

# Bytes of the distances of a block of rows to all samples.
_BLOCK_BYTES = 8 * 2**20
_MIN_ROWS = 16


@dataclasses.dataclass(frozen=True, slots=True)
class IncompleteBlocks:
    """Points with ‖x_i − x_j‖² = Σ_g mean_{v ∈ g} d_v(i, j) / μ_v over the blocks v of i and j.

    Attributes
    ----------
    n_samples : int
        n.
    blocks : tuple of (m_v, r_v)
        Columns of the points that a block has; d_v is the squared distance of their rows.
    present : tuple of PresentSamples
        Points that a block has.
    groups : tuple of int
        Group g of each block; the distances of groups add up.
    scales : tuple of float
        μ_v, the mean squared distance of a block over the pairs of its points.
    """

    n_samples: int
    blocks: tuple[NDArray[Any], ...]
    present: tuple[PresentSamples, ...]
    groups: tuple[int, ...]
    scales: tuple[float, ...]

    def __len__(self) -> int:
        return self.n_samples

    def take(self, rows: NDArray[np.int64]) -> IncompleteBlocks:
        """Copy of the points `rows`."""
        blocks, present = [], []
        for block, own in zip(self.blocks, self.present, strict=True):
            at = own.positions[rows]
            blocks.append(block[at[at >= 0]])
            present.append(PresentSamples(np.flatnonzero(at >= 0), len(rows)))
        return dataclasses.replace(
            self, n_samples=len(rows), blocks=tuple(blocks), present=tuple(present)
        )

    def distances(self, rows: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.float64]:
        """Squared distances (a, b) by products; infinite for points without a common block."""
        totals = _Totals(self, (len(rows), len(others)))
        for index, (block, own) in enumerate(zip(self.blocks, self.present, strict=True)):
            first, second = own.positions[rows], own.positions[others]
            i, j = np.flatnonzero(first >= 0), np.flatnonzero(second >= 0)
            if i.size and j.size:
                ends = block[second[j]].astype(np.float64)
                squared = squared_distances(block[first[i]].astype(np.float64), ends)
                totals.add(index, np.ix_(i, j), squared)
        return totals.combined()

    def distances_on_edges(
        self, rows: NDArray[np.int64], indices: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Squared distances (a, K) of `rows` to their `indices`, by exact differences."""
        totals = _Totals(self, indices.shape)
        for index, (block, own) in enumerate(zip(self.blocks, self.present, strict=True)):
            positions = own.positions
            i = np.flatnonzero(positions[rows] >= 0)
            ends = positions[indices[i]]
            squared = distances_to(block, positions[rows[i]], np.maximum(ends, 0))
            totals.add(index, i, np.where(ends >= 0, squared, np.nan))
        return totals.combined()


class _Totals:
    """Sums of the distances and of the scales of the blocks that two points have in common."""

    def __init__(self, points: IncompleteBlocks, shape: tuple[int, ...]) -> None:
        self._points = points
        self._distances = {group: np.zeros(shape) for group in points.groups}
        self._scales = {group: np.zeros(shape) for group in points.groups}
        self._shared = np.zeros(shape, dtype=np.bool_)

    def add(self, index: int, where: Any, squared: NDArray[np.float64]) -> None:
        """Add the distances of a block for the pairs `where`; NaN for pairs that do not share it."""
        group, scale = self._points.groups[index], self._points.scales[index]
        shared = ~np.isnan(squared)
        self._distances[group][where] += np.where(shared, squared, 0.0)
        self._scales[group][where] += np.where(shared, scale, 0.0)
        self._shared[where] |= shared

    def combined(self) -> NDArray[np.float64]:
        """Sum over the groups of the mean distances; infinite where no block is shared."""
        result = np.where(self._shared, 0.0, np.inf)
        for group, distances in self._distances.items():
            scales = self._scales[group]
            whole = sum(
                scale
                for scale, own in zip(self._points.scales, self._points.groups, strict=True)
                if own == group
            )
            if whole > 0.0:
                # few blocks vary more than many: without it, the nearest neighbors share few
                unknown = CONSTANTS.unknown_view_weight * (whole - scales)
                scales += unknown
                # at the mean distance if no block of some extent is shared
                result += np.divide(
                    distances + unknown, scales, out=np.ones_like(scales), where=scales > 0.0
                )
        return result


def as_incomplete_blocks(views: Sequence[NDArray[np.float64]]) -> IncompleteBlocks:
    """Points from the arrays (n, r_v) of views with mean squared distance one; NaN for absent samples."""
    n = len(views[0])
    samples = [np.flatnonzero(~np.isnan(view[:, 0])) for view in views]
    return IncompleteBlocks(
        n,
        tuple(view[rows] for view, rows in zip(views, samples, strict=True)),
        tuple(PresentSamples(rows, n) for rows in samples),
        (0,) * len(views),
        (1.0,) * len(views),
    )


@dataclasses.dataclass(frozen=True)
class SharedDistances:
    """Squared distances between points given by views side by side, NaN in the columns of absent ones.

    Attributes
    ----------
    widths : tuple of int
        Number of columns of each view.
    """

    widths: tuple[int, ...]

    def __call__(
        self, rows: NDArray[np.float64], others: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Distances (a, b) of `rows` (a, Σr) to `others` (b, Σr), as of `IncompleteBlocks`."""
        both = np.concatenate([rows, others])
        points = as_incomplete_blocks(np.split(both, np.cumsum(self.widths)[:-1], axis=1))
        return points.distances(np.arange(len(rows)), np.arange(len(rows), len(both)))


def nearest_sharing(
    points: IncompleteBlocks, n_candidates: int, row_start: int, row_stop: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """K nearest other samples of each row, with their squared distances by exact differences.

    Parameters
    ----------
    points : IncompleteBlocks
    n_candidates : int
        K, between 1 and n − 1.
    row_start, row_stop : int

    Returns
    -------
    indices : (row_stop − row_start, K) int64
        Never the row itself. Ties go to the lower index.
    squared_distances : (row_stop − row_start, K)
        Ascending; infinite for samples without a common block, which come last.

    Notes
    -----
    O(m n Σr) flops in double precision.
    """
    n = len(points)
    n_asked = min(n, n_candidates + n_candidates // 4 + 1 + _PADDING)
    indices = np.empty((row_stop - row_start, n_candidates), dtype=np.int64)
    distances = np.empty(indices.shape)
    everyone = np.arange(n)
    step = max(_MIN_ROWS, _BLOCK_BYTES // (8 * n))
    for start in range(row_start, row_stop, step):
        rows = np.arange(start, min(start + step, row_stop))
        found = top_k_columns(points.distances(rows, everyone), n_asked)
        exact = points.distances_on_edges(rows, found)
        order = np.lexsort((found, exact, found == rows[:, None]), axis=-1)[:, :n_candidates]
        here = slice(start - row_start, rows[-1] + 1 - row_start)
        indices[here] = np.take_along_axis(found, order, axis=1)
        distances[here] = np.take_along_axis(exact, order, axis=1)
    return indices, distances


def with_finite_distances(squared_distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distances (m, K) in which infinite ones are twice the largest finite one of their row.

    Samples without a common block are then farther than all others, and adaptive-neighbor weights of
    them are 0 unless a row has no others.
    """
    finite = np.isfinite(squared_distances)
    if finite.all():
        return squared_distances
    largest = np.where(finite, squared_distances, 0.0).max(axis=1, keepdims=True)
    return np.where(finite, squared_distances, np.where(largest > 0.0, 2.0 * largest, 1.0))


@dataclasses.dataclass(frozen=True, slots=True)
class PresentSamples:
    """Samples that an incomplete view has.

    Attributes
    ----------
    samples : (m,) int64
        Positions among all samples, ascending.
    n_samples : int
        n.
    """

    samples: NDArray[np.int64]
    n_samples: int

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def positions(self) -> NDArray[np.int64]:
        """Position (n,) of each sample among those of the view, −1 where absent."""
        positions = np.full(self.n_samples, -1, dtype=np.int64)
        positions[self.samples] = np.arange(len(self.samples))
        return positions

    def spread(self, values: NDArray[Any], fill: float = np.nan) -> NDArray[Any]:
        """Rows (n, …) of all samples from those of the view, with `fill` for absent ones."""
        result = np.full((self.n_samples, *values.shape[1:]), fill, dtype=values.dtype)
        result[self.samples] = values
        return result
