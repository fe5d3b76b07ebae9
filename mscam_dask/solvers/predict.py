"""Prediction of clusters for new samples, by neighbors and by propagation on a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.linalg.distances import squared_distances
from mscam_dask.linalg.incomplete_blocks import with_finite_distances
from mscam_dask.solvers.graph_update import adaptive_neighbor_weights

__all__ = ["extend_labels", "predict_by_neighbors"]

# Bytes of the distances of one block of queries to one block of training samples.
_BLOCK_BYTES = 16 * 2**20

_Distances = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]


def predict_by_neighbors(
    queries: NDArray[np.float64],
    candidate_blocks: Iterable[tuple[int, NDArray[np.float64]]],
    labels: NDArray[np.int64],
    *,
    n_neighbors: int,
    distances_between: _Distances = squared_distances,
    block_bytes: int = _BLOCK_BYTES,
) -> NDArray[np.int64]:
    """Cluster of each query: the one with the largest sum of adaptive-neighbor weights.

    Parameters
    ----------
    queries : (m, Σr)
        Joint ridge embedding of the new samples.
    candidate_blocks : iterable of (start, (b, Σr))
        Joint ridge embedding of the training samples, in consecutive blocks.
    labels : (n,) int64
        Clusters of the training samples.
    n_neighbors : int
        k; at most the number of training samples is used.
    distances_between : callable
        Squared distances (a, b) of queries to training samples; infinite without a common view.
    block_bytes : int
        Bytes of the distances that are held at a time.

    Returns
    -------
    (m,) int64

    Notes
    -----
    The weights are the row of A by Eq. (29) for the query and the training samples; the fit does
    not change. O(m n Σr) flops, memory of a few blocks. Ties go to the lower cluster number.
    """
    m, n = len(queries), len(labels)
    wanted = min(n_neighbors + 1, n)
    nearest = np.full((m, wanted), np.inf)
    indices = np.full((m, wanted), n, dtype=np.int64)
    for start, block in candidate_blocks:
        positions = np.arange(start, start + len(block), dtype=np.int64)
        step = max(1, block_bytes // (8 * (wanted + len(block))))
        for first in range(0, m, step):
            rows = slice(first, min(first + step, m))
            distances = np.hstack([nearest[rows], distances_between(queries[rows], block)])
            shape = (rows.stop - rows.start, len(block))
            pool = np.hstack([indices[rows], np.broadcast_to(positions, shape)])
            order = np.lexsort((pool, distances), axis=-1)[:, :wanted]
            nearest[rows] = np.take_along_axis(distances, order, axis=1)
            indices[rows] = np.take_along_axis(pool, order, axis=1)
    if wanted == 1:
        return np.asarray(labels[indices[:, 0]], dtype=np.int64)
    weights = adaptive_neighbor_weights(with_finite_distances(nearest))
    votes = np.zeros((m, int(labels.max()) + 1))
    np.add.at(votes, (np.arange(m)[:, None], labels[indices[:, :-1]]), weights)
    return np.asarray(np.argmax(votes, axis=1), dtype=np.int64)


def extend_labels(
    affinity: csr_array[np.float64], init_labels: NDArray[np.int64], n_clusters: int
) -> NDArray[np.int64]:
    """Propagate labels on a graph to the samples without one (−1).

    Parameters
    ----------
    affinity : (n, n) CSR
        A, rows on the simplex, for example from the data distances alone.
    init_labels : (n,) int64
        Cluster 0 … c−1 of each sample, −1 if it has none; at least one is known.
    n_clusters : int
        c.

    Returns
    -------
    (n,) int64
        Numbered as in `init_labels`. A sample joins the cluster with the largest weight of its edges to
        labeled samples; ties go to the lower number. Samples without such an edge are labeled in a
        later round. Components without a labeled sample join the largest cluster.

    Notes
    -----
    O(nnz(A)) per round; the number of rounds is the longest path of new samples.
    """
    labels = init_labels.copy()
    assert (labels >= 0).any(), "nothing to extend"
    weights = (affinity + affinity.T).tocsr()
    while (waiting := np.flatnonzero(labels < 0)).size:
        has_one = np.flatnonzero(labels >= 0)
        members = csr_array(
            (np.ones(has_one.size), (has_one, labels[has_one])), shape=(len(labels), n_clusters)
        )
        votes = (weights[waiting] @ members).toarray()
        decided = votes.max(axis=1) > 0.0
        if not decided.any():
            labels[waiting] = np.argmax(np.bincount(labels[has_one], minlength=n_clusters))
            break
        labels[waiting[decided]] = np.argmax(votes[decided], axis=1)
    return labels
