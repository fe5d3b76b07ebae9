"""A whole fit: set-up, the path of outer iterations, the graph that is returned."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mscam_dask.data.views import MultiViewData
from mscam_dask.engine.executor import Executor, Handle
from mscam_dask.engine.path import (
    Best,
    PathState,
    embed_views,
    judge,
    mean_score,
    outer_iteration,
    spectrum_of,
)
from mscam_dask.engine.setup import FirstGraph, Prepared, first_graph, prepare
from mscam_dask.engine.tasks import graph as graph_tasks
from mscam_dask.engine.tasks import judge as judge_tasks
from mscam_dask.engine.tasks import views as view_tasks
from mscam_dask.model.parameters import Parameters
from mscam_dask.model.records import FitEnded, FitStarted, OuterRecord
from mscam_dask.model.solution import Solution
from mscam_dask.model.status import Status
from mscam_dask.solvers.limit_step import limit_step
from mscam_dask.solvers.partition import merge_components
from mscam_dask.solvers.rank_control import Decision, RankControl

__all__ = ["Event", "Observer", "run_fit"]

Event = FitStarted | OuterRecord | FitEnded
Observer = Callable[[Event], None]
"""Called by the driver, in order, with each event of the fit."""


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
    parameters: Parameters,
    executor: Executor,
    *,
    observers: Sequence[Observer] = (),
) -> Solution:
    """Cluster the samples of `data`.

    Parameters
    ----------
    data : MultiViewData
        Validated views.
    parameters : Parameters
    executor : Executor
        Entered and left here; the result does not depend on which one it is.
    observers : sequence of callable
        Called with `FitStarted`, one `OuterRecord` per outer iteration and `FitEnded`.

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
    started = time.perf_counter()
    with contextlib.ExitStack() as stack:
        stack.enter_context(executor)
        prepared = prepare(data, parameters, executor)
        _notify(
            observers,
            FitStarted(
                n_samples=data.n_samples,
                n_clusters=parameters.n_clusters,
                max_outer_iter=parameters.max_outer_iter,
                views=prepared.records,
                executor=executor.description,
            ),
        )
        trivial = _trivial(data.n_samples, parameters.n_clusters)
        n_neighbors = min(parameters.n_neighbors, data.n_samples - 1)
        history: list[OuterRecord] = []
        if trivial is not None:
            labels, status = trivial
            ending = _closed(labels, status, n_neighbors, prepared, executor)
        else:
            first = first_graph(prepared, parameters, executor)
            n_neighbors = first.n_neighbors
            ending = _walk(first, prepared, parameters, executor, observers, history)
        solution = _collect(ending, n_neighbors, history, prepared, parameters, executor)
    _notify(
        observers,
        FitEnded(
            status=solution.status.name,
            n_connected_components=solution.n_connected_components,
            n_iterations=len(history),
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
    first: FirstGraph,
    prepared: Prepared,
    parameters: Parameters,
    executor: Executor,
    observers: Sequence[Observer],
    history: list[OuterRecord],
) -> _Ending:
    """Outer iterations until c components, a stall, or the end of the budget."""
    if first.n_components > parameters.n_clusters:
        components = executor.submit(graph_tasks.components_of, first.graph, key="components/first")
        labels = executor.submit(
            merge_components,
            prepared.anchors,
            components,
            parameters.n_clusters,
            key="merge_components",
        )
        return _closed(labels, Status.MERGED_COMPONENTS, first.n_neighbors, prepared, executor)
    control = RankControl(
        parameters.n_clusters, parameters.graph_weight_growth, parameters.graph_weight
    )
    state = PathState(0, first.graph, None, control, None, first.n_neighbors)
    decision = Decision.ACCEPT
    while decision is Decision.ACCEPT and state.iteration < parameters.max_outer_iter:
        state, record, decision = outer_iteration(state, prepared, parameters, executor)
        history.append(record)
        _notify(observers, record)
    assert state.best is not None, "an outer iteration always yields a partition"
    if decision is Decision.REACHED:
        reached = _reached(state, state.best, prepared, parameters, executor)
        if reached is not None:
            return reached
    return _closed(state.best.labels, Status.LIMIT_STEP, state.n_neighbors, prepared, executor)


def _reached(
    state: PathState,
    best: Best,
    prepared: Prepared,
    parameters: Parameters,
    executor: Executor,
) -> _Ending | None:
    """The graph with c components, unless an earlier partition scored better."""
    labels = executor.submit(graph_tasks.components_of, state.graph, key="components/reached")
    partitions = executor.submit(judge_tasks.single, labels, key="partitions/reached")
    (view_scores,) = judge(prepared, partitions, executor, key="reached")
    score = mean_score(view_scores)
    if score < best.score - parameters.tol * abs(best.score):
        return None
    return _Ending(state.graph, labels, Status.CONTINUATION, score, view_scores)


def _closed(
    labels: Any,
    status: Status,
    n_neighbors: int,
    prepared: Prepared,
    executor: Executor,
) -> _Ending:
    """The limit step around a partition."""
    partitions = executor.submit(judge_tasks.single, labels, key="partitions/closed")
    (view_scores,) = judge(prepared, partitions, executor, key="closed")
    graph = executor.submit(limit_step, prepared.anchors, labels, n_neighbors, key="limit_step")
    components = executor.submit(graph_tasks.components_of, graph, key="components/closed")
    return _Ending(graph, components, status, mean_score(view_scores), view_scores)


def _collect(
    ending: _Ending,
    n_neighbors: int,
    history: list[OuterRecord],
    prepared: Prepared,
    parameters: Parameters,
    executor: Executor,
) -> Solution:
    """Bring the result to the caller, with each view's embedding given the final graph."""
    embeddings: dict[str, Any] = {}
    if ending.status not in (Status.SINGLE_CLUSTER, Status.SINGLETONS):
        weight = history[-1].graph_weight if history else parameters.graph_weight
        spectrum = spectrum_of(ending.graph, None, prepared, parameters, executor, key="final")
        results = embed_views(spectrum, weight, prepared, parameters, executor, key="final")
        handles = [
            executor.submit(view_tasks.embedding_of, result, key=f"view_embedding/{name}")
            for result, name in zip(results, prepared.names, strict=True)
        ]
        embeddings = dict(zip(prepared.names, executor.gather(handles), strict=True))
    affinity = executor.submit(graph_tasks.affinity_of, ending.graph, key="affinity")
    count = executor.submit(graph_tasks.component_count, ending.graph, key="component_count/final")
    encoders = [
        executor.submit(view_tasks.encoder_of, view, key=f"encoder/{name}")
        for view, name in zip(prepared.views, prepared.names, strict=True)
    ]
    labels, graph, n_components, *maps = executor.gather(
        [ending.labels, affinity, count, *encoders]
    )
    return Solution(
        labels=labels,
        consensus_graph=graph,
        n_connected_components=n_components,
        status=ending.status,
        score=ending.score,
        n_neighbors=n_neighbors,
        prepared=prepared.records,
        history=tuple(history),
        view_embeddings=embeddings,
        view_contributions=_shares(prepared.names, ending.view_scores),
        encoders=dict(zip(prepared.names, maps, strict=True)),
    )


def _shares(names: tuple[str, ...], view_scores: tuple[float, ...]) -> dict[str, float]:
    """Non-negative scores as shares of their sum; equal when no view scores above zero."""
    positive = np.maximum(np.asarray(view_scores), 0.0)
    if not positive.sum() > 0.0:
        positive = np.ones(len(names))
    shares = positive / positive.sum()
    return {name: float(share) for name, share in zip(names, shares, strict=True)}
