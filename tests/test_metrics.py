"""The scores by their definitions: enumeration, pairs of samples, entropies."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mscam_dask import metrics
from mscam_dask.errors import DataError
from tests.messages import quotes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike

    Score = Callable[[ArrayLike, ArrayLike], float]
    TwoPartitions = tuple[list[int], list[int]]

SCORES = (
    metrics.clustering_accuracy,
    metrics.normalized_mutual_information,
    metrics.adjusted_rand_index,
    metrics.purity,
    metrics.pairwise_f_score,
)
SYMMETRIC_SCORES = tuple(score for score in SCORES if score is not metrics.purity)

each_score = pytest.mark.parametrize("score", SCORES, ids=lambda score: score.__name__)


@st.composite
def two_partitions(draw: st.DrawFn, n_labels: int = 5, max_samples: int = 25) -> TwoPartitions:
    """Two label vectors of one length, their labels drawn from 0 .. n_labels - 1."""
    n_samples = draw(st.integers(1, max_samples))
    labels = st.lists(st.integers(0, n_labels - 1), min_size=n_samples, max_size=n_samples)
    return draw(labels), draw(labels)


def pairs_together(labels: Sequence[int]) -> set[tuple[int, int]]:
    return {
        (i, j) for i, j in itertools.combinations(range(len(labels)), 2) if labels[i] == labels[j]
    }


def entropy(labels: Sequence[object]) -> float:
    shares = [count / len(labels) for count in Counter(labels).values()]
    return -sum(share * math.log(share) for share in shares)


# -- definitions ------------------------------------------------------------------------------


@given(two_partitions(n_labels=4))
def test_accuracy_is_the_best_over_all_namings_of_the_clusters(labels: TwoPartitions) -> None:
    true, pred = labels
    best = max(
        sum(naming[p] == t for t, p in zip(true, pred, strict=True))
        for naming in itertools.permutations(range(4))
    )
    assert metrics.clustering_accuracy(true, pred) == best / len(true)


@given(two_partitions())
def test_mutual_information_is_normalised_by_the_mean_entropy(labels: TwoPartitions) -> None:
    true, pred = labels
    joint = entropy(list(zip(true, pred, strict=True)))
    total = entropy(true) + entropy(pred)
    expected = 1.0 if total == 0 else 2 * (total - joint) / total
    assert metrics.normalized_mutual_information(true, pred) == pytest.approx(expected, abs=1e-12)


@given(two_partitions())
def test_rand_index_is_adjusted_by_its_expectation(labels: TwoPartitions) -> None:
    true, pred = labels
    n_all = math.comb(len(true), 2)
    in_true, in_pred = pairs_together(true), pairs_together(pred)
    expected_index = len(in_true) * len(in_pred) / n_all if n_all else 0.0
    largest_index = (len(in_true) + len(in_pred)) / 2
    if largest_index == expected_index:  # 0/0: both trivial, and then the same
        expected = 1.0
    else:
        index = len(in_true & in_pred)
        expected = (index - expected_index) / (largest_index - expected_index)
    assert metrics.adjusted_rand_index(true, pred) == pytest.approx(expected, abs=1e-12)


@given(two_partitions())
def test_purity_counts_the_commonest_class_of_each_cluster(labels: TwoPartitions) -> None:
    true, pred = labels
    members: dict[int, list[int]] = {}
    for t, p in zip(true, pred, strict=True):
        members.setdefault(p, []).append(t)
    commonest = sum(Counter(group).most_common(1)[0][1] for group in members.values())
    assert metrics.purity(true, pred) == commonest / len(true)


@given(two_partitions())
def test_pairwise_f_is_the_harmonic_mean_of_precision_and_recall(labels: TwoPartitions) -> None:
    true, pred = labels
    in_true, in_pred = pairs_together(true), pairs_together(pred)
    in_both = len(in_true & in_pred)
    if not in_true and not in_pred:
        expected = 1.0
    elif not in_both:
        expected = 0.0
    else:
        precision, recall = in_both / len(in_pred), in_both / len(in_true)
        expected = 2 * precision * recall / (precision + recall)
    assert metrics.pairwise_f_score(true, pred) == pytest.approx(expected, abs=1e-12)


# -- what every score keeps -------------------------------------------------------------------


@each_score
@given(data=st.data())
def test_names_and_order_of_samples_do_not_matter(score: Score, data: st.DataObject) -> None:
    true, pred = (np.array(labels) for labels in data.draw(two_partitions()))
    names = np.array(data.draw(st.permutations([-7, -1, 3, 40, 10**12])))
    order = np.array(data.draw(st.permutations(range(true.size))))
    assert score(true[order], names[pred][order]) == pytest.approx(score(true, pred), abs=1e-12)


@each_score
@given(labels=two_partitions())
def test_one_exactly_for_the_same_partition(score: Score, labels: TwoPartitions) -> None:
    true, pred = labels
    assert score(true, [f"cluster {label}" for label in true]) == pytest.approx(1, abs=1e-12)
    same = pairs_together(true) == pairs_together(pred)
    refines = pairs_together(pred) <= pairs_together(true)
    perfect = refines if score is metrics.purity else same
    assert (score(true, pred) > 1 - 1e-9) == perfect


@pytest.mark.parametrize("score", SYMMETRIC_SCORES, ids=lambda score: score.__name__)
@given(labels=two_partitions())
def test_reference_and_result_may_be_exchanged(score: Score, labels: TwoPartitions) -> None:
    true, pred = labels
    assert score(true, pred) == pytest.approx(score(pred, true), abs=1e-12)


@given(two_partitions())
def test_all_scores_at_once_are_the_scores(labels: TwoPartitions) -> None:
    true, pred = labels
    scores = metrics.score_partition(true, pred)
    for score in SCORES:
        name = score.__name__.replace("clustering_accuracy", "accuracy")
        assert getattr(scores, name) == score(true, pred)
    assert scores.accuracy <= scores.purity
    assert (scores.n_samples, scores.n_classes, scores.n_clusters) == (
        len(true),
        len(set(true)),
        len(set(pred)),
    )


def test_random_partitions_have_no_adjusted_agreement() -> None:
    rng = np.random.default_rng(0)
    true, pred = rng.integers(0, 10, size=(2, 70_000))
    scores = metrics.score_partition(true, pred)
    assert abs(scores.adjusted_rand_index) < 1e-3
    assert scores.normalized_mutual_information < 1e-2


# -- renaming ---------------------------------------------------------------------------------


@given(two_partitions())
def test_matching_renames_clusters_and_attains_the_accuracy(labels: TwoPartitions) -> None:
    true, pred = labels
    matched = metrics.matched_labels(true, pred)
    assert pairs_together(matched.tolist()) == pairs_together(pred)
    assert np.mean(matched == true) == metrics.clustering_accuracy(true, pred)
    n_surplus = max(0, len(set(pred)) - len(set(true)))
    new_names = set(matched.tolist()) - set(true)
    assert new_names == {max(true) + 1 + offset for offset in range(n_surplus)}


# -- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("true", "pred", "values"),
    [
        pytest.param([0, 1, 1], [0, 1], (3, 2), id="lengths differ"),
        pytest.param([], [], (), id="empty"),
        pytest.param([0, 1], [[0], [1]], ((2, 1),), id="two-dimensional"),
        pytest.param(0, 0, ((),), id="scalar"),
        pytest.param([0.0, math.nan], [0, 1], ("float64",), id="float"),
        pytest.param([0, 1], [None, "a"], ("object",), id="object"),
    ],
)
@pytest.mark.parametrize(
    "function",
    [*SCORES, metrics.score_partition, metrics.matched_labels],
    ids=lambda function: function.__name__,
)
def test_labels_that_are_no_labels_are_refused(
    function: Callable[[ArrayLike, ArrayLike], object],
    true: ArrayLike,
    pred: ArrayLike,
    values: tuple[object, ...],
) -> None:
    with pytest.raises(DataError, match=quotes(*values)):
        function(true, pred)


@pytest.mark.parametrize(
    ("reference", "values"),
    [
        pytest.param(["a", "b"], ("numpy.unique",), id="strings"),
        pytest.param(np.array([0, 2**63], np.uint64), (2**63, "int64"), id="uint64"),
        pytest.param([0, 2**63 - 1], (2**63 - 1, "int64"), id="no name left"),
    ],
)
def test_matching_needs_integers_and_room_for_new_names(
    reference: ArrayLike, values: tuple[object, ...]
) -> None:
    four_samples_of_two_classes = np.tile(reference, 2)
    with pytest.raises(DataError, match=quotes(*values)):
        metrics.matched_labels(four_samples_of_two_classes, np.arange(4))
