"""Outer iterations: a sequence of consensus graphs by ADMM with a changing graph weight, then the refinement.

A fit with automatic settings has a refinement: outer iterations with metrics learned from the best partition so far. In
each of them:

1. Learn the metric of each view in closed form: its linear discriminants (`mscam_dask.solvers.lda`). If the partition
   misses known labels, the discriminants of the known samples alone are learned too; in the second iteration, only these.
2. Build the next graph by the A-step, from the distances in the views and in their discriminants,
   half each. If the initial graph is mixed with the graphs of the single views, so is this one
   (docs/decisions/0059).
3. Cut that graph and score the partitions.

The scores come from reference graphs of the original distances, which favor partitions by these
distances. A new partition is therefore accepted unless its score is clearly lower
(docs/decisions/0059). The loop ends with the first partition that is not accepted, or with two of these in a row if
known labels are missed.
"""

from __future__ import annotations

import dataclasses
import itertools
import time

import numpy as np

from mscam_dask.engine.blocks import Stage, View
from mscam_dask.engine.embed import projected_sums
from mscam_dask.engine.executors.base import Handle
from mscam_dask.engine.graph import a_step, mixed_graph
from mscam_dask.engine.neighbors import candidates_in_order
from mscam_dask.engine.scores import BestPartition
from mscam_dask.engine.select import Initialization, submit_partitions
from mscam_dask.engine.session import FitContext, LoopState, Session
from mscam_dask.engine.spectrum import bottom_eigenpairs, gap_and_convergence, spectral_cuts
from mscam_dask.engine.views import learn_metrics
from mscam_dask.solvers.graph_update import Decision, projected_weight
from mscam_dask.solvers.known_labels import with_known
from mscam_dask.solvers.partition_score import argbest, is_better, is_nearly_perfect, is_worse
from mscam_dask.types.events import IterationFinished, RefinementFinished
from mscam_dask.types.rules import RULES, SIZES


def outer_loop(state: LoopState, context: FitContext, session: Session) -> LoopState:
    """Run outer iterations by ADMM until the graph has c components, none is better for a while, or the limit."""
    if state.refined_from is not None:
        return state
    parameters = context.parameters
    limit, patience = parameters.max_iter, parameters.constants.patience
    if context.refines:
        limit = min(limit or RULES.max_iterations, RULES.max_iterations)
    if parameters.is_large(context.prepared.n_samples):
        patience = min(patience, SIZES.large_patience)
    while (
        state.spectrum is not None
        and state.decision is Decision.ACCEPT
        and (limit is None or state.iteration < limit)
        and state.iteration - state.best.iteration <= patience
    ):
        state = outer_iteration(session.stage(state.iteration), state, context)
        session.finish_iteration(state, context)
    return state


def outer_iteration(stage: Stage, state: LoopState, context: FitContext) -> LoopState:
    """Run one outer iteration: the boxes of the diagram in docs/method.md, in their order."""
    started, prepared, parameters = time.perf_counter(), context.prepared, context.parameters
    spectrum = state.spectrum
    if spectrum is None or not spectrum.laplacian:
        # after a restart that of the initial graph is found as before, with the same bits
        previous = spectrum if state.iteration else None
        spectrum = bottom_eigenpairs(stage, state.graph, prepared, previous=previous)
    graph_weight, control = state.control.graph_weight, state.control
    distances, records = projected_sums(stage, spectrum, graph_weight, prepared)
    cuts = spectral_cuts(stage, spectrum, prepared, init_labels=state.best.labels)
    partition_scores = prepared.scores(stage, cuts)
    facts = stage.submit(
        gap_and_convergence, spectrum.values, spectrum.converged, parameters.n_clusters
    )
    is_mscan = parameters.model == "mscan"
    data_weight = 0.0 if is_mscan else parameters.constants.identity_weight
    attempts = itertools.count()
    while True:  # A-step, again with a smaller λ while there are too many components
        again = stage.sub(f"attempt-{next(attempts)}")
        weight = 1.0
        if not is_mscan:
            weight = graph_weight * projected_weight(prepared.n_samples, parameters.n_clusters)
        graph = a_step(
            again,
            prepared.candidates,
            distances,
            known=prepared.deciding,
            n_neighbors=context.n_neighbors,
            data_weight=data_weight,
            projected_weight=weight / len(prepared.names),
        )
        decision, control = control.observe(graph.n_components)
        if decision is not Decision.RETRY:
            break
        graph_weight = control.graph_weight
        if is_mscan:  # its distances depend on λ, those of MSCAM do not
            distances, records = projected_sums(again, spectrum, graph_weight, prepared)
    (scores, (eigengap, converged)), views = stage.gather([partition_scores, facts], records)
    index = argbest(scores)
    # a later partition must score higher by more than a tie: otherwise the simpler one is kept
    tie = parameters.constants.score_tie
    accepted = is_better(scores[index], state.best.partition_score, tie)
    best = (
        BestPartition(stage.item(cuts, index), scores[index], state.iteration)
        if accepted
        else state.best
    )
    record = IterationFinished(
        iteration=state.iteration,
        graph_weight=graph_weight,
        n_connected_components=graph.n_components,
        n_clusters=parameters.n_clusters,
        score=scores[index].score,
        eigengap=eigengap,
        views=tuple(views),
        view_scores=scores[index].view_scores,
        seconds=time.perf_counter() - started,
        spectrum_converged=converged,
        accepted=accepted,
    )
    return dataclasses.replace(
        state,
        graph=graph,
        spectrum=spectrum.without_laplacian(),
        control=control,
        best=best,
        decision=decision,
        history=(*state.history, record),
    )


# refinement --------------------------------------------------------------------------------------


def refine(state: LoopState, context: FitContext, session: Session) -> LoopState:
    """Run iterations with metrics learned from the best partition, as the docstring of the module says."""
    if not context.refines:
        return state
    began = time.perf_counter()
    if state.refined_from is None:
        is_perfect = is_nearly_perfect(state.best.partition_score, context.parameters)
        state = dataclasses.replace(
            state,
            refined_from=state.iteration,
            decision_before=state.decision,
            decision=Decision.STOPPED if is_perfect else Decision.ACCEPT,
        )
    first, decision_before = state.refined_from, state.decision_before
    assert first is not None
    assert decision_before is not None
    limit = min(context.parameters.refined_limit(), first + RULES.max_iterations)
    while state.decision is Decision.ACCEPT and state.iteration < limit:
        state = refine_iteration(session.stage(state.iteration), state, context)
        session.finish_iteration(state, context)
    rounds = state.history[first:]
    finished = RefinementFinished(
        scores=tuple(record.score for record in rounds),
        taken=sum(record.accepted for record in rounds),
        seconds=time.perf_counter() - began,
    )
    session.notify(finished)
    return dataclasses.replace(
        state,
        refined=finished,
        decision=state.decision if finished.taken else decision_before,
    )


def refine_iteration(stage: Stage, state: LoopState, context: FitContext) -> LoopState:
    """Run one outer iteration from the best partition.

    The decision is REACHED if the partition was accepted and its graph has exactly c components, and
    STOPPED if it is nearly perfect, or if it was not accepted and no other iteration follows (see the module).
    """
    started, parameters = time.perf_counter(), context.parameters
    assert state.refined_from is not None
    round_number = state.iteration - state.refined_from
    misses_known = state.best.partition_score.n_missed > 0
    by_known_alone = misses_known and round_number == 1
    follows_accepted = round_number > 0 and state.history[-1].accepted
    metrics, records = _learned_metrics(stage, state, context, by_known_alone=by_known_alone)
    proposal = _next_graph(stage, state, metrics, context)
    del metrics
    values, has_converged = np.zeros(0), True
    if proposal.spectrum is not None:
        values, has_converged = proposal.spectrum.values, proposal.spectrum.converged
    facts = stage.submit(gap_and_convergence, values, has_converged, parameters.n_clusters)
    views, ((eigengap, converged),) = stage.gather(records, [facts])
    accepted = _is_accepted(
        proposal,
        state,
        context,
        must_be_better=by_known_alone and follows_accepted,
        may_miss_more=not (misses_known and round_number < 2),
    )
    n_components = proposal.graph.n_components
    record = IterationFinished(
        iteration=state.iteration,
        graph_weight=parameters.constants.graph_weight,
        n_connected_components=n_components,
        n_clusters=parameters.n_clusters,
        score=proposal.best.score,
        eigengap=eigengap,
        views=tuple(views),
        view_scores=proposal.best.partition_score.view_scores,
        seconds=time.perf_counter() - started,
        spectrum_converged=converged,
        accepted=accepted,
    )
    is_perfect = is_nearly_perfect(proposal.best.partition_score, parameters)
    # with missed labels, two iterations in a row that are not accepted end the loop
    may_continue = accepted or (misses_known and (round_number == 0 or follows_accepted))
    decision = Decision.ACCEPT
    if accepted and n_components == parameters.n_clusters:
        decision = Decision.REACHED
    elif is_perfect or not may_continue:
        decision = Decision.STOPPED
    state = dataclasses.replace(state, decision=decision, history=(*state.history, record))
    if not accepted:
        return state
    spectrum = state.spectrum
    if proposal.spectrum is not None:
        spectrum = proposal.spectrum.without_laplacian()
    best = dataclasses.replace(proposal.best, iteration=record.iteration)
    return dataclasses.replace(state, graph=proposal.graph, spectrum=spectrum, best=best)


def _learned_metrics(
    stage: Stage, state: LoopState, context: FitContext, *, by_known_alone: bool
) -> tuple[list[View], list[Handle]]:
    """Submit the metrics of the best partition, and those of the known samples if it misses some; or only the latter."""
    prepared, labels = context.prepared, state.best.labels
    views, names, order = prepared.views, prepared.names, prepared.order
    known = prepared.deciding
    if known is None:
        return learn_metrics(stage, views, names, labels, order)
    if by_known_alone:
        return learn_metrics(stage, views, names, known, order)
    moved = stage.submit(with_known, labels, known, context.parameters.n_clusters)
    metrics, records = learn_metrics(stage, views, names, moved, order)
    if state.best.partition_score.n_missed:
        of_known, _ = learn_metrics(stage.sub("known"), views, names, known, order)
        metrics += of_known
    return metrics, records


def _is_accepted(
    proposal: Initialization,
    state: LoopState,
    context: FitContext,
    *,
    must_be_better: bool = False,
    may_miss_more: bool = True,
) -> bool:
    """Return whether a new partition replaces the best one.

    After a previous fit its score has to be higher, otherwise not clearly lower. An equal score is refused while the
    graph lacks c components. One that was learned from known labels for the first time may not miss more of them.
    """
    new, best = proposal.best.partition_score, state.best.partition_score
    n_clusters, tie = context.parameters.n_clusters, context.parameters.constants.score_tie
    if proposal.graph.n_components != n_clusters and new == best:
        return False
    if new.n_missed > best.n_missed and not may_miss_more:
        return False
    if context.from_previous_fit:
        return is_better(new, best, tie)
    if must_be_better:
        return is_worse(best, new, tie)
    return not is_worse(new, best, RULES.level)


def _next_graph(
    stage: Stage, state: LoopState, metrics: list[View], context: FitContext
) -> Initialization:
    """Return the graph of the original and the learned distances, half each, with its best cut."""
    prepared, parameters = context.prepared, context.parameters
    # only the neighbors are needed: the next iteration searches again, with other distances
    n_candidates = max(context.n_neighbors, parameters.n_neighbors) + 1
    searched = dataclasses.replace(parameters, n_candidates=n_candidates)
    views = [*prepared.views, *metrics]
    candidates = candidates_in_order(stage, views, prepared.order, searched)
    graph = a_step(stage, candidates, known=prepared.deciding, n_neighbors=context.n_neighbors)
    del candidates
    if context.view_graphs is not None:
        graph = mixed_graph(stage, graph, context.view_graphs)
    k, labels = context.n_neighbors, state.best.labels
    return submit_partitions(stage, prepared, graph, k, labels).result()
