"""Steps and options of the reference algorithms on dense matrices.

Columns of X are samples, as in the paper; only the Gram matrix K = XᵀX enters. The augmented
Lagrangian of one view, given the graph, is

    ‖X − XZ‖² + α‖Z‖² + τ‖P‖² + λ tr(WᵀLW)
        + μ/2 ‖W − ZᵀP + Y⁽¹⁾/μ‖² + μ/2 ‖M − P + Y⁽²⁾/μ‖²,        WᵀW = I_c.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.errors import ConfigurationError
from mscam_dask.linalg.laplacian import graph_from_neighbors
from mscam_dask.linalg.orthonormal import polar_factor, stiefel_quadratic
from mscam_dask.solvers.graph_update import adaptive_neighbor_weights
from mscam_dask.types.parameters import AdmmSettings


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


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ReferenceCorrections:
    """Switches for the published slips; the defaults correct all of them.

    docs/departures-from-the-paper.md lists the slips under the same numbers.

    Attributes
    ----------
    z_ridge : {"corrected", "printed"}
        Slip 1. The ridge term of the Z-step: αI, the derivative of Eq. (15), or λI as Eq. (16)
        prints it.
    keep_metric_split : bool
        Slip 2. Keep the splitting variable M = P: a proximal term ‖P − P_before‖² μ/2 in the
        P-step, which is its only effect.
    keep_second_multiplier : bool
        Slip 2. Keep the multiplier Y⁽²⁾ of M = P, which is always zero; requires the split.
    w_update : {"stiefel", "printed"}
        Slip 3. Solve the W-step on the Stiefel manifold, or take the closed form of Eq. (22).
    identity_weight : float
        Slip 4. Weight ≥ 0 of the data distances in the A-step, M_v = wI + P_v P_vᵀ; 0 as
        printed.
    metric_ridge : float
        Slip 4. τ ≥ 0 of τ‖P_v‖² in the P-step; 0 as printed.
    rank_control : bool
        Slip 5. Control λ until there are exactly c components. For MSCAM it requires a positive
        `identity_weight`, without which the A-step does not depend on λ.

    Raises
    ------
    ConfigurationError
        A number is negative, or a switch is set without the one it requires.
    """

    z_ridge: Literal["corrected", "printed"] = "corrected"
    keep_metric_split: bool = False
    keep_second_multiplier: bool = False
    w_update: Literal["stiefel", "printed"] = "stiefel"
    identity_weight: float = 1.0
    metric_ridge: float = 1.0
    rank_control: bool = True

    def __post_init__(self) -> None:
        for name in ("identity_weight", "metric_ridge"):
            if not getattr(self, name) >= 0:
                raise ConfigurationError(
                    f"{name}={getattr(self, name)!r} is not usable: allowed is a number >= 0 "
                    "(0 as printed)."
                )
        if self.keep_second_multiplier and not self.keep_metric_split:
            raise ConfigurationError(
                "keep_second_multiplier=True without keep_metric_split: Y2 belongs to the "
                "constraint M = P. Keep both or neither."
            )
        if self.rank_control and self.identity_weight == 0:
            raise ConfigurationError(
                "rank_control=True with identity_weight=0: the printed A-step does not depend on "
                "the graph weight. Set identity_weight > 0, or rank_control=False."
            )

    @classmethod
    def printed(cls) -> ReferenceCorrections:
        """Switches for the algorithms exactly as published, with all slips."""
        return cls(
            z_ridge="printed",
            keep_metric_split=True,
            keep_second_multiplier=True,
            w_update="printed",
            identity_weight=0.0,
            metric_ridge=0.0,
            rank_control=False,
        )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ReferenceOptions:
    """Options of Algorithms 1 and 2.

    Attributes
    ----------
    n_clusters, n_neighbors : int
        c and k.
    alpha, graph_weight : float
        α > 0 and the first λ > 0.
    view_alphas : tuple of float, optional
        α of each view if they differ; overrides `alpha`.
    graph_weight_growth : float
        Factor > 1 of the rank control.
    max_iter : int
        Most A-steps.
    tol : float
        Stop when the graph changes by less than this, as a share of ‖A‖_F.
    stiefel_iterations : int
        Most descent steps of one W-step.
    admm : AdmmSettings
        Penalty μ, growth ρ and stopping rule of the ADMM of a view.
    corrections : ReferenceCorrections
    """

    n_clusters: int
    n_neighbors: int = 9
    alpha: float = 1.0
    view_alphas: tuple[float, ...] | None = None
    graph_weight: float = 0.1
    graph_weight_growth: float = 1.3
    max_iter: int = 30
    tol: float = 1e-6
    stiefel_iterations: int = 5
    admm: AdmmSettings = dataclasses.field(default_factory=AdmmSettings)
    corrections: ReferenceCorrections = ReferenceCorrections()

    def __post_init__(self) -> None:
        for name in ("n_clusters", "n_neighbors", "max_iter", "stiefel_iterations"):
            if getattr(self, name) < 1:
                raise ConfigurationError(
                    f"{name}={getattr(self, name)!r} is not usable: allowed is a whole number >= 1."
                )
        for name in ("alpha", "graph_weight"):
            if not getattr(self, name) > 0:
                raise ConfigurationError(
                    f"{name}={getattr(self, name)!r} is not usable: allowed is a number > 0."
                )
        if self.view_alphas is not None and not all(alpha > 0 for alpha in self.view_alphas):
            raise ConfigurationError(
                f"view_alphas={self.view_alphas!r} is not usable: allowed are numbers > 0."
            )
        if not self.graph_weight_growth > 1:
            raise ConfigurationError(
                f"graph_weight_growth={self.graph_weight_growth!r} is not usable: allowed is a "
                "number > 1."
            )

    def of_views(self, n_views: int) -> tuple[ReferenceOptions, ...]:
        """Options of each view.

        Raises
        ------
        ConfigurationError
            `view_alphas` has another length than `n_views`.
        """
        if self.view_alphas is None:
            return (self,) * n_views
        if len(self.view_alphas) != n_views:
            raise ConfigurationError(
                f"view_alphas has {len(self.view_alphas)} values for {n_views} view(s); allowed is "
                "one for each of them."
            )
        return tuple(
            dataclasses.replace(self, alpha=alpha, view_alphas=None) for alpha in self.view_alphas
        )
