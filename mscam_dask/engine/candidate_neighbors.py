"""Candidate neighbors by blocks of rows: only they can have an edge in the consensus graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.row_blocks.candidates import BlockedCandidates, RowOrder, candidates_in_order
from mscam_dask.linalg.neighbors import ColumnFacts
from mscam_dask.solvers.cluster_tree import merge_components
from mscam_dask.solvers.graph_update import (
    CandidateEdges,
    Graph,
    candidate_neighbors,
    neighbor_graph,
    search_facts,
    spread_graph,
)
from mscam_dask.solvers.lda import LinearDiscriminants
from mscam_dask.solvers.partition_graph import partition_graph
from mscam_dask.solvers.ridge_view import RidgeView, joint_embedding
from mscam_dask.types.parameters import Parameters

__all__ = [
    "candidate_blocks",
    "candidates",
    "facts_of_views",
    "joined_candidates",
    "merged_components",
    "own_graph",
    "rebuild_graph",
    "release_candidates",
    "row_ranges",
]


_MIN_BLOCK = 512
_MAX_BLOCK = 8192
_BLOCKS = 8

# Number of views of which one task finds the column facts, or searches a whole block of rows, and most
# tasks of a block.
_VIEWS_TOGETHER = 8
_MAX_PARTS = 16


def row_ranges(n_samples: int) -> list[tuple[int, int]]:
    """Blocks of rows for the A-step, which depend on n only, never on the number of workers."""
    size = min(_MAX_BLOCK, max(_MIN_BLOCK, -(-n_samples // _BLOCKS)))
    return [(start, min(start + size, n_samples)) for start in range(0, n_samples, size)]


def candidate_blocks(
    views: list[Handle],
    n_samples: int,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
    order: RowOrder | None = None,
) -> tuple[Handle, ...] | BlockedCandidates:
    """Candidate neighbors of every sample in the joint ridge embedding, one handle per block of rows.

    With an `order` of the rows, that of large data, they are approximate: the search is limited to cells
    of the embedding. The rows stay in this order.
    """
    n_candidates = parameters.candidates(n_samples)
    if order is not None:
        return candidates_in_order(views, order, n_candidates, parameters.seed, executor, key=key)
    facts = [
        executor.submit(
            facts_of_views,
            views,
            slice(first, first + _VIEWS_TOGETHER),
            key=f"column_facts/{key}/{first}",
        )
        for first in range(0, len(views), _VIEWS_TOGETHER)
    ]
    blocks = tuple(
        _exact_block(views, facts, n_candidates, start, stop, executor, key=key)
        for start, stop in row_ranges(n_samples)
    )
    executor.release(facts)
    return blocks


def release_candidates(blocks: tuple[Handle, ...] | BlockedCandidates, executor: Executor) -> None:
    """Release candidate neighbors; the order of the rows stays."""
    executor.release(blocks.rows if isinstance(blocks, BlockedCandidates) else blocks)


def _exact_block(
    views: list[Handle],
    facts: list[Handle],
    n_candidates: int,
    start: int,
    stop: int,
    executor: Executor,
    *,
    key: str,
) -> Handle:
    """Candidate neighbors of one block of rows, by a task for every eight views, up to sixteen tasks."""
    size = -(-(stop - start) // min(_MAX_PARTS, -(-len(views) // _VIEWS_TOGETHER)))
    parts = [
        executor.submit(
            candidates,
            views,
            facts,
            n_candidates,
            first,
            min(first + size, stop),
            key=f"candidate_neighbors/{key}/{first}",
        )
        for first in range(start, stop, size)
    ]
    if len(parts) == 1:
        return parts[0]
    block = executor.submit(joined_candidates, parts, key=f"join_candidates/{key}/{start}")
    executor.release(parts)
    return block


def facts_of_views(
    views: Sequence[RidgeView | LinearDiscriminants], some: slice
) -> list[ColumnFacts]:
    """Facts of the columns of some views in the joint ridge embedding, for `candidates`."""
    return search_facts(joint_embedding(views), some)


def candidates(
    views: Sequence[RidgeView | LinearDiscriminants],
    facts: Sequence[list[ColumnFacts]],
    n_candidates: int,
    start: int,
    stop: int,
) -> CandidateEdges:
    """Candidate neighbors of a block of rows in the joint ridge embedding."""
    of_views = [one for group in facts for one in group]
    return candidate_neighbors(joint_embedding(views), n_candidates, start, stop, of_views)


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
