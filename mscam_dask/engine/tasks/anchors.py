"""Tasks in the anchor space of one view or of all: candidates, and the graphs that distances alone give."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mscam_dask.kernels.cells import Cells, find_cells, neighbors_in_cells
from mscam_dask.solvers.anchor_space import anchor_space
from mscam_dask.solvers.discriminants import Discriminants
from mscam_dask.solvers.graph import Candidates, Graph, anchor_candidates, neighbor_graph
from mscam_dask.solvers.limit_step import limit_step
from mscam_dask.solvers.partition import merge_components
from mscam_dask.solvers.view_basis import PreparedView

__all__ = [
    "candidates",
    "candidates_of_rows",
    "cell_neighbors",
    "cells",
    "closed_graph",
    "merged_components",
    "own_graph",
]


def candidates(
    views: list[PreparedView | Discriminants], n_candidates: int, start: int, stop: int
) -> Candidates:
    """Nearest neighbours of a block of rows in the anchor space."""
    return anchor_candidates(anchor_space(views), n_candidates, start, stop)


def own_graph(view: PreparedView, n_neighbors: int) -> Graph:
    """The adaptive-neighbour graph of one view by itself."""
    return neighbor_graph(anchor_space([view]), n_neighbors)


def cells(views: list[PreparedView | Discriminants], n_candidates: int, seed: int) -> Cells:
    """Cells of the anchor space of large data."""
    rng = np.random.default_rng(seed)
    return find_cells(anchor_space(views), n_candidates=n_candidates, rng=rng)


def cell_neighbors(
    views: list[PreparedView | Discriminants],
    found: Cells,
    n_candidates: int,
    part: tuple[int, int],
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]:
    """Approximate neighbours of the samples in one part of the cells: (which, of how many)."""
    which, of = part
    first, last = which * len(found) // of, (which + 1) * len(found) // of
    return neighbors_in_cells(anchor_space(views), found, n_candidates, first=first, last=last)


def candidates_of_rows(
    parts: list[tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]],
    start: int,
    stop: int,
) -> Candidates:
    """Candidates of a block of rows, out of what was found cell by cell."""
    n_candidates = parts[0][1].shape[1]
    indices = np.empty((stop - start, n_candidates), dtype=np.int32)
    distances = np.empty((stop - start, n_candidates))
    for samples, neighbors, squared in parts:
        inside = np.flatnonzero((samples >= start) & (samples < stop))
        indices[samples[inside] - start] = neighbors[inside]
        distances[samples[inside] - start] = squared[inside]
    return Candidates(start, indices, distances)


def merged_components(
    views: list[PreparedView], components: NDArray[np.int64], n_clusters: int
) -> NDArray[np.int64]:
    """Components of a graph, merged down to the clusters asked for."""
    return merge_components(anchor_space(views), components, n_clusters)


def closed_graph(
    views: list[PreparedView],
    labels: NDArray[np.int64],
    n_neighbors: int,
    blocks: list[Candidates],
) -> Graph:
    """The limit step around a partition; large clusters choose among their candidates."""
    return limit_step(anchor_space(views), labels, n_neighbors, candidates=blocks)
