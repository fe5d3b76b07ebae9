"""Slips of the published text, one by one, and what each correction restores.

N. Xu et al., "Joint Adaptive Neighbours and Metric Learning for Multi-view Subspace
Clustering", arXiv:1709.03656. The numbers are those of docs/method.md and of
`tests.oracle.Slips`.
"""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from mscam_dask.linalg.orthonormal import polar_factor, power_steps
from mscam_dask.types.parameters import AdmmSettings
from tests import oracle
from tests.oracle import DenseProblem, DenseState, Settings, Slips

Matrix = NDArray[np.float64]


def random_state(n: int, c: int, rng: np.random.Generator) -> DenseState:
    def normal(*shape: int) -> Matrix:
        return rng.standard_normal(shape)

    W = polar_factor(normal(n, c))
    P, Y, M, Y2 = (normal(n, c) for _ in range(4))
    return DenseState(normal(n, n), P, W, normal(n, c), Y, 1.3, M, Y2)


def problem_of(
    gram: Matrix, L: Matrix, *, alpha: float = 1.0, metric_ridge: float = 1.0, slips: Slips
) -> DenseProblem:
    bound = float(2.0 * L.diagonal().max())
    return DenseProblem(gram, L, np.eye(len(gram)), bound, alpha, metric_ridge, 0.1, slips)


def overlapping_clouds(n: int, c: int, seed: int) -> tuple[Matrix, Matrix]:
    """Rows of c clouds that touch, and the Laplacian of their adaptive-neighbour graph."""
    rng = np.random.default_rng(seed)
    rows = 2.0 * rng.standard_normal((c, 4))[np.arange(n) % c] + rng.standard_normal((n, 4))
    rows *= np.sqrt(4.0) / np.linalg.norm(rows)  # mean squared singular value one
    return rows, oracle.dense_laplacian(oracle.a_step(oracle.pair_distances(rows), 6))


# --- Slip 1: Eq. (16) has the graph weight where the derivative of Eq. (15) has alpha ------------


def eq_15(X: Matrix, Z: Matrix, state: DenseState, alpha: float) -> float:
    mu = state.penalty
    residual = state.W - Z.T @ state.P + state.Y / mu
    return float(np.sum((X - X @ Z) ** 2) + alpha * np.sum(Z**2) + mu / 2 * np.sum(residual**2))


@pytest.mark.parametrize("seed", range(2))
def test_slip_1_ridge_of_the_z_step(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, state = rng.standard_normal((4, 7)), random_state(7, 2, rng)
    slopes = {}
    for name in ("corrected", "printed"):
        slips = Slips(z_ridge=name == "printed")
        Z = oracle.z_step(problem_of(X.T @ X, np.eye(7), alpha=2.0, slips=slips), state)
        direction = rng.standard_normal(Z.shape)
        step = 1e-3  # Eq. (15) is quadratic in Z: central differences are exact
        up = eq_15(X, Z + step * direction, state, 2.0)
        down = eq_15(X, Z - step * direction, state, 2.0)
        slopes[name] = abs(up - down) / (2 * step)
    assert slopes["corrected"] < 1e-8
    assert slopes["printed"] > 1e-2


# --- Slip 2: M and its multiplier do nothing but damp the P-step ---------------------------------


def test_slip_2_second_multiplier_is_zero_for_ever() -> None:
    rows, L = overlapping_clouds(15, 3, 0)
    slips = Slips(metric_split=True, second_multiplier=True)
    problem = problem_of(rows @ rows.T, L, slips=slips)
    state = random_state(15, 3, np.random.default_rng(0))
    assert np.abs(state.Y2).max() > 1
    for _ in range(10):  # not even a start elsewhere survives one pass
        state = oracle.step(problem, state, penalty_growth=1.1, max_iterations=5)
        assert np.abs(state.Y2).max() <= 1e-13 * state.penalty * np.abs(state.P).max()


# --- Slip 3: Eq. (22) does not solve Eq. (21) ----------------------------------------------------


@settings(max_examples=25)
@given(st.integers(8, 16), st.floats(0.05, 5.0), st.integers(0, 999))
def test_slip_3_the_printed_w_step_is_never_better(n: int, eta: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    _, L = overlapping_clouds(n, 2, seed)
    E = rng.standard_normal((n, 2)) / np.sqrt(n)
    printed = oracle.closed_w_step(L, E, eta)
    assert_allclose(printed.T @ printed, np.eye(2), atol=1e-12)  # feasible, but no minimiser:
    bound = float(scipy.linalg.eigvalsh(L)[-1])
    solved = power_steps(L, eta * E, printed, n_steps=300, largest_eigenvalue=bound)
    objective = partial(oracle.stiefel_objective, L, eta * E)
    gain = objective(printed) - objective(solved)
    assert gain > 1e-4  # descent from the printed point goes on


def test_slip_3_even_with_the_square_right_the_closed_form_forgets_the_graph() -> None:
    # polar(E) minimises -2 tr(W^T E) alone; with a weak pull it must go to the eigenvectors
    _, L = overlapping_clouds(20, 3, 0)
    eta = 1e-3
    values, vectors = scipy.linalg.eigh(L)
    E = np.random.default_rng(0).standard_normal((20, 3))
    objective = partial(oracle.stiefel_objective, L, eta * E)
    assert objective(vectors[:, :3]) < values[:3].sum() + 0.05
    assert objective(polar_factor(E)) > values[:3].sum() + 0.5


# --- Slip 4: the model alone is degenerate -------------------------------------------------------


def eq_11_view(
    X: Matrix, Z: Matrix, P: Matrix, *, L: Matrix, alpha: float, graph_weight: float
) -> float:
    F = Z.T @ P
    return float(
        np.sum((X - X @ Z) ** 2) + alpha * np.sum(Z**2) + graph_weight * np.trace(F.T @ L @ F)
    )


@pytest.mark.parametrize("seed", range(2))
def test_slip_4_given_the_graph_the_infimum_forgets_the_data(seed: int) -> None:
    n, d, c, alpha, graph_weight = 18, 5, 3, 1.0, 0.7
    _, L = overlapping_clouds(n, c, seed)
    values, vectors = scipy.linalg.eigh(L)
    W = vectors[:, :c]
    for data_seed in (10, 11):  # any data whatever, the same F
        X = np.random.default_rng(data_seed).standard_normal((d, n))
        K = X.T @ X
        Z = scipy.linalg.solve(K + alpha * np.eye(n), K, assume_a="pos")
        # the two parts of Eq. (11) can never be below these: ridge optimum, and Ky Fan
        least = eq_11_view(X, Z, 0 * W, L=L, alpha=alpha, graph_weight=graph_weight)
        bound = least + graph_weight * values[:c].sum()
        U = scipy.linalg.null_space(X)[:, :c]  # outside the row space
        gaps = []
        for epsilon in (1e-1, 1e-2, 1e-3):
            Z_free, P_free = Z + epsilon * U @ W.T, U / epsilon
            assert_allclose(Z_free.T @ P_free, W, atol=1e-9)  # F = W, W^T W = I: feasible
            value = eq_11_view(X, Z_free, P_free, L=L, alpha=alpha, graph_weight=graph_weight)
            gaps.append(value - bound)
        # F costs alpha c epsilon^2 and nothing else
        assert_allclose(gaps, alpha * c * np.array([1e-2, 1e-4, 1e-6]), rtol=1e-3, atol=1e-9)


def test_slip_4_a_metric_ridge_closes_the_loophole() -> None:
    # the free direction costs alpha c eps^2 + tau c / eps^2 >= 2 c sqrt(alpha tau)
    c, alpha, tau = 3, 1.0, 0.5
    epsilon = np.logspace(-4, 4, 2001)
    cost = alpha * c * epsilon**2 + tau * c / epsilon**2
    assert cost.min() >= 2 * c * np.sqrt(alpha * tau) - 1e-12
    # and in the P-step tau bounds the factor where the printed one grows as Z shrinks
    state = random_state(6, 2, np.random.default_rng(0))
    tiny = 1e-6 * state.Z
    free, held = (
        oracle.p_step(
            problem_of(np.eye(6), np.eye(6), metric_ridge=ridge, slips=Slips()), tiny, state
        )
        for ridge in (0.0, tau)
    )
    assert np.abs(free).max() > 1e5
    assert np.abs(held).max() < 1e-3


# --- Slip 5: exactly c components are never enforced ---------------------------------------------


def test_slip_5_the_printed_a_step_does_not_know_the_graph_weight() -> None:
    rows, _ = overlapping_clouds(30, 3, 0)
    d = oracle.pair_distances(rows)
    plain = oracle.a_step(d, 6)
    for graph_weight in (1e-6, 1.0, 1e6):
        assert_allclose(oracle.a_step(graph_weight * d, 6), plain, atol=1e-12)


ALL_SLIPS = Slips(**dict.fromkeys((field.name for field in dataclasses.fields(Slips)), True))


def test_slip_5_as_printed_nothing_holds_the_number_of_components() -> None:
    c = 2
    admm = AdmmSettings(max_iterations=20)
    ended = []
    for seed in range(2):
        rows, _ = overlapping_clouds(50, c, seed)
        gram = rows @ rows.T
        steered = Settings(n_clusters=c, n_neighbors=4, max_iter=20, admm=admm)
        as_printed = dataclasses.replace(
            steered, identity_weight=0.0, metric_ridge=0.0, slips=ALL_SLIPS
        )
        literal = oracle.solve_mscam([gram], as_printed)
        ended.append(literal.n_components)
        # the graph never settles
        assert not literal.converged
        assert literal.graph_change > 0.5
        found = oracle.solve_mscam([gram], steered)
        assert found.converged
        assert found.n_components == c
    # and on some of these data it falls apart
    assert max(ended) > c
