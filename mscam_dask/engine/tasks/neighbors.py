"""Tasks in the joint ridge embedding: candidate neighbors, and graphs from distances only."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mscam_dask.solvers.graph_update import (
    CandidateEdges,
    Graph,
    candidate_neighbors,
    neighbor_graph,
    spread_graph,
)
from mscam_dask.solvers.joint_embedding import joint_embedding
from mscam_dask.solvers.lda import LinearDiscriminants
from mscam_dask.solvers.partition_graph import partition_graph
from mscam_dask.solvers.ridge_view import RidgeView
from mscam_dask.solvers.spectral_cut import merge_components

__all__ = [
    "candidates",
    "joined_candidates",
    "merged_components",
    "own_graph",
    "rebuild_graph",
]


def candidates(
    views: Sequence[RidgeView | LinearDiscriminants], n_candidates: int, start: int, stop: int
) -> CandidateEdges:
    """Candidate neighbors of a block of rows in the joint ridge embedding."""
    return candidate_neighbors(joint_embedding(views), n_candidates, start, stop)


def joined_candidates(parts: list[CandidateEdges]) -> CandidateEdges:
    """Candidate neighbors of consecutive blocks of rows as one block."""
    coverages = [part.coverage for part in parts if part.coverage is not None]
    return CandidateEdges(
        parts[0].row_start,
        np.concatenate([part.indices for part in parts]),
        np.concatenate([part.squared_distances for part in parts]),
        np.concatenate(coverages) if coverages else None,
    )


def own_graph(view: RidgeView, n_neighbors: int) -> Graph:
    """Adaptive-neighbor graph of a single view; samples that it does not have have no neighbors."""
    if view.present is None:
        return neighbor_graph(joint_embedding([view]), n_neighbors)
    whole = dataclasses.replace(view, present=None)
    graph = neighbor_graph(joint_embedding([whole]), min(n_neighbors, len(view.present) - 1))
    return spread_graph(graph, view.present)


def merged_components(
    views: list[RidgeView], components: NDArray[np.int64], n_clusters: int
) -> NDArray[np.int64]:
    """Connected components of a graph, merged to the requested number of clusters."""
    return merge_components(joint_embedding(views), components, n_clusters)


def rebuild_graph(views: list[RidgeView], labels: NDArray[np.int64], n_neighbors: int) -> Graph:
    """Partition graph of a partition."""
    return partition_graph(joint_embedding(views), labels, n_neighbors)
