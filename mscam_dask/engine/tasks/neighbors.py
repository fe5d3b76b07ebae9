"""Tasks in the joint ridge embedding: candidate neighbors, and graphs from distances only."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from mscam_dask.linalg.ivf import IVFIndex, build_ivf, ivf_search
from mscam_dask.solvers.graph_update import (
    CandidateEdges,
    Graph,
    candidate_neighbors,
    neighbor_graph,
    spread_graph,
)
from mscam_dask.solvers.joint_embedding import complete_embedding, joint_embedding
from mscam_dask.solvers.lda import LinearDiscriminants
from mscam_dask.solvers.partition_graph import partition_graph
from mscam_dask.solvers.ridge_view import RidgeView
from mscam_dask.solvers.spectral_cut import merge_components

__all__ = [
    "candidates",
    "candidates_of_rows",
    "cells",
    "ivf_neighbors",
    "joined_candidates",
    "merged_components",
    "own_graph",
    "rebuild_graph",
]


def candidates(
    views: list[RidgeView | LinearDiscriminants], n_candidates: int, start: int, stop: int
) -> CandidateEdges:
    """Candidate neighbors of a block of rows in the joint ridge embedding."""
    return candidate_neighbors(joint_embedding(views), n_candidates, start, stop)


def joined_candidates(parts: list[CandidateEdges]) -> CandidateEdges:
    """Candidate neighbors of consecutive blocks of rows as one block."""
    return CandidateEdges(
        parts[0].row_start,
        np.concatenate([part.indices for part in parts]),
        np.concatenate([part.squared_distances for part in parts]),
    )


def own_graph(view: RidgeView, n_neighbors: int) -> Graph:
    """Adaptive-neighbor graph of a single view; samples that it does not have have no neighbors."""
    if view.present is None:
        return neighbor_graph(joint_embedding([view]), n_neighbors)
    whole = dataclasses.replace(view, present=None)
    graph = neighbor_graph(joint_embedding([whole]), min(n_neighbors, len(view.present) - 1))
    return spread_graph(graph, view.present)


def cells(views: list[RidgeView | LinearDiscriminants], n_candidates: int, seed: int) -> IVFIndex:
    """Cells of the joint ridge embedding of large data."""
    rng = np.random.default_rng(seed)
    return build_ivf(complete_embedding(views), n_candidates=n_candidates, rng=rng)


def ivf_neighbors(
    views: list[RidgeView | LinearDiscriminants],
    index: IVFIndex,
    n_candidates: int,
    part: tuple[int, int],
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]:
    """Approximate neighbors of the samples in one part of the cells: (number, count of parts)."""
    number, n_parts = part
    first, last = number * len(index) // n_parts, (number + 1) * len(index) // n_parts
    return ivf_search(complete_embedding(views), index, n_candidates, first=first, last=last)


def candidates_of_rows(
    parts: list[tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]],
    start: int,
    stop: int,
) -> CandidateEdges:
    """Candidate neighbors of a block of rows, collected from the parts of the cells."""
    n_candidates = parts[0][1].shape[1]
    indices = np.empty((stop - start, n_candidates), dtype=np.int32)
    distances = np.empty((stop - start, n_candidates))
    for samples, neighbors, squared in parts:
        inside = np.flatnonzero((samples >= start) & (samples < stop))
        indices[samples[inside] - start] = neighbors[inside]
        distances[samples[inside] - start] = squared[inside]
    return CandidateEdges(start, indices, distances)


def merged_components(
    views: list[RidgeView], components: NDArray[np.int64], n_clusters: int
) -> NDArray[np.int64]:
    """Connected components of a graph, merged to the requested number of clusters."""
    return merge_components(joint_embedding(views), components, n_clusters)


def rebuild_graph(
    views: list[RidgeView],
    labels: NDArray[np.int64],
    n_neighbors: int,
    blocks: list[CandidateEdges],
) -> Graph:
    """Partition graph of a partition; rows of large clusters use their candidate neighbors."""
    return partition_graph(joint_embedding(views), labels, n_neighbors, candidates=blocks)
