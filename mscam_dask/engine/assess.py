"""Assessment of the partition of a fit: stability, agreement of the views, and a tree over the clusters."""

from __future__ import annotations

from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.initial_graph import PreparedHandles, compared_views
from mscam_dask.engine.preprocessing_selection import overlap_precision
from mscam_dask.engine.row_blocks import embedding as block_embedding
from mscam_dask.engine.row_blocks.handles import BlockedCandidates, BlockedGraph
from mscam_dask.engine.session import FitContext
from mscam_dask.engine.tasks import assess as assess_tasks
from mscam_dask.solvers.cluster_tree import cluster_tree
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.result import Assessment

__all__ = ["assess"]


def assess(learned: Handle, labels: Handle, context: FitContext, executor: Executor) -> Assessment:
    """Assess a partition into at least two clusters and fewer than there are samples.

    Parameters
    ----------
    learned : handle
        Graph before it was rebuilt from the partition.
    labels : handle
    context : FitContext
    executor : Executor
    """
    prepared, parameters = context.prepared, context.parameters
    names = compared_views(prepared.validation_views)
    cuts = perturbed_cuts(prepared, learned, parameters, executor)
    evidence = executor.submit(
        assess_tasks.evidence,
        list(prepared.reference_graphs.handles(executor, names)),
        cuts,
        labels,
        parameters.n_clusters,
        prepared.n_validation_samples,
        key="cluster_evidence",
    )
    if isinstance(learned, BlockedGraph):
        assert isinstance(prepared.blocks, BlockedCandidates), "large data has blocks"
        weights = block_embedding.weights_between(
            learned, labels, prepared.blocks.order, parameters.n_clusters, executor
        )
    else:
        weights = executor.submit(
            assess_tasks.weights_between,
            learned,
            labels,
            parameters.n_clusters,
            key="cluster_weights",
        )
    found, between = executor.gather([evidence, weights])
    executor.release([evidence, weights, cuts])
    selection = context.n_clusters_selection
    return Assessment(
        cluster_stability=found.stability,
        co_clustering=found.together,
        view_names=names,
        cluster_agreement=found.by_view,
        view_agreement=found.between_views,
        cluster_tree=cluster_tree(between),
        neighbor_overlap=_neighbor_overlap(context),
        has_uninformative_views=context.selection is not None
        and not all(record.is_informative for record in context.selection.view_settings),
        split_half_ari=None
        if selection is None
        else selection.stability[selection.counts.index(selection.n_clusters)],
        cluster_names=tuple(range(parameters.n_clusters)),
    )


def perturbed_cuts(
    prepared: PreparedHandles, learned: Handle, parameters: Parameters, executor: Executor
) -> Handle:
    """Submit the spectral cuts of perturbed graphs; those of large data were submitted at the start."""
    if prepared.perturbed_cuts is not None:
        return prepared.perturbed_cuts
    names = compared_views(prepared.validation_views)
    return executor.submit(
        assess_tasks.perturbed_cuts,
        list(prepared.reference_graphs.handles(executor, names)),
        None if prepared.n_validation_samples else learned,
        parameters.n_clusters,
        parameters.n_pairs(prepared.n_validation_samples or prepared.n_samples),
        key="perturbed_cuts",
    )


def _neighbor_overlap(context: FitContext) -> dict[str, float]:
    """Neighbor overlap of each view, in standard errors for independent views."""
    records = () if context.selection is None else context.selection.view_settings
    n_views = len(records)
    unit = overlap_precision(context.prepared.n_samples, n_views) if n_views > 1 else 0.0
    return {record.view: float(record.agreement * unit) for record in records}
