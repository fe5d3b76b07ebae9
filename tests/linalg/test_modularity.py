"""Modularity by Newman's double sum, and the partitions whose value is known."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.sparse import csr_array

from mscam_dask.linalg.neighbor_information import modularity


@given(st.integers(2, 12), st.integers(1, 4), st.integers(0, 999))
def test_by_the_double_sum(n: int, n_clusters: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = np.triu(rng.random((n, n)), 1) * (rng.random((n, n)) < 0.5)
    weights[0, 1] = 1.0  # at least one edge
    weights = weights + weights.T
    labels = rng.integers(0, n_clusters, size=n)
    degrees, total = weights.sum(axis=1), weights.sum()
    expected = 0.0
    for i in range(n):
        for j in range(n):
            if labels[i] == labels[j]:
                expected += (weights[i, j] - degrees[i] * degrees[j] / total) / total
    found = modularity(csr_array(weights), labels)
    assert_allclose(found, expected, atol=1e-13)
    assert -0.5 - 1e-12 <= found < 1.0


def test_a_graph_without_edges_has_none() -> None:
    assert modularity(csr_array((3, 3), dtype=np.float64), np.arange(3)) == 0.0
