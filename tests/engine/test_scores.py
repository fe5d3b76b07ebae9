"""What all views tell of partitions, scored once and in any grouping."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask import MSCAM
from mscam_dask.engine import scores as judge
from mscam_dask.engine.scores import partition_scores, score_partitions
from mscam_dask.metrics import adjusted_rand_index
from mscam_dask.solvers.partition_score import ReferenceGraphs, view_evidence
from tests.benchmarks.unequal import mixtures


def test_unequal_clusters_that_touch_are_told_by_all_views_together() -> None:
    _, views, labels = next(mixtures([500]))
    assert adjusted_rand_index(labels, MSCAM(3, exclude_views=[]).fit_predict(views)) > 0.9


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


@pytest.mark.parametrize("n_validation_samples", [0, 50])
def test_equal_partitions_are_scored_once(
    n_validation_samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    views = [random_view(n_validation_samples or 120, rng) for _ in range(2)]
    one, other = (rng.integers(0, 3, 120) for _ in range(2))
    asked: list[int] = []

    def counted(view: ReferenceGraphs, partitions: list[np.ndarray], rows: slice) -> Any:
        asked.append(len(partitions))
        return view_evidence(view, partitions, rows)

    monkeypatch.setattr(judge, "view_evidence", counted)
    cuts = [one, other, one.copy(), one]
    judged = score_partitions(views, cuts, n_validation_samples)
    assert asked == [2, 2]
    for of_view, view in zip(judged.scores, views, strict=True):
        (first,), (second,) = (
            score_partitions([view], [labels], n_validation_samples).scores[0]
            for labels in (one, other)
        )
        assert of_view == [first, second, first, first]
    told = partition_scores(cuts, [judged], n_validation_samples)
    assert told[0] == told[2] == told[3] != told[1]


@pytest.mark.parametrize("max_entries", [2**20, 160])
@pytest.mark.parametrize("n_validation_samples", [0, 50])
def test_what_all_views_tell_is_the_same_however_they_are_grouped(
    n_validation_samples: int, max_entries: int
) -> None:
    rng = np.random.default_rng(1)
    n = n_validation_samples or 120
    views = [random_view(n, rng) for _ in range(5)]
    cuts = [rng.integers(0, 4, 120) for _ in range(3)]
    score = partial(
        score_partitions,
        partitions=cuts,
        n_validation_samples=n_validation_samples,
        max_entries=max_entries,
    )
    (whole, in_twos, backwards) = (
        partition_scores(
            cuts, [score(some) for some in groups], n_validation_samples, max_entries=max_entries
        )
        for groups in ([views], [views[:2], views[2:4], views[4:]], [views[::-1]])
    )
    told = score(views).evidence
    assert {one.shape for one in told} == {(min(n, max_entries // 4), 4)}
    for one, other, third in zip(whole, in_twos, backwards, strict=True):
        assert one.view_scores == other.view_scores == third.view_scores[::-1]
        assert one.entropy == other.entropy == third.entropy
        assert one.joint == pytest.approx(other.joint, abs=1e-6)
        assert one.joint == pytest.approx(third.joint, abs=1e-6)
