"""Linear discriminant analysis (LDA) of a view for a given partition.

The discriminants are the directions u that solve

    B u = s S u,    uᵀ S u = 1,

with B the covariance of the cluster means and S the covariance within clusters, shrunk toward a
multiple of the identity. They separate the clusters best relative to the variance within clusters.
Each is weighted by s / (1 + s), its share of variance between clusters. Distances are in units of
the spread within clusters, so a view that separates the clusters has larger distances, and views
need no other weights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array

from mscam_dask.linalg.distances import mean_squared_distance
from mscam_dask.linalg.present_samples import PresentSamples
from mscam_dask.solvers.ridge_view import RidgeView
from mscam_dask.solvers.row_blocks import BLOCK_BYTES, row_blocks
from mscam_dask.types.rules import CONSTANTS, SIZES

__all__ = ["LinearDiscriminants", "linear_discriminants"]

# Smallest spread, as a share of the mean variance: clusters of equal samples stay invertible.
_MIN_SPREAD = 1e-6


@dataclasses.dataclass(frozen=True, slots=True)
class LinearDiscriminants:
    """Samples of one view in its linear discriminants.

    Attributes
    ----------
    points : (n, q) float32
        q ≤ c − 1 columns.
    mean_distance : float
        Mean squared distance of two samples.
    separation : float
        Sum over the discriminants of s / (1 + s), their shares of variance between clusters.
    present : PresentSamples or None
        Samples that the view has, which are the rows of `points`; None for all.
    """

    points: NDArray[np.float32]
    mean_distance: float
    separation: float
    present: PresentSamples | None = None

    def coordinates(self) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Points and the weights of their columns, which are all one."""
        return self.points, np.ones(self.points.shape[1])


def linear_discriminants(
    view: RidgeView,
    labels: NDArray[np.int64],
    *,
    most_directions: int = SIZES.max_rank,
    block_bytes: int = BLOCK_BYTES,
) -> LinearDiscriminants:
    """Solve B u = s S u for one view and a partition, and project the samples on the solutions.

    Parameters
    ----------
    view : RidgeView
    labels : (n,) int64
        Clusters 0 … c−1, none empty; those without a sample in the view are left out.
    most_directions : int
        Directions of the view that are used, those of largest variance.
    block_bytes : int
        Bytes of the rows that are held at a time.

    Returns
    -------
    LinearDiscriminants

    Notes
    -----
    O(n r²) flops with r ≤ 64 directions, by blocks of rows.

    References
    ----------
    R. A. Fisher, "The use of multiple measurements in taxonomic problems", Annals of Eugenics 7
    (1936), doi:10.1111/j.1469-1809.1936.tb02137.x; for a learned partition: C. Ding, T. Li,
    "Adaptive dimension reduction using discriminant analysis and K-means clustering", ICML 2007.
    """
    if view.present is not None:
        labels = np.unique(labels[view.present.samples], return_inverse=True)[1]
    vectors, weights = view.coordinates()
    vectors, scale = vectors[:, :most_directions], np.sqrt(weights[:most_directions])
    between, within = _covariances(_blocks(vectors, block_bytes), scale, labels)
    rank = len(scale)
    spread, floor = np.trace(within) / rank, _MIN_SPREAD * np.trace(between + within) / rank
    shrunk = (1.0 - CONSTANTS.shrinkage) * within + np.eye(rank) * max(
        CONSTANTS.shrinkage * spread, floor
    )
    kept = min(int(labels.max()), rank)
    if kept == 0:  # all samples of the view are in one cluster
        return LinearDiscriminants(
            np.zeros((len(labels), 0), dtype=np.float32), 0.0, 0.0, view.present
        )
    shares, directions = eigh(between, shrunk, subset_by_index=(rank - kept, rank - 1))
    shares = np.maximum(shares, 0.0)
    loadings = scale[:, None] * directions * np.sqrt(shares / (1.0 + shares))
    points = np.concatenate([block @ loadings for block in _blocks(vectors, block_bytes)]).astype(
        np.float32
    )
    separation = float(np.sum(shares / (1.0 + shares)))
    return LinearDiscriminants(points, mean_squared_distance(points), separation, view.present)


def _covariances(
    blocks: Iterator[NDArray[np.float64]],
    scale: NDArray[np.float64],
    labels: NDArray[np.int64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Covariances (r, r) between and within the clusters."""
    n, rank = len(labels), len(scale)
    sizes = np.bincount(labels).astype(np.float64)
    sums, squares = np.zeros((len(sizes), rank)), np.zeros((rank, rank))
    start = 0
    for block in blocks:
        own = labels[start : start + len(block)]
        members = csr_array(
            (np.ones(len(block)), (own, np.arange(len(block)))), shape=(len(sizes), len(block))
        )
        sums += np.asarray(members @ block)
        squares += block.T @ block
        start += len(block)
    means = sums / sizes[:, None]
    mean = sums.sum(axis=0) / n
    scatter = (means.T * sizes) @ means
    between = scatter / n - np.outer(mean, mean)
    within = (squares - scatter) / n
    return scale[:, None] * between * scale, scale[:, None] * within * scale


def _blocks(vectors: NDArray[Any], block_bytes: int) -> Iterator[NDArray[np.float64]]:
    for start, stop in row_blocks(*vectors.shape, block_bytes=block_bytes):
        yield vectors[start:stop].astype(np.float64)
