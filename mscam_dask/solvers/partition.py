"""Partitions: cutting a spectral embedding, merging the components of a graph."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from mscam_dask.kernels.coordinates import Coordinates, as_coordinates

__all__ = [
    "canonical_labels",
    "cut_embedding",
    "evenness",
    "extend_cut",
    "good_minima",
    "merge_components",
    "sampled_rows",
    "spread_rows",
]

# Enough to find the best minimum but once in a thousand times where a fifth of all starts do.
_RANDOM_STARTS = 30

# Where clusters overlap, sums of squares within a tenth do not tell which minimum is right, and the
# judge may: docs/decisions/0055.
_AS_GOOD = 1.1
_MOST_MINIMA = 10


def canonical_labels(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Renumber labels 0, 1, … by first appearance."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return np.asarray(rank[inverse.ravel()], dtype=np.int64)


def cut_embedding(
    vectors: NDArray[np.floating[Any]],
    *,
    known: NDArray[np.int64] | None = None,
    rng: np.random.Generator | None = None,
) -> list[NDArray[np.int64]]:
    """Partitions of the rows of a spectral embedding into as many clusters as columns.

    Parameters
    ----------
    vectors : (n, c)
        Orthonormal bottom eigenvectors of a Laplacian.
    known : (n,) int64, optional
        A partition into c clusters to start from as well, as the best of a similar graph.
    rng : numpy.random.Generator, optional
        For random starts; none are made without it.

    Returns
    -------
    list of (n,) int64
        Local minima of k-means on the rows and on the unit rows: from the pivoted-QR assignment,
        from `known`, and the best of several random starts. No cluster is empty.

    Notes
    -----
    Pivoted QR of Vᵀ picks c mutually most independent samples as prototypes: the result does
    not depend on the basis chosen within span(V) nor, up to exact ties, on the order of the
    samples; neither do the random starts. The pivots are taken on the rows as they are: unit
    rows tie for the first, and rounding would choose. Where clusters overlap it may end in a
    poor minimum, hence the other starts; which partition is taken is for the label-free judge
    to say.

    References
    ----------
    A. Damle, V. Minden, L. Ying, "Simple, direct and efficient multi-way spectral clustering",
    Information and Inference 8 (2019), doi:10.1093/imaiai/iay008.
    """
    embedded = np.asarray(vectors, dtype=np.float64)
    both = (embedded, _unit_rows(embedded))
    start = _qr_assignment(embedded)
    cuts = [_lloyd(rows, start) for rows in both]
    if known is not None:
        cuts += [_lloyd(rows, known) for rows in both]
    if rng is not None:
        seed = int(rng.integers(2**31))
        order = _own_order(embedded)
        cuts += [_random_starts(rows, order, seed) for rows in both]
    return cuts


def good_minima(
    vectors: NDArray[np.floating[Any]], *, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """All partitions of a spectral embedding that k-means finds about as good as the best.

    Parameters
    ----------
    vectors : (n, c)
        Orthonormal bottom eigenvectors of a Laplacian.
    rng : numpy.random.Generator
        For thirty random starts on the rows and on the unit rows.

    Returns
    -------
    list of (n,) int64
        Different local minima of either, those with a sum of squares up to a tenth above the
        least, ten at most of each.
    """
    embedded = np.asarray(vectors, dtype=np.float64)
    seed, order = int(rng.integers(2**31)), _own_order(embedded)
    unit = _unit_rows(embedded)
    return [cut for rows in (embedded, unit) for cut in _minima(rows, order, seed)]


def evenness(labels: NDArray[np.int64], n_clusters: int) -> float:
    """Entropy of a partition over that of c ≥ 2 equal clusters: 1 when they are equal, 0 for one."""
    shares = np.bincount(labels) / len(labels)
    shares = shares[shares > 0]
    return float(-np.sum(shares * np.log(shares)) / np.log(n_clusters))


def sampled_rows(n_samples: int, n_wanted: int) -> NDArray[np.int64]:
    """Ascending rows of a sample without replacement, seeded by the two numbers alone."""
    rng = np.random.default_rng((n_samples, n_wanted))
    return np.sort(rng.choice(n_samples, min(n_wanted, n_samples), replace=False)).astype(np.int64)


def spread_rows(n_samples: int, n_wanted: int) -> NDArray[np.int64]:
    """At most `n_wanted` evenly spaced rows."""
    return np.arange(0, n_samples, -(-n_samples // n_wanted), dtype=np.int64)


def extend_cut(
    vectors: NDArray[np.floating[Any]], rows: NDArray[np.int64], labels: NDArray[np.int64]
) -> NDArray[np.int64]:
    """A cut of some rows of an embedding, extended to all by the nearest mean direction.

    Parameters
    ----------
    vectors : (n, c)
    rows : (m,) int64
        Rows that were cut.
    labels : (m,) int64
        Their clusters 0 … c−1, none empty.

    Returns
    -------
    (n,) int64
        No cluster is empty. One pass over the rows.
    """
    c = vectors.shape[1]
    unit = _unit_rows(vectors)
    sums = np.zeros((c, c))
    np.add.at(sums, labels, unit[rows])
    means = sums / np.bincount(labels, minlength=c)[:, None]
    nearest = np.argmin(np.sum(means**2, axis=1) - 2.0 * (unit @ means.T), axis=1)
    return canonical_labels(_fill_empty(unit, nearest.astype(np.int64), c))


def _unit_rows(rows: NDArray[Any]) -> NDArray[Any]:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1.0))


def _own_order(vectors: NDArray[np.float64]) -> NDArray[np.intp]:
    """Rows by leverage, which no rotation of the basis changes.

    The order that a seed draws from is then the samples' own, not that in which they came.
    """
    return np.argsort(np.linalg.norm(vectors, axis=1), kind="stable")


def _random_starts(
    rows: NDArray[np.float64], order: NDArray[np.intp], seed: int
) -> NDArray[np.int64]:
    """Best of several k-means++ starts, drawn from the rows in this order, by the sum of squares."""
    return _drawn_in(order, rows[order], n_init=_RANDOM_STARTS, seed=seed)[0]


def _minima(
    rows: NDArray[np.float64], order: NDArray[np.intp], seed: int
) -> list[NDArray[np.int64]]:
    """Where k-means++ starts end, drawn from the rows in this order: the least sums of squares."""
    found: dict[bytes, tuple[NDArray[np.int64], float]] = {}
    ordered = rows[order]
    for one in np.random.RandomState(seed).randint(2**31 - 1, size=_RANDOM_STARTS):
        minimum = _drawn_in(order, ordered, n_init=1, seed=one)
        found.setdefault(minimum[0].tobytes(), minimum)
    best = sorted(found.values(), key=lambda minimum: minimum[1])[:_MOST_MINIMA]
    return [labels for labels, squares in best if squares <= _AS_GOOD * best[0][1]]


def _drawn_in(
    order: NDArray[np.intp], ordered: NDArray[np.float64], *, n_init: int, seed: int
) -> tuple[NDArray[np.int64], float]:
    """Best of some k-means++ starts, drawn from rows put in an order, and its sum of squares."""
    model = KMeans(ordered.shape[1], n_init=n_init, max_iter=100, tol=0.0, random_state=seed)
    labels = np.empty(len(ordered), dtype=np.int64)
    labels[order] = _labels(model, ordered)
    return canonical_labels(labels), float(model.inertia_)


def _qr_assignment(rows: NDArray[np.float64]) -> NDArray[np.int64]:
    c = rows.shape[1]
    _, _, pivots = scipy.linalg.qr(rows.T, mode="economic", pivoting=True)
    prototypes = rows[pivots[:c]]
    left, _, right = scipy.linalg.svd(prototypes.T, full_matrices=False)
    return np.asarray(np.argmax(np.abs(rows @ (left @ right)), axis=1), dtype=np.int64)


def _lloyd(rows: NDArray[np.float64], start: NDArray[np.int64]) -> NDArray[np.int64]:
    """Lloyd's iterations from an assignment."""
    c = rows.shape[1]
    start = _fill_empty(rows, start, c)
    centers = np.stack([rows[start == cluster].mean(axis=0) for cluster in range(c)])
    return _labels(KMeans(n_clusters=c, init=centers, n_init=1, max_iter=100, tol=0.0), rows)


def _labels(model: KMeans, rows: NDArray[np.float64]) -> NDArray[np.int64]:
    with warnings.catch_warnings():
        # fewer distinct rows than clusters: the empty ones are filled below
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = model.fit_predict(rows).astype(np.int64)
    return canonical_labels(_fill_empty(rows, labels, model.n_clusters))


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
    anchors: NDArray[np.float64] | Coordinates, components: NDArray[np.int64], n_clusters: int
) -> NDArray[np.int64]:
    """Ward agglomeration of graph components down to c clusters.

    Parameters
    ----------
    anchors : (n, Σr) or Coordinates
        Anchor space of all views.
    components : (n,) int64
        More than c components.
    n_clusters : int
        c.

    Returns
    -------
    (n,) int64

    Notes
    -----
    The components' centroids enter with their sizes: Ward's update on the condensed distances
    √(2 n_i n_j / (n_i + n_j)) ‖m_i − m_j‖ is exact for pre-clustered samples. Every merge is
    one of whole components.
    """
    sizes = np.bincount(components).astype(np.float64)
    centroids = as_coordinates(anchors).means(components, sizes)
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
    return canonical_labels(merged[components].astype(np.int64))


def _ward_costs(centroids: NDArray[np.float64], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Increase of the within-cluster sum of squares when two groups merge; ∞ on the diagonal."""
    norms = np.sum(centroids**2, axis=1)
    squared = np.maximum(norms[:, None] + norms - 2.0 * centroids @ centroids.T, 0.0)
    cost = sizes[:, None] * sizes / (sizes[:, None] + sizes) * squared
    np.fill_diagonal(cost, np.inf)
    return np.asarray(cost, dtype=np.float64)
