"""The dense oracle: its steps against the derivatives of the functions that they minimize."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from mscam_dask.linalg.orthonormal import polar_factor
from tests import oracle
from tests.oracle import Array, DenseProblem, DenseState, Slips


def random_laplacian(n: int, seed: int) -> Array:
    """Laplacian of a ring with random chords."""
    rng = np.random.default_rng(seed)
    weights = (rng.random((n, n)) < 0.3) * rng.random((n, n))
    weights[np.arange(n), (np.arange(n) + 1) % n] = 1.0
    np.fill_diagonal(weights, 0.0)
    return oracle.dense_laplacian(weights)


def random_case(seed: int, **changed: Any) -> tuple[Array, DenseProblem, DenseState]:
    """X (3, 6), its sub-problem and a state that no iteration has made."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((3, 6))
    L, bound = random_laplacian(6, seed), 1e3
    problem = DenseProblem(X.T @ X, L, np.eye(6), bound, 0.8, 0.6, 0.3)
    parts = [rng.standard_normal((6, 2)) for _ in range(5)]
    W = polar_factor(rng.standard_normal((6, 2)))
    Z = rng.standard_normal((6, 6))
    state = DenseState(Z, parts[0], W, parts[1], parts[2], 1.7, parts[3], parts[4])
    return X, dataclasses.replace(problem, **changed), state


def lagrangian(X: Array, problem: DenseProblem, s: DenseState, *, split: bool) -> float:
    """The augmented Lagrangian of one view, term by term, without the trace of the W-step."""
    mu = s.penalty
    return float(
        np.sum((X - X @ s.Z) ** 2)
        + problem.alpha * np.sum(s.Z**2)
        + problem.metric_ridge * np.sum(s.P**2)
        + mu / 2 * np.sum((s.W - s.Z.T @ s.P + s.Y / mu) ** 2)
        + split * mu / 2 * np.sum((s.M - s.P + s.Y2 / mu) ** 2)
    )


def numerical_gradient(function: Callable[[Array], float], point: Array) -> Array:
    """Central differences; exact but for rounding where the function is quadratic."""
    gradient = np.zeros_like(point)
    for index in np.ndindex(*point.shape):
        up, down = point.copy(), point.copy()
        up[index] += 1e-3
        down[index] -= 1e-3
        gradient[index] = (function(up) - function(down)) / 2e-3
    return gradient


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("metric_ridge", [0.0, 0.6])
@pytest.mark.parametrize("split", [False, True])
def test_the_p_step_is_stationary(seed: int, metric_ridge: float, split: bool) -> None:
    X, problem, state = random_case(
        seed, metric_ridge=metric_ridge, slips=Slips(metric_split=split)
    )
    P = oracle.p_step(problem, state.Z, state)

    def value(point: Array) -> float:
        return lagrangian(X, problem, dataclasses.replace(state, P=point), split=split)

    assert_allclose(numerical_gradient(value, P), 0.0, atol=1e-7)


@pytest.mark.parametrize("seed", range(2))
def test_the_z_step_of_mscan_is_stationary(seed: int) -> None:
    X, problem, _ = random_case(seed)
    L, weights = problem.laplacian, {"alpha": 0.5, "weight": 0.9}
    Z = oracle.mscan_z_step(problem.gram, L, **weights)

    def value(point: Array) -> float:
        return oracle.mscan_objective(X.T @ X, L, point, **weights)

    assert_allclose(numerical_gradient(value, Z), 0.0, atol=1e-8)
