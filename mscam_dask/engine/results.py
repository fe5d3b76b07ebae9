"""Graphs, embeddings and coordinates of a fit: gathered, or written by the workers of large data."""

from __future__ import annotations

import dataclasses
import itertools
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.result_arrays import (
    StoredArrays,
    create_embedding,
    create_graph,
    write_rows,
)
from mscam_dask.data.store.arrays import new_group
from mscam_dask.engine.blocks import Graph, RowOrder, exchanged, group_edges
from mscam_dask.engine.executors.base import Handle
from mscam_dask.engine.stage import FAN_IN, Stage
from mscam_dask.linalg.block_eigensolver import RowPieces, join_rows, split_rows
from mscam_dask.solvers.row_graph import join_graph, split_graph, whole_graph
from mscam_dask.types.result import ArraysInMemory


@dataclasses.dataclass(frozen=True)
class RowsOfViews:
    """Embeddings or coordinates: rows of each view by blocks."""

    kind: str  # "view_embeddings" or "view_coordinates"
    names: tuple[str, ...]
    rows: tuple[tuple[Handle, ...], ...]


def gather_arrays(
    stage: Stage,
    graphs: dict[str, Graph],
    embeddings: RowsOfViews,
    coordinates: RowsOfViews,
    order: RowOrder,
) -> ArraysInMemory:
    """Gather graphs, embeddings and coordinates in the order of the data."""
    groups: list[Sequence[Handle]] = [[order.order], *(graph.rows for graph in graphs.values())]
    groups += [*embeddings.rows, *coordinates.rows]
    together = len(groups) if order.is_whole else 1
    gathered = itertools.chain.from_iterable(
        stage.gather(*groups[first : first + together]) for first in range(0, len(groups), together)
    )
    (of_samples,) = next(gathered)
    wholes = [whole_graph(next(gathered), of_samples) for _ in graphs]
    of_views, projected = (
        {name: _of_samples(next(gathered), of_samples, dtype) for name in views.names}
        for views, dtype in ((embeddings, np.float64), (coordinates, np.float32))
    )
    return ArraysInMemory(wholes[0], wholes[-1], of_views, projected)


def _of_samples(
    blocks: list[NDArray[Any]], of_samples: NDArray[np.int32], dtype: Any
) -> NDArray[Any]:
    """Array (n, m) in the order of the data from its blocks of rows."""
    parts = np.concatenate(blocks)
    ordered = np.empty(parts.shape, dtype=dtype)
    ordered[of_samples] = parts
    return ordered


def write_arrays(
    stage: Stage,
    directory: Path,
    graphs: dict[str, Graph],
    views: Sequence[RowsOfViews],
    order: RowOrder,
) -> StoredArrays | None:
    """Write graphs, embeddings and coordinates to a new directory; only numbers of entries are gathered."""
    store = _Store(directory, new_group(directory), order, stage)
    for key, graph in graphs.items():
        store.write_graph(key, graph)
    for rows in views:
        for first in range(0, len(rows.names), FAN_IN):
            store.write_views(rows, range(first, min(first + FAN_IN, len(rows.names))))
    if not all(stage.executor.gather(store.writes)):
        shutil.rmtree(directory)
        return None
    names = {rows.kind: rows.names for rows in views}
    return StoredArrays(
        directory,
        order.n_samples,
        has_learned_graph="learned_graph" in graphs,
        embedded_views=names["view_embeddings"],
        projected_views=names["view_coordinates"],
        is_partial=True,
    )


class _Store:
    """Arrays that are being written, and the handles of the tasks that write them."""

    def __init__(self, directory: Path, group: Any, order: RowOrder, stage: Stage) -> None:
        self._directory, self._group = directory, group
        self._order, self._stage = order, stage
        self.writes: list[Handle] = []

    def write_graph(self, key: str, graph: Graph) -> None:
        """Submit the tasks that write a graph."""
        ranges, stage = self._order.ranges, self._stage
        pieces = [
            stage.submit(split_graph, rows, self._order.order, group_edges(ranges))
            for rows in graph.rows
        ]
        blocks = exchanged(stage, pieces, join_graph, (), ranges)
        counts = stage.executor.gather([stage.submit(n_entries, block) for block in blocks])
        edges = [0, *itertools.accumulate(counts)]
        arrays = create_graph(self._group, key, ranges[-1][1], edges[-1])
        no_shifts = [0] * len(blocks)
        # the index pointers of the first block have one entry more than it has rows
        ends = [0, *(stop + 1 for _, stop in ranges)]
        self._write(arrays["data"], f"{key}/data", blocks, 0, edges, no_shifts)
        self._write(arrays["indices"], f"{key}/indices", blocks, 1, edges, no_shifts)
        self._write(arrays["indptr"], f"{key}/indptr", blocks, 2, ends, edges[:-1])

    def write_views(self, views: RowsOfViews, some: range) -> None:
        """Submit the tasks that write embeddings or coordinates of some views."""
        ranges, stage = self._order.ranges, self._stage
        pieces = [
            stage.submit(
                split_rows_of_views,
                [views.rows[view][number] for view in some],
                self._order.order,
                start,
                group_edges(ranges),
            )
            for number, (start, _) in enumerate(ranges)
        ]
        blocks = exchanged(stage, pieces, join_rows, (), ranges)
        of_columns = stage.value(stage.submit(widths, blocks[0]))
        edges = [0, *(stop for _, stop in ranges)]
        for position, view in enumerate(some):
            shape = (edges[-1], of_columns[position])
            array = create_embedding(self._group, views.kind, view, views.names[view], shape)
            key = f"{views.kind}/{view}"
            self._write(array, key, blocks, position, edges, [0] * len(blocks))

    def _write(
        self,
        array: Any,
        key: str,
        blocks: Sequence[Handle],
        number: int,
        edges: Sequence[int],
        shifts: Sequence[int],
    ) -> None:
        """Submit a task for each chunk of an array, with the blocks that have rows of it."""
        n_rows, size = array.shape[0], array.chunks[0]
        for start in range(0, n_rows, size):
            stop = min(start + size, n_rows)
            first = int(np.searchsorted(edges, start, side="right")) - 1
            last = int(np.searchsorted(edges, stop, side="left"))
            self.writes.append(
                self._stage.submit(
                    written,
                    list(blocks[first:last]),
                    number,
                    tuple(shifts[first:last]),
                    (self._directory, key),
                    edges[first],
                    start,
                    stop,
                    kind="write_result",
                )
            )


def split_rows_of_views(
    parts: list[NDArray[Any]], order: NDArray[np.int32], start: int, edges: tuple[int, ...]
) -> list[RowPieces]:
    """Rows of a block of several arrays by the group of samples to which they belong."""
    return split_rows(parts, order[start : start + len(parts[0])], edges)


def widths(rows: tuple[NDArray[Any], ...]) -> list[int]:
    """Numbers of columns of some arrays."""
    return [array.shape[1] for array in rows]


def n_entries(rows: tuple[NDArray[Any], ...]) -> int:
    """Number of entries of `mscam_dask.solvers.row_graph.join_graph`."""
    return len(rows[0])


def written(
    blocks: list[tuple[NDArray[Any], ...]],
    number: int,
    shifts: tuple[int, ...],
    place: tuple[Path, str],
    first: int,
    start: int,
    stop: int,
) -> bool:
    """Write rows start … stop − 1 of an array of a result: array `number` of each block."""
    parts = [
        block[number] + shift if shift else block[number]
        for block, shift in zip(blocks, shifts, strict=True)
    ]
    return write_rows(*place, parts, first, start, stop)
