"""Partition graph: the A-step in the limit λ → ∞ for a given partition.

If F is the scaled indicator of the partition, the projected distance of two samples is zero within
a cluster and unbounded between clusters, so every row has its neighbors in its own cluster, by the
data distances. The graph has one component per cluster: components within a cluster are connected
by their shortest edges. Where rows are in blocks, a pool has all members of small clusters and some of
large ones: rows of a large cluster select from their candidate neighbors in it, and from the pool if
these are too few.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, vstack

from mscam_dask.linalg.distances import WeightedBlocks, as_weighted_blocks, squared_distances
from mscam_dask.linalg.incomplete import IncompleteBlocks, with_finite_distances
from mscam_dask.linalg.laplacian import graph_from_neighbors
from mscam_dask.linalg.neighbors import Distances, nearest_among
from mscam_dask.solvers.graph_update import (
    CandidateEdges,
    Components,
    GraphRows,
    candidate_neighbors,
    select_neighbors,
)
from mscam_dask.solvers.spectral_cut import sampled_rows

# Members of a cluster in the pool: all of them in clusters of at most this many.
_MAX_POOLED = 4096

# Numbers in the pool of all clusters together.
_POOL_ENTRIES = 2**24

# Samples of each component of a cluster, or of all that are connected, between which the shortest edges
# are searched: a sample if there are more.
_BRIDGE_SAMPLES, _ALL_BRIDGE_SAMPLES = 512, 20_000


def pool_members(
    points: WeightedBlocks, labels: NDArray[np.int64], n_neighbors: int
) -> NDArray[np.int64]:
    """Samples (p,) of the pool: members of each cluster, k + 2 where there are, of points like these."""
    n_clusters = int(labels.max()) + 1
    most = max(2 * (n_neighbors + 2), min(_MAX_POOLED, _POOL_ENTRIES // (n_clusters * points.rank)))
    chosen = []
    for cluster in range(n_clusters):
        members = np.flatnonzero(labels == cluster)
        chosen.append(members[sampled_rows(len(members), most)])
    return np.sort(np.concatenate(chosen))


JointEmbedding = WeightedBlocks | IncompleteBlocks


def cluster_rows(
    points: JointEmbedding,
    labels: NDArray[np.int64],
    n_neighbors: int,
    pool: NDArray[np.int64] | None = None,
    pool_points: NDArray[np.float32] | None = None,
    candidates: CandidateEdges | None = None,
) -> GraphRows:
    """Rows of the partition graph, by exact search in clusters of which the pool has all samples.

    The others select from their candidates and the samples (p,) of the pool with their points (p, r). Without a pool
    the points are those of all rows.
    """
    n, start = len(labels), candidates.row_start if candidates else 0
    own = labels[start : start + len(points)]
    sizes = np.bincount(labels)
    pool = np.arange(n) if pool is None else pool
    pooled = labels[pool]
    order, parts = [], []
    for cluster in np.unique(own):
        mine, members = np.flatnonzero(own == cluster), np.flatnonzero(pooled == cluster)
        samples = pool[members]
        if sizes[cluster] == 1:
            part: csr_array[np.float64] = csr_array((1, n))
        elif len(members) == sizes[cluster]:
            first, last = np.searchsorted(samples, [start, start + len(points)]).tolist()
            whole: JointEmbedding = (
                points.take(members)
                if pool_points is None
                else as_weighted_blocks(pool_points[members].astype(np.float64))
            )
            chosen, weights = _nearest_members(whole, n_neighbors, first, last)
            part = graph_from_neighbors(samples[chosen], weights, n)
        else:
            assert candidates is not None
            assert pool_points is not None
            assert isinstance(points, WeightedBlocks)
            chosen, weights = _of_candidates_and_pool(
                points,
                mine,
                candidates,
                labels == cluster,
                samples,
                pool_points[members],
                n_neighbors,
            )
            part = graph_from_neighbors(chosen, weights, n)
        order.append(mine)
        parts.append(part)
    affinity = csr_array(vstack(parts, format="csr"))[np.argsort(np.concatenate(order))]
    affinity.has_sorted_indices = True
    return GraphRows(start, csr_array(affinity))


def _nearest_members(
    members: JointEmbedding, n_neighbors: int, start: int, stop: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Neighbors of some members of a cluster, of at most k others all, and their weights."""
    most = len(members) - 1
    found = candidate_neighbors(members, min(n_neighbors + 1, most), start, stop)
    distances = with_finite_distances(found.in_double())
    return select_neighbors(found.indices, distances, min(n_neighbors, most))


def _of_candidates_and_pool(
    points: WeightedBlocks,
    mine: NDArray[np.int64],
    candidates: CandidateEdges,
    is_member: NDArray[np.bool_],
    pool: NDArray[np.int64],
    pool_points: NDArray[np.float32],
    n_neighbors: int,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Neighbors of some rows of a large cluster, and weights; rows with few candidates in it search the pool too."""
    indices = candidates.indices[mine]
    inside = (indices >= 0) & is_member[indices]
    indices = np.where(inside, indices, -1)
    distances = np.where(inside, candidates.in_double()[mine], np.inf)
    few = np.flatnonzero(np.count_nonzero(inside, axis=1) <= n_neighbors)
    queries = points.stacked(mine[few], np.float32).astype(np.float64)
    near, squared = nearest_among(queries, pool_points.astype(np.float64), n_neighbors + 2)
    near = pool[near]
    is_candidate = (near[:, :, None] == indices[few, None, :]).any(axis=2)
    near[is_candidate | (near == candidates.row_start + mine[few, None])] = -1
    more = np.full((len(mine), n_neighbors + 2), -1)
    more_distances = np.full(more.shape, np.inf)
    more[few], more_distances[few] = near, squared
    return select_neighbors(
        np.hstack([indices, more]), np.hstack([distances, more_distances]), n_neighbors
    )


def bridge_ends(components: Components, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Samples between which clusters of several components are connected, ascending."""
    pieces = components.labels
    _, first = np.unique(pieces, return_index=True)
    several = np.bincount(labels[first], minlength=int(labels.max()) + 1) > 1
    n_pieces = max(1, int(np.count_nonzero(several[labels[first]])))
    most = max(_BRIDGE_SAMPLES, _ALL_BRIDGE_SAMPLES // n_pieces)
    order = np.argsort(pieces, kind="stable")
    chosen = [
        members[sampled_rows(len(members), most)]
        for members in np.split(order, np.cumsum(np.bincount(pieces))[:-1])
        if several[labels[members[0]]]
    ]
    return np.sort(np.concatenate(chosen)) if chosen else np.zeros(0, dtype=np.int64)


def points_at(
    points: JointEmbedding, start: int, samples: NDArray[np.int64]
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
            nearest, squared = nearest_among(mine[inside], mine[outside], 1, distances_of)
            first = int(squared.argmin())
            second = outside[nearest[first, 0]]
            edges.append((int(samples[mine[inside[first]]]), int(samples[mine[second]])))
            joined = int(pieces[second])
            weights[joined] += weights.pop(smallest)
            pieces[inside] = joined
    return np.array(edges, dtype=np.int64).reshape(-1, 2).T


def _distances_of(parts: Sequence[NDArray[np.float32] | IncompleteBlocks]) -> Distances:
    """Function of the places of some points and others that returns their squared distances."""
    for part in parts:
        if isinstance(part, IncompleteBlocks):
            return part.distances
    points = np.concatenate([np.asarray(part, dtype=np.float64) for part in parts])
    return lambda rows, others: squared_distances(points[rows], points[others])


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
