"""Orthonormal columns: signs, the nearest orthonormal matrix, steps on the Stiefel manifold."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from mscam_dask.errors import DataError
from mscam_dask.linalg.orthonormal import (
    orient_columns,
    orthonormalize_nearby,
    polar_factor,
    power_steps,
)
from tests.stiefel import stiefel_objective, stiefel_quadratic


@given(st.integers(0, 999))
def test_orientation_does_not_depend_on_the_sign_given(seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((6, 4))
    flipped = vectors * rng.choice([-1.0, 1.0], size=4)
    assert_array_equal(orient_columns(flipped), orient_columns(vectors))
    assert_array_equal(np.abs(orient_columns(vectors)), np.abs(vectors))


def test_orientation_of_a_pair_of_equal_size_is_by_position() -> None:
    vector = np.array([[-1.0], [1.0 + 1e-12]])
    assert_array_equal(orient_columns(vector), -vector)
    assert orient_columns(np.zeros((0, 2))).shape == (0, 2)


def test_nearest_orthonormal_matrix() -> None:
    # w is nearest to M iff M = w H with H symmetric positive semi-definite
    rng = np.random.default_rng(0)
    q = scipy.linalg.qr(rng.standard_normal((30, 4)), mode="economic")[0]
    M = np.asarray(q + 1e-3 * rng.standard_normal((30, 4)))
    w = orthonormalize_nearby(M)
    assert_allclose(w.T @ w, np.eye(4), atol=1e-13)
    assert_allclose(w @ (w.T @ M), M, atol=1e-13)
    assert_allclose(w.T @ M, M.T @ w, atol=1e-13)
    assert scipy.linalg.eigvalsh(w.T @ M)[0] > 0.9


shapes = st.integers(1, 8).flatmap(lambda h: st.tuples(st.just(h), st.integers(1, h)))


def orthonormal(h: int, c: int, rng: np.random.Generator) -> NDArray[np.float64]:
    return polar_factor(rng.standard_normal((h, c)))


def random_problem(
    h: int, c: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    factor = rng.standard_normal((h, h))
    return factor @ factor.T, rng.standard_normal((h, c)), orthonormal(h, c, rng)


@given(shapes, st.integers(0, 999))
def test_polar_factor_is_orthonormal_with_psd_remainder(shape: tuple[int, int], seed: int) -> None:
    # M = w H with H = w^T M symmetric positive semi-definite characterises the polar factor
    M = np.random.default_rng(seed).standard_normal(shape)
    w = polar_factor(M)
    remainder = w.T @ M
    assert_allclose(w.T @ w, np.eye(shape[1]), atol=1e-13)
    assert_allclose(w @ remainder, M, atol=1e-12)
    assert_allclose(remainder, remainder.T, atol=1e-12)
    assert scipy.linalg.eigvalsh(remainder)[0] >= -1e-12


@given(shapes, st.integers(0, 999))
def test_polar_factor_maximises_the_inner_product(shape: tuple[int, int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    M = rng.standard_normal(shape)
    other = orthonormal(*shape, rng)
    assert np.sum(other * M) <= np.sum(polar_factor(M) * M) + 1e-12


def test_polar_factor_of_a_rank_deficient_matrix_is_orthonormal() -> None:
    w = polar_factor(np.outer(np.arange(1.0, 6.0), [1.0, 1.0, 0.0]))
    assert_allclose(w.T @ w, np.eye(3), atol=1e-14)


@given(shapes, st.integers(0, 999))
def test_objective_by_definition(shape: tuple[int, int], seed: int) -> None:
    L, E, w = random_problem(*shape, seed)
    expected = np.trace(w.T @ L @ w) - 2 * np.trace(w.T @ E)
    assert_allclose(stiefel_objective(L, E, point=w), expected, atol=1e-11)


@settings(max_examples=40)
@given(shapes, st.integers(0, 999))
def test_descent_is_monotone_and_stays_on_the_manifold(shape: tuple[int, int], seed: int) -> None:
    L, E, w = random_problem(*shape, seed)
    values = [stiefel_objective(L, E, point=w)]
    for _ in range(12):
        result = stiefel_quadratic(L, E, w, max_iterations=1, tolerance=0.0)
        w = result.point
        assert_allclose(w.T @ w, np.eye(shape[1]), atol=1e-12)
        values.append(result.objective)
    assert all(after <= before + 1e-10 * (1 + abs(before)) for before, after in pairwise(values))


@settings(max_examples=25)
@given(shapes, st.integers(0, 999))
def test_where_it_converges_is_stationary(shape: tuple[int, int], seed: int) -> None:
    # the Riemannian gradient G - w sym(w^T G), G = 2 (L w - E), vanishes
    L, E, start = random_problem(*shape, seed)
    result = stiefel_quadratic(L, E, start, max_iterations=20_000, tolerance=1e-9)
    assert result.converged
    w = result.point
    G = 2 * (L @ w - E)
    inner = w.T @ G
    gradient = G - w @ (inner + inner.T) / 2
    assert np.abs(gradient).max() <= 1e-6 * (1 + np.abs(L).max())


def test_without_a_quadratic_term_the_polar_factor_is_the_answer() -> None:
    _, E, start = random_problem(7, 3, 0)
    result = stiefel_quadratic(np.zeros((7, 7)), E, start, tolerance=1e-12)
    assert_allclose(result.point, polar_factor(E), atol=1e-12)
    assert result.n_iterations == 2  # the second finds nothing to move


def test_without_a_linear_term_the_bottom_eigenvectors_are_the_answer() -> None:
    # Ky Fan: min tr(w^T L w) is the sum of the c smallest eigenvalues
    L, _, start = random_problem(8, 3, 1)
    result = stiefel_quadratic(L, np.zeros((8, 3)), start, max_iterations=50_000, tolerance=1e-12)
    assert_allclose(result.objective, scipy.linalg.eigvalsh(L)[:3].sum(), rtol=1e-6)


def test_a_strong_linear_term_wins() -> None:
    L, E, start = random_problem(6, 2, 2)
    result = stiefel_quadratic(L, 1e8 * E, start)
    assert_allclose(result.point, polar_factor(E), atol=1e-6)


def test_square_case_minimum_over_rotations_and_reflections() -> None:
    # h = c: tr(w^T L w) = tr(L) is constant, the polar factor of E is the minimiser
    L, E, start = random_problem(4, 4, 3)
    result = stiefel_quadratic(L, E, start, max_iterations=5000, tolerance=1e-10)
    assert_allclose(result.objective, np.trace(L) - 2 * scipy.linalg.svdvals(E).sum(), rtol=1e-8)


def test_a_given_bound_changes_the_steps_not_the_descent() -> None:
    L, E, start = random_problem(6, 2, 4)
    bound = float(np.abs(L).sum(axis=1).max())
    before = stiefel_objective(L, E, point=start)
    result = stiefel_quadratic(L, E, start, max_iterations=3, largest_eigenvalue=bound)
    assert result.objective < before
    assert not result.converged
    assert result.n_iterations == 3


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(DataError):
        polar_factor(np.full((2, 1), np.nan))


@pytest.mark.parametrize("n_steps", [1, 5])
def test_power_steps_are_those_of_the_minimization(n_steps: int) -> None:
    L, E, start = random_problem(7, 3, 2)
    bound = float(np.linalg.eigvalsh(L)[-1])
    expected = stiefel_quadratic(
        L, E, start, max_iterations=n_steps, tolerance=0.0, largest_eigenvalue=bound
    )
    found = power_steps(L, E, start, n_steps=n_steps, largest_eigenvalue=bound)
    assert_allclose(found, expected.point, atol=1e-12)
