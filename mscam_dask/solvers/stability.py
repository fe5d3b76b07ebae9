"""Stability of a partition: how well cuts of perturbed graphs recover its clusters, without labels.

The graphs are two random halves of the edges of the learned graph, and two halves of the evidence that
no label of the fit has entered: the mean reference graphs of two halves of the views, or two random
halves of the edges of the reference graph of a single view. The stability of a cluster is its largest
Jaccard coefficient with a cluster of a cut, averaged over the cuts (C. Hennig, "Cluster-wise assessment
of cluster stability", Computational Statistics & Data Analysis 52 (2007),
doi:10.1016/j.csda.2006.11.025).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.linalg.eigensolver import bottom_eigenpairs
from mscam_dask.linalg.laplacian import connected_components, edge_split, laplacian
from mscam_dask.solvers.spectral_cut import drawn_starts, spectral_cut
from mscam_dask.solvers.spectral_embedding import walk_embedding

__all__ = ["co_clustering", "jaccard_coefficients", "perturbed_cuts"]

# A cut needs fewer digits and starts than the partition that is returned. Stabilities change by less than 0.004
# where clusters are separated, and by up to 0.04 where they overlap.
_TOLERANCE = 1e-3
_N_STARTS = 10

Graphs = Sequence[csr_array[np.float64]]


def perturbed_cuts(
    learned: csr_array[np.float64] | None, views: Graphs, n_clusters: int, n_pairs: int
) -> list[NDArray[np.int64]]:
    """Spectral cuts of perturbed graphs; the last two are of graphs that are independent of each other.

    Parameters
    ----------
    learned : (n, n) sparse, optional
        Learned graph; without it, only the reference graphs are cut.
    views : sequence of (n, n) CSR
        Reference graph of each view, symmetric, with the same mean degree.
    n_clusters : int
        1 < c < n.
    n_pairs : int
        Eigenpairs of each graph, at least c.

    Returns
    -------
    list of (n,) int64
        Two or four partitions into c clusters, −1 for samples that are absent from the views whose
        graphs were cut. The draws are seeded by the number of
        samples and clusters.
    """
    n = views[0].shape[0]
    rng = np.random.default_rng((n, n_clusters))
    halves: list[csr_array[np.float64]] = []
    of_views: list[csr_array[np.float64]] = []
    if learned is not None:
        halves.extend(edge_split(learned, rng))
    if len(views) > 1:
        order = rng.permutation(len(views))
        middle = len(views) // 2
        of_views.extend(_sum([views[i] for i in half]) for half in (order[:middle], order[middle:]))
    else:
        halves.extend(edge_split(views[0], rng))
    return [
        *(_cut(graph, n_clusters, n_pairs, rng) for graph in halves),
        *(_cut_present(graph, n_clusters, n_pairs, rng) for graph in of_views),
    ]


def jaccard_coefficients(
    labels: NDArray[np.int64], others: NDArray[np.int64], n_clusters: int
) -> NDArray[np.float64]:
    """Largest Jaccard coefficient (c,) of each cluster with a cluster of another partition."""
    table = _counts(labels, others, n_clusters)
    own = table.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        coefficients = table / (own + table.sum(axis=0) - table)
    largest = np.nanmax(np.where(np.isnan(coefficients), 0.0, coefficients), axis=1)
    return np.where(own[:, 0] > 0, largest, np.nan)


def co_clustering(
    labels: NDArray[np.int64], others: NDArray[np.int64], n_clusters: int
) -> NDArray[np.float64]:
    """Probability (c, c) that a sample of one cluster and a sample of another share a cluster of `others`.

    The diagonal is that of two samples of the same cluster, drawn with replacement; NaN for empty
    clusters.
    """
    table = _counts(labels, others, n_clusters)
    with np.errstate(invalid="ignore"):
        shares = table / table.sum(axis=1, keepdims=True)
    return np.asarray(shares @ shares.T)


def _counts(
    labels: NDArray[np.int64], others: NDArray[np.int64], n_clusters: int
) -> NDArray[np.float64]:
    table = np.zeros((n_clusters, n_clusters))
    cut = others >= 0
    np.add.at(table, (labels[cut], others[cut]), 1.0)
    return table


def _sum(graphs: Graphs) -> csr_array[np.float64]:
    total = graphs[0]
    for graph in graphs[1:]:
        total = total + graph
    return csr_array(total)


def _cut_present(
    affinity: csr_array[np.float64], n_clusters: int, n_pairs: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Cut of the samples that some of the views have, −1 for the others."""
    rows = np.flatnonzero(np.diff(affinity.indptr) > 0)
    if len(rows) == affinity.shape[0]:
        return _cut(affinity, n_clusters, n_pairs, rng)
    labels = np.full(affinity.shape[0], -1, dtype=np.int64)
    if len(rows) > n_clusters:
        inside = csr_array(affinity[rows][:, rows])
        labels[rows] = _cut(inside, n_clusters, min(n_pairs, len(rows)), rng)
    return labels


def _cut(
    affinity: csr_array[np.float64], n_clusters: int, n_pairs: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    spectrum = bottom_eigenpairs(
        laplacian(csr_array(affinity.astype(np.float32))),
        n_pairs,
        components=connected_components(affinity),
        relative_tolerance=_TOLERANCE,
        rng=rng,
    )
    embedding = walk_embedding(spectrum.values, spectrum.vectors, n_clusters)
    drawn = drawn_starts(embedding, int(rng.integers(2**31)), range(_N_STARTS))
    return spectral_cut(embedding, drawn=drawn)[-1]
