"""Random split of the edges of a graph into two halves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.linalg.laplacian import symmetric_affinity

__all__ = ["edge_split"]


def edge_split(
    graph: csr_array[np.float64], rng: np.random.Generator
) -> tuple[csr_array[np.float64], csr_array[np.float64]]:
    """Assign each undirected edge of a graph to one of two graphs at random.

    Parameters
    ----------
    graph : (n, n) sparse
        nonnegative, directed or not.
    rng : numpy.random.Generator
        Generator of one random bit per edge.

    Returns
    -------
    two (n, n) CSR
        Symmetric, without an edge in common; their sum is the symmetrised graph without its
        diagonal.
    """
    affinity = symmetric_affinity(graph)
    rows = np.repeat(np.arange(affinity.shape[0]), np.diff(affinity.indptr))
    upper = rows < affinity.indices
    rows, columns = rows[upper], affinity.indices[upper].astype(rows.dtype)
    weights = affinity.data[upper]
    first = rng.random(len(weights)) < 0.5
    n = affinity.shape[0]
    return _symmetric(rows, columns, weights, first, n), _symmetric(
        rows, columns, weights, ~first, n
    )


def _symmetric(
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    weights: NDArray[np.float64],
    taken: NDArray[np.bool_],
    n_samples: int,
) -> csr_array[np.float64]:
    i, j, values = rows[taken], columns[taken], weights[taken]
    both = (np.concatenate((values, values)), (np.concatenate((i, j)), np.concatenate((j, i))))
    matrix: csr_array[np.float64] = csr_array(both, shape=(n_samples, n_samples))
    matrix.sort_indices()
    return matrix
