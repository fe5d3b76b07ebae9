"""Refinement: the last outer iterations, with metrics learned from the best partition.

A fit has it with automatic settings. One iteration starts from the best partition so far:

1. Learn the metric of each view in closed form: its linear discriminants (`mscam_dask.solvers.lda`).
2. Build the next graph by the A-step, from the distances in the views and in their discriminants,
   half each. If the initial graph is mixed with the graphs of the single views, so is this one
   (docs/decisions/0082).
3. Cut that graph and score the partitions.

The scores come from reference graphs of the original distances, which favor partitions by these
distances. A new partition is therefore accepted unless its score is clearly lower
(docs/decisions/0064). The loop ends with the first partition that is not accepted.
"""

from __future__ import annotations

import dataclasses
import operator
import time

from mscam_dask.engine import tasks as iteration_tasks
from mscam_dask.engine.candidate_neighbors import candidate_blocks, release_candidates
from mscam_dask.engine.executors.base import Executor, Handle, gather_groups
from mscam_dask.engine.initial_graph import InitialGraph, PreparedHandles
from mscam_dask.engine.initialize import (
    Initialization,
    evaluate_graph,
    view_graphs,
    with_view_graphs,
)
from mscam_dask.engine.iteration_steps import build_graph, spectrum_facts, start_vectors
from mscam_dask.engine.row_blocks import embedding as block_embedding
from mscam_dask.engine.row_blocks.candidates import BlockedCandidates
from mscam_dask.engine.session import FitContext, LoopState, Refinement, Session
from mscam_dask.solvers.partition_score import is_better, is_nearly_perfect, is_worse
from mscam_dask.solvers.rank_control import Decision
from mscam_dask.types.events import IterationFinished, RefinementFinished
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.rules import RULES

__all__ = ["refine", "refine_iteration"]


def refine(state: LoopState, context: FitContext, session: Session) -> LoopState:
    """Run iterations with metrics learned from the best partition, until one is not accepted."""
    if not context.refines:
        return state
    began, executor = time.perf_counter(), session.executor
    if state.refinement is None:
        is_perfect = is_nearly_perfect(state.best.score, context.parameters)
        state = dataclasses.replace(
            state,
            refinement=Refinement(state.iteration, state.decision),
            decision=Decision.STOPPED if is_perfect else Decision.ACCEPT,
        )
    refinement = state.refinement
    assert refinement is not None
    mean_view_graph = context.view_graphs
    if mean_view_graph is None and _is_mixed(context):  # the settings are those of a checkpoint
        mean_view_graph = view_graphs(
            context.prepared, context.parameters, executor, key="refinement"
        )
    limit = refinement.first + RULES.max_iterations
    while state.decision is Decision.ACCEPT and state.iteration < limit:
        state = refine_iteration(state, mean_view_graph, context, executor)
        session.finish_iteration(state, context)
    if mean_view_graph is not None:
        executor.release([mean_view_graph])
    rounds = state.history[refinement.first :]
    finished = RefinementFinished(
        scores=tuple(record.score for record in rounds),
        taken=sum(record.accepted for record in rounds),
        seconds=time.perf_counter() - began,
    )
    session.notify(finished)
    return dataclasses.replace(
        state,
        refinement=dataclasses.replace(refinement, finished=finished),
        decision=state.decision if finished.taken else refinement.decision,
    )


def refine_iteration(
    state: LoopState, mean_view_graph: Handle | None, context: FitContext, executor: Executor
) -> LoopState:
    """Run one outer iteration from the best partition.

    Parameters
    ----------
    state : LoopState
        Its graph, spectrum and best labels are released where a new partition takes their place.
    mean_view_graph : handle or None
        Mean of the graphs of the single views, if graphs are mixed with it.
    context : FitContext
        With `from_previous_fit`, the loop started with the partition of an earlier fit, which was
        refined already: a new one is accepted only if its score is higher by more than `tol`.
    executor : Executor

    Returns
    -------
    LoopState
        Its decision is REACHED if the partition was accepted and its graph has exactly c
        components, and STOPPED if it was not accepted, is the same again, or is nearly perfect.
    """
    started, key, parameters = time.perf_counter(), str(state.iteration), context.parameters
    metrics, records = _learn_metrics(state.best.labels, context.prepared, executor, key=key)
    proposal = _next_graph(state, metrics, mean_view_graph, context, executor)
    facts = []
    if proposal.spectrum is not None:
        facts = [spectrum_facts(proposal.spectrum, parameters.n_clusters, executor, key=key)]
    views, of_spectrum = gather_groups(executor, records, facts)
    eigengap, converged = of_spectrum[0] if of_spectrum else (float("nan"), True)
    executor.release([*metrics, *records, *facts])
    accepted = _is_accepted(proposal, state, context)
    record = IterationFinished(
        iteration=state.iteration,
        graph_weight=parameters.graph_weight,
        n_connected_components=proposal.first.n_components,
        n_clusters=parameters.n_clusters,
        score=proposal.best.score,
        eigengap=eigengap,
        views=tuple(views),
        view_scores=proposal.best.partition_score.view_scores,
        seconds=time.perf_counter() - started,
        spectrum_converged=converged,
        accepted=accepted,
    )
    decision = _decide(proposal, parameters, accepted=accepted)
    return dataclasses.replace(
        _next_state(state, proposal, executor, key, accepted=accepted),
        decision=decision,
        history=(*state.history, record),
    )


def _learn_metrics(
    labels: Handle, prepared: PreparedHandles, executor: Executor, *, key: str
) -> tuple[list[Handle], list[Handle]]:
    """Submit the metric of each view learned from a partition, and their records."""
    if isinstance(prepared.blocks, BlockedCandidates):
        of_blocks, records = block_embedding.learn_metrics(
            prepared.views, prepared.names, labels, prepared.blocks.order, executor, key=key
        )
        return list(of_blocks), records
    learned = [
        executor.submit(
            iteration_tasks.learn_metric, view, labels, name, key=f"learn_metric/{key}/{name}"
        )
        for view, name in zip(prepared.views, prepared.names, strict=True)
    ]
    metrics, records = (
        [
            executor.submit(operator.itemgetter(item), handle, key=f"{stage}/{key}/{name}")
            for handle, name in zip(learned, prepared.names, strict=True)
        ]
        for item, stage in enumerate(("metric", "view_records"))
    )
    executor.release(learned)
    return metrics, records


def _is_accepted(proposal: Initialization, state: LoopState, context: FitContext) -> bool:
    """Return whether a new partition replaces the best one: its score is not clearly lower, and it differs."""
    new, best, parameters = (
        proposal.best.partition_score,
        state.best.partition_score,
        context.parameters,
    )
    if proposal.first.n_components != parameters.n_clusters and new == best:
        return False
    if context.from_previous_fit:
        return is_better(new, best, parameters)
    return not is_worse(new, best, RULES.score_margin)


def _is_mixed(context: FitContext) -> bool:
    """Return whether the initial graph is mixed with the graphs of the single views."""
    selection = context.selection
    return selection.settings[selection.chosen].initial_graph == "mixed"


def _next_graph(
    state: LoopState,
    metrics: list[Handle],
    mean_view_graph: Handle | None,
    context: FitContext,
    executor: Executor,
) -> Initialization:
    """Return the graph of the original and the learned distances, half each, with its best cut."""
    key, prepared, parameters = str(state.iteration), context.prepared, context.parameters
    # only the neighbors are needed: the next iteration searches again, with other distances
    n_candidates = max(context.n_neighbors, parameters.n_neighbors) + 1
    search_parameters = dataclasses.replace(parameters, n_candidates=n_candidates)
    views_and_metrics = [*prepared.views, *metrics]
    order = prepared.blocks.order if isinstance(prepared.blocks, BlockedCandidates) else None
    blocks = candidate_blocks(
        views_and_metrics, prepared.n_samples, search_parameters, executor, key=key, order=order
    )
    graph, n_components = build_graph(
        executor,
        blocks,
        None,
        n_neighbors=context.n_neighbors,
        data_weight=1.0,
        projected_weight=0.0,
        key=key,
    )
    release_candidates(blocks, executor)
    next_graph = InitialGraph(graph, n_components, context.n_neighbors)
    if mean_view_graph is not None:
        next_graph = with_view_graphs(next_graph, mean_view_graph, executor, key=key)
        executor.release([graph])
    return evaluate_graph(
        prepared, parameters, next_graph, executor, key=key, init_labels=state.best.labels
    )


def _decide(proposal: Initialization, parameters: Parameters, *, accepted: bool) -> Decision:
    if accepted and proposal.first.n_components == parameters.n_clusters:
        return Decision.REACHED
    if not accepted or is_nearly_perfect(proposal.best.score, parameters):
        return Decision.STOPPED
    return Decision.ACCEPT


def _next_state(
    state: LoopState, proposal: Initialization, executor: Executor, key: str, *, accepted: bool
) -> LoopState:
    """Return the state with the new graph and partition where these were accepted; release the others."""
    if not accepted:
        unused = [] if proposal.spectrum is None else [proposal.spectrum]
        executor.release([*unused, proposal.first.graph, proposal.best.labels])
        return state
    spectrum = state.spectrum
    if proposal.spectrum is not None:
        # the Laplacian is not needed again
        spectrum = start_vectors(proposal.spectrum, executor, key=key)
        if state.spectrum is not None:
            executor.release([state.spectrum])
    executor.release([state.graph, state.best.labels])
    return dataclasses.replace(
        state,
        graph=proposal.first.graph,
        spectrum=spectrum,
        best=dataclasses.replace(proposal.best, iteration=state.iteration),
    )
