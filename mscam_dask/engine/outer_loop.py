"""Outer iterations: a sequence of consensus graphs with a changing graph weight.

An iteration depends on the previous one through `LoopState` only: the graph, the start vectors of the
eigensolver, the rank control and the best partition so far. Views keep no state between iterations.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
import time
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

from mscam_dask.engine import tasks as iteration_tasks
from mscam_dask.engine.executors.base import Executor, Handle, gather_groups, submit_tree
from mscam_dask.engine.initial_graph import PreparedHandles
from mscam_dask.engine.iteration_steps import (
    BestPartition,
    build_graph,
    next_cuts,
    score_partitions_by_views,
    spectrum_facts,
    spectrum_of,
    start_vectors,
)
from mscam_dask.engine.row_blocks import embedding as block_embedding
from mscam_dask.engine.row_blocks.candidates import (
    BlockedCandidates,
    BlockedEmbedding,
    BlockedSpectrum,
)
from mscam_dask.engine.row_blocks.tasks import FAN_IN
from mscam_dask.engine.session import FitContext, LoopState, Session
from mscam_dask.solvers.graph_update import projected_weight
from mscam_dask.solvers.partition_score import PartitionScore, argbest, is_better
from mscam_dask.solvers.rank_control import Decision
from mscam_dask.types.events import IterationFinished, ViewIteration
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.rules import RULES

__all__ = ["embed_views", "max_admm_iterations", "outer_iteration", "outer_loop"]


def max_admm_iterations(parameters: Parameters, *, refines: bool) -> int:
    """Maximum number of outer iterations by ADMM."""
    return min(RULES.max_iterations, parameters.max_iter) if refines else parameters.max_iter


def outer_loop(state: LoopState, context: FitContext, session: Session) -> LoopState:
    """Run outer iterations by ADMM until the graph has c components, they stall, or the limit."""
    if state.refinement is not None:
        return state
    parameters = context.parameters
    limit = max_admm_iterations(parameters, refines=context.refines)
    patience = parameters.patience_for(context.prepared.n_samples)
    while (
        state.spectrum is not None
        and state.decision is Decision.ACCEPT
        and state.iteration < limit
        and state.iteration - state.best.iteration <= patience
    ):
        state = outer_iteration(state, context, session.executor)
        session.finish_iteration(state, context)
    return state


def outer_iteration(state: LoopState, context: FitContext, executor: Executor) -> LoopState:
    """Run one outer iteration: the boxes of the diagram in docs/method.md, in their order."""
    started, key, prepared = time.perf_counter(), str(len(state.history)), context.prepared
    parameters = context.parameters
    spectrum = state.next_spectrum or spectrum_of(
        state.graph, state.spectrum, prepared, parameters, executor, key=key
    )
    views = _solve_views(spectrum, state.control.graph_weight, context, executor, key=key)
    cuts = next_cuts(spectrum, state.best.labels, prepared, parameters, executor, key=key)
    partition_scores = score_partitions_by_views(prepared, cuts, executor, key=key)
    executor.release([state.graph] if state.spectrum is None else [state.graph, state.spectrum])
    control, attempts = state.control, itertools.count()
    while True:  # A-step, again with a smaller λ while there are too many components
        attempt, graph_weight = f"{key}/{next(attempts)}", control.graph_weight
        graph, n_components = build_graph(
            executor,
            prepared.blocks,
            views.distances,
            n_neighbors=context.n_neighbors,
            **_distance_weights(graph_weight, context),
            key=attempt,
        )
        decision, control = control.observe(n_components)
        if decision is not Decision.RETRY:
            break
        executor.release([graph])
        views = _with_graph_weight(
            views, spectrum, control.graph_weight, context, executor, key=attempt
        )
    facts = spectrum_facts(spectrum, parameters.n_clusters, executor, key=key)
    records = _submit_records(views.results, executor, key=key)
    (scores, (eigengap, converged)), records_of_groups = gather_groups(
        executor, [partition_scores, facts], records
    )
    best, score = _better(cuts, scores, state.best, parameters, executor, key=key)
    executor.release([cuts, partition_scores, facts, *records])
    record = IterationFinished(
        iteration=len(state.history),
        graph_weight=graph_weight,
        n_connected_components=n_components,
        n_clusters=parameters.n_clusters,
        score=score.score,
        eigengap=eigengap,
        views=tuple(itertools.chain.from_iterable(records_of_groups)),
        view_scores=score.view_scores,
        seconds=time.perf_counter() - started,
        spectrum_converged=converged,
        accepted=best is not state.best,
    )
    executor.release([*views.results, *views.distances])
    # the Laplacian is not needed again; the next eigensolver starts from the vectors
    warm_start = start_vectors(spectrum, executor, key=key)
    return LoopState(graph, warm_start, control, best, decision, (*state.history, record))


@dataclasses.dataclass(frozen=True)
class _SolvedViews:
    """Results of the ADMM of each view, and summed projected distances by block of rows."""

    results: list[Handle]
    distances: list[Handle]


def embed_views(
    spectrum: Handle,
    graph_weight: float,
    prepared: PreparedHandles,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
) -> list[Handle]:
    """Submit the ADMM of each view."""
    if isinstance(spectrum, BlockedSpectrum):
        assert isinstance(prepared.blocks, BlockedCandidates), "large data has blocks"
        return list(
            block_embedding.embed_views(
                spectrum,
                graph_weight,
                prepared.views,
                prepared.names,
                prepared.blocks.order.ranges,
                parameters,
                executor,
                key=key,
            )
        )
    return [
        executor.submit(
            iteration_tasks.admm_view,
            view,
            spectrum,
            name,
            parameters,
            graph_weight,
            key=f"admm_view/{key}/{name}",
        )
        for view, name in zip(prepared.views, prepared.names, strict=True)
    ]


def _solve_views(
    spectrum: Handle, graph_weight: float, context: FitContext, executor: Executor, *, key: str
) -> _SolvedViews:
    """Submit the ADMM of each view and the sums of their projected distances."""
    prepared, parameters = context.prepared, context.parameters
    results = embed_views(spectrum, graph_weight, prepared, parameters, executor, key=key)
    if isinstance(prepared.blocks, BlockedCandidates):
        sums = block_embedding.projected_sums(results, prepared.blocks, executor, key=key)
        for result in results:  # of which only the records are needed again
            executor.release([*result.rows, *result.scaled])
        if parameters.model == "mscam":  # the distances of MSCAN are computed again for another λ
            executor.release(spectrum.laplacian)
        return _SolvedViews(results, sums)
    distances = [
        _summed_over_views(results, block, parameters.model, executor, key=f"{key}/{index}")
        for index, block in enumerate(prepared.blocks)
    ]
    return _SolvedViews(results, distances)


def _with_graph_weight(
    views: _SolvedViews,
    spectrum: Handle,
    graph_weight: float,
    context: FitContext,
    executor: Executor,
    *,
    key: str,
) -> _SolvedViews:
    """Return the views for a smaller λ: distances of MSCAN depend on it, those of MSCAM do not."""
    if context.parameters.model != "mscan":
        return views
    executor.release([*views.results, *views.distances])
    return _solve_views(spectrum, graph_weight, context, executor, key=key)


def _summed_over_views(
    results: list[Handle], block: Handle, model: str, executor: Executor, *, key: str
) -> Handle:
    """Submit the sum over views of the projected distances of a block of rows, by a tree in view order."""
    level = [
        executor.submit(
            iteration_tasks.projected,
            results[first : first + FAN_IN],
            block,
            model,
            key=f"projected_distances/{key}/{first}",
        )
        for first in range(0, len(results), FAN_IN)
    ]
    (summed,) = submit_tree(
        executor, iteration_tasks.added, level, FAN_IN, key=f"reduce_distances/{key}"
    )
    return summed


def _better(
    cuts: Handle,
    scores: Sequence[PartitionScore],
    best: BestPartition,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
) -> tuple[BestPartition, PartitionScore]:
    """Return the better of the best partition so far and the best new cut, and the score of that cut.

    A later partition must score higher by more than `tol`: otherwise the simpler one is kept.
    """
    index = argbest(scores)
    if is_better(scores[index], best.partition_score, parameters):
        labels = executor.submit(operator.itemgetter(index), cuts, key=f"best_cut/{key}")
        best = BestPartition(labels, scores[index], int(key))
    return best, scores[index]


class _DistanceWeights(TypedDict):
    """Weights of the data distances and of the projected distances of each view in the A-step."""

    data_weight: float
    projected_weight: float


def _distance_weights(graph_weight: float, context: FitContext) -> _DistanceWeights:
    prepared, parameters = context.prepared, context.parameters
    n_views = len(prepared.names)
    if parameters.model == "mscan":
        return {"data_weight": 0.0, "projected_weight": 1.0 / n_views}
    scale = projected_weight(prepared.n_samples, parameters.n_clusters)
    return {
        "data_weight": parameters.identity_weight,
        "projected_weight": graph_weight * scale / n_views,
    }


def _submit_records(results: list[Handle], executor: Executor, *, key: str) -> list[Handle]:
    """Submit the records of the ADMM of each view, by groups of views."""
    function: Callable[[list[Any]], list[ViewIteration]] = iteration_tasks.view_records
    handles = results
    if isinstance(results[0], BlockedEmbedding):
        function, handles = list, [result.record for result in results]
    return [
        executor.submit(
            function, handles[first : first + FAN_IN], key=f"view_records/{key}/{first}"
        )
        for first in range(0, len(handles), FAN_IN)
    ]
