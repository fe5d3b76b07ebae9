"""Distance of each sample from its cluster and from the next one, without ground truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Confidence", "embedding_confidence"]

_MAX_ROWS = 2**16  # of a block of distances
_MAX_DISTANCES = 2**20  # of a block


@dataclass(frozen=True, eq=False)
class Confidence:
    """Positions of the samples between the centers of two clusters.

    Attributes
    ----------
    distance_ratio : (n,)
        Distance to the center of the sample's cluster over the distance to the nearest other
        center: 0 at its own center, 1 halfway between the two.
    next_cluster : (n,) int64
        Cluster of the nearest other center.
    """

    distance_ratio: NDArray[np.float64]
    next_cluster: NDArray[np.int64]

    def least_certain(self, limit: int) -> NDArray[np.int64]:
        """Rows with the largest ratios, largest first, and ties in the order of rows."""
        limit = min(limit, len(self.distance_ratio))
        return np.argsort(-self.distance_ratio, kind="stable")[:limit]


def embedding_confidence(
    embeddings: Mapping[str, NDArray[np.float64]],
    contributions: Mapping[str, float],
    labels: NDArray[np.int64],
) -> Confidence | None:
    """Compare the distances of each sample to the centers of the clusters, over all views.

    Parameters
    ----------
    embeddings : view to (n, r)
    contributions : view to share
        Weights of the views.
    labels : (n,)
        Clusters 0, ..., c - 1.

    Returns
    -------
    Confidence or None
        None without embeddings, and with a single cluster.

    Notes
    -----
    With F_v the embedding of view v, scaled to unit total variance, m_vk the mean of cluster k
    in it and w_v the view's share, the squared distance of sample i to cluster k is
    Σ_v w_v ‖F_vi − m_vk‖². The embeddings are adapted to the consensus graph, and so to the
    clusters. All ratios are small therefore, and only their order is meaningful.
    """
    n_clusters = int(labels.max()) + 1 if len(labels) else 0
    if not embeddings or n_clusters < 2:
        return None
    counts = np.bincount(labels, minlength=n_clusters)
    scaled = [
        _scaled(values, labels, counts, contributions.get(name, 0.0))
        for name, values in embeddings.items()
    ]
    ratio = np.empty(len(labels))
    next_cluster = np.empty(len(labels), dtype=np.int64)
    step = min(_MAX_ROWS, max(1, _MAX_DISTANCES // n_clusters))
    for start in range(0, len(labels), step):
        rows = slice(start, start + step)
        squared = np.zeros((len(labels[rows]), n_clusters))
        for values, centers, weight in scaled:
            distances = weight * _squared_distances(values[rows], centers)
            has = ~np.isnan(distances)
            # clusters that a view does not have are at the mean distance of the others
            counted = np.maximum(has.sum(axis=1), 1)
            mean = np.where(has, distances, 0.0).sum(axis=1) / counted
            squared += np.where(has, distances, mean[:, None]) if not has.all() else distances
        within = np.arange(len(squared))
        own = np.sqrt(squared[within, labels[rows]])
        squared[within, labels[rows]] = np.inf
        squared[:, counts == 0] = np.inf
        next_cluster[rows] = squared.argmin(axis=1)
        other = np.sqrt(squared[within, next_cluster[rows]])
        ratio[rows] = np.divide(own, other, out=np.ones_like(own), where=other > 0)
    return Confidence(ratio, next_cluster)


def _scaled(
    values: NDArray[np.float64],
    labels: NDArray[np.int64],
    counts: NDArray[np.int64],
    share: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Embedding of a view, centers of the clusters, and weight of the view."""
    has = ~np.isnan(values).any(axis=1)
    if not has.all():
        own = np.bincount(labels[has], minlength=len(counts))
        _, centers, weight = _scaled(values[has], labels[has], own, share)
        return values, np.where(own[:, None] > 0, centers, np.nan), weight
    sums = np.stack(
        [np.bincount(labels, weights=column, minlength=len(counts)) for column in values.T], axis=1
    )
    centers = sums / np.maximum(counts, 1)[:, None]
    variance = float(values.var(axis=0).sum())
    return values, centers, share / variance if variance > 0 else 0.0


def _squared_distances(
    values: NDArray[np.float64], centers: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Squared Euclidean distances, (rows, clusters)."""
    products = values @ centers.T
    squared = (values**2).sum(axis=1)[:, None] - 2 * products + (centers**2).sum(axis=1)
    return np.asarray(np.maximum(squared, 0.0))
