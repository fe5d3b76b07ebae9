"""Merges of clusters by edge weight (a tree), and of connected components by Ward's criterion."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from mscam_dask.linalg.incomplete import IncompleteBlocks, PresentSamples
from mscam_dask.solvers.spectral_cut import canonical_labels


def cluster_tree(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Merge clusters by pair sampling, the most connected first: linkage (c − 1, 4) of SciPy.

    From the symmetric edge weight (c, c), of which one edge is spread evenly over all pairs. The distance of a and b is
    p(a) p(b) / p(a, b), with p(a, b) the probability that a random edge connects them and p(a) that it starts in a.

    T. Bonald, B. Charpentier, A. Galland, A. Hollocou, arXiv:1806.01664.
    """
    c = len(weights)
    joint = weights + 1.0 / c**2
    joint /= joint.sum()
    nodes, sizes = np.arange(c), np.ones(c, dtype=np.int64)
    tree = np.empty((c - 1, 4))
    for merge in range(c - 1):
        start = joint.sum(axis=1)
        distance = np.outer(start, start) / joint
        np.fill_diagonal(distance, np.inf)
        i, j = sorted(divmod(int(np.argmin(distance)), len(joint)))
        size = sizes[i] + sizes[j]
        tree[merge] = (*sorted((nodes[i], nodes[j])), distance[i, j], size)
        joint[i] += joint[j]
        joint[:, i] += joint[:, j]
        joint = np.delete(np.delete(joint, j, axis=0), j, axis=1)
        nodes, sizes = np.delete(nodes, j), np.delete(sizes, j)
        nodes[i], sizes[i] = c + merge, size
    return tree


def ward_merge(
    centroids: NDArray[np.float64], sizes: NDArray[np.float64], n_clusters: int
) -> tuple[NDArray[np.int64], float]:
    """Cluster of each group of samples, merged by Ward's criterion, and the squares that merges add."""
    centroids, sizes = centroids.copy(), sizes.copy()
    merged = np.arange(len(sizes))
    members = [np.array([i]) for i in range(len(sizes))]
    alive = np.ones(len(sizes), dtype=bool)
    # increase of the within-cluster sum of squares when two groups merge
    norms = np.sum(centroids**2, axis=1)
    squared = np.maximum(norms[:, None] + norms - 2.0 * centroids @ centroids.T, 0.0)
    cost = sizes[:, None] * sizes / (sizes[:, None] + sizes) * squared
    np.fill_diagonal(cost, np.inf)
    squares = 0.0
    for _ in range(len(sizes) - n_clusters):
        i, j = sorted(divmod(int(np.argmin(cost)), len(cost)))
        squares += float(cost[i, j])
        total = sizes[i] + sizes[j]
        centroids[i] = (sizes[i] * centroids[i] + sizes[j] * centroids[j]) / total
        sizes[i], alive[j] = total, False
        members[i] = np.concatenate([members[i], members[j]])
        cost[j, :] = cost[:, j] = np.inf
        difference = centroids - centroids[i]
        row = sizes * total / (sizes + total) * np.sum(difference**2, axis=1)
        row[~alive] = np.inf
        row[i] = np.inf
        cost[i, :] = cost[:, i] = row
    for cluster in np.flatnonzero(alive):
        merged[members[cluster]] = cluster
    return merged, squares


def merge_incomplete(
    points: IncompleteBlocks, components: NDArray[np.int64], n_clusters: int
) -> NDArray[np.int64]:
    """Connected components (n,) of a graph of incomplete views, merged to c clusters (n,) by Ward's criterion.

    A component has a centroid in each view that it has samples of. Those without a common view are merged last,
    smallest first.
    """
    labels = components
    while (count := int(labels.max()) + 1) > n_clusters:
        sizes = np.bincount(labels).astype(np.float64)
        squared = _centroids(points, labels, count).distances(np.arange(count), np.arange(count))
        weights = sizes[:, None] * sizes / (sizes[:, None] + sizes)
        cost = weights * np.where(np.isfinite(squared), squared, 0.0)
        # pairs without a common view come after all others
        cost[~np.isfinite(squared)] = weights[~np.isfinite(squared)] + 2.0 * cost.max() + 1.0
        np.fill_diagonal(cost, np.inf)
        i, j = sorted(divmod(int(np.argmin(cost)), count))
        labels = np.unique(np.where(labels == j, i, labels), return_inverse=True)[1]
    return canonical_labels(labels.astype(np.int64))


def _centroids(points: IncompleteBlocks, labels: NDArray[np.int64], count: int) -> IncompleteBlocks:
    """Mean of each cluster in each view that has samples of it."""
    blocks, present = [], []
    for block, own in zip(points.blocks, points.present, strict=True):
        clusters, which = np.unique(labels[own.samples], return_inverse=True)
        sums = np.zeros((len(clusters), block.shape[1]))
        np.add.at(sums, which, block.astype(np.float64))
        blocks.append(sums / np.bincount(which)[:, None])
        present.append(PresentSamples(clusters, count))
    return dataclasses.replace(
        points, n_samples=count, blocks=tuple(blocks), present=tuple(present)
    )
