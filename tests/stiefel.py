"""Minimize tr(wᵀLw) − 2 tr(wᵀE) on the Stiefel manifold to convergence, by steps of generalized power iteration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from mscam_dask.linalg.orthonormal import power_steps

Array = NDArray[np.float64]


@dataclass(frozen=True)
class StiefelResult:
    """The last point, its objective, the number of steps, and whether the last was within the tolerance."""

    point: Array
    objective: float
    n_iterations: int
    converged: bool


def stiefel_objective(quadratic: Array, linear: Array, *, point: Array) -> float:
    """Objective tr(wᵀLw) − 2 tr(wᵀE)."""
    return float(np.sum(point * (quadratic @ point)) - 2.0 * np.sum(point * linear))


def stiefel_quadratic(
    quadratic: Array,
    linear: Array,
    start: Array,
    *,
    max_iterations: int = 100,
    tolerance: float = 1e-8,
    largest_eigenvalue: float | None = None,
) -> StiefelResult:
    """Steps until the root mean square of one, over columns, is within the tolerance."""
    bound = largest_eigenvalue
    if bound is None:
        bound = float(scipy.linalg.eigvalsh(quadratic)[-1])
    point, n_iterations, converged = start, 0, False
    while n_iterations < max_iterations and not converged:
        moved = power_steps(quadratic, linear, point, n_steps=1, largest_eigenvalue=bound)
        converged = bool(np.linalg.norm(moved - point) / np.sqrt(start.shape[1]) <= tolerance)
        point, n_iterations = moved, n_iterations + 1
    objective = stiefel_objective(quadratic, linear, point=point)
    return StiefelResult(point, objective, n_iterations, converged)
