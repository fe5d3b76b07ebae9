"""Reduced-space ADMM against the n × n formulas, and the identities each of its steps must meet."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.errors import DataError
from mscam_dask.linalg.orthonormal import Basis, basis_from_rows
from mscam_dask.solvers import admm
from mscam_dask.solvers.admm import (
    AdmmState,
    ViewSolution,
    initial_state,
    is_converged,
    objective,
    solve_view,
    step,
)
from mscam_dask.types.parameters import AdmmSettings
from tests import oracle
from tests.solvers.whole_rows import WholeProblem, reduced_problem

Array = NDArray[np.float64]
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


def after(problem: WholeProblem, start: Array, n_steps: int, *, penalty: float) -> AdmmState:
    state = initial_state(problem.start(start), penalty)
    for _ in range(n_steps):
        state = step(problem, state, 1.1)
    return state


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
    # Scope: Z, P, W, F, Y and μ of each of eight iterations, to 1e-10 of their size.
    given_case = case(**CASES[name])
    state = initial_state(given_case.reduced.start(given_case.start), 2.0)
    W = given_case.start
    dense = oracle.DenseState(np.zeros((N_SAMPLES, N_SAMPLES)), W, W, W, np.zeros_like(W), 2.0)
    for _ in range(8):
        state = step(given_case.reduced, state, 1.1)
        dense = oracle.step(
            given_case.dense,
            dense,
            penalty_growth=1.1,
            max_iterations=admm._STIEFEL_ITERATIONS,
        )
        ours = lifted(given_case.reduced, state)
        for name_of in ("Z", "P", "W", "F", "Y", "penalty"):
            expected = getattr(dense, name_of)
            got = getattr(ours, name_of)
            size = max(1.0, float(np.max(np.abs(expected))))
            assert_allclose(got, expected, atol=1e-10 * size, err_msg=name_of)


@pytest.mark.parametrize("name", CASES)
def test_objective_is_the_dense_objective(name: str) -> None:
    given_case = case(**CASES[name])
    for n_steps in (1, 2, 7):
        state = after(given_case.reduced, given_case.start, n_steps, penalty=2.0)
        dense = lifted(given_case.reduced, state)
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


def test_reported_residuals_are_the_norms_they_are_called() -> None:
    given_case = case()
    before = after(given_case.reduced, given_case.start, 3, penalty=2.0)
    state = step(given_case.reduced, before, 1.1)
    old, new = lifted(given_case.reduced, before), lifted(given_case.reduced, state)
    assert state.primal_residual == pytest.approx(np.linalg.norm(new.W - new.F) / np.sqrt(3))
    assert state.dual_residual == pytest.approx(np.linalg.norm(new.F - old.F) / np.sqrt(3))


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
    assert is_converged(long.state, 1e-3)
    assert not is_converged(long.state, long.state.primal_residual / 2)
