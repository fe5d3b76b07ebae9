"""Assessment of the partition of a fit: its borders, the agreement of the views, and a tree over the clusters."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.engine.blocks import Graph
from mscam_dask.engine.executors.base import Handle
from mscam_dask.engine.graph import extended_labels
from mscam_dask.engine.scores import compared_views
from mscam_dask.engine.session import FitContext
from mscam_dask.engine.stage import Stage
from mscam_dask.solvers import cluster_tree
from mscam_dask.solvers.assessment import agreement_with_clusters, views_agree
from mscam_dask.solvers.borders import borders
from mscam_dask.solvers.choice import Points, best_by_borders, candidate_partitions, linked_points
from mscam_dask.solvers.row_graph import row_weights_between
from mscam_dask.solvers.spectral_cut import canonical_labels, sampled_rows
from mscam_dask.solvers.sums import added
from mscam_dask.types.borders import Borders
from mscam_dask.types.result import Assessment, Status


def submit_borders(stage: Stage, labels: Handle, context: FitContext) -> Handle:
    """Submit the borders between the clusters of a partition, in the compared samples."""
    prepared = context.prepared
    points, n_compared = prepared.scorer.points(prepared.bordered), prepared.n_validation_samples
    return stage.submit(borders_of, points, labels, n_compared, context.parameters.n_clusters)


def choose_partition(
    stage: Stage, graph: Graph, labels: Handle, own: Handle, context: FitContext
) -> Handle | None:
    """Return another partition than that of the fit, if borders support it and not its `own` ones do."""
    if stage.value(own).support:
        return None
    prepared, n_clusters = context.prepared, context.parameters.n_clusters
    n_compared = prepared.n_validation_samples
    points = prepared.scorer.points(prepared.bordered)
    linked = stage.submit(linked_points, stage.attribute(points, "rows"))
    candidates = stage.submit(candidate_partitions, linked, n_clusters)
    partitions = stage.submit(
        operator.add, [stage.submit(compared, labels, n_compared)], candidates, kind="partitions"
    )
    graphs = prepared.scorer.graphs(compared_views(prepared.validation_views))
    best = stage.value(stage.submit(best_by_borders, points, partitions, graphs, n_clusters))
    if best == 0:
        return None
    found = stage.submit(canonical_labels, stage.item(partitions, best))
    if not n_compared:
        return found
    known = np.full(prepared.n_samples, -1, dtype=np.int64)
    known[sampled_rows(prepared.n_samples, n_compared)] = stage.value(found)
    return stage.submit(extended_labels, list(graph.rows), prepared.order.order, known, n_clusters)


def borders_of(
    points: Points, labels: NDArray[np.int64], n_compared: int, n_clusters: int
) -> Borders:
    """Borders between the clusters of a partition, in the compared samples."""
    return borders(points.rows, compared(labels, n_compared), n_clusters)


def compared(labels: NDArray[np.int64], n_compared: int) -> NDArray[np.int64]:
    """Labels of the samples of the reference graphs, if these are not all."""
    return labels[sampled_rows(len(labels), n_compared)] if n_compared else labels


def submit_assessment(
    stage: Stage,
    learned_graph: Graph,
    labels: Handle,
    status: Status,
    between: Handle | None,
    context: FitContext,
) -> list[Handle]:
    """Submit the quantities of `assessment_of`; for trivial partitions, only the agreement of the views."""
    prepared, n_clusters = context.prepared, context.parameters.n_clusters
    names = compared_views(prepared.validation_views)
    agreement = prepared.scorer.view_agreement(names)
    if status.is_trivial:
        return [agreement]
    n_compared = prepared.n_validation_samples
    graphs = prepared.scorer.graphs(names)
    by_view = stage.submit(agreement_with_clusters, graphs, labels, n_compared, n_clusters)
    by_rows = stage.item(labels, prepared.order.order)
    weights = [
        stage.submit(row_weights_between, block, by_rows, n_clusters)
        for block in learned_graph.rows
    ]
    agree = stage.submit(views_agree, graphs, labels, n_compared, n_clusters)
    return [
        agreement,
        between or submit_borders(stage, labels, context),
        by_view,
        stage.submit(added, weights, kind="cluster_weights"),
        agree,
    ]


def assessment_of(quantities: Sequence[Any], status: Status, context: FitContext) -> Assessment:
    """Assessment of a partition, from the results of `submit_assessment`."""
    n_clusters = context.parameters.n_clusters
    names = compared_views(context.prepared.validation_views)
    of_views, *of_partition = quantities
    if not of_partition:
        selection = context.n_clusters_selection
        if selection is None or status is not Status.NO_STRUCTURE:
            return Assessment.trivial(n_clusters, names, of_views)
        tried, agree = selection.counts[-1], selection.views_agree
        return Assessment.trivial(n_clusters, names, of_views, n_tried=tried, views_agree=agree)
    found, by_view, weights, agree = of_partition
    return Assessment(
        borders=found,
        view_names=names,
        cluster_agreement=by_view[0],
        contradictions=by_view[1],
        view_agreement=of_views,
        cluster_tree=cluster_tree.cluster_tree(weights),
        cluster_names=tuple(range(n_clusters)),
        views_agree=agree,
    )
