"""Arrays of a result of large data, written by the workers: blocks of rows in the order of the samples."""

from __future__ import annotations

import dataclasses
import itertools
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mscam_dask.data.result_arrays import (
    StoredArrays,
    create_embedding,
    create_graph,
    new_arrays,
)
from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.row_blocks.candidates import exchanged, group_edges
from mscam_dask.engine.row_blocks.embedding import FAN_IN
from mscam_dask.engine.row_blocks.handles import BlockedGraph, RowOrder
from mscam_dask.engine.tasks import row_blocks as tasks
from mscam_dask.linalg.block_eigensolver import join_rows
from mscam_dask.solvers.row_graph import join_graph, split_graph

__all__ = ["RowsOfViews", "write_arrays"]


@dataclasses.dataclass(frozen=True)
class RowsOfViews:
    """Embeddings or coordinates: rows of each view by blocks, in the order of the cells.

    Attributes
    ----------
    kind : str
        "view_embeddings" or "view_coordinates".
    names : tuple of str
    rows : tuple of tuple of handle
    """

    kind: str
    names: tuple[str, ...]
    rows: tuple[tuple[Handle, ...], ...]


def write_arrays(
    directory: Path,
    graphs: dict[str, BlockedGraph],
    views: Sequence[RowsOfViews],
    order: RowOrder,
    executor: Executor,
) -> StoredArrays | None:
    """Write graphs, embeddings and coordinates; only numbers of entries come to the driver.

    Parameters
    ----------
    directory : Path
        Made here.
    graphs : dict of str to BlockedGraph
        "consensus_graph", and "learned_graph" where it is another.
    views : sequence of RowsOfViews
        Embeddings and coordinates.
    order : RowOrder
    executor : Executor

    Returns
    -------
    StoredArrays or None
        None if a worker could not write there; nothing is left behind.
    """
    store = _Store(directory, new_arrays(directory), order, executor)
    for key, graph in graphs.items():
        store.write_graph(key, graph)
    for rows in views:
        for first in range(0, len(rows.names), FAN_IN):
            store.write_views(rows, range(first, min(first + FAN_IN, len(rows.names))))
    written = executor.gather(store.writes)
    executor.release(store.writes)
    if not all(written):
        shutil.rmtree(directory)
        return None
    names = {rows.kind: rows.names for rows in views}
    return StoredArrays(
        directory,
        order.ranges[-1][1],
        has_learned_graph="learned_graph" in graphs,
        embedded_views=names["view_embeddings"],
        projected_views=names["view_coordinates"],
        is_partial=True,
    )


class _Store:
    """Arrays that are being written, and the handles of the tasks that write them."""

    def __init__(self, directory: Path, group: Any, order: RowOrder, executor: Executor) -> None:
        self._directory, self._group = directory, group
        self._order, self._executor = order, executor
        self.writes: list[Handle] = []

    def write_graph(self, key: str, graph: BlockedGraph) -> None:
        """Submit the tasks that write a graph."""
        ranges, executor = self._order.ranges, self._executor
        pieces = [
            executor.submit(
                split_graph,
                rows,
                self._order.order,
                group_edges(ranges),
                key=f"split_graph/{key}/{number}",
            )
            for number, rows in enumerate(graph.rows)
        ]
        blocks = exchanged(pieces, join_graph, (), ranges, executor, key=f"join_graph/{key}")
        counts = [
            executor.submit(tasks.n_entries, block, key=f"entry_count/{key}/{number}")
            for number, block in enumerate(blocks)
        ]
        edges = [0, *itertools.accumulate(executor.gather(counts))]
        executor.release(counts)
        arrays = create_graph(self._group, key, ranges[-1][1], edges[-1])
        no_shifts = [0] * len(blocks)
        # the index pointers of the first block have one entry more than it has rows
        ends = [0, *(stop + 1 for _, stop in ranges)]
        self._write(arrays["data"], f"{key}/data", blocks, 0, edges, no_shifts)
        self._write(arrays["indices"], f"{key}/indices", blocks, 1, edges, no_shifts)
        self._write(arrays["indptr"], f"{key}/indptr", blocks, 2, ends, edges[:-1])
        executor.release(blocks)

    def write_views(self, views: RowsOfViews, some: range) -> None:
        """Submit the tasks that write embeddings or coordinates of some views."""
        ranges, executor = self._order.ranges, self._executor
        name = f"{views.kind}/{some.start}"
        pieces = [
            executor.submit(
                tasks.split_rows_of_views,
                [views.rows[view][number] for view in some],
                self._order.order,
                start,
                group_edges(ranges),
                key=f"split_result/{name}/{number}",
            )
            for number, (start, _) in enumerate(ranges)
        ]
        blocks = exchanged(pieces, join_rows, (), ranges, executor, key=f"join_result/{name}")
        handle = executor.submit(tasks.widths, blocks[0], key=f"widths/{name}")
        (widths,) = executor.gather([handle])
        executor.release([handle])
        edges = [0, *(stop for _, stop in ranges)]
        for position, view in enumerate(some):
            array = create_embedding(
                self._group,
                views.kind,
                view,
                views.names[view],
                (edges[-1], widths[position]),
            )
            key = f"{views.kind}/{view}"
            self._write(array, key, blocks, position, edges, [0] * len(blocks))
        executor.release(blocks)

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
                self._executor.submit(
                    tasks.written,
                    list(blocks[first:last]),
                    number,
                    tuple(shifts[first:last]),
                    (self._directory, key),
                    edges[first],
                    start,
                    stop,
                    key=f"write_result/{key}/{start}",
                )
            )
