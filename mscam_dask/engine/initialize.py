"""Initialization for one setting: initial graph, bottom eigenvectors and best spectral cut.

The initial graph is by the mean distance over views, or the mean of it and the graphs of the single
views; partition scores decide between the two (docs/decisions/0057).
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from mscam_dask.engine.blocks import Graph, GraphSpectrum, Stage
from mscam_dask.engine.executors.base import Handle
from mscam_dask.engine.graph import a_step, extended_labels, merged_components
from mscam_dask.engine.prepare import PrecomputedViews, Prepared, prepare_views
from mscam_dask.engine.scores import BestPartition, best_partition, compared_views
from mscam_dask.engine.spectrum import bottom_eigenpairs, spectral_cuts
from mscam_dask.solvers.known_labels import UNKNOWN
from mscam_dask.solvers.partition_score import argbest, is_better, is_nearly_perfect
from mscam_dask.types.events import CandidateSettings
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.rules import SIZES

# Outer iterations without a better partition before an incremental fit stops: it starts near its end.
_PATIENCE = 1

# Iteration of the initial labels: the fit stops after the first iteration without a better one.
_INITIAL_LABELS = -1


@dataclasses.dataclass(frozen=True)
class Initialization:
    """Initial graph and partition of one setting."""

    parameters: Parameters
    prepared: Prepared
    graph: Graph
    n_neighbors: int  # k of each sample in it
    spectrum: GraphSpectrum | None  # None if the initial graph has more components than clusters
    best: BestPartition
    view_graphs: list[Handle] | None = None  # rows of their mean, if the graph is mixed with it

    def record(self, names: Sequence[str]) -> CandidateSettings:
        """Record of the setting of views with these names, and of its initial graph."""
        parameters = self.parameters
        by_view = parameters.view_settings is not None
        view_settings = tuple(
            (name, chosen.scale, chosen.alpha)
            for name, chosen in zip(names, parameters.view_settings or (), strict=by_view)
        )
        return CandidateSettings(
            scale="by view" if by_view else parameters.scale,
            alpha=None if by_view else parameters.alpha,
            n_neighbors=self.n_neighbors,
            n_connected_components=self.graph.n_components,
            score=self.best.score,
            initial_graph="mean" if self.view_graphs is None else "mixed",
            view_settings=view_settings,
            exclude_views=tuple(names[view] for view in parameters.exclude_views),
        )


def initial_graph(stage: Stage, prepared: Prepared, parameters: Parameters) -> tuple[Graph, int]:
    """Graph of the mean distances over views, and its k, which grows until it has at most c connected components.

    With k neighbors it may have more than c components, which no graph weight can join. Then k is
    doubled, at most to one less than the number of candidates.
    """
    most = parameters.candidates(prepared.n_samples) - 1
    n_neighbors = min(parameters.n_neighbors, prepared.n_samples - 1)
    while True:
        graph = a_step(
            stage.sub(n_neighbors),
            prepared.candidates,
            n_neighbors=n_neighbors,
            data_weight=parameters.constants.identity_weight,
        )
        if graph.n_components <= parameters.n_clusters or n_neighbors >= most:
            return graph, n_neighbors
        n_neighbors = min(2 * n_neighbors, most)


Evaluation = Callable[[], Initialization]
"""Function that waits for submitted partitions and returns the initialization with the best one."""


def initialize(stage: Stage, prepared: Prepared, parameters: Parameters) -> Evaluation:
    """Submit the initialization from the graph of the mean distances; see `evaluate_graph`."""
    graph, k = initial_graph(stage, prepared, parameters)
    return evaluate_graph(stage, prepared, parameters, graph, n_neighbors=k)


def evaluate_graph(
    stage: Stage,
    prepared: Prepared,
    parameters: Parameters,
    graph: Graph,
    *,
    n_neighbors: int,
    init_labels: Handle | None = None,
) -> Evaluation:
    """Submit the initialization from a graph: its best spectral cut, or its merged components."""
    views, order = prepared.views, prepared.order
    spectrum = None
    if graph.n_components > parameters.n_clusters:
        labels = merged_components(stage, views, graph, order, parameters.n_clusters)
        partitions = stage.submit(list, [labels], kind="partitions")
    else:
        spectrum = bottom_eigenpairs(stage, graph, views, parameters)
        partitions = spectral_cuts(
            stage,
            spectrum,
            order,
            parameters,
            init_labels=init_labels,
            random=True,
            all_minima=init_labels is not None,
        )

    def gathered() -> Initialization:
        # only now: workers have time for the reference graphs until the last spectrum is there
        scores = prepared.scores(stage, partitions)
        if spectrum is not None and prepared.validation_views == prepared.names:
            # used at the end of the fit; not if the fit may exclude some of the views
            prepared.scorer.view_agreement(compared_views(prepared.validation_views))
            prepared.scorer.points(prepared.bordered)
        best = best_partition(stage, partitions, scores)
        return Initialization(parameters, prepared, graph, n_neighbors, spectrum, best)

    return gathered


def improve_by_restarts(stage: Stage, start: Initialization) -> Initialization:
    """Return the initialization with the best of all good spectral cuts of its graph.

    Settings are compared by few cuts each, since more cuts favor settings whose graph is similar to
    the reference graphs. For one graph, many cuts can be compared (docs/decisions/0057).
    """
    prepared, parameters = start.prepared, start.parameters
    if start.spectrum is None or is_nearly_perfect(start.best.partition_score, parameters):
        return start
    partitions = spectral_cuts(
        stage, start.spectrum, prepared.order, parameters, random=True, all_minima=True
    )
    best = best_partition(stage, partitions, prepared.scores(stage, partitions))
    if not is_better(best.partition_score, start.best.partition_score, parameters):
        return start
    return dataclasses.replace(start, best=best)


def have_view_graphs(n_views: int, n_samples: int) -> bool:
    """Return whether the mixed initial graph is possible: two views or more, and not too large."""
    n_lists = (n_views + 1) * n_samples
    return 1 < n_views <= SIZES.max_view_graphs and n_lists <= SIZES.max_view_lists


def can_be_refined(start: Initialization) -> bool:
    """Return whether a better graph is searched: the mixed initial graph, and refinements after the fit."""
    return (
        start.spectrum is not None
        and not is_nearly_perfect(start.best.partition_score, start.parameters)
        and have_view_graphs(len(start.prepared.names), start.prepared.n_samples)
    )


def warm_start(
    stage: Stage,
    precomputed: PrecomputedViews,
    parameters: Parameters,
    init_labels: NDArray[np.int64],
) -> Initialization:
    """Return the initialization from the labels (n,) of an earlier fit, `UNKNOWN` for a new sample."""
    constants = parameters.constants
    constants = dataclasses.replace(constants, patience=min(constants.patience, _PATIENCE))
    parameters = dataclasses.replace(parameters, constants=constants)
    prepared = prepare_views(stage, precomputed, parameters)
    graph, k = initial_graph(stage, prepared, parameters)
    order, c = prepared.order, parameters.n_clusters
    has_all_clusters = len(np.unique(init_labels[init_labels != UNKNOWN])) == c
    if not has_all_clusters and graph.n_components > c:
        return evaluate_graph(stage, prepared, parameters, graph, n_neighbors=k)()
    extended = stage.submit(extended_labels, list(graph.rows), order.order, init_labels, c)
    spectrum = None
    if graph.n_components > c:
        partitions = stage.submit(list, [extended], kind="partitions")
    else:
        spectrum = bottom_eigenpairs(stage, graph, prepared.views, parameters)
        partitions = spectral_cuts(stage, spectrum, order, parameters, init_labels=extended)
        if has_all_clusters:
            partitions = stage.submit(operator.add, [extended], partitions, kind="partitions")
    scores = stage.value(prepared.scores(stage, partitions))
    index = argbest(scores)  # the first partition, or another one that scores higher
    index = index if is_better(scores[index], scores[0], parameters) else 0
    best = BestPartition(stage.item(partitions, index), scores[index], iteration=_INITIAL_LABELS)
    return Initialization(parameters, prepared, graph, k, spectrum, best)
