"""Clusters of new samples, by neighbors and by propagation on a graph; soft memberships.

Memberships are votes of neighbors in the joint ridge embedding and in the linear discriminants of each view, all
counted equally. Those of the samples of a fit are cross-fitted: discriminants and neighbors of each of five folds are
from the other four. They are calibrated: among samples with a membership of p in their cluster, others would put a
share of p there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_array
from scipy.special import log_softmax

from mscam_dask.linalg.distances import squared_distances
from mscam_dask.linalg.incomplete import SharedDistances, with_finite_distances
from mscam_dask.linalg.neighbors import Distances, nearest_among
from mscam_dask.solvers.graph_update import adaptive_neighbor_weights
from mscam_dask.solvers.lda import class_sums, discriminant_loadings
from mscam_dask.solvers.spectral_cut import sampled_rows
from mscam_dask.types.rules import SIZES


def predict_by_neighbors(
    queries: NDArray[np.float64],
    candidate_blocks: Iterable[tuple[int, NDArray[np.float64]]],
    labels: NDArray[np.int64],
    *,
    n_neighbors: int,
    distances_between: Distances = squared_distances,
) -> NDArray[np.int64]:
    """Cluster (m,) of each query: the one with the largest sum of adaptive-neighbor weights, Eq. (29).

    The training samples come in consecutive blocks (start, (b, Σr)); distances are infinite without a common view.
    """
    m, wanted = len(queries), min(n_neighbors + 1, len(labels))
    indices, nearest = np.empty((m, 0), dtype=np.int64), np.empty((m, 0))
    for start, block in candidate_blocks:
        count = min(wanted, len(block))
        found, squared = nearest_among(queries, block, count, distances_between)
        indices, nearest = np.hstack([indices, start + found]), np.hstack([nearest, squared])
        order = np.lexsort((indices, nearest), axis=-1)[:, :wanted]
        indices = np.take_along_axis(indices, order, axis=1)
        nearest = np.take_along_axis(nearest, order, axis=1)
    if wanted == 1:
        return np.asarray(labels[indices[:, 0]], dtype=np.int64)
    weights = adaptive_neighbor_weights(with_finite_distances(nearest))
    votes = np.zeros((m, int(labels.max()) + 1))
    np.add.at(votes, (np.arange(m)[:, None], labels[indices[:, :-1]]), weights)
    return np.asarray(np.argmax(votes, axis=1), dtype=np.int64)


def extend_labels(
    blocks: Sequence[csr_array[np.float64]], init_labels: NDArray[np.int64], n_clusters: int
) -> NDArray[np.int64]:
    """Propagate labels (n,) on a graph of blocks of rows (m, n) to the samples without one (−1); some have one.

    In rounds, a sample joins the cluster with the largest weight of its edges to labeled samples, ties the lower number;
    components without a labeled sample join the largest cluster.
    """
    labels = init_labels.copy()
    assert (labels >= 0).any(), "nothing to extend"
    while (labels < 0).any():
        votes = csr_array((len(labels), n_clusters))
        start = 0
        for block in blocks:
            edges = block.tocoo()
            rows = edges.row + start
            for voted, voter in ((rows, edges.col), (edges.col, rows)):
                counted = (labels[voted] < 0) & (labels[voter] >= 0) & (edges.data > 0.0)
                places = (voted[counted], labels[voter[counted]])
                votes = votes + csr_array((edges.data[counted], places), shape=votes.shape)
            start += block.shape[0]
        decided = np.diff(votes.indptr) > 0
        if decided.any():
            labels[decided] = votes[decided].argmax(axis=1)
        else:
            labels[labels < 0] = np.argmax(np.bincount(labels[labels >= 0], minlength=n_clusters))
    return labels


N_FOLDS = 5
"""Folds of the cross-fitting."""

# The most neighbors that vote.
_MAX_NEIGHBORS = 40

Array = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class NeighborVotes:
    """Voters in the joint ridge embedding and in the discriminants of each view."""

    labels: NDArray[np.int64]  # (m,) clusters of the voters
    n_clusters: int
    n_neighbors: int  # neighbors of a sample that vote
    joint: Array  # (m, Σr), NaN in the views that a voter is absent from
    loadings: tuple[Array, ...]  # (r_v, q_v), from leading ridge coordinates to discriminants
    discriminants: tuple[Array, ...]  # (m, q_v), NaN where absent

    def __call__(self, views: Sequence[Array]) -> tuple[Array, NDArray[np.int64]]:
        """Shares of the votes (b, c), rows summing to one, and the cluster (b, v) that neighbors in each view prefer, −1 where rows are NaN."""
        has = _presence(views)
        distances: Distances = squared_distances
        if not has.all() or np.isnan(self.joint).any():
            distances = SharedDistances(tuple(view.shape[1] for view in views))
        votes = self._votes(np.hstack(list(views)), self.joint, self.labels, distances)
        shares, counts = votes.copy(), np.ones((len(votes), 1))
        preferred = np.where(has, votes.argmax(axis=1)[:, None], -1)
        for index, loadings in enumerate(self.loadings):
            if not loadings.size:  # all voters of the view are in one cluster
                continue
            rows, voters = np.flatnonzero(has[:, index]), self.discriminants[index]
            own = ~np.isnan(voters).any(axis=1)
            points = views[index][rows, : len(loadings)] @ loadings
            by_view = self._votes(points, voters[own], self.labels[own], squared_distances)
            shares[rows] += by_view
            counts[rows] += 1.0
            preferred[rows, index] = by_view.argmax(axis=1)
        return shares / counts, preferred

    def _votes(
        self, points: Array, voters: Array, labels: NDArray[np.int64], between: Distances
    ) -> Array:
        """Shares of the votes (b, c) of the nearest voters at finite distances."""
        votes = np.zeros((len(points), self.n_clusters))
        count = min(self.n_neighbors, len(voters))
        nearest, squared = nearest_among(points, voters, count, between)
        np.add.at(votes, (np.arange(len(points))[:, None], labels[nearest]), np.isfinite(squared))
        total = votes.sum(axis=1, keepdims=True)
        return np.where(total > 0.0, votes / np.maximum(total, 1.0), 1.0 / self.n_clusters)


def n_voting_neighbors(n_voters: int, n_clusters: int) -> int:
    """Number of neighbors that vote: the mean size of a cluster, or the most."""
    return min(_MAX_NEIGHBORS, n_voters // n_clusters)


def folds_of(n_samples: int) -> NDArray[np.int64]:
    """Fold (n,) of each sample, 0 … 4, at random; sizes of the folds differ by at most one."""
    return np.random.default_rng((0, n_samples)).permutation(n_samples) % N_FOLDS


def fit_votes(
    views: Sequence[Array], labels: NDArray[np.int64], n_clusters: int, n_neighbors: int
) -> NeighborVotes:
    """Fit the discriminants of each view to voters (m, r_v), NaN where absent, in clusters (m,)."""
    loadings = tuple(_loadings(view[:, : SIZES.max_rank], labels) for view in views)
    points = tuple(view[:, : len(one)] @ one for view, one in zip(views, loadings, strict=True))
    k = min(n_neighbors, len(labels))
    return NeighborVotes(labels, n_clusters, k, np.hstack(list(views)), loadings, points)


@dataclasses.dataclass(frozen=True)
class CrossFit:
    """Votes for the samples of each fold by the voters of the others, and their calibration."""

    models: tuple[NeighborVotes, ...]
    calibration: Calibration

    def __call__(
        self, views: Sequence[Array], folds: NDArray[np.int64]
    ) -> tuple[Array, NDArray[np.int64]]:
        """Memberships (b, c) of samples of some folds (b,), and the cluster (b, v) by view."""
        shares, preferred = _cross_fitted(self.models, views, folds)
        return self.calibration(shares, views), preferred


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Memberships π_k (p_k / π_k)^β from shares p of the votes and the sizes π of the clusters, normalized.

    β depends on the views that a sample has: on the view if it is the only one, else on their number.
    """

    sizes: Array  # (c,) shares of the clusters
    n_neighbors: int
    of_view: Array  # (v,) β of samples that have this view only
    of_count: Array  # (v + 1,) β of samples by their number of views

    def __call__(self, shares: Array, views: Sequence[Array]) -> Array:
        """Memberships (b, c) of samples given by view."""
        has = _presence(views)
        counts = has.sum(axis=1)
        exponents = np.where(counts == 1, self.of_view[has.argmax(axis=1)], self.of_count[counts])
        ratios = _log_ratios(shares, self.sizes, self.n_neighbors)
        return np.asarray(
            np.exp(log_softmax(exponents[:, None] * ratios + np.log(self.sizes), axis=1))
        )


def fit_folds(
    views: Sequence[Array],
    labels: NDArray[np.int64],
    folds: NDArray[np.int64],
    n_clusters: int,
    n_neighbors: int,
) -> CrossFit:
    """Fit the votes for the samples of each fold to the voters (m, r_v) of the other folds (m,).

    The exponents are those with the largest likelihood of the labels of some voters. Those of one view are fitted to
    voters that have others too, without these: their labels do not come from that view alone.
    """
    models = tuple(
        fit_votes([view[others] for view in views], labels[others], n_clusters, n_neighbors)
        for others in (folds != fold for fold in range(N_FOLDS))
    )
    some = sampled_rows(len(labels), SIZES.n_coarsely_compared)
    views, labels, folds = [view[some] for view in views], labels[some], folds[some]
    # one sample more, spread over all clusters: none is empty in a sample
    counted = np.bincount(labels, minlength=n_clusters).astype(np.float64)
    sizes: Array = (counted + 1.0 / n_clusters) / (len(labels) + 1.0)
    has = _presence(views)
    counts = has.sum(axis=1)
    of_view, of_count = np.ones(len(views)), np.ones(len(views) + 1)

    def fitted(rows: NDArray[np.int64], kept: Sequence[int]) -> float:
        masked = [
            view[rows] if index in kept else np.full((len(rows), view.shape[1]), np.nan)
            for index, view in enumerate(views)
        ]
        shares = _cross_fitted(models, masked, folds[rows])[0]
        return _exponent(_log_ratios(shares, sizes, n_neighbors), sizes, labels[rows])

    everything = range(len(views))
    most = len(views)
    if n_clusters > 1:
        for count in range(most, 1, -1):  # that of more views, where few samples have so many
            rows = np.flatnonzero(counts == count)
            enough = len(rows) >= _MIN_CALIBRATED * n_clusters
            of_count[count] = (
                fitted(rows, everything)
                if enough or (count == most and rows.size)
                else of_count[min(count + 1, most)]
            )
        for index in everything if most > 1 else ():
            rows = np.flatnonzero(has[:, index] & (counts > 1))
            if len(rows) >= _MIN_CALIBRATED * n_clusters:
                of_view[index] = fitted(rows, [index])
        if most == 1:
            of_view[0] = fitted(np.arange(len(labels)), everything)
    return CrossFit(models, Calibration(sizes, n_neighbors, of_view, of_count))


# Samples for each cluster from which an exponent is fitted.
_MIN_CALIBRATED = 5


def _exponent(ratios: Array, sizes: Array, labels: NDArray[np.int64]) -> float:
    """Exponent β with the largest likelihood of the labels (m,), from 0.02 to 8."""
    rows = np.arange(len(labels))

    def loss(exponent: float) -> float:
        logarithms = log_softmax(exponent * ratios + np.log(sizes), axis=1)
        return -float(logarithms[rows, labels].mean())

    return float(minimize_scalar(loss, bounds=(0.02, 8.0), method="bounded").x)


def _log_ratios(shares: Array, sizes: Array, n_neighbors: int) -> Array:
    """Logarithms (m, c) of the shares of the votes over the sizes of the clusters; one vote more is spread by these (Laplace)."""
    return np.asarray(np.log((n_neighbors * shares + sizes) / ((n_neighbors + 1.0) * sizes)))


def _presence(views: Sequence[Array]) -> NDArray[np.bool_]:
    return np.stack([~np.isnan(view[:, 0]) for view in views], axis=1)


def _cross_fitted(
    models: Sequence[NeighborVotes], views: Sequence[Array], folds: NDArray[np.int64]
) -> tuple[Array, NDArray[np.int64]]:
    """Shares of the votes (b, c) of voters of other folds, and the cluster (b, v) by view."""
    shares = np.empty((len(folds), models[0].n_clusters))
    preferred = np.empty((len(folds), len(views)), dtype=np.int64)
    for fold, model in enumerate(models):
        rows = np.flatnonzero(folds == fold)
        if rows.size:
            shares[rows], preferred[rows] = model([view[rows] for view in views])
    return shares, preferred


def _loadings(points: Array, labels: NDArray[np.int64]) -> Array:
    """Linear discriminants (r, q) of the samples that a view has; none if these are in one cluster."""
    has = ~np.isnan(points[:, 0])
    sums = class_sums(points[has], np.unique(labels[has], return_inverse=True)[1])
    return discriminant_loadings(sums, np.ones(points.shape[1]))[0]
