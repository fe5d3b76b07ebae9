"""Orthonormal columns: signs, the nearest orthonormal matrix, steps on the Stiefel manifold, bases of rows and kernels."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from mscam_dask.errors import DataError
from mscam_dask.linalg.orthonormal import (
    basis_from_gram,
    basis_from_rows,
    orient_columns,
    polar_factor,
    power_steps,
)
from tests.synthetic import Array

shapes = st.integers(1, 8).flatmap(lambda h: st.tuples(st.just(h), st.integers(1, h)))
seeds = st.integers(0, 999)


@settings(max_examples=30)
@given(seeds)
def test_orientation_does_not_depend_on_the_sign_given(seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((6, 4))
    flipped = vectors * rng.choice([-1.0, 1.0], size=4)
    assert_array_equal(orient_columns(flipped), orient_columns(vectors))
    assert_array_equal(np.abs(orient_columns(vectors)), np.abs(vectors))


def test_the_first_entry_of_nearly_largest_size_is_positive() -> None:
    vectors = np.array([[-1.0, 0.1, 0.1], [1.0 + 1e-12, -0.9, 0.9], [0.5, 0.8, -0.8]])
    assert_array_equal(orient_columns(vectors), vectors * [-1.0, -1.0, 1.0])
    assert orient_columns(np.zeros((0, 2))).shape == (0, 2)


@settings(max_examples=30)
@given(shapes, seeds)
def test_polar_factor_is_the_nearest_orthonormal_matrix(shape: tuple[int, int], seed: int) -> None:
    """The orthonormal w is nearest to M iff M = w H with H symmetric positive semi-definite."""
    matrix = np.random.default_rng(seed).standard_normal(shape)
    found = polar_factor(matrix)
    remainder = found.T @ matrix
    assert_allclose(found.T @ found, np.eye(found.shape[1]), atol=1e-13)
    assert_allclose(found @ remainder, matrix, atol=1e-12)
    assert_allclose(remainder, remainder.T, atol=1e-12)
    assert scipy.linalg.eigvalsh(remainder)[0] >= -1e-12


def test_polar_factor_of_a_rank_deficient_matrix_is_orthonormal() -> None:
    w = polar_factor(np.outer(np.arange(1.0, 6.0), [1.0, 1.0, 0.0]))
    assert_allclose(w.T @ w, np.eye(3), atol=1e-14)
    with pytest.raises(DataError):
        polar_factor(np.full((2, 1), np.nan))


def steps(h: int, c: int, seed: int, n_steps: int, *, linear: float = 1.0) -> list[Array]:
    """L, E, and each point from a random start."""
    rng = np.random.default_rng(seed)
    factor = rng.standard_normal((h, h))
    quadratic, term = factor @ factor.T, linear * rng.standard_normal((h, c))
    points = [polar_factor(rng.standard_normal((h, c)))]
    bound = float(scipy.linalg.eigvalsh(quadratic)[-1])
    for _ in range(n_steps):
        points.append(power_steps(quadratic, term, points[-1], n_steps=2, largest_eigenvalue=bound))
    return [quadratic, term, *points]


@settings(max_examples=30)
@given(shapes, seeds)
def test_descent_is_monotone_and_stays_on_the_manifold(shape: tuple[int, int], seed: int) -> None:
    quadratic, term, *points = steps(*shape, seed, 8)
    values = [np.trace(w.T @ quadratic @ w) - 2 * np.trace(w.T @ term) for w in points]
    assert all(after <= before + 1e-10 * (1 + abs(before)) for before, after in pairwise(values))
    for w in points:
        assert_allclose(w.T @ w, np.eye(shape[1]), atol=1e-12)


def test_where_it_converges_is_stationary() -> None:
    """The Riemannian gradient G − w sym(wᵀ G), G = 2 (L w − E), vanishes."""
    quadratic, term, *points = steps(6, 3, 0, 2000)
    gradient = 2 * (quadratic @ points[-1] - term)
    inner = points[-1].T @ gradient
    assert_allclose(gradient, points[-1] @ (inner + inner.T) / 2, atol=1e-6)


def test_without_a_linear_term_the_bottom_eigenvectors_are_the_answer() -> None:
    """Ky Fan: min tr(wᵀ L w) is the sum of the c smallest eigenvalues."""
    quadratic, _, *points = steps(8, 3, 1, 5000, linear=0.0)
    least = np.trace(points[-1].T @ quadratic @ points[-1])
    assert_allclose(least, scipy.linalg.eigvalsh(quadratic)[:3].sum(), rtol=1e-6)


def random_rows(n: int, d: int, rank: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, min(rank, d))) @ rng.standard_normal((min(rank, d), d))


rows_strategy = st.builds(
    random_rows, st.integers(1, 14), st.integers(1, 14), st.integers(1, 14), st.integers(0, 999)
)


@settings(max_examples=30)
@given(rows_strategy)
def test_basis_is_the_thin_svd(rows: Array) -> None:
    basis = basis_from_rows(rows)
    q, s2 = basis.vectors, basis.singular_values_squared
    singular_values = np.linalg.svd(rows, compute_uv=False)
    # directions above 1e-5 of the largest stay (s^2 above 1e-10), but for rounding of the Gram matrix
    assert np.sum(singular_values > 2e-5 * singular_values[0]) <= basis.rank
    assert np.sum(singular_values > 5e-6 * singular_values[0]) >= basis.rank
    assert_allclose(q.T @ q, np.eye(basis.rank), atol=1e-12)
    assert (np.diff(s2) <= 0).all()
    assert_allclose((q * s2) @ q.T, rows @ rows.T, atol=1e-11 * s2[0])


def test_ill_conditioned_rows_give_orthonormal_vectors() -> None:
    rng = np.random.default_rng(0)
    left = scipy.linalg.qr(rng.standard_normal((300, 20)), mode="economic")[0]
    right = scipy.linalg.qr(rng.standard_normal((20, 20)))[0]
    basis = basis_from_rows((left * np.logspace(0, -4.5, 20)) @ right)
    assert basis.rank == 20
    assert_allclose(basis.vectors.T @ basis.vectors, np.eye(20), atol=1e-12)


def test_zero_rows_have_an_empty_basis() -> None:
    for shape in ((5, 3), (3, 5)):
        assert basis_from_rows(np.zeros(shape)).vectors.shape == (shape[0], 0)


def test_matrices_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(DataError):
        basis_from_gram(np.array([[np.nan]]))
