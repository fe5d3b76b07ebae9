"""One graph step in the limit λ → ∞ around a given partition.

With F the scaled indicator of the partition, the projected distance of two samples is zero
inside a cluster and unbounded across clusters: every row finds its neighbours in its own
cluster, by the data distances. The graph then has one component per cluster, but for clusters
that are themselves disconnected; their pieces are joined by their shortest edges.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from mscam_dask.kernels.distances import squared_distances
from mscam_dask.kernels.laplacian import connected_components
from mscam_dask.kernels.neighbors import nearest_neighbors, select_neighbors
from mscam_dask.solvers.graph import Graph

__all__ = ["limit_step"]

_BLOCK_BYTES = 64 * 2**20


def limit_step(anchors: NDArray[np.float64], labels: NDArray[np.int64], n_neighbors: int) -> Graph:
    """The consensus graph whose components are exactly the given clusters.

    Parameters
    ----------
    anchors : (n, Σr)
        Anchor space of all views.
    labels : (n,) int64
        Clusters 0 … c−1, none empty.
    n_neighbors : int
        k; clusters of at most k samples use all their other members.

    Returns
    -------
    Graph
        A row of a cluster with one member is empty: it has no neighbour to choose.

    Notes
    -----
    Exact search inside each cluster: Σ |cluster|² Σr flops, memory of one block of rows.
    """
    n = len(labels)
    rows: list[NDArray[np.int64]] = []
    columns: list[NDArray[np.int64]] = []
    values: list[NDArray[np.float64]] = []
    for cluster in range(int(labels.max()) + 1):
        members = np.flatnonzero(labels == cluster)
        if len(members) < 2:
            continue
        inside = _connected_rows(anchors[members], n_neighbors).tocoo()
        rows.append(members[inside.row])
        columns.append(members[inside.col])
        values.append(inside.data)
    nothing = np.empty(0, dtype=np.int64)
    positions = (np.concatenate([*rows, nothing]), np.concatenate([*columns, nothing]))
    weights = np.concatenate([*values, np.empty(0)])
    affinity = csr_array(coo_array((weights, positions), shape=(n, n)))
    affinity.sort_indices()
    count, components = connected_components(affinity)
    return Graph(affinity, count, components)


def _connected_rows(points: NDArray[np.float64], n_neighbors: int) -> csr_array[np.float64]:
    """Adaptive-neighbour rows among `points` (m, r), joined into one component."""
    m = len(points)
    k = min(n_neighbors, m - 1)
    indices, distances = nearest_neighbors(points, min(k + 1, m - 1))
    chosen, weights = select_neighbors(indices, distances, k)
    count, pieces = _pieces(chosen, weights)
    extra: dict[int, list[int]] = {}
    while count > 1:
        i, j = _shortest_bridge(points, pieces)
        extra.setdefault(i, []).append(j)
        pieces = np.where(pieces == pieces[i], pieces[j], pieces)
        _, pieces = np.unique(pieces, return_inverse=True)
        count -= 1
    return _with_bridges(chosen, weights, extra)


def _pieces(
    indices: NDArray[np.int64], weights: NDArray[np.float64]
) -> tuple[int, NDArray[np.int64]]:
    return connected_components(_with_bridges(indices, weights, {}))


def _shortest_bridge(points: NDArray[np.float64], pieces: NDArray[np.int64]) -> tuple[int, int]:
    """The closest pair between the smallest piece and the rest; (inside, outside)."""
    smallest = int(np.argmin(np.bincount(pieces)))
    inside, outside = np.flatnonzero(pieces == smallest), np.flatnonzero(pieces != smallest)
    best = (np.inf, -1, -1)
    block = max(1, _BLOCK_BYTES // (8 * len(outside)))
    for start in range(0, len(inside), block):
        part = inside[start : start + block]
        distances = squared_distances(points[part], points[outside])
        flat = int(np.argmin(distances))
        row, column = divmod(flat, len(outside))
        candidate = (float(distances[row, column]), int(part[row]), int(outside[column]))
        best = min(best, candidate)
    return best[1], best[2]


def _with_bridges(
    indices: NDArray[np.int64], weights: NDArray[np.float64], extra: dict[int, list[int]]
) -> csr_array[np.float64]:
    """CSR of the rows; a row with bridges gives each the weight of an equal share."""
    m, k = indices.shape
    rows = np.repeat(np.arange(m), k)
    data = weights.copy()
    bridge_rows, bridge_columns, bridge_values = [], [], []
    for row, targets in extra.items():
        share = 1.0 / (k + len(targets))
        data[row] *= 1.0 - share * len(targets)
        bridge_rows += [row] * len(targets)
        bridge_columns += targets
        bridge_values += [share] * len(targets)
    graph = csr_array(
        (
            np.concatenate([data.ravel(), np.asarray(bridge_values, dtype=np.float64)]),
            (
                np.concatenate([rows, np.asarray(bridge_rows, dtype=np.int64)]),
                np.concatenate([indices.ravel(), np.asarray(bridge_columns, dtype=np.int64)]),
            ),
        ),
        shape=(m, m),
    )
    graph.sum_duplicates()
    graph.eliminate_zeros()
    return graph
