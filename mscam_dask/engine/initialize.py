"""Initialization for one setting: initial graph, bottom eigenvectors and best spectral cut.

The initial graph is by the mean distance over views, which is better if each view is weak, or the mean
of it and the graphs of the single views. The latter is better if one view has the right neighbors and
the others do not. Partition scores decide between the two: docs/decisions/0058.

An incremental fit keeps the settings of the earlier fit. Its labels are the first candidate partition,
extended to new samples; spectral cuts of the new initial graph compete with them by their scores. The
graph weight starts at the last one of the earlier fit.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mscam_dask.engine import candidate_neighbors
from mscam_dask.engine import tasks as iteration_tasks
from mscam_dask.engine.assess import submit_ahead
from mscam_dask.engine.candidate_neighbors import candidate_blocks, release_candidates
from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.initial_graph import (
    InitialGraph,
    PreparedHandles,
    initial_graph,
    prepare_views,
)
from mscam_dask.engine.iteration_steps import (
    BestPartition,
    all_minima,
    build_graph,
    first_cuts,
    merged_components,
    next_cuts,
    score_cuts,
    score_partitions_by_views,
    spectrum_of,
)
from mscam_dask.engine.precompute import PrecomputedViews
from mscam_dask.engine.row_blocks import graph as block_graph
from mscam_dask.engine.row_blocks.candidates import BlockedCandidates, BlockedGraph, RowOrder
from mscam_dask.solvers.graph_update import mean_graph
from mscam_dask.solvers.partition_score import PartitionScore, argbest, is_better, is_nearly_perfect
from mscam_dask.types.events import CandidateSettings
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.rules import CONSTANTS, SIZES

__all__ = [
    "UNKNOWN",
    "Initialization",
    "can_use_view_graphs",
    "evaluate_graph",
    "have_view_graphs",
    "improve_by_restarts",
    "initialize",
    "release",
    "release_unshared",
    "view_graphs",
    "warm_start",
    "with_view_graphs",
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
    view_graphs : handle or None
        Mean of the graphs of the single views, if the initial graph is mixed with it.
    next_spectrum : handle or None
        Spectrum of the first outer iteration, if the fit is certain to start from this graph.
    """

    parameters: Parameters
    prepared: PreparedHandles
    first: InitialGraph
    spectrum: Handle | None
    best: BestPartition
    view_graphs: Handle | None = None
    next_spectrum: Handle | None = None

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
    prepared: PreparedHandles,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
    is_only: bool = False,
) -> Initialization:
    """Return the initialization from the graph of the data distances; see `evaluate_graph`."""
    first = initial_graph(prepared, parameters, executor, key=key)
    return evaluate_graph(prepared, parameters, first, executor, key=key, is_only=is_only)


def evaluate_graph(
    prepared: PreparedHandles,
    parameters: Parameters,
    first: InitialGraph,
    executor: Executor,
    *,
    key: str,
    init_labels: Handle | None = None,
    is_only: bool = False,
) -> Initialization:
    """Return the initialization from a graph: its best spectral cut, or its merged components.

    Components are merged if there are more than clusters. With `init_labels`, all good minima of
    k-means and the cuts that start from this partition are scored. If the fit has no other initial
    graph (`is_only`), the spectrum of the first outer iteration is computed beside the scores.
    """
    spectrum: Handle | None = None
    next_spectrum: Handle | None = None
    if first.n_components > parameters.n_clusters:
        labels = merged_components(first.graph, prepared, parameters.n_clusters, executor, key=key)
        partitions = executor.submit(list, [labels], key=f"partitions/{key}")
    else:
        spectrum = spectrum_of(first.graph, None, prepared, parameters, executor, key=key)
        if init_labels is None:
            partitions = first_cuts(spectrum, prepared, parameters, executor, key=key)
        else:
            partitions = all_minima(
                spectrum, prepared, parameters, executor, key=key, init_labels=init_labels
            )
        if prepared.validation_views == prepared.names:  # not if the fit may exclude some of them
            submit_ahead(prepared, parameters, executor)
    scores = score_partitions_by_views(prepared, partitions, executor, key=key)
    if is_only and spectrum is not None:
        next_spectrum = spectrum_of(first.graph, spectrum, prepared, parameters, executor, key="0")
    best = _argbest(partitions, scores, executor, key=key)
    return Initialization(parameters, prepared, first, spectrum, best, next_spectrum=next_spectrum)


def improve_by_restarts(start: Initialization, executor: Executor) -> Initialization:
    """Return the initialization with the best of all good spectral cuts of its graph.

    Settings are compared by few cuts each, since more cuts favor settings whose graph is similar to
    the reference graphs. For one graph, many cuts can be compared (docs/decisions/0055).
    """
    prepared, parameters = start.prepared, start.parameters
    if start.spectrum is None or is_nearly_perfect(start.best.score, parameters):
        return start
    partitions = all_minima(start.spectrum, prepared, parameters, executor, key="minima")
    scores = score_partitions_by_views(prepared, partitions, executor, key="minima")
    best = _argbest(partitions, scores, executor, key="minima")
    if not is_better(best.partition_score, start.best.partition_score, parameters):
        executor.release([best.labels])
        return start
    executor.release([start.best.labels])
    return dataclasses.replace(start, best=best)


def _argbest(partitions: Handle, scores: Handle, executor: Executor, *, key: str) -> BestPartition:
    (partition_scores,) = executor.gather([scores])
    index = argbest(partition_scores)
    labels = executor.submit(operator.getitem, partitions, index, key=f"best_cut/{key}")
    executor.release([partitions, scores])
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


def have_view_graphs(n_views: int, n_samples: int) -> bool:
    """Return whether the mixed initial graph is possible: two views or more, and not too large."""
    n_lists = (n_views + 1) * n_samples
    return 1 < n_views <= SIZES.max_view_graphs and n_lists <= SIZES.max_view_lists


def can_use_view_graphs(start: Initialization) -> bool:
    """Return whether the mixed initial graph is tried and a fit has a refinement.

    Not if the initial graph has too many components, if its cut is nearly perfect (then a growing
    graph weight leads to exactly c components), or if the graphs of the views are too large.
    """
    return (
        start.spectrum is not None
        and not is_nearly_perfect(start.best.score, start.parameters)
        and have_view_graphs(len(start.prepared.names), start.prepared.n_samples)
    )


def view_graphs(
    prepared: PreparedHandles, parameters: Parameters, executor: Executor, *, key: str
) -> Handle:
    """Submit the mean of the graphs of the single views."""
    if isinstance(prepared.blocks, BlockedCandidates):
        return _from_cells(prepared, prepared.blocks.order, parameters, executor, key=key)
    n_neighbors = min(parameters.n_neighbors, prepared.n_samples - 1)
    graphs = [
        executor.submit(
            candidate_neighbors.own_graph, view, n_neighbors, key=f"view_graph/{key}/{name}"
        )
        for view, name in zip(prepared.views, prepared.names, strict=True)
    ]
    mean = executor.submit(mean_graph, graphs, key=f"mean_graph/{key}/views")
    executor.release(graphs)
    return mean


def with_view_graphs(
    first: InitialGraph, own: Handle, executor: Executor, *, key: str
) -> InitialGraph:
    """Return the mixed graph: two thirds `first` and one third the mean of the view graphs.

    It has no more components than `first`. Neither of these two graphs is released.
    """
    if isinstance(first.graph, BlockedGraph):
        mixed = block_graph.mean_graph(
            [first.graph, own], CONSTANTS.graph_weights, executor, key=key
        )
        return dataclasses.replace(
            first, graph=mixed, n_components=mixed.n_components, kind="mixed"
        )
    graph = executor.submit(
        mean_graph, [first.graph, own], CONSTANTS.graph_weights, key=f"mean_graph/{key}"
    )
    count = executor.submit(
        operator.attrgetter("n_components"), graph, key=f"component_count/{key}"
    )
    (n_components,) = executor.gather([count])
    executor.release([count])
    return dataclasses.replace(first, graph=graph, n_components=int(n_components), kind="mixed")


def _from_cells(
    prepared: PreparedHandles,
    order: RowOrder,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
) -> BlockedGraph:
    """Submit the mean of the view graphs of large data, from approximate candidate neighbors."""
    graphs = []
    for view, name in zip(prepared.views, prepared.names, strict=True):
        blocks = candidate_blocks(
            [view],
            prepared.n_samples,
            parameters,
            executor,
            key=f"{key}/{name}",
            order=order,
        )
        graph, _ = build_graph(
            executor,
            blocks,
            None,
            n_neighbors=parameters.n_neighbors,
            data_weight=1.0,
            projected_weight=0.0,
            key=f"view/{key}/{name}",
        )
        release_candidates(blocks, executor)
        graphs.append(graph)
    equal = (1.0,) * len(graphs)
    mean = block_graph.mean_graph(graphs, equal, executor, key=f"{key}/views")
    executor.release(graphs)
    return mean


UNKNOWN = -1
"""Label of a sample that the earlier fit did not have."""

_PATIENCE = 1
"""Outer iterations without a better partition before the fit stops: it starts near its end."""

_INITIAL_LABELS = -1
"""Iteration of the initial labels: the fit stops after the first iteration without a better one."""


def warm_start(
    precomputed: PrecomputedViews,
    parameters: Parameters,
    init_labels: NDArray[np.int64],
    executor: Executor,
) -> Initialization:
    """Return the initialization from the labels of an earlier fit.

    Parameters
    ----------
    precomputed : PrecomputedViews
    parameters : Parameters
        Setting of the earlier fit, with its last graph weight.
    init_labels : (n,) int64
        Cluster of each sample in the earlier fit; `UNKNOWN` for a new sample.
    executor : Executor

    Notes
    -----
    Initial labels that lack a cluster are not a candidate. The candidates are then the spectral cuts of
    the new graph into c clusters, or its components merged to c if it has more.
    """
    parameters = dataclasses.replace(parameters, patience=min(parameters.patience, _PATIENCE))
    prepared = prepare_views(precomputed, parameters, executor, key="warm")
    first = initial_graph(prepared, parameters, executor, key="warm")
    has_all_clusters = len(np.unique(init_labels[init_labels != UNKNOWN])) == parameters.n_clusters
    if has_all_clusters or first.n_components <= parameters.n_clusters:
        return _initialize_from_labels(
            prepared,
            parameters,
            first,
            executor,
            init_labels=init_labels,
            has_all_clusters=has_all_clusters,
        )
    return evaluate_graph(prepared, parameters, first, executor, key="warm")


def _initialize_from_labels(
    prepared: PreparedHandles,
    parameters: Parameters,
    first: InitialGraph,
    executor: Executor,
    *,
    init_labels: NDArray[np.int64],
    has_all_clusters: bool,
) -> Initialization:
    """Return the initialization with the initial labels if they have all clusters, or with a better cut."""
    blocked = first.graph if isinstance(first.graph, BlockedGraph) else None
    if blocked is not None:
        assert isinstance(prepared.blocks, BlockedCandidates), "large data has blocks"
        extended = block_graph.extend_labels(
            blocked, prepared.blocks.order, init_labels, parameters.n_clusters, executor
        )
    else:
        extended = executor.submit(
            iteration_tasks.extended,
            first.graph,
            init_labels,
            parameters.n_clusters,
            key="extend_labels/warm",
        )
    spectrum = None
    if first.n_components > parameters.n_clusters:
        partitions = executor.submit(list, [extended], key="partitions/warm")
    else:
        spectrum = spectrum_of(first.graph, None, prepared, parameters, executor, key="warm")
        partitions = next_cuts(spectrum, extended, prepared, parameters, executor, key="warm")
        if has_all_clusters:
            partitions = executor.submit(
                operator.add, [extended], partitions, key="partitions/warm"
            )
    partition_scores = score_cuts(prepared, partitions, executor, key="warm")
    index = _best(partition_scores, parameters)
    best = BestPartition(
        executor.submit(operator.getitem, partitions, index, key="best_cut/warm"),
        partition_scores[index],
        iteration=_INITIAL_LABELS,
    )
    return Initialization(parameters, prepared, first, spectrum, best)


def _best(partition_scores: list[PartitionScore], parameters: Parameters) -> int:
    """Position of the first partition, or of another one that scores higher."""
    index = argbest(partition_scores)
    return index if is_better(partition_scores[index], partition_scores[0], parameters) else 0
