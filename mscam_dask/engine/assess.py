"""Assessment of the partition of a fit: stability, agreement of the views, and a tree over the clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mscam_dask.engine.blocks import Graph
from mscam_dask.engine.executors.base import Handle
from mscam_dask.engine.prepare import Prepared
from mscam_dask.engine.scores import compared_views
from mscam_dask.engine.session import FitContext
from mscam_dask.engine.stage import Stage
from mscam_dask.engine.views import reordered
from mscam_dask.solvers import cluster_tree
from mscam_dask.solvers.assessment import cluster_evidence, cuts_of_perturbed_graphs
from mscam_dask.solvers.n_clusters import split_half_ari_of
from mscam_dask.solvers.row_graph import row_weights_between
from mscam_dask.solvers.sums import added
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.result import Assessment, Status


def submit_assessment(
    stage: Stage, learned_graph: Graph, labels: Handle, status: Status, context: FitContext
) -> list[Handle]:
    """Submit the quantities of `assessment_of`; for trivial partitions, only the agreement of the views.

    Parameters
    ----------
    stage : Stage
    learned_graph : Graph
        Graph before it was rebuilt from the partition.
    labels : handle
    status : Status
    context : FitContext
    """
    prepared, parameters = context.prepared, context.parameters
    names = compared_views(prepared.validation_views)
    agreement = prepared.scorer.view_agreement(names)
    if status.is_trivial:
        return [agreement]
    if prepared.n_validation_samples:
        cuts = _sample_cuts(prepared, names, parameters)
    else:
        cuts = stage.submit(
            cuts_of_perturbed_graphs,
            prepared.scorer.graphs(names),
            learned_graph.rows[0],
            parameters.n_clusters,
            parameters.n_pairs(prepared.n_samples),
            kind="perturbed_cuts",
        )
    evidence = stage.submit(
        cluster_evidence,
        prepared.scorer.graphs(names),
        cuts,
        labels,
        parameters.n_clusters,
        prepared.n_validation_samples,
    )
    by_rows = stage.submit(reordered, labels, prepared.order.order)
    weights = [
        stage.submit(row_weights_between, block, by_rows, parameters.n_clusters)
        for block in learned_graph.rows
    ]
    between = stage.submit(added, weights, kind="cluster_weights")
    return [agreement, evidence, between]


def assessment_of(quantities: Sequence[Any], context: FitContext) -> Assessment:
    """Assessment of a partition, from the results of `submit_assessment`."""
    names = compared_views(context.prepared.validation_views)
    overlap = {record.view: record.overlap for record in context.selection.view_settings}
    split_half_ari = split_half_ari_of(context.n_clusters_selection)
    between_views, *of_partition = quantities
    if not of_partition:
        return Assessment.trivial(
            context.parameters.n_clusters,
            names,
            between_views,
            neighbor_overlap=overlap,
            split_half_ari=split_half_ari,
        )
    found, between = of_partition
    return Assessment(
        cluster_stability=found.stability,
        co_clustering=found.together,
        view_names=names,
        cluster_agreement=found.by_view,
        view_agreement=between_views,
        cluster_tree=cluster_tree.cluster_tree(between),
        neighbor_overlap=overlap,
        split_half_ari=split_half_ari,
        cluster_names=tuple(range(context.parameters.n_clusters)),
    )


def submit_ahead(prepared: Prepared, parameters: Parameters) -> None:
    """Submit the tasks of an assessment that need no graph of the fit, while workers would wait for its spectrum."""
    names = compared_views(prepared.validation_views)
    prepared.scorer.view_agreement(names)
    if prepared.n_validation_samples:
        _sample_cuts(prepared, names, parameters)


def _sample_cuts(prepared: Prepared, names: tuple[str, ...], parameters: Parameters) -> Handle:
    n_pairs = parameters.n_pairs(prepared.n_validation_samples)
    return prepared.scorer.perturbed_cuts(names, parameters.n_clusters, n_pairs)
