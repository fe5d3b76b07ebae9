"""Assessment of a partition without labels, from the learned graph and the reference graphs of views."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.solvers.reference_graphs import ReferenceGraphs
from mscam_dask.solvers.stability import co_clustering, jaccard_coefficients, perturbed_cuts
from mscam_dask.solvers.view_agreement import cluster_agreement, view_graph

__all__ = ["ClusterEvidence", "cluster_evidence", "cuts_of_perturbed_graphs"]


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterEvidence:
    """Evidence of perturbed graphs and of single views for the clusters of a partition.

    Attributes
    ----------
    stability : (c,)
        Mean Jaccard coefficient of each cluster with its best match in cuts of perturbed graphs.
    together : (c, c)
        Probability that samples of two clusters share a cluster of such a cut.
    by_view : (V, c)
        How well each view sees each cluster, `cluster_agreement`.
    """

    stability: NDArray[np.float64]
    together: NDArray[np.float64]
    by_view: NDArray[np.float64]


def cuts_of_perturbed_graphs(
    views: Sequence[ReferenceGraphs],
    learned: csr_array[np.float64] | None,
    n_clusters: int,
    n_pairs: int,
) -> list[NDArray[np.int64]]:
    """Spectral cuts of perturbed graphs of the samples of the reference graphs.

    Parameters
    ----------
    views : sequence of ReferenceGraphs
    learned : (n, n) sparse, optional
        Perturbed in place of the mean of the reference graphs.
    n_clusters : int
        1 < c < n.
    n_pairs : int
        Eigenpairs of the graphs that are cut.
    """
    return perturbed_cuts(learned, [view_graph(view) for view in views], n_clusters, n_pairs)


def cluster_evidence(
    views: Sequence[ReferenceGraphs],
    cuts: Sequence[NDArray[np.int64]],
    labels: NDArray[np.int64],
    n_clusters: int,
) -> ClusterEvidence:
    """Evidence for the clusters of the samples of the reference graphs.

    Parameters
    ----------
    views : sequence of ReferenceGraphs
    cuts : sequence of (n,) int64
        From `cuts_of_perturbed_graphs`.
    labels : (n,) int64
        Clusters 0 … c−1; some may be empty.
    n_clusters : int
        1 < c < n.
    """
    graphs = [view_graph(view) for view in views]
    return ClusterEvidence(
        stability=_mean([jaccard_coefficients(labels, cut, n_clusters) for cut in cuts]),
        together=_mean([co_clustering(labels, cut, n_clusters) for cut in cuts]),
        by_view=np.array([cluster_agreement(graph, labels, n_clusters) for graph in graphs]),
    )


def _mean(values: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Mean over the cuts that have samples of a cluster; NaN if none has."""
    stacked = np.stack(values)
    counts = np.count_nonzero(~np.isnan(stacked), axis=0)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.nansum(stacked, axis=0) / counts)
