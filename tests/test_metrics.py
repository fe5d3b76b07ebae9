"""The scores by their definitions: enumeration, pairs of samples, entropies."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from mscam_dask import metrics
from mscam_dask.errors import DataError

TwoPartitions = tuple[list[int], list[int]]


@st.composite
def two_partitions(draw: st.DrawFn, n_labels: int = 4, max_samples: int = 25) -> TwoPartitions:
    """Two label vectors of one length, their labels drawn from 0 .. n_labels - 1."""
    n_samples = draw(st.integers(1, max_samples))
    labels = st.lists(st.integers(0, n_labels - 1), min_size=n_samples, max_size=n_samples)
    return draw(labels), draw(labels)


def pairs_together(labels: Sequence[object]) -> set[tuple[int, int]]:
    return {
        (i, j) for i, j in itertools.combinations(range(len(labels)), 2) if labels[i] == labels[j]
    }


def accuracy(true: list[int], pred: list[int]) -> float:
    """Best agreement over all names of the clusters."""
    return max(
        sum(names[p] == t for t, p in zip(true, pred, strict=True)) / len(true)
        for names in itertools.permutations(range(4))
    )


def purity(true: list[int], pred: list[int]) -> float:
    groups = [[t for t, p in zip(true, pred, strict=True) if p == own] for own in set(pred)]
    return sum(Counter(group).most_common(1)[0][1] for group in groups) / len(true)


def pairwise_f(true: list[int], pred: list[int]) -> float:
    in_true, in_pred = pairs_together(true), pairs_together(pred)
    in_both = len(in_true & in_pred)
    if not in_both:
        return 0.0 if in_true or in_pred else 1.0
    precision, recall = in_both / len(in_pred), in_both / len(in_true)
    return 2 * precision * recall / (precision + recall)


@given(two_partitions(), st.permutations(["a", "b", "c", "d"]))
def test_scores_are_their_definitions_whatever_the_names(
    labels: TwoPartitions, names: list[str]
) -> None:
    true, pred = labels
    found = metrics.score_partition(true, [names[label] for label in pred])
    assert found.accuracy == accuracy(true, pred)
    assert found.adjusted_rand_index == metrics.adjusted_rand_index(true, pred)
    assert found.purity == purity(true, pred)
    assert found.pairwise_f_score == pytest.approx(pairwise_f(true, pred), abs=1e-12)
    sizes = (len(true), len(set(true)), len(set(pred)))
    assert (found.n_samples, found.n_classes, found.n_clusters) == sizes


@pytest.mark.parametrize(
    ("true", "pred", "information", "rand"),
    [("aabb", "ppqr", 4 / 5, 4 / 7), ("aabb", "pqpq", 0.0, -1 / 2), ("aaa", "ppp", 1.0, 1.0)],
)
def test_information_and_rand_index_by_hand(
    true: str, pred: str, information: float, rand: float
) -> None:
    found = metrics.score_partition(list(true), list(pred))
    assert found.normalized_mutual_information == pytest.approx(information)
    assert found.adjusted_rand_index == pytest.approx(rand)


def test_random_partitions_have_no_adjusted_agreement() -> None:
    rng = np.random.default_rng(0)
    true, pred = rng.integers(0, 10, size=(2, 70_000))
    scores = metrics.score_partition(true, pred)
    assert abs(scores.adjusted_rand_index) < 1e-3
    assert scores.pairwise_f_score == pytest.approx(0.1, abs=1e-3)


@given(two_partitions())
def test_matching_renames_clusters_and_attains_the_accuracy(labels: TwoPartitions) -> None:
    true, pred = labels
    matched = metrics.matched_labels(true, pred)
    assert pairs_together(matched.tolist()) == pairs_together(pred)
    assert np.mean(matched == true) == accuracy(true, pred)
    n_surplus = max(0, len(set(pred)) - len(set(true)))
    new_names = set(matched.tolist()) - set(true)
    assert new_names == {max(true) + 1 + offset for offset in range(n_surplus)}


@pytest.mark.parametrize(
    ("true", "pred"),
    [
        pytest.param([0, 1, 1], [0, 1], id="lengths differ"),
        pytest.param([], [], id="empty"),
        pytest.param([0, 1], [[0], [1]], id="two-dimensional"),
        pytest.param([0.0, math.nan], [0, 1], id="float"),
    ],
)
def test_labels_that_are_no_labels_are_refused(true: ArrayLike, pred: ArrayLike) -> None:
    for function in (metrics.score_partition, metrics.matched_labels):
        with pytest.raises(DataError):
            function(true, pred)


@pytest.mark.parametrize(
    "reference", [["a", "b"], np.array([0, 2**63], np.uint64), [0, 2**63 - 1], [0, 2**63 - 2]]
)
def test_matching_needs_integers_and_room_for_new_names(reference: ArrayLike) -> None:
    with pytest.raises(DataError):
        metrics.matched_labels(np.tile(reference, 2), np.arange(4))


def test_the_largest_integer_is_a_label() -> None:
    largest = np.iinfo(np.int64).max
    assert metrics.matched_labels([0, largest], [5, 3]).tolist() == [0, largest]
