"""Merges of clusters by edge weight (a tree), and of connected components by Ward's criterion."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from mscam_dask.linalg.distances import sums_by_group
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
    squared_distances: NDArray[np.float64], sizes: NDArray[np.float64], n_clusters: int
) -> tuple[NDArray[np.int64], float]:
    """Cluster of each group of samples, merged by Ward's criterion, and the squares that merges add.

    From squared distances (g, g) of the centroids. Groups at an infinite distance are merged last, smallest first; two
    that merge have the distances to another group that either of them has.

    G. N. Lance, W. T. Williams, doi:10.1093/comjnl/9.4.373.
    """
    sizes = sizes.copy()
    labels, squares = np.arange(len(sizes)), 0.0
    # increase of the within-cluster sum of squares if two groups merge
    cost = sizes[:, None] * sizes / (sizes[:, None] + sizes) * squared_distances
    np.fill_diagonal(cost, np.inf)
    for _ in range(len(sizes) - n_clusters):
        i, j = sorted(divmod(int(np.argmin(cost)), len(cost)))
        if np.isinf(cost[i, j]):
            i, j = sorted(np.argsort(np.where(sizes > 0, sizes, np.inf), kind="stable")[:2])
        added = 0.0 if np.isinf(cost[i, j]) else float(cost[i, j])
        first = np.where(np.isinf(cost[i]), cost[j], cost[i])
        second = np.where(np.isinf(cost[j]), cost[i], cost[j])
        total = sizes[i] + sizes[j] + sizes
        row = ((sizes[i] + sizes) * first + (sizes[j] + sizes) * second - sizes * added) / total
        row[[i, j]] = np.inf
        cost[j] = cost[:, j] = np.inf
        cost[i] = cost[:, i] = row
        sizes[i], sizes[j] = sizes[i] + sizes[j], 0.0
        labels[labels == j] = i
        squares += added
    return labels, squares


def merge_incomplete(
    points: IncompleteBlocks, components: NDArray[np.int64], n_clusters: int
) -> NDArray[np.int64]:
    """Connected components (n,) of a graph of incomplete views, merged to c clusters (n,) by Ward's criterion.

    A component has a centroid in each view that it has samples of.
    """
    sizes = np.bincount(components).astype(np.float64)
    every = np.arange(len(sizes))
    squared = _centroids(points, components, len(sizes)).distances(every, every)
    return canonical_labels(ward_merge(squared, sizes, n_clusters)[0][components])


def _centroids(points: IncompleteBlocks, labels: NDArray[np.int64], count: int) -> IncompleteBlocks:
    """Mean of each cluster in each view that has samples of it."""
    blocks, present = [], []
    for block, own in zip(points.blocks, points.present, strict=True):
        clusters, which = np.unique(labels[own.samples], return_inverse=True)
        sums = sums_by_group(block, which, len(clusters))
        blocks.append(sums / np.bincount(which)[:, None])
        present.append(PresentSamples(clusters, count))
    return dataclasses.replace(
        points, n_samples=count, blocks=tuple(blocks), present=tuple(present)
    )
