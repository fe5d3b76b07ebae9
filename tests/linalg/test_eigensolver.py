"""Laplacians by definition and the bottom of their spectrum: dense oracle, Ky Fan, exact null space, warm starts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import block_diag, csr_array, random_array

from mscam_dask.linalg import eigensolver
from mscam_dask.linalg.distances import squared_distances_to
from mscam_dask.linalg.eigensolver import Spectrum, bottom_eigenpairs
from mscam_dask.linalg.laplacian import (
    connected_components,
    graph_from_neighbors,
    laplacian,
    symmetric_affinity,
)
from mscam_dask.linalg.neighbors import nearest_neighbors
from mscam_dask.solvers.graph_update import select_neighbors
from tests.synthetic import Array


def random_graph(n: int, degree: float, seed: int) -> csr_array[np.float64]:
    rng = np.random.default_rng(seed)
    return csr_array(random_array((n, n), density=degree / n, rng=rng))


def path_graph(n: int) -> csr_array[np.float64]:
    return csr_array(np.eye(n, k=1))


def complete_graph(n: int) -> csr_array[np.float64]:
    return csr_array(np.ones((n, n)) - np.eye(n))


def difficult_graph(name: str, n: int) -> csr_array[np.float64]:
    if name == "random":
        return random_graph(n, 8, 0)
    if name == "sparse":  # many components, isolated vertices
        return random_graph(n, 1.5, 1)
    if name in ("path", "ring"):  # small eigenvalues close together; those of a ring are double
        last = csr_array(([float(name == "ring")], ([0], [n - 1])), shape=(n, n))
        return csr_array(path_graph(n) + last)
    if name == "star":  # the second smallest eigenvalue n - 2 times
        return csr_array(np.eye(1, n).T @ np.ones((1, n)) * (np.arange(n) > 0))
    if name == "complete":
        return complete_graph(n)
    # cliques that hang together by a thread: eigenvalues near 1e-10, then a wall
    return csr_array(block_diag([complete_graph(20)] * (n // 20)) + 1e-9 * path_graph(n))


def solve(L: csr_array[np.float64], m: int, *, seed: int = 0, **options: Any) -> Spectrum:
    return bottom_eigenpairs(L, m, rng=np.random.default_rng(seed), **options)


def check(L: csr_array[np.float64], found: Spectrum, m: int) -> None:
    """Eigenpairs by definition, and the values of a dense solver."""
    dense = L.toarray()
    bound = max(float(np.abs(dense).sum(axis=1).max()), 1e-300)
    v, theta = found.vectors, found.values
    assert found.converged
    assert v.shape == (len(dense), m)
    assert_allclose(v.T @ v, np.eye(m), atol=1e-12)
    assert (np.diff(theta) >= -1e-12 * bound).all()
    residuals = np.linalg.norm(dense @ v - v * theta, axis=0)
    assert residuals.max() <= 1.001e-8 * bound
    expected = scipy.linalg.eigvalsh(dense)[:m]
    assert_allclose(theta, expected, atol=1e-8 * bound)
    # Ky Fan: the least trace over orthonormal frames
    assert abs(np.trace(v.T @ dense @ v) - expected.sum()) <= 1e-8 * m * bound


@pytest.mark.parametrize("n", [240, 300])  # a dense solver, and ARPACK
@pytest.mark.parametrize("n_pairs", [1, 20])
@pytest.mark.parametrize(
    "name", ["random", "sparse", "path", "ring", "star", "complete", "cliques"]
)
def test_against_the_dense_solver(name: str, n_pairs: int, n: int) -> None:
    L = laplacian(difficult_graph(name, n))
    check(L, solve(L, n_pairs), n_pairs)


@settings(max_examples=20)
@given(st.integers(1, 40), st.floats(0.3, 5), st.integers(0, 999), st.data())
def test_small_graphs(n: int, degree: float, seed: int, data: st.DataObject) -> None:
    L = laplacian(random_graph(n, min(degree, n), seed))
    m = data.draw(st.integers(1, n))
    check(L, solve(L, m), m)


def test_zero_has_exactly_the_multiplicity_of_the_components() -> None:
    parts = [path_graph(size) for size in (50, 70, 90, 110)]
    graph = csr_array(block_diag(parts))
    order = np.random.default_rng(0).permutation(320)
    L = laplacian(csr_array(graph[order][:, order]))
    count, labels = connected_components(L)
    for m in (2, 4, 9):
        found = solve(L, m)
        assert count == 4
        assert np.count_nonzero(found.values == 0.0) == min(m, count)
        check(L, found, m)
    # the null vectors are constant on every component
    null = solve(L, 4).vectors
    for label in range(count):
        assert_allclose(np.ptp(null[labels == label], axis=0), 0.0, atol=1e-15)


@pytest.fixture(scope="module")
def blobs() -> csr_array[np.float64]:
    rng = np.random.default_rng(0)
    centers = 2.5 * rng.standard_normal((6, 8))
    points = centers[np.arange(1200) % 6] + rng.standard_normal((1200, 8))
    candidates, _ = nearest_neighbors(points, 10)
    distances = squared_distances_to(points, np.arange(1200), candidates)
    return graph_from_neighbors(*select_neighbors(candidates, distances, 9))


def test_a_misleading_warm_start_is_overcome(blobs: csr_array[np.float64]) -> None:
    # exact eigenvectors, but not the bottom ones: residuals alone would accept them
    L = laplacian(blobs)
    vectors = solve(L, 12).vectors
    check(L, solve(L, 5, warm_start=vectors[:, 6:]), 5)


@pytest.mark.parametrize("n_restarts", [1, 3])  # none of the pairs is found, and some
def test_an_unfinished_answer_says_so(
    n_restarts: int, blobs: csr_array[np.float64], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eigensolver, "_MAX_RESTARTS", n_restarts)
    L = laplacian(blobs)
    found = solve(L, 12)
    assert not found.converged
    assert_allclose(found.vectors.T @ found.vectors, np.eye(12), atol=1e-12)


def random_weights(n: int, density: float, seed: int) -> Array:
    """A directed non-negative weight matrix with zero diagonal."""
    rng = np.random.default_rng(seed)
    weights = rng.random((n, n)) * (rng.random((n, n)) < density) + 0.0
    np.fill_diagonal(weights, 0.0)
    return weights


graphs = st.builds(
    random_weights, st.integers(1, 12), st.sampled_from([0.05, 0.15, 0.5]), st.integers(0, 999)
)


@settings(max_examples=30)
@given(graphs, st.integers(0, 99))
def test_laplacian_by_definition(weights: Array, seed: int) -> None:
    L = laplacian(csr_array(weights)).toarray()
    v = np.random.default_rng(seed).standard_normal(len(weights))
    symmetric = (weights + weights.T) / 2
    energy = 0.5 * np.sum(symmetric * (v[:, None] - v[None, :]) ** 2)
    assert_allclose(v @ L @ v, energy, atol=1e-12)
    assert_allclose(L.sum(axis=1), 0.0, atol=1e-13)
    assert_array_equal(L, L.T)
    assert_array_equal(symmetric_affinity(csr_array(weights)).toarray(), symmetric)


@settings(max_examples=30)
@given(graphs)
def test_components_are_the_samples_that_a_walk_reaches(weights: Array) -> None:
    n = len(weights)
    step = np.eye(n) + ((weights + weights.T) > 0)
    reached = np.linalg.matrix_power(step, n) > 0
    expected = np.unique(reached.argmax(axis=1), return_inverse=True)[1]  # by first appearance
    count, found = connected_components(csr_array(weights))
    assert count == expected.max() + 1
    assert_array_equal(found, expected)


def test_explicit_zeros_are_no_edges() -> None:
    graph = csr_array((np.array([0.0, 1.0]), np.array([1, 2]), np.array([0, 2, 2, 2])))
    assert connected_components(graph)[1].tolist() == [0, 1, 0]
    assert graph.nnz == 2  # left as it was
