"""Steps of the reference algorithms on dense matrices.

Columns of X are samples, as in the paper; only the Gram matrix K = XᵀX enters. The augmented
Lagrangian of one view, given the graph, is

    ‖X − XZ‖² + α‖Z‖² + τ‖P‖² + λ tr(WᵀLW)
        + μ/2 ‖W − ZᵀP + Y⁽¹⁾/μ‖² + μ/2 ‖M − P + Y⁽²⁾/μ‖²,        WᵀW = I_c.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.linalg.adaptive_neighbors import adaptive_neighbor_weights
from mscam_dask.linalg.laplacian import graph_from_neighbors
from mscam_dask.linalg.stiefel import polar_factor, stiefel_quadratic
from mscam_dask.solvers.reference.options import ReferenceCorrections, ReferenceOptions

__all__ = [
    "ViewState",
    "a_step",
    "initial_state",
    "m_step",
    "multipliers",
    "p_step",
    "view_iteration",
    "w_step",
    "z_step",
    "z_step_mscan",
]


@dataclasses.dataclass(frozen=True, slots=True)
class ViewState:
    """Iterates of the ADMM of a view.

    Attributes
    ----------
    Z : (n, n)
        Self-representation.
    P, M, W : (n, c)
        Metric factor, its copy, and the copy of F = ZᵀP on the Stiefel manifold.
    Y1, Y2 : (n, c)
        Multipliers of W = ZᵀP and M = P.
    penalty : float
        μ of the next iteration.
    """

    Z: NDArray[np.float64]
    P: NDArray[np.float64]
    M: NDArray[np.float64]
    W: NDArray[np.float64]
    Y1: NDArray[np.float64]
    Y2: NDArray[np.float64]
    penalty: float

    @property
    def embedding(self) -> NDArray[np.float64]:
        """F = ZᵀP, (n, c)."""
        return np.asarray(self.Z.T @ self.P, dtype=np.float64)


def initial_state(start: NDArray[np.float64], penalty: float) -> ViewState:
    """Initial iterates: W = P = M = start (n, c), orthonormal; Z and both multipliers zero."""
    n = len(start)
    zero = np.zeros_like(start)
    return ViewState(np.zeros((n, n)), start, start, start, zero, zero, penalty)


def z_step(gram: NDArray[np.float64], state: ViewState, *, ridge: float) -> NDArray[np.float64]:
    """Solve min_Z ‖X − XZ‖² + ridge‖Z‖² + μ/2 ‖W − ZᵀP + Y⁽¹⁾/μ‖², Eq. (15)-(16).

    Parameters
    ----------
    gram : (n, n)
        K = XᵀX.
    state : ViewState
    ridge : float
        α. (Eq. (16) prints λ: slip 1.)

    Returns
    -------
    Z : (n, n)
        Solution of (K + ridge I + μ/2 PPᵀ) Z = K + P (μW + Y⁽¹⁾)ᵀ / 2.
    """
    mu = state.penalty
    system = gram + ridge * np.eye(len(gram)) + 0.5 * mu * (state.P @ state.P.T)
    target = gram + 0.5 * state.P @ (mu * state.W + state.Y1).T
    return np.asarray(scipy.linalg.solve(system, target, assume_a="pos"), dtype=np.float64)


def p_step(
    Z: NDArray[np.float64], state: ViewState, *, corrections: ReferenceCorrections
) -> NDArray[np.float64]:
    """Solve min_P τ‖P‖² + μ/2 ‖W − ZᵀP + Y⁽¹⁾/μ‖² + μ/2 ‖M − P + Y⁽²⁾/μ‖².

    Parameters
    ----------
    Z : (n, n)
    state : ViewState
    corrections : ReferenceCorrections
        Determines τ and whether the last term is present.

    Returns
    -------
    P : (n, c)
        Solution of (ZZᵀ + (2τ/μ + 1) I) P = Z (W + Y⁽¹⁾/μ) + M + Y⁽²⁾/μ; without the split the terms of M
        and the 1 are dropped; if also τ = 0, P is the least-squares solution of least norm.
    """
    mu = state.penalty
    target = state.W + state.Y1 / mu
    split = 1.0 if corrections.keep_metric_split else 0.0
    diagonal = 2.0 * corrections.metric_ridge / mu + split
    if diagonal == 0.0:
        return np.asarray(scipy.linalg.lstsq(Z.T, target)[0], dtype=np.float64)
    system = Z @ Z.T + diagonal * np.eye(len(Z))
    rhs = Z @ target + split * (state.M + state.Y2 / mu)
    return np.asarray(scipy.linalg.solve(system, rhs, assume_a="pos"), dtype=np.float64)


def m_step(P: NDArray[np.float64], state: ViewState) -> NDArray[np.float64]:
    """Solve min_M μ/2 ‖M − P + Y⁽²⁾/μ‖²: M = P − Y⁽²⁾/μ."""
    return P - state.Y2 / state.penalty


def w_step(
    laplacian: NDArray[np.float64],
    target: NDArray[np.float64],
    *,
    start: NDArray[np.float64],
    eta: float,
    settings: ReferenceOptions,
    w_subspace: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Solve min_W tr(WᵀLW) − 2η tr(WᵀE) over WᵀW = I, Eq. (21), or evaluate the printed Eq. (22).

    Parameters
    ----------
    laplacian : (n, n)
        L, dense.
    target : (n, c)
        E = ZᵀP − Y⁽¹⁾/μ.
    start : (n, c)
        Previous W, the start of the descent.
    eta : float
        η = μ / 2λ.
    settings : ReferenceOptions
        ``corrections.w_update`` and ``stiefel_iterations``.
    w_subspace : (n, h), optional
        H, orthonormal columns; W is restricted to span(H), as in the reduced solver.

    Returns
    -------
    W : (n, c)
        Orthonormal columns.

    Notes
    -----
    Slip 3: with RRᵀ = L + ηI the paper completes the square with (R⁻¹)ᵀR in place of
    R⁻ᵀRᵀ = I, then takes W = V I Uᵀ from the singular vectors U S Vᵀ = Eᵀ(R⁻¹)ᵀR, as if the
    quadratic term were constant on the manifold. R is the Cholesky factor here.
    """
    if settings.corrections.w_update == "printed":
        R = scipy.linalg.cholesky(laplacian + eta * np.eye(len(laplacian)), lower=True)
        # (Eᵀ R⁻ᵀ R)ᵀ = Rᵀ R⁻¹ E, whose polar factor is V I Uᵀ
        matrix = R.T @ scipy.linalg.solve_triangular(R, target, lower=True)
        return polar_factor(np.asarray(matrix, dtype=np.float64))
    bound = float(2.0 * laplacian.diagonal().max())  # Gershgorin
    subspace = np.eye(len(start)) if w_subspace is None else w_subspace
    result = stiefel_quadratic(
        subspace.T @ laplacian @ subspace,
        eta * (subspace.T @ target),
        subspace.T @ start,
        max_iterations=settings.stiefel_iterations,
        largest_eigenvalue=bound,
    )
    return np.asarray(subspace @ result.point, dtype=np.float64)


def multipliers(
    state: ViewState, *, keep_second: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Updated multipliers Y⁽¹⁾ + μ(W − ZᵀP) and Y⁽²⁾ + μ(M − P); the second is zero if not kept.

    Notes
    -----
    Slip 2: after M = P − Y⁽²⁾/μ the second multiplier is always Y⁽²⁾ − Y⁽²⁾ = 0.
    """
    first = state.Y1 + state.penalty * (state.W - state.embedding)
    second = state.Y2 + state.penalty * (state.M - state.P)
    return first, second if keep_second else np.zeros_like(second)


def view_iteration(
    gram: NDArray[np.float64],
    laplacian: NDArray[np.float64],
    state: ViewState,
    *,
    settings: ReferenceOptions,
    graph_weight: float,
    w_subspace: NDArray[np.float64] | None = None,
) -> ViewState:
    """One iteration Z, P, M, W, Y⁽¹⁾, Y⁽²⁾, μ of Algorithm 2 for one view.

    Parameters
    ----------
    gram, laplacian : (n, n)
    state : ViewState
    settings : ReferenceOptions
    graph_weight : float
        λ.
    w_subspace : (n, h), optional
        As in `w_step`.

    Returns
    -------
    ViewState
    """
    corrections = settings.corrections
    ridge = settings.alpha if corrections.z_ridge == "corrected" else graph_weight
    Z = z_step(gram, state, ridge=ridge)
    P = p_step(Z, state, corrections=corrections)
    M = m_step(P, state)
    W = w_step(
        laplacian,
        Z.T @ P - state.Y1 / state.penalty,
        start=state.W,
        eta=state.penalty / (2.0 * graph_weight),
        settings=settings,
        w_subspace=w_subspace,
    )
    moved = dataclasses.replace(state, Z=Z, P=P, M=M, W=W)
    Y1, Y2 = multipliers(moved, keep_second=corrections.keep_second_multiplier)
    penalty = state.penalty * settings.admm.penalty_growth
    return dataclasses.replace(moved, Y1=Y1, Y2=Y2, penalty=penalty)


def z_step_mscan(
    gram: NDArray[np.float64],
    laplacian: NDArray[np.float64],
    *,
    alpha: float,
    graph_weight: float,
) -> NDArray[np.float64]:
    """Solve min_Z ‖X − XZ‖² + α‖Z‖² + λ tr(Z L Zᵀ), the Z-step of Algorithm 1.

    Returns
    -------
    Z : (n, n)
        Solution of the Sylvester equation (K + αI) Z + λ Z L = K.

    Notes
    -----
    λ is the weight of the trace, as in Eq. (11). To weight the sum Σ a_ij ‖z_i − z_j‖², which is
    2 tr(Z L Zᵀ), by λ, pass 2λ.
    """
    system = gram + alpha * np.eye(len(gram))
    return np.asarray(
        scipy.linalg.solve_sylvester(system, graph_weight * laplacian, gram), dtype=np.float64
    )


def a_step(squared_distances: NDArray[np.float64], n_neighbors: int) -> csr_array[np.float64]:
    """Solve min Σ_j d_ij a_ij + γ_i a_ij² on the simplex for every row of A, Eq. (29)-(30).

    Parameters
    ----------
    squared_distances : (n, n)
        d, summed over the views; the diagonal does not matter.
    n_neighbors : int
        k, at most n − 1; for k = n − 1 the distance to the missing (k + 1)-th is d_k.

    Returns
    -------
    A : (n, n) CSR
        Rows on the simplex, zero diagonal. A common factor on all distances, as λ is in the
        printed algorithm, does not change the result.
    """
    d = squared_distances.copy()
    np.fill_diagonal(d, np.inf)
    order = np.argsort(d, axis=1, kind="stable")
    nearest = np.take_along_axis(d, order[:, : n_neighbors + 1], axis=1)
    if n_neighbors == len(d) - 1:
        nearest[:, -1] = nearest[:, -2]
    weights = adaptive_neighbor_weights(nearest)
    return graph_from_neighbors(order[:, :n_neighbors].astype(np.int64), weights)
