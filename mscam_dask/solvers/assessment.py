"""Agreement of views with clusters and with each other, by their reference graphs and discriminants, and effects of features."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import ndtr

from mscam_dask.linalg.scaling import safe_exponent
from mscam_dask.solvers.borders import JointPoints, cell_functions
from mscam_dask.solvers.graph_update import GraphRows, row_weights_between, spread_affinity
from mscam_dask.solvers.partition_score import ReferenceGraphs
from mscam_dask.types.rules import RULES


def agreement_with_clusters(
    views: Sequence[ReferenceGraphs],
    labels: NDArray[np.int64],
    n_clusters: int,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """`cluster_agreement` and `contradictions` (V, c) of each view."""
    graphs = [view_graph(view) for view in views]
    between = [row_weights_between(GraphRows(0, graph), labels, n_clusters) for graph in graphs]
    sizes = np.bincount(labels, minlength=n_clusters)
    others = [
        contradictions(weights, sizes, graph.nnz / len(labels))
        for weights, graph in zip(between, graphs, strict=True)
    ]
    return np.array([cluster_agreement(weights) for weights in between]), np.array(others)


def views_agree(
    views: Sequence[ReferenceGraphs], points: JointPoints, labels: NDArray[np.int64]
) -> bool:
    """Whether some cluster has cross-fitted discriminants that are correlated between views more than by chance.

    The discriminant of a cluster is its discriminant function minus the mean of those of all samples. If views are
    independent, the sum over pairs of views of the correlations of their discriminants has mean 0, and variance 1/n for
    each pair; the level is divided by the number of clusters. Samples that a view does not have count as 0, because their
    points come from other views. True of a single view.
    """
    if len(views) == 1:
        return True
    n, n_clusters = len(labels), int(labels.max()) + 1
    scores = np.zeros((len(views), n, n_clusters))
    shares = np.zeros((len(views), n))  # of a sample in the samples of a view
    for view, one, share, rows in zip(views, scores, shares, points.views, strict=True):
        has = np.arange(n) if view.present is None else view.present.samples
        share[has] = 1.0 / len(has)
        here, own = np.unique(labels[has], return_inverse=True)
        values = cell_functions(rows[has], own).values
        values -= values @ (np.bincount(own) / len(own))[:, None]
        values -= values.mean(axis=0)
        values = np.ldexp(values, -safe_exponent(np.abs(values).max(axis=0)))
        lengths = np.linalg.norm(values, axis=0)
        one[np.ix_(has, here)] = values / np.where(lengths > 0.0, lengths, 1.0)
    correlations = (scores.sum(axis=0) ** 2 - (scores**2).sum(axis=0)).sum(axis=0)
    variance = 2.0 * ((shares.sum(axis=0) ** 2 - (shares**2).sum(axis=0)).sum())
    p_value = float(ndtr(-correlations.max() / np.sqrt(variance))) if variance else 1.0
    return n_clusters * p_value <= RULES.level


_MIN_COMMON = 3


def view_graph(view: ReferenceGraphs) -> csr_array[np.float64]:
    """Mean (n, n) of the reference graphs of a view, symmetric; absent samples have no edges."""
    total = view.graphs[0].astype(np.float64)
    for graph in view.graphs[1:]:
        total = csr_array(total + graph)
    total.data /= len(view.graphs)
    return total if view.present is None else spread_affinity(total, view.present)


def cluster_agreement(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Agreement (c,) of a view with each cluster, from its edge weights (c, c): (w_k − p_k) / (1 − p_k).

    w_k is the share of the edge weight of cluster k that stays in it, and p_k the share of all edge weight at its
    samples: 1 where no edge leaves the cluster, about 0 by chance; NaN for clusters without edges, or with all of them.
    """
    degrees = weights.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        chance = degrees / degrees.sum()
        agreement = (np.diag(weights) / degrees - chance) / (1.0 - chance)
    return np.where(np.isfinite(agreement), agreement, np.nan)


def contradictions(
    weights: NDArray[np.float64], sizes: NDArray[np.int64], n_neighbors: float
) -> NDArray[np.int64]:
    """Cluster (c,) with which a view puts each cluster, −1 where its neighbors support the cluster.

    That has more of its neighbors than the cluster itself, both minus chance. A cluster of n samples has at most n − 1 of
    the k neighbors of a sample: its own share counts as one of these.
    """
    degrees = weights.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        chance = degrees.T / degrees.sum()
        shares = weights / degrees
        own = np.diag(shares) / np.minimum(1.0, np.maximum(sizes - 1, 1) / max(1.0, n_neighbors))
        np.fill_diagonal(shares, np.minimum(own, 1.0))
        shares = np.nan_to_num((shares - chance) / (1.0 - chance), nan=-np.inf)
    nearest = shares.argmax(axis=1)
    return np.where((nearest == np.arange(len(sizes))) | (degrees[:, 0] == 0), -1, nearest)


def view_agreement(views: Sequence[ReferenceGraphs]) -> NDArray[np.float64]:
    """Agreement (V, V) of the neighbors of each pair of views: (s − e) / (√(Σ A² Σ B²) − e).

    s = Σ A_ij B_ij, and e is its mean if the samples of one view are permuted; of the samples that have edges in both,
    NaN if these are fewer than three.
    """
    graphs = [view_graph(view) for view in views]
    has_edges = [np.diff(graph.indptr) > 0 for graph in graphs]
    agreement = np.eye(len(graphs))
    for i, of_first in enumerate(graphs):
        for j, of_second in enumerate(graphs[:i]):
            common = np.flatnonzero(has_edges[i] & has_edges[j])
            n = len(common)
            if n < _MIN_COMMON:
                agreement[i, j] = agreement[j, i] = np.nan
                continue
            first, second = of_first, of_second
            if n < first.shape[0]:
                first, second = (csr_array(graph[common][:, common]) for graph in (first, second))
            expected = first.sum() * second.sum() / (n * (n - 1))
            most = np.sqrt((first.data @ first.data) * (second.data @ second.data)) - expected
            shared = first.multiply(second).sum()
            agreement[i, j] = agreement[j, i] = (shared - expected) / most if most > 0.0 else 0.0
    return agreement


@dataclasses.dataclass(frozen=True, slots=True)
class FeatureEffects:
    """Effect sizes of the columns of one view, by cluster, (c, d) each; NaN without samples."""

    mean: NDArray[np.float64]
    mean_of_rest: NDArray[np.float64]
    share: NDArray[np.float64]  # of values other than 0
    share_of_rest: NDArray[np.float64]
    effect: NDArray[np.float64]  # difference of the means over the pooled standard deviation


def feature_effects(
    blocks: Iterable[tuple[int, NDArray[np.float64]]],
    labels: NDArray[np.int64],
    n_clusters: int,
) -> FeatureEffects:
    """Cohen's d, mean and share of nonzeros of each column, of clusters against the other samples, from blocks (start, (b, d)).

    J. Cohen, "Statistical Power Analysis for the Behavioral Sciences", 1988.
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
