"""The ridge self-representation, from its normal equations."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from mscam_dask.errors import DataError
from mscam_dask.linalg.orthonormal import (
    basis_from_gram,
    basis_from_kernel,
    basis_from_rows,
    shrinkage_factors,
)


def random_rows(n: int, d: int, rank: int, seed: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, min(rank, d))) @ rng.standard_normal((min(rank, d), d))


rows_strategy = st.builds(
    random_rows, st.integers(1, 14), st.integers(1, 14), st.integers(1, 14), st.integers(0, 999)
)


@settings(max_examples=30)
@given(rows_strategy)
def test_basis_is_the_thin_svd(rows: NDArray[np.float64]) -> None:
    basis = basis_from_rows(rows)
    q, s2 = basis.vectors, basis.singular_values_squared
    singular_values = np.linalg.svd(rows, compute_uv=False)
    # directions above 1e-5 of the largest stay (s^2 above 1e-10), but for rounding of the Gram matrix
    assert np.sum(singular_values > 2e-5 * singular_values[0]) <= basis.rank
    assert np.sum(singular_values > 5e-6 * singular_values[0]) >= basis.rank
    assert_allclose(q.T @ q, np.eye(basis.rank), atol=1e-12)
    assert (np.diff(s2) <= 0).all()
    assert_allclose((q * s2) @ q.T, rows @ rows.T, atol=1e-11 * s2[0])


@settings(max_examples=30)
@given(rows_strategy, st.floats(0.01, 100))
def test_anchor_distances_are_those_between_columns_of_z(
    rows: NDArray[np.float64], alpha: float
) -> None:
    gram = rows @ rows.T
    Z = scipy.linalg.solve(gram + alpha * np.eye(len(gram)), gram, assume_a="pos")
    basis = basis_from_rows(rows)
    points = basis.vectors * shrinkage_factors(basis.singular_values_squared, alpha)
    of_z = np.sum((Z[:, :, None] - Z[:, None, :]) ** 2, axis=0)
    of_points = np.sum((points[:, None, :] - points[None, :, :]) ** 2, axis=2)
    assert_allclose(of_points, of_z, atol=1e-8)


def test_ill_conditioned_rows_give_orthonormal_vectors() -> None:
    rng = np.random.default_rng(0)
    left = scipy.linalg.qr(rng.standard_normal((300, 20)), mode="economic")[0]
    right = scipy.linalg.qr(rng.standard_normal((20, 20)))[0]
    basis = basis_from_rows((left * np.logspace(0, -4.5, 20)) @ right)
    assert basis.rank == 20
    assert_allclose(basis.vectors.T @ basis.vectors, np.eye(20), atol=1e-12)


def test_negative_eigenvalues_of_a_kernel_are_dropped() -> None:
    q = scipy.linalg.qr(np.random.default_rng(0).standard_normal((6, 6)))[0]
    values = np.array([3.0, 2.0, 1.0, 0.0, -1.0, -5.0])
    basis = basis_from_kernel((q * values) @ q.T)
    assert_allclose(basis.singular_values_squared, [3.0, 2.0, 1.0])
    assert_allclose(np.abs(basis.vectors.T @ q[:, :3]), np.eye(3), atol=1e-12)


def test_zero_rows_have_an_empty_basis() -> None:
    for shape in ((5, 3), (3, 5)):
        assert basis_from_rows(np.zeros(shape)).vectors.shape == (shape[0], 0)


def test_matrices_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(DataError):
        basis_from_gram(np.array([[np.nan]]))
