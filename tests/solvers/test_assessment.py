"""Agreement of views with clusters and with each other, by common neighbors and by discriminants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.linalg.incomplete import PresentSamples
from mscam_dask.solvers.assessment import agreement_with_clusters, view_agreement, views_agree
from mscam_dask.solvers.borders import Points
from mscam_dask.solvers.partition_score import ReferenceGraphs


def random_graph(n_samples: int, seed: int, density: float = 0.2) -> NDArray[np.float64]:
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


def test_views_agree_on_one_rare_cluster_and_not_by_chance() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], [195, 5])
    noise = Points(rng.normal(size=(200, 6)), (3, 3))
    by_chance = 0
    for seed in range(40):
        graphs = [random_graph(200, 2 * seed + view, density=0.05) for view in range(2)]
        views = of_views(*graphs)
        by_chance += views_agree(views, noise, rng.permutation(labels), 2)
        for graph in graphs:
            graph[-5:] = graph[:, -5:] = 0.0
            graph[-5:, -5:] = 1.0 - np.eye(5)
        assert views_agree(of_views(*graphs), noise, labels, 2)
    assert by_chance <= 5
    assert views_agree(of_views(random_graph(200, 0)), Points(noise.rows, (6,)), labels, 2)


def test_views_agree_on_a_rare_cluster_that_no_view_shows_by_its_neighbors() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], [588, 12])
    views = of_views(random_graph(600, 0, density=0.02), random_graph(600, 1, density=0.02))
    together = apart = 0
    for _ in range(20):
        rows = rng.normal(size=(600, 8)) + 1.75 * labels[:, None]  # 3.5 standard deviations a view
        together += views_agree(views, Points(rows, (4, 4)), labels, 2)
        rows[:, 4:] = rng.permutation(rows[:, 4:])
        apart += views_agree(views, Points(rows, (4, 4)), labels, 2)
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
        together += views_agree(views, Points(np.hstack(own), (3, 3)), labels, 3)
        own[1][has[1]] = own[1][rng.permutation(has[1])]
        lacking = np.setdiff1d(np.arange(150), has[1])
        own[1][lacking] = own[0][lacking]  # they come from the other view
        apart += views_agree(views, Points(np.hstack(own), (3, 3)), labels, 3)
    assert together == 20
    assert apart <= 3


def test_independent_partitions_of_two_views_are_no_agreement_however_few_samples_a_cluster_has() -> (
    None
):
    rng = np.random.default_rng(0)
    views = of_views(random_graph(160, 0), random_graph(160, 1))
    agree = 0
    for _ in range(20):
        first, second = rng.integers(4, size=(2, 160))
        own = [6.0 * np.eye(4)[labels] + rng.normal(size=(160, 4)) for labels in (first, second)]
        points = Points(np.hstack(own), (4, 4))
        agree += views_agree(views, points, 4 * first + second, 16)
    assert agree <= 3
