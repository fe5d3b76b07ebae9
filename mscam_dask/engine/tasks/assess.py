"""Tasks that assess the partition of a fit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mscam_dask.solvers import cluster_tree
from mscam_dask.solvers.assessment import ClusterEvidence, cluster_evidence
from mscam_dask.solvers.graph_update import Graph
from mscam_dask.solvers.reference_graphs import ReferenceGraphs
from mscam_dask.solvers.spectral_cut import sampled_rows

__all__ = ["evidence", "weights_between"]


def evidence(
    views: list[ReferenceGraphs],
    learned: Graph | None,
    labels: NDArray[np.int64],
    n_clusters: int,
    n_pairs: int,
    n_validation_samples: int = 0,
) -> ClusterEvidence:
    """Evidence for a partition; with `n_validation_samples` the views' graphs are of such a sample."""
    if n_validation_samples:
        labels = labels[sampled_rows(len(labels), n_validation_samples)]
    affinity = None if learned is None else learned.affinity
    return cluster_evidence(views, affinity, labels, n_clusters, n_pairs)


def weights_between(
    learned: Graph, labels: NDArray[np.int64], n_clusters: int
) -> NDArray[np.float64]:
    """Edge weight (c, c) of a graph within and between clusters."""
    return cluster_tree.weights_between(learned.affinity, labels, n_clusters)
