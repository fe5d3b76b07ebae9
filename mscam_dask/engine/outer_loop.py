"""Outer iterations: a sequence of consensus graphs with a changing graph weight."""

from __future__ import annotations

import itertools
import time

from mscam_dask.engine.blocks import Stage
from mscam_dask.engine.embed import projected_sums
from mscam_dask.engine.graph import a_step
from mscam_dask.engine.scores import BestPartition
from mscam_dask.engine.session import FitContext, LoopState, Session
from mscam_dask.engine.spectrum import bottom_eigenpairs, gap_and_convergence, spectral_cuts
from mscam_dask.solvers.graph_update import projected_weight
from mscam_dask.solvers.partition_score import argbest, is_better
from mscam_dask.solvers.rank_control import Decision
from mscam_dask.types.events import IterationFinished


def outer_loop(state: LoopState, context: FitContext, session: Session) -> LoopState:
    """Run outer iterations by ADMM until the graph has c components, none is better for a while, or the limit."""
    if state.refined_from is not None:
        return state
    parameters = context.parameters
    limit = parameters.admm_limit(refines=context.refines)
    patience = parameters.patience_for(context.prepared.n_samples)
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
        spectrum = bottom_eigenpairs(
            stage, state.graph, prepared.views, parameters, previous=previous
        )
    graph_weight, control = state.control.graph_weight, state.control
    distances, records = projected_sums(stage, spectrum, graph_weight, prepared, parameters)
    cuts = spectral_cuts(stage, spectrum, prepared.order, parameters, init_labels=state.best.labels)
    partition_scores = prepared.scores(stage, cuts)
    attempts = itertools.count()
    while True:  # A-step, again with a smaller λ while there are too many components
        again = stage.sub(f"attempt-{next(attempts)}")
        graph = a_step(
            again,
            prepared.candidates,
            distances,
            n_neighbors=context.n_neighbors,
            data_weight=0.0
            if parameters.model == "mscan"
            else parameters.constants.identity_weight,
            projected_weight=_projected_weight(graph_weight, context),
        )
        decision, control = control.observe(graph.n_components)
        if decision is not Decision.RETRY:
            break
        graph_weight = control.graph_weight
        if parameters.model == "mscan":  # its distances depend on λ, those of MSCAM do not
            distances, records = projected_sums(again, spectrum, graph_weight, prepared, parameters)
    facts = stage.submit(
        gap_and_convergence, spectrum.values, spectrum.converged, parameters.n_clusters
    )
    ((scores, (eigengap, converged), views),) = stage.gather([partition_scores, facts, records])
    index = argbest(scores)
    # a later partition must score higher by more than a tie: otherwise the simpler one is kept
    accepted = is_better(scores[index], state.best.partition_score, parameters)
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
    return LoopState(
        graph, spectrum.without_laplacian(), control, best, decision, (*state.history, record)
    )


def _projected_weight(graph_weight: float, context: FitContext) -> float:
    """Weight of the projected distances of each view in the A-step."""
    prepared, parameters = context.prepared, context.parameters
    if parameters.model == "mscan":
        return 1.0 / len(prepared.names)
    scale = projected_weight(prepared.n_samples, parameters.n_clusters)
    return graph_weight * scale / len(prepared.names)
