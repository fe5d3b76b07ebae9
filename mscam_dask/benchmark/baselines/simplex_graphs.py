"""Graphs with rows on the probability simplex: neighbors (MLAN) and anchors (LMVSC, SMVSC)."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.preprocessing import normalize

from mscam_dask.benchmark.baselines.base import (
    Array,
    Baseline,
    Labels,
    check_most,
)
from mscam_dask.benchmark.baselines.spectral import kmeans_labels
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.linalg.distances import WeightedBlocks, squared_distances_to
from mscam_dask.linalg.eigensolver import bottom_eigenpairs
from mscam_dask.linalg.laplacian import connected_components, graph_from_neighbors, laplacian
from mscam_dask.linalg.neighbors import nearest_neighbors
from mscam_dask.linalg.orthonormal import basis_from_rows, polar_factor
from mscam_dask.solvers.graph_update import Decision, RankControl, neighbor_widths
from mscam_dask.types.allowed import Count, NotNegative, Positive

# Rows of X and Z in one block, which stays in the cache of the processor.
_BLOCK_ROWS = 2048


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class MLAN(Baseline):
    """Multi-view learning with adaptive neighbors (clustering).

        min Σ_v √(Σ_ij ‖x_i − x_j‖²_v s_ij) + α ‖S‖²   rows of S on the simplex, rank(L_S) = n − c

    The square root leads to view weights w_v = 1 / (2 √(Σ_ij ‖x_i − x_j‖²_v s_ij)); the
    rank constraint becomes 2λ tr(FᵀL_S F) with λ adjusted until S has c components.

    Parameters
    ----------
    n_neighbors : int, default=9
        k, the only parameter of the method; the paper uses 9.
    max_iter : int, default=30

    Attributes
    ----------
    labels_ : (n_samples,) int64
        Connected components of `similarity_graph_`.
    similarity_graph_ : (n_samples, n_samples) CSR
        S, rows on the simplex.
    n_connected_components_ : int
        Number of them: c, unless the fit warned.
    view_weights_ : (n_views,)
        w_v, normalized to sum 1.
    n_iter_ : int

    Notes
    -----
    n² Σd flops per iteration, and memory O(n (Σd + k)). α is the mean over rows of
    (k d_{i,k+1} − Σ_{h≤k} d_ih) / 2 with equal weights 1/V, computed once; it is also the initial λ.
    As the w_v are far smaller than 1/V, α outweighs the differences between the k nearest, which
    nearly all rows keep. Each row has edges among its k nearest by the current weights, as in
    common implementations of the method. λ doubles while there are fewer than c components; when
    there are more, the step is repeated with a smaller λ (bisection).

    F. Nie, G. Cai, X. Li, AAAI 2017, doi:10.1609/aaai.v31i1.10909.
    """

    _title: ClassVar[str] = "MLAN"

    n_neighbors: Count = 9
    max_iter: Count = 30

    def _check(self, data: MultiViewData) -> None:
        # d_{i,k+1} needs one sample more than the k neighbors and the row itself.
        check_most("n_neighbors", self.n_neighbors, data.n_samples - 2, f"{data.n_samples} samples")

    def _cluster(self, views: tuple[Array, ...], rng: np.random.Generator) -> Labels:
        c, k = self.n_clusters, self.n_neighbors
        weights = np.full(len(views), 1.0 / len(views))
        indices, distances = _neighbors(views, weights, k)
        width = float(neighbor_widths(distances).mean())
        if not width > 0:
            raise DataError(
                f"the {k + 1} nearest samples of every row are equally far away, so the width of the "
                "neighborhoods is 0. Raise n_neighbors or remove duplicate samples."
            )
        shares = adaptive_neighbor_weights_global(distances[:, :k], width)
        graph = graph_from_neighbors(indices, shares)
        count, labels = connected_components(graph)
        control, warm = RankControl(c, 2.0, width), None
        self.n_iter_ = 0
        decision = Decision.REACHED if count == c else Decision.ACCEPT
        while decision is Decision.ACCEPT and self.n_iter_ < self.max_iter:
            weights = _view_weights(views, indices, shares)
            indices, distances = _neighbors(views, weights, k)
            # The spectrum of the last accepted graph serves every value of λ.
            warm = bottom_eigenpairs(laplacian(graph), c, warm_start=warm, rng=rng).vectors
            projected = squared_distances_to(warm, np.arange(len(warm)), indices)
            self.n_iter_ += 1
            decision = Decision.RETRY
            while decision is Decision.RETRY:
                joint = distances[:, :k] + control.graph_weight * projected
                shares = adaptive_neighbor_weights_global(joint, width)
                graph = graph_from_neighbors(indices, shares)
                count, labels = connected_components(graph)
                decision, control = control.observe(count)
        if count != c:
            self._warn(
                f"has {count} connected components instead of {c} after {self.n_iter_} "
                "iterations; the labels are these components. Lower n_neighbors for more components, "
                "raise it for fewer, or raise max_iter."
            )
        self.similarity_graph_, self.n_connected_components_ = graph, count
        self.view_weights_ = weights / weights.sum()
        return labels


def _neighbors(
    views: tuple[Array, ...], weights: Array, n_neighbors: int
) -> tuple[NDArray[np.int64], Array]:
    """The k nearest samples (n, k) by Σ w_v d_v, and the k + 1 least distances (n, k + 1)."""
    of_columns = [np.full(view.shape[1], w) for view, w in zip(views, weights, strict=True)]
    points = WeightedBlocks(views, tuple(of_columns))
    indices, distances = nearest_neighbors(points, n_neighbors + 1)
    return indices[:, :n_neighbors], distances


def _view_weights(views: tuple[Array, ...], indices: NDArray[np.int64], shares: Array) -> Array:
    """w_v = 1 / (2 √(Σ_ij d_ij s_ij)), (V,), from the neighbors and their s_ij (n, k)."""
    rows = np.arange(len(indices))
    costs = np.array([np.vdot(squared_distances_to(X, rows, indices), shares) for X in views])
    if not (costs > 0).all():
        raise DataError(
            f"view(s) number {np.flatnonzero(costs <= 0).tolist()} have no distance above 0 between "
            "neighbors, so their weight would be infinite. Remove duplicate samples or the view."
        )
    return np.asarray(0.5 / np.sqrt(costs), dtype=np.float64)


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class LMVSC(Baseline):
    """Large-scale multi-view subspace clustering in linear time.

        min_{Z_v} ‖X_v − Z_v A_v‖² + α‖Z_v‖²   rows of Z_v (n, m) on the simplex, one problem for each view

    with the samples in the rows of X_v (n, d_v) and anchors A_v (m, d_v) from k-means. Clusters come
    from the left singular vectors of [Z_1 ... Z_V] Σ^-1/2 / √V, Σ the column sums.

    Parameters
    ----------
    n_anchors : int or None, default=None
        m, anchors of each view; None: `n_clusters`. The paper tries c, 50 and 100.
    alpha : float, default=1.0
        Ridge penalty on Z; the paper tries 0.001 to 10.
    max_iter : int, default=1000
        Maximum number of projected gradient steps for a block of rows.
    tol : float, default=1e-6
        A row has converged when a step changes no entry by more.
    n_init : int, default=20
        Number of starts of the final k-means.

    Notes
    -----
    Deviation: accelerated projected gradients solve the quadratic programs of a block of samples
    together, instead of one solver call for each sample; the minimizer is the same.
    n m (d + m · steps) flops per view; memory: the scaled views, and twice (n, m V).

    Z. Kang et al., AAAI 2020, doi:10.1609/aaai.v34i04.5867.
    """

    _title: ClassVar[str] = "LMVSC"

    n_anchors: Count | None = None
    alpha: Positive = 1.0
    max_iter: Count = 1000
    tol: Positive = 1e-6
    n_init: Count = 20

    def _check(self, data: MultiViewData) -> None:
        check_most("n_anchors", self._anchor_count(), data.n_samples, f"{data.n_samples} samples")
        if self._anchor_count() * len(data.views) < self.n_clusters:
            raise ConfigurationError(
                f"n_anchors={self.n_anchors} in {len(data.views)} view(s) give fewer than the "
                f"{self.n_clusters} dimensions that the embedding needs. Raise n_anchors."
            )

    def _anchor_count(self) -> int:
        return self.n_clusters if self.n_anchors is None else self.n_anchors

    def _cluster(self, views: tuple[Array, ...], rng: np.random.Generator) -> Labels:
        n, m = len(views[0]), self._anchor_count()
        seeds = [int(rng.integers(2**31)) for _ in views]
        models = [KMeans(m, n_init=10, max_iter=100, random_state=seed) for seed in seeds]
        Z = np.empty((n, m * len(views)))
        unfinished = 0
        for position, (view, model) in enumerate(zip(views, models, strict=True)):
            anchors = model.fit(view).cluster_centers_
            gram = anchors @ anchors.T + self.alpha * np.eye(m)
            columns = slice(position * m, (position + 1) * m)
            for start in range(0, n, _BLOCK_ROWS):
                block = slice(start, start + _BLOCK_ROWS)
                linear = view[block] @ anchors.T
                Z[block, columns], left = simplex_least_squares(
                    gram, linear, max_iter=self.max_iter, tol=self.tol
                )
                unfinished += left
        if unfinished:
            self._warn_not_settled()
        sums = Z.sum(axis=0)
        used = sums > 0  # an anchor without samples has no column
        graph = Z[:, used] / np.sqrt(len(views) * sums[used])
        embedding = basis_from_rows(graph).vectors[:, : self.n_clusters]
        return kmeans_labels(embedding, self.n_clusters, self.n_init, rng)


def simplex_least_squares(
    gram: Array, linear: Array, *, max_iter: int, tol: float
) -> tuple[Array, int]:
    """Solve argmin_z zᵀHz / 2 − bᵀz over the simplex, for every row b of `linear` (n, m).

    Returns the rows z (n, m), and the number of them that a step still changes by more than `tol`.
    Accelerated projected gradients with step 1 / λ_max(H), restarted where the momentum points
    uphill. Converged rows leave the batch.
    """
    m = len(gram)
    # On Σz = 1 a term linear in 1ᵀz is constant: centering H and correcting b keeps the minimizer,
    # and lowers λ_max.
    mean = gram.mean(axis=1)
    centered = gram - mean[:, None] - mean[None, :] + mean.mean()
    target = linear - mean[None, :]
    target = target - target.mean(axis=1, keepdims=True)
    top = float(scipy.linalg.eigvalsh(centered, subset_by_index=[m - 1, m - 1])[0])
    top = max(top, np.finfo(np.float64).tiny)
    result = project_rows_to_simplex(target / top)
    active = np.arange(len(result))
    point, before = result.copy(), result.copy()
    momentum = np.ones(len(result))
    for _ in range(max_iter):
        gradient = point @ centered - target[active]
        moved = project_rows_to_simplex(point - gradient / top)
        step = moved - before
        uphill = np.einsum("ij,ij->i", point - moved, step) > 0
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        factor = np.where(uphill, 0.0, (momentum - 1.0) / following)
        momentum = np.where(uphill, 1.0, following)
        result[active] = moved
        running = np.abs(moved - point).max(axis=1) > tol
        point = (moved + factor[:, None] * step)[running]
        before, momentum, active = moved[running], momentum[running], active[running]
        if active.size == 0:
            break
    return result, int(active.size)


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class SMVSC(Baseline):
    """Scalable multi-view subspace clustering with unified anchors.

        min Σ_v β_v² ‖X_v − Z Aᵀ W_vᵀ‖² + ‖Z‖²
        W_vᵀW_v = I, AᵀA = I, rows of Z (n, m) on the simplex, β ≥ 0, Σβ = 1

    with the samples in the rows of X_v (n, d_v), W_v (d_v, m) and A (m, m). Sun et al. solve one
    quadratic program per sample; because both W_v and A are orthonormal its Hessian is
    2 (Σβ² + 1) I, so the solution is the projection of Σ_v β_v² X_v W_v A / (Σβ² + 1) on the simplex
    (`simplex_step` sets the weights there).

    Parameters
    ----------
    anchors_per_cluster : int, default=1
        m / c; the paper tries 1, 2 and 3.
    simplex_step : {"published", "objective"}, default="published"
        Weights of the views in the linear term of the simplex step: 1, as in the authors' code
        and all published scores, or β_v², the derivative of the objective (accuracy 0.68
        instead of 0.82 on Handwritten).
    start : {"first", "random"}, default="first"
        Anchors of the first iteration: the first m samples, as in the authors' code, or m random
        samples. With "first", the result depends on the order of the samples.
    max_iter : int, default=50
    tol : float, default=1e-3
        Stop when the objective changes by less than this share.

    Attributes
    ----------
    objective_ : tuple of float
        The objective after each iteration; nonincreasing with simplex_step="objective".
    n_iter_ : int

    Notes
    -----
    4 n Σd m flops per iteration; memory: the scaled views and six (n, m) arrays.

    Deviations: (1) the simplex step has a closed form instead of a quadratic program per sample;
    the minimizer is the same. (2) A view with d_v < m columns cannot have WᵀW = I; it is padded
    with zero columns, which changes no distance. A starts at 0, so that the first W_v is the identity.

    M. Sun et al., ACM MM 2021, doi:10.1145/3474085.3475516.
    """

    _title: ClassVar[str] = "SMVSC"

    anchors_per_cluster: Count = 1
    simplex_step: Literal["published", "objective"] = "published"
    start: Literal["first", "random"] = "first"
    max_iter: Count = 50
    tol: NotNegative = 1e-3

    def _check(self, data: MultiViewData) -> None:
        n, c = data.n_samples, self.n_clusters
        of = f"{n} samples in {c} clusters"
        check_most("anchors_per_cluster", self.anchors_per_cluster, n // c, of)

    def _cluster(self, views: tuple[Array, ...], rng: np.random.Generator) -> Labels:
        n, m = len(views[0]), self.n_clusters * self.anchors_per_cluster
        X = [np.pad(view, ((0, 0), (0, max(0, m - view.shape[1])))) for view in views]
        first = np.arange(m) if self.start == "first" else rng.permutation(n)[:m]
        Z = np.zeros((n, m))
        Z[first, np.arange(m)] = 1.0
        squared_norms = np.array([np.vdot(view, view) for view in X])
        weights = np.full(len(X), 1.0 / len(X))
        A = np.zeros((m, m))
        products = [view.T @ Z for view in X]  # (d_v, m)
        for objective in self._until_settled():
            W = [polar_factor(C @ A.T) for C in products]
            pairs = zip(weights, W, products, strict=True)
            A = polar_factor(sum(w**2 * P.T @ C for w, P, C in pairs))
            loadings = [P @ A for P in W]
            linear = weights**2 if self.simplex_step == "objective" else np.ones(len(X))
            factors = linear / (np.sum(weights**2) + 1.0)
            terms = (f * (view @ P) for f, view, P in zip(factors, X, loadings, strict=True))
            Z = project_rows_to_simplex(sum(terms))
            products, squared_z = [view.T @ Z for view in X], float(np.vdot(Z, Z))
            # ‖X_v − Z Aᵀ W_vᵀ‖² by WᵀW = AᵀA = I
            cross = [np.vdot(C, B) for C, B in zip(products, loadings, strict=True)]
            losses = squared_norms - 2.0 * np.array(cross) + squared_z
            losses = np.maximum(losses, np.finfo(np.float64).tiny)
            weights = losses.min() / losses
            weights = weights / weights.sum()
            objective.append(float(weights**2 @ losses + squared_z))
        embedding = basis_from_rows(Z).vectors[:, : self.n_clusters]
        return kmeans_labels(normalize(embedding), self.n_clusters, 20, rng)


def adaptive_neighbor_weights_global(squared_distances: Array, width: float) -> Array:
    """Solve argmin_a sum_j d_ij a_ij + gamma ||a_i||^2 on the simplex, one gamma for all rows.

    `width` is gamma > 0, for example the mean of `neighbor_widths`, Eq. (31). ``inf`` marks an absent
    candidate (weight 0).
    """
    d = squared_distances
    with np.errstate(over="ignore", invalid="ignore"):
        # shifted by the nearest before dividing: differences survive a small width
        return project_rows_to_simplex((d.min(axis=1, keepdims=True) - d) / (2.0 * width))


def project_rows_to_simplex(rows: Array) -> Array:
    """Solve argmin_a ||a - v||^2 over a >= 0, sum(a) = 1, for every row v of (n, m), m >= 1.

    ``-inf`` is an absent entry, whose result is 0; each row needs a finite one. The solution is
    ``max(v - theta, 0)`` with ``theta >= max(v) - 1``, hence rows shifted to maximum 0 and clipped at
    -1 have the same, at any magnitude. O(n m log m) time, three copies of `rows`.

    J. Duchi et al., "Efficient projections onto the l1-ball", ICML 2008, doi:10.1145/1390156.1390191.
    """
    with np.errstate(over="ignore"):  # max - min may exceed the range: clipped
        shifted = np.clip(rows - rows.max(axis=1, keepdims=True), -1.0, 0.0)
    descending = -np.sort(-shifted, axis=1)
    # thresholds[:, j]: theta if exactly the j + 1 largest entries were positive
    counts = np.arange(1, rows.shape[1] + 1)
    thresholds = (np.cumsum(descending, axis=1) - 1.0) / counts
    support = np.count_nonzero(descending > thresholds, axis=1)
    theta = np.take_along_axis(thresholds, support[:, None] - 1, axis=1)
    return np.asarray(np.maximum(shifted - theta, 0.0))
