"""End of a fit: the returned graph, its labels, the solution, and the arrays that workers write.

The labels are always the connected components of the returned graph. That graph is the last graph
of the outer iterations if it has c components and their score is not lower than the best; otherwise
it is rebuilt from the best partition (`mscam_dask.solvers.partition_graph`).
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
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
)
from mscam_dask.data.store.arrays import new_group
from mscam_dask.engine import candidate_neighbors
from mscam_dask.engine import tasks as iteration_tasks
from mscam_dask.engine.assess import assessment_of, submit_assessment
from mscam_dask.engine.executors.base import Executor, Handle, gather_groups
from mscam_dask.engine.initial_graph import PreparedHandles
from mscam_dask.engine.iteration_steps import components_of, score_cuts, spectrum_of
from mscam_dask.engine.outer_loop import embed_views
from mscam_dask.engine.row_blocks import embedding as block_embedding
from mscam_dask.engine.row_blocks import graph as block_graph
from mscam_dask.engine.row_blocks import tasks
from mscam_dask.engine.row_blocks.candidates import (
    BlockedCandidates,
    BlockedEmbedding,
    BlockedGraph,
    BlockedView,
    RowOrder,
    exchanged,
    group_edges,
)
from mscam_dask.engine.session import FitContext, LoopState, Session
from mscam_dask.linalg.block_eigensolver import join_rows
from mscam_dask.solvers.partition_score import PartitionScore, is_worse
from mscam_dask.solvers.rank_control import Decision
from mscam_dask.solvers.row_graph import join_graph, split_graph
from mscam_dask.types.events import IterationFinished, RefinementFinished
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.result import (
    ArraysInMemory,
    ResultArrays,
    Solution,
    Status,
    shares_of_views,
)

__all__ = ["RowsOfViews", "finalize", "trivial_solution", "write_arrays"]

# Principal axes of each view that figures show, two at a time.
_N_AXES = 6


@dataclasses.dataclass(frozen=True)
class _FinalGraph:
    """Graph to return, the learned graph before any rebuilding, labels, status and partition score."""

    graph: Handle
    learned_graph: Handle
    labels: Handle
    status: Status
    partition_score: PartitionScore

    @property
    def graphs(self) -> dict[str, Handle]:
        """Consensus graph and learned graph by name; the learned graph only if it is another one."""
        graphs = {"consensus_graph": self.graph}
        if self.learned_graph is not self.graph:
            graphs["learned_graph"] = self.learned_graph
        return graphs


def finalize(state: LoopState, context: FitContext, session: Session) -> Solution:
    """Return the solution: the last graph if it has c components, otherwise the partition graph.

    The partition graph is rebuilt from the best partition.
    """
    executor, labels, final = session.executor, state.best.labels, None
    if state.spectrum is None:
        final = _from_partition(labels, Status.MERGED_COMPONENTS, context, executor, state.graph)
    elif state.decision is Decision.REACHED:
        final = _reached(state, context.prepared, context.parameters, executor)
    if final is None:
        final = _from_partition(labels, Status.PARTITION_GRAPH, context, executor, state.graph)
    candidate_neighbors.release_candidates(context.prepared.blocks, executor)
    refinement = None if state.refinement is None else state.refinement.finished
    return _solution(final, context, executor, session.results_directory, state.history, refinement)


def trivial_solution(
    labels: NDArray[np.int64], status: Status, context: FitContext, session: Session
) -> Solution:
    """Return the solution of a partition that needs no outer iterations."""
    executor = session.executor
    final = _from_partition(labels, status, context, executor)
    return _solution(final, context, executor, session.results_directory)


def _reached(
    state: LoopState, prepared: PreparedHandles, parameters: Parameters, executor: Executor
) -> _FinalGraph | None:
    """Return the graph with c components, or None if an earlier partition scored higher."""
    labels = components_of(state.graph, prepared, executor, key="reached")
    (partition_score,) = score_cuts(prepared, [labels], executor, key="reached")
    if is_worse(partition_score, state.best.partition_score, parameters.tol):
        return None
    return _FinalGraph(state.graph, state.graph, labels, Status.CONVERGED, partition_score)


def _from_partition(
    labels: Any,
    status: Status,
    context: FitContext,
    executor: Executor,
    learned_graph: Handle | None = None,
) -> _FinalGraph:
    """Return the partition graph of a partition, which is the learned graph too where there is none."""
    prepared = context.prepared
    (partition_score,) = score_cuts(prepared, [labels], executor, key="rebuilt")
    if isinstance(prepared.blocks, BlockedCandidates):
        graph = block_graph.partition_graph(
            prepared.views, prepared.blocks, labels, context.n_neighbors, executor, key="rebuilt"
        )
    else:
        graph = executor.submit(
            candidate_neighbors.rebuild_graph,
            list(prepared.views),
            labels,
            context.n_neighbors,
            key="partition_graph",
        )
    components = components_of(graph, prepared, executor, key="rebuilt")
    return _FinalGraph(
        graph,
        graph if learned_graph is None else learned_graph,
        components,
        status,
        partition_score,
    )


def _solution(
    final: _FinalGraph,
    context: FitContext,
    executor: Executor,
    directory: Path | None,
    history: tuple[IterationFinished, ...] = (),
    refinement: RefinementFinished | None = None,
) -> Solution:
    """Gather the solution; large arrays go to a directory if there is one.

    The assessment runs beside the embeddings.
    """
    prepared = context.prepared
    encoders = [
        executor.submit(
            operator.attrgetter("encoder"),
            view.empty if isinstance(view, BlockedView) else view,
            key=f"encoder/{name}",
        )
        for view, name in zip(prepared.views, prepared.names, strict=True)
    ]
    assessed = submit_assessment(final.learned_graph, final.labels, final.status, context, executor)
    results = _submit_embeddings(final, context, executor, history)
    arrays, n_components = (
        _arrays_of_blocks(final, results, context, executor, directory)
        if isinstance(prepared.blocks, BlockedCandidates)
        else _arrays(final, results, context, executor)
    )
    (labels, *maps), quantities = gather_groups(executor, [final.labels, *encoders], assessed)
    shares = shares_of_views(prepared.names, final.partition_score.view_scores)
    return Solution(
        labels=labels,
        arrays=arrays,
        n_connected_components=n_components,
        status=final.status,
        score=final.partition_score.score,
        n_neighbors=context.n_neighbors,
        parameters=context.parameters,
        n_clusters_selection=context.n_clusters_selection,
        refinement=refinement,
        settings=context.selection.settings,
        selected_view_settings=context.selection.view_settings,
        chosen=context.selection.chosen,
        prepared=context.records,
        history=history,
        view_contributions={
            record.view: shares.get(record.view, 0.0) for record in context.records
        },
        encoders=dict(zip(prepared.names, maps, strict=True)),
        assessment=assessment_of(quantities, context),
    )


def _submit_embeddings(
    final: _FinalGraph,
    context: FitContext,
    executor: Executor,
    history: tuple[IterationFinished, ...],
) -> list[Any]:
    """Submit the embedding of each view given the final graph; none for trivial partitions."""
    if final.status.is_trivial:
        return []
    prepared, parameters = context.prepared, context.parameters
    weight = history[-1].graph_weight if history else parameters.graph_weight
    spectrum = spectrum_of(
        final.graph, None, prepared, parameters, executor, key="final", graph_from_partition=True
    )
    return embed_views(spectrum, weight, prepared, parameters, executor, key="final")


def _arrays(
    final: _FinalGraph, results: Sequence[Handle], context: FitContext, executor: Executor
) -> tuple[ResultArrays, int]:
    """Gather graphs, embeddings and coordinates, and the number of connected components."""
    names, views = context.prepared.names, context.prepared.views
    affinities = [
        executor.submit(operator.attrgetter("affinity"), graph, key=f"affinity/{name}")
        for name, graph in final.graphs.items()
    ]
    count = executor.submit(
        operator.attrgetter("n_components"), final.graph, key="component_count/final"
    )
    embeddings = [
        executor.submit(iteration_tasks.embedding_of, result, key=f"view_embedding/{name}")
        for result, name in zip(results, names, strict=False)
    ]
    coordinates = [
        executor.submit(
            iteration_tasks.principal_coordinates,
            view,
            _N_AXES,
            key=f"principal_coordinates/{name}",
        )
        for view, name in zip(views, names, strict=True)
    ]
    (n_components, *wholes), of_views, projected = gather_groups(
        executor, [count, *affinities], embeddings, coordinates
    )
    return ArraysInMemory(
        wholes[0],
        wholes[-1],
        dict(zip(names, of_views, strict=False)),
        dict(zip(names, projected, strict=True)),
    ), n_components


def _arrays_of_blocks(
    final: _FinalGraph,
    results: Sequence[BlockedEmbedding],
    context: FitContext,
    executor: Executor,
    directory: Path | None,
) -> tuple[ResultArrays, int]:
    """Write graphs, embeddings and coordinates of large data to a directory, or gather them."""
    names, blocks = context.prepared.names, context.prepared.blocks
    assert isinstance(blocks, BlockedCandidates)
    coordinates = block_embedding.submit_coordinates(
        context.prepared.views, names, _N_AXES, executor
    )
    n_components = final.graph.n_components
    if directory is not None:
        written = write_arrays(
            directory,
            final.graphs,
            (
                RowsOfViews(
                    "view_embeddings", names[: len(results)], tuple(one.rows for one in results)
                ),
                RowsOfViews("view_coordinates", names, tuple(coordinates)),
            ),
            blocks.order,
            executor,
        )
        if written is not None:
            return written, n_components
    (of_samples,) = executor.gather([blocks.order.order])
    wholes = [
        block_graph.gather_graph(graph, blocks.order, executor) for graph in final.graphs.values()
    ]
    embeddings = (
        block_embedding.gather_rows(result.rows, of_samples, np.float64, executor)
        for result in results
    )
    projected = (
        block_embedding.gather_rows(rows, of_samples, np.float32, executor) for rows in coordinates
    )
    return ArraysInMemory(
        wholes[0],
        wholes[-1],
        dict(zip(names, embeddings, strict=False)),
        dict(zip(names, projected, strict=True)),
    ), n_components


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
    store = _Store(directory, new_group(directory), order, executor)
    for key, graph in graphs.items():
        store.write_graph(key, graph)
    for rows in views:
        for first in range(0, len(rows.names), tasks.FAN_IN):
            store.write_views(rows, range(first, min(first + tasks.FAN_IN, len(rows.names))))
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
