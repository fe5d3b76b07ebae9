"""Blocks of rows of large data: handles of data in them, views, their order by cells, and candidate neighbors."""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.sources import ArrayRows, RowSource
from mscam_dask.engine import tasks as iteration_tasks
from mscam_dask.engine.executors.base import Executor, Handle, HandleGroup, submit_tree
from mscam_dask.engine.row_blocks import tasks
from mscam_dask.linalg.block_eigensolver import Ranges
from mscam_dask.linalg.ivf import CELL_POINTS
from mscam_dask.solvers.row_graph import linked_blocks
from mscam_dask.solvers.row_view import row_scaling
from mscam_dask.solvers.view_svd import MAX_EXACT_GRAM
from mscam_dask.types.parameters import ViewSettings

__all__ = [
    "BlockedCandidates",
    "BlockedEmbedding",
    "BlockedGraph",
    "BlockedSpectrum",
    "BlockedView",
    "RowOrder",
    "block_ranges",
    "candidates_in_order",
    "exchanged",
    "group_edges",
    "ordered_by_cells",
    "ridge_view_blocks",
]

# Rows of a block; with more blocks than enough for most clusters, up to ten times as many.
_BLOCK_ROWS = 6144

_ENOUGH_BLOCKS = 96

_MAX_ROWS = 65_536


def block_ranges(n_samples: int) -> Ranges:
    """Blocks of rows of large data, of equal size; they depend on n only."""
    wanted = max(1, min(_ENOUGH_BLOCKS, n_samples // _BLOCK_ROWS))
    n_blocks = max(wanted, -(-n_samples // _MAX_ROWS))
    edges = [n_samples * block // n_blocks for block in range(n_blocks + 1)]
    return tuple(itertools.pairwise(edges))


@dataclasses.dataclass(frozen=True)
class BlockedView(HandleGroup):
    """Ridge view, or discriminants, by blocks of rows; `empty` is the same without rows."""

    rows: tuple[Handle, ...]
    empty: Handle

    def handles(self) -> Sequence[Handle]:
        """Return all handles."""
        return (*self.rows, self.empty)


@dataclasses.dataclass(frozen=True)
class RowOrder(HandleGroup):
    """Order of the rows by cells: sample at each position, and position of each sample."""

    ranges: Ranges
    order: Handle
    positions: Handle

    def handles(self) -> Sequence[Handle]:
        """Return all handles."""
        return (self.order, self.positions)


@dataclasses.dataclass(frozen=True)
class BlockedCandidates(HandleGroup):
    """Candidate neighbors by blocks of rows, and the blocks in which those of each block are."""

    order: RowOrder
    rows: tuple[Handle, ...]
    links: tuple[tuple[int, ...], ...]

    def __iter__(self) -> Iterator[Handle]:
        return iter(self.handles())

    def handles(self) -> Sequence[Handle]:
        """Return all handles."""
        return (*self.rows, *self.order.handles())


@dataclasses.dataclass(frozen=True)
class BlockedGraph(HandleGroup):
    """Consensus graph by blocks of rows, and the blocks with neighbors of each block."""

    ranges: Ranges
    rows: tuple[Handle, ...]
    links: tuple[tuple[int, ...], ...]
    components: Handle
    n_components: int

    def handles(self) -> Sequence[Handle]:
        """Return all handles."""
        return (*self.rows, self.components)

    @property
    def sources(self) -> list[list[int]]:
        """For each block, the blocks with edges into it."""
        return [
            [other for other, links in enumerate(self.links) if block in links]
            for block in range(len(self.links))
        ]

    @property
    def halos(self) -> list[list[int]]:
        """For each block, the blocks with columns of its rows of the Laplacian."""
        both = zip(self.links, self.sources, strict=True)
        return [sorted({block, *links, *into}) for block, (links, into) in enumerate(both)]


@dataclasses.dataclass(frozen=True)
class BlockedSpectrum(HandleGroup):
    """Laplacian and bottom eigenvectors by blocks of rows; without `laplacian` only start vectors."""

    laplacian: tuple[Handle, ...]
    vectors: tuple[Handle, ...]
    halos: tuple[tuple[int, ...], ...]
    values: NDArray[np.float64]
    converged: bool

    def handles(self) -> Sequence[Handle]:
        """Return all handles."""
        return (*self.laplacian, *self.vectors)


@dataclasses.dataclass(frozen=True)
class BlockedEmbedding(HandleGroup):
    """Embedding of a view by blocks of rows, its record, and scaled rows if the A-step uses others."""

    rows: tuple[Handle, ...]
    record: Handle
    scaled: tuple[Handle, ...] = ()

    def handles(self) -> Sequence[Handle]:
        """Return all handles."""
        return (*self.rows, self.record, *self.scaled)


def taken_handles(handles: Sequence[Handle], numbers: Sequence[int]) -> list[Handle]:
    return [handles[number] for number in numbers]


# Groups of blocks between which rows are exchanged: as many pieces of each block.
_MAX_PIECES = 16


def ridge_view_blocks(
    source: RowSource,
    settings: ViewSettings,
    ranges: Ranges,
    max_rank: int,
    executor: Executor,
    *,
    key: str,
) -> BlockedView:
    """Submit the ridge view of a view of large data, in the order of the data.

    Views of many columns, and distance and kernel views, are decomposed by one task.
    """
    if source.view_type != "features" or source.shape[1] > MAX_EXACT_GRAM:
        return _decomposed_at_once(source, settings, ranges, max_rank, executor, key=key)
    data = [
        _rows(source, start, stop, executor, key=f"rows/{key}/{start}") for start, stop in ranges
    ]
    moments = [
        executor.submit(tasks.moments, *one, key=f"moments/{key}/{start}")
        for one, (start, _) in zip(data, ranges, strict=True)
    ]
    transform = executor.submit(row_scaling, moments, settings.scale, key=f"scaling/{key}")
    grams = [
        executor.submit(tasks.gram, *one, transform, key=f"gram/{key}/{start}")
        for one, (start, _) in zip(data, ranges, strict=True)
    ]
    grams = submit_tree(  # since a task would hold the matrices of all blocks
        executor,
        tasks.merged_grams,
        grams,
        tasks.FAN_IN,
        key=f"merge_grams/{key}",
        n_left=tasks.FAN_IN,
    )
    factor = executor.submit(
        tasks.factor, grams, transform, settings, source.name, max_rank, key=f"factor/{key}"
    )
    rows = [
        executor.submit(tasks.project, *one, factor, key=f"project/{key}/{start}")
        for one, (start, _) in zip(data, ranges, strict=True)
    ]
    empty = executor.submit(operator.attrgetter("ridge"), factor, key=f"prepare/{key}")
    executor.release([*moments, transform, *grams, factor])
    if isinstance(source, ArrayRows):
        executor.release([one[0] for one in data])
    return BlockedView(tuple(rows), empty)


def _rows(
    source: RowSource, start: int, stop: int, executor: Executor, *, key: str
) -> tuple[Any, int, int]:
    """Source of a block of rows, and their range in it: only these rows of an array are sent."""
    if not isinstance(source, ArrayRows):
        return source, start, stop
    rows = executor.submit(ArrayRows, source.array[start:stop], source.name, key=key)
    return rows, 0, stop - start


def _decomposed_at_once(
    source: RowSource,
    settings: ViewSettings,
    ranges: Ranges,
    max_rank: int,
    executor: Executor,
    *,
    key: str,
) -> BlockedView:
    factored = executor.submit(
        iteration_tasks.svd_view, source, settings.scale, max_rank, key=f"factor/{key}"
    )
    view = executor.submit(
        iteration_tasks.ridge_view_of, factored, settings.alpha, key=f"prepare/{key}"
    )
    *rows, empty = (
        executor.submit(tasks.rows_of_view, view, start, stop, key=f"project/{key}/{start}-{stop}")
        for start, stop in (*ranges, (0, 0))
    )
    executor.release([factored, view])
    return BlockedView(tuple(rows), empty)


def ordered_by_cells(
    views: Sequence[BlockedView],
    ranges: Ranges,
    n_candidates: int,
    seed: int,
    executor: Executor,
    *,
    key: str,
    keep_rows: bool = False,
) -> tuple[list[BlockedView], BlockedCandidates]:
    """Submit the views in the order of the cells of their joint embedding, and the candidate neighbors.

    The rows of `views` are released before the search, unless they are kept.
    """
    n = ranges[-1][1]
    blocks = [[view.rows[number] for view in views] for number in range(len(ranges))]
    samples = [
        executor.submit(
            tasks.training_points,
            block,
            start,
            stop,
            n,
            seed,
            CELL_POINTS,
            key=f"cell_sample/{key}/{start}",
        )
        for block, (start, stop) in zip(blocks, ranges, strict=True)
    ]
    centers = executor.submit(
        tasks.centers, samples, n, seed, CELL_POINTS, key=f"cell_centers/{key}"
    )
    parts = [
        executor.submit(tasks.assigned, block, centers, key=f"assign_cells/{key}/{start}")
        for block, (start, _) in zip(blocks, ranges, strict=True)
    ]
    index = executor.submit(
        tasks.cells, parts, centers, n_candidates, CELL_POINTS, key=f"cells/{key}"
    )
    order = RowOrder(
        ranges,
        executor.submit(operator.attrgetter("order"), index, key=f"row_order/{key}"),
        executor.submit(operator.attrgetter("positions"), index, key=f"row_positions/{key}"),
    )
    searched = executor.submit(tasks.searched_blocks, index, ranges, key=f"searched_blocks/{key}")
    executor.release([*samples, centers, *parts])
    moved = [
        _moved(view, order, executor, key=f"{key}/{number}") for number, view in enumerate(views)
    ]
    if not keep_rows:
        for view in views:
            executor.release(view.rows)
    (needed,) = executor.gather([searched])
    rows = []
    for number, (start, stop) in enumerate(ranges):
        points = [
            executor.submit(
                tasks.searched_points,
                [view.rows[other] for view in moved],
                index,
                other,
                number,
                ranges,
                key=f"searched_points/{key}/{number}/{other}",
            )
            for other in needed[number]
        ]
        rows.append(
            executor.submit(
                tasks.search,
                points,
                index,
                n_candidates,
                start,
                stop,
                key=f"ivf_neighbors/{key}/{start}",
            )
        )
        executor.release(points)
    links = _links(rows, ranges, executor, key=f"candidates/{key}")
    executor.release([index, searched])
    return moved, BlockedCandidates(order, tuple(rows), links)


def candidates_in_order(
    views: Sequence[BlockedView],
    order: RowOrder,
    n_candidates: int,
    seed: int,
    executor: Executor,
    *,
    key: str,
) -> BlockedCandidates:
    """Submit candidate neighbors by other distances, for rows that keep their order."""
    ranges = order.ranges
    moved, found = ordered_by_cells(
        views, ranges, n_candidates, seed, executor, key=key, keep_rows=True
    )
    edges = group_edges(ranges)
    pieces = [
        executor.submit(
            tasks.split_candidates,
            block,
            found.order.order,
            edges,
            key=f"split_candidates/{key}/{number}",
        )
        for number, block in enumerate(found.rows)
    ]
    rows = exchanged(
        pieces, tasks.join_candidates, (), ranges, executor, key=f"candidate_neighbors/{key}"
    )
    links = _links(rows, ranges, executor, key=f"candidates/{key}")
    for view in moved:
        executor.release(view.rows)
    executor.release([found])
    return BlockedCandidates(order, tuple(rows), links)


def group_edges(ranges: Ranges) -> tuple[int, ...]:
    """First rows of groups of blocks, and the end."""
    together = -(-len(ranges) // _MAX_PIECES)
    return (*(start for start, _ in ranges[::together]), ranges[-1][1])


def _moved(view: BlockedView, order: RowOrder, executor: Executor, *, key: str) -> BlockedView:
    """Submit a view in a new order of rows."""
    edges = group_edges(order.ranges)
    pieces = [
        executor.submit(
            tasks.split_view, block, order.positions, start, edges, key=f"split_rows/{key}/{start}"
        )
        for block, (start, _) in zip(view.rows, order.ranges, strict=True)
    ]
    rows = exchanged(
        pieces, tasks.join_view, (view.empty,), order.ranges, executor, key=f"join_rows/{key}"
    )
    return BlockedView(tuple(rows), view.empty)


def exchanged(
    pieces: list[Handle],
    join: Any,
    arguments: tuple[Handle, ...],
    ranges: Ranges,
    executor: Executor,
    *,
    key: str,
) -> list[Handle]:
    """Submit the blocks of rows in a new order from the pieces of each block; pieces are released."""
    together = -(-len(ranges) // _MAX_PIECES)
    joined: list[Handle] = []
    for group in range(-(-len(ranges) // together)):
        sent = [
            executor.submit(operator.getitem, piece, group, key=f"send_rows/{key}/{number}/{group}")
            for number, piece in enumerate(pieces)
        ]
        joined += [
            executor.submit(join, sent, *arguments, start, stop, key=f"{key}/{start}")
            for start, stop in ranges[group * together : (group + 1) * together]
        ]
        executor.release(sent)
    executor.release(pieces)
    return joined


def _links(
    rows: Sequence[Handle], ranges: Ranges, executor: Executor, *, key: str
) -> tuple[tuple[int, ...], ...]:
    """Gather the blocks in which the neighbors of each block are."""
    handles = [
        executor.submit(linked_blocks, block, ranges, key=f"linked_blocks/{key}/{number}")
        for number, block in enumerate(rows)
    ]
    links = executor.gather(handles)
    executor.release(handles)
    return tuple(links)
