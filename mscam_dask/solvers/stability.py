"""Stability of a partition: how well cuts of perturbed graphs recover its clusters, without labels.

Six graphs are cut into the same number of clusters: two random halves of the edges of the graph of the data
distances, two of the graph of the data distances and those in the discriminants of the partition,
and the graphs of two halves of the views. The stability of a cluster is its largest Jaccard
coefficient with a cluster of a cut, averaged over the cuts (C. Hennig, "Cluster-wise assessment of
cluster stability", Computational Statistics & Data Analysis 52 (2007),
doi:10.1016/j.csda.2006.11.025).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.linalg.edge_split import edge_split
from mscam_dask.linalg.eigensolver import bottom_eigenpairs
from mscam_dask.linalg.laplacian import connected_components, laplacian
from mscam_dask.solvers.graph_update import mean_graph, neighbor_graph
from mscam_dask.solvers.membership import fit_votes
from mscam_dask.solvers.spectral_cut import spectral_cut
from mscam_dask.solvers.spectral_embedding import walk_embedding
from mscam_dask.types.rules import CONSTANTS

__all__ = ["cluster_stability", "jaccard_coefficients"]

_TOLERANCE = 1e-4

Points = NDArray[np.float64]


def cluster_stability(
    views: Sequence[Points], labels: NDArray[np.int64], n_clusters: int, n_neighbors: int
) -> NDArray[np.float64]:
    """Stability (c,) of each cluster, from 0 to 1; NaN for empty clusters.

    Parameters
    ----------
    views : sequence of (n, r_v)
        Ridge embeddings of the samples, with the same mean squared distance in every view.
    labels : (n,) int64
        Clusters 0 … c−1.
    n_clusters : int
        1 < c < n.
    n_neighbors : int
        Neighbors in the graphs that are cut; at most n − 2 are used.

    Notes
    -----
    The draws are seeded by the number of samples and clusters. Exact neighbor searches,
    O(n² Σr), and six spectra of sparse graphs.
    """
    k = max(1, min(n_neighbors, len(labels) - 2))
    rng = np.random.default_rng((len(labels), n_clusters))
    coefficients = [
        jaccard_coefficients(labels, _cut(affinity, n_clusters, rng), n_clusters)
        for affinity in _perturbed(views, labels, n_clusters, k, rng)
    ]
    return np.asarray(np.mean(coefficients, axis=0))


def jaccard_coefficients(
    labels: NDArray[np.int64], others: NDArray[np.int64], n_clusters: int
) -> NDArray[np.float64]:
    """Largest Jaccard coefficient (c,) of each cluster with a cluster of another partition."""
    table = np.zeros((n_clusters, n_clusters))
    np.add.at(table, (labels, others), 1.0)
    own = table.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        coefficients = table / (own + table.sum(axis=0) - table)
    largest = np.nanmax(np.where(np.isnan(coefficients), 0.0, coefficients), axis=1)
    return np.where(own[:, 0] > 0, largest, np.nan)


def _perturbed(
    views: Sequence[Points],
    labels: NDArray[np.int64],
    n_clusters: int,
    k: int,
    rng: np.random.Generator,
) -> Iterator[csr_array[np.float64]]:
    """Perturbed graphs, to be cut."""
    yield from edge_split(_graph(views, k), rng)
    learned = fit_votes(views, labels, n_clusters, 1).discriminants
    if learned:
        both = [
            np.hstack([_of_unit_distance(view), _of_unit_distance(one)])
            for view, one in zip(views, learned, strict=True)
        ]
        yield from edge_split(_graph(both, k), rng)
    if len(views) > 1:
        order = rng.permutation(len(views))
        for half in (order[: len(order) // 2], order[len(order) // 2 :]):
            yield _graph([views[index] for index in half], k)


def _of_unit_distance(points: Points) -> Points:
    """Points scaled to a mean squared distance of one, unless all are equal."""
    spread = 2.0 * float(points.var(axis=0).sum())
    return points / np.sqrt(spread) if spread > 0.0 else points


def _graph(views: Sequence[Points], k: int) -> csr_array[np.float64]:
    joint = neighbor_graph(np.hstack(list(views)), k)
    if len(views) == 1:
        return joint.affinity
    own = mean_graph([neighbor_graph(view, k) for view in views])
    return mean_graph([joint, own], CONSTANTS.graph_weights).affinity


def _cut(
    affinity: csr_array[np.float64], n_clusters: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    n_pairs = min(max(2 * n_clusters, CONSTANTS.min_pairs), affinity.shape[0])
    spectrum = bottom_eigenpairs(
        laplacian(affinity),
        n_pairs,
        components=connected_components(affinity),
        relative_tolerance=_TOLERANCE,
        rng=rng,
    )
    return spectral_cut(walk_embedding(spectrum.values, spectrum.vectors, n_clusters), rng=rng)[-1]
