"""Edges of a graph, each in one of two halves."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from mscam_dask.linalg.edge_split import edge_split
from mscam_dask.linalg.laplacian import symmetric_affinity


def random_graph(seed: int, n_samples: int) -> csr_array[np.float64]:
    rng = np.random.default_rng(seed)
    dense = rng.random((n_samples, n_samples)) * (rng.random((n_samples, n_samples)) < 0.3)
    np.fill_diagonal(dense, 0.0)
    return csr_array(dense)


@given(seed=st.integers(0, 1000), n_samples=st.integers(1, 30))
def test_each_edge_is_in_one_half_with_its_weight(seed: int, n_samples: int) -> None:
    graph = random_graph(seed, n_samples)
    first, second = (half.toarray() for half in edge_split(graph, np.random.default_rng(seed)))
    np.testing.assert_array_equal(first + second, symmetric_affinity(graph).toarray())
    np.testing.assert_array_equal(first, first.T)
    np.testing.assert_array_equal(second, second.T)
    assert not np.any((first > 0) & (second > 0))


def test_halves_are_halves_and_a_matter_of_the_seed() -> None:
    graph = random_graph(0, 100)
    first, second = edge_split(graph, np.random.default_rng(1))
    again, _ = edge_split(graph, np.random.default_rng(1))
    other, _ = edge_split(graph, np.random.default_rng(2))
    np.testing.assert_array_equal(first.toarray(), again.toarray())
    assert np.any(first.toarray() != other.toarray())
    assert 0.4 < first.nnz / (first.nnz + second.nnz) < 0.6
