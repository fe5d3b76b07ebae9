"""Known labels of some samples: links and walks in the graph, their clusters in a partition, and how many it misses.

Samples of one class are must-linked, and those of two classes cannot-linked. Classes have the numbers 0 … q − 1,
−1 is unknown. Each class is matched with a cluster of its own so that most known samples are in the cluster of their
class (H. W. Kuhn, doi:10.1002/nav.3800020109).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator, cg

from mscam_dask.linalg.laplacian import symmetric_product
from mscam_dask.types.rules import CONSTANTS

UNKNOWN = -1
_TOLERANCE = 1e-6  # of the probabilities that a walk ends in a cluster


def clusters_of_classes(
    labels: NDArray[np.int64], known: NDArray[np.int64], n_clusters: int
) -> NDArray[np.int64]:
    """Solve the assignment of each class (q,) to a cluster of its own with the most known samples."""
    rows = np.flatnonzero(known >= 0)
    counts = np.zeros((int(known.max()) + 1, n_clusters), dtype=np.int64)
    np.add.at(counts, (known[rows], labels[rows]), 1)
    return np.asarray(linear_sum_assignment(counts, maximize=True)[1], dtype=np.int64)


def n_missed(labels: NDArray[np.int64], known: NDArray[np.int64]) -> int:
    """Number of known samples outside of the cluster of their class."""
    n_clusters = max(int(labels.max()), int(known.max())) + 1
    rows = np.flatnonzero(known >= 0)
    clusters = clusters_of_classes(labels, known, n_clusters)
    return int(np.count_nonzero(clusters[known[rows]] != labels[rows]))


def are_enough(known: NDArray[np.int64], n_clusters: int) -> bool:
    """Whether known samples can tell partitions apart: those beyond one of each class, which the match uses, are more than the clusters."""
    n_classes = int(known.max()) + 1
    return int(np.count_nonzero(known >= 0)) - n_classes > n_clusters


def with_known(
    labels: NDArray[np.int64], known: NDArray[np.int64], n_clusters: int
) -> NDArray[np.int64]:
    """Partition (n,) with each known sample in the cluster of its class; a cluster left empty gets an unknown one of the largest."""
    rows = np.flatnonzero(known >= 0)
    found = labels.astype(np.int64)
    found[rows] = clusters_of_classes(labels, known, n_clusters)[known[rows]]
    for empty in np.flatnonzero(np.bincount(found, minlength=n_clusters) == 0):
        sizes = np.bincount(found, minlength=n_clusters)
        sizes[np.bincount(found[known < 0], minlength=n_clusters) == 0] = 0
        found[np.flatnonzero((found == sizes.argmax()) & (known < 0))[-1]] = empty
    return found


def ends_of_walks(
    blocks: Sequence[csr_array[np.float64]],
    labels: NDArray[np.int64],
    known: NDArray[np.int64],
    n_clusters: int,
) -> NDArray[np.int64]:
    """Cluster (n,) in which a random walk from each sample most probably ends: it stops at a rate τ, and at known samples.

    Solves min_F tr FᵀLF + τ ‖F − Y‖² on a graph of blocks of rows (m, n), with the indicators Y (n, c) of a partition, and
    F = Y at the known samples, which are in the cluster of their class. The partition stays if a cluster has none: others
    would take its samples.

    X. Zhu, Z. Ghahramani, J. Lafferty, "Semi-supervised learning using Gaussian fields and harmonic functions", ICML 2003, section 4.
    """
    rate = 1.0 / CONSTANTS.validation_neighbors  # as a neighbor: the weights of all are one
    is_known = known >= 0
    if is_known.all() or len({*labels[is_known].tolist()}) < n_clusters:
        return labels
    free = np.flatnonzero(~is_known)
    diagonal = rate + symmetric_product(blocks, np.ones(len(labels)))

    def product(ends: NDArray[np.float64]) -> NDArray[np.float64]:
        values = np.zeros(len(labels))
        values[free] = ends
        return np.asarray((diagonal * values - symmetric_product(blocks, values))[free])

    matrix = LinearOperator((free.size, free.size), matvec=product, dtype=np.float64)
    found, largest = labels.copy(), np.full(free.size, -np.inf)
    for cluster in range(n_clusters):
        own = (labels == cluster).astype(np.float64)
        right = rate * own + symmetric_product(blocks, own * is_known)
        ends, _ = cg(matrix, right[free], rtol=_TOLERANCE)
        found[free[ends > largest]] = cluster
        largest = np.maximum(largest, ends)
    return found


# links in the graph ----------------------------------------------------------------------------


def with_links(
    indices: NDArray[Any],
    squared_distances: NDArray[np.float64],
    known: NDArray[np.int64],
    row_start: int,
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Candidate neighbors (m, K + 1) and distances of a block of rows under the links of known samples.

    Cannot-linked candidates are as far as the farthest, where weights are 0. The first sample of a class is a candidate
    of the others at distance 0: a star of must-links.
    """
    m = len(indices)
    rows, own = np.arange(row_start, row_start + m), known[row_start : row_start + m]
    classes, firsts = np.unique(known, return_index=True)
    first = firsts[np.searchsorted(classes, own)]
    centers = np.where((own < 0) | (first == rows), UNKNOWN, first)[:, None].astype(indices.dtype)
    farthest = np.where(indices < 0, 0.0, squared_distances).max(axis=1, keepdims=True)
    are_linked = ~are_cannot_linked(indices, known, row_start)
    distances = np.where(are_linked, squared_distances, farthest)
    is_center = (indices == centers) & (centers >= 0)  # it is a candidate already
    distances[is_center] = 0.0
    centers[is_center.any(axis=1)] = UNKNOWN
    if (centers < 0).all():
        return indices, distances
    return np.hstack([indices, centers]), np.hstack([distances, np.zeros((m, 1))])


def are_cannot_linked(
    indices: NDArray[Any], known: NDArray[np.int64], row_start: int
) -> NDArray[np.bool_]:
    """Whether each neighbor (m, K) of a block of rows is known to be in another class than the row."""
    own = known[row_start : row_start + len(indices), None]
    others = np.where(indices < 0, UNKNOWN, known[indices])
    return _differ(own, others)


def _differ(classes: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether both classes are known, and are not the same."""
    return np.asarray((classes >= 0) & (others >= 0) & (classes != others))


def without_cannot_links(
    affinity: csr_array[np.float64], known: NDArray[np.int64]
) -> csr_array[np.float64]:
    """Graph (n, n) without edges between classes, rows again on the simplex."""
    graph = affinity.copy()
    rows = np.repeat(np.arange(len(known)), np.diff(graph.indptr))
    graph.data[_differ(known[rows], known[graph.indices])] = 0.0
    graph.eliminate_zeros()
    sums: NDArray[np.float64] = np.asarray(graph.sum(axis=1))
    graph.data /= np.repeat(np.where(sums > 0.0, sums, 1.0), np.diff(graph.indptr))
    return graph
