"""Neighbor overlap: shared nearest neighbors of views, corrected for chance."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

__all__ = ["neighbor_counts", "shared_neighbors"]


def neighbor_counts(neighbors: NDArray[np.integer[Any]], n_samples: int) -> csr_array[np.float64]:
    """Directed graph of neighbor lists, with weight one on each edge.

    Parameters
    ----------
    neighbors : (n, k) int
        Distinct neighbors of each sample; −1 in the rows of samples that have none.
    n_samples : int
        n.

    Returns
    -------
    (n, n) CSR of ones
    """
    k = neighbors.shape[1]
    rows = np.arange(0, n_samples * k + 1, k)
    columns = np.sort(neighbors, axis=1).ravel()  # a copy: another thread reads the same lists
    if columns.size and columns.min() < 0:
        counts = np.where(neighbors[:, 0] >= 0, k, 0)
        columns, rows = columns[columns >= 0], np.concatenate(([0], np.cumsum(counts)))
        return csr_array((np.ones(len(columns)), columns, rows), shape=(n_samples, n_samples))
    return csr_array((np.ones(neighbors.size), columns, rows), shape=(n_samples, n_samples))


def shared_neighbors(
    neighbors: NDArray[np.integer[Any]], others: csr_array[np.float64]
) -> NDArray[np.float64]:
    """Neighbor overlap of each sample: weight of its neighbors in the other views, minus chance.

    Parameters
    ----------
    neighbors : (n, k) int
        Neighbors of each sample in one view; −1 in the rows of samples that have none.
    others : (n, n) sparse
        Neighbor graphs of the other views, summed; rows with equal sums.

    Returns
    -------
    (m,)
        For each of the m samples with neighbors, (1/k) Σ_{j ∈ N(i)} (B_ij − Σ_l B_lj / n). Its mean
        is zero for neighbors that are independent of B, however often some samples (hubs) are
        neighbors in both.

    Notes
    -----
    O(n k log k) flops.

    References
    ----------
    The chance term follows L. Hubert, P. Arabie, "Comparing partitions", J. Classification 2
    (1985), doi:10.1007/BF01908075, with the in-degrees of both graphs held fixed.
    """
    n, k = neighbors.shape
    popularity: NDArray[np.float64] = np.asarray(others.sum(axis=0)).ravel() / n
    given: NDArray[np.float64] = neighbor_counts(neighbors, n).multiply(others).sum(axis=1)
    expected = popularity[neighbors].sum(axis=1)
    shares = np.asarray((np.asarray(given).ravel() - expected) / k, dtype=np.float64)
    has_neighbors = neighbors[:, 0] >= 0
    return shares if has_neighbors.all() else shares[has_neighbors]
