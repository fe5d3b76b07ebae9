"""Ridge self-representation through an orthonormal basis of the samples.

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
from mscam_dask.linalg.orthonormal import orient_columns, polar_factor

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
