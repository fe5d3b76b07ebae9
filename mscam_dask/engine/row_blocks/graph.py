"""Graphs of large data by blocks of rows: A-step, components, partition graph, checkpoints."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.data.store.arrays import ArrayPieces
from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.row_blocks import tasks
from mscam_dask.engine.row_blocks.candidates import (
    BlockedCandidates,
    BlockedGraph,
    BlockedSpectrum,
    BlockedView,
    RowOrder,
    block_ranges,
)
from mscam_dask.linalg.block_eigensolver import Ranges
from mscam_dask.solvers.partition_graph import bridge_ends, bridges, join_pools, with_bridges
from mscam_dask.solvers.row_graph import (
    components_of_forests,
    graph_block,
    linked_blocks,
    mean_rows,
    spanning_forest,
    whole_graph,
)

__all__ = [
    "build_graph",
    "components_of",
    "extend_labels",
    "gather_graph",
    "graph_pieces",
    "mean_graph",
    "merged_components",
    "partition_graph",
    "restore_graph",
    "restore_vectors",
    "vector_pieces",
]


def build_graph(
    executor: Executor,
    blocks: BlockedCandidates,
    summed: list[Handle] | None,
    *,
    n_neighbors: int,
    data_weight: float,
    projected_weight: float,
    key: str,
) -> BlockedGraph:
    """Submit the A-step over all blocks of rows, and gather its number of connected components."""
    ranges = blocks.order.ranges
    rows = [
        executor.submit(
            graph_block,
            block,
            None if summed is None else summed[number],
            n_neighbors,
            data_weight,
            projected_weight,
            ranges[-1][1],
            key=f"graph_rows/{key}/{number}",
        )
        for number, block in enumerate(blocks.rows)
    ]
    return _connected(rows, ranges, executor, key=key)


def _connected(
    rows: Sequence[Handle], ranges: Ranges, executor: Executor, *, key: str
) -> BlockedGraph:
    """Return the graph of blocks of rows, with its connected components."""
    forests = [
        executor.submit(spanning_forest, block, key=f"spanning_forest/{key}/{number}")
        for number, block in enumerate(rows)
    ]
    components = executor.submit(
        components_of_forests, forests, ranges[-1][1], key=f"components/{key}"
    )
    count = executor.submit(operator.attrgetter("count"), components, key=f"component_count/{key}")
    links = [
        executor.submit(linked_blocks, block, ranges, key=f"linked_blocks/{key}/{number}")
        for number, block in enumerate(rows)
    ]
    n_components, *found = executor.gather([count, *links])
    executor.release([*forests, count, *links])
    return BlockedGraph(ranges, tuple(rows), tuple(found), components, int(n_components))


def mean_graph(
    graphs: Sequence[BlockedGraph], weights: Sequence[float], executor: Executor, *, key: str
) -> BlockedGraph:
    """Submit the weighted mean of graphs of the same rows, with its connected components."""
    rows = [
        executor.submit(mean_rows, list(blocks), tuple(weights), key=f"mean_graph/{key}/{number}")
        for number, blocks in enumerate(zip(*(graph.rows for graph in graphs), strict=True))
    ]
    return _connected(rows, graphs[0].ranges, executor, key=key)


def components_of(graph: BlockedGraph, order: RowOrder, executor: Executor, *, key: str) -> Handle:
    """Submit the connected component of each sample."""
    return executor.submit(
        tasks.components_of, graph.components, order.positions, key=f"components/{key}/samples"
    )


def merged_components(
    views: Sequence[BlockedView],
    graph: BlockedGraph,
    order: RowOrder,
    n_clusters: int,
    executor: Executor,
    *,
    key: str,
) -> Handle:
    """Submit the connected components merged to c clusters."""
    sums = [
        executor.submit(
            tasks.component_sums,
            [view.rows[number] for view in views],
            graph.components,
            start,
            key=f"component_sums/{key}/{start}",
        )
        for number, (start, _) in enumerate(graph.ranges)
    ]
    merged = executor.submit(
        tasks.merged_components,
        sums,
        graph.components,
        order.positions,
        n_clusters,
        key=f"merge_components/{key}",
    )
    executor.release(sums)
    return merged


def gather_graph(graph: BlockedGraph, order: RowOrder, executor: Executor) -> csr_array[np.float64]:
    """Gather the graph of the samples in their own order."""
    of_samples, *rows = executor.gather([order.order, *graph.rows])
    return whole_graph(rows, of_samples)


def extend_labels(
    graph: BlockedGraph,
    order: RowOrder,
    init_labels: NDArray[np.int64],
    n_clusters: int,
    executor: Executor,
) -> Handle:
    """Submit earlier labels, extended to new samples (−1) by one task with the whole graph."""
    return executor.submit(
        tasks.extended,
        list(graph.rows),
        order.order,
        init_labels,
        n_clusters,
        key="extend_labels/warm",
    )


def partition_graph(
    views: Sequence[BlockedView],
    candidates: BlockedCandidates,
    labels: Any,
    n_neighbors: int,
    executor: Executor,
    *,
    key: str,
) -> BlockedGraph:
    """Submit the graph whose connected components are exactly the clusters of a partition."""
    order = candidates.order
    ranges = order.ranges
    by_cells = executor.submit(tasks.reordered, labels, order.order, key=f"ordered_labels/{key}")
    of_blocks = [[view.rows[number] for view in views] for number in range(len(ranges))]
    pools = [
        executor.submit(tasks.pool, block, start, by_cells, n_neighbors, key=f"pool/{key}/{start}")
        for block, (start, _) in zip(of_blocks, ranges, strict=True)
    ]
    pool = executor.submit(join_pools, pools, key=f"join_pools/{key}")
    rows = [
        executor.submit(
            tasks.partition_rows,
            block,
            found,
            by_cells,
            pool,
            n_neighbors,
            key=f"partition_rows/{key}/{number}",
        )
        for number, (block, found) in enumerate(zip(of_blocks, candidates.rows, strict=True))
    ]
    graph = _connected(rows, ranges, executor, key=key)
    executor.release([*pools, pool])
    ends = executor.submit(bridge_ends, graph.components, by_cells, key=f"bridge_ends/{key}")
    (samples,) = executor.gather([ends])
    if samples.size:
        points = [
            executor.submit(
                tasks.bridge_points, block, start, ends, key=f"bridge_points/{key}/{start}"
            )
            for block, (start, _) in zip(of_blocks, ranges, strict=True)
        ]
        edges = executor.submit(
            bridges, ends, points, graph.components, by_cells, key=f"bridges/{key}"
        )
        joined = [
            executor.submit(
                with_bridges, block, edges, n_neighbors, key=f"bridged_rows/{key}/{number}"
            )
            for number, block in enumerate(graph.rows)
        ]
        executor.release([graph, *points, edges])
        graph = _connected(joined, ranges, executor, key=f"{key}/bridged")
    executor.release([ends, by_cells])
    return graph


def graph_pieces(
    graph: BlockedGraph, executor: Executor, *, key: str
) -> tuple[ArrayPieces, ArrayPieces, ArrayPieces]:
    """Return data, indices and indptr of the graph in the order of the cells, gathered by blocks."""

    def part(name: str) -> Iterator[Any]:
        for number, block in enumerate(graph.rows):
            handle = executor.submit(
                operator.attrgetter(f"affinity.{name}"),
                block,
                key=f"graph_arrays/{key}/{name}/{number}",
            )
            yield from executor.gather([handle])
            executor.release([handle])

    def pointers() -> Iterator[NDArray[np.int64]]:
        yield np.zeros(1, dtype=np.int64)
        end = 0
        for own in part("indptr"):
            yield end + own[1:].astype(np.int64)
            end += int(own[-1])

    n_samples, n_entries = graph.ranges[-1][1], sum(part("nnz"))
    return (
        ArrayPieces((n_entries,), np.dtype(np.float64), lambda: part("data")),
        ArrayPieces((n_entries,), np.dtype(np.int32), lambda: part("indices")),
        ArrayPieces((n_samples + 1,), np.dtype(np.int64), pointers),
    )


def vector_pieces(spectrum: BlockedSpectrum, n_samples: int, executor: Executor) -> ArrayPieces:
    """Return the eigenvectors in the order of the cells, gathered by blocks."""
    (first,) = executor.gather(spectrum.vectors[:1])

    def pieces() -> Iterator[NDArray[Any]]:
        for block in spectrum.vectors:
            yield from executor.gather([block])

    return ArrayPieces((n_samples, first.shape[1]), first.dtype, pieces)


def restore_graph(
    data: NDArray[np.float64],
    indices: NDArray[Any],
    indptr: NDArray[Any],
    executor: Executor,
    *,
    key: str,
) -> BlockedGraph:
    """Submit a graph from the arrays of `graph_pieces`."""
    n = len(indptr) - 1
    ranges = block_ranges(n)
    rows = []
    for start, stop in ranges:
        part = slice(indptr[start], indptr[stop])
        pointers = (indptr[start : stop + 1] - indptr[start]).astype(np.int32)
        rows.append(
            executor.submit(
                tasks.restored_rows,
                data[part],
                indices[part].astype(np.int32),
                pointers,
                start,
                n,
                key=f"restore_graph/{key}/{start}",
            )
        )
    return _connected(rows, ranges, executor, key=key)


def restore_vectors(vectors: NDArray[Any], executor: Executor, *, key: str) -> BlockedSpectrum:
    """Submit start vectors of the eigensolver from those of a checkpoint."""
    rows = tuple(
        executor.submit(np.asarray, vectors[start:stop], key=f"given/{key}/{start}")
        for start, stop in block_ranges(len(vectors))
    )
    return BlockedSpectrum((), rows, (), np.zeros(0), converged=True)
