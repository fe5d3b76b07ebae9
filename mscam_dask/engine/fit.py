"""A whole fit: set-up, the path of outer iterations, the graph that is returned."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views import MultiViewData
from mscam_dask.engine.executor import Executor, Handle
from mscam_dask.engine.judging import judge, mean_score, spectrum_of
from mscam_dask.engine.path import PathState, embed_views, outer_iteration
from mscam_dask.engine.selection import Start, choose_setting
from mscam_dask.engine.setup import Foundation, Prepared, anchor_space, lay_foundation, prepare
from mscam_dask.engine.tasks import graph as graph_tasks
from mscam_dask.engine.tasks import judge as judge_tasks
from mscam_dask.engine.tasks import views as view_tasks
from mscam_dask.model.parameters import Parameters
from mscam_dask.model.records import (
    FitEnded,
    FitStarted,
    OuterRecord,
    SelectionEnded,
    SettingRecord,
)
from mscam_dask.model.solution import Solution
from mscam_dask.model.status import Status
from mscam_dask.solvers.limit_step import limit_step
from mscam_dask.solvers.rank_control import Decision, RankControl

__all__ = ["Event", "Observer", "run_fit"]

Event = FitStarted | SelectionEnded | OuterRecord | FitEnded
Observer = Callable[[Event], None]
"""Called by the driver, in order, with each event of the fit."""


@dataclasses.dataclass(frozen=True)
class _Course:
    """The setting taken and the way from it."""

    parameters: Parameters
    prepared: Prepared
    n_neighbors: int
    settings: tuple[SettingRecord, ...]
    history: list[OuterRecord]


@dataclasses.dataclass(frozen=True)
class _Ending:
    """Where the path ended: the graph to return and how it was reached."""

    graph: Handle
    labels: Handle
    status: Status
    score: float
    view_scores: tuple[float, ...]


def run_fit(
    data: MultiViewData,
    candidates: Parameters | Sequence[Parameters],
    executor: Executor,
    *,
    observers: Sequence[Observer] = (),
) -> Solution:
    """Cluster the samples of `data`.

    Parameters
    ----------
    data : MultiViewData
        Validated views.
    candidates : Parameters or sequence of Parameters
        With several, which differ in scale, alpha and n_neighbors only, the best is chosen
        without labels; see `mscam_dask.engine.selection`.
    executor : Executor
        Entered and left here; the result does not depend on which one it is.
    observers : sequence of callable
        Called with `FitStarted`, `SelectionEnded`, one `OuterRecord` per outer iteration and
        `FitEnded`.

    Returns
    -------
    Solution

    Raises
    ------
    ClusterError
        When the executor cannot carry the work.
    DataError
        When a view turns out to be unusable.
    """
    candidates = (candidates,) if isinstance(candidates, Parameters) else tuple(candidates)
    trivial = _trivial(data.n_samples, candidates[0].n_clusters)
    started = time.perf_counter()
    with contextlib.ExitStack() as stack:
        stack.enter_context(executor)
        scales = tuple(dict.fromkeys(candidate.scale for candidate in candidates))
        foundation = lay_foundation(data, scales, executor)
        candidates = tuple(one for one in candidates if one.scale in foundation.factored)
        parameters = candidates[0]
        _notify(
            observers,
            FitStarted(
                n_samples=data.n_samples,
                n_clusters=parameters.n_clusters,
                max_outer_iter=parameters.max_outer_iter,
                views=foundation.records,
                executor=executor.description,
            ),
        )
        if trivial is not None:
            prepared = prepare(foundation, parameters, executor, key="trivial", last=True)
            n_neighbors = min(parameters.n_neighbors, data.n_samples - 1)
            course = _Course(parameters, prepared, n_neighbors, (), [])
            ending = _closed(*trivial, course, executor)
        else:
            start, selection = choose_setting(foundation, candidates, executor)
            _notify(observers, selection)
            course = _Course(
                start.parameters, start.prepared, start.first.n_neighbors, selection.settings, []
            )
            ending = _walk(start, course, executor, observers)
        solution = _collect(ending, course, foundation, executor)
    _notify(
        observers,
        FitEnded(
            status=solution.status.name,
            n_connected_components=solution.n_connected_components,
            n_iterations=len(solution.history),
            seconds=time.perf_counter() - started,
        ),
    )
    return solution


def _notify(observers: Sequence[Observer], event: Event) -> None:
    for observer in observers:
        observer(event)


def _trivial(n_samples: int, n_clusters: int) -> tuple[Any, Status] | None:
    """Partitions that need no path: one cluster, or as many as samples."""
    if n_clusters == 1:
        return np.zeros(n_samples, dtype=np.int64), Status.SINGLE_CLUSTER
    if n_clusters == n_samples:
        return np.arange(n_samples, dtype=np.int64), Status.SINGLETONS
    return None


def _walk(
    start: Start, course: _Course, executor: Executor, observers: Sequence[Observer]
) -> _Ending:
    """Outer iterations until c components, a stall, or the end of the budget."""
    parameters, prepared = course.parameters, course.prepared
    if start.spectrum is None:
        return _closed(start.best.labels, Status.MERGED_COMPONENTS, course, executor)
    control = RankControl(
        parameters.n_clusters, parameters.graph_weight_growth, parameters.graph_weight
    )
    state = PathState(0, start.first.graph, start.spectrum, control, start.best, course.n_neighbors)
    decision = Decision.ACCEPT
    while (
        decision is Decision.ACCEPT
        and state.iteration < parameters.max_outer_iter
        and state.iteration - state.best.iteration <= parameters.patience
    ):
        state, record, decision = outer_iteration(state, prepared, parameters, executor)
        course.history.append(record)
        _notify(observers, record)
    if decision is Decision.REACHED:
        reached = _reached(state, prepared, parameters, executor)
        if reached is not None:
            return reached
    return _closed(state.best.labels, Status.LIMIT_STEP, course, executor)


def _reached(
    state: PathState, prepared: Prepared, parameters: Parameters, executor: Executor
) -> _Ending | None:
    """The graph with c components, unless an earlier partition scored better."""
    labels = executor.submit(graph_tasks.components_of, state.graph, key="components/reached")
    partitions = executor.submit(judge_tasks.single, labels, key="partitions/reached")
    (view_scores,) = judge(prepared, partitions, executor, key="reached")
    score = mean_score(view_scores)
    if score < state.best.score - parameters.tol * abs(state.best.score):
        return None
    return _Ending(state.graph, labels, Status.CONTINUATION, score, view_scores)


def _closed(labels: Any, status: Status, course: _Course, executor: Executor) -> _Ending:
    """The limit step around a partition."""
    prepared = course.prepared
    partitions = executor.submit(judge_tasks.single, labels, key="partitions/closed")
    (view_scores,) = judge(prepared, partitions, executor, key="closed")
    anchors = anchor_space(prepared.views, course.parameters, executor, key="closed")
    graph = executor.submit(limit_step, anchors, labels, course.n_neighbors, key="limit_step")
    executor.release([anchors])
    components = executor.submit(graph_tasks.components_of, graph, key="components/closed")
    return _Ending(graph, components, status, mean_score(view_scores), view_scores)


def _collect(
    ending: _Ending, course: _Course, foundation: Foundation, executor: Executor
) -> Solution:
    """Bring the result to the caller, with each view's embedding given the final graph."""
    prepared = course.prepared
    affinity = executor.submit(graph_tasks.affinity_of, ending.graph, key="affinity")
    count = executor.submit(graph_tasks.component_count, ending.graph, key="component_count/final")
    encoders = [
        executor.submit(view_tasks.encoder_of, view, key=f"encoder/{name}")
        for view, name in zip(prepared.views, prepared.names, strict=True)
    ]
    embeddings = _embeddings(ending, course, executor)
    labels, graph, n_components, *maps = executor.gather(
        [ending.labels, affinity, count, *encoders]
    )
    return Solution(
        labels=labels,
        consensus_graph=graph,
        n_connected_components=n_components,
        status=ending.status,
        score=ending.score,
        n_neighbors=course.n_neighbors,
        parameters=course.parameters,
        settings=course.settings,
        prepared=foundation.records,
        history=tuple(course.history),
        view_embeddings=embeddings,
        view_contributions=_shares(prepared.names, ending.view_scores),
        encoders=dict(zip(prepared.names, maps, strict=True)),
    )


def _embeddings(
    ending: _Ending, course: _Course, executor: Executor
) -> dict[str, NDArray[np.float64]]:
    """Each view's embedding given the final graph; none where no path was walked."""
    if ending.status in (Status.SINGLE_CLUSTER, Status.SINGLETONS):
        return {}
    prepared, parameters = course.prepared, course.parameters
    weight = course.history[-1].graph_weight if course.history else parameters.graph_weight
    spectrum = spectrum_of(ending.graph, None, prepared, parameters, executor, key="final")
    results = embed_views(spectrum, weight, prepared, parameters, executor, key="final")
    handles = [
        executor.submit(view_tasks.embedding_of, result, key=f"view_embedding/{name}")
        for result, name in zip(results, prepared.names, strict=True)
    ]
    return dict(zip(prepared.names, executor.gather(handles), strict=True))


def _shares(names: tuple[str, ...], view_scores: tuple[float, ...]) -> dict[str, float]:
    """Non-negative scores as shares of their sum; equal when no view scores above zero."""
    positive = np.maximum(np.asarray(view_scores), 0.0)
    if not positive.sum() > 0.0:
        positive = np.ones(len(names))
    shares = positive / positive.sum()
    return {name: float(share) for name, share in zip(names, shares, strict=True)}
