"""How a fit ends: the graph to return, closed around the best partition, and all that is told of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.engine.executor import Executor, Handle
from mscam_dask.engine.judging import judge, spectrum_of
from mscam_dask.engine.path import Course, PathState, embed_views
from mscam_dask.engine.setup import Prepared
from mscam_dask.engine.tasks import anchors as anchor_tasks
from mscam_dask.engine.tasks import cuts as cut_tasks
from mscam_dask.engine.tasks import graph as graph_tasks
from mscam_dask.engine.tasks import views as view_tasks
from mscam_dask.model.parameters import Parameters
from mscam_dask.model.shares import shares_of_views
from mscam_dask.model.solution import Solution
from mscam_dask.model.status import Status
from mscam_dask.solvers.rank_control import Decision
from mscam_dask.solvers.verdict import Verdict, is_behind

__all__ = ["Ending", "closed", "collect", "ended"]


@dataclasses.dataclass(frozen=True)
class Ending:
    """Where the path ended: the graph to return and how it was reached."""

    graph: Handle
    labels: Handle
    status: Status
    verdict: Verdict


def ended(state: PathState, decision: Decision, course: Course, executor: Executor) -> Ending:
    """The c components that the path came to, or the limit step around the partition taken instead."""
    if state.spectrum is None:
        return closed(state.best.labels, Status.MERGED_COMPONENTS, course, executor)
    is_learned = course.learned is not None and course.learned.taken > 0
    if decision is Decision.REACHED and not is_learned:
        reached = _reached(state, course.prepared, course.parameters, executor)
        if reached is not None:
            return reached
    return closed(state.best.labels, Status.LIMIT_STEP, course, executor)


def _reached(
    state: PathState, prepared: Prepared, parameters: Parameters, executor: Executor
) -> Ending | None:
    """The graph with c components, unless an earlier partition scored better."""
    labels = executor.submit(graph_tasks.components_of, state.graph, key="components/reached")
    partitions = executor.submit(cut_tasks.single, labels, key="partitions/reached")
    (verdict,) = judge(prepared, partitions, executor, key="reached")
    if is_behind(verdict, state.best.verdict, parameters.tol):
        return None
    return Ending(state.graph, labels, Status.CONTINUATION, verdict)


def closed(labels: Any, status: Status, course: Course, executor: Executor) -> Ending:
    """The limit step around a partition."""
    prepared = course.prepared
    partitions = executor.submit(cut_tasks.single, labels, key="partitions/closed")
    (verdict,) = judge(prepared, partitions, executor, key="closed")
    graph = executor.submit(
        anchor_tasks.closed_graph,
        list(prepared.views),
        labels,
        course.n_neighbors,
        list(prepared.blocks) if course.parameters.is_large(prepared.n_samples) else [],
        key="limit_step",
    )
    components = executor.submit(graph_tasks.components_of, graph, key="components/closed")
    return Ending(graph, components, status, verdict)


def collect(ending: Ending, course: Course, executor: Executor) -> Solution:
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
    shares = shares_of_views(prepared.names, ending.verdict.view_scores)
    return Solution(
        labels=labels,
        consensus_graph=graph,
        n_connected_components=n_components,
        status=ending.status,
        score=ending.verdict.score,
        n_neighbors=course.n_neighbors,
        parameters=course.parameters,
        counted=course.counted,
        learned=course.learned,
        settings=() if course.selection is None else course.selection.settings,
        agreed=() if course.selection is None else course.selection.preparations,
        chosen=-1 if course.selection is None else course.selection.chosen,
        prepared=course.records,
        history=tuple(course.history),
        view_embeddings=embeddings,
        view_contributions={one.view: shares.get(one.view, 0.0) for one in course.records},
        encoders=dict(zip(prepared.names, maps, strict=True)),
    )


def _embeddings(
    ending: Ending, course: Course, executor: Executor
) -> dict[str, NDArray[np.float64]]:
    """Each view's embedding given the final graph; none where no path was walked."""
    if ending.status in (Status.SINGLE_CLUSTER, Status.SINGLETONS):
        return {}
    prepared, parameters = course.prepared, course.parameters
    weight = course.history[-1].graph_weight if course.history else parameters.graph_weight
    spectrum = spectrum_of(
        ending.graph, None, prepared, parameters, executor, key="final", closed=True
    )
    results = embed_views(spectrum, weight, prepared, parameters, executor, key="final")
    handles = [
        executor.submit(view_tasks.embedding_of, result, key=f"view_embedding/{name}")
        for result, name in zip(results, prepared.names, strict=True)
    ]
    return dict(zip(prepared.names, executor.gather(handles), strict=True))
