"""Graphs, embeddings and coordinates of a fit: gathered, or those of large data written block by block."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.results import StoredArrays, put_embedding, put_graph
from mscam_dask.data.store.arrays import new_group
from mscam_dask.engine.blocks import FAN_IN, Graph, RowOrder, Stage, exchanged, group_edges
from mscam_dask.engine.executors.base import Handle
from mscam_dask.engine.graph import graph_pieces, row_pieces
from mscam_dask.linalg.halos import RowPieces, join_rows, split_rows
from mscam_dask.solvers.row_graph import join_graph, split_graph, whole_graph
from mscam_dask.types.result import ArraysInMemory

RowsOfViews = dict[str, Sequence[Handle]]
"""Embeddings or coordinates: rows of each view by blocks."""


def gather_arrays(
    stage: Stage,
    graphs: dict[str, Graph],
    embeddings: RowsOfViews,
    coordinates: RowsOfViews,
    order: RowOrder,
) -> ArraysInMemory:
    """Gather graphs, embeddings and coordinates in the order of the data."""
    groups: list[Sequence[Handle]] = [[order.order], *(graph.rows for graph in graphs.values())]
    groups += [*embeddings.values(), *coordinates.values()]
    together = len(groups) if order.is_whole else 1
    gathered = itertools.chain.from_iterable(
        stage.gather(*groups[first : first + together]) for first in range(0, len(groups), together)
    )
    (of_samples,) = next(gathered)
    wholes = [whole_graph(next(gathered), of_samples) for _ in graphs]
    of_views, projected = (
        {name: _of_samples(next(gathered), of_samples, dtype) for name in views}
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


def store_arrays(
    stage: Stage,
    directory: Path,
    graphs: dict[str, Graph],
    embeddings: RowsOfViews,
    coordinates: RowsOfViews,
    order: RowOrder,
) -> StoredArrays:
    """Write graphs, embeddings and coordinates to a new directory, block by block in the order of the data."""
    group, ranges, edges = new_group(directory), order.ranges, group_edges(order.ranges)
    for key, graph in graphs.items():
        sent = [stage.submit(split_graph, rows, order.order, edges) for rows in graph.rows]
        rows = exchanged(stage, sent, join_graph, (), ranges)
        put_graph(group, key, *graph_pieces(stage, rows, order.n_samples))
    arrays = [
        (kind, number, name, rows)
        for kind, views in (("view_embeddings", embeddings), ("view_coordinates", coordinates))
        for number, (name, rows) in enumerate(views.items())
    ]
    for first in range(0, len(arrays), FAN_IN):
        some = arrays[first : first + FAN_IN]
        sent = [
            stage.submit(split_block, [rows[block] for *_, rows in some], order.order, start, edges)
            for block, (start, _) in enumerate(ranges)
        ]
        joined = exchanged(stage, sent, join_rows, (), ranges)
        for position, (kind, number, name, _) in enumerate(some):
            rows = [stage.item(block, position) for block in joined]
            put_embedding(group, kind, number, name, row_pieces(stage, rows, order.n_samples))
    return StoredArrays(
        directory,
        order.n_samples,
        has_learned_graph="learned_graph" in graphs,
        embedded_views=tuple(embeddings),
        projected_views=tuple(coordinates),
        is_partial=True,
    )


def split_block(
    arrays: list[NDArray[Any]], order: NDArray[np.int32], start: int, edges: tuple[int, ...]
) -> list[RowPieces]:
    """Rows of a block of several arrays by the group of samples to which they belong."""
    return split_rows(arrays, order[start : start + len(arrays[0])], edges)
