"""The consensus graph as a picture of its matrix, samples in the order of clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["BlockMatrix", "block_matrix", "cluster_order"]

_PIXELS = 480


@dataclass(frozen=True, eq=False)
class BlockMatrix:
    """A density picture of the matrix.

    Attributes
    ----------
    levels : (p, p) uint8
        0 without an entry, 255 the densest.
    clusters, sizes : (c,)
        Names of the clusters, ascending, and how many samples each has.
    edges : (c + 1,)
        Where clusters begin and end, as shares of the side from 0 to 1.
    samples_per_pixel : float
    between : (c, c) CSR
        Weight of the symmetrised graph between clusters, which may be many.
    """

    levels: NDArray[np.uint8]
    clusters: NDArray[np.int64]
    sizes: NDArray[np.int64]
    edges: NDArray[np.float64]
    samples_per_pixel: float
    between: csr_array[np.float64]

    @property
    def weight_across(self) -> float:
        """Weight between different clusters, of the total weight."""
        weights = self.between.tocoo()
        first, second = weights.coords
        total = float(weights.data.sum())
        # not total less trace: rounding of the two would be told as weight
        across = float(weights.data[first != second].sum())
        return across / total if total > 0 else 0.0


def cluster_order(graph: csr_array[np.float64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Samples by cluster and, within one, so that neighbours are near (reverse Cuthill-McKee)."""
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    near = reverse_cuthill_mckee(graph, symmetric_mode=True)
    return np.asarray(near[np.argsort(labels[near], kind="stable")], dtype=np.int64)


def block_matrix(graph: csr_array[np.float64], labels: NDArray[np.int64]) -> BlockMatrix:
    """Bin the weights of (A + Aᵀ)/2 to pixels.

    Parameters
    ----------
    graph : (n, n) CSR
    labels : (n,)

    Notes
    -----
    A pixel's level is the square root of its mean weight over the 99.5th percentile of those
    that have any, so that sparse and dense clusters are both seen.
    """
    from scipy.sparse import coo_array, csr_array

    symmetric: csr_array[np.float64] = csr_array(0.5 * graph + 0.5 * graph.T)
    n_samples = len(labels)
    clusters, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    n_clusters = len(clusters)
    side = min(n_samples, _PIXELS)
    place = np.empty(n_samples, dtype=np.int64)
    place[cluster_order(symmetric, labels)] = np.arange(n_samples)
    entries = symmetric.tocoo()
    row, column = (place[index] * side // n_samples for index in entries.coords)
    mass = np.bincount(row * side + column, weights=entries.data, minlength=side * side)
    pixels = np.bincount(np.arange(n_samples) * side // n_samples, minlength=side)
    density = mass.reshape(side, side) / np.outer(pixels, pixels)
    seen = density[density > 0]
    top = float(np.quantile(seen, 0.995)) if len(seen) else 1.0
    levels = np.ceil(255 * np.sqrt(np.minimum(density / top, 1.0))).astype(np.uint8)
    first, second = (codes[index] for index in entries.coords)
    pairs = coo_array((entries.data, (first, second)), shape=(n_clusters, n_clusters))
    return BlockMatrix(
        levels=levels,
        clusters=clusters,
        sizes=sizes,
        edges=np.concatenate(([0.0], np.cumsum(sizes) / n_samples)),
        samples_per_pixel=n_samples / side,
        between=csr_array(pairs),
    )
