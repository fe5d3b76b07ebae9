"""Signs of columns, and the orthonormal matrix nearest to one that nearly is."""

from __future__ import annotations

import numpy as np
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from mscam_dask.linalg.orthonormal import orient_columns, orthonormalize_nearby


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
