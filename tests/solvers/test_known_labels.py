"""Known labels of some samples: links in the graph, clusters of classes, cuts by class means."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.solvers.graph_update import CandidateEdges, graph_block
from mscam_dask.solvers.known_labels import (
    clusters_of_classes,
    ends_of_walks,
    n_missed,
    with_known,
    with_links,
    without_cannot_links,
)
from mscam_dask.solvers.lda import ClassSums, class_sums
from mscam_dask.solvers.partition_score import PartitionScore, argbest, is_better, is_worse
from mscam_dask.solvers.spectral_cut import cut_by_classes
from mscam_dask.types.parameters import Constants
from mscam_dask.types.rules import CONSTANTS
from tests import oracle
from tests.blocks import other_values
from tests.synthetic import Array

N = 40


def graph_of(distances: Array, known: NDArray[np.int64] | None, k: int) -> Array:
    """Dense graph of the A-step in which all other samples are candidates."""
    n = len(distances)
    indices = np.array([[j for j in range(n) if j != i] for i in range(n)])
    edges = CandidateEdges(0, indices, np.take_along_axis(distances, indices, axis=1))
    return np.asarray(graph_block(edges, None, k, 1.0, 0.0, n, known).affinity.toarray())


@pytest.fixture
def distances() -> Array:
    return oracle.pair_distances(np.random.default_rng(0).normal(size=(N, 3)))


def test_links_hold_in_the_graph_and_other_rows_are_solved_as_before(distances: Array) -> None:
    known = np.full(N, -1)
    known[[0, 5, 9, 20]], known[[1, 2, 30]] = 0, 1
    graph, plain = graph_of(distances, known, 6), graph_of(distances, None, 6)
    assert_allclose(graph.sum(axis=1), 1.0)
    assert graph.min() >= 0.0
    for i, j in itertools.permutations(np.flatnonzero(known >= 0), 2):
        assert known[i] == known[j] or graph[i, j] == 0.0
    for first, members in ((0, [5, 9, 20]), (1, [2, 30])):
        for member in members:  # nothing is nearer than distance 0
            assert graph[member, first] == graph[member].max()
    assert_array_equal(graph[known < 0], plain[known < 0])


def test_cannot_links_are_as_far_as_the_farthest_candidate(distances: Array) -> None:
    distances[0] = distances[:, 0] = 100.0
    known = np.arange(N) % 3 - 1
    others = np.array([np.delete(np.arange(N), row) for row in range(N)])
    given = np.take_along_axis(distances, others, axis=1)
    found, linked = with_links(others, given, known, 0)
    own, classes = known[:, None], np.where(found < 0, -1, known[found])
    assert (linked[(own >= 0) & (classes >= 0) & (own != classes)] == 100.0).all()


@pytest.mark.parametrize("k", [3, N - 1])
def test_a_row_with_only_cannot_links_has_no_neighbor(distances: Array, k: int) -> None:
    known = np.ones(N, dtype=np.int64)
    known[7] = 0
    graph = graph_of(distances, known, k)
    assert not graph[7].any()
    assert not graph[:, 7].any()
    assert_allclose(np.delete(graph, 7, axis=0).sum(axis=1), 1.0)


def test_edges_between_classes_are_removed_from_the_graph_of_a_view(distances: Array) -> None:
    known = np.arange(N) % 3 - 1
    graph = csr_array(graph_of(distances, None, 8))
    found = without_cannot_links(graph, known).toarray()
    forbidden = (known[:, None] >= 0) & (known >= 0) & (known[:, None] != known)
    assert not found[forbidden].any()
    assert_allclose(found.sum(axis=1), 1.0)
    kept = np.where(forbidden, 0.0, graph.toarray())
    assert_allclose(found, kept / kept.sum(axis=1, keepdims=True))


def test_classes_are_matched_with_clusters_as_the_best_of_all_assignments() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        labels, known = rng.integers(5, size=N), rng.integers(-1, 3, size=N)
        known[:3] = range(3)
        has = known >= 0
        hits = max(
            np.count_nonzero(np.array(clusters)[known[has]] == labels[has])
            for clusters in itertools.permutations(range(5), 3)
        )
        assert n_missed(labels, known) == np.count_nonzero(has) - hits
        clusters = clusters_of_classes(labels, known, 5)
        moved = with_known(labels, known, 5)
        assert n_missed(moved, known) == 0
        assert set(moved) == set(range(5))
        assert_array_equal(moved[has], clusters[known[has]])


def test_each_cluster_keeps_a_sample() -> None:
    labels, known = np.array([0, 0, 0, 1, 2, 2]), np.array([0, -1, -1, 0, 0, 0])
    found = with_known(labels, known, 3)
    assert n_missed(found, known) == 0
    assert sorted(np.bincount(found)) == [1, 1, 4]


def test_fewer_missed_samples_come_before_information() -> None:
    tie = Constants().score_tie
    less, more = PartitionScore((0.1,), n_missed=1), PartitionScore((0.9,), n_missed=2)
    assert is_better(less, more, tie)
    assert not is_better(more, less, tie)
    assert not is_worse(more, less, 0.0)  # within a standard error, √3, information decides
    assert is_worse(less, more, 0.0)
    assert is_worse(PartitionScore((0.9,), n_missed=4), less, 1.0)
    assert not is_worse(less, PartitionScore((0.9,), n_missed=4), 0.0)
    assert argbest([more, less, PartitionScore((0.2,), n_missed=1)]) == 2


def test_a_cut_by_classes_is_that_of_the_nearest_mean_without_the_sample_itself() -> None:
    rng = np.random.default_rng(0)
    centers = np.eye(4)
    truth = np.arange(200) % 4
    rows = centers[truth] + 0.2 * rng.normal(size=(200, 4))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    some = np.flatnonzero((truth < 2) & (np.arange(200) < 40))
    known = 1 - truth[some]  # classes have other numbers than clusters
    shifted = np.vstack([rows[truth == 1].mean(0), rows[truth == 0].mean(0), centers[2:]])
    found = cut_by_classes(rows, shifted, rows[some], known)
    labels, held_out, means = found
    assert_allclose(np.linalg.norm(means, axis=1), 1.0)
    clusters = clusters_of_classes(labels[some], known, 4)
    for number, row in enumerate(some):
        others = means.copy()
        mates = (known == known[number]) & (some != row)
        own = rows[some[mates]].sum(axis=0)
        others[clusters[known[number]]] = own / np.linalg.norm(own)
        assert held_out[number] == np.argmax(others @ rows[row])
    own = rows[some[known == 0]].sum(axis=0)
    assert_allclose(means[clusters[0]], own / np.linalg.norm(own))
    assert np.count_nonzero(labels[truth == 2] == 2) == 50


def test_the_only_sample_of_a_cluster_stays_in_it() -> None:
    known_rows, known = np.eye(3)[[0, 0, 1]], np.array([0, 0, 1])
    labels, held_out, _ = cut_by_classes(np.eye(3)[[0, 0, 2]], np.eye(3), known_rows, known)
    assert labels.tolist() == [0, 0, 2]
    assert held_out.tolist() == [0, 0, 1]  # the mean of the others of its class is zero
    assert cut_by_classes(np.eye(3)[[0, 0, 0]], np.eye(3), known_rows, known) is None


def test_discriminants_leave_out_samples_without_a_label() -> None:
    rows = np.random.default_rng(0).normal(size=(30, 5))
    labels = np.arange(30) % 4 - 1
    has = labels >= 0
    found, expected = class_sums(rows, labels, 3), class_sums(rows[has], labels[has], 3)
    for name in ClassSums.__slots__:
        assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-12)


# walks on the graph ------------------------------------------------------------------------------


@pytest.fixture
def walked() -> tuple[csr_array, NDArray[np.int64], NDArray[np.int64]]:
    """A graph of three groups that touch, a partition with errors, and some known labels."""
    rng = np.random.default_rng(1)
    groups = np.repeat([0, 1, 2], 30)
    points = rng.normal(size=(90, 2)) + 2.5 * np.eye(3, 2)[groups]
    graph = graph_of(oracle.pair_distances(points), None, 8)
    labels = np.where(rng.random(90) < 0.2, rng.integers(3, size=90), groups)
    known = np.where(np.arange(90) % 6 == 0, groups, -1)
    labels[known >= 0] = groups[known >= 0]
    return csr_array(graph), labels, known


def test_walks_solve_the_linear_system_of_the_definition(
    walked: tuple[csr_array, NDArray[np.int64], NDArray[np.int64]],
) -> None:
    graph, labels, known = walked
    weights = (graph + graph.T).toarray() / 2
    # probabilities to go to a neighbor, or to stop; known samples stop at once
    rate = 1 / CONSTANTS.validation_neighbors
    steps = weights / (weights.sum(axis=1, keepdims=True) + rate)
    steps[known >= 0] = 0.0
    stops = 1.0 - steps.sum(axis=1)
    ends = np.linalg.solve(np.eye(90) - steps, stops[:, None] * np.eye(3)[labels])
    assert_allclose(ends.sum(axis=1), 1.0)
    found = ends_of_walks([graph[:40], graph[40:]], labels, known, 3)
    assert_array_equal(found, ends.argmax(axis=1))
    assert (found != labels).any()
    assert_array_equal(found[known >= 0], labels[known >= 0])


def test_walks_that_stop_at_once_change_nothing_and_endless_ones_end_at_known_samples(
    walked: tuple[csr_array, NDArray[np.int64], NDArray[np.int64]],
) -> None:
    graph, labels, known = walked
    with other_values(CONSTANTS, validation_neighbors=1e-9):
        assert_array_equal(ends_of_walks([graph], labels, known, 3), labels)
    with other_values(CONSTANTS, validation_neighbors=1e9):
        endless = ends_of_walks([graph], labels, known, 3)
        others = np.where(known >= 0, known, 0)
        assert_array_equal(ends_of_walks([graph], others, known, 3), endless)


@pytest.mark.parametrize("unknown", [0, 1, 2])
def test_walks_take_no_samples_of_clusters_without_a_known_one(
    walked: tuple[csr_array, NDArray[np.int64], NDArray[np.int64]], unknown: int
) -> None:
    graph, labels, known = walked
    some = np.where(known == unknown, -1, known)
    assert_array_equal(ends_of_walks([graph], labels, some, 3), labels)


def test_walks_need_memory_for_one_cluster_at_a_time() -> None:
    n, n_clusters = 4000, 100
    graph = csr_array((np.ones(n), np.arange(n) ^ 1, np.arange(n + 1)), shape=(n, n))
    labels = np.arange(n) % n_clusters // 2 * 2
    labels[:n_clusters] = np.arange(n_clusters)
    tracemalloc.start()
    ends_of_walks([graph], labels, np.where(np.arange(n) < 200, labels, -1), n_clusters)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * n * n_clusters  # a dense matrix (n, c)
