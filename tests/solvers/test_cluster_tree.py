"""Tree over clusters, by pair sampling."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.cluster.hierarchy import fcluster, is_monotonic, is_valid_linkage
from scipy.sparse import csr_array

from mscam_dask.linalg.distances import squared_distances
from mscam_dask.linalg.incomplete import IncompleteBlocks, PresentSamples
from mscam_dask.solvers.cluster_tree import cluster_tree, merge_incomplete, ward_merge
from mscam_dask.solvers.graph_update import GraphRows, row_weights_between
from mscam_dask.solvers.spectral_cut import canonical_labels


def test_weights_between_are_sums_of_the_symmetric_graph() -> None:
    rng = np.random.default_rng(0)
    graph = rng.uniform(size=(12, 12)) * (rng.uniform(size=(12, 12)) < 0.4)
    labels = rng.integers(3, size=12)
    found = row_weights_between(GraphRows(0, csr_array(graph)), labels, 3)
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


@given(seed=st.integers(0, 10**6), n_components=st.integers(3, 7), n_clusters=st.integers(1, 3))
def test_views_that_have_all_samples_merge_as_complete_ones(
    seed: int, n_components: int, n_clusters: int
) -> None:
    rng = np.random.default_rng(seed)
    components = np.concatenate([np.arange(n_components), rng.integers(n_components, size=12)])
    n = len(components)
    blocks = (rng.standard_normal((n, 2)), rng.standard_normal((n, 3)))
    everyone = PresentSamples(np.arange(n), n)
    points = IncompleteBlocks(n, blocks, (everyone, everyone), (0, 0), (1.0, 1.0))
    found = merge_incomplete(points, components, n_clusters)
    sizes = np.bincount(components).astype(float)
    members = np.eye(n_components)[components]
    means = members.T @ np.hstack(blocks) / sizes[:, None]
    merged, _ = ward_merge(squared_distances(means, means), sizes, n_clusters)
    assert found.tolist() == canonical_labels(merged[components]).tolist()


def test_the_smallest_components_without_a_common_view_merge_first() -> None:
    components = np.repeat([0, 1, 2], [5, 2, 1])
    present = tuple(PresentSamples(np.flatnonzero(components == i), 8) for i in range(3))
    blocks = tuple(np.zeros((len(own), 2)) for own in present)
    points = IncompleteBlocks(8, blocks, present, (0, 0, 0), (1.0, 1.0, 1.0))
    assert merge_incomplete(points, components, 2).tolist() == [0] * 5 + [1] * 3


def test_groups_that_merge_have_the_distances_of_either() -> None:
    distances = np.array([[0.0, 1.0, np.inf], [1.0, 0.0, 4.0], [np.inf, 4.0, 0.0]])
    assert ward_merge(distances, np.ones(3), 2)[0].tolist() == [0, 0, 2]
    labels, squares = ward_merge(distances, np.ones(3), 1)
    assert labels.tolist() == [0, 0, 0]
    assert_allclose(squares, 1 / 2 + ((1 + 1) * 2 + (1 + 1) * 2 - 1 / 2) / 3)
