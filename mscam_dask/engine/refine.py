"""Last outer iterations of automatic settings: metrics learned from the best partition.

One iteration, from the best partition so far:

1. the metric of each view, in closed form: its linear discriminants (`mscam_dask.solvers.lda`);
2. the distances in the views and in their discriminants, half each, and the A-step: the next graph,
   mixed with the graphs of the single views as the initial graph may be;
3. the spectral cuts of that graph and their scores.

The reference graphs that give the scores are of the original distances, which favors partitions by
these. A new partition is therefore accepted unless its score is clearly lower
(docs/decisions/0064), and the loop ends with the first one that is not accepted.
"""

from __future__ import annotations

import dataclasses
import operator
import time

from mscam_dask.engine import row_blocks
from mscam_dask.engine.candidate_neighbors import candidate_blocks, release_candidates
from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.initial_graph import InitialGraph, PreparedHandles, build_graph
from mscam_dask.engine.initialize import Initialization, evaluate_graph
from mscam_dask.engine.outer_loop import LoopState
from mscam_dask.engine.row_blocks import BlockedCandidates
from mscam_dask.engine.scoring import spectrum_facts, start_vectors
from mscam_dask.engine.tasks import views as view_tasks
from mscam_dask.engine.view_graphs import have_view_graphs, with_view_graphs
from mscam_dask.solvers.partition_score import is_better, is_nearly_perfect, is_worse
from mscam_dask.solvers.rank_control import Decision
from mscam_dask.types.events import IterationFinished, ViewIteration
from mscam_dask.types.parameters import Parameters

__all__ = ["MAX_ADMM_ITERATIONS", "MAX_ITERATIONS", "can_refine", "refine_iteration"]

MAX_ADMM_ITERATIONS = 3
"""Maximum number of outer iterations by ADMM before the refinement: docs/decisions/0074."""

MAX_ITERATIONS = 3
"""Maximum number of these iterations; with weak views, more of them drift: docs/decisions/0064."""

# Largest loss of score, relative, at which a new partition is accepted: docs/decisions/0064.
_MAX_RELATIVE_LOSS = 0.015


def can_refine(state: LoopState, prepared: PreparedHandles, parameters: Parameters) -> bool:
    """Return whether the fit has a refinement.

    It has none if the initial graph has too many components, if its cut is nearly perfect (then
    a growing graph weight leads to exactly c components), or if the views have no graphs of
    their own (`mscam_dask.engine.view_graphs.have_view_graphs`).
    """
    return (
        state.spectrum is not None
        and not is_nearly_perfect(state.best.score, parameters)
        and have_view_graphs(len(prepared.names), prepared.n_samples)
    )


def refine_iteration(
    state: LoopState,
    own: Handle,
    prepared: PreparedHandles,
    parameters: Parameters,
    executor: Executor,
    *,
    from_previous_fit: bool = False,
) -> tuple[LoopState, IterationFinished, Decision]:
    """Run one outer iteration from the best partition.

    Parameters
    ----------
    state : LoopState
        Its graph, spectrum and best labels are released where a new partition takes their place.
    own : handle
        Mean of the graphs of the single views.
    prepared : PreparedHandles
    parameters : Parameters
    executor : Executor
    from_previous_fit : bool
        The loop started with the partition of an earlier fit, which was refined already: a new one
        is accepted only where its score is higher by more than `tol`.

    Returns
    -------
    LoopState, IterationFinished, Decision
        REACHED: the partition was accepted and its graph has exactly c components. STOPPED: it was
        not accepted, is the same again, or is nearly perfect.
    """
    started, key, best = time.perf_counter(), str(state.iteration), state.best
    metrics, views = _metrics(best.labels, prepared, executor, key=key)
    following = _next_graph(state, metrics, own, best.labels, prepared, parameters, executor)
    eigengap, converged = float("nan"), True
    if following.spectrum is not None:
        eigengap, converged = spectrum_facts(
            following.spectrum, parameters.n_clusters, executor, key=key
        )
    executor.release(metrics)

    new = following.best
    is_final = following.first.n_components == parameters.n_clusters
    is_new = is_final or new.partition_score != best.partition_score
    accepted = is_new and (
        is_better(new.partition_score, best.partition_score, parameters)
        if from_previous_fit
        else not is_worse(new.partition_score, best.partition_score, _MAX_RELATIVE_LOSS)
    )
    record = IterationFinished(
        iteration=state.iteration,
        graph_weight=parameters.graph_weight,
        n_connected_components=following.first.n_components,
        n_clusters=parameters.n_clusters,
        score=new.score,
        eigengap=eigengap,
        views=tuple(views),
        view_scores=new.partition_score.view_scores,
        seconds=time.perf_counter() - started,
        spectrum_converged=bool(converged),
        accepted=accepted,
    )
    decision = _decide(following, parameters, accepted=accepted)
    return _next_state(state, following, executor, key, accepted=accepted), record, decision


def _metrics(
    labels: Handle, prepared: PreparedHandles, executor: Executor, *, key: str
) -> tuple[list[Handle], list[ViewIteration]]:
    """Submit the metric of each view learned from a partition, and gather their records."""
    if isinstance(prepared.blocks, BlockedCandidates):
        of_blocks, records = row_blocks.learn_metrics(
            prepared.views, prepared.names, labels, prepared.blocks.order, executor, key=key
        )
        return list(of_blocks), records
    learned = [
        executor.submit(
            view_tasks.learn_metric, view, labels, name, key=f"learn_metric/{key}/{name}"
        )
        for view, name in zip(prepared.views, prepared.names, strict=True)
    ]
    metrics, gathered = (
        [
            executor.submit(operator.itemgetter(item), handle, key=f"{stage}/{key}/{name}")
            for handle, name in zip(learned, prepared.names, strict=True)
        ]
        for item, stage in enumerate(("metric", "view_records"))
    )
    records = executor.gather(gathered)
    executor.release([*learned, *gathered])
    return metrics, records


def _next_graph(
    state: LoopState,
    metrics: list[Handle],
    own: Handle,
    known: Handle,
    prepared: PreparedHandles,
    parameters: Parameters,
    executor: Executor,
) -> Initialization:
    """Return the graph of the original and the learned distances, half each, with its best cut."""
    key = str(state.iteration)
    # candidates beside the neighbors would not be looked at: the next search is by other distances
    n_candidates = max(state.n_neighbors, parameters.n_neighbors) + 1
    searched = dataclasses.replace(parameters, n_candidates=n_candidates)
    both = [*prepared.views, *metrics]
    blocks = candidate_blocks(
        both, prepared.blocks, prepared.n_samples, searched, executor, key=key
    )
    graph, n_components = build_graph(
        executor,
        blocks,
        None,
        n_neighbors=state.n_neighbors,
        data_weight=1.0,
        projected_weight=0.0,
        key=key,
    )
    release_candidates(blocks, executor)
    by_distances = InitialGraph(graph, n_components, state.n_neighbors)
    mixed = with_view_graphs(by_distances, own, executor, key=key)
    executor.release([graph])
    return evaluate_graph(prepared, parameters, mixed, executor, key=key, known=known)


def _decide(following: Initialization, parameters: Parameters, *, accepted: bool) -> Decision:
    if accepted and following.first.n_components == parameters.n_clusters:
        return Decision.REACHED
    if not accepted or is_nearly_perfect(following.best.score, parameters):
        return Decision.STOPPED
    return Decision.ACCEPT


def _next_state(
    state: LoopState, following: Initialization, executor: Executor, key: str, *, accepted: bool
) -> LoopState:
    """Return the state with the new graph and partition where these were accepted; release the others."""
    if not accepted:
        unused = [] if following.spectrum is None else [following.spectrum]
        executor.release([*unused, following.first.graph, following.best.labels])
        return dataclasses.replace(state, iteration=state.iteration + 1)
    spectrum = state.spectrum
    if following.spectrum is not None:
        # the Laplacian is not needed again
        spectrum = start_vectors(following.spectrum, executor, key=key)
        if state.spectrum is not None:
            executor.release([state.spectrum])
    executor.release([state.graph, state.best.labels])
    return dataclasses.replace(
        state,
        iteration=state.iteration + 1,
        graph=following.first.graph,
        spectrum=spectrum,
        best=dataclasses.replace(following.best, iteration=state.iteration),
    )
