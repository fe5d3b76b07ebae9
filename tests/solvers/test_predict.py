"""Out-of-sample assignment against the row of A that Eq. (29) gives a new sample."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.solvers.predict import extend_labels, predict_by_neighbors
from tests.solvers import naive

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


def naive_assign(queries: Array, points: Array, labels: Labels, k: int) -> Labels:
    """Each query's adaptive-neighbour weights, summed by cluster; lower numbers win ties."""
    result = []
    for query in queries:
        d = np.sum((points - query) ** 2, axis=1)
        order = np.lexsort((np.arange(len(d)), d))
        k_used = min(k, len(d) - 1)
        if k_used == 0:
            result.append(labels[0])
            continue
        gaps = d[order[k_used]] - d[order[:k_used]]
        weights = gaps if gaps.sum() > 1e-12 * d[order[k_used]] * k_used else np.ones(k_used)
        votes = np.bincount(
            labels[order[:k_used]], weights=weights / weights.sum(), minlength=labels.max() + 1
        )
        result.append(int(np.argmax(votes)))
    return np.array(result, dtype=np.int64)


def blocks(points: Array, size: int) -> list[tuple[int, Array]]:
    return [(start, points[start : start + size]) for start in range(0, len(points), size)]


@given(st.integers(0, 2**16), st.integers(1, 25), st.integers(1, 30), st.sampled_from([1, 4, 100]))
@settings(max_examples=80)
def test_is_the_cluster_with_most_adaptive_weight(seed: int, n: int, k: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    points, queries = rng.standard_normal((n, 3)), rng.standard_normal((7, 3))
    labels = rng.integers(0, 3, n)
    got = predict_by_neighbors(queries, blocks(points, size), labels, n_neighbors=k)
    assert got.dtype == np.int64
    assert_array_equal(got, naive_assign(queries, points, labels, k))


@pytest.mark.parametrize("size", [1, 7, 50, 1000])
def test_blocks_of_the_training_samples_do_not_matter(size: int) -> None:
    rng = np.random.default_rng(0)
    points = np.round(rng.standard_normal((200, 2)), 1)  # many ties
    labels = rng.integers(0, 5, 200)
    queries = np.round(rng.standard_normal((60, 2)), 1)
    whole = predict_by_neighbors(queries, [(0, points)], labels, n_neighbors=9)
    split = predict_by_neighbors(queries, blocks(points, size), labels, n_neighbors=9)
    assert_array_equal(split, whole)


def test_queries_one_by_one_or_together() -> None:
    rng = np.random.default_rng(1)
    points, queries = rng.standard_normal((50, 3)), rng.standard_normal((40, 3))
    labels = rng.integers(0, 4, 50)
    together = predict_by_neighbors(queries, [(0, points)], labels, n_neighbors=5)
    alone = [
        int(predict_by_neighbors(query[None], [(0, points)], labels, n_neighbors=5)[0])
        for query in queries
    ]
    assert_array_equal(together, alone)


def test_memory_does_not_grow_with_queries_times_samples() -> None:
    rng = np.random.default_rng(3)
    points, labels = rng.standard_normal((1500, 3)), rng.integers(0, 4, 1500)
    whole = predict_by_neighbors(points, [(0, points)], labels, n_neighbors=9)
    tracemalloc.start()
    try:
        split = predict_by_neighbors(
            points, [(0, points)], labels, n_neighbors=9, block_bytes=2**20
        )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert_array_equal(split, whole)
    assert peak < 8 * 1500 * 1500 / 2


def test_training_samples_of_compact_clusters_keep_their_label() -> None:
    rng = np.random.default_rng(2)
    labels = np.repeat(np.arange(4), 25)
    points = (
        rng.standard_normal((100, 2)) + 12.0 * np.array([[0, 0], [0, 1], [1, 0], [1, 1]])[labels]
    )
    got = predict_by_neighbors(points, [(0, points)], labels, n_neighbors=9)
    assert_array_equal(got, labels)


def test_as_many_neighbours_as_samples_and_more() -> None:
    points = np.array([[0.0], [1.0], [2.0], [10.0]])
    labels = np.array([0, 0, 0, 1])
    for k in (3, 4, 100):
        got = predict_by_neighbors(np.array([[0.5], [9.9]]), [(0, points)], labels, n_neighbors=k)
        assert_array_equal(got, [0, 1])


def test_one_training_sample() -> None:
    got = predict_by_neighbors(
        np.array([[3.0], [-1.0]]),
        [(0, np.zeros((1, 1)))],
        np.zeros(1, dtype=np.int64),
        n_neighbors=9,
    )
    assert_array_equal(got, [0, 0])


def test_ties_go_to_the_lower_cluster() -> None:
    points = np.array([[-1.0], [1.0], [5.0]])
    got = predict_by_neighbors(np.zeros((1, 1)), [(0, points)], np.array([1, 0, 2]), n_neighbors=2)
    assert_array_equal(got, [0])


def test_duplicates_all_around() -> None:
    points = np.zeros((20, 2))
    labels = np.repeat([1, 0], 10)
    got = predict_by_neighbors(np.zeros((3, 2)), [(0, points)], labels, n_neighbors=5)
    assert_array_equal(got, naive_assign(np.zeros((3, 2)), points, labels, 5))


def test_distances_of_the_suite_are_the_definition() -> None:
    rows = np.array([[0.0, 0.0], [3.0, 4.0]])
    assert_array_equal(naive.pair_distances(rows), [[0.0, 25.0], [25.0, 0.0]])


def naive_extension(affinity: Array, labels: Labels) -> Labels:
    """Rounds in which each sample without a label asks its labeled neighbors, in both directions."""
    weights = affinity + affinity.T
    labels = labels.copy()
    while True:
        known = labels >= 0
        votes = np.array([weights[:, labels == cluster].sum(axis=1) for cluster in range(3)]).T
        joins = ~known & (votes.max(axis=1) > 0)
        if not joins.any():
            sizes = [np.count_nonzero(labels == cluster) for cluster in range(3)]
            return np.where(known, labels, np.argmax(sizes))
        labels[joins] = votes[joins].argmax(axis=1)


@given(st.integers(0, 2**16), st.integers(2, 30), st.sampled_from([0.03, 0.1, 0.5]))
@settings(max_examples=80)
def test_labels_spread_along_edges(seed: int, n: int, density: float) -> None:
    rng = np.random.default_rng(seed)
    affinity = np.where(rng.random((n, n)) < density, rng.integers(1, 4, (n, n)), 0.0)
    labels = np.where(rng.random(n) < 0.3, rng.integers(0, 3, n), -1)
    labels[rng.integers(n)] = 2
    before = labels.copy()
    found = extend_labels(csr_array(affinity), labels, 3)
    assert_array_equal(found, naive_extension(affinity, labels))
    assert_array_equal(labels, before)


def test_without_a_label_there_is_nothing_to_extend() -> None:
    with pytest.raises(AssertionError, match="nothing to extend"):
        extend_labels(csr_array(np.ones((2, 2))), np.array([-1, -1]), 2)
    found = extend_labels(csr_array(np.ones((2, 2))), np.array([0, 0]), 2)
    assert_array_equal(found, [0, 0])
