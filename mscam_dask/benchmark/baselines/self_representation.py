"""Self-representation: each sample as a combination of the others (SSC, DiMSC)."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.benchmark.baselines.base import (
    Array,
    Baseline,
    Labels,
    SingleViewBaseline,
    check_most,
)
from mscam_dask.benchmark.baselines.spectral import neighbor_affinity, spectral_labels
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.errors import DataError
from mscam_dask.linalg.laplacian import laplacian
from mscam_dask.linalg.orthonormal import Basis, basis_from_rows, shrinkage_factors
from mscam_dask.types.allowed import Count, NotNegative, Positive

_SINGLE_PRECISION_TOL = 1e-5
"""Minimum tol for single precision: entries of C are about 1, so float32 has two more digits."""


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class SSC(SingleViewBaseline):
    """Sparse subspace clustering of one view (SSC-BSV) or of all views concatenated (SSC-Concat).

        min ‖C‖₁ + (λ_z/2) ‖X − CᵀX‖²   over diag(C) = 0      (samples in the rows of X)

    solved by the alternating direction method of multipliers; the labels are the spectral clustering of |C| + |C|ᵀ.

    Parameters
    ----------
    alpha : float, default=20.0
        λ_z = alpha / μ_z with μ_z = min_i max_{j≠i} |x_i·x_j|, below which some sample has
        no nonzero coefficient; α is also the penalty of the ADMM.
    max_iter : int, default=200
        As in the authors' code.
    tol : float, default=2e-4
        Stop when no entry of the two copies of C differs by more. From 1e-5 the iterations run in
        single precision.
    n_init : int, default=20
        Number of k-means starts.

    Attributes
    ----------
    coefficients_ : (n_samples, n_samples)
        C: column j represents sample j; zero diagonal, sparse in value.
    n_iter_ : int

    Notes
    -----
    The linear step (λ_z XXᵀ + ρI)⁻¹ is applied through the singular directions of X, 4 n² r flops
    per iteration, r = rank X, instead of 2 n³; six dense (n, n) arrays. The affine constraint
    1ᵀC = 1ᵀ of the paper's variant for motion segmentation is left out: features here are centered.

    E. Elhamifar, R. Vidal, IEEE TPAMI 35 (2013), doi:10.1109/TPAMI.2013.57.
    """

    _title: ClassVar[str] = "SSC"
    _square_matrices: ClassVar[int] = 6

    alpha: Positive = 20.0
    max_iter: Count = 200
    tol: Positive = 2e-4
    n_init: Count = 20

    def _cluster(self, views: tuple[Array, ...], rng: np.random.Generator) -> Labels:
        rows = np.hstack(views)
        n = len(rows)
        basis = basis_from_rows(rows)
        # ADMM with the copy Z of C under the quadratic term:
        # (λ_z XXᵀ + ρI)⁻¹ (λ_z XXᵀ + ρT) = T + Q diag(gains) Qᵀ (I − T), as ρ = α = λ_z μ_z
        gains = shrinkage_factors(basis.singular_values_squared, smallest_reach(rows))
        precision: Any = np.float32 if self.tol >= _SINGLE_PRECISION_TOL else np.float64
        loadings = np.asarray(basis.vectors * gains, dtype=precision)
        directions: NDArray[Any] = np.asarray(basis.vectors.T, dtype=precision, order="C")
        C, dual, Z, update = (np.zeros((n, n), dtype=precision) for _ in range(4))
        threshold = precision(1.0 / self.alpha)
        for iteration in range(1, self.max_iter + 1):
            np.subtract(C, dual, out=Z)
            Z += np.matmul(loadings, directions - directions @ Z, out=update)
            dual += Z  # scaled by 1/ρ
            np.clip(dual, -threshold, threshold, out=update)
            np.subtract(dual, update, out=C)  # soft threshold
            np.fill_diagonal(update, dual.diagonal())
            np.fill_diagonal(C, 0.0)
            dual, update = update, dual
            Z -= C
            self.n_iter_ = iteration
            if max(Z.max(), -Z.min()) <= self.tol:
                break
        else:
            self._warn_not_settled()
        self.coefficients_: Array = np.asarray(C, dtype=np.float64)
        magnitude = np.abs(self.coefficients_)
        largest = magnitude.max(axis=0)
        magnitude /= np.where(largest > 0, largest, 1.0)
        return spectral_labels(magnitude + magnitude.T, self.n_clusters, self.n_init, rng)


def smallest_reach(rows: Array) -> float:
    """μ_z = min_i max_{j≠i} |x_i·x_j| over the samples that are not orthogonal to all others."""
    products = np.abs(rows @ rows.T)
    np.fill_diagonal(products, 0.0)
    reach = products.max(axis=1)
    # Products of orthogonal samples are rounding errors.
    reach = reach[reach > 1e-12 * reach.max(initial=0.0)]
    if reach.size == 0:
        raise DataError(
            "all samples are orthogonal to each other, so none can be represented by the others. "
            "Use other features or another scale."
        )
    return float(reach.min())


@dataclasses.dataclass(slots=True)
class _ViewState:
    """One view: X Xᵀ = Q diag(s²) Qᵀ over samples, λ_S L (sparse), and Z = Q C."""

    basis: Basis
    smoothness: csr_array[np.float64]
    coefficients: Array

    def dependence(self) -> Array:
        """H ZᵀZ H, (n, n)."""
        centered = self.coefficients - self.coefficients.mean(axis=1, keepdims=True)
        return np.asarray(centered.T @ centered, dtype=np.float64)

    def own_cost(self) -> float:
        """‖X − XZ‖² + λ_S tr(Z L Zᵀ)."""
        gap = self.basis.vectors.T - self.coefficients
        fit = float(self.basis.singular_values_squared @ np.sum(gap**2, axis=1))
        columns = self.coefficients.T
        return fit + float(np.vdot(np.asarray(self.smoothness @ columns), columns))


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class DiMSC(Baseline):
    """Diversity-induced multi-view subspace clustering.

        min Σ_v ‖X_v − X_vZ_v‖² + λ_S Σ_v tr(Z_v L_v Z_vᵀ) + λ_V Σ_{v<w} tr(Z_vᵀZ_v H Z_wᵀZ_w H)

    with the samples in the columns of X_v here, L_v the Laplacian of the view's neighbor graph and
    H = I − 11ᵀ/n. Given the other views, each Z_v solves a Sylvester equation.

    Parameters
    ----------
    smoothness : float, default=0.02
        λ_S, in units of squared features; the paper tries 0.01 to 0.03.
    diversity : float, default=100.0
        λ_V, in the same unit; the paper tries 20 to 180.
    n_neighbors : int, default=5
        Neighbors in the graph of the smoothness term.
    max_iter : int, default=20
    tol : float, default=1e-3
        Stop when the objective falls by less than this share.
    n_init : int, default=20
        Number of k-means starts.

    Attributes
    ----------
    objective_ : tuple of float
        After each pass over the views; nonincreasing.
    n_iter_ : int

    Notes
    -----
    λ_S and λ_V have no natural unit: the smaller they are relative to XXᵀ, the closer Z is to the
    projection on the rows of X, which does not depend on clusters.

    XᵀX Z + Z B = XᵀX with B = λ_S L + λ_V Σ_w H Z_wᵀZ_w H, solved through the eigenvectors of both
    matrices: 9 n³ flops per view and pass. 2V + 5 dense (n, n) arrays. The factor (n−1)⁻² of the
    HSIC is part of λ_V, as in the paper.

    X. Cao et al., CVPR 2015, doi:10.1109/CVPR.2015.7298657.
    """

    _title: ClassVar[str] = "DiMSC"
    _square_matrices: ClassVar[int] = 5
    _square_matrices_per_view: ClassVar[int] = 2

    smoothness: Positive = 0.02
    diversity: NotNegative = 100.0
    n_neighbors: Count = 5
    max_iter: Count = 20
    tol: NotNegative = 1e-3
    n_init: Count = 20

    def _check(self, data: MultiViewData) -> None:
        check_most("n_neighbors", self.n_neighbors, data.n_samples - 1, f"{data.n_samples} samples")

    def _cluster(self, views: tuple[Array, ...], rng: np.random.Generator) -> Labels:
        states = [self._start(view) for view in views]
        dependences = [state.dependence() for state in states]
        total = np.sum(dependences, axis=0)
        for objective in self._until_settled():
            for position, state in enumerate(states):
                total -= dependences[position]
                coupling = self.diversity * total + state.smoothness
                state.coefficients = solve_view(state.basis, coupling)
                dependences[position] = state.dependence()
                total += dependences[position]
            # Sum of tr(K_v H K_w H) over v < w: half of the sum over all v ≠ w.
            pairs = float(np.vdot(total, total) - sum(np.vdot(K, K) for K in dependences)) / 2
            objective.append(sum(state.own_cost() for state in states) + self.diversity * pairs)
        magnitude = np.zeros_like(total)
        for state in states:
            magnitude += np.abs(state.basis.vectors @ state.coefficients)
        return spectral_labels(magnitude + magnitude.T, self.n_clusters, self.n_init, rng)

    def _start(self, view: Array) -> _ViewState:
        """Initial state of a view: its Z without the diversity term."""
        basis = basis_from_rows(view)
        graph = laplacian(neighbor_affinity(view, self.n_neighbors))
        smoothness = csr_array(self.smoothness * graph)
        return _ViewState(basis, smoothness, solve_view(basis, smoothness.toarray()))


def solve_view(basis: Basis, coupling: Array) -> Array:
    """Solve XᵀX Z + Z B = XᵀX for Z = Q C: rows c_i = s_i² (s_i² I + B)⁻¹ q_i of C (r, n).

    `basis` has Q (n, r) and s² (r,) with XᵀX = Q diag(s²) Qᵀ; B (n, n) is positive semi-definite.
    """
    values, P = scipy.linalg.eigh(coupling, driver="evd")
    s2 = basis.singular_values_squared
    shares = s2 / (s2 + np.maximum(values, 0.0)[:, None])
    return np.ascontiguousarray((P @ (shares * (P.T @ basis.vectors))).T)
