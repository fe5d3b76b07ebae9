"""ADMM against the n × n formulas of the dense oracle, whose own steps are compared with derivatives."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.sparse import csr_array

from mscam_dask.errors import DataError
from mscam_dask.linalg.orthonormal import Basis, basis_from_rows, polar_factor
from mscam_dask.solvers import admm
from mscam_dask.solvers.admm import (
    AdmmState,
    ViewSolution,
    embed_rows,
    initial_state,
    is_converged,
    objective,
    reduced_sums,
    smoothed_coefficients,
    solve_view,
    step,
)
from mscam_dask.solvers.graph_update import GraphRows, laplacian_rows
from mscam_dask.solvers.ridge_view import Encoder, RidgeView
from mscam_dask.types.parameters import AdmmSettings, Constants, Parameters
from tests import oracle
from tests.oracle import DenseProblem, DenseState, Slips
from tests.solvers.whole_rows import WholeProblem, reduced_problem
from tests.synthetic import Array

N_SAMPLES = 24


@dataclasses.dataclass(frozen=True)
class Case:
    """A view, a graph and the sub-problem in both forms."""

    reduced: WholeProblem
    dense: oracle.DenseProblem
    start: Array


def random_graph(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """A dense Laplacian with three loosely joined groups, and its eigenvectors, ascending."""
    group = np.arange(n) % 3
    affinity = rng.random((n, n)) * np.where(group[:, None] == group, 1.0, 0.02)
    np.fill_diagonal(affinity, 0.0)
    laplacian = oracle.dense_laplacian(affinity / affinity.sum(axis=1, keepdims=True))
    return laplacian, np.linalg.eigh(laplacian)[1]


def case(
    *,
    n_columns: int = 6,
    n_clusters: int = 3,
    n_pairs: int | None = None,
    metric_ridge: float = 0.7,
    graph_weight: float = 0.4,
    alpha: float = 0.9,
    seed: int = 0,
) -> Case:
    rng = np.random.default_rng(seed)
    basis = basis_from_rows(rng.standard_normal((N_SAMPLES, n_columns)))
    s2 = basis.singular_values_squared / basis.singular_values_squared.mean()
    basis = Basis(basis.vectors, s2)
    laplacian, vectors = random_graph(N_SAMPLES, rng)
    pairs = vectors[:, : n_pairs or 2 * n_clusters]
    reduced = reduced_problem(
        basis,
        pairs,
        csr_array(laplacian),
        alpha=alpha,
        metric_ridge=metric_ridge,
        graph_weight=graph_weight,
    )
    dense = oracle.DenseProblem(
        gram=(basis.vectors * s2) @ basis.vectors.T,
        laplacian=laplacian,
        subspace=reduced.subspace,
        eigenvalue_bound=reduced.laplacian_bound,
        alpha=alpha,
        metric_ridge=metric_ridge,
        graph_weight=graph_weight,
    )
    return Case(reduced, dense, pairs[:, :n_clusters])


def lifted(problem: WholeProblem, state: AdmmState) -> oracle.DenseState:
    """The state in the coordinates of the samples."""
    H = problem.subspace
    Z = problem.self_representation(state)
    return oracle.DenseState(Z, H @ state.p, H @ state.w, H @ state.f, H @ state.y, state.penalty)


def solved(problem: WholeProblem, start: Array, settings_: AdmmSettings) -> ViewSolution:
    return solve_view(problem, problem.start(start), settings_)


CASES: dict[str, dict[str, Any]] = {
    "d > c": {},
    "d < c": {"n_columns": 2, "n_clusters": 4},
    "one column": {"n_columns": 1, "n_clusters": 3},
    "d > n": {"n_columns": 40},
    "no metric ridge": {"metric_ridge": 0.0, "n_columns": 12},
    "no metric ridge, d < c": {"metric_ridge": 0.0, "n_columns": 2, "n_clusters": 4},
    "one cluster": {"n_clusters": 1},
    "only c eigenvectors": {"n_pairs": 3},
    "large graph weight": {"graph_weight": 50.0},
    "small alpha": {"alpha": 1e-3},
}


@pytest.mark.parametrize("name", CASES)
def test_eight_steps_equal_the_dense_formulas(name: str) -> None:
    """Z, P, W, F, Y, μ, the residuals and the objective of each iteration."""
    given_case = case(**CASES[name])
    state = initial_state(given_case.reduced.start(given_case.start), 2.0)
    W = given_case.start
    dense = oracle.DenseState(np.zeros((N_SAMPLES, N_SAMPLES)), W, W, W, np.zeros_like(W), 2.0)
    for _ in range(8):
        state = step(given_case.reduced, state, 1.1)
        before = dense
        dense = oracle.step(
            given_case.dense, dense, penalty_growth=1.1, max_iterations=admm._STIEFEL_ITERATIONS
        )
        ours = lifted(given_case.reduced, state)
        for name_of in ("Z", "P", "W", "F", "Y", "penalty"):
            expected = getattr(dense, name_of)
            got = getattr(ours, name_of)
            size = max(1.0, float(np.max(np.abs(expected))))
            assert_allclose(got, expected, atol=1e-10 * size, err_msg=name_of)
        size = np.sqrt(W.shape[1])
        primal, dual = dense.W - dense.F, dense.F - before.F
        assert state.primal_residual == pytest.approx(np.linalg.norm(primal) / size)
        assert state.dual_residual == pytest.approx(np.linalg.norm(dual) / size)
        expected = oracle.view_objective(given_case.dense, dense.Z, dense.P)
        assert objective(given_case.reduced, state) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_residuals_vanish_as_the_penalty_grows(name: str) -> None:
    given_case = case(**CASES[name])
    state = initial_state(given_case.reduced.start(given_case.start), 10.0)
    for iteration in range(400):
        state = step(given_case.reduced, state, 1.15)
        if iteration >= 150:  # and stay so: the penalty does not outgrow what rounding leaves
            assert state.primal_residual < 1e-6
            assert state.dual_residual < 1e-6
    # W = F at the end: F is orthonormal, as the constraint of Eq. (11) asks
    c = state.f.shape[1]
    assert_allclose(state.f.T @ state.f, np.eye(c), atol=1e-4)


def test_too_small_a_space_is_refused() -> None:
    given_case = case(n_columns=1, n_pairs=2)
    with pytest.raises(DataError):
        initial_state(given_case.reduced.start(np.eye(N_SAMPLES)[:, :4]), 1.0)


def test_budget_and_convergence_are_told_apart() -> None:
    given_case = case()
    short = solved(given_case.reduced, given_case.start, AdmmSettings(max_iterations=1))
    assert short.state.iteration == 1
    assert not short.converged
    settings_ = AdmmSettings(max_iterations=2000, tolerance=1e-3, penalty_growth=1.05)
    long = solved(given_case.reduced, given_case.start, settings_)
    assert long.converged
    assert long.state.iteration < 2000
    assert long.state.primal_residual <= 1e-3
    assert long.state.dual_residual <= 1e-3
    for primal, dual in ((1e-3, 1e-3), (1e-3, 2e-3), (2e-3, 1e-3)):
        state = dataclasses.replace(long.state, primal_residual=primal, dual_residual=dual)
        assert is_converged(state, 1e-3) == (primal == dual)


def random_case(seed: int, **changed: Any) -> tuple[Array, DenseProblem, DenseState]:
    """X (3, 6), its sub-problem and a state that no iteration has made."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((3, 6))
    L, bound = random_graph(6, rng)[0], 1e3
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


NO_ENCODER = Encoder("kernel", None, 0, 1.0, np.zeros(1), np.zeros((1, 1)))


@given(st.integers(0, 2**16), st.integers(1, 40), st.floats(1e-2, 1e2), st.floats(1e-2, 1e2))
@settings(max_examples=20)
def test_solves_the_sylvester_equation(seed: int, d: int, alpha: float, weight: float) -> None:
    """Of a random view and graph, with span(H) all of space: then it is exact."""
    n, rng = 30, np.random.default_rng(seed)
    basis = basis_from_rows(rng.standard_normal((n, d)))
    affinity = rng.random((n, n))
    np.fill_diagonal(affinity, 0.0)
    graph = GraphRows(0, csr_array(affinity))
    rows = laplacian_rows(graph, [graph], ((0, n),), precision=np.float64)
    laplacian = oracle.dense_laplacian(affinity)
    vectors = np.linalg.eigh(laplacian)[1]
    parameters = Parameters(n_clusters=n // 2, constants=Constants(min_shrinkage=0.0))
    view = RidgeView(basis, alpha, 1.0, 1.0, NO_ENCODER)
    sums = reduced_sums([view, view], [vectors, vectors], rows, 0, parameters)
    coefficients, distance, found = smoothed_coefficients(sums, view, parameters, weight)
    embedding = embed_rows(view, vectors, coefficients, parameters).astype(np.float64)

    gram = (basis.vectors * basis.singular_values_squared) @ basis.vectors.T
    expected = oracle.mscan_z_step(gram, laplacian, alpha=alpha, weight=weight)
    assert_allclose(basis.vectors @ embedding.T, expected, atol=1e-4)
    value = oracle.mscan_objective(gram, laplacian, expected, alpha=alpha, weight=weight)
    assert found == pytest.approx(value, rel=1e-4)
    mean = oracle.pair_distances(embedding).sum() / (n * (n - 1))
    assert distance == pytest.approx(mean, abs=1e-4)
