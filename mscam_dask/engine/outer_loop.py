"""Outer iterations: a sequence of consensus graphs with a changing graph weight.

An iteration depends on the previous one through `LoopState` only: the graph, the start vectors of the
eigensolver, the rank control and the best partition so far. Views keep no state between iterations.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Iterator

from mscam_dask.engine import row_blocks
from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.initial_graph import PreparedHandles, build_graph
from mscam_dask.engine.row_blocks import BlockedCandidates, BlockedEmbedding, BlockedSpectrum
from mscam_dask.engine.scoring import (
    BestPartition,
    next_cuts,
    score_cuts,
    spectrum_facts,
    spectrum_of,
    start_vectors,
)
from mscam_dask.engine.tasks import graph as graph_tasks
from mscam_dask.engine.tasks import spectral_cut as cut_tasks
from mscam_dask.engine.tasks import views as view_tasks
from mscam_dask.solvers.graph_update import projected_weight
from mscam_dask.solvers.partition_score import PartitionScore, argbest, is_better
from mscam_dask.solvers.rank_control import Decision, RankControl
from mscam_dask.types.events import (
    IterationFinished,
    NClustersSelected,
    RefinementFinished,
    SettingsSelected,
    ViewIteration,
    ViewPrepared,
)
from mscam_dask.types.parameters import Parameters

__all__ = ["FitContext", "LoopState", "embed_views", "outer_iteration"]

# Number of views that one task of the reduction adds up: with one view per task, hundreds of views
# would mean thousands of small tasks in each iteration.
_FAN_IN = 16


@dataclasses.dataclass(frozen=True)
class LoopState:
    """State from which the next outer iteration starts.

    Attributes
    ----------
    iteration : int
        Number of the next outer iteration.
    graph : handle
    spectrum : handle or None
        Eigenvectors of the previous graph, from which the eigensolver starts. They change the
        result within its tolerance, and so its last bits. None if the initial graph has more
        components than clusters: then there are no outer iterations.
    control : RankControl
    best : BestPartition
    n_neighbors : int
    refinement : Refinement or None
        None before the refinement (`mscam_dask.engine.refine`).
    """

    iteration: int
    graph: Handle
    spectrum: Handle | None
    control: RankControl
    best: BestPartition
    n_neighbors: int
    refinement: Refinement | None = None


@dataclasses.dataclass(frozen=True)
class Refinement:
    """Start of the iterations that learn metrics from the best partition.

    Attributes
    ----------
    first : int
        Number of the first of them.
    decision : Decision
        Decision after the last iteration before them.
    """

    first: int
    decision: Decision


@dataclasses.dataclass(frozen=True)
class FitContext:
    """Constants of the outer iterations, and the records so far.

    Attributes
    ----------
    parameters : Parameters
        Parameters of the selected setting.
    prepared : PreparedHandles
    records : tuple of ViewPrepared
    n_neighbors : int
    selection : SettingsSelected or None
        None for trivial partitions, which need no outer iterations.
    history : list of IterationFinished
        Records of the outer iterations so far.
    counted : NClustersSelected or None
        None if the user set the number of clusters.
    learned : RefinementFinished or None
        None before the end of the refinement, and if there is none.
    refines : bool
        Whether the fit has a refinement (`mscam_dask.engine.refine`).
    """

    parameters: Parameters
    prepared: PreparedHandles
    records: tuple[ViewPrepared, ...]
    n_neighbors: int
    selection: SettingsSelected | None
    history: list[IterationFinished]
    counted: NClustersSelected | None = None
    learned: RefinementFinished | None = None
    refines: bool = False


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
            row_blocks.embed_views(
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
            view_tasks.admm_view,
            view,
            spectrum,
            name,
            parameters,
            graph_weight,
            key=f"admm_view/{key}/{name}",
        )
        for view, name in zip(prepared.views, prepared.names, strict=True)
    ]


def outer_iteration(
    state: LoopState, prepared: PreparedHandles, parameters: Parameters, executor: Executor
) -> tuple[LoopState, IterationFinished, Decision]:
    """Run one outer iteration: eigenvectors, scores of spectral cuts, ADMM of each view, A-step, λ."""
    started = time.perf_counter()
    key = str(state.iteration)
    spectrum = spectrum_of(state.graph, state.spectrum, prepared, parameters, executor, key=key)
    results, summed = _solved(spectrum, state.control, prepared, parameters, executor, key)
    cuts = next_cuts(spectrum, state.best.labels, prepared, parameters, executor, key=key)
    partition_scores = score_cuts(prepared, cuts, executor, key=key)
    best, partition_score = _better(state, cuts, partition_scores, parameters, executor)
    executor.release([state.graph] if state.spectrum is None else [state.graph, state.spectrum])

    control, attempt = state.control, 0
    while True:
        graph_weight = control.graph_weight
        data_weight, view_weight = _weights(graph_weight, prepared, parameters)
        graph, n_components = build_graph(
            executor,
            prepared.blocks,
            summed,
            n_neighbors=state.n_neighbors,
            data_weight=data_weight,
            projected_weight=view_weight,
            key=f"{key}/{attempt}",
        )
        decision, control = control.observe(n_components)
        if decision is not Decision.RETRY:
            break
        executor.release([graph])
        if parameters.model == "mscan":  # its distances depend on the graph weight: solve again
            executor.release([*results, *summed])
            results, summed = _solved(
                spectrum, control, prepared, parameters, executor, f"{key}/{attempt}"
            )
        attempt += 1

    view_records = _records(results, executor, key=key)
    eigengap, spectrum_converged = spectrum_facts(
        spectrum, parameters.n_clusters, executor, key=key
    )
    executor.release([*results, *summed, cuts])
    # the Laplacian is not needed again; the next eigensolver starts from the vectors
    warm_start = start_vectors(spectrum, executor, key=key)
    record = IterationFinished(
        iteration=state.iteration,
        graph_weight=graph_weight,
        n_connected_components=n_components,
        n_clusters=parameters.n_clusters,
        score=partition_score.score,
        eigengap=eigengap,
        views=tuple(view_records),
        view_scores=partition_score.view_scores,
        seconds=time.perf_counter() - started,
        spectrum_converged=bool(spectrum_converged),
        accepted=best is not state.best,
    )
    following = LoopState(state.iteration + 1, graph, warm_start, control, best, state.n_neighbors)
    return following, record, decision


def _records(results: list[Handle], executor: Executor, *, key: str) -> list[ViewIteration]:
    """Gather the records of the ADMM of each view."""
    if isinstance(results[0], BlockedEmbedding):
        return executor.gather([result.record for result in results])
    handles = [
        executor.submit(view_tasks.view_records, group, key=f"view_records/{key}/{first}")
        for first, group in _groups(results)
    ]
    records = list(itertools.chain.from_iterable(executor.gather(handles)))
    executor.release(handles)
    return records


def _weights(
    graph_weight: float, prepared: PreparedHandles, parameters: Parameters
) -> tuple[float, float]:
    """Weights of the data distances and of the projected distances of each view in the A-step."""
    n_views = len(prepared.names)
    if parameters.model == "mscan":
        return 0.0, 1.0 / n_views
    scale = projected_weight(prepared.n_samples, parameters.n_clusters)
    return parameters.identity_weight, graph_weight * scale / n_views


def _solved(
    spectrum: Handle,
    control: RankControl,
    prepared: PreparedHandles,
    parameters: Parameters,
    executor: Executor,
    key: str,
) -> tuple[list[Handle], list[Handle]]:
    """Results of the ADMM of each view, and sums of projected distances by block of rows."""
    results = embed_views(spectrum, control.graph_weight, prepared, parameters, executor, key=key)
    return results, _reduced(results, prepared, parameters, executor, key=key)


def _reduced(
    results: list[Handle],
    prepared: PreparedHandles,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
) -> list[Handle]:
    """Sums over views of the projected distances by block of rows, by a tree in view order."""
    if isinstance(prepared.blocks, BlockedCandidates):
        return row_blocks.projected_sums(results, prepared.blocks, executor, key=key)
    summed = []
    for index, block in enumerate(prepared.blocks):
        level = [
            executor.submit(
                view_tasks.projected,
                group,
                block,
                parameters.model,
                key=f"projected_distances/{key}/{index}/{first}",
            )
            for first, group in _groups(results)
        ]
        depth = 0
        while len(level) > 1:
            level = [
                executor.submit(
                    graph_tasks.added,
                    group,
                    key=f"reduce_distances/{key}/{index}/{depth}/{first}",
                )
                for first, group in _groups(level)
            ]
            depth += 1
        summed.append(level[0])
    return summed


def _groups(handles: list[Handle]) -> Iterator[tuple[int, list[Handle]]]:
    """Groups of handles for one task of the reduction each, with the position of the first one."""
    for first in range(0, len(handles), _FAN_IN):
        yield first, handles[first : first + _FAN_IN]


def _better(
    state: LoopState,
    cuts: Handle,
    partition_scores: list[PartitionScore],
    parameters: Parameters,
    executor: Executor,
) -> tuple[BestPartition, PartitionScore]:
    """Return the better of the best partition so far and the best new cut, and the score of that cut.

    A later partition must score higher by more than `tol`: otherwise the simpler one is kept.
    """
    best = state.best
    index = argbest(partition_scores)
    partition_score = partition_scores[index]
    if not is_better(partition_score, best.partition_score, parameters):
        return best, partition_score
    labels = executor.submit(cut_tasks.pick, cuts, index, key=f"best_cut/{state.iteration}")
    return BestPartition(labels, partition_score, state.iteration), partition_score
