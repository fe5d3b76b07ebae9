"""Reference graphs of the views: scores of partitions and their comparison, and agreement of views with clusters and each other.

See docs/decisions/0011.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import ndtr

from mscam_dask.linalg.incomplete import PresentSamples
from mscam_dask.linalg.laplacian import graph_from_neighbors, symmetric_affinity
from mscam_dask.linalg.neighbor_information import (
    RandomWalk,
    entropy,
    evidence,
    information,
    joint_information,
    modularity,
    random_walk,
)
from mscam_dask.linalg.neighbors import nearest_neighbors
from mscam_dask.linalg.scaling import fit_transform_from_moments, safe_exponent
from mscam_dask.solvers.borders import (
    N_FOLDS,
    CellFolds,
    JointPoints,
    cell_folds,
    fold_functions,
    fold_sums,
    nested_cells,
)
from mscam_dask.solvers.graph_update import (
    GraphRows,
    row_weights_between,
    select_neighbors,
    spread_affinity,
)
from mscam_dask.solvers.row_blocks import RowReader, ViewShape, moments_of_rows, row_blocks
from mscam_dask.types.parameters import Parameters, Scale
from mscam_dask.types.rules import RULES


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionScore:
    """Information of the views on a partition, in nats."""

    view_scores: tuple[float, ...]  # of the reference graphs of each view
    n_missed: int = 0  # known samples outside of the cluster of their class

    @property
    def score(self) -> float:
        """Cross-view information, in nats."""
        return mean_score(self.view_scores)


def is_better(later: PartitionScore, earlier: PartitionScore, share: float) -> bool:
    """Whether the later partition misses fewer known samples or, of as many, its score is higher by more than a share."""
    if later.n_missed != earlier.n_missed:
        return later.n_missed < earlier.n_missed
    return later.score > earlier.score + share * abs(earlier.score)


def is_worse(later: PartitionScore, earlier: PartitionScore, share: float) -> bool:
    """Whether the later partition misses more known samples or, of about as many, its score is lower by more than a share.

    Two counts are about the same if they differ by at most one standard error of their difference, as counts of Poisson.
    """
    more = later.n_missed - earlier.n_missed
    if more**2 > later.n_missed + earlier.n_missed:
        return more > 0
    return later.score < earlier.score - share * abs(earlier.score)


def argbest(partition_scores: Sequence[PartitionScore]) -> int:
    """Index of the partition that misses the fewest known samples, and of these has the most information."""
    found = partition_scores
    return max(range(len(found)), key=lambda i: (-found[i].n_missed, found[i].score))


def is_nearly_perfect(found: PartitionScore, parameters: Parameters) -> bool:
    """Whether a partition lacks at most the share `level` of log c, the most information of c clusters, and misses no known sample."""
    return not found.n_missed and found.score >= (1.0 - RULES.level) * math.log(
        parameters.n_clusters
    )


def mean_score(view_scores: Sequence[float]) -> float:
    """Exactly rounded mean over views, independent of their order."""
    return math.fsum(view_scores) / len(view_scores)


@dataclasses.dataclass(frozen=True, slots=True)
class ReferenceGraphs:
    """Reference graphs of one view: symmetric, nonnegative, (n, n) CSR each."""

    graphs: tuple[csr_array[np.float64], ...]  # (m, m), of the samples that the view has
    present: PresentSamples | None = None  # these samples; None for all
    weight: float = 1.0  # in mean scores, in proportion to the number of its samples

    def own(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Labels of the samples that the view has."""
        return labels if self.present is None else labels[self.present.samples]


def reference_graphs(
    read: RowReader,
    shape: ViewShape,
    n_neighbors: int,
    *,
    row_scale: Scale = "unit",
    dtype: type[np.floating[Any]] = np.float64,
) -> ReferenceGraphs:
    """Reference graphs of one view: adaptive-neighbor graphs, Eq. (29), of its raw rows.

    Feature views have two (rows of unit length, standardized columns), distance and kernel views one. The search is exact.
    """
    n = shape.n_samples
    if shape.view_type != "features":
        rows = np.empty((n, n))
        for start, stop in row_blocks(n, n):
            rows[start:stop] = read(start, stop)
        graphs = [_graph_from_distances(_pair_distances(rows, shape), n_neighbors)]
    else:
        moments = moments_of_rows(read, 0, n, shape.n_features)
        graphs = []
        for scale in (row_scale, "standard"):
            transform = fit_transform_from_moments(scale, moments)
            rows = np.empty((n, shape.n_features), dtype=dtype)
            for start, stop in row_blocks(n, shape.n_features):
                rows[start:stop] = transform.apply(read(start, stop))
            found = nearest_neighbors(rows, min(n_neighbors + 1, n - 1))
            graphs.append(_graph(*found, n_neighbors))
    return ReferenceGraphs(tuple(csr_array(graph.astype(dtype)) for graph in graphs))


def unit_graphs(view: ReferenceGraphs) -> ReferenceGraphs:
    """Reference graphs of a view without that of its standardized columns, if it has rows of unit length."""
    return dataclasses.replace(view, graphs=view.graphs[:1])


def view_scores(view: ReferenceGraphs, partitions: Sequence[NDArray[np.int64]]) -> list[float]:
    """Information of a view on each partition (n,): the highest of its reference graphs."""
    walks = [random_walk(graph) for graph in view.graphs]
    return [_best_informed(view, walks, labels)[0] for labels in partitions]


def explained_share(views: Sequence[ReferenceGraphs], labels: NDArray[np.int64]) -> float:
    """Uncertainty coefficient U, 0 to 1: share of the entropy of a partition that all views explain.

    A cluster that only one view explains counts in full. Unlike information, U does not prefer equal sizes: it is 0 for
    random labels of any sizes.
    """
    n_clusters = int(labels.max()) + 1
    total = np.zeros((len(labels), n_clusters), dtype=np.float32)
    for view in views:
        own = view.own(labels)
        walks = [random_walk(graph) for graph in view.graphs]
        found = evidence(_best_informed(view, walks, labels)[1], own, n_clusters)
        total[slice(None) if view.present is None else view.present.samples] += found
    if n_clusters == 1:
        return 0.0
    return min(1.0, joint_information(labels, total) / entropy(labels))


def _best_informed(
    view: ReferenceGraphs, walks: Sequence[RandomWalk], labels: NDArray[np.int64]
) -> tuple[float, RandomWalk]:
    """Highest information of the graphs of a view on a partition, and the random walk on that graph."""
    scored = [(view.weight * information(walk, view.own(labels)), walk) for walk in walks]
    return max(scored, key=operator.itemgetter(0))


def view_modularity(view: ReferenceGraphs, labels: NDArray[np.int64]) -> float:
    """Modularity of a partition (n,): the highest of the reference graphs of a view."""
    return max(modularity(graph, view.own(labels)) for graph in view.graphs)


def _pair_distances(rows: NDArray[np.float64], shape: ViewShape) -> NDArray[np.float64]:
    """Distances of a distance view; squared distances of a kernel view."""
    exponent = int(safe_exponent(np.abs(rows).max()))
    if exponent:  # one factor for all distances changes no neighbor and no weight
        rows = np.ldexp(rows, -exponent)
    if shape.view_type == "distance":
        return np.maximum(rows, 0.0)  # validation accepts rounding below zero
    diagonal = rows.diagonal()
    return np.maximum(diagonal[:, None] + diagonal - rows - rows.T, 0.0)


def _graph_from_distances(
    distances: NDArray[np.float64], n_neighbors: int
) -> csr_array[np.float64]:
    n = len(distances)
    wanted = min(n_neighbors + 1, n - 1)
    others = distances.copy()
    np.fill_diagonal(others, np.inf)
    indices = np.argsort(others, axis=1, kind="stable")[:, :wanted].astype(np.int64)
    return _graph(indices, np.take_along_axis(others, indices, axis=1), n_neighbors)


def _graph(
    indices: NDArray[np.int64], distances: NDArray[np.float64], n_neighbors: int
) -> csr_array[np.float64]:
    chosen, weights = select_neighbors(indices, distances, min(n_neighbors, indices.shape[1]))
    return symmetric_affinity(graph_from_neighbors(chosen, weights))


# agreement of views ------------------------------------------------------------------------------


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
    """Whether half of a cluster has discriminants that are correlated between views more than by chance.

    Halves, because clusters around each other have one mean. The halves and discriminants of each fold of samples come from
    the other folds; a discriminant is the discriminant function of a half minus the mean of all. If views are independent,
    the sum over pairs of views of the correlations of their discriminants has mean 0, and variance 1/n for each pair; the
    level is divided by the number of halves. Samples that a view does not have count as 0, because their points come from
    other views. True of a single view.
    """
    if len(views) == 1:
        return True
    n = len(labels)
    present = [np.arange(n) if view.present is None else view.present.samples for view in views]
    scores = _scores_of_halves(points, present, labels)
    shares = np.zeros((len(views), n))  # of a sample in the samples of a view
    for has, share, one in zip(present, shares, scores, strict=True):
        share[has] = 1.0 / len(has)
        one[:] = np.ldexp(one, -safe_exponent(np.abs(one).max(axis=0)))
        lengths = np.linalg.norm(one, axis=0)
        one[:] = one / np.where(lengths > 0.0, lengths, 1.0)
    # the square of a sum minus the sum of squares is the sum over pairs of views, each pair twice
    correlations = (scores.sum(axis=0) ** 2 - (scores**2).sum(axis=0)).sum(axis=0)
    variance = 2.0 * ((shares.sum(axis=0) ** 2 - (shares**2).sum(axis=0)).sum())
    p_value = float(ndtr(-correlations.max() / np.sqrt(variance))) if variance else 1.0
    n_halves = np.count_nonzero(scores.any(axis=(0, 1)))
    return bool(n_halves * p_value <= RULES.level)


def _scores_of_halves(
    points: JointPoints, present: Sequence[NDArray[np.int64]], labels: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Cross-fitted discriminants (V, n, 2c) of the halves of clusters in each view, 0 for samples that it does not have."""
    n = len(labels)
    scores = np.zeros((len(present), n, 2 * (int(labels.max()) + 1)))
    folds = cell_folds(points.rows, labels).folds
    for fold in range(N_FOLDS):
        others, halves = np.flatnonzero(folds != fold), np.zeros(n, dtype=np.int64)
        halves[others], _ = nested_cells(points.rows[others], labels[others], n_scales=2)
        for rows, has, one in zip(points.views, present, scores, strict=True):
            tested = has[folds[has] == fold]
            values = _centered_discriminants(rows[has], halves[has], folds[has] != fold)
            one[tested, : values.shape[1]] = values
    return scores


def _centered_discriminants(
    rows: NDArray[np.float64], cells: NDArray[np.int64], is_fitted: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Centered discriminants (m, K) of the m rows (n, p) that are not fitted, from the cells of the others."""
    if is_fitted.all() or not is_fitted.any():
        return np.zeros((len(rows) - int(is_fitted.sum()), 0))
    folds = CellFolds(cells, is_fitted.astype(np.int64), np.einsum("ij,ij->i", rows, rows))
    sums = [fold_sums(rows, folds, fold) for fold in range(2)]
    found = fold_functions(rows, folds, sums, 0, None)
    values = found.values - found.values @ (sums[1].sizes / sums[1].sizes.sum())[:, None]
    return np.asarray(values - values.mean(axis=0))


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
