"""End of a fit: the graph to return, rebuilt from the best partition if necessary, and the solution."""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.engine import candidate_neighbors
from mscam_dask.engine.assess import assess
from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.initial_graph import PreparedHandles
from mscam_dask.engine.iteration_steps import components_of, score_cuts, spectrum_of
from mscam_dask.engine.outer_loop import embed_views
from mscam_dask.engine.row_blocks import embedding as block_embedding
from mscam_dask.engine.row_blocks import graph as block_graph
from mscam_dask.engine.row_blocks.handles import BlockedCandidates, BlockedView
from mscam_dask.engine.session import FitContext, LoopState, Session
from mscam_dask.engine.tasks import iteration as iteration_tasks
from mscam_dask.solvers.partition_score import PartitionScore, is_worse
from mscam_dask.solvers.rank_control import Decision
from mscam_dask.types.events import IterationFinished, RefinementFinished
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.result import Solution, Status, shares_of_views

__all__ = ["finalize", "trivial_solution"]

# Principal axes of each view that pictures show, two at a time.
_N_AXES = 6


@dataclasses.dataclass(frozen=True)
class _FinalGraph:
    """Graph to return, the learned graph before any rebuilding, labels, status and partition score."""

    graph: Handle
    learned_graph: Handle
    labels: Handle
    status: Status
    partition_score: PartitionScore


def finalize(state: LoopState, context: FitContext, session: Session) -> Solution:
    """Return the solution: the last graph if it has c components, otherwise the partition graph.

    The partition graph is that of the best partition.
    """
    executor, labels, final = session.executor, state.best.labels, None
    if state.spectrum is None:
        final = _from_partition(labels, Status.MERGED_COMPONENTS, context, executor, state.graph)
    elif state.decision is Decision.REACHED:
        final = _reached(state, context.prepared, context.parameters, executor)
    if final is None:
        final = _from_partition(labels, Status.PARTITION_GRAPH, context, executor, state.graph)
    refinement = None if state.refinement is None else state.refinement.finished
    return _solution(final, context, executor, state.history, refinement)


def trivial_solution(
    labels: NDArray[np.int64], status: Status, context: FitContext, executor: Executor
) -> Solution:
    """Return the solution of a partition that needs no outer iterations."""
    return _solution(_from_partition(labels, status, context, executor), context, executor)


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
    (partition_score,) = score_cuts(prepared, [labels], executor, key="closed")
    if isinstance(prepared.blocks, BlockedCandidates):
        graph = block_graph.partition_graph(
            prepared.views, prepared.blocks, labels, context.n_neighbors, executor, key="closed"
        )
    else:
        graph = executor.submit(
            candidate_neighbors.rebuild_graph,
            list(prepared.views),
            labels,
            context.n_neighbors,
            key="partition_graph",
        )
    components = components_of(graph, prepared, executor, key="closed")
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
    history: tuple[IterationFinished, ...] = (),
    refinement: RefinementFinished | None = None,
) -> Solution:
    """Gather the solution, with the embedding of each view given the final graph."""
    prepared = context.prepared
    encoders = [
        executor.submit(
            operator.attrgetter("encoder"),
            view.empty if isinstance(view, BlockedView) else view,
            key=f"encoder/{name}",
        )
        for view, name in zip(prepared.views, prepared.names, strict=True)
    ]
    embeddings = _embeddings(final, context, executor, history)
    coordinates = _principal_coordinates(prepared, executor)
    graph, n_components = _gathered(final.graph, prepared, executor, key="final")
    learned_graph, _ = (
        (graph, n_components)
        if final.learned_graph is final.graph
        else _gathered(final.learned_graph, prepared, executor, key="learned")
    )
    labels, *maps = executor.gather([final.labels, *encoders])
    is_trivial = final.status in (Status.SINGLE_CLUSTER, Status.SINGLETONS)
    shares = shares_of_views(prepared.names, final.partition_score.view_scores)
    return Solution(
        labels=labels,
        consensus_graph=graph,
        learned_graph=learned_graph,
        n_connected_components=n_components,
        status=final.status,
        score=final.partition_score.score,
        n_neighbors=context.n_neighbors,
        parameters=context.parameters,
        n_clusters_selection=context.n_clusters_selection,
        refinement=refinement,
        settings=() if context.selection is None else context.selection.settings,
        selected_view_settings=() if context.selection is None else context.selection.view_settings,
        chosen=-1 if context.selection is None else context.selection.chosen,
        prepared=context.records,
        history=history,
        view_embeddings=embeddings,
        view_coordinates=dict(zip(prepared.names, coordinates, strict=True)),
        view_contributions={
            record.view: shares.get(record.view, 0.0) for record in context.records
        },
        encoders=dict(zip(prepared.names, maps, strict=True)),
        assessment=None
        if is_trivial
        else assess(final.learned_graph, final.labels, context, executor),
    )


def _gathered(
    graph: Handle, prepared: PreparedHandles, executor: Executor, *, key: str
) -> tuple[csr_array[np.float64], int]:
    """Gather a graph and its number of connected components."""
    if isinstance(prepared.blocks, BlockedCandidates):
        whole = block_graph.gather_graph(graph, prepared.blocks.order, executor)
        return whole, graph.n_components
    affinity = executor.submit(operator.attrgetter("affinity"), graph, key=f"affinity/{key}")
    count = executor.submit(
        operator.attrgetter("n_components"), graph, key=f"component_count/{key}"
    )
    whole, n_components = executor.gather([affinity, count])
    return whole, n_components


def _principal_coordinates(
    prepared: PreparedHandles, executor: Executor
) -> list[NDArray[np.float32]]:
    """Gather the first principal coordinates of each view."""
    if isinstance(prepared.blocks, BlockedCandidates):
        return block_embedding.gather_coordinates(
            prepared.views, prepared.names, prepared.blocks.order, _N_AXES, executor
        )
    return executor.gather(
        [
            executor.submit(
                iteration_tasks.principal_coordinates,
                view,
                _N_AXES,
                key=f"principal_coordinates/{name}",
            )
            for view, name in zip(prepared.views, prepared.names, strict=True)
        ]
    )


def _embeddings(
    final: _FinalGraph,
    context: FitContext,
    executor: Executor,
    history: tuple[IterationFinished, ...],
) -> dict[str, NDArray[np.float64]]:
    """Embedding of each view given the final graph; empty for trivial partitions."""
    if final.status in (Status.SINGLE_CLUSTER, Status.SINGLETONS):
        return {}
    prepared, parameters = context.prepared, context.parameters
    weight = history[-1].graph_weight if history else parameters.graph_weight
    spectrum = spectrum_of(
        final.graph, None, prepared, parameters, executor, key="final", graph_from_partition=True
    )
    results = embed_views(spectrum, weight, prepared, parameters, executor, key="final")
    if isinstance(prepared.blocks, BlockedCandidates):
        (of_samples,) = executor.gather([prepared.blocks.order.order])
        return {
            name: block_embedding.gather_embedding(result, of_samples, executor)
            for result, name in zip(results, prepared.names, strict=True)
        }
    handles = [
        executor.submit(iteration_tasks.embedding_of, result, key=f"view_embedding/{name}")
        for result, name in zip(results, prepared.names, strict=True)
    ]
    return dict(zip(prepared.names, executor.gather(handles), strict=True))
