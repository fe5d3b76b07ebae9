"""Out-of-sample assignment against the row of A that Eq. (29) gives a new sample, and votes of neighbors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

from mscam_dask.solvers.predict import (
    NeighborVotes,
    extend_labels,
    fit_folds,
    fit_votes,
    folds_of,
    n_voting_neighbors,
    predict_by_neighbors,
)
from tests.synthetic import Array, Labels


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


@given(st.integers(0, 2**16), st.integers(1, 25), st.integers(1, 30), st.sampled_from([1, 4, 100]))
@settings(max_examples=80)
def test_is_the_cluster_with_most_adaptive_weight(seed: int, n: int, k: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    points, queries = rng.standard_normal((n, 3)), rng.standard_normal((7, 3))
    labels = rng.integers(0, 3, n)
    blocks = [(start, points[start : start + size]) for start in range(0, n, size)]
    got = predict_by_neighbors(queries, blocks, labels, n_neighbors=k)
    assert got.dtype == np.int64
    assert_array_equal(got, naive_assign(queries, points, labels, k))


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
    found = extend_labels([csr_array(affinity[:7]), csr_array(affinity[7:])], labels, 3)
    assert_array_equal(found, naive_extension(affinity, labels))
    assert_array_equal(labels, before)


def test_one_cluster_and_empty_clusters() -> None:
    points = np.random.default_rng(0).normal(size=(8, 3))
    assert_array_equal(
        fit_votes([points], np.zeros(8, np.int64), 1, 5)([points])[0], np.ones((8, 1))
    )
    votes = fit_votes([points], np.repeat([0, 2], 4), 4, 20)([points])[0]
    assert votes.shape == (8, 4)
    assert_allclose(votes.sum(axis=1), 1.0)
    assert_array_equal(votes[:, [1, 3]], 0.0)


def test_memberships_are_calibrated_for_one_view_and_for_all() -> None:
    rng = np.random.default_rng(0)
    labels = rng.choice(4, 2000, p=[0.4, 0.3, 0.2, 0.1])
    views = [2 * rng.normal(size=(4, 3))[labels] + rng.normal(size=(2000, 3)) for _ in range(3)]
    for view, one in enumerate(rng.integers(3, size=600)):
        for other in {0, 1, 2} - {int(one)}:
            views[other][view] = np.nan
    folds = folds_of(2000)
    membership, _ = fit_folds(views, labels, folds, 4, 40)(views, folds)
    assert_allclose(membership.sum(axis=1), 1.0)
    for rows in (slice(0, 600), slice(600, 2000)):
        own = membership[rows][np.arange(len(labels[rows])), labels[rows]]
        best = membership[rows].max(axis=1)
        right = membership[rows].argmax(axis=1) == labels[rows]
        assert abs(best.mean() - right.mean()) < 0.03
        tenth = np.minimum((best * 10).astype(int), 9)
        errors = [
            np.mean(tenth == part) * abs(best[tenth == part].mean() - right[tenth == part].mean())
            for part in np.unique(tenth)
        ]
        assert sum(errors) < 0.05
        assert own.min() > 0.0


@pytest.mark.parametrize(
    ("n_voters", "n_clusters", "expected"),
    [(2000, 10, 40), (210, 7, 30), (30, 10, 3), (3, 2, 1), (12_000, 4, 40)],
)
def test_voting_neighbors(n_voters: int, n_clusters: int, expected: int) -> None:
    assert n_voting_neighbors(n_voters, n_clusters) == expected


def test_a_sample_without_a_view_of_any_voter_has_equal_votes() -> None:
    voters = np.array([[0.0, np.nan], [1.0, np.nan], [2.0, np.nan]])
    votes = NeighborVotes(
        labels=np.array([0, 1, 2]),
        n_clusters=3,
        n_neighbors=1,
        joint=voters,
        loadings=(np.ones((1, 1)), np.zeros((1, 0))),
        discriminants=(voters[:, :1], np.full((3, 0), np.nan)),
    )
    found, preferred = votes([np.array([[np.nan], [1.1]]), np.array([[5.0], [np.nan]])])
    assert_allclose(found, np.array([[1 / 3, 1 / 3, 1 / 3], [0.0, 1.0, 0.0]]))
    assert preferred.tolist()[1] == [1, -1]
