"""SSC: each sample as a sparse combination of the others, in one view or all concatenated.

    min ‖C‖₁ + (λ_z/2) ‖X − CᵀX‖²   over diag(C) = 0      (samples in the rows of X)

solved by the alternating direction method of multipliers; the labels are the spectral clustering of |C| + |C|ᵀ.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mscam_dask.benchmark.baselines.base import (
    SingleViewBaseline,
    View,
    require_number,
)
from mscam_dask.benchmark.baselines.spectral import spectral_labels
from mscam_dask.data.views.as_multi_view import MultiViewData
from mscam_dask.errors import DataError
from mscam_dask.linalg.ridge import basis_from_rows

__all__ = ["SSC"]

_SINGLE_PRECISION_TOL = 1e-5
"""Minimum tol for single precision: entries of C are about 1, so float32 has two more digits."""


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class SSC(SingleViewBaseline):
    """Sparse subspace clustering of one view (SSC-BSV) or of all views concatenated (SSC-Concat).

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
    n_clusters, scale, view_type, n_features_per_view, random_state, memory_limit_bytes
        See `Baseline`.

    Attributes
    ----------
    labels_ : (n_samples,) int64
    coefficients_ : (n_samples, n_samples)
        C: column j represents sample j; zero diagonal, sparse in value.
    residual_ : float
        Largest difference between the two copies of C.
    n_iter_ : int

    Notes
    -----
    The linear step (λ_z XXᵀ + ρI)⁻¹ is applied through the singular directions of X, 4 n² r flops
    per iteration, r = rank X, instead of 2 n³; six dense (n, n) arrays. The affine constraint
    1ᵀC = 1ᵀ of the paper's variant for motion segmentation is left out: features here are centered.

    References
    ----------
    E. Elhamifar, R. Vidal, "Sparse subspace clustering: algorithm, theory, and applications",
    IEEE TPAMI 35 (2013), doi:10.1109/TPAMI.2013.57.
    """

    _title: ClassVar[str] = "SSC"
    _square_matrices: ClassVar[int] = 6

    alpha: float = 20.0
    max_iter: int = 200
    tol: float = 2e-4
    n_init: int = 20

    def _check(self, data: MultiViewData) -> None:
        require_number("alpha", self.alpha)
        require_number("tol", self.tol)

    def _cluster(self, views: tuple[View, ...], rng: np.random.Generator) -> NDArray[np.int64]:
        rows = views[0] if len(views) == 1 else np.hstack(views)
        C = self._sparse_representation(rows)
        self.coefficients_ = C
        magnitude = np.abs(C)
        largest = magnitude.max(axis=0)
        magnitude /= np.where(largest > 0, largest, 1.0)
        return spectral_labels(
            magnitude + magnitude.T, self.n_clusters, n_init=self.n_init, rng=rng
        )

    def _sparse_representation(self, rows: View) -> NDArray[np.float64]:
        """C by ADMM with the copy Z of C under the quadratic term."""
        n = len(rows)
        fidelity = self.alpha / _smallest_reach(rows)
        basis = basis_from_rows(rows)
        Q, s2 = basis.vectors, basis.singular_values_squared
        # (λ_z XXᵀ + ρI)⁻¹ (λ_z XXᵀ + ρT) = T + Q diag(gains) Qᵀ (I − T)
        gains = fidelity * s2 / (fidelity * s2 + self.alpha)
        precision: type[np.float32 | np.float64] = np.float64
        if self.tol >= _SINGLE_PRECISION_TOL:
            precision = np.float32
        loadings = np.asarray(Q * gains, dtype=precision)
        directions: NDArray[Any] = np.asarray(Q.T, dtype=precision, order="C")
        C: NDArray[Any] = np.zeros((n, n), dtype=precision)
        dual, Z, update = np.zeros_like(C), np.zeros_like(C), np.zeros_like(C)
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
            self.residual_ = float(max(Z.max(), -Z.min()))
            self.n_iter_ = iteration
            if self.residual_ <= self.tol:
                return np.asarray(C, dtype=np.float64)
        self._warn(
            f"SSC stopped after max_iter={self.max_iter} iterations with a difference of "
            f"{self.residual_:.1e} between the copies of C (tol={self.tol}). Raise max_iter or tol.",
            stacklevel=5,
        )
        return np.asarray(C, dtype=np.float64)


def _smallest_reach(rows: View) -> float:
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
