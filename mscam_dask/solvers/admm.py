"""ADMM of a view in a reduced space: self-representation and metric factor, given the graph.

Problem, the terms of Eq. (11) that hold view v once the graph A is fixed, with metric ridge:

    min_{Z, P, F, W}  ‖X − XZ‖² + α‖Z‖² + τ‖P‖² + λ tr(Wᵀ L W)
    subject to        F = ZᵀP,  W = F,  WᵀW = I_c.

With H = orth[Q, V_m], Q the left singular vectors of the view and V_m the bottom eigenvectors
of L, every iterate that starts in span(H) stays there: Z = H Ĉ Hᵀ, P = H p, F = H f, W = H w,
so one inner iteration costs O(h² c), whatever n. Rows are in blocks: with B = [Q, V_m] the sums BᵀB and BᵀLB over
blocks define the problem in span(H), H = B T, and no task needs all rows.

Deviations from the paper: α, not λ, in the Z-step (Eq. 16); no splitting variable M and no
multiplier Y⁽²⁾, which is always zero; the W-step is solved on the Stiefel manifold instead
of by Eq. (22); the metric ridge τ bounds P; μ has a largest value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.errors import DataError
from mscam_dask.linalg.eigensolver import LaplacianRows
from mscam_dask.linalg.laplacian import induced_laplacian
from mscam_dask.linalg.orthonormal import polar_factor, power_steps
from mscam_dask.solvers.ridge_view import RidgeView
from mscam_dask.types.parameters import AdmmSettings, Parameters

# Descent steps per inner iteration. ADMM converges without an exact W-step.
_STIEFEL_ITERATIONS = 5

# Upper limit of μ. W = F holds to 1e-8 by then; beyond it, rounding multiplied by μ in Y makes
# the residuals grow again, without bound at 1e15.
_MAX_PENALTY = 1e7


@dataclasses.dataclass(frozen=True, slots=True)
class ReducedProblem:
    """ADMM problem of a view in the coordinates of H."""

    squared_singular_values: NDArray[np.float64]  # (h,) s², 0 for directions of the graph
    laplacian: NDArray[np.float64]  # (h, h) L̂ = HᵀLH
    laplacian_bound: float  # upper bound on the eigenvalues of L̂
    alpha: float
    metric_ridge: float  # τ
    graph_weight: float  # λ of tr(WᵀLW)


def n_shrunk(
    singular_values_squared: NDArray[np.float64], alpha: float, min_shrinkage: float
) -> int:
    """Number of leading directions with a gain s²/(s²+α) not too small; at least one."""
    gains = singular_values_squared / (singular_values_squared + alpha)
    return int(np.count_nonzero(gains >= min(min_shrinkage, 0.5 * float(gains[0]))))


@dataclasses.dataclass(frozen=True, slots=True)
class AdmmState:
    """Iterates of the inner ADMM in the coordinates of H, (h, c) each."""

    w: NDArray[np.float64]
    p: NDArray[np.float64]
    f: NDArray[np.float64]
    y: NDArray[np.float64]  # multiplier of W = F
    core: tuple[NDArray[np.float64], NDArray[np.float64]]  # of Ĉ = diag(s²/(s²+α)) + l rᵀ
    penalty: float  # μ of the next iteration
    iteration: int
    primal_residual: float  # ‖W − F‖_F / √c
    dual_residual: float  # ‖F − F_before‖_F / √c


@dataclasses.dataclass(frozen=True, slots=True)
class ViewSolution:
    """Result of the ADMM of a view; F = ZᵀP = H f has the projected samples."""

    objective: float
    state: AdmmState
    converged: bool


def initial_state(start: NDArray[np.float64], penalty: float) -> AdmmState:
    """State before the first iteration: w = p = f = the orthonormal matrix nearest to HᵀV_c (h, c)."""
    h, c = start.shape
    if h < c:
        raise DataError(
            f"the reduced space has {h} dimensions, fewer than n_clusters={c}; lower n_clusters."
        )
    w = polar_factor(start)
    zero = np.zeros_like(w)
    return AdmmState(w, w, w, zero, (zero, zero), penalty, 0, np.inf, np.inf)


def step(problem: ReducedProblem, state: AdmmState, penalty_growth: float) -> AdmmState:
    """One ADMM iteration, Z → P → F → W → Y → μ, with K⁻¹ and (ĈĈᵀ + εI)⁻¹ by the Woodbury identity."""
    s2, alpha, mu = problem.squared_singular_values, problem.alpha, state.penalty
    c = state.w.shape[1]
    # Z-step, Eq. (16) with α: K Ĉ = diag(s²) + p bᵀ, K = diag(s² + α) + (μ/2) p pᵀ.
    b = 0.5 * (mu * state.w + state.y)
    inverse_diagonal = 1.0 / (s2 + alpha)
    gains = s2 * inverse_diagonal
    left = state.p * inverse_diagonal[:, None]
    small = state.p.T @ left
    small.flat[:: c + 1] += 2.0 / mu
    both = _solved(small, np.hstack((left.T, (2.0 / mu) * np.eye(c))))
    # x = small⁻¹ leftᵀ; I − x p = (2/μ) small⁻¹, without the cancellation
    x, remainder = both[:, :-c], both[:, -c:]
    right = b @ remainder.T - s2[:, None] * x.T
    left, right = _balanced(left, right)
    # P-step: (Ĉ Ĉᵀ + (2τ/μ) I) p = Ĉ (w + y/μ).
    p = _solve_metric_factor(
        gains, left, right, target=state.w + state.y / mu, ridge=2.0 * problem.metric_ridge / mu
    )
    # F = ZᵀP.
    f = gains[:, None] * p + right @ (left.T @ p)
    # W-step: min tr(wᵀL̂w) − 2η tr(wᵀ(f − y/μ)) on the Stiefel manifold, η = μ/2λ.
    linear = (mu * f - state.y) / (2.0 * problem.graph_weight)
    w = power_steps(
        problem.laplacian,
        linear,
        state.w,
        n_steps=_STIEFEL_ITERATIONS,
        largest_eigenvalue=problem.laplacian_bound,
    )
    gap = w - f
    return AdmmState(
        w=w,
        p=p,
        f=f,
        y=state.y + mu * gap,
        core=(left, right),
        penalty=min(mu * penalty_growth, max(mu, _MAX_PENALTY)),
        iteration=state.iteration + 1,
        primal_residual=_root_mean_square(gap),
        dual_residual=_root_mean_square(f - state.f),
    )


def _balanced(
    left: NDArray[np.float64], right: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """`left` and `right` at equal norms, same product (for small α they differ a millionfold)."""
    sizes = np.linalg.norm(left), np.linalg.norm(right)
    if not all(sizes):
        return left, right
    factor = float(np.sqrt(sizes[1] / sizes[0]))
    return left * factor, right / factor


def _root_mean_square(columns: NDArray[np.float64]) -> float:
    """‖·‖_F / √c."""
    return float(np.sqrt(np.vdot(columns, columns) / columns.shape[1]))


def _solved(matrix: NDArray[np.float64], rhs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solve a small linear system by LAPACK directly: wrappers cost more than the solve."""
    _, _, solution, failed = scipy.linalg.lapack.dgesv(matrix, rhs)
    if failed or not np.isfinite(solution).all():
        raise DataError(
            "a linear system of the ADMM of a view is singular: the penalty or the values of the "
            "view are out of the range of float64. Check the scale of the view."
        )
    return np.asarray(solution, dtype=np.float64)


def _solve_metric_factor(
    gains: NDArray[np.float64],
    left: NDArray[np.float64],
    right: NDArray[np.float64],
    *,
    target: NDArray[np.float64],
    ridge: float,
) -> NDArray[np.float64]:
    """Solve (ĈĈᵀ + ridge·I) p = Ĉ·target for Ĉ = diag(gains) + left rightᵀ."""
    c = left.shape[1]
    gram = right.T @ right
    rhs = gains[:, None] * target + left @ (right.T @ target)
    if ridge <= 0.0:  # for τ = 0 the diagonal may be singular
        core = np.diag(gains) + left @ right.T
        return np.asarray(scipy.linalg.lstsq(core.T, target)[0], dtype=np.float64)
    diagonal = gains**2 + ridge
    # ĈĈᵀ = diag(gains²) + U M Uᵀ with U = [gains∘right, left], M = [[0, I], [I, gram]].
    u = np.concatenate([gains[:, None] * right, left], axis=1)
    scaled = u / diagonal[:, None]
    middle = u.T @ scaled  # + M⁻¹ = [[−gram, I], [I, 0]]
    middle[:c, :c] -= gram
    middle[:c, c:].flat[:: c + 1] += 1.0
    middle[c:, :c].flat[:: c + 1] += 1.0
    correction = _solved(middle, scaled.T @ rhs)
    solution: NDArray[np.float64] = rhs / diagonal[:, None] - scaled @ correction
    return solution


def is_converged(state: AdmmState, tolerance: float) -> bool:
    """Whether primal and dual residual are at most `tolerance`."""
    return state.primal_residual <= tolerance and state.dual_residual <= tolerance


def objective(problem: ReducedProblem, state: AdmmState) -> float:
    """Objective ‖X − XZ‖² + α‖Z‖² + τ‖P‖² + λ tr(FᵀLF) at a state, in O(h c²) flops, as Ĉ = diag(g) + l rᵀ."""
    s2 = problem.squared_singular_values
    gains = s2 / (s2 + problem.alpha)
    left, right = state.core
    gram_right = right.T @ right
    cross = np.sum(left * right, axis=1)
    fidelity = (
        np.sum(s2 * (1.0 - gains) ** 2)
        - 2.0 * np.sum(s2 * (1.0 - gains) * cross)
        + np.sum((left.T @ (s2[:, None] * left)) * gram_right)
    )
    size = np.sum(gains**2) + 2.0 * np.sum(gains * cross) + np.sum((left.T @ left) * gram_right)
    smoothness = np.sum(state.f * (problem.laplacian @ state.f))
    return float(
        fidelity
        + problem.alpha * size
        + problem.metric_ridge * np.sum(state.p**2)
        + problem.graph_weight * smoothness
    )


def solve_view(
    problem: ReducedProblem, start: NDArray[np.float64], settings: AdmmSettings
) -> ViewSolution:
    """Solve the ADMM problem of a view from HᵀV_c (h, c) to the tolerance or `max_iterations`."""
    state = initial_state(start, settings.penalty)
    while state.iteration < settings.max_iterations and not is_converged(state, settings.tolerance):
        state = step(problem, state, settings.penalty_growth)
    return ViewSolution(
        objective=objective(problem, state),
        state=state,
        converged=is_converged(state, settings.tolerance),
    )


# rows in blocks ----------------------------------------------------------------------------------


# Length of a component of V_m outside span(Q) below which it is rounding.
_NEW_DIRECTION = 1e-3


@dataclasses.dataclass(frozen=True, slots=True)
class ReducedSums:
    """Sums over the rows of a block of B = [Q, V_m], and the largest degree."""

    products: NDArray[np.float64]  # BᵀB, and (h, h) whose symmetric part over all blocks is BᵀLB
    totals: NDArray[np.float64]  # (h,) sum of the rows of B
    n_rows: int
    largest_degree: float


def _columns(view: RidgeView, vectors: NDArray[Any], parameters: Parameters) -> NDArray[Any]:
    """Rows of B = [Q, V_m] with the directions of a view that take part in metric learning."""
    rank = n_shrunk(
        view.basis.singular_values_squared, view.alpha, parameters.constants.min_shrinkage
    )
    own = vectors[:, : 2 * parameters.n_clusters]
    if view.present is not None:
        own = own[view.present.samples]
    return np.hstack((view.basis.vectors[:, :rank], own.astype(np.float32, copy=False)))


def reduced_sums(
    views: Sequence[RidgeView],
    vectors: Sequence[NDArray[Any]],
    rows: LaplacianRows,
    first: int,
    parameters: Parameters,
) -> ReducedSums:
    """Sums of a block of rows over itself or later blocks of its halo, from the `first` on.

    L is symmetric, so later blocks count twice and earlier ones are left out. The last of `views` and of `vectors` is the
    block itself. An incomplete view is in one block; its Laplacian is that of the subgraph of its samples.
    """
    *pairs, (view, block) = zip(views, vectors, strict=True)
    own = _columns(view, block, parameters).astype(np.float64)
    if view.present is not None:
        matrix = induced_laplacian(rows.matrix, view.present.samples)
        products = np.stack([own.T @ own, own.T @ (matrix @ own)])
        return ReducedSums(products, own.sum(axis=0), len(own), float(matrix.diagonal().max()))
    edges = np.cumsum([0, *(len(mine) for mine in rows.halo.rows)])
    own_place = int(np.searchsorted(edges, rows.own[0], side="right")) - 1
    some = slice(first, first + len(pairs))
    parts = [
        _columns(view, block, parameters)[mine] * (1 if place == own_place else 2)
        for place, ((view, block), mine) in enumerate(
            zip(pairs, rows.halo.rows[some], strict=True), start=first
        )
    ]
    matrix = rows.matrix
    if len(parts) < len(rows.halo.rows):
        matrix = csr_array(matrix[:, edges[some.start] : edges[some.stop]])
    image = np.asarray(matrix @ np.concatenate(parts), dtype=np.float64)
    is_first = first == own_place
    gram = own.T @ own if is_first else np.zeros((own.shape[1], own.shape[1]))
    totals = own.sum(axis=0) if is_first else np.zeros(own.shape[1])
    n_rows = len(own) if is_first else 0
    return ReducedSums(np.stack([gram, own.T @ image]), totals, n_rows, rows.largest_degree)


def added_sums(parts: Sequence[ReducedSums]) -> ReducedSums:
    """Sums over several blocks, or over parts of a block, in their order."""
    return ReducedSums(
        sum((one.products for one in parts[1:]), parts[0].products),
        sum((one.totals for one in parts[1:]), parts[0].totals),
        sum(one.n_rows for one in parts),
        max(one.largest_degree for one in parts),
    )


def _reduced_problem(
    sums: ReducedSums, view: RidgeView, parameters: Parameters, graph_weight: float
) -> tuple[NDArray[np.float64], ReducedProblem]:
    """Coefficients T of an orthonormal basis H = B T of span(B), and the problem in its coordinates."""
    gram, energy = sums.products
    s2 = view.basis.singular_values_squared
    rank = n_shrunk(s2, view.alpha, parameters.constants.min_shrinkage)
    overlap = scipy.linalg.solve(gram[:rank, :rank], gram[:rank, rank:], assume_a="pos")
    rest = gram[rank:, rank:] - gram[rank:, :rank] @ overlap
    squared, rotation = scipy.linalg.eigh(0.5 * (rest + rest.T))
    new = squared > _NEW_DIRECTION**2
    added = rotation[:, new] / np.sqrt(squared[new])
    h = rank + added.shape[1]
    basis = np.zeros((len(gram), h))
    basis[:rank, :rank] = np.eye(rank)
    basis[:rank, rank:] = -overlap @ added
    basis[rank:, rank:] = added
    restricted = basis.T @ energy @ basis
    problem = ReducedProblem(
        squared_singular_values=np.concatenate([s2[:rank], np.zeros(h - rank)]),
        laplacian=0.5 * (restricted + restricted.T),
        laplacian_bound=2.0 * sums.largest_degree,
        alpha=view.alpha,
        metric_ridge=parameters.constants.metric_ridge,
        graph_weight=graph_weight,
    )
    return basis, problem


def solve_reduced(
    sums: ReducedSums, view: RidgeView, parameters: Parameters, graph_weight: float
) -> tuple[NDArray[np.float64], ViewSolution]:
    """Solve the ADMM problem of a view from sums over all rows: coefficients (h, c) of F in B."""
    basis, problem = _reduced_problem(sums, view, parameters, graph_weight)
    rank = np.count_nonzero(problem.squared_singular_values)
    start = basis.T @ sums.products[0][:, rank : rank + parameters.n_clusters]
    solution = solve_view(problem, start, parameters.constants.admm)
    return basis @ solution.state.f, solution


def smoothed_coefficients(
    sums: ReducedSums, view: RidgeView, parameters: Parameters, graph_weight: float
) -> tuple[NDArray[np.float64], float, float]:
    """Solve min_Z ‖X − XZ‖² + α‖Z‖² + λ tr(Z L Zᵀ) in span(H), the Z-step of MSCAN, Eq. (6).

    The optimality condition (XᵀX + αI) Z + λ Z L = XᵀX decouples into (λL + (s_i² + α)I) c_i = s_i² q_i, Z = Q Cᵀ; with
    L̂ = U Λ Uᵀ, c_i = s_i² U (λΛ + (s_i² + α)I)⁻¹ Uᵀ e_i. Coefficients (h, r) of C in B, the mean squared distance of
    two rows of C, and the objective.
    """
    basis, problem = _reduced_problem(sums, view, parameters, graph_weight)
    rank = np.count_nonzero(problem.squared_singular_values)
    s2 = problem.squared_singular_values[:rank]
    values, vectors = scipy.linalg.eigh(problem.laplacian)
    damped = 1.0 / (graph_weight * np.maximum(values, 0.0)[:, None] + s2 + view.alpha)
    solution = vectors @ (damped * vectors[:rank].T) * s2
    coefficients = basis @ solution
    n = sums.n_rows
    mean = sums.totals @ coefficients / n
    scatter = float(np.sum(solution**2)) - n * float(mean @ mean)
    value = float(np.sum(view.basis.singular_values_squared) - s2 @ np.diag(solution[:rank]))
    return coefficients, 2.0 * scatter / (n - 1), value


def embed_rows(
    view: RidgeView,
    vectors: NDArray[Any],
    coefficients: NDArray[np.float64],
    parameters: Parameters,
) -> NDArray[np.float32]:
    """Rows of the embedding F (m, c); NaN for samples that the view does not have."""
    columns = _columns(view, vectors, parameters)
    rows = np.asarray(columns @ coefficients.astype(columns.dtype), dtype=np.float32)
    return rows if view.present is None else view.present.spread(rows)
