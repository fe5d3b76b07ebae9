"""The embedding of random walks: by definition from the dense inverse, in the limit, invariant."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from mscam_dask.linalg.orthonormal import polar_factor
from mscam_dask.solvers.spectral_cut import (
    canonical_labels,
    random_minima,
    start_minima,
    walk_embedding,
)
from tests import oracle

Array = NDArray[np.float64]


def noisy_blocks(seed: int, *, n: int = 60, c: int = 4, mixing: float = 0.3) -> Array:
    """Laplacian of a graph of c groups with edges between them, no two eigenvalues alike."""
    rng = np.random.default_rng(seed)
    group = np.arange(n) % c
    affinity = rng.random((n, n)) * np.where(group[:, None] == group, 1.0, mixing)
    return np.asarray(oracle.dense_laplacian(affinity))


def cosines(rows: Array) -> Array:
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(unit @ unit.T)


@given(st.integers(0, 2**16), st.integers(2, 6))
@settings(max_examples=20)
def test_all_pairs_give_where_the_walks_end(seed: int, c: int) -> None:
    L = noisy_blocks(seed, c=c)
    values, vectors = np.linalg.eigh(L)
    stopping = values[c] / 2
    ends = stopping * np.linalg.inv(L + stopping * np.eye(len(L)))
    assert_allclose(ends.sum(axis=1), 1.0)
    assert ends.min() > 0  # probabilities
    rows = walk_embedding(values, vectors, c).rows
    assert_allclose(rows @ rows.T, cosines(ends - ends.mean(axis=0)), atol=1e-8)


@given(st.lists(st.integers(4, 20), min_size=2, max_size=6), st.integers(0, 2**16))
@settings(max_examples=20)
def test_the_limit_of_c_components(sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    c = len(sizes)
    group = np.repeat(np.arange(c), sizes)
    affinity = np.where(group[:, None] == group, rng.uniform(0.5, 1.0, (len(group),) * 2), 0.0)
    values, vectors = scipy.linalg.eigh(oracle.dense_laplacian(affinity))
    for m in (c, min(2 * c, len(group))):
        embedding = walk_embedding(values[:m], vectors[:, :m], c)
        for cut, _ in [start_minima(embedding, None)[0], *random_minima(embedding, 0, range(2))]:
            assert_array_equal(cut, canonical_labels(group))


@given(st.integers(0, 2**16))
@settings(max_examples=10)
def test_neither_signs_nor_scale_nor_order_matter(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, vectors = np.linalg.eigh(noisy_blocks(seed))
    values, vectors = values[:8], vectors[:, :8]
    rows = walk_embedding(values, vectors, 4).rows
    signs = rng.choice([-1.0, 1.0], 8)
    assert_allclose(walk_embedding(values, vectors * signs, 4).rows, rows * signs, atol=1e-12)
    assert_allclose(walk_embedding(7.0 * values, vectors, 4).rows, rows, atol=1e-12)
    order = rng.permutation(len(rows))
    assert_allclose(walk_embedding(values, vectors[order], 4).rows, rows[order], atol=1e-12)


def test_the_basis_of_an_eigenspace_does_not_matter() -> None:
    ring = np.roll(np.eye(12), 1, axis=1)  # eigenvalues in pairs
    values, vectors = np.linalg.eigh(oracle.dense_laplacian(ring + ring.T))
    rotation = np.eye(5)
    rotation[1:3, 1:3] = polar_factor(np.random.default_rng(0).standard_normal((2, 2)))
    first = walk_embedding(values[:5], vectors[:, :5], 3).rows
    turned = walk_embedding(values[:5], vectors[:, :5] @ rotation, 3).rows
    assert_allclose(turned @ turned.T, first @ first.T, atol=1e-12)


def test_eigenvalues_below_the_precision_of_the_vectors_are_rounding() -> None:
    # six groups that hang together by threads of 1e-9, in single precision
    values = np.array([0.0, 4e-308, 4e-308, 4e-308, 7e-9, 2e-8])
    vectors = polar_factor(np.random.default_rng(0).standard_normal((9, 6))).astype(np.float32)
    rows = walk_embedding(values, vectors, 3).rows
    assert rows.dtype == np.float32
    rest = vectors - vectors.mean(axis=0)
    assert_allclose(rows, rest / np.linalg.norm(rest, axis=1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize(
    ("values", "c", "stopping"),
    [
        ([0.0, 0.1, 0.4, 0.9], 2, 0.2),
        ([0.0, 0.1], 2, 0.05),  # there is none beyond
        ([0.0, 0.0, 0.0, 0.6], 2, 0.3),  # in more pieces than clusters
        ([0.0, 0.0, 1e-17, 0.6], 2, 0.3),
        ([0.0, 0.0, 0.0], 2, 0.5),  # without edges
        ([0.0, 0.0, 1e-10, 1e7], 2, 5e6),  # rounding is relative to the largest
        ([0.0, 0.0, 1e-300, 2e-300], 2, 0.5),  # nothing but rounding
        ([-1e-17, 0.1, 0.4], 2, 0.2),
    ],
)
def test_walks_stop_at_half_the_first_eigenvalue_beyond(
    values: list[float], c: int, stopping: float
) -> None:
    m = len(values)
    vectors = polar_factor(np.random.default_rng(0).standard_normal((9, m)))
    rows = (vectors - vectors.mean(axis=0)) / (np.maximum(values, 0.0) + stopping)
    expected = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    assert_allclose(walk_embedding(np.array(values), vectors, c).rows, expected, atol=1e-12)


def test_equal_rows_stay_zero() -> None:
    rows = walk_embedding(np.zeros(2), np.full((4, 2), 0.5), 2).rows
    assert_array_equal(rows, 0.0)
