"""Graphs as sparse matrices: affinity, Laplacian, connected components, split of the edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csgraph, csr_array, diags_array, get_index_dtype


def graph_from_neighbors(
    indices: NDArray[np.integer[Any]], weights: NDArray[np.float64], n_columns: int | None = None
) -> csr_array[np.float64]:
    """Rows (m, n) of a directed graph from distinct neighbors and weights (m, k); all by default."""
    order = np.argsort(indices, axis=1)
    values = np.take_along_axis(weights, order, axis=1)
    stored = values > 0
    # 32 bits halve the memory traffic of every product
    index_dtype = get_index_dtype(maxval=max(n_columns or 0, weights.size))
    pointers = np.concatenate(([0], np.cumsum(np.count_nonzero(stored, axis=1))))
    columns = np.take_along_axis(indices, order, axis=1)[stored]
    graph: csr_array[np.float64] = csr_array(
        (values[stored], columns.astype(index_dtype), pointers.astype(index_dtype)),
        shape=(len(indices), n_columns or len(indices)),
    )
    graph.has_sorted_indices = True
    return graph


def symmetric_affinity(graph: csr_array[Any]) -> csr_array[Any]:
    """Symmetric affinity W = (A + A^T) / 2 in the precision of A, with sorted column indices."""
    affinity = csr_array(graph + graph.T)
    affinity.data = affinity.data * 0.5
    return _sorted(affinity)


def symmetric_product(
    blocks: Sequence[csr_array[np.float64]], vector: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Product W v (n,) of a graph of blocks of rows (m, n), with W = (A + A^T) / 2."""
    result = np.concatenate([block @ vector for block in blocks])
    start = 0
    for block in blocks:
        stop = start + block.shape[0]
        result += block.T @ vector[start:stop]
        start = stop
    return np.asarray(0.5 * result)


def laplacian(graph: csr_array[Any]) -> csr_array[Any]:
    """Graph Laplacian L = D - W, with W = (A + A^T) / 2 and D its row sums; in the precision of A.

    v^T L v = 1/4 sum_ij (a_ij + a_ji) (v_i - v_j)^2; the multiplicity of the eigenvalue 0 is the
    number of connected components (Theorem 1 of the paper).
    """
    affinity = symmetric_affinity(graph)
    degrees = np.asarray(affinity.sum(axis=1))
    return _sorted(csr_array(diags_array(degrees, format="csr") - affinity))


def induced_laplacian(matrix: csr_array[Any], samples: NDArray[np.int64]) -> csr_array[Any]:
    """Laplacian (m, m) of the subgraph of some samples, from that of the graph (n, n)."""
    rows = csr_array(matrix[samples][:, samples])
    rows.setdiag(0.0)
    rows.eliminate_zeros()
    degrees = -np.asarray(rows.sum(axis=1))
    return _sorted(csr_array(rows + diags_array(degrees, format="csr")))


def connected_components(graph: csr_array[Any]) -> tuple[int, NDArray[np.int64]]:
    """Number and labels (n,) of the weakly connected components, by first appearance."""
    if np.any(graph.data == 0):
        graph = graph.copy()
        graph.eliminate_zeros()
    count, labels = csgraph.connected_components(graph, directed=True, connection="weak")
    _, first = np.unique(labels, return_index=True)
    rank = np.empty(int(count), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(int(count))
    return int(count), rank[labels]


def _sorted(matrix: csr_array[Any]) -> csr_array[Any]:
    matrix.sum_duplicates()
    matrix.sort_indices()
    return matrix
