"""Tasks that assess the partition of a fit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mscam_dask.solvers import cluster_tree
from mscam_dask.solvers.assessment import (
    ClusterEvidence,
    cluster_evidence,
    cuts_of_perturbed_graphs,
    neighbor_agreement,
    view_graph,
)
from mscam_dask.solvers.graph_update import Graph
from mscam_dask.solvers.partition_score import ReferenceGraphs
from mscam_dask.solvers.spectral_cut import sampled_rows

__all__ = ["evidence", "perturbed_cuts", "view_agreement", "weights_between"]


def perturbed_cuts(
    views: list[ReferenceGraphs], learned_graph: Graph | None, n_clusters: int, n_pairs: int
) -> list[NDArray[np.int64]]:
    """Spectral cuts of perturbed graphs: of the learned graph, or of the mean of the views' graphs."""
    affinity = None if learned_graph is None else learned_graph.affinity
    return cuts_of_perturbed_graphs(views, affinity, n_clusters, n_pairs)


def evidence(
    views: list[ReferenceGraphs],
    cuts: list[NDArray[np.int64]],
    labels: NDArray[np.int64],
    n_clusters: int,
    n_validation_samples: int = 0,
) -> ClusterEvidence:
    """Evidence for a partition; with `n_validation_samples` the views' graphs are of such a sample."""
    if n_validation_samples:
        labels = labels[sampled_rows(len(labels), n_validation_samples)]
    return cluster_evidence(views, cuts, labels, n_clusters)


def view_agreement(views: list[ReferenceGraphs]) -> NDArray[np.float64]:
    """`neighbor_agreement` of each pair of views."""
    return neighbor_agreement([view_graph(view) for view in views])


def weights_between(
    learned_graph: Graph, labels: NDArray[np.int64], n_clusters: int
) -> NDArray[np.float64]:
    """Edge weight (c, c) of a graph within and between clusters."""
    return cluster_tree.weights_between(learned_graph.affinity, labels, n_clusters)
