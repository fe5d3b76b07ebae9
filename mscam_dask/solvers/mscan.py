"""Z-step of MSCAN: self-representation of a view, smoothed by the graph.

Problem, Eq. (6) for view v with the graph fixed (no metric is learned, P = I):

    min_Z  ‖X − XZ‖² + α‖Z‖² + λ tr(Z L Zᵀ).

The optimality condition (XᵀX + αI) Z + λ Z L = XᵀX is a Sylvester equation. In the basis Q of
the view it decouples into one sparse symmetric positive definite system per direction,

    (λ L + (s_i² + α) I) c_i = s_i² q_i,        Z = Q Cᵀ,   ‖z_i − z_j‖ = ‖C_i − C_j‖,

solved by preconditioned conjugate gradients for groups of directions with similar shifts.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.linalg.ridge import Basis

_TOLERANCE = 1e-5
_MAX_ITERATIONS = 500

# Bytes of a block of vectors for one group of directions; five blocks are used at a time.
_GROUP_BYTES = 512 * 2**10
_MIN_COLUMNS = 8


@dataclasses.dataclass(frozen=True, slots=True)
class SmoothedView:
    """Smoothed self-representation in the basis Q of the view."""

    embedding: NDArray[np.float64]  # (n, r) C; rows are the columns of Z up to an isometry
    relative_residual: float  # largest ‖b_i − A_i c_i‖ / ‖b_i‖
    iterations: int
    converged: bool
    objective: float


def smooth_self_representation(
    basis: Basis,
    laplacian: csr_array[np.float64],
    graph_vectors: NDArray[np.float64],
    *,
    alpha: float,
    graph_weight: float,
) -> SmoothedView:
    """Solve min_Z ‖X − XZ‖² + α‖Z‖² + λ tr(Z L Zᵀ) for one view, the Z-step of MSCAN.

    `graph_vectors` (n, m), the bottom eigenvectors of L, give the initial guess without the smooth part of the error, on
    which conjugate gradients converge slowest.
    """
    s2 = basis.singular_values_squared
    shift = s2 + alpha
    rhs = basis.vectors * s2
    rayleigh = np.sum(graph_vectors * np.asarray(laplacian @ graph_vectors), axis=0)
    coefficients = (graph_vectors.T @ rhs) / (graph_weight * rayleigh[:, None] + shift)
    rest = rhs - graph_vectors @ (graph_vectors.T @ rhs)
    diagonal = graph_weight * laplacian.diagonal()[:, None] + shift
    solution = graph_vectors @ coefficients + rest / diagonal

    weighted = laplacian * graph_weight
    value, relative, iterations = float(np.sum(s2)), 0.0, 0
    for columns in _groups(shift, len(rhs)):
        b, sigma = rhs[:, columns], shift[columns]
        found, steps = _conjugate_gradients(
            weighted, sigma, b, start=solution[:, columns], diagonal=diagonal[:, columns]
        )
        solution[:, columns] = found
        residual = b - _applied(weighted, sigma, found)
        relative = max(relative, float(np.max(_norms(residual) / _positive(_norms(b)))))
        iterations = max(iterations, steps)
        # ‖X−XZ‖² + α‖Z‖² + λ tr(ZLZᵀ) = Σ s_i² + c_iᵀ A_i c_i − 2 b_iᵀ c_i
        value -= float(np.sum((b + residual) * found))
    # by rounding, the updated residual of the iteration differs from the true one
    return SmoothedView(solution, relative, iterations, relative <= 2 * _TOLERANCE, value)


def _groups(shift: NDArray[np.float64], n: int) -> list[NDArray[np.int64]]:
    """Groups of directions with similar shifts, so small that their vectors stay in the cache."""
    order = np.argsort(-shift, kind="stable")
    size = max(_MIN_COLUMNS, _GROUP_BYTES // (8 * n))
    return [order[start : start + size] for start in range(0, len(order), size)]


def _conjugate_gradients(
    weighted: csr_array[np.float64],
    shift: NDArray[np.float64],
    rhs: NDArray[np.float64],
    *,
    start: NDArray[np.float64],
    diagonal: NDArray[np.float64],
) -> tuple[NDArray[np.float64], int]:
    """Solve the systems by Jacobi-preconditioned CG without the columns that converged: solution, largest number of steps."""
    size = _positive(_norms(rhs))
    solution = start.copy()
    residual = rhs - _applied(weighted, shift, start)
    relative = _norms(residual) / size
    left = np.flatnonzero(relative > _TOLERANCE)
    x, residual, inverse = start[:, left], residual[:, left], 1.0 / diagonal[:, left]
    scaled = residual * inverse
    direction = scaled.copy()
    energy = _dots(residual, scaled)
    iterations = 0
    while left.size and iterations < _MAX_ITERATIONS:
        image = _applied(weighted, shift[left], direction)
        curvature = _dots(direction, image)
        length = np.divide(energy, curvature, out=np.zeros_like(energy), where=curvature > 0)
        x += length * direction
        image *= length
        residual -= image
        np.multiply(residual, inverse, out=scaled)
        new_energy = _dots(residual, scaled)
        direction *= np.divide(new_energy, energy, out=np.zeros_like(energy), where=energy > 0)
        direction += scaled
        energy = new_energy
        iterations += 1
        relative[left] = _norms(residual) / size[left]
        unconverged = relative[left] > _TOLERANCE
        if not unconverged.all():
            solution[:, left] = x
            left, energy = left[unconverged], energy[unconverged]
            x, residual, inverse, scaled, direction = (
                part[:, unconverged] for part in (x, residual, inverse, scaled, direction)
            )
    solution[:, left] = x
    return solution, iterations


def _applied(
    weighted: csr_array[np.float64], shift: NDArray[np.float64], block: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Product of λ L + shift_i I with column i of the block."""
    image = np.asarray(weighted @ block, dtype=np.float64)
    image += block * shift
    return image


def _dots(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Inner products of columns."""
    return np.asarray(np.einsum("ij,ij->j", first, second))


def _norms(block: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.sqrt(_dots(block, block))


def _positive(sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(sizes > 0, sizes, 1.0)
