"""Agreement of views with clusters, the tree over clusters, and Fisher's discriminants."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, is_monotonic, is_valid_linkage
from scipy.linalg import solve
from scipy.sparse import csr_array

from mscam_dask.linalg.distances import squared_distances
from mscam_dask.linalg.incomplete import IncompleteBlocks, PresentSamples
from mscam_dask.solvers.borders import JointPoints
from mscam_dask.solvers.cluster_tree import cluster_tree, merge_incomplete, ward_merge
from mscam_dask.solvers.graph_update import GraphRows, row_weights_between
from mscam_dask.solvers.lda import LinearDiscriminants, class_sums, discriminant_loadings
from mscam_dask.solvers.partition_score import (
    ReferenceGraphs,
    agreement_with_clusters,
    view_agreement,
    views_agree,
)
from mscam_dask.solvers.spectral_cut import canonical_labels
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.result import Assessment, Borders, Structure
from mscam_dask.types.rules import CONSTANTS
from tests import oracle
from tests.solvers.whole_rows import linear_discriminants, prepared, ridge_points
from tests.synthetic import Array, gaussian_views


def random_graph(n_samples: int, seed: int, density: float = 0.2) -> Array:
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.uniform(size=(n_samples, n_samples)), 1)
    upper[rng.uniform(size=upper.shape) > density] = 0.0
    return upper + upper.T


def of_views(*graphs: NDArray[Any]) -> list[ReferenceGraphs]:
    """Views with one reference graph each."""
    return [ReferenceGraphs((csr_array(graph),)) for graph in graphs]


def test_cluster_agreement_is_one_within_components_and_zero_by_chance() -> None:
    labels = np.repeat(np.arange(3), 40)
    apart = np.kron(np.eye(3), np.ones((40, 40)) - np.eye(40))
    assert_allclose(agreement_with_clusters(of_views(apart), labels, 3)[0][0], 1.0)
    one_cluster = apart.copy()
    one_cluster[40:, 40:] = 1.0  # the view sees cluster 0 only
    found = agreement_with_clusters(of_views(one_cluster), labels, 3)[0][0]
    assert_allclose(found[0], 1.0)
    assert found[1:].max() < 0.3
    noise = agreement_with_clusters(of_views(random_graph(120, 0)), labels, 3)[0][0]
    assert np.abs(noise).max() < 0.1


def test_a_view_contradicts_a_cluster_whose_neighbors_are_in_another() -> None:
    labels = np.repeat([0, 1, 2], [10, 30, 20])
    parts = np.where(np.arange(60) < 40, 0, 1)  # 0 and 1 are one cluster in the view
    for groups, expected in ((parts, [1, -1, -1]), (labels, [-1, -1, -1])):
        graph, rng = np.zeros((60, 60)), np.random.default_rng(0)
        for row in range(60):
            others = np.flatnonzero((groups == groups[row]) & (np.arange(60) != row))
            graph[row, rng.choice(others, 4, replace=False)] = 1.0
        found = agreement_with_clusters(of_views(graph + graph.T), labels, 3)[1]
        assert found.tolist() == [expected]


def test_cluster_agreement_of_clusters_without_edges_is_undefined() -> None:
    graph = random_graph(20, 0, density=0.5)
    graph[:5] = graph[:, :5] = 0.0
    found = agreement_with_clusters(of_views(graph), np.repeat([0, 1, 2], [5, 15, 0]), 3)[0][0]
    assert np.isnan(found[[0, 2]]).all()
    assert np.isnan(found[1])  # it has all edges, so that chance gives the same


def test_agreement_of_views_is_one_for_equal_graphs_and_zero_on_average_for_permuted_ones() -> None:
    first, second = random_graph(30, 0), random_graph(30, 1)
    found = view_agreement(of_views(first, first, 2.0 * second))
    assert_allclose(found[0, 1], 1.0)
    assert_array_equal(found, found.T)
    rng = np.random.default_rng(0)
    permuted = []
    for _ in range(300):
        order = rng.permutation(30)
        permuted.append(view_agreement(of_views(first, second[order][:, order]))[0, 1])
    assert abs(np.mean(permuted)) < 0.01
    of_common = view_agreement(of_views(first[6:, 6:], second[6:, 6:]))[0, 1]
    first[:4] = first[:, :4] = second[2:6] = second[:, 2:6] = 0.0  # samples without edges
    assert_allclose(view_agreement(of_views(first, second))[0, 1], of_common)


def test_views_agree_on_one_rare_cluster_and_not_by_chance() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], [588, 12])
    views = of_views(random_graph(600, 0, density=0.02), random_graph(600, 1, density=0.02))
    together = apart = 0
    for _ in range(20):
        rows = rng.normal(size=(600, 8)) + 1.75 * labels[:, None]  # 3.5 standard deviations a view
        together += views_agree(views, JointPoints(rows, (4, 4)), labels)
        rows[:, 4:] = rng.permutation(rows[:, 4:])
        apart += views_agree(views, JointPoints(rows, (4, 4)), labels)
    assert together == 20
    assert apart <= 3
    assert views_agree(
        views[:1], JointPoints(rng.normal(size=(600, 8)), (8,)), labels
    )  # of one view


def test_views_agree_on_rings_around_one_center_and_not_by_chance() -> None:
    rng = np.random.default_rng(0)
    views = of_views(random_graph(300, 0, density=0.02), random_graph(300, 1, density=0.02))
    together = apart = 0
    for _ in range(20):
        half, angle = rng.integers(2, size=150), rng.uniform(0.0, np.pi, 150)
        labels, angle = np.tile(half, 2), np.concatenate([angle, angle + np.pi])  # equal means
        ring = (1.0 + labels)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        own = [ring + 0.1 * rng.normal(size=(300, 2)) for _ in views]
        together += views_agree(views, JointPoints(np.hstack(own), (2, 2)), labels)
        own[1] = rng.permutation(own[1])
        apart += views_agree(views, JointPoints(np.hstack(own), (2, 2)), labels)
    assert together == 20
    assert apart <= 3


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_samples_that_a_view_lacks_count_for_no_agreement(share: float) -> None:
    rng = np.random.default_rng(0)
    graphs = random_graph(150, 0, density=0.02), random_graph(150, 1, density=0.02)
    labels, together, apart = rng.integers(3, size=150), 0, 0
    for _ in range(20):
        has = [np.flatnonzero(rng.random(150) >= share) for _ in graphs]
        views = [
            ReferenceGraphs((csr_array(graph[rows][:, rows]),), PresentSamples(rows, 150))
            for graph, rows in zip(graphs, has, strict=True)
        ]
        own = [4.0 * np.eye(3)[labels] + rng.normal(size=(150, 3)) for _ in graphs]
        together += views_agree(views, JointPoints(np.hstack(own), (3, 3)), labels)
        own[1][has[1]] = own[1][rng.permutation(has[1])]
        lacking = np.setdiff1d(np.arange(150), has[1])
        own[1][lacking] = own[0][lacking]  # they come from the other view
        apart += views_agree(views, JointPoints(np.hstack(own), (3, 3)), labels)
    assert together == 20
    assert apart <= 3


def test_independent_partitions_of_two_views_are_no_agreement_of_small_clusters() -> None:
    rng = np.random.default_rng(0)
    views = of_views(random_graph(160, 0), random_graph(160, 1))
    agree = 0
    for _ in range(20):
        first, second = rng.integers(4, size=(2, 160))
        own = [6.0 * np.eye(4)[labels] + rng.normal(size=(160, 4)) for labels in (first, second)]
        points = JointPoints(np.hstack(own), (4, 4))
        agree += views_agree(views, points, 4 * first + second)
    assert agree <= 3


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


def distances(found: LinearDiscriminants) -> Array:
    return oracle.pair_distances(found.points.astype(np.float64))


def covariances(points: Array, labels: NDArray[np.int64]) -> tuple[Array, Array]:
    """Between clusters and within, sample by sample; the second one shrunk."""
    n, r = points.shape
    mean = points.mean(axis=0)
    between, within = np.zeros((r, r)), np.zeros((r, r))
    for row, label in zip(points, labels, strict=True):
        own = points[labels == label].mean(axis=0)
        between += np.outer(own - mean, own - mean) / n
        within += np.outer(row - own, row - own) / n
    share = CONSTANTS.shrinkage
    return between, (1 - share) * within + share * np.trace(within) / r * np.eye(r)


@given(seed=st.integers(0, 10**6), c=st.integers(2, 5))
def test_distances_are_those_of_the_definition(seed: int, c: int) -> None:
    """‖t_i − t_j‖² = (z_i − z_j)ᵀ S⁻¹ B (S + B)⁻¹ (z_i − z_j); the separation is tr (S + B)⁻¹ B."""
    (rows,), labels = gaussian_views(seed, n_samples=60, n_clusters=c, spread=2.0, dims=(5,))
    view = prepared(rows)
    points = ridge_points(view)
    between, within = covariances(points, labels)
    form = solve(within, between) @ np.linalg.inv(within + between)
    gaps = points[:, None] - points[None]
    expected = np.einsum("ijk,kl,ijl->ij", gaps, form, gaps)
    found = linear_discriminants(view, labels)
    assert found.points.shape == (60, min(c - 1, 5))
    assert_allclose(distances(found), expected, rtol=1e-4, atol=1e-4)
    off = ~np.eye(60, dtype=bool)
    assert found.mean_distance == pytest.approx(expected[off].mean(), rel=1e-4)
    vectors, weights = view.coordinates()
    _, separation = discriminant_loadings(class_sums(vectors, labels), np.sqrt(weights))
    assert separation == pytest.approx(np.trace(solve(within + between, between)), rel=1e-4)


def test_clusters_without_any_spread() -> None:
    labels = np.arange(30) % 3
    found = linear_discriminants(prepared(np.eye(3, 4)[labels] * [1.0, 2.0, 3.0, 0.0]), labels)
    assert np.isfinite(found.points).all()
    assert found.mean_distance > 0
    within = distances(found)[labels[:, None] == labels]
    assert_allclose(within, 0.0, atol=1e-3 * found.mean_distance)


def test_a_view_that_says_nothing_has_no_distances() -> None:
    """Means of the clusters that are all the same."""
    rows = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]] * 5)
    labels = np.repeat(np.arange(5), 4)
    found = linear_discriminants(prepared(rows), labels)
    assert found.mean_distance == pytest.approx(0.0, abs=1e-12)


def borders(sizes: list[int], failing: dict[tuple[int, int], float]) -> Borders:
    """Clusters all of whose borders hold but these."""
    c = len(sizes)
    p_values = np.full((c, c), 0.01) - 0.01 * np.eye(c)
    counts = np.arange(3 * c * c).reshape(c, c, 3)
    for (i, j), value in failing.items():
        p_values[i, j] = p_values[j, i] = value
    return Borders(p_values, counts, np.array(sizes))


def made_up(
    failing: dict[tuple[int, int], float], sizes: tuple[int, ...] = (50, 40, 30)
) -> Assessment:
    return Assessment(
        borders=borders(list(sizes), failing),
        view_names=("a", "b"),
        cluster_agreement=np.arange(6.0).reshape(2, 3),
        contradictions=np.array([[-1, 2, -1], [1, -1, 0]]),
        view_agreement=np.eye(2),
        cluster_tree=np.array([[1.0, 2.0, 1.0, 2.0], [0.0, 3.0, 2.0, 3.0]]),
        cluster_names=(0, 1, 2),
    )


@pytest.mark.parametrize(
    ("sizes", "failing", "merged", "is_supported"),
    [
        ([50, 40, 30], {}, [0, 1, 2], True),
        ([50, 40, 30], {(0, 1): 0.05}, [0, 1, 2], True),  # just holds
        ([50, 40, 30], {(1, 2): 0.2}, [0, 1, 1], False),
        ([500, 400, 30], {(1, 2): 0.2}, [0, 1, 1], True),  # few samples
        ([500, 400, 60], {(1, 2): 0.2}, [0, 1, 1], False),
        ([500, 9], {(0, 1): 0.2}, [0, 0], False),  # one cluster
        ([500, 9, 40, 8], {(0, 1): 0.2, (2, 3): 0.2}, [0, 0, 1, 1], False),  # half of the clusters
        ([500, 9, 40, 8, 90], {(0, 1): 0.2, (2, 3): 0.2}, [0, 0, 1, 1, 2], True),
        ([500, 9, 8, 40, 7], {(0, 1): 0.2, (0, 2): 0.2, (3, 4): 0.2}, [0, 0, 0, 1, 1], False),
        # the smallest joins across its weakest border, before larger ones are looked at
        ([50, 40, 3], {(0, 1): 0.9, (0, 2): 0.3, (1, 2): 0.4}, [0, 0, 0], False),
        ([50, 40, 30, 3], {(0, 1): 0.2, (2, 3): 0.9}, [0, 0, 1, 1], False),
        ([50, 40, 3], {(0, 2): 0.3, (1, 2): 0.4}, [0, 1, 1], True),
        ([40, 50, 3], {(0, 2): 0.4, (1, 2): 0.4}, [0, 1, 1], True),  # of equal ones the larger
    ],
)
def test_clusters_are_merged_until_all_borders_hold(
    sizes: list[int],
    failing: dict[tuple[int, int], float],
    merged: list[int],
    *,
    is_supported: bool,
) -> None:
    found = borders(sizes, failing)
    assert found.merged.tolist() == merged
    assert found.n_supported == len(set(merged))
    assert found.support is is_supported


@pytest.mark.parametrize(
    ("failing", "sizes", "structure", "standing", "words"),
    [
        ({}, (50, 40, 30), Structure.CLEAR, (0, 1, 2), "0.01;"),
        # a border may fail with a much smaller cluster
        ({(1, 2): 0.4}, (500, 400, 10), Structure.CLEAR, (0, 1), "except for cluster 2,"),
        (
            {(0, 2): 1.0, (1, 2): 1.0},
            (500, 400, 4),
            Structure.PARTLY,
            (0, 1),
            "2 of 3 clusters are separated from all others: cluster 2 would need 5 samples",
        ),
        (
            {(0, 2): 1.0, (1, 2): 1.0, (0, 1): 0.4},
            (500, 20, 4),
            Structure.NONE,
            (),
            "between clusters 0 and 1, and cluster 2 would need",
        ),
        ({(1, 2): 0.4}, (50, 40, 30), Structure.PARTLY, (0,), "between clusters 1 and 2"),
        ({(0, 1): 0.3, (1, 2): 0.4}, (50, 40, 30), Structure.NONE, (), "1 and 2 or 0 and 1"),
    ],
)
def test_structure_and_message_name_the_clusters_that_stand(
    failing: dict[tuple[int, int], float],
    sizes: tuple[int, ...],
    structure: Structure,
    standing: tuple[int, ...],
    words: str,
) -> None:
    found = made_up(failing, sizes)
    assert found.structure is structure
    assert found.standing_clusters == standing
    assert words in found.message


@pytest.mark.parametrize("failing", [{(0, 1): 0.3, (1, 2): 0.4}, {(1, 2): 0.4}])
def test_a_selected_number_with_clusters_that_are_not_separated_is_explained(
    failing: dict[tuple[int, int], float],
) -> None:
    found = made_up(failing)
    selected = dataclasses.replace(found, n_tried=30)
    assert selected.structure is not Structure.CLEAR
    assert selected.message.startswith(found.message)
    assert "another partition" in selected.message
    separated = made_up({})
    assert dataclasses.replace(separated, n_tried=30).message == separated.message


def test_clusters_that_views_do_not_share_are_no_structure() -> None:
    found = dataclasses.replace(made_up({}), views_agree=False)
    assert found.structure is Structure.NONE
    assert "by chance" in found.message


def test_one_cluster_after_a_search_is_no_structure() -> None:
    found = Assessment.trivial(1, ["a"], np.eye(1), n_tried=7)
    assert found.structure is Structure.NONE
    assert "from 2 to 7" in found.message
    assert dataclasses.replace(found, n_tried=0).structure is Structure.TRIVIAL


def test_other_numbers_of_the_clusters() -> None:
    found = made_up({(1, 2): 0.4}).renamed([5, 0, 2])
    assert found.cluster_names == (0, 2, 5)
    assert found.standing_clusters == (5,)
    assert found.borders.sizes.tolist() == [40, 30, 50]
    assert_array_equal(found.cluster_agreement, [[1, 2, 0], [4, 5, 3]])
    assert_array_equal(found.contradictions, [[1, -1, -1], [-1, 2, 0]])
    assert found.borders.unseparated == [(0, 1)]
    assert "between clusters 0 and 2" in found.message
    assert found.cluster_tree[:, :2].tolist() == [[0, 1], [2, 3]]
    assert is_valid_linkage(found.cluster_tree)


@pytest.mark.parametrize(
    ("n_clusters", "n_samples", "expected"),
    [
        (3, 1000, 20),
        (3, 150, 15),  # a tenth of the samples
        (3, 40, 6),
        (12, 1000, 24),
        (3, 5, 5),  # there are no more
        (3, 50_000, 6),  # large
    ],
)
def test_eigenpairs_are_twice_the_clusters_and_twenty_where_samples_allow(
    n_clusters: int, n_samples: int, expected: int
) -> None:
    assert Parameters(n_clusters=n_clusters).n_pairs(n_samples) == expected
