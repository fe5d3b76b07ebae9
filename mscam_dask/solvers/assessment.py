"""Assessment of a partition without labels: from the learned and reference graphs, and features."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.linalg.eigensolver import bottom_eigenpairs
from mscam_dask.linalg.laplacian import connected_components, edge_split, laplacian
from mscam_dask.solvers.graph_update import spread_affinity
from mscam_dask.solvers.partition_score import ReferenceGraphs
from mscam_dask.solvers.row_graph import GraphRows
from mscam_dask.solvers.spectral_cut import drawn_starts, sampled_rows, spectral_cut, walk_embedding


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterEvidence:
    """Evidence of perturbed graphs and of single views for the clusters of a partition."""

    stability: NDArray[np.float64]  # (c,) mean Jaccard coefficient with the best match in the cuts
    together: NDArray[np.float64]  # (c, c) probability that samples share a cluster of such a cut
    by_view: NDArray[np.float64]  # (V, c), see `cluster_agreement`


def cuts_of_perturbed_graphs(
    views: Sequence[ReferenceGraphs],
    learned_graph: GraphRows | None,
    n_clusters: int,
    n_pairs: int,
) -> list[NDArray[np.int64]]:
    """Spectral cuts (1 < c < n) of perturbed graphs of the samples of the reference graphs.

    The learned graph, of all rows, is perturbed in place of the mean of the reference graphs.
    """
    affinity = None if learned_graph is None else learned_graph.affinity
    return perturbed_cuts(affinity, [view_graph(view) for view in views], n_clusters, n_pairs)


def cluster_evidence(
    views: Sequence[ReferenceGraphs],
    cuts: Sequence[NDArray[np.int64]],
    labels: NDArray[np.int64],
    n_clusters: int,
    n_validation_samples: int = 0,
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
    n_validation_samples : int
        Number of samples of the reference graphs if these are not all, otherwise 0.
    """
    if n_validation_samples:
        labels = labels[sampled_rows(len(labels), n_validation_samples)]
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


# A cut needs fewer digits and starts than the partition that is returned. Stabilities change by
# less than 0.004 where clusters are separated, and by up to 0.04 where they overlap.
_TOLERANCE = 1e-3
_N_STARTS = 10

Graphs = Sequence["csr_array[np.float64]"]


def perturbed_cuts(
    learned_graph: csr_array[np.float64] | None, views: Graphs, n_clusters: int, n_pairs: int
) -> list[NDArray[np.int64]]:
    """Spectral cuts of perturbed graphs; the last two are of graphs independent of each other.

    Two or four partitions (n,) into 1 < c < n clusters, −1 for samples that are absent from the
    views whose graphs were cut. Without a learned graph only the reference graphs are cut, one per
    view, with the same mean degree. The draws are seeded by the number of samples and clusters.
    """
    n = views[0].shape[0]
    rng = np.random.default_rng((n, n_clusters))
    halves: list[csr_array[np.float64]] = []
    of_views: list[csr_array[np.float64]] = []
    if learned_graph is not None:
        halves.extend(edge_split(learned_graph, rng))
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
    """Probability (c, c) that samples of two clusters share a cluster of `others`; NaN if empty.

    The diagonal is that of two samples of the same cluster, drawn with replacement.
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


_MIN_COMMON = 3


def view_graph(view: ReferenceGraphs) -> csr_array[np.float64]:
    """Mean (n, n) of the reference graphs of a view, symmetric; absent samples have no edges."""
    total = view.graphs[0].astype(np.float64)
    for graph in view.graphs[1:]:
        total = csr_array(total + graph)
    total.data /= len(view.graphs)
    return total if view.present is None else spread_affinity(total, view.present)


def cluster_agreement(
    graph: csr_array[np.float64], labels: NDArray[np.int64], n_clusters: int
) -> NDArray[np.float64]:
    """Agreement (c,) of a view with each cluster: share of neighbors within it, minus chance.

    (w_k − p_k) / (1 − p_k), with w_k the share of the edge weight of cluster k that stays in the
    cluster, and p_k the share of all edge weight at its samples: 1 where no edge leaves the
    cluster, about 0 for a view that does not support it; NaN for clusters without edges, or with
    all of them.
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


def view_agreement(views: Sequence[ReferenceGraphs]) -> NDArray[np.float64]:
    """`neighbor_agreement` of each pair of views."""
    return neighbor_agreement([view_graph(view) for view in views])


def neighbor_agreement(graphs: Sequence[csr_array[np.float64]]) -> NDArray[np.float64]:
    """Agreement (V, V) of the neighbors of each pair of views (n, n), corrected for chance.

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


@dataclasses.dataclass(frozen=True, slots=True)
class FeatureEffects:
    """Effect sizes of the columns of one view, by cluster, (c, d) each; NaN without samples."""

    means: NDArray[np.float64]
    means_of_rest: NDArray[np.float64]
    shares: NDArray[np.float64]  # of values other than 0
    shares_of_rest: NDArray[np.float64]
    effects: NDArray[np.float64]  # difference of the means over the pooled standard deviation


def feature_effects(
    blocks: Iterable[tuple[int, NDArray[np.float64]]],
    labels: NDArray[np.int64],
    n_clusters: int,
) -> FeatureEffects:
    """Cohen's d, mean and share of nonzeros of each column, of clusters against the other samples.

    In one pass over blocks (start, (b, d)) in order: sums of values and squares by cluster, about
    the mean of the first block. J. Cohen, "Statistical Power Analysis for the Behavioral Sciences",
    1988.
    """
    shift: NDArray[np.float64] | None = None
    sums = squares = n_nonzero = np.zeros((n_clusters, 0))
    for start, rows in blocks:
        if shift is None:
            shift = rows.mean(axis=0)
            sums, squares, n_nonzero = (np.zeros((n_clusters, len(shift))) for _ in range(3))
        own = labels[start : start + len(rows)]
        for cluster in np.unique(own):
            shifted = rows[own == cluster] - shift
            sums[cluster] += shifted.sum(axis=0)
            squares[cluster] += np.einsum("ij,ij->j", shifted, shifted)
            n_nonzero[cluster] += np.count_nonzero(rows[own == cluster], axis=0)
    assert shift is not None, "a view without rows passed validation"
    sizes = np.bincount(labels, minlength=n_clusters).astype(np.float64)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        rest_sizes = sizes.sum() - sizes
        own_means, rest_means = sums / sizes, (sums.sum(axis=0) - sums) / rest_sizes
        shares, rest_shares = n_nonzero / sizes, (n_nonzero.sum(axis=0) - n_nonzero) / rest_sizes
        own_scatter = squares - sizes * own_means**2
        rest = squares.sum(axis=0) - squares - rest_sizes * rest_means**2
        scatter = np.maximum(own_scatter, 0.0) + np.maximum(rest, 0.0)
        # rounding error of sums over n samples of a column that varies in neither
        largest = np.finfo(np.float64).eps * len(labels) * squares.sum(axis=0)
        scatter[scatter <= largest] = 0.0
        difference = own_means - rest_means
        effects = difference / np.sqrt(scatter / max(1.0, float(sizes.sum()) - 2.0))
    effects[difference == 0.0] = 0.0
    return FeatureEffects(own_means + shift, rest_means + shift, shares, rest_shares, effects)
