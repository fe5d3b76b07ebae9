"""Initialization for one setting: initial graph, bottom eigenvectors and best spectral cut."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from mscam_dask.engine.assess import submit_ahead
from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.initial_graph import InitialGraph, PreparedHandles, initial_graph
from mscam_dask.engine.scoring import (
    BestPartition,
    all_minima,
    first_cuts,
    merged_components,
    score_cuts,
    spectrum_of,
)
from mscam_dask.engine.tasks import spectral_cut as cut_tasks
from mscam_dask.solvers.partition_score import argbest, is_better, is_nearly_perfect
from mscam_dask.types.events import CandidateSettings
from mscam_dask.types.parameters import Parameters

__all__ = [
    "Initialization",
    "evaluate_graph",
    "improve_by_restarts",
    "initialize",
    "release",
    "release_unshared",
]


@dataclasses.dataclass(frozen=True)
class Initialization:
    """Initial graph and partition of one setting.

    Attributes
    ----------
    parameters : Parameters
    prepared : PreparedHandles
    first : InitialGraph
    spectrum : handle or None
        Spectrum of the initial graph; None if that has more components than clusters.
    best : BestPartition
    """

    parameters: Parameters
    prepared: PreparedHandles
    first: InitialGraph
    spectrum: Handle | None
    best: BestPartition

    def record(self, names: Sequence[str]) -> CandidateSettings:
        """Record of the setting of views with these names, and of its initial graph."""
        parameters, first = self.parameters, self.first
        by_view = parameters.view_settings is not None
        view_settings = tuple(
            (name, chosen.scale, chosen.alpha)
            for name, chosen in zip(names, parameters.view_settings or (), strict=by_view)
        )
        return CandidateSettings(
            scale="by view" if by_view else parameters.scale,
            alpha=None if by_view else parameters.alpha,
            n_neighbors=first.n_neighbors,
            n_connected_components=first.n_components,
            score=self.best.score,
            initial_graph=first.kind,
            view_settings=view_settings,
            exclude_views=tuple(names[view] for view in parameters.exclude_views),
        )


def initialize(
    prepared: PreparedHandles, parameters: Parameters, executor: Executor, *, key: str
) -> Initialization:
    """Return the initialization from the graph of the data distances."""
    first = initial_graph(prepared, parameters, executor, key=key)
    return evaluate_graph(prepared, parameters, first, executor, key=key)


def evaluate_graph(
    prepared: PreparedHandles,
    parameters: Parameters,
    first: InitialGraph,
    executor: Executor,
    *,
    key: str,
    known: Handle | None = None,
) -> Initialization:
    """Return the initialization from a graph: its best spectral cut, or its merged components.

    Components are merged if there are more than clusters. With a `known` partition, all good minima of
    k-means and the cuts that start from this partition are scored.
    """
    spectrum: Handle | None = None
    if first.n_components > parameters.n_clusters:
        labels = merged_components(first.graph, prepared, parameters.n_clusters, executor, key=key)
        partitions = executor.submit(cut_tasks.single, labels, key=f"partitions/{key}")
    else:
        spectrum = spectrum_of(first.graph, None, prepared, parameters, executor, key=key)
        if known is None:
            partitions = first_cuts(spectrum, prepared, parameters, executor, key=key)
        else:
            partitions = all_minima(spectrum, prepared, parameters, executor, key=key, known=known)
        if prepared.validation_views == prepared.names:  # not if the fit may exclude some of them
            submit_ahead(prepared, parameters, executor)
    best = _argbest(partitions, prepared, executor, key=key)
    return Initialization(parameters, prepared, first, spectrum, best)


def improve_by_restarts(start: Initialization, executor: Executor) -> Initialization:
    """Return the initialization with the best of all good spectral cuts of its graph.

    Settings are compared by few cuts each, since more cuts favor settings whose graph is similar to
    the reference graphs. For one graph, many cuts can be compared (docs/decisions/0055).
    """
    prepared, parameters = start.prepared, start.parameters
    if start.spectrum is None or is_nearly_perfect(start.best.score, parameters):
        return start
    partitions = all_minima(start.spectrum, prepared, parameters, executor, key="minima")
    best = _argbest(partitions, prepared, executor, key="minima")
    if not is_better(best.partition_score, start.best.partition_score, parameters):
        executor.release([best.labels])
        return start
    executor.release([start.best.labels])
    return dataclasses.replace(start, best=best)


def _argbest(
    partitions: Handle, prepared: PreparedHandles, executor: Executor, *, key: str
) -> BestPartition:
    partition_scores = score_cuts(prepared, partitions, executor, key=key)
    index = argbest(partition_scores)
    labels = executor.submit(cut_tasks.pick, partitions, index, key=f"best_cut/{key}")
    executor.release([partitions])
    return BestPartition(labels, partition_scores[index], iteration=0)


def release(start: Initialization, executor: Executor) -> None:
    """Release an initialization with its ridge views and candidate neighbors."""
    _release_graph(start, executor)
    executor.release([*start.prepared.blocks, *start.prepared.views])


def release_unshared(start: Initialization, other: Initialization, executor: Executor) -> None:
    """Release the handles that an initialization does not share with another one of the same views."""
    _release_graph(start, executor)
    if start.prepared.blocks is not other.prepared.blocks:
        executor.release([*start.prepared.blocks])


def _release_graph(start: Initialization, executor: Executor) -> None:
    """Release the graph, spectrum and partition of an initialization."""
    handles = [start.first.graph, start.best.labels]
    executor.release(handles if start.spectrum is None else [*handles, start.spectrum])
