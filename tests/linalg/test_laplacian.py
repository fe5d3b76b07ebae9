"""Laplacians by definition; components against a search."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.linalg.laplacian import (
    connected_components,
    graph_from_neighbors,
    laplacian,
    symmetric_affinity,
)


def random_graph(n: int, density: float, seed: int) -> NDArray[np.float64]:
    """A directed non-negative weight matrix with zero diagonal."""
    rng = np.random.default_rng(seed)
    weights = rng.random((n, n)) * (rng.random((n, n)) < density) + 0.0
    np.fill_diagonal(weights, 0.0)
    return weights


graphs = st.builds(
    random_graph, st.integers(1, 12), st.sampled_from([0.05, 0.15, 0.5]), st.integers(0, 999)
)


@settings(max_examples=30)
@given(st.integers(2, 9), st.data())
def test_graph_holds_the_weights_given(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, n - 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    indices = np.stack([rng.permutation(np.delete(np.arange(n), i))[:k] for i in range(n)])
    weights = rng.random((n, k)) * (rng.random((n, k)) < 0.7)
    weights[:, 0] = 1.0 - weights[:, 1:].mean(axis=1) if k > 1 else 1.0
    weights /= weights.sum(axis=1, keepdims=True)
    graph = graph_from_neighbors(indices, weights)
    dense = np.zeros((n, n))
    for i in range(n):
        for j, weight in zip(indices[i], weights[i], strict=True):
            dense[i, j] = weight
    assert_array_equal(graph.toarray(), dense)
    assert (graph.data > 0).all()
    for i in range(n):
        columns = graph.indices[graph.indptr[i] : graph.indptr[i + 1]]
        assert (np.diff(columns) > 0).all()
    assert_allclose(graph.sum(axis=1), 1.0)


@settings(max_examples=30)
@given(graphs, st.integers(0, 99))
def test_laplacian_by_definition(weights: NDArray[np.float64], seed: int) -> None:
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
def test_components_against_a_search(weights: NDArray[np.float64]) -> None:
    linked = (weights + weights.T) > 0
    labels = np.full(len(weights), -1)
    for start in range(len(weights)):
        if labels[start] >= 0:
            continue
        label = labels.max() + 1
        pending = [start]
        while pending:
            vertex = pending.pop()
            if labels[vertex] < 0:
                labels[vertex] = label
                pending.extend(np.flatnonzero(linked[vertex]).tolist())
    # the search numbers by first appearance, too
    count, found = connected_components(csr_array(weights))
    assert count == labels.max() + 1
    assert_array_equal(found, labels)


def test_explicit_zeros_are_no_edges() -> None:
    graph = csr_array((np.array([0.0, 1.0]), np.array([1, 2]), np.array([0, 2, 2, 2])))
    assert connected_components(graph)[1].tolist() == [0, 1, 0]
    assert graph.nnz == 2  # left as it was
