"""Partitions: spectral cuts of a graph, and Ward merges of its connected components."""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

import numpy as np
import scipy.cluster.hierarchy
import scipy.linalg
from numpy.typing import NDArray
from scipy.spatial.distance import pdist

from mscam_dask.linalg.distances import WeightedBlocks, as_weighted_blocks
from mscam_dask.linalg.incomplete_blocks import IncompleteBlocks, PresentSamples
from mscam_dask.linalg.k_means import k_means_starts, least, lloyd
from mscam_dask.solvers.spectral_embedding import SpectralEmbedding
from mscam_dask.types.rules import RULES, SIZES

__all__ = [
    "Minimum",
    "as_good_minima",
    "canonical_labels",
    "cluster_means",
    "drawn_starts",
    "extend_cut",
    "good_minima",
    "merge_components",
    "nearest_mean",
    "random_minima",
    "sampled_rows",
    "spectral_cut",
    "spread_rows",
    "start_minima",
    "ward_merge",
]

_SQUARES = operator.itemgetter(1)


def canonical_labels(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Labels renumbered 0, 1, … by first appearance."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return np.asarray(rank[inverse.ravel()], dtype=np.int64)


def spectral_cut(
    embedding: SpectralEmbedding,
    *,
    known: NDArray[np.int64] | None = None,
    rng: np.random.Generator | None = None,
    drawn: list[Minimum] | None = None,
) -> list[NDArray[np.int64]]:
    """Solve k-means on the rows of a spectral embedding, with as many clusters as eigenvectors.

    Parameters
    ----------
    embedding : SpectralEmbedding
        Embedding of n samples, with c eigenvectors.
    known : (n,) int64, optional
        A partition into c clusters as a further start, for example the best one of a similar graph.
    rng : numpy.random.Generator, optional
        Generator of thirty random starts.
    drawn : list of Minimum, optional
        Random starts that were solved already, from `drawn_starts`, in the place of `rng`. Without both
        there are none.

    Returns
    -------
    list of (n,) int64
        Local minima of k-means: the one reached from `known`, and the one with the least sum of
        squares from the pivoted-QR assignment and several random starts. No cluster is empty.

    Notes
    -----
    Pivoted QR of Vᵀ selects c mutually most independent samples as prototypes. The result depends
    neither on the basis of span(V) nor, up to exact ties, on the order of the samples; the same
    holds for the random starts. The pivots use the rows of V without scaling to unit length, which
    would tie all of them for the first pivot. If clusters overlap, this start may end in a poor
    minimum, hence the random starts. Where clusters have fewer than two samples on average, their place
    is taken by one start from Ward's merges: a random start costs c distances from all samples, and
    leaves out samples at random rather than those nearest to others.

    References
    ----------
    A. Damle, V. Minden, L. Ying, "Simple, direct and efficient multi-way spectral clustering",
    Information and Inference 8 (2019), doi:10.1093/imaiai/iay008.
    """
    vectors, rows = _in_double(embedding)
    c = vectors.shape[1]
    best = _lloyd(rows, _qr_assignment(vectors), c)
    if rng is not None:
        drawn = drawn_starts(embedding, int(rng.integers(2**31)))
    if drawn is not None:
        order = _own_order(vectors)
        best = min(best, _in_data_order(order, rows[order], *least(drawn, c), c), key=_SQUARES)
    cuts = [] if known is None else [_lloyd(rows, known, c)]
    return [labels for labels, _ in (*cuts, best)]


def good_minima(
    embedding: SpectralEmbedding, *, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Local minima of k-means on a spectral embedding that are nearly as good as the best.

    Parameters
    ----------
    embedding : SpectralEmbedding
        Embedding of n samples, with c eigenvectors.
    rng : numpy.random.Generator
        Generator of thirty random starts.

    Returns
    -------
    list of (n,) int64
        At most ten distinct local minima, with a sum of squares at most a tenth above the least; one
        where clusters have fewer than two samples on average.
    """
    return as_good_minima(random_minima(embedding, int(rng.integers(2**31))))


Minimum = tuple[NDArray[np.int64], float]
"""Partition at a local minimum of k-means, and its sum of squares."""


def drawn_starts(
    embedding: SpectralEmbedding, seed: int, starts: range = range(SIZES.n_random_starts)
) -> list[Minimum]:
    """Local minima of k-means from some of the thirty random starts of `spectral_cut`.

    Samples are ordered by leverage, and clusters may be empty. Where clusters have fewer than two
    samples on average, the one from Ward's merges.
    """
    vectors, rows = _in_double(embedding)
    c = vectors.shape[1]
    ordered = rows[_own_order(vectors)]
    if len(rows) < 2 * c:
        return [_merged(ordered, c)]
    return k_means_starts(ordered, c, seed, starts)


def random_minima(
    embedding: SpectralEmbedding, seed: int, starts: range = range(SIZES.n_random_starts)
) -> list[Minimum]:
    """Local minima of k-means from some of the thirty random starts that belong to a seed.

    Where clusters have fewer than two samples on average, the one from Ward's merges.
    """
    vectors, rows = _in_double(embedding)
    c = vectors.shape[1]
    order = _own_order(vectors)
    ordered = rows[order]
    if len(rows) < 2 * c:
        return [_in_data_order(order, ordered, *_merged(ordered, c), c)]
    seeds = np.random.RandomState(seed).randint(2**31 - 1, size=SIZES.n_random_starts)
    return [
        _in_data_order(order, ordered, *k_means_starts(ordered, c, seeds[start], range(1))[0], c)
        for start in starts
    ]


def as_good_minima(minima: list[Minimum]) -> list[NDArray[np.int64]]:
    """Distinct partitions with a sum of squares at most a tenth above the least, best first, at most ten."""
    found: dict[bytes, Minimum] = {}
    for minimum in minima:
        found.setdefault(minimum[0].tobytes(), minimum)
    best = sorted(found.values(), key=_SQUARES)[: SIZES.max_cuts]
    return [labels for labels, squares in best if squares <= RULES.near_optimal * best[0][1]]


def start_minima(
    embedding: SpectralEmbedding, known: NDArray[np.int64] | None
) -> tuple[Minimum, Minimum | None]:
    """Local minima of k-means from the pivoted-QR assignment, and from a known partition if there is one."""
    vectors, rows = _in_double(embedding)
    c = vectors.shape[1]
    from_known = None if known is None else _lloyd(rows, known, c)
    return _lloyd(rows, _qr_assignment(vectors), c), from_known


def cluster_means(embedding: SpectralEmbedding, labels: NDArray[np.int64]) -> NDArray[Any]:
    """Mean row (c, m) of each cluster, in the precision of the embedding."""
    rows, c = embedding.rows, embedding.vectors.shape[1]
    sums = np.zeros((c, rows.shape[1]))
    np.add.at(sums, labels, rows)
    return np.asarray((sums / np.bincount(labels, minlength=c)[:, None]).astype(rows.dtype))


def nearest_mean(rows: NDArray[Any], means: NDArray[Any]) -> NDArray[np.int64]:
    """Cluster with the nearest mean for each row."""
    nearest = np.argmin(np.sum(means**2, axis=1) - 2.0 * (rows @ means.T), axis=1)
    return np.asarray(nearest, dtype=np.int64)


def sampled_rows(n_samples: int, n_wanted: int) -> NDArray[np.int64]:
    """Ascending rows of a random sample without replacement, which depends only on the two numbers."""
    rng = np.random.default_rng((n_samples, n_wanted))
    return np.sort(rng.choice(n_samples, min(n_wanted, n_samples), replace=False)).astype(np.int64)


def spread_rows(n_samples: int, n_wanted: int) -> NDArray[np.int64]:
    """At most `n_wanted` evenly spaced rows."""
    return np.arange(0, n_samples, -(-n_samples // n_wanted), dtype=np.int64)


def extend_cut(
    embedding: SpectralEmbedding, samples: NDArray[np.int64], labels: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Extend a cut of some rows of an embedding to all rows, by the nearest cluster mean.

    Parameters
    ----------
    embedding : SpectralEmbedding
        Embedding of n samples, with c eigenvectors.
    samples : (m,) int64
        Rows that were cut.
    labels : (m,) int64
        Their clusters 0 … c−1, none empty.

    Returns
    -------
    (n,) int64
        No cluster is empty.
    """
    rows, c = embedding.rows, embedding.vectors.shape[1]
    nearest = nearest_mean(rows, cluster_means(embedding.of(samples), labels))
    return canonical_labels(_fill_empty(rows, nearest, c))


def _in_double(embedding: SpectralEmbedding) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.asarray(embedding.vectors, np.float64), np.asarray(embedding.rows, np.float64)


def _own_order(vectors: NDArray[np.float64]) -> NDArray[np.intp]:
    """Order of the rows by leverage, which is invariant under rotations of the basis.

    Random starts drawn in this order do not depend on the order of the samples in the data.
    """
    return np.argsort(np.linalg.norm(vectors, axis=1), kind="stable")


def _in_data_order(
    order: NDArray[np.intp],
    ordered: NDArray[np.float64],
    found: NDArray[np.int64],
    squares: float,
    n_clusters: int,
) -> Minimum:
    """Minimum of ordered rows in the order of the data, without empty clusters."""
    labels = np.empty(len(ordered), dtype=np.int64)
    labels[order] = canonical_labels(_fill_empty(ordered, found, n_clusters))
    return canonical_labels(labels), squares


def _merged(ordered: NDArray[np.float64], n_clusters: int) -> Minimum:
    """Partition that Lloyd's iterations reach from Ward's merges of ordered rows, and its sum of squares."""
    n = len(ordered)
    clusters = {i: [i] for i in range(n)}
    if n > n_clusters:
        tree = scipy.cluster.hierarchy.linkage(pdist(ordered), method="ward")
        merges = tree[: n - n_clusters, :2].astype(np.int64).tolist()
        for node, (first, second) in enumerate(merges, start=n):
            clusters[node] = clusters.pop(first) + clusters.pop(second)
    start = np.empty(n, dtype=np.int64)
    for cluster, members in enumerate(clusters.values()):
        start[members] = cluster
    return _lloyd(ordered, start, n_clusters)


def _qr_assignment(rows: NDArray[np.float64]) -> NDArray[np.int64]:
    c = rows.shape[1]
    _, _, pivots = scipy.linalg.qr(rows.T, mode="economic", pivoting=True)
    prototypes = rows[pivots[:c]]
    left, _, right = scipy.linalg.svd(prototypes.T, full_matrices=False)
    return np.asarray(np.argmax(np.abs(rows @ (left @ right)), axis=1), dtype=np.int64)


def _lloyd(
    rows: NDArray[np.float64], start: NDArray[np.int64], n_clusters: int
) -> tuple[NDArray[np.int64], float]:
    """Partition that Lloyd's iterations reach from an assignment, and its sum of squares."""
    start = _fill_empty(rows, start, n_clusters)
    centers = np.stack([rows[start == cluster].mean(axis=0) for cluster in range(n_clusters)])
    labels, squares = lloyd(rows, centers)
    return canonical_labels(_fill_empty(rows, labels, n_clusters)), squares


def _fill_empty(
    rows: NDArray[np.float64], labels: NDArray[np.int64], n_clusters: int
) -> NDArray[np.int64]:
    """Give each empty cluster the sample farthest from its own centroid, largest cluster first."""
    labels = labels.copy()
    for empty in np.flatnonzero(np.bincount(labels, minlength=n_clusters) == 0):
        largest = np.argmax(np.bincount(labels, minlength=n_clusters))
        members = np.flatnonzero(labels == largest)
        offsets = rows[members] - rows[members].mean(axis=0)
        labels[members[np.argmax(np.sum(offsets**2, axis=1))]] = empty
    return labels


def merge_components(
    anchors: NDArray[np.float64] | WeightedBlocks | IncompleteBlocks,
    components: NDArray[np.int64],
    n_clusters: int,
) -> NDArray[np.int64]:
    """Merge the connected components of a graph into c clusters by Ward's criterion.

    Parameters
    ----------
    anchors : (n, Σr), WeightedBlocks or IncompleteBlocks
        Joint ridge embedding.
    components : (n,) int64
        Component of each sample; more than c of them.
    n_clusters : int
        c.

    Returns
    -------
    (n,) int64

    Notes
    -----
    The centroids are weighted by the sizes of the components, so Ward's update on the distances
    √(2 n_i n_j / (n_i + n_j)) ‖m_i − m_j‖ is exact. Only whole components are merged. In incomplete
    views a component has a centroid in each view that it has samples of, and components without a
    common view are merged last, the smallest first.
    """
    if isinstance(anchors, IncompleteBlocks):
        return _merge_incomplete(anchors, components, n_clusters)
    sizes = np.bincount(components).astype(np.float64)
    centroids = as_weighted_blocks(anchors).means(components, sizes)
    merged = ward_merge(centroids, sizes, n_clusters)
    return canonical_labels(merged[components].astype(np.int64))


def ward_merge(
    centroids: NDArray[np.float64], sizes: NDArray[np.float64], n_clusters: int
) -> NDArray[np.int64]:
    """Cluster of each group of samples, merged by Ward's criterion from their centroids and sizes."""
    centroids, sizes = centroids.copy(), sizes.copy()
    merged = np.arange(len(sizes))
    members = [np.array([i]) for i in range(len(sizes))]
    alive = np.ones(len(sizes), dtype=bool)
    cost = _ward_costs(centroids, sizes)
    for _ in range(len(sizes) - n_clusters):
        i, j = sorted(divmod(int(np.argmin(cost)), len(cost)))
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
    return merged


def _merge_incomplete(
    points: IncompleteBlocks, components: NDArray[np.int64], n_clusters: int
) -> NDArray[np.int64]:
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


def _ward_costs(centroids: NDArray[np.float64], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Increase of the within-cluster sum of squares when two groups merge; ∞ on the diagonal."""
    norms = np.sum(centroids**2, axis=1)
    squared = np.maximum(norms[:, None] + norms - 2.0 * centroids @ centroids.T, 0.0)
    cost = sizes[:, None] * sizes / (sizes[:, None] + sizes) * squared
    np.fill_diagonal(cost, np.inf)
    return np.asarray(cost, dtype=np.float64)
