"""Orthonormal columns: nearest ones, canonical signs, W-step on the Stiefel manifold, and ridge self-representation.

With X = Q S V^T the thin SVD of a prepared view (samples in rows), the ridge solution
Z = (X X^T + alpha I)^-1 X X^T equals Q diag(f) Q^T with f = s^2 / (s^2 + alpha), so that
||z_i - z_j||^2 = ||f * (q_i - q_j)||^2: n x n never needs to exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from mscam_dask.errors import DataError


def orient_columns(vectors: NDArray[np.floating[Any]]) -> NDArray[Any]:
    """Flip columns so that the first entry of (nearly) largest magnitude is positive.

    Entries within 1e-8 of the largest (1e-6 in single precision) count as largest, so rounding does
    not decide between two entries of opposite sign.
    """
    if vectors.size == 0:
        return vectors
    tolerance = max(1e-8, 8 * float(np.finfo(vectors.dtype).eps))
    sizes = np.abs(vectors)
    first = np.argmax(sizes >= (1 - tolerance) * sizes.max(axis=0), axis=0)
    is_negative = np.take_along_axis(vectors, first[None], axis=0) < 0
    return np.where(is_negative, -vectors, vectors)


# Ratio of the squared singular values of M above which the inverse square root of its Gram matrix,
# several times faster, loses less than two digits against the SVD.
_WELL_CONDITIONED = 1e-2


def polar_factor(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solve argmax_w tr(w^T M) over w^T w = I, also the orthonormal matrix nearest to M (h, c).

    U V^T of the thin SVD M = U S V^T, through M (M^T M)^{-1/2} where M is well conditioned. By
    LAPACK directly, because for few columns wrappers cost more than the work.
    """
    if not matrix.shape[1]:
        return matrix
    gram = matrix.T @ matrix
    if not np.isfinite(gram).all():
        raise DataError("a matrix to orthonormalize holds NaN or infinity; check the view's scale.")
    values, rotation, failed = scipy.linalg.lapack.dsyevd(gram.T, overwrite_a=1)
    if failed or values[0] <= _WELL_CONDITIONED * values[-1]:
        left, _, right = scipy.linalg.svd(matrix, full_matrices=False)
        return np.asarray(left @ right, dtype=np.float64)
    inverse_root = (rotation / np.sqrt(values)) @ rotation.T
    return np.asarray(matrix @ inverse_root, dtype=np.float64)


def power_steps(
    quadratic: NDArray[np.float64],
    linear: NDArray[np.float64],
    start: NDArray[np.float64],
    *,
    n_steps: int,
    largest_eigenvalue: float,
) -> NDArray[np.float64]:
    """Minimize tr(w^T L w) - 2 tr(w^T E) over w^T w = I by steps of generalized power iteration.

    With sigma >= lambda_max(L) the function is, up to a constant on the manifold, minus the convex
    tr(w^T (sigma I - L) w) + 2 tr(w^T E); maximizing its linearization at w gives w <- polar((sigma
    I - L) w + E), and the objective never rises. There is no closed form (the paper's Eq. (22) is
    not one).

    F. Nie, R. Zhang, X. Li, doi:10.1007/s11432-016-9021-9.
    """
    point = start
    for _ in range(n_steps):
        point = polar_factor(largest_eigenvalue * point - quadratic @ point + linear)
    return point


# ridge -------------------------------------------------------------------------------------------


# Relative to the largest squared singular value. A Gram matrix knows s^2 to about
# 1e-15 s_max^2, so directions above this have at least five digits.
RANK_TOLERANCE = 1e-10


@dataclass(frozen=True, slots=True)
class Basis:
    """Left singular vectors of a view and their squared singular values."""

    vectors: NDArray[Any]  # (n, r) orthonormal columns Q, oriented
    singular_values_squared: NDArray[np.float64]  # (r,) s^2 > 0, descending

    @property
    def rank(self) -> int:
        """Number of directions, r."""
        return len(self.singular_values_squared)


def basis_from_rows(rows: NDArray[np.float64]) -> Basis:
    """Thin SVD X = Q S V^T of rows (n, d) through the smaller of X^T X and X X^T; r = 0 for zeros."""
    n, d = rows.shape
    if n < d:
        return basis_from_kernel(rows @ rows.T)
    components, s2 = basis_from_gram(rows.T @ rows)
    vectors = polar_factor(rows @ (components / np.sqrt(s2)))
    return Basis(orient_columns(vectors), s2)


def basis_from_gram(gram: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Eigenvectors V (d, r) and eigenvalues s^2 (r,) of X^T X (d, d), descending."""
    if not np.isfinite(gram).all():
        raise DataError(
            "a Gram or kernel matrix holds NaN or infinity: the view does, or its values are "
            "too large to be squared. Clean it or choose a scaling."
        )
    d = len(gram)
    symmetric = 0.5 * (gram + gram.T)
    # where many eigenvalues are equal (a graph as a view) divide and conquer is six times as fast
    values, vectors = scipy.linalg.eigh(symmetric, overwrite_a=True, driver="evd")
    values, vectors = values[::-1], vectors[:, ::-1]
    keep = values > max(0.0, RANK_TOLERANCE * values[0]) if d else np.zeros(0, dtype=bool)
    return np.ascontiguousarray(vectors[:, keep]), np.ascontiguousarray(values[keep])


def basis_from_kernel(
    kernel: NDArray[np.float64],
) -> Basis:
    """Basis of the feature space of a kernel K = X X^T (n, n); negative eigenvalues are dropped."""
    vectors, s2 = basis_from_gram(kernel)
    return Basis(orient_columns(vectors), s2)


def shrinkage_factors(
    singular_values_squared: NDArray[np.float64], alpha: float
) -> NDArray[np.float64]:
    """Gains f = s^2 / (s^2 + alpha) in [0, 1), the eigenvalues of the ridge self-representation."""
    gains: NDArray[np.float64] = singular_values_squared / (singular_values_squared + alpha)
    return gains
