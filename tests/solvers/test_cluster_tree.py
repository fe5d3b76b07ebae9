"""Tree over clusters, by pair sampling."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.cluster.hierarchy import fcluster, is_monotonic, is_valid_linkage
from scipy.sparse import csr_array

from mscam_dask.solvers.cluster_tree import cluster_tree, weights_between


def test_weights_between_are_sums_of_the_symmetric_graph() -> None:
    rng = np.random.default_rng(0)
    graph = rng.uniform(size=(12, 12)) * (rng.uniform(size=(12, 12)) < 0.4)
    labels = rng.integers(3, size=12)
    found = weights_between(csr_array(graph), labels, 3)
    for i in range(3):
        for j in range(3):
            block = (graph + graph.T)[np.ix_(labels == i, labels == j)]
            assert_allclose(found[i, j], block.sum() / 2)


def test_clusters_that_touch_are_merged_first() -> None:
    weights = 100.0 * np.eye(4)
    weights[0, 2] = weights[2, 0] = 20.0
    weights[1, 3] = weights[3, 1] = 10.0
    weights[0, 1] = weights[1, 0] = 1.0
    tree = cluster_tree(weights)
    assert tree[:, :2].tolist() == [[0, 2], [1, 3], [4, 5]]
    assert tree[:, 3].tolist() == [2, 2, 4]
    groups = fcluster(tree, 2, "maxclust")
    assert groups[0] == groups[2] != groups[1] == groups[3]


@given(seed=st.integers(0, 99), n_clusters=st.integers(2, 9), density=st.floats(0.0, 1.0))
def test_it_is_a_linkage_matrix_whose_distances_never_decrease(
    seed: int, n_clusters: int, density: float
) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.uniform(size=(n_clusters, n_clusters)) * (
        rng.uniform(size=(n_clusters, n_clusters)) < density
    )
    tree = cluster_tree(weights + weights.T)
    assert np.isfinite(tree).all()
    assert is_valid_linkage(tree)
    distances = tree[:, 2]
    assert (np.diff(distances) >= -1e-9 * distances[1:]).all()
    assert is_monotonic(
        np.column_stack((tree[:, :2], np.maximum.accumulate(distances), tree[:, 3]))
    )
