"""Candidate neighbors: only they can have an edge in the consensus graph."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.engine.blocks import Candidates, RowOrder, Stage, View, exchanged, group_edges
from mscam_dask.engine.executors.base import Handle
from mscam_dask.linalg.halos import Ranges, RowPieces, blocks_of, join_rows, split_rows
from mscam_dask.linalg.ivf import (
    CELL_POINTS,
    IVFIndex,
    assign_to_cells,
    cut_cells,
    ivf_search,
    train_centers,
    training_rows,
)
from mscam_dask.solvers.graph_update import (
    CandidateEdges,
    candidate_neighbors,
    linked_blocks,
    search_facts,
)
from mscam_dask.solvers.lda import LinearDiscriminants
from mscam_dask.solvers.ridge_view import RidgeView, complete_embedding, joint_embedding
from mscam_dask.types.parameters import Parameters

EmbeddedView = RidgeView | LinearDiscriminants

# Parts of one block in which neighbors are searched.
_MIN_PART = 512
_MAX_PART = 8192
_PARTS = 8

# Fewest tasks that search in near cells: where blocks are few, several tasks search in each.
_MIN_SEARCHES = 32

# Number of views of which one task finds the column facts, or searches a whole part, and most tasks of a part.
_VIEWS_TOGETHER = 6
_MAX_TASKS = 16


def row_parts(n_samples: int) -> list[tuple[int, int]]:
    """Parts of one block; they depend on n only, never on the number of workers."""
    size = min(_MAX_PART, max(_MIN_PART, -(-n_samples // _PARTS)))
    return [(start, min(start + size, n_samples)) for start in range(0, n_samples, size)]


def ordered_candidates(
    stage: Stage,
    views: list[View],
    ranges: Ranges,
    parameters: Parameters,
) -> tuple[list[View], Candidates]:
    """Submit the candidate neighbors in the joint embedding, and the views in the order of their rows."""
    if len(ranges) == 1:
        own = functools.partial(np.arange, dtype=np.int32)
        order = stage.submit(own, ranges[-1][1], kind="row_order")
        same = RowOrder(ranges, order, order)
        return views, candidates_in_order(stage, views, same, parameters)
    return _by_cells(stage, views, ranges, parameters)


def candidates_in_order(
    stage: Stage, views: Sequence[View], order: RowOrder, parameters: Parameters
) -> Candidates:
    """Submit candidate neighbors for rows that keep their order."""
    if order.is_whole:
        return _exhaustive(stage, [view.rows[0] for view in views], order, parameters)
    _, found = _by_cells(stage, [*views], order.ranges, parameters)
    edges = group_edges(order.ranges)
    pieces = [
        stage.submit(split_candidates, part, found.order.order, edges) for part in found.parts
    ]
    parts = exchanged(stage, pieces, join_candidates, (), order.ranges)
    return Candidates(order, tuple(parts), _links(stage, parts, order.ranges))


def _links(stage: Stage, rows: Sequence[Handle], ranges: Ranges) -> tuple[tuple[int, ...], ...]:
    """Gather the numbers of each block itself and of those with its neighbors."""
    found = stage.executor.gather([stage.submit(linked_blocks, one, ranges) for one in rows])
    return tuple(tuple(sorted({number, *links})) for number, links in enumerate(found))


# exhaustive search -----------------------------------------------------------------------------


def _exhaustive(
    stage: Stage, views: list[Handle], order: RowOrder, parameters: Parameters
) -> Candidates:
    facts = [
        stage.submit(
            function_of_points,
            views,
            search_facts,
            slice(first, first + _VIEWS_TOGETHER),
            kind="column_facts",
        )
        for first in range(0, len(views), _VIEWS_TOGETHER)
    ]
    n_candidates, parts = parameters.candidates(order.n_samples), []
    for start, stop in row_parts(order.n_samples):
        size = -(-(stop - start) // min(_MAX_TASKS, -(-len(views) // _VIEWS_TOGETHER)))
        searched = [
            stage.submit(
                function_of_points,
                views,
                candidate_neighbors,
                n_candidates,
                first,
                min(first + size, stop),
                facts,
                kind="exact_neighbors",
            )
            for first in range(start, stop, size)
        ]
        parts.append(_joined(stage, searched))
    return Candidates(order, tuple(parts), ((0,),) * len(parts))


def _joined(stage: Stage, parts: list[Handle]) -> Handle:
    return parts[0] if len(parts) == 1 else stage.submit(joined_candidates, parts)


def function_of_points(
    views: Sequence[EmbeddedView], function: Callable[..., Any], *args: Any
) -> Any:
    """Function of the points of all rows, or of a block of rows, in the joint embedding."""
    return function(joint_embedding(views), *args)


def joined_candidates(parts: list[CandidateEdges]) -> CandidateEdges:
    """Candidate neighbors of consecutive parts as one part."""
    coverages = [part.coverage for part in parts if part.coverage is not None]
    return CandidateEdges(
        parts[0].row_start,
        np.concatenate([part.indices for part in parts]),
        np.concatenate([part.squared_distances for part in parts]),
        np.concatenate(coverages) if coverages else None,
    )


# search in near cells --------------------------------------------------------------------------


def _by_cells(
    stage: Stage,
    views: list[View],
    ranges: Ranges,
    parameters: Parameters,
) -> tuple[list[View], Candidates]:
    """Submit the views in the order of the cells of their joint embedding, and the candidate neighbors."""
    n, seed = ranges[-1][1], parameters.seed
    n_candidates = parameters.candidates(n)
    blocks = [[view.rows[number] for view in views] for number in range(len(ranges))]
    samples = [
        stage.submit(training_points, block, start, stop, n, seed, CELL_POINTS)
        for block, (start, stop) in zip(blocks, ranges, strict=True)
    ]
    centers = stage.submit(train_centers, samples, max(1, n // CELL_POINTS), seed)
    cells = [stage.submit(assigned_cells, block, centers) for block in blocks]
    index = stage.submit(cut_cells, cells, centers, n_candidates, CELL_POINTS)
    order = RowOrder(ranges, stage.attribute(index, "order"), stage.attribute(index, "positions"))
    n_parts = max(1, _MIN_SEARCHES // len(ranges))
    edges = [
        start + (stop - start) * part // n_parts
        for start, stop in ranges
        for part in range(n_parts)
    ]
    searching = list(itertools.pairwise([*edges, n]))
    searched = stage.submit(searched_blocks, index, searching, ranges)
    moved = [_moved(stage, view, order) for view in views]
    del blocks
    views.clear()  # rows in the order of the data are freed before the search
    parts = []
    for (start, stop), needed in zip(searching, stage.value(searched), strict=True):
        points = [
            stage.submit(
                searched_points,
                [view.rows[block] for view in moved],
                index,
                ranges[block],
                start,
                stop,
            )
            for block in needed
        ]
        parts.append(stage.submit(ivf_neighbors, points, index, n_candidates, start, stop))
    rows = [
        _joined(stage, parts[first : first + n_parts]) for first in range(0, len(parts), n_parts)
    ]
    return moved, Candidates(order, tuple(rows), _links(stage, rows, ranges))


def _moved(stage: Stage, view: View, order: RowOrder) -> View:
    """Submit a view in a new order of rows."""
    edges = group_edges(order.ranges)
    pieces = [
        stage.submit(split_view, block, order.positions, start, edges)
        for block, (start, _) in zip(view.rows, order.ranges, strict=True)
    ]
    rows = exchanged(stage, pieces, join_view, (view.empty,), order.ranges)
    return View(tuple(rows), view.empty)


def training_points(
    views: list[EmbeddedView], start: int, stop: int, n_samples: int, seed: int, cell_points: int
) -> NDArray[np.float32]:
    """Points of a block on which the centers of the cells are trained."""
    rows = training_rows(start, stop, n_samples, seed, cell_points)
    return np.asarray(complete_embedding(views).stacked(rows, np.float32))


def assigned_cells(views: list[EmbeddedView], trained: NDArray[np.float32]) -> NDArray[np.int32]:
    """Cell of each row of a block."""
    points = complete_embedding(views)
    return assign_to_cells(points.stacked(slice(None), np.float32), trained).astype(np.int32)


def searched_blocks(
    index: IVFIndex, parts: Sequence[tuple[int, int]], ranges: Ranges
) -> list[tuple[int, ...]]:
    """For each part of the rows in the order of the cells, the blocks in which its rows search."""
    return [blocks_of(index.searched(start, stop), ranges) for start, stop in parts]


def searched_points(
    views: list[EmbeddedView], index: IVFIndex, block: tuple[int, int], start: int, stop: int
) -> NDArray[np.float32]:
    """Points of a block of rows in which the rows start … stop − 1 search."""
    first, end = block
    searched = index.searched(start, stop)
    mine = searched[(searched >= first) & (searched < end)] - first
    return np.asarray(complete_embedding(views).stacked(mine, np.float32))


def ivf_neighbors(
    parts: list[NDArray[np.float32]], index: IVFIndex, n_candidates: int, start: int, stop: int
) -> CandidateEdges:
    """Candidate neighbors of some rows in the order of the cells, among `searched_points`."""
    return CandidateEdges(start, *ivf_search(parts, index, n_candidates, start, stop))


def split_view(
    view: EmbeddedView, positions: NDArray[np.int32], start: int, edges: tuple[int, ...]
) -> list[RowPieces]:
    """Rows of a block by the group of blocks to which they go."""
    vectors, _ = view.coordinates()
    return split_rows([vectors], positions[start : start + len(vectors)], edges)


def join_view(pieces: list[RowPieces], view: EmbeddedView, start: int, stop: int) -> EmbeddedView:
    """View of a block of rows in the new order, from the pieces of all blocks."""
    (vectors,) = join_rows(pieces, start, stop)
    return view.of_rows(vectors)


def split_candidates(
    candidates: CandidateEdges, order: NDArray[np.int32], edges: tuple[int, ...]
) -> list[RowPieces]:
    """Candidate edges of a block in the order of other cells, back in the first order."""
    own = order[candidates.row_start : candidates.row_start + len(candidates.indices)]
    indices = np.where(candidates.indices < 0, np.int32(-1), order[candidates.indices])
    return split_rows([indices, candidates.squared_distances], own, edges)


def join_candidates(pieces: list[RowPieces], start: int, stop: int) -> CandidateEdges:
    """Candidate edges of a block of rows from the pieces of all blocks."""
    return CandidateEdges(start, *join_rows(pieces, start, stop))
