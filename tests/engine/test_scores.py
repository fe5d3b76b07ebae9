"""What all views tell of partitions, scored once and in any grouping."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask import MSCAM
from mscam_dask.engine.scores import partition_scores, score_partitions
from mscam_dask.metrics import adjusted_rand_index
from mscam_dask.solvers.known_labels import n_missed
from mscam_dask.solvers.partition_score import ReferenceGraphs


def unequal() -> tuple[list[NDArray[np.float64]], NDArray[np.int64]]:
    """Five clusters that nothing connects, each of two fifths of the size of the one before it."""
    rng = np.random.default_rng(8)
    labels = np.repeat(np.arange(5), [300, 120, 48, 19, 15])
    views = [
        rng.standard_normal((len(labels), d)) + 1.6 * rng.standard_normal((5, d))[labels]
        for d in (10, 20)
    ]
    return views, labels


def test_a_large_cluster_is_not_cut_while_small_ones_are_together() -> None:
    views, labels = unequal()
    found = MSCAM(5).fit(views)
    assert adjusted_rand_index(labels, found.labels_) == 1.0
    assert found.cross_view_information_ < 0.75 * math.log(5)  # no more than that is there


def random_view(n: int, rng: np.random.Generator) -> ReferenceGraphs:
    """A tenth of all edges, with any weights."""
    affinity = np.triu(rng.random((n, n)) < 0.1, 1) * rng.random((n, n))
    return ReferenceGraphs((csr_array(affinity + affinity.T),))


@pytest.mark.parametrize("n_compared", [120, 50])
def test_equal_partitions_have_equal_scores_in_any_grouping(n_compared: int) -> None:
    rng = np.random.default_rng(0)
    views = [random_view(n_compared, rng) for _ in range(2)]
    one, other = (rng.integers(0, 3, 120) for _ in range(2))
    cuts = [one, other, one.copy(), one]
    judged = score_partitions(views, cuts, n_compared)
    for of_view, view in zip(judged, views, strict=True):
        (first,), (second,) = (
            score_partitions([view], [labels], n_compared)[0] for labels in (one, other)
        )
        assert of_view == [first, second, first, first]
    scores = partition_scores([judged], cuts, None)
    assert scores == partition_scores([[judged[0]], [judged[1]]], cuts, None)
    known = np.where(np.arange(120) < 60, one, -1)
    counted = partition_scores([judged], cuts, known)
    assert [score.n_missed for score in counted] == [0, n_missed(other, known), 0, 0]
