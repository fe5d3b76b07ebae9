"""Stability of clusters and agreement of views: Jaccard coefficients, cuts of perturbed graphs, common neighbors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.solvers.assessment import (
    ClusterEvidence,
    cluster_agreement,
    cluster_evidence,
    co_clustering,
    cuts_of_perturbed_graphs,
    jaccard_coefficients,
    neighbor_agreement,
    perturbed_cuts,
)
from mscam_dask.solvers.partition_score import ReferenceGraphs, reference_graphs
from mscam_dask.solvers.row_blocks import ViewShape
from mscam_dask.solvers.row_graph import GraphRows
from mscam_dask.types.result import unseparated_pairs
from tests.synthetic import gaussian_views


def graphs_of(view: NDArray[np.float64]) -> ReferenceGraphs:
    shape = ViewShape(len(view), view.shape[1], "features")
    return reference_graphs(lambda start, stop: view[start:stop], shape, 10)


def evidence_of(
    views: Any, learned: Any, labels: Any, n_clusters: int, n_pairs: int
) -> ClusterEvidence:
    cuts = cuts_of_perturbed_graphs(views, learned, n_clusters, n_pairs)
    return cluster_evidence(views, cuts, labels, n_clusters)


def test_jaccard_coefficients_are_those_of_the_sets() -> None:
    rng = np.random.default_rng(0)
    labels, others = rng.integers(4, size=60), rng.integers(4, size=60)
    for cluster, found in enumerate(jaccard_coefficients(labels, others, 4)):
        own = set(np.flatnonzero(labels == cluster))
        sets = [set(np.flatnonzero(others == other)) for other in range(4)]
        assert_allclose(found, max(len(own & one) / len(own | one) for one in sets))
    assert_array_equal(jaccard_coefficients(labels, (labels + 1) % 4, 4), 1.0)
    assert np.isnan(jaccard_coefficients(np.zeros(9, np.int64), np.zeros(9, np.int64), 2)[1])


def test_co_clustering_counts_pairs_of_samples() -> None:
    rng = np.random.default_rng(0)
    labels, others = rng.integers(3, size=40), rng.integers(3, size=40)
    found = co_clustering(labels, others, 3)
    for i, j in itertools.product(range(3), repeat=2):
        same = others[labels == i][:, None] == others[labels == j]
        assert_allclose(found[i, j], same.mean())


@pytest.mark.parametrize("n_views", [1, 3])
def test_separate_clusters_are_stable_and_noise_is_not(n_views: int) -> None:
    views, labels = gaussian_views(0, n_samples=200, n_clusters=4, spread=3.0)
    found = evidence_of([graphs_of(v) for v in views[:n_views]], None, labels, 4, 20)
    assert found.stability.min() > 0.9
    assert unseparated_pairs(found.together) == ()
    noise = [np.random.default_rng(seed).normal(size=(200, 10)) for seed in range(n_views)]
    found = evidence_of([graphs_of(v) for v in noise], None, labels, 4, 20)
    assert found.stability.max() < 0.6


def test_the_two_clusters_that_overlap_are_the_unstable_ones() -> None:
    rng = np.random.default_rng(1)
    labels = np.arange(240) % 4
    centers = 12 * np.eye(4)
    centers[3] = centers[2]  # one cluster that was divided
    views = [graphs_of(centers[labels] + rng.normal(size=(240, 4))) for _ in range(3)]
    learned = GraphRows(0, views[0].graphs[0])
    found = evidence_of(views, learned, labels, 4, 20)
    assert found.stability[:2].min() > 0.9
    assert found.stability[2:].max() < 0.75
    assert unseparated_pairs(found.together) == ((2, 3),)
    assert_array_equal(found.stability, evidence_of(views, learned, labels, 4, 20).stability)


def test_the_learned_graph_adds_two_cuts() -> None:
    views, _ = gaussian_views(0, n_samples=80, spread=3.0)
    graphs = [graphs_of(view).graphs[0] for view in views]
    assert len(perturbed_cuts(None, graphs, 3, 8)) == 2
    cuts = perturbed_cuts(graphs[0], graphs, 3, 8)
    assert len(cuts) == 4
    assert all(sorted(np.unique(cut)) == [0, 1, 2] for cut in cuts)


def test_graphs_with_more_components_than_clusters_are_cut() -> None:
    points = np.repeat(np.arange(8.0)[:, None] * 100, 12, axis=0)
    points = points + np.random.default_rng(0).normal(size=(96, 2))
    found = evidence_of([graphs_of(points)] * 2, None, np.repeat(np.arange(8) // 4, 12), 2, 9)
    assert np.isfinite(found.stability).all()


def random_graph(n_samples: int, seed: int, density: float = 0.2) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.uniform(size=(n_samples, n_samples)), 1)
    upper[rng.uniform(size=upper.shape) > density] = 0.0
    return upper + upper.T


def test_cluster_agreement_is_one_within_components_and_zero_by_chance() -> None:
    labels = np.repeat(np.arange(3), 40)
    apart = np.kron(np.eye(3), np.ones((40, 40)) - np.eye(40))
    assert_allclose(cluster_agreement(csr_array(apart), labels, 3), 1.0)
    one_cluster = apart.copy()
    one_cluster[40:, 40:] = 1.0  # the view sees cluster 0 only
    found = cluster_agreement(csr_array(one_cluster), labels, 3)
    assert_allclose(found[0], 1.0)
    assert found[1:].max() < 0.3
    noise = cluster_agreement(csr_array(random_graph(120, 0)), labels, 3)
    assert np.abs(noise).max() < 0.1


def test_cluster_agreement_of_clusters_without_edges_is_undefined() -> None:
    graph = random_graph(20, 0, density=0.5)
    graph[:5] = graph[:, :5] = 0.0
    found = cluster_agreement(csr_array(graph), np.repeat([0, 1, 2], [5, 15, 0]), 3)
    assert np.isnan(found[[0, 2]]).all()
    assert np.isnan(found[1])  # it has all edges, so that chance gives the same


def test_neighbor_agreement_is_one_for_equal_graphs_and_zero_on_average_for_permuted_ones() -> None:
    first, second = random_graph(30, 0), random_graph(30, 1)
    found = neighbor_agreement([csr_array(first), csr_array(first), csr_array(2.0 * second)])
    assert_allclose(found[0, 1], 1.0)
    assert_array_equal(found, found.T)
    rng = np.random.default_rng(0)
    permuted = []
    for _ in range(300):
        order = rng.permutation(30)
        graphs = [csr_array(first), csr_array(second[order][:, order])]
        permuted.append(neighbor_agreement(graphs)[0, 1])
    assert abs(np.mean(permuted)) < 0.01
