"""Linear discriminant analysis (LDA) of a view for a given partition.

The discriminants are the directions u that solve B u = s S u, uᵀ S u = 1, with B the covariance of the cluster
means and S the covariance within clusters, shrunk toward a multiple of the identity. Each is weighted by
s / (1 + s), its share of variance between clusters: distances are in units of the spread within clusters, so a
view that separates the clusters has larger distances, and views need no other weights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from mscam_dask.linalg.distances import sums_by_group
from mscam_dask.linalg.incomplete import PresentSamples
from mscam_dask.solvers.ridge_view import RidgeView
from mscam_dask.solvers.row_blocks import row_blocks
from mscam_dask.types.rules import CONSTANTS

# Smallest spread, as a share of the mean variance: clusters of equal samples stay invertible.
_MIN_SPREAD = 1e-6


@dataclasses.dataclass(frozen=True, slots=True)
class LinearDiscriminants:
    """Samples of one view in its linear discriminants."""

    points: NDArray[np.float32]  # (n, q), q ≤ c − 1
    mean_distance: float  # mean squared distance of two samples
    separation: float  # Σ s / (1 + s), shares of variance between clusters
    present: PresentSamples | None = None  # samples that the view has; None for all

    def of_rows(self, points: NDArray[np.float32]) -> LinearDiscriminants:
        """Discriminants of other rows."""
        return dataclasses.replace(self, points=points)

    def coordinates(self) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Points and the weights of their columns, which are all one."""
        return self.points, np.ones(self.points.shape[1])


def fitted_discriminants(
    sums: ClassSums, view: RidgeView
) -> tuple[NDArray[np.float64], LinearDiscriminants]:
    """Solve B u = s S u for a view and a partition: loadings (r, q), discriminants without rows.

    Clusters without a sample in the view are left out.

    R. A. Fisher, doi:10.1111/j.1469-1809.1936.tb02137.x; for a learned partition: C. Ding, T. Li, ICML 2007.
    """
    has = sums.sizes > 0
    present = ClassSums(sums.sizes[has], sums.sums[has], sums.squares)
    scale = np.sqrt(view.coordinates()[1][: len(sums.squares)])
    loadings, separation = discriminant_loadings(present, scale)
    empty = np.empty((0, loadings.shape[1]), dtype=np.float32)
    distance = mean_distance(present, loadings)
    return loadings, LinearDiscriminants(empty, distance, separation, view.present)


@dataclasses.dataclass(frozen=True, slots=True)
class ClassSums:
    """Sums over some samples of a view for a partition."""

    sizes: NDArray[np.float64]  # (c,)
    sums: NDArray[np.float64]  # (c, r) of the rows of each cluster
    squares: NDArray[np.float64]  # (r, r) Σ x xᵀ

    def merge(self, other: ClassSums, sign: int = 1) -> ClassSums:
        """Sums over both sets of samples, or their difference."""
        return ClassSums(
            self.sizes + sign * other.sizes,
            self.sums + sign * other.sums,
            self.squares + sign * other.squares,
        )


def class_sums(vectors: NDArray[Any], labels: NDArray[np.int64], n_clusters: int = 0) -> ClassSums:
    """Sums over rows (n, r) with labels (n,); those with the label −1 are left out."""
    rank = vectors.shape[1]
    sizes = np.bincount(labels[labels >= 0], minlength=n_clusters).astype(np.float64)
    sums, squares = np.zeros((len(sizes), rank)), np.zeros((rank, rank))
    start = 0
    for block in _blocks(vectors):
        own = labels[start : start + len(block)]
        start += len(block)
        has = own >= 0
        rows, own = (block, own) if has.all() else (block[has], own[has])
        sums += sums_by_group(rows, own, len(sizes))
        squares += rows.T @ rows
    return ClassSums(sizes, sums, squares)


def discriminant_loadings(
    sums: ClassSums, scale: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float]:
    """Solve B u = s S u for rows times a scale (r,): loadings (r, q) of the rows, none of one cluster, and separation."""
    rank = len(sums.squares)
    if len(sums.sizes) < 2:
        return np.zeros((rank, 0)), 0.0
    n = int(sums.sizes.sum())
    means, mean = sums.sums / sums.sizes[:, None], sums.sums.sum(axis=0) / n
    scatter = (means.T * sums.sizes) @ means
    between = scale[:, None] * (scatter / n - np.outer(mean, mean)) * scale
    within = scale[:, None] * ((sums.squares - scatter) / n) * scale
    spread, floor = np.trace(within) / rank, _MIN_SPREAD * np.trace(between + within) / rank
    least = max(CONSTANTS.shrinkage * spread, floor, np.finfo(np.float64).tiny)
    shrunk = (1.0 - CONSTANTS.shrinkage) * within + np.eye(rank) * least
    kept = min(len(sums.sizes) - 1, rank)
    shares, directions = eigh(between, shrunk, subset_by_index=(rank - kept, rank - 1))
    shares = np.maximum(shares, 0.0)
    loadings = scale[:, None] * directions * np.sqrt(shares / (1.0 + shares))
    return loadings, float(np.sum(shares / (1.0 + shares)))


def mean_distance(sums: ClassSums, loadings: NDArray[np.float64]) -> float:
    """Mean squared distance over pairs of the rows with these sums, in their discriminants."""
    n = sums.sizes.sum()
    if not loadings.size:
        return 0.0
    mean = sums.sums.sum(axis=0) / n
    scatter = sums.squares - n * np.outer(mean, mean)
    total = float(np.einsum("ij,ik,kj->", loadings, scatter, loadings))
    return 2.0 * total / (float(n) - 1.0)


def discriminant_points(view: RidgeView, loadings: NDArray[np.float64]) -> NDArray[np.float32]:
    """Rows of a view, or of a block of them, in its linear discriminants (m, q)."""
    vectors = view.coordinates()[0][:, : len(loadings)]
    parts = [block @ loadings for block in _blocks(vectors)]
    return np.concatenate(parts).astype(np.float32)


def _blocks(vectors: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
    for start, stop in row_blocks(*vectors.shape):
        yield vectors[start:stop].astype(np.float64, copy=False)
