"""Fits of unequal clusters: reliability decides between the partitions that are judged."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from mscam_dask import MSCAM
from mscam_dask.kernels.label_information import reliable_information
from mscam_dask.metrics import adjusted_rand_index
from tests.benchmarks.unequal import mixtures


def test_unequal_clusters_that_touch_are_told_by_all_views_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where each view tells them half and both tell them whole, reliability is of both."""
    _, views, labels = next(mixtures([500]))
    assert adjusted_rand_index(labels, MSCAM(3, left_out=[]).fit_predict(views)) > 0.9
    monkeypatch.setattr(
        "mscam_dask.solvers.verdict.reliable_information",
        lambda information, _, entropy: reliable_information(information, information, entropy),
    )
    assert adjusted_rand_index(labels, MSCAM(3, left_out=[]).fit_predict(views)) < 0.6


def unequal() -> tuple[list[NDArray[np.float64]], NDArray[np.int64]]:
    """Five clusters that nothing connects, each of two fifths of the size of the one before it."""
    rng = np.random.default_rng(2)
    labels = np.repeat(np.arange(5), [300, 120, 48, 19, 15])
    views = [
        rng.standard_normal((len(labels), d)) + 1.6 * rng.standard_normal((5, d))[labels]
        for d in (10, 20)
    ]
    return views, labels


def test_a_large_cluster_is_not_cut_while_small_ones_are_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    views, labels = unequal()
    found = MSCAM(5).fit(views)
    assert adjusted_rand_index(labels, found.labels_) == 1.0
    assert found.score_ < 0.75 * math.log(5)  # no more than that is there
    monkeypatch.setattr("mscam_dask.solvers.verdict._CLEARLY", np.inf)
    assert adjusted_rand_index(labels, MSCAM(5).fit_predict(views)) < 0.8
