"""Slips of the published text, one by one, and what each correction restores.

N. Xu et al., "Joint Adaptive Neighbours and Metric Learning for Multi-view Subspace
Clustering", arXiv:1709.03656. The numbers are those of docs/departures-from-the-paper.md and of
`mscam_dask.solvers.reference_steps.ReferenceCorrections`.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.linalg.distances import squared_distances
from mscam_dask.linalg.laplacian import laplacian
from mscam_dask.linalg.orthonormal import polar_factor, stiefel_objective, stiefel_quadratic
from mscam_dask.solvers.reference import solve_mscam
from mscam_dask.solvers.reference_steps import (
    ReferenceCorrections,
    ReferenceOptions,
    ViewState,
    a_step,
    initial_state,
    p_step,
    view_iteration,
    w_step,
    z_step,
)
from mscam_dask.types.parameters import AdmmSettings

Matrix = NDArray[np.float64]


def random_state(n: int, c: int, rng: np.random.Generator) -> ViewState:
    def normal(*shape: int) -> Matrix:
        return rng.standard_normal(shape)

    W = polar_factor(normal(n, c))
    return ViewState(normal(n, n), normal(n, c), normal(n, c), W, normal(n, c), normal(n, c), 1.3)


def overlapping_clouds(n: int, c: int, seed: int) -> tuple[Matrix, csr_array[np.float64]]:
    """Rows of c clouds that touch, and their adaptive-neighbour graph."""
    rng = np.random.default_rng(seed)
    rows = 2.0 * rng.standard_normal((c, 4))[np.arange(n) % c] + rng.standard_normal((n, 4))
    rows *= np.sqrt(4.0) / np.linalg.norm(rows)  # mean squared singular value one
    return rows, a_step(squared_distances(rows, rows), 6)


# --- Slip 1: Eq. (16) has the graph weight where the derivative of Eq. (15) has alpha ------------


def eq_15(X: Matrix, Z: Matrix, state: ViewState, alpha: float) -> float:
    mu = state.penalty
    residual = state.W - Z.T @ state.P + state.Y1 / mu
    return float(np.sum((X - X @ Z) ** 2) + alpha * np.sum(Z**2) + mu / 2 * np.sum(residual**2))


@pytest.mark.parametrize("seed", range(3))
def test_slip_1_ridge_of_the_z_step(seed: int) -> None:
    rng = np.random.default_rng(seed)
    alpha, graph_weight = 2.0, 0.1
    X, state = rng.standard_normal((4, 7)), random_state(7, 2, rng)
    slopes = {}
    for name, ridge in (("corrected", alpha), ("printed", graph_weight)):
        Z = z_step(X.T @ X, state, ridge=ridge)
        direction = rng.standard_normal(Z.shape)
        step = 1e-3  # Eq. (15) is quadratic in Z: central differences are exact
        up = eq_15(X, Z + step * direction, state, alpha)
        down = eq_15(X, Z - step * direction, state, alpha)
        slopes[name] = abs(up - down) / (2 * step)
    assert slopes["corrected"] < 1e-8
    assert slopes["printed"] > 1e-2


def test_slip_1_is_what_the_switch_switches() -> None:
    rng = np.random.default_rng(0)
    rows, graph = overlapping_clouds(15, 3, 0)
    gram, L, state = rows @ rows.T, laplacian(graph).toarray(), random_state(15, 3, rng)
    for z_ridge, ridge in (("corrected", 2.0), ("printed", 0.1)):
        numbers = ReferenceOptions(
            n_clusters=3,
            alpha=2.0,
            corrections=ReferenceCorrections(z_ridge="corrected" if ridge == 2.0 else "printed"),
        )
        moved = view_iteration(gram, L, state, settings=numbers, graph_weight=0.1)
        assert_array_equal(moved.Z, z_step(gram, state, ridge=ridge), err_msg=z_ridge)


# --- Slip 2: M and its multiplier do nothing but damp the P-step ---------------------------------

PRINTED_SPLIT = ReferenceCorrections(keep_metric_split=True, keep_second_multiplier=True)


def test_slip_2_second_multiplier_is_zero_for_ever() -> None:
    rng = np.random.default_rng(0)
    rows, graph = overlapping_clouds(15, 3, 0)
    gram, L = rows @ rows.T, laplacian(graph).toarray()
    numbers = ReferenceOptions(n_clusters=3, corrections=PRINTED_SPLIT)
    state = random_state(15, 3, rng)  # not even a start elsewhere survives one pass
    assert np.abs(state.Y2).max() > 1
    for _ in range(10):
        state = view_iteration(gram, L, state, settings=numbers, graph_weight=0.1)
        assert np.abs(state.Y2).max() <= 1e-13 * state.penalty * np.abs(state.P).max()


def test_slip_2_without_the_multiplier_the_iterates_are_the_same() -> None:
    rows, graph = overlapping_clouds(15, 3, 1)
    gram, L = rows @ rows.T, laplacian(graph).toarray()
    start = scipy.linalg.eigh(L)[1][:, :3]
    ends = []
    for keep in (True, False):
        corrections = dataclasses.replace(PRINTED_SPLIT, keep_second_multiplier=keep)
        numbers = ReferenceOptions(n_clusters=3, corrections=corrections)
        state = initial_state(start, 2.0)
        for _ in range(10):
            state = view_iteration(gram, L, state, settings=numbers, graph_weight=0.1)
        ends.append(state)
    assert_allclose(ends[0].Z, ends[1].Z, atol=1e-10)
    assert_allclose(ends[0].P, ends[1].P, atol=1e-10)
    assert_allclose(ends[0].W, ends[1].W, atol=1e-10)


def test_slip_2_the_split_is_a_proximal_term() -> None:
    # with M = P_before, Y2 = 0: argmin_P ||W + Y1/mu - Z^T P||^2 + ||P - P_before||^2
    state = random_state(8, 2, np.random.default_rng(2))
    state = dataclasses.replace(state, M=state.P, Y2=np.zeros_like(state.P))
    corrections = dataclasses.replace(PRINTED_SPLIT, metric_ridge=0.0)
    stacked = np.vstack((state.Z.T, np.eye(8)))
    target = np.vstack((state.W + state.Y1 / state.penalty, state.P))
    expected = scipy.linalg.lstsq(stacked, target)[0]
    assert_allclose(p_step(state.Z, state, corrections=corrections), expected, atol=1e-10)


# --- Slip 3: Eq. (22) does not solve Eq. (21) ----------------------------------------------------


@settings(max_examples=25)
@given(st.integers(8, 16), st.floats(0.05, 5.0), st.integers(0, 999))
def test_slip_3_the_printed_w_step_is_never_better(n: int, eta: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    _, graph = overlapping_clouds(n, 2, seed)
    L = laplacian(graph).toarray()
    E = rng.standard_normal((n, 2)) / np.sqrt(n)
    printed = w_step(
        L,
        E,
        start=E,
        eta=eta,
        settings=ReferenceOptions(
            n_clusters=2, corrections=ReferenceCorrections(w_update="printed")
        ),
    )
    assert_allclose(printed.T @ printed, np.eye(2), atol=1e-12)  # feasible, but no minimiser:
    solved = stiefel_quadratic(L, eta * E, printed, max_iterations=300)
    gain = stiefel_objective(L, eta * E, point=printed) - solved.objective
    assert gain > 1e-4  # descent from the printed point goes on


def test_slip_3_the_completion_of_the_square() -> None:
    # ||R^T W - eta R^-1 E||^2 is the square of Eq. (21) since R^-T R^T = I; R^-T R is not I
    _, graph = overlapping_clouds(12, 2, 0)
    L, eta = laplacian(graph).toarray(), 0.5
    R = scipy.linalg.cholesky(L + eta * np.eye(12), lower=True)
    E = np.random.default_rng(0).standard_normal((12, 2))
    values = []
    for seed in (1, 2, 3):
        W = polar_factor(np.random.default_rng(seed).standard_normal((12, 2)))
        square = np.sum((R.T @ W - eta * scipy.linalg.solve_triangular(R, E, lower=True)) ** 2)
        values.append(square - stiefel_objective(L, eta * E, point=W))
    assert_allclose(values, values[0])  # equal up to a constant
    inverse_transposed = scipy.linalg.solve_triangular(R.T, np.eye(12))
    assert np.abs(inverse_transposed @ R - np.eye(12)).max() > 0.1


def test_slip_3_even_with_the_square_right_the_closed_form_forgets_the_graph() -> None:
    # polar(E) minimises -2 tr(W^T E) alone; with a weak pull it must go to the eigenvectors
    _, graph = overlapping_clouds(20, 3, 0)
    L, eta = laplacian(graph).toarray(), 1e-3
    values, vectors = scipy.linalg.eigh(L)
    E = np.random.default_rng(0).standard_normal((20, 3))
    exact = stiefel_objective(L, eta * E, point=vectors[:, :3])
    assert exact < values[:3].sum() + 0.05
    assert stiefel_objective(L, eta * E, point=polar_factor(E)) > values[:3].sum() + 0.5


# --- Slip 4: the model alone is degenerate -------------------------------------------------------


def eq_11_view(
    X: Matrix, Z: Matrix, P: Matrix, *, L: Matrix, alpha: float, graph_weight: float
) -> float:
    F = Z.T @ P
    return float(
        np.sum((X - X @ Z) ** 2) + alpha * np.sum(Z**2) + graph_weight * np.trace(F.T @ L @ F)
    )


def ridge_representation(X: Matrix, alpha: float) -> Matrix:
    K = X.T @ X
    return np.asarray(scipy.linalg.solve(K + alpha * np.eye(len(K)), K, assume_a="pos"))


@pytest.mark.parametrize("seed", range(3))
def test_slip_4_given_the_graph_the_infimum_forgets_the_data(seed: int) -> None:
    n, d, c, alpha, graph_weight = 18, 5, 3, 1.0, 0.7
    _, graph = overlapping_clouds(n, c, seed)
    L = laplacian(graph).toarray()
    values, vectors = scipy.linalg.eigh(L)
    W = vectors[:, :c]
    for data_seed in (10, 11):  # any data whatever, the same F
        X = np.random.default_rng(data_seed).standard_normal((d, n))
        Z = ridge_representation(X, alpha)
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
    no_split = ReferenceCorrections(metric_ridge=0.0)
    free = p_step(tiny, state, corrections=no_split)
    held = p_step(tiny, state, corrections=dataclasses.replace(no_split, metric_ridge=tau))
    assert np.abs(free).max() > 1e5
    assert np.abs(held).max() < 1e-3


# --- Slip 5: exactly c components are never enforced ---------------------------------------------


def test_slip_5_the_printed_a_step_does_not_know_the_graph_weight() -> None:
    rows, _ = overlapping_clouds(30, 3, 0)
    d = squared_distances(rows, rows)
    plain = a_step(d, 6).toarray()
    for graph_weight in (1e-6, 1.0, 1e6):
        assert_allclose(a_step(graph_weight * d, 6).toarray(), plain, atol=1e-12)


def test_slip_5_as_printed_nothing_holds_the_number_of_components() -> None:
    c = 2
    admm = AdmmSettings(max_iterations=20)
    ended = []
    for seed in range(8):
        rows, _ = overlapping_clouds(100, c, seed)
        gram = rows @ rows.T
        printed = ReferenceOptions(
            n_clusters=c,
            n_neighbors=4,
            max_iter=20,
            admm=admm,
            corrections=ReferenceCorrections.printed(),
        )
        literal = solve_mscam([gram], printed)
        ended.append(literal.n_connected_components)
        # the graph never settles
        assert not literal.converged
        assert literal.history[-1].graph_change > 0.5
        steered = solve_mscam(
            [gram], dataclasses.replace(printed, corrections=ReferenceCorrections())
        )
        assert steered.converged
        assert steered.n_connected_components == c
    # and on some of these data it falls apart
    assert max(ended) > c
