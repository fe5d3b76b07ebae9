"""Orthonormal columns: orthonormalization, canonical signs, W-step on the Stiefel manifold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from mscam_dask.errors import ConfigurationError, DataError

# ||Q^T Q - I||_F up to which Newton-Schulz is used, and at which it stops.
_NEWTON_SCHULZ_MAX, _NEWTON_SCHULZ_DONE = 1e-2, 1e-14

_BLOCK_ENTRIES = 1 << 17


def orthonormalize_nearby(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solve argmin_Q ||Q - vectors||_F over Q^T Q = I: vectors (vectors^T vectors)^{-1/2}.

    Newton-Schulz, Q <- Q (3 I - Q^T Q) / 2, squares the error of columns that are nearly
    orthonormal; others take the inverse root by the eigenvectors of their Gram matrix.
    """
    identity = np.eye(vectors.shape[1])
    gram = vectors.T @ vectors
    error = float(np.linalg.norm(gram - identity))
    while _NEWTON_SCHULZ_DONE < error <= _NEWTON_SCHULZ_MAX:
        vectors = 1.5 * vectors - 0.5 * (vectors @ gram)
        error *= error  # an upper bound, so the last Gram matrix need not be formed
        if error > _NEWTON_SCHULZ_DONE:
            gram = vectors.T @ vectors
            error = float(np.linalg.norm(gram - identity))
    if error <= _NEWTON_SCHULZ_MAX:
        return vectors
    return np.asarray(vectors @ inverse_root(gram), dtype=np.float64)


def inverse_root(gram: NDArray[np.float64]) -> NDArray[np.float64]:
    """Inverse square root G^{-1/2} of a symmetric positive definite matrix (r, r)."""
    values, rotation = scipy.linalg.eigh(gram)
    return np.asarray((rotation / np.sqrt(values)) @ rotation.T, dtype=np.float64)


def orient_columns(vectors: NDArray[np.floating[Any]]) -> NDArray[Any]:
    """Flip columns so that the first entry of (nearly) largest magnitude is positive.

    Entries within 1e-8 of the largest (1e-6 in single precision) count as largest, so rounding does
    not decide between two entries of opposite sign.
    """
    return vectors * column_signs(vectors).astype(vectors.dtype, copy=False)


def column_signs(vectors: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Signs (m,), 1 or -1, by which `orient_columns` multiplies the columns."""
    n, m = vectors.shape
    signs = np.ones(m)
    if vectors.size == 0:
        return signs
    tolerance = max(1e-8, 8 * float(np.finfo(vectors.dtype).eps))
    largest = np.maximum(vectors.max(axis=0), -vectors.min(axis=0))
    wanted = np.arange(m)
    step = max(1, _BLOCK_ENTRIES // m)
    for start in range(0, n, step):
        block = vectors[start : start + step, wanted]
        reached = np.abs(block) >= (1 - tolerance) * largest[wanted]
        met = reached.any(axis=0)
        first = block[np.argmax(reached, axis=0), np.arange(len(wanted))]
        signs[wanted[met & (first < 0)]] = -1.0
        wanted = wanted[~met]
        if not wanted.size:
            break
    return signs


# Ratio of the squared singular values of M above which the inverse square root of its Gram matrix,
# several times faster, loses less than two digits against the SVD.
_WELL_CONDITIONED = 1e-2


@dataclass(frozen=True, slots=True)
class StiefelResult:
    """Result of the generalized power iteration.

    Attributes
    ----------
    point : array of shape (h, c)
        w, orthonormal columns.
    objective : float
        tr(w^T L w) - 2 tr(w^T E) there; never above its value at the start.
    n_iterations : int
        Polar factors computed.
    converged : bool
        Whether the last step was within the tolerance.
    """

    point: NDArray[np.float64]
    objective: float
    n_iterations: int
    converged: bool


def polar_factor(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solve argmax_w tr(w^T M) over w^T w = I, also the orthonormal matrix nearest to M.

    Parameters
    ----------
    matrix : array of shape (h, c), h >= c
        M. Without full column rank the solution is not unique, and one of them is returned.

    Returns
    -------
    array of shape (h, c)
        U V^T of the thin SVD M = U S V^T, through M (M^T M)^{-1/2} where M is well conditioned.

    Raises
    ------
    DataError
        Fewer rows than columns (c orthonormal columns need c dimensions), or not finite.
    """
    h, c = matrix.shape
    if h < c:
        raise DataError(
            f"{c} orthonormal columns cannot exist in {h} dimensions. Widen the subspace or "
            "lower n_clusters."
        )
    return _polar(matrix)


def _polar(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Polar factor by LAPACK directly, because for few columns wrappers cost more than the work."""
    gram = matrix.T @ matrix
    if not np.isfinite(gram).all():
        raise DataError("a matrix to orthonormalize holds NaN or infinity; check the view's scale.")
    values, rotation, failed = scipy.linalg.lapack.dsyevd(gram.T, overwrite_a=1)
    if failed or values[0] <= _WELL_CONDITIONED * values[-1]:
        left, _, right = scipy.linalg.svd(matrix, full_matrices=False)
        return np.asarray(left @ right, dtype=np.float64)
    inverse_root = (rotation / np.sqrt(values)) @ rotation.T
    return np.asarray(matrix @ inverse_root, dtype=np.float64)


def stiefel_objective(
    quadratic: NDArray[np.float64], linear: NDArray[np.float64], *, point: NDArray[np.float64]
) -> float:
    """Objective tr(w^T L w) - 2 tr(w^T E); the paper's W-step with E = eta (F - Y/mu)."""
    value = np.sum(point * (quadratic @ point)) - 2.0 * np.sum(point * linear)
    return float(value)


def stiefel_quadratic(
    quadratic: NDArray[np.float64],
    linear: NDArray[np.float64],
    start: NDArray[np.float64],
    *,
    max_iterations: int = 100,
    tolerance: float = 1e-8,
    largest_eigenvalue: float | None = None,
) -> StiefelResult:
    """Minimize tr(w^T L w) - 2 tr(w^T E) over w^T w = I by generalized power iteration.

    Parameters
    ----------
    quadratic : array of shape (h, h)
        L, symmetric.
    linear : array of shape (h, c), c <= h
        E.
    start : array of shape (h, c)
        First w, orthonormal columns.
    max_iterations : int
        At most this many polar factors, at least 1.
    tolerance : float
        Stop when the root mean square, over columns, of the step is below this.
    largest_eigenvalue : float, optional
        An upper bound of the eigenvalues of L, when the caller knows it; computed
        otherwise. It must not be too small, or descent is lost.

    Raises
    ------
    ConfigurationError
        `max_iterations` below 1.
    DataError
        Shapes that do not fit, more columns than rows, or values that are not finite.

    Notes
    -----
    Generalized power iteration: with sigma >= lambda_max(L) the function is, up to a
    constant on the manifold, minus the convex tr(w^T (sigma I - L) w) + 2 tr(w^T E);
    maximizing its linearization at w gives w <- polar((sigma I - L) w + E), and the
    objective never rises. There is no closed form (the paper's Eq. (22) is not one).
    O(h^2 c + h c^2) flops per iteration, O(h^3) once for sigma.

    References
    ----------
    F. Nie, R. Zhang, X. Li, "A generalized power iteration method for solving quadratic
    problem on the Stiefel manifold", Sci. China Inf. Sci. 60 (2017),
    doi:10.1007/s11432-016-9021-9.
    """
    _check_problem(quadratic, linear, start, max_iterations)
    h, c = start.shape
    if largest_eigenvalue is None:
        top = scipy.linalg.eigvalsh(quadratic, subset_by_index=[h - 1, h - 1])
        largest_eigenvalue = float(top[0])
    point = start
    converged = False
    n_iterations = 0
    while n_iterations < max_iterations and not converged:
        moved = polar_factor(largest_eigenvalue * point - quadratic @ point + linear)
        step = float(np.linalg.norm(moved - point)) / np.sqrt(c)
        point = moved
        n_iterations += 1
        converged = step <= tolerance
    objective = stiefel_objective(quadratic, linear, point=point)
    return StiefelResult(point, objective, n_iterations, converged)


def power_steps(
    quadratic: NDArray[np.float64],
    linear: NDArray[np.float64],
    start: NDArray[np.float64],
    *,
    n_steps: int,
    largest_eigenvalue: float,
) -> NDArray[np.float64]:
    """Take `n_steps` steps of `stiefel_quadratic`, without validation.

    Returns
    -------
    array of shape (h, c)
        A point with an objective not above that of the start.
    """
    point = start
    for _ in range(n_steps):
        point = _polar(largest_eigenvalue * point - quadratic @ point + linear)
    return point


def _check_problem(
    quadratic: NDArray[np.float64],
    linear: NDArray[np.float64],
    start: NDArray[np.float64],
    max_iterations: int,
) -> None:
    h = len(start)
    if quadratic.shape != (h, h) or linear.shape != start.shape:
        raise DataError(
            f"the quadratic term has shape {quadratic.shape}, the linear {linear.shape}, the "
            f"start {start.shape}; allowed are (h, h), (h, c), (h, c). Build all three in one "
            "subspace."
        )
    if max_iterations < 1:
        raise ConfigurationError(f"max_iterations is {max_iterations}; allowed is at least 1.")
