"""Newman's modularity of a partition on a weighted graph."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

__all__ = ["modularity"]


def modularity(affinity: csr_array[np.float64], labels: NDArray[np.int64]) -> float:
    """Modularity: share of edge weight inside clusters minus its expectation at the same degrees.

    Parameters
    ----------
    affinity : (n, n) sparse
        Symmetric, nonnegative, diagonal zero.
    labels : (n,) int
        Cluster of each sample, 0 … c−1.

    Returns
    -------
    float
        In [−1/2, 1); 0 for a single cluster and for a graph without edges.

    Notes
    -----
    Q = Σ_c [ W_cc / 2m − (vol_c / 2m)² ], with 2m the sum of all entries. O(nnz) flops.

    References
    ----------
    M. E. J. Newman, "Modularity and community structure in networks", PNAS 103 (2006),
    doi:10.1073/pnas.0601602103.
    """
    total = float(affinity.data.sum())
    if total <= 0.0:
        return 0.0
    degrees: NDArray[np.float64] = np.asarray(affinity.sum(axis=1)).ravel()
    volumes = np.bincount(labels, weights=degrees)
    rows = np.repeat(np.arange(affinity.shape[0]), np.diff(affinity.indptr))
    inside = labels[rows] == labels[affinity.indices]
    within = float(affinity.data[inside].sum())
    return within / total - float(np.sum((volumes / total) ** 2))
