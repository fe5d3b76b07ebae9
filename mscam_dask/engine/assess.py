"""Assessment of the partition of a fit: stability, agreement of the views, and a tree over the clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.initial_graph import PreparedHandles, compared_views
from mscam_dask.engine.row_blocks import embedding as block_embedding
from mscam_dask.engine.row_blocks.candidates import BlockedCandidates, BlockedGraph
from mscam_dask.engine.session import FitContext
from mscam_dask.solvers import cluster_tree
from mscam_dask.solvers.assessment import cluster_evidence, cuts_of_perturbed_graphs
from mscam_dask.solvers.graph_update import Graph
from mscam_dask.solvers.n_clusters import split_half_ari_of
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.result import Assessment, Status

__all__ = ["assessment_of", "submit_ahead", "submit_assessment"]


def submit_assessment(
    learned_graph: Handle, labels: Handle, status: Status, context: FitContext, executor: Executor
) -> list[Handle]:
    """Submit the quantities of `assessment_of`; for trivial partitions, only the agreement of the views.

    Parameters
    ----------
    learned_graph : handle
        Graph before it was rebuilt from the partition.
    labels : handle
    status : Status
    context : FitContext
    executor : Executor
    """
    prepared, parameters = context.prepared, context.parameters
    names = compared_views(prepared.validation_views)
    agreement = prepared.reference_graphs.view_agreement(executor, names)
    if status.is_trivial:
        return [agreement]
    cuts = _perturbed_cuts(prepared, learned_graph, names, parameters, executor)
    evidence = executor.submit(
        cluster_evidence,
        list(prepared.reference_graphs.handles(executor, names)),
        cuts,
        labels,
        parameters.n_clusters,
        prepared.n_validation_samples,
        key="cluster_evidence",
    )
    if isinstance(learned_graph, BlockedGraph):
        assert isinstance(prepared.blocks, BlockedCandidates), "large data has blocks"
        weights = block_embedding.weights_between(
            learned_graph, labels, prepared.blocks.order, parameters.n_clusters, executor
        )
    else:
        weights = executor.submit(
            _weights_between,
            learned_graph,
            labels,
            parameters.n_clusters,
            key="cluster_weights",
        )
    return [agreement, evidence, weights]


def assessment_of(quantities: Sequence[Any], context: FitContext) -> Assessment:
    """Assessment of a partition, from the results of `submit_assessment`."""
    names = compared_views(context.prepared.validation_views)
    between_views, *of_partition = quantities
    if not of_partition:
        return Assessment.trivial(
            context.parameters.n_clusters,
            names,
            between_views,
            neighbor_overlap=_neighbor_overlap(context),
            split_half_ari=split_half_ari_of(context.n_clusters_selection),
        )
    found, between = of_partition
    return Assessment(
        cluster_stability=found.stability,
        co_clustering=found.together,
        view_names=names,
        cluster_agreement=found.by_view,
        view_agreement=between_views,
        cluster_tree=cluster_tree.cluster_tree(between),
        neighbor_overlap=_neighbor_overlap(context),
        split_half_ari=split_half_ari_of(context.n_clusters_selection),
        cluster_names=tuple(range(context.parameters.n_clusters)),
    )


def _weights_between(
    learned_graph: Graph, labels: NDArray[np.int64], n_clusters: int
) -> NDArray[np.float64]:
    """Edge weight (c, c) of a graph within and between clusters; a task."""
    return cluster_tree.weights_between(learned_graph.affinity, labels, n_clusters)


def submit_ahead(prepared: PreparedHandles, parameters: Parameters, executor: Executor) -> None:
    """Submit the tasks of an assessment that need no graph of the fit, while workers would wait for its spectrum."""
    names = compared_views(prepared.validation_views)
    prepared.reference_graphs.view_agreement(executor, names)
    if prepared.n_validation_samples:
        _perturbed_cuts(prepared, None, names, parameters, executor)


def _perturbed_cuts(
    prepared: PreparedHandles,
    learned_graph: Handle | None,
    names: tuple[str, ...],
    parameters: Parameters,
    executor: Executor,
) -> Handle:
    """Submit the spectral cuts of perturbed graphs: of a sample, or of all samples with the learned graph."""
    if prepared.n_validation_samples:
        n_pairs = parameters.n_pairs(prepared.n_validation_samples)
        return prepared.reference_graphs.perturbed_cuts(
            executor, names, parameters.n_clusters, n_pairs
        )
    return executor.submit(
        cuts_of_perturbed_graphs,
        list(prepared.reference_graphs.handles(executor, names)),
        learned_graph,
        parameters.n_clusters,
        parameters.n_pairs(prepared.n_samples),
        key="perturbed_cuts",
    )


def _neighbor_overlap(context: FitContext) -> dict[str, float]:
    """Neighbor overlap of each view, in standard errors of independent views."""
    return {record.view: record.overlap for record in context.selection.view_settings}
