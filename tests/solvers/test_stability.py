"""Stability of clusters: Jaccard coefficients with cuts of perturbed graphs."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from mscam_dask.solvers.stability import cluster_stability, jaccard_coefficients
from tests.synthetic import gaussian_views


def test_jaccard_coefficients_are_those_of_the_sets() -> None:
    rng = np.random.default_rng(0)
    labels, others = rng.integers(4, size=60), rng.integers(4, size=60)
    for cluster, found in enumerate(jaccard_coefficients(labels, others, 4)):
        own = set(np.flatnonzero(labels == cluster))
        sets = [set(np.flatnonzero(others == other)) for other in range(4)]
        assert_allclose(found, max(len(own & one) / len(own | one) for one in sets))
    assert_array_equal(jaccard_coefficients(labels, (labels + 1) % 4, 4), 1.0)
    assert np.isnan(jaccard_coefficients(np.zeros(9, np.int64), np.zeros(9, np.int64), 2)[1])


def test_separate_clusters_are_stable_and_noise_is_not() -> None:
    views, labels = gaussian_views(0, n_samples=200, n_clusters=4, spread=3.0)
    assert cluster_stability(views, labels, 4, 15).min() > 0.98
    noise = [np.random.default_rng(seed).normal(size=(200, 10)) for seed in range(3)]
    assert cluster_stability(noise, labels, 4, 15).max() < 0.6


def test_the_two_clusters_that_overlap_are_the_unstable_ones() -> None:
    rng = np.random.default_rng(1)
    labels = np.arange(240) % 4
    centers = 12 * np.eye(4)
    centers[3] = centers[2]  # one cluster that was divided
    views = [centers[labels] + rng.normal(size=(240, 4)) for _ in range(3)]
    stability = cluster_stability(views, labels, 4, 15)
    assert stability[:2].min() > 0.9
    assert stability[2:].max() < 0.7
    assert_array_equal(stability, cluster_stability(views, labels, 4, 15))
    one_view = cluster_stability(views[:1], labels, 4, 15)
    assert one_view[:2].min() > 0.9
    assert one_view[2:].max() < 0.75
