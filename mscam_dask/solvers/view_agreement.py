"""Agreement of views: with the clusters of a partition, and with each other, by their reference graphs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.solvers.graph_update import spread_affinity
from mscam_dask.solvers.reference_graphs import ReferenceGraphs

__all__ = ["cluster_agreement", "neighbor_agreement", "view_graph"]

_MIN_COMMON = 3


def view_graph(view: ReferenceGraphs) -> csr_array[np.float64]:
    """Mean of the reference graphs of a view, (n, n) CSR, symmetric; absent samples have no edges."""
    total = view.graphs[0].astype(np.float64)
    for graph in view.graphs[1:]:
        total = csr_array(total + graph)
    total.data /= len(view.graphs)
    return total if view.present is None else spread_affinity(total, view.present)


def cluster_agreement(
    graph: csr_array[np.float64], labels: NDArray[np.int64], n_clusters: int
) -> NDArray[np.float64]:
    """How well a view sees each cluster: neighbors within it, corrected for chance.

    Parameters
    ----------
    graph : (n, n) CSR
        Of one view, symmetric.
    labels : (n,) int64
        Clusters 0 … c−1.
    n_clusters : int

    Returns
    -------
    (c,)
        (w_k − p_k) / (1 − p_k), with w_k the share of the edge weight of cluster k that stays in the
        cluster, and p_k the share of all edge weight at its samples: 1 where no edge leaves the cluster,
        about 0 for a view that does not see it; NaN for clusters without edges, or with all of them.
    """
    degrees: NDArray[np.float64] = np.asarray(graph.sum(axis=1)).ravel()
    rows = np.repeat(labels, np.diff(graph.indptr))
    inside = rows == labels[graph.indices]
    within = np.bincount(rows[inside], weights=graph.data[inside], minlength=n_clusters)
    weight = np.bincount(labels, weights=degrees, minlength=n_clusters)
    with np.errstate(invalid="ignore", divide="ignore"):
        chance = weight / weight.sum()
        agreement = (within / weight - chance) / (1.0 - chance)
    return np.where(np.isfinite(agreement), agreement, np.nan)


def neighbor_agreement(graphs: Sequence[csr_array[np.float64]]) -> NDArray[np.float64]:
    """Agreement of the neighbors of each pair of views, corrected for chance.

    Parameters
    ----------
    graphs : sequence of (n, n) CSR
        One for each view, symmetric, without a diagonal.

    Returns
    -------
    (V, V)
        (s − e) / (√(Σ A² Σ B²) − e), with s = Σ A_ij B_ij and e its mean if the samples of one view are
        permuted: 1 for equal graphs, and about 0 for independent views. Of the samples that have edges
        in both; NaN if there are fewer than three.
    """
    agreement = np.eye(len(graphs))
    for i, of_first in enumerate(graphs):
        for j, of_second in enumerate(graphs[:i]):
            first, second = _of_common_samples(of_first, of_second)
            n = first.shape[0]
            if n < _MIN_COMMON:
                agreement[i, j] = agreement[j, i] = np.nan
                continue
            expected = first.sum() * second.sum() / (n * (n - 1))
            most = np.sqrt((first.data @ first.data) * (second.data @ second.data)) - expected
            shared = first.multiply(second).sum()
            agreement[i, j] = agreement[j, i] = (shared - expected) / most if most > 0.0 else 0.0
    return agreement


def _of_common_samples(
    first: csr_array[np.float64], second: csr_array[np.float64]
) -> tuple[csr_array[np.float64], csr_array[np.float64]]:
    """Both graphs restricted to the samples that have edges in both."""
    common = (np.diff(first.indptr) > 0) & (np.diff(second.indptr) > 0)
    if common.all():
        return first, second
    rows = np.flatnonzero(common)
    return csr_array(first[rows][:, rows]), csr_array(second[rows][:, rows])
