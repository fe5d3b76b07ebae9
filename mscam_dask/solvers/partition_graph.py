"""Partition graph: the A-step in the limit λ → ∞ for a given partition.

If F is the scaled indicator of the partition, the projected distance of two samples is zero within
a cluster and unbounded between clusters, so every row has its neighbors in its own cluster, by the
data distances. The graph has one component per cluster: components within a cluster are connected
by their shortest edges. Where rows are in blocks, rows of a large cluster select from their
candidate neighbors in it; rows with too few of them, and small clusters, from a pool of members.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, vstack

from mscam_dask.linalg.distances import (
    WeightedBlocks,
    as_weighted_blocks,
    squared_distances,
)
from mscam_dask.linalg.incomplete import (
    IncompleteBlocks,
    nearest_sharing,
    with_finite_distances,
)
from mscam_dask.linalg.laplacian import graph_from_neighbors
from mscam_dask.linalg.neighbors import nearest_neighbors, top_k_columns
from mscam_dask.solvers.graph_update import CandidateEdges, GraphRows, select_neighbors
from mscam_dask.solvers.row_graph import Components

_BLOCK_BYTES = 64 * 2**20


def rows_by_cluster(
    embedding: NDArray[np.float64] | WeightedBlocks | IncompleteBlocks,
    labels: NDArray[np.int64],
    n_neighbors: int,
) -> GraphRows:
    """All rows of the partition graph by exact search in each cluster; in those of at most k samples all others are neighbors."""
    points = embedding if isinstance(embedding, IncompleteBlocks) else as_weighted_blocks(embedding)
    n = len(labels)
    parts: list[tuple[NDArray[np.int64], csr_array[np.float64]]] = []
    for cluster in range(int(labels.max()) + 1):
        members = np.flatnonzero(labels == cluster)
        own, m = points.take(members), len(members)
        if m == 1:
            parts.append((members, csr_array((1, n))))
            continue
        wanted = min(n_neighbors + 1, m - 1)
        if isinstance(own, IncompleteBlocks):
            indices, distances = nearest_sharing(own, wanted, 0, m)
            distances = with_finite_distances(distances)
        else:
            indices, distances = nearest_neighbors(own, wanted)
        chosen, weights = select_neighbors(indices, distances, min(n_neighbors, m - 1))
        parts.append((members, graph_from_neighbors(members[chosen], weights, n)))
    return _in_order(parts, 0)


def _in_order(
    parts: Sequence[tuple[NDArray[np.int64], csr_array[np.float64]]], start: int
) -> GraphRows:
    """A block of rows from parts of it, each with the places of its rows."""
    order = np.concatenate([mine for mine, _ in parts])
    stacked = csr_array(vstack([part for _, part in parts], format="csr"))
    affinity = csr_array(stacked[np.argsort(order)])
    affinity.has_sorted_indices = True
    return GraphRows(start, affinity)


# Members of a cluster in the pool: all of them in clusters of at most this many.
_MAX_POOLED = 4096

# Numbers in the pool of all clusters together.
_POOL_ENTRIES = 2**24

# Samples of each component of a cluster, or of all that are connected, between which the shortest edges
# are searched: evenly spaced ones if there are more.
_BRIDGE_SAMPLES, _ALL_BRIDGE_SAMPLES = 512, 20_000


def pool_members(
    points: WeightedBlocks, labels: NDArray[np.int64], n_neighbors: int
) -> NDArray[np.int64]:
    """Samples (p,) of the pool: evenly spaced members of each cluster, k + 2 where there are, of points like these."""
    n_clusters = int(labels.max()) + 1
    most = min(_MAX_POOLED, max(2 * (n_neighbors + 2), _POOL_ENTRIES // (n_clusters * points.rank)))
    chosen = []
    for cluster in range(n_clusters):
        members = np.flatnonzero(labels == cluster)
        step = min(-(-len(members) // most), max(1, len(members) // (n_neighbors + 2)))
        chosen.append(members[::step])
    return np.sort(np.concatenate(chosen))


def cluster_rows(
    points: WeightedBlocks,
    candidates: CandidateEdges,
    labels: NDArray[np.int64],
    pool: NDArray[np.int64],
    pool_points: NDArray[np.float32],
    n_neighbors: int,
) -> GraphRows:
    """Rows of the partition graph, from candidates and the samples (p,) of the pool with their points (p, r)."""
    n, m, start = len(labels), len(points), candidates.row_start
    rows = np.arange(start, start + m)
    own = labels[rows]
    sizes = np.bincount(labels)
    pooled = labels[pool]
    is_whole = np.bincount(pooled, minlength=len(sizes)) == sizes
    inside = (candidates.indices >= 0) & (labels[candidates.indices] == own[:, None])
    enough = (np.count_nonzero(inside, axis=1) > n_neighbors) & ~is_whole[own]
    indices = np.where(inside, candidates.indices, -1).astype(np.int64)
    distances = np.where(inside, candidates.in_double(), np.inf)
    parts: list[tuple[NDArray[np.int64], csr_array[np.float64]]] = []
    if enough.any():
        chosen = select_neighbors(indices[enough], distances[enough], n_neighbors)
        parts.append((np.flatnonzero(enough), graph_from_neighbors(*chosen, n)))
    for cluster in np.unique(own[~enough]):
        mine = np.flatnonzero(~enough & (own == cluster))
        k = min(n_neighbors, int(sizes[cluster]) - 1)
        if k == 0:
            parts.append((mine, csr_array((len(mine), n))))
            continue
        members = pooled == cluster
        known = None if is_whole[cluster] else (indices[mine], distances[mine])
        chosen = _from_pool(points, rows, mine, pool[members], pool_points[members], known, k)
        parts.append((mine, graph_from_neighbors(*chosen, n)))
    return _in_order(parts, start)


def _from_pool(
    points: WeightedBlocks,
    rows: NDArray[np.int64],
    mine: NDArray[np.int64],
    pool: NDArray[np.int64],
    pool_points: NDArray[np.float32],
    known: tuple[NDArray[np.int64], NDArray[np.float64]] | None,
    n_neighbors: int,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Neighbors of some rows among the pool of their cluster and their candidates in it."""
    wanted = min(n_neighbors + 2, len(pool))
    nearest = np.empty((len(mine), wanted), dtype=np.int64)
    distances = np.empty((len(mine), wanted))
    pooled = pool_points.astype(np.float64)
    step = max(1, _BLOCK_BYTES // (8 * len(pooled)))
    for first in range(0, len(mine), step):
        part = slice(first, first + step)
        squared = squared_distances(
            points.stacked(mine[part], np.float32).astype(np.float64), pooled
        )
        squared[pool == rows[mine[part], None]] = np.inf
        found = top_k_columns(squared, wanted)
        nearest[part] = pool[found]
        distances[part] = np.take_along_axis(squared, found, axis=1)
    if known is not None:
        nearest = np.concatenate([known[0], nearest], axis=1)
        distances = np.concatenate([known[1], distances], axis=1)
        order = np.argsort(nearest, axis=1, kind="stable")
        nearest = np.take_along_axis(nearest, order, axis=1)
        distances = np.take_along_axis(distances, order, axis=1)
        nearest[:, 1:][nearest[:, 1:] == nearest[:, :-1]] = -1
    nearest[np.isinf(distances)] = -1
    order = np.argsort(np.where(nearest < 0, np.inf, distances), axis=1, kind="stable")
    kept = order[:, : n_neighbors + 1]
    indices = np.take_along_axis(nearest, kept, axis=1)
    near = np.take_along_axis(distances, kept, axis=1)
    if (indices[:, n_neighbors:] < 0).all():  # all other members are neighbors
        indices, near = indices[:, :n_neighbors], near[:, :n_neighbors]
    return select_neighbors(indices, near, n_neighbors)


def bridge_ends(components: Components, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Samples between which clusters of several components are connected, ascending."""
    pieces = components.labels
    _, first = np.unique(pieces, return_index=True)
    several = np.bincount(labels[first], minlength=int(labels.max()) + 1) > 1
    n_pieces = max(1, int(np.count_nonzero(several[labels[first]])))
    most = max(_BRIDGE_SAMPLES, _ALL_BRIDGE_SAMPLES // n_pieces)
    order = np.argsort(pieces, kind="stable")
    chosen = [
        members[:: -(-len(members) // most)]
        for members in np.split(order, np.cumsum(np.bincount(pieces))[:-1])
        if several[labels[members[0]]]
    ]
    return np.sort(np.concatenate(chosen)) if chosen else np.zeros(0, dtype=np.int64)


def points_at(
    points: WeightedBlocks | IncompleteBlocks, start: int, samples: NDArray[np.int64]
) -> NDArray[np.float32] | IncompleteBlocks:
    """Points of those samples that are in a block of rows; incomplete views are in one block."""
    if isinstance(points, IncompleteBlocks):
        return points.take(samples)
    mine = samples[(samples >= start) & (samples < start + len(points))]
    return np.asarray(points.stacked(mine - start, np.float32))


def bridges(
    samples: NDArray[np.int64],
    parts: Sequence[NDArray[np.float32] | IncompleteBlocks],
    components: Components,
    labels: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Edges (2, b) that connect the components of each cluster, smallest first, from `bridge_ends` (p,) and their points by block."""
    distances_of = _distances_of(parts)
    sizes = np.bincount(components.labels).astype(np.int64)
    edges: list[tuple[int, int]] = []
    for cluster in np.unique(labels[samples]):
        mine = np.flatnonzero(labels[samples] == cluster)
        pieces = components.labels[samples[mine]].astype(np.int64)
        left = dict.fromkeys(pieces.tolist())
        weights = {piece: int(sizes[piece]) for piece in left}
        while len(weights) > 1:
            smallest = min(weights, key=lambda piece: (weights[piece], piece))
            inside, outside = np.flatnonzero(pieces == smallest), np.flatnonzero(pieces != smallest)
            first, second = _closest_pair(distances_of, mine[inside], mine[outside])
            edges.append((int(samples[first]), int(samples[second])))
            joined = int(pieces[np.searchsorted(mine, second)])
            weights[joined] += weights.pop(smallest)
            pieces[inside] = joined
    return np.array(edges, dtype=np.int64).reshape(-1, 2).T


_Distances = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]


def _distances_of(parts: Sequence[NDArray[np.float32] | IncompleteBlocks]) -> _Distances:
    """Function of the places of some points and others that returns their squared distances."""
    for part in parts:
        if isinstance(part, IncompleteBlocks):
            return part.distances
    points = np.concatenate([np.asarray(part, dtype=np.float64) for part in parts])
    return lambda rows, others: squared_distances(points[rows], points[others])


def _closest_pair(
    distances_of: _Distances, rows: NDArray[np.int64], others: NDArray[np.int64]
) -> tuple[int, int]:
    """First pair with the least distance between two sets of points, by blocks of rows."""
    best = (np.inf, int(rows[0]), int(others[0]))
    step = max(1, _BLOCK_BYTES // (8 * len(others)))
    for start in range(0, len(rows), step):
        distances = distances_of(rows[start : start + step], others)
        row, column = divmod(int(np.argmin(distances)), len(others))
        found = float(distances[row, column])
        if found < best[0]:
            best = (found, int(rows[start + row]), int(others[column]))
    return best[1], best[2]


def with_bridges(
    rows: GraphRows, edges: NDArray[np.int64], labels: NDArray[np.int64], n_neighbors: int
) -> GraphRows:
    """Rows with the bridges that start in them, each of weight 1 / (number of edges of its row)."""
    mine = np.flatnonzero((edges[0] >= rows.start) & (edges[0] < rows.stop))
    if not mine.size:
        return rows
    affinity = rows.affinity.copy()
    starts, columns = edges[0][mine] - rows.start, edges[1][mine]
    counts = np.bincount(starts, minlength=affinity.shape[0])
    n_others = np.bincount(labels)[labels[rows.start : rows.stop]] - 1
    shares = 1.0 / np.maximum(np.minimum(n_neighbors, n_others) + counts, 1)
    affinity.data *= np.repeat(1.0 - shares * counts, np.diff(affinity.indptr))
    added = coo_array((shares[starts], (starts, columns)), shape=affinity.shape)
    joined = csr_array(affinity + added)
    joined.sort_indices()
    return GraphRows(rows.start, joined)
