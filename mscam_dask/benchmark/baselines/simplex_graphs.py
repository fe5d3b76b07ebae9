"""Graphs with rows on the probability simplex: neighbors (MLAN) and anchors (LMVSC, SMVSC)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.cluster import KMeans

from mscam_dask.benchmark.baselines.base import (
    Baseline,
    View,
    require_choice,
    require_count,
    require_number,
)
from mscam_dask.benchmark.baselines.spectral import kmeans_labels, leading_left_singular, unit_rows
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.linalg.distances import squared_distances, squared_distances_on_edges
from mscam_dask.linalg.eigensolver import bottom_eigenpairs
from mscam_dask.linalg.laplacian import connected_components, graph_from_neighbors, laplacian
from mscam_dask.solvers.graph_update import neighbor_widths
from mscam_dask.solvers.rank_control import Decision, RankControl

__all__ = ["LMVSC", "MLAN", "SMVSC", "adaptive_neighbor_weights_global", "project_rows_to_simplex"]

# Rows of X and Z in one block, which stays in the cache of the processor.
_BLOCK_ROWS = 2048


@dataclasses.dataclass(frozen=True, slots=True)
class _Rows:
    """The k nearest samples of each row by the weighted distances, and these distances."""

    indices: NDArray[np.int64]
    squared_distances: NDArray[np.float64]

    def graph(
        self, embedding: NDArray[np.float64], graph_weight: float, width: float
    ) -> csr_array[np.float64]:
        """S: argmin Σ_j (d_ij + λ‖f_i − f_j‖²) s_ij + α s_ij² on the simplex, row by row."""
        projected = squared_distances_on_edges(embedding, self.indices)
        weights = adaptive_neighbor_weights_global(
            self.squared_distances + graph_weight * projected, width
        )
        return graph_from_neighbors(self.indices, weights)


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
    n_clusters, scale, view_type, random_state, memory_limit_bytes
        See `Baseline`.

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
    graph_weight_ : float
        λ of the last step; 0 if the initial graph has c components.
    n_iter_ : int

    Notes
    -----
    n² (Σd + V) flops and V + 3 dense (n, n) arrays. α is the mean over rows of
    (k d_{i,k+1} − Σ_{h≤k} d_ih) / 2 with equal weights 1/V, computed once; it is also the initial λ.
    As the w_v are far smaller than 1/V, α outweighs the differences between the k nearest, which
    nearly all rows keep. Each row has edges among its k nearest by the current weights, as in
    common implementations of the method. λ doubles while there are fewer than c components; when
    there are more, the step is repeated with a smaller λ (bisection).

    References
    ----------
    F. Nie, G. Cai, X. Li, "Multi-view clustering and semi-supervised classification with adaptive
    neighbours", AAAI 2017, doi:10.1609/aaai.v31i1.10909.
    """

    _title: ClassVar[str] = "MLAN"
    _square_matrices: ClassVar[int] = 3
    _square_matrices_per_view: ClassVar[int] = 1

    n_neighbors: int = 9
    max_iter: int = 30

    def _check(self, data: MultiViewData) -> None:
        # d_{i,k+1} needs one sample more than the k neighbors and the row itself.
        require_count("n_neighbors", self.n_neighbors, maximum=data.n_samples - 2)

    def _cluster(self, views: tuple[View, ...], rng: np.random.Generator) -> NDArray[np.int64]:
        squared = [squared_distances(view, view) for view in views]
        weights = np.full(len(views), 1.0 / len(views))
        rows, width = _neighbors(squared, weights, self.n_neighbors)
        if not width > 0:
            raise DataError(
                f"the {self.n_neighbors + 1} nearest samples of every row are equally far away, so "
                "the width of the neighborhoods is 0. Raise n_neighbors or remove duplicate samples."
            )
        flat = np.zeros((len(views[0]), 1))
        graph = rows.graph(flat, 0.0, width)
        control = RankControl(self.n_clusters, 2.0, width)
        warm: NDArray[np.float64] | None = None
        steps, graph_weight = 0, 0.0
        count, _ = connected_components(graph)
        decision = Decision.REACHED if count == self.n_clusters else Decision.ACCEPT
        while decision is Decision.ACCEPT and steps < self.max_iter:
            weights = _view_weights(squared, graph)
            rows, _ = _neighbors(squared, weights, self.n_neighbors)
            # The spectrum of the last accepted graph serves every value of λ.
            spectrum = bottom_eigenpairs(
                laplacian(graph), self.n_clusters, warm_start=warm, rng=rng
            )
            warm = spectrum.vectors
            steps += 1
            decision = Decision.RETRY
            while decision is Decision.RETRY:
                graph_weight = control.graph_weight
                graph = rows.graph(spectrum.vectors, graph_weight, width)
                count, _ = connected_components(graph)
                decision, control = control.observe(count)

        if count != self.n_clusters:
            self._warn(
                f"MLAN has {count} connected components instead of {self.n_clusters} after {steps} "
                "iterations; the labels are these components. Lower n_neighbors for more components, "
                "raise it for fewer, or raise max_iter."
            )
        self.similarity_graph_ = graph
        self.n_connected_components_, labels = connected_components(graph)
        self.view_weights_ = weights / weights.sum()
        self.graph_weight_ = graph_weight
        self.n_iter_ = steps
        return labels


def _neighbors(
    squared: list[NDArray[np.float64]], weights: NDArray[np.float64], n_neighbors: int
) -> tuple[_Rows, float]:
    """The k nearest samples by Σ w_v d_v, and the mean width α that keeps k of them."""
    total = np.zeros_like(squared[0])
    for weight, matrix in zip(weights, squared, strict=True):
        total += weight * matrix
    np.fill_diagonal(total, np.inf)
    nearest = np.argpartition(total, n_neighbors, axis=1)[:, : n_neighbors + 1]
    distances = np.take_along_axis(total, nearest, axis=1)
    order = np.lexsort((nearest, distances), axis=-1)
    indices = np.take_along_axis(nearest, order, axis=1)
    distances = np.take_along_axis(distances, order, axis=1)
    width = float(neighbor_widths(distances).mean())
    return _Rows(indices[:, :n_neighbors], distances[:, :n_neighbors]), width


def _view_weights(
    squared: list[NDArray[np.float64]], graph: csr_array[np.float64]
) -> NDArray[np.float64]:
    """w_v = 1 / (2 √(Σ_ij d_ij s_ij)), (V,)."""
    edges = graph.tocoo()
    costs = np.array([np.sum(matrix[edges.row, edges.col] * edges.data) for matrix in squared])
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
    n_clusters, scale, view_type, random_state, memory_limit_bytes
        See `Baseline`.

    Attributes
    ----------
    labels_ : (n_samples,) int64
    anchors_ : tuple of (m, d_v)
    anchor_graph_ : (n_samples, m · n_views)
        Z_v concatenated, the rows of each on the simplex.

    Notes
    -----
    Deviation: accelerated projected gradients solve the quadratic programs of a block of samples
    together, instead of one solver call for each sample; the minimizer is the same.
    n m (d + m · steps) flops per view; memory: the scaled views, and twice (n, m V).

    References
    ----------
    Z. Kang et al., "Large-scale multi-view subspace clustering in linear time", AAAI 2020,
    doi:10.1609/aaai.v34i04.5867.
    """

    _title: ClassVar[str] = "LMVSC"

    n_anchors: int | None = None
    alpha: float = 1.0
    max_iter: int = 1000
    tol: float = 1e-6
    n_init: int = 20

    def _check(self, data: MultiViewData) -> None:
        if self.n_anchors is not None:
            require_count("n_anchors", self.n_anchors, maximum=data.n_samples)
        if self._anchor_count() * len(data.views) < self.n_clusters:
            raise ConfigurationError(
                f"n_anchors={self.n_anchors} in {len(data.views)} view(s) give fewer than the "
                f"{self.n_clusters} dimensions that the embedding needs. Raise n_anchors."
            )
        require_number("alpha", self.alpha)
        require_number("tol", self.tol)

    def _anchor_count(self) -> int:
        return self.n_clusters if self.n_anchors is None else self.n_anchors

    def _working_bytes(self, n_samples: int, widths: Sequence[int]) -> int:
        joined = 8 * n_samples * self._anchor_count() * len(widths)
        # k-means copies the largest view
        return 2 * joined + 8 * n_samples * (max(widths) + 2 * self.n_clusters) + 64 * 2**20

    def _cluster(self, views: tuple[View, ...], rng: np.random.Generator) -> NDArray[np.int64]:
        m = self._anchor_count()
        self.anchors_ = tuple(_anchors(view, m, rng) for view in views)
        Z = np.empty((len(views[0]), m * len(views)))
        unfinished = 0
        for position, (view, anchors) in enumerate(zip(views, self.anchors_, strict=True)):
            gram = anchors @ anchors.T + self.alpha * np.eye(m)
            for start in range(0, len(view), _BLOCK_ROWS):
                block = slice(start, start + _BLOCK_ROWS)
                rows, left = simplex_least_squares(
                    gram, view[block] @ anchors.T, max_iter=self.max_iter, tol=self.tol
                )
                Z[block, position * m : (position + 1) * m] = rows
                unfinished += left
        if unfinished:
            self._warn(
                f"LMVSC: {unfinished} of {len(Z) * len(views)} rows still changed by more than "
                f"tol={self.tol} after max_iter={self.max_iter} steps. Raise max_iter, tol or alpha."
            )
        self.anchor_graph_ = Z
        graph = _normalized(Z / np.sqrt(len(views)))
        embedding = leading_left_singular(graph, self.n_clusters)
        return kmeans_labels(embedding, self.n_clusters, n_init=self.n_init, rng=rng)


def _anchors(view: View, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Centers (m, d) of k-means on the view."""
    model = KMeans(count, n_init=10, max_iter=100, random_state=int(rng.integers(2**31)))
    return np.asarray(model.fit(view).cluster_centers_, dtype=np.float64)


def simplex_least_squares(
    gram: NDArray[np.float64], linear: NDArray[np.float64], *, max_iter: int, tol: float
) -> tuple[NDArray[np.float64], int]:
    """Solve argmin_z zᵀHz / 2 − bᵀz over the simplex, for every row b.

    Parameters
    ----------
    gram : (m, m)
        H, symmetric positive definite.
    linear : (n, m)
        b.
    max_iter : int
    tol : float
        A row has converged when a step changes no entry by more.

    Returns
    -------
    rows : (n, m)
    unfinished : int
        Number of rows that have not converged.

    Notes
    -----
    Accelerated projected gradients with step 1 / λ_max(H), restarted where the momentum points
    uphill. Converged rows leave the batch. H is centered first, H − h1ᵀ − 1hᵀ + s11ᵀ, which
    changes no minimizer on the simplex and lowers λ_max.
    """
    m = len(gram)
    # On Σz = 1 a term linear in 1ᵀz is constant, so centering H and correcting b keeps the minimizer.
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


def _normalized(Z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Z Σ^-1/2, Σ the column sums; an anchor without samples has no column."""
    sums = Z.sum(axis=0)
    used = sums > 0
    return np.asarray(Z[:, used] / np.sqrt(sums[used]), dtype=np.float64)


_STARTS = ("first", "random")
_STEPS = ("published", "objective")


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
    n_clusters, scale, view_type, random_state, memory_limit_bytes
        See `Baseline`.

    Attributes
    ----------
    labels_ : (n_samples,) int64
    anchor_graph_ : (n_samples, m)
        Z, rows on the simplex.
    view_weights_ : (n_views,)
        β, summing to 1.
    objective_ : tuple of float
        The objective after each iteration; nonincreasing with simplex_step="objective".
    n_iter_ : int

    Notes
    -----
    4 n Σd m flops per iteration; memory: the scaled views and three (n, m) arrays.

    Deviations: (1) the simplex step has a closed form instead of a quadratic program per sample;
    the minimizer is the same. (2) A view with d_v < m columns cannot have WᵀW = I; it is padded
    with zero columns, which changes no distance. A starts at 0, so that the first W_v is the identity.

    References
    ----------
    M. Sun et al., "Scalable multi-view subspace clustering with unified anchors", ACM MM 2021,
    doi:10.1145/3474085.3475516.
    """

    _title: ClassVar[str] = "SMVSC"

    anchors_per_cluster: int = 1
    simplex_step: Literal["published", "objective"] = "published"
    start: Literal["first", "random"] = "first"
    max_iter: int = 50
    tol: float = 1e-3

    def _check(self, data: MultiViewData) -> None:
        require_count("anchors_per_cluster", self.anchors_per_cluster)
        require_choice("simplex_step", self.simplex_step, _STEPS)
        require_choice("start", self.start, _STARTS)
        require_number("tol", self.tol, positive=False)
        n_anchors = self.n_clusters * self.anchors_per_cluster
        if n_anchors > data.n_samples:
            raise ConfigurationError(
                f"{self.n_clusters} clusters with anchors_per_cluster={self.anchors_per_cluster} are "
                f"{n_anchors} anchors for {data.n_samples} samples; allowed is at most one per sample. "
                "Lower anchors_per_cluster."
            )

    def _working_bytes(self, n_samples: int, widths: Sequence[int]) -> int:
        n_anchors = self.n_clusters * self.anchors_per_cluster
        # Z, the embedding and its unit rows; k-means copies its rows once
        return 8 * 4 * n_samples * n_anchors + 64 * 2**20

    def _cluster(self, views: tuple[View, ...], rng: np.random.Generator) -> NDArray[np.int64]:
        n, m = len(views[0]), self.n_clusters * self.anchors_per_cluster
        first = np.arange(m) if self.start == "first" else rng.permutation(n)[:m]
        Z = np.zeros((n, m))
        Z[first, np.arange(m)] = 1.0
        squared_norms = np.array([np.vdot(X, X) for X in views])
        weights = np.full(len(views), 1.0 / len(views))
        A = np.zeros((m, m))
        products = [X.T @ Z for X in views]  # (d_v, m)
        objective: list[float] = []
        for _ in range(self.max_iter):
            projections = [_orthonormal(C @ A.T, m) for C in products]  # W-step
            A = _orthonormal(  # A-step
                sum(
                    w**2 * W[: len(C)].T @ C
                    for w, W, C in zip(weights, projections, products, strict=True)
                ),
                m,
            )
            loadings = [W[: len(C)] @ A for W, C in zip(projections, products, strict=True)]
            Z = _simplex_step(views, loadings, self._factors(weights))  # Z-step
            products, gram = [X.T @ Z for X in views], Z.T @ Z
            losses = _losses(squared_norms, loadings, products, gram)
            weights = _weights(losses)  # β-step
            objective.append(float(weights**2 @ losses + np.trace(gram)))
            if _settled(objective, self.tol):
                break
        else:
            self._warn_not_settled()
        self.anchor_graph_ = Z
        self.view_weights_ = weights
        self.objective_ = tuple(objective)
        self.n_iter_ = len(objective)
        embedding = leading_left_singular(Z, self.n_clusters)
        return kmeans_labels(unit_rows(embedding), self.n_clusters, n_init=20, rng=rng)

    def _factors(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Factor of X W A of each view in the Z-step, (V,)."""
        linear = weights**2 if self.simplex_step == "objective" else np.ones_like(weights)
        return np.asarray(linear / (np.sum(weights**2) + 1.0), dtype=np.float64)


def _settled(objective: list[float], tol: float) -> bool:
    if len(objective) < 2:
        return False
    return abs(objective[-2] - objective[-1]) <= tol * abs(objective[-2])


def _orthonormal(matrix: Any, n_columns: int) -> NDArray[np.float64]:
    """argmax tr(Wᵀ M) over WᵀW = I; M is padded with zero rows where it has too few."""
    rows = max(len(matrix), n_columns)
    padded = np.zeros((rows, n_columns))
    padded[: len(matrix)] = matrix
    left, _, right = scipy.linalg.svd(padded, full_matrices=False)
    return np.asarray(left @ right, dtype=np.float64)


def _simplex_step(
    views: tuple[View, ...], loadings: list[NDArray[np.float64]], factors: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Rows of Σ factor_v X_v W_v A projected on the simplex, by blocks of rows."""
    scaled = [w * B for w, B in zip(factors, loadings, strict=True)]
    Z = np.empty((len(views[0]), scaled[0].shape[1]))
    for start in range(0, len(Z), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        target = views[0][block] @ scaled[0]
        for X, B in zip(views[1:], scaled[1:], strict=True):
            target += X[block] @ B
        Z[block] = project_rows_to_simplex(target)
    return Z


def _losses(
    squared_norms: NDArray[np.float64],
    loadings: list[NDArray[np.float64]],
    products: list[NDArray[np.float64]],
    gram: NDArray[np.float64],
) -> NDArray[np.float64]:
    """‖X_v − Z Aᵀ W_vᵀ‖² = ‖X_v‖² − 2 ⟨X_vᵀZ, W_vA⟩ + ‖Z‖² by WᵀW = AᵀA = I, (V,)."""
    cross = np.array([np.vdot(C, B) for C, B in zip(products, loadings, strict=True)])
    return np.asarray(np.maximum(squared_norms - 2.0 * cross + np.trace(gram), 0.0))


def _weights(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """argmin Σ β² loss over Σβ = 1: β ∝ 1 / loss; views without loss share all the weight."""
    perfect = losses <= np.finfo(np.float64).tiny
    if perfect.any():
        return np.asarray(perfect / np.count_nonzero(perfect), dtype=np.float64)
    inverse = losses.min() / losses
    return np.asarray(inverse / inverse.sum(), dtype=np.float64)


def adaptive_neighbor_weights_global(
    sorted_squared_distances: NDArray[np.float64], width: float
) -> NDArray[np.float64]:
    """Solve argmin_a sum_j d_ij a_ij + gamma ||a_i||^2 on the simplex, one gamma for all rows.

    `width` is gamma > 0, for example the mean of `neighbor_widths`, Eq. (31). ``inf`` marks an absent
    candidate (weight 0).
    """
    if not (np.isfinite(width) and width > 0):
        raise ConfigurationError(
            f"the global neighbor width is {width!r}; allowed is a positive finite number. "
            "Use the row-wise widths (n_neighbors) when all candidates are tied."
        )
    d = sorted_squared_distances
    nearest = d.min(axis=1, keepdims=True, initial=np.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        # shifted by the nearest before dividing: differences survive a small width
        points = (nearest - d) / (2.0 * width)
    return project_rows_to_simplex(points)


def project_rows_to_simplex(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solve argmin_a ||a - v||^2 over a >= 0, sum(a) = 1, for every row v.

    Parameters
    ----------
    rows : array of shape (n, m), m >= 1
        Points to project. ``-inf`` is allowed (an absent entry, its result is 0) as
        long as the row has a finite entry.

    Notes
    -----
    The solution is ``max(v - theta, 0)`` with ``theta >= max(v) - 1``, hence entries
    below ``max(v) - 1`` never matter: the rows are shifted to maximum 0 and clipped at
    -1, which is exact and makes any magnitude safe. O(n m log m) time, three copies of
    `rows` in memory.

    References
    ----------
    J. Duchi et al., "Efficient projections onto the l1-ball", ICML 2008,
    doi:10.1145/1390156.1390191.

    Examples
    --------
    >>> import numpy as np
    >>> project_rows_to_simplex(np.array([[0.5, 0.5, -3.0], [9.0, 0.0, 0.0]]))
    array([[0.5, 0.5, 0. ],
           [1. , 0. , 0. ]])
    """
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise DataError(
            f"rows to project have shape {rows.shape}; allowed is (n, m) with m >= 1. "
            "Pass at least one candidate per row."
        )
    n, m = rows.shape
    largest = rows.max(axis=1, keepdims=True, initial=-np.inf)
    bad = np.flatnonzero(~np.isfinite(largest[:, 0]))
    if bad.size:
        raise DataError(
            f"{bad.size} of {n} rows cannot be projected on the simplex (first: "
            f"{bad[:5].tolist()}): a row needs a finite maximum and no NaN. "
            "Remove the rows or correct their distances."
        )
    with np.errstate(over="ignore"):  # max - min may exceed the range: clipped below
        shifted = np.clip(rows - largest, -1.0, 0.0)
    descending = -np.sort(-shifted, axis=1)
    # thresholds[:, j]: theta if exactly the j + 1 largest entries were positive
    thresholds = (np.cumsum(descending, axis=1) - 1.0) / np.arange(1, m + 1)
    support = np.count_nonzero(descending > thresholds, axis=1)
    theta = np.take_along_axis(thresholds, support[:, None] - 1, axis=1)
    projected: NDArray[np.float64] = np.maximum(shifted - theta, 0.0)
    return projected
