"""Partition graph: the A-step in the limit λ → ∞ for a given partition.

If F is the scaled indicator of the partition, the projected distance of two samples is zero
within a cluster and unbounded between clusters, so every row has its neighbors in its own cluster,
by the data distances. The graph has one component per cluster: components within a cluster
are connected by their shortest edges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, get_index_dtype

from mscam_dask.linalg.distances import (
    WeightedBlocks,
    as_weighted_blocks,
    distances_to,
    squared_distances,
)
from mscam_dask.linalg.incomplete_blocks import (
    IncompleteBlocks,
    nearest_sharing,
    with_finite_distances,
)
from mscam_dask.linalg.laplacian import connected_components, graph_from_neighbors
from mscam_dask.linalg.neighbors import nearest_neighbors, top_k_columns
from mscam_dask.solvers.graph_update import CandidateEdges, Graph, select_neighbors

__all__ = ["partition_graph"]

_BLOCK_BYTES = 64 * 2**20

# Clusters of at most this many members are searched exhaustively.
_EXACT_MEMBERS = 4096

# Bridges are searched between at most this many samples on either side.
_MAX_PIECE = 20_000


def partition_graph(
    embedding: NDArray[np.float64] | WeightedBlocks | IncompleteBlocks,
    labels: NDArray[np.int64],
    n_neighbors: int,
    *,
    candidates: Sequence[CandidateEdges] = (),
) -> Graph:
    """Graph whose connected components are exactly the given clusters.

    Parameters
    ----------
    embedding : (n, Σr), WeightedBlocks or IncompleteBlocks
        Joint ridge embedding. Neighbors without a common view are chosen last.
    labels : (n,) int64
        Clusters 0 … c−1, none empty.
    n_neighbors : int
        k; in clusters of at most k samples, all other members are neighbors.
    candidates : sequence of CandidateEdges
        Blocks of candidate edges of all rows, for clusters of more than 4096 members. Their rows
        select from these candidates and, if fewer than k + 1 of them are in the cluster, also from
        up to 4096 evenly spaced members (at least k + 2).

    Returns
    -------
    Graph
        The row of a sample alone in its cluster is empty.

    Notes
    -----
    Exact search within each cluster, Σ |cluster|² Σr flops; linear in n with `candidates`. Memory
    for the rows of one cluster and a block of distances; points of small clusters are copied.
    """
    points = embedding if isinstance(embedding, IncompleteBlocks) else as_weighted_blocks(embedding)
    order: list[NDArray[np.int64]] = []
    inside: list[csr_array[np.float64]] = []
    for cluster in range(int(labels.max()) + 1):
        members = np.flatnonzero(labels == cluster)
        if len(members) < 2:
            rows = csr_array((len(members), len(members)))
        elif (
            candidates
            and isinstance(points, WeightedBlocks)
            and len(members) > max(_EXACT_MEMBERS, n_neighbors + 1)
        ):
            rows = _rows_on_candidates(points, members, candidates, n_neighbors)
        else:
            rows = _connected_rows(points.take(members), n_neighbors)
        order.append(members)
        inside.append(rows)
    affinity = _put_together(inside, order)
    count, components = connected_components(affinity)
    return Graph(affinity, count, components)


def _put_together(
    inside: Sequence[csr_array[np.float64]], order: Sequence[NDArray[np.int64]]
) -> csr_array[np.float64]:
    """Graph of all samples from the graphs of the clusters, whose members are ascending."""
    members = np.concatenate(order)
    n = len(members)
    index_dtype = get_index_dtype(maxval=max(n, sum(rows.nnz for rows in inside)))
    columns = [
        own.astype(index_dtype)[rows.indices] for own, rows in zip(order, inside, strict=True)
    ]
    counts = np.concatenate([np.diff(rows.indptr) for rows in inside])
    stacked = csr_array(
        (
            np.concatenate([rows.data for rows in inside]),
            np.concatenate(columns),
            np.concatenate(([0], np.cumsum(counts))).astype(index_dtype),
        ),
        shape=(n, n),
    )
    affinity = csr_array(stacked[np.argsort(members)])
    affinity.has_sorted_indices = True
    return affinity


def _connected_rows(
    points: WeightedBlocks | IncompleteBlocks, n_neighbors: int
) -> csr_array[np.float64]:
    """Adaptive-neighbor graph of the m points, connected into one component."""
    m = len(points)
    k = min(n_neighbors, m - 1)
    if isinstance(points, IncompleteBlocks):
        indices, distances = nearest_sharing(points, min(k + 1, m - 1), 0, m)
        distances = with_finite_distances(distances)
    else:
        indices, distances = nearest_neighbors(points, min(k + 1, m - 1))
    return _joined(points, np.arange(m), *select_neighbors(indices, distances, k))


def _rows_on_candidates(
    points: WeightedBlocks,
    members: NDArray[np.int64],
    candidates: Sequence[CandidateEdges],
    n_neighbors: int,
) -> csr_array[np.float64]:
    """Adaptive-neighbor graph of a large cluster from its candidate edges, as one component."""
    n = len(points)
    position = np.full(n + 1, -1, dtype=np.int64)  # last entry: absent candidates
    position[members] = np.arange(len(members))
    # evenly spaced fallback candidates for all rows: at least the row itself, k others and one more
    step = min(-(-len(members) // _EXACT_MEMBERS), len(members) // (n_neighbors + 2))
    pool = np.arange(0, len(members), step)
    pooled = points.stacked(members[pool], np.float32).astype(np.float64)
    chosen = np.empty((len(members), n_neighbors), dtype=np.int64)
    weights = np.empty((len(members), n_neighbors))
    for block in candidates:
        stop = block.row_start + len(block.indices)
        mine = members[np.searchsorted(members, block.row_start) : np.searchsorted(members, stop)]
        rows = position[mine]
        indices = position[block.indices[mine - block.row_start]]
        distances = np.where(indices >= 0, block.squared_distances[mine - block.row_start], np.inf)
        short = np.flatnonzero(np.count_nonzero(indices >= 0, axis=1) <= n_neighbors)
        enough = np.setdiff1d(np.arange(len(mine)), short)
        chosen[rows[enough]], weights[rows[enough]] = select_neighbors(
            indices[enough], distances[enough], n_neighbors
        )
        if short.size:
            found = _with_pool(
                points, members, rows[short], indices[short], (pool, pooled), n_neighbors
            )
            chosen[rows[short]], weights[rows[short]] = select_neighbors(*found, n_neighbors)
    return _joined(points, members, chosen, weights)


def _with_pool(
    points: WeightedBlocks,
    members: NDArray[np.int64],
    rows: NDArray[np.int64],
    indices: NDArray[np.int64],
    pool: tuple[NDArray[np.int64], NDArray[np.float64]],
    n_neighbors: int,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Distinct candidates of some members: their own and the nearest of a pool."""
    anyone, pooled = pool
    nearest = np.empty((len(rows), n_neighbors + 2), dtype=np.int64)
    block = max(1, _BLOCK_BYTES // (8 * len(anyone)))
    for start in range(0, len(rows), block):
        part = slice(start, start + block)
        squared = squared_distances(points.stacked(members[rows[part]]), pooled)
        nearest[part] = anyone[top_k_columns(squared, n_neighbors + 2)]
    joined = np.sort(np.concatenate([indices, nearest], axis=1), axis=1)
    joined[:, 1:][joined[:, 1:] == joined[:, :-1]] = -1
    joined[joined == rows[:, None]] = -1
    distances = distances_to(points, members[rows], np.where(joined < 0, -1, members[joined]))
    return joined, np.where(joined >= 0, distances, np.inf)


def _joined(
    points: WeightedBlocks | IncompleteBlocks,
    members: NDArray[np.int64],
    chosen: NDArray[np.int64],
    weights: NDArray[np.float64],
) -> csr_array[np.float64]:
    """Graph of the members, with bridges between its connected components."""
    graph = graph_from_neighbors(chosen, weights)
    count, pieces = connected_components(graph)
    bridges: dict[int, list[int]] = {}
    while count > 1:
        i, j = _shortest_bridge(points, members, pieces)
        bridges.setdefault(i, []).append(j)
        pieces = np.where(pieces == pieces[i], pieces[j], pieces)
        _, pieces = np.unique(pieces, return_inverse=True)
        count -= 1
    return _with_bridges(graph, bridges, chosen.shape[1]) if bridges else graph


def _shortest_bridge(
    points: WeightedBlocks | IncompleteBlocks,
    members: NDArray[np.int64],
    pieces: NDArray[np.int64],
) -> tuple[int, int]:
    """Closest pair (inside, outside) between the smallest component of the members and the rest."""
    smallest = int(np.argmin(np.bincount(pieces)))
    inside, outside = np.flatnonzero(pieces == smallest), np.flatnonzero(pieces != smallest)
    # evenly spaced samples of very large components
    inside = inside[:: -(-len(inside) // _MAX_PIECE)]
    outside = outside[:: -(-len(outside) // _MAX_PIECE)]
    distances_of = _distances_to(points, members[outside])
    best = (np.inf, int(inside[0]), int(outside[0]))  # of pieces without a common view
    block = max(1, _BLOCK_BYTES // (8 * len(outside)))
    for start in range(0, len(inside), block):
        part = inside[start : start + block]
        distances = distances_of(members[part])
        flat = int(np.argmin(distances))
        row, column = divmod(flat, len(outside))
        candidate = (float(distances[row, column]), int(part[row]), int(outside[column]))
        best = min(best, candidate)
    return best[1], best[2]


def _distances_to(
    points: WeightedBlocks | IncompleteBlocks, others: NDArray[np.int64]
) -> Callable[[NDArray[np.int64]], NDArray[np.float64]]:
    """Function that returns the squared distances of samples to `others`."""
    if isinstance(points, IncompleteBlocks):
        return points.products(others).distances
    stacked = points.stacked(others)
    return lambda samples: squared_distances(points.stacked(samples), stacked)


def _with_bridges(
    graph: csr_array[np.float64], bridges: dict[int, list[int]], n_neighbors: int
) -> csr_array[np.float64]:
    """Add bridges to the rows of a graph, each with the weight 1 / (number of edges of its row)."""
    shares = {row: 1.0 / (n_neighbors + len(columns)) for row, columns in bridges.items()}
    for row, columns in bridges.items():
        graph.data[graph.indptr[row] : graph.indptr[row + 1]] *= 1.0 - shares[row] * len(columns)
    ends = [(row, column) for row, columns in bridges.items() for column in columns]
    values = [shares[row] for row, _ in ends]
    added = coo_array((values, tuple(np.transpose(ends))), shape=graph.shape)
    joined = csr_array(graph + added)
    joined.sort_indices()
    return joined
