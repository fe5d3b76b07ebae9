"""Distances of samples that are absent from some views.

Points are given by blocks of columns that not every point has. The squared distance of two points
is the mean over the blocks that both have, in units of the mean distance of each block, so that it
averages to one over the pairs of any set of blocks. Each other block counts a tenth, at its mean
distance. Points without a common block are infinitely far from each other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.linalg.neighbors import nearest_among
from mscam_dask.types.rules import CONSTANTS

# Neighbors that are compared beyond the K-th and the sample itself: ties go to the lower index.
_PADDING = 8

# Share of the mean distance below which a distance is rounding.
_ROUNDING = 1e-13


@dataclasses.dataclass(frozen=True, slots=True)
class IncompleteBlocks:
    """Points with ‖x_i − x_j‖² = Σ_g mean_{v ∈ g} d_v(i, j) / μ_v over the blocks v of i and j."""

    n_samples: int
    blocks: tuple[NDArray[Any], ...]  # (m_v, r_v) columns of the points that a block has
    present: tuple[PresentSamples, ...]  # points that a block has
    groups: tuple[int, ...]  # group g of each block
    scales: tuple[float, ...]  # μ_v, mean squared distance over the pairs of a block

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
        return _Products(self, others).distances(rows)

    def scales_of(self, group: int) -> NDArray[np.float64]:
        """Return μ_v of the blocks of a group."""
        pairs = zip(self.scales, self.groups, strict=True)
        return np.array([scale for scale, own in pairs if own == group])


def _means(
    sums: NDArray[np.float64], scales: NDArray[np.float64], whole: float
) -> NDArray[np.float64]:
    """Means of the distances of one group, by sums and scales of shared blocks; overwrites both.

    Few blocks vary more than many: without the weight of the others, the nearest neighbors share
    few.
    """
    weight = CONSTANTS.unknown_view_weight
    sums -= weight * scales
    sums += weight * whole
    scales *= 1.0 - weight
    scales += weight * whole
    # rows of blocks without extent are equal: their distances are 0
    return np.divide(sums, scales, out=sums) if whole > 0.0 else np.zeros_like(sums)


class _Products:
    """Squared distances of points to some others by matrix products.

    With rows of zeros for the points that a block does not have, and m_iv = 1 for those that it
    has,

        Σ_v m_iv m_jv ‖x_iv − x_jv‖² = Σ_v (m_iv ‖x_jv‖² + ‖x_iv‖² m_jv − 2 x_iv · x_jv),

    as Σ_v m_iv m_jv μ_v, is a product of one matrix for i with one for j.
    """

    def __init__(self, points: IncompleteBlocks, others: NDArray[np.int64]) -> None:
        self._points = points
        self._groups = sorted(set(points.groups))
        self._centers = [
            block.sum(axis=0, dtype=np.float64) / max(len(block), 1) for block in points.blocks
        ]
        self._others = [np.hstack(self._factors(others, group)).T for group in self._groups]

    def distances(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Squared distances (a, b); infinite for points without a common block."""
        shared = np.zeros((len(rows), self._others[0].shape[1]), dtype=np.bool_)
        result = np.zeros(shared.shape)
        for group, factors in zip(self._groups, self._others, strict=True):
            coordinates, norms, has = self._factors(rows, group)
            n_blocks = has.shape[1]
            scales = self._points.scales_of(group)
            squared = np.hstack([-2.0 * coordinates, has, norms]) @ factors
            squared[squared < _ROUNDING * scales.sum()] = 0.0
            shared |= (has @ factors[-n_blocks:]) > 0.0
            result += _means(squared, (has * scales) @ factors[-n_blocks:], scales.sum())
        result[~shared] = np.inf
        return result

    def _factors(
        self, samples: NDArray[np.int64], group: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Coordinates of the samples, squared norm and 1 for each block; 0 where absent."""
        points = self._points
        coordinates, norms, present = [], [], []
        for index, own in enumerate(points.present):
            if points.groups[index] != group:
                continue
            at = own.positions[samples]
            has = at >= 0
            center = self._centers[index]
            rows = np.zeros((len(samples), len(center)))
            rows[has] = points.blocks[index][at[has]] - center
            coordinates.append(rows)
            norms.append(np.einsum("ij,ij->i", rows, rows))
            present.append(has.astype(np.float64))
        return np.hstack(coordinates), np.stack(norms, axis=1), np.stack(present, axis=1)


def as_incomplete_blocks(views: Sequence[NDArray[np.float64]]) -> IncompleteBlocks:
    """Points from arrays (n, r_v) of mean squared distance one; absent samples are NaN."""
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
    """Squared distances of points given by views side by side; absent views are NaN."""

    widths: tuple[int, ...]  # number of columns of each view

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
    """K nearest other samples of some rows, and squared distances, ascending, (m, K) each."""
    everyone, rows = np.arange(len(points)), np.arange(row_start, row_stop)
    products = _Products(points, everyone)
    n_asked = min(len(points), n_candidates + 1 + _PADDING)
    found, near = nearest_among(rows, everyone, n_asked, lambda some, _: products.distances(some))
    order = np.lexsort((found, near, found == rows[:, None]), axis=-1)[:, :n_candidates]
    return np.take_along_axis(found, order, axis=1), np.take_along_axis(near, order, axis=1)


def with_finite_distances(squared_distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distances (m, K) in which infinite ones are twice the largest finite one of their row."""
    finite = np.isfinite(squared_distances)
    if finite.all():
        return squared_distances
    largest = np.where(finite, squared_distances, 0.0).max(axis=1, keepdims=True)
    return np.where(finite, squared_distances, np.where(largest > 0.0, 2.0 * largest, 1.0))


@dataclasses.dataclass(frozen=True, slots=True)
class PresentSamples:
    """Samples that an incomplete view has."""

    samples: NDArray[np.int64]  # (m,) ascending
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
