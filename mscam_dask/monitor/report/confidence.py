"""How far each sample is from changing its cluster, told without labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Confidence", "embedding_confidence"]

_MOST_ROWS = 2**16  # samples whose distances are held at a time
_MOST_DISTANCES = 2**20  # ... all in all


@dataclass(frozen=True, eq=False)
class Confidence:
    """Where samples lie between the centre of their cluster and the next.

    Attributes
    ----------
    distance_ratio : (n,)
        Distance to the centre of the own cluster over that to the nearest other centre: 0 at
        the own centre, 1 half way, more beyond.
    next_cluster : (n,) int64
        The cluster with that other centre.
    """

    distance_ratio: NDArray[np.float64]
    next_cluster: NDArray[np.int64]

    def least_certain(self, limit: int) -> NDArray[np.int64]:
        """Rows with the largest ratios, largest first; ties in the order of rows."""
        limit = min(limit, len(self.distance_ratio))
        return np.argsort(-self.distance_ratio, kind="stable")[:limit]


def embedding_confidence(
    embeddings: Mapping[str, NDArray[np.float64]],
    contributions: Mapping[str, float],
    labels: NDArray[np.int64],
) -> Confidence | None:
    """Compare each sample's distances to the centres of the clusters, over all views.

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
        None without embeddings, or with one cluster.

    Notes
    -----
    With F_v the embedding of view v, scaled to unit total variance, m_vk the mean of cluster k
    in it and w_v the view's share, the squared distance of sample i to cluster k is
    Σ_v w_v ‖F_vi − m_vk‖². Embeddings are fitted to the consensus graph, and so to the clusters:
    ratios are small throughout, and only their order says something.
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
    following = np.empty(len(labels), dtype=np.int64)
    step = min(_MOST_ROWS, max(1, _MOST_DISTANCES // n_clusters))
    for start in range(0, len(labels), step):
        rows = slice(start, start + step)
        squared = np.zeros((len(labels[rows]), n_clusters))
        for values, centres, weight in scaled:
            squared += weight * _squared_distances(values[rows], centres)
        within = np.arange(len(squared))
        own = np.sqrt(squared[within, labels[rows]])
        squared[within, labels[rows]] = np.inf
        squared[:, counts == 0] = np.inf
        following[rows] = squared.argmin(axis=1)
        other = np.sqrt(squared[within, following[rows]])
        ratio[rows] = np.divide(own, other, out=np.ones_like(own), where=other > 0)
    return Confidence(ratio, following)


def _scaled(
    values: NDArray[np.float64],
    labels: NDArray[np.int64],
    counts: NDArray[np.int64],
    share: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """A view's embedding, the centres of the clusters in it, and its weight."""
    sums = np.stack(
        [np.bincount(labels, weights=column, minlength=len(counts)) for column in values.T], axis=1
    )
    centres = sums / np.maximum(counts, 1)[:, None]
    variance = float(values.var(axis=0).sum())
    return values, centres, share / variance if variance > 0 else 0.0


def _squared_distances(
    values: NDArray[np.float64], centres: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Squared Euclidean distances, (rows, clusters)."""
    products = values @ centres.T
    squared = (values**2).sum(axis=1)[:, None] - 2 * products + (centres**2).sum(axis=1)
    return np.asarray(np.maximum(squared, 0.0))
