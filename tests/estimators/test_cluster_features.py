"""Features that set a cluster apart: effect sizes, names, order, blocks."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.solvers.assessment import feature_effects
from tests.estimators.small import pair_views, quick
from tests.synthetic import gaussian_views


def cohens_d(own: NDArray[np.float64], rest: NDArray[np.float64]) -> Any:
    pooled = (len(own) - 1) * own.var(axis=0, ddof=1) + (len(rest) - 1) * rest.var(axis=0, ddof=1)
    return (own.mean(axis=0) - rest.mean(axis=0)) / np.sqrt(pooled / (len(own) + len(rest) - 2))


@pytest.mark.parametrize("size", [7, 60, 200])
def test_effects_are_those_of_the_definition_for_all_blocks(size: int) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=200)
    rows = 1e6 + rng.normal(size=(200, 5)) + labels[:, None] * np.arange(5)
    rows[rng.random(rows.shape) < 0.3] = 0.0
    blocks = [(start, rows[start : start + size]) for start in range(0, 200, size)]
    found = feature_effects(blocks, labels, 3)
    for cluster in range(3):
        own, rest = rows[labels == cluster], rows[labels != cluster]
        assert_allclose(found.effect[cluster], cohens_d(own, rest), rtol=1e-6)
        assert_allclose(found.mean[cluster], own.mean(axis=0))
        assert_allclose(found.mean_of_rest[cluster], rest.mean(axis=0))
        assert_allclose(found.share[cluster], np.mean(own != 0, axis=0))
        assert_allclose(found.share_of_rest[cluster], np.mean(rest != 0, axis=0))


def test_columns_without_variance() -> None:
    labels = np.repeat([0, 1], 10)
    rows = np.column_stack([np.full(20, 0.1), labels * 0.3 + 7.1, np.arange(20.0) % 2])
    effects = feature_effects([(0, rows)], labels, 2).effect
    assert effects[0].tolist() == [0.0, -np.inf, 0.0]
    assert effects[1].tolist() == [0.0, np.inf, 0.0]


def test_the_planted_features_come_first_by_name() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(120) % 3
    frames = {}
    for name in ("genes", "proteins"):
        values = rng.normal(size=(120, 30))
        values[np.arange(120), labels] += 6.0  # column j is high in cluster j
        frames[name] = pd.DataFrame(values, columns=[f"{name}{j}" for j in range(30)])
    model = quick().fit(frames)
    found = model.cluster_features(top=4)
    assert len(found) == 2 * 3 * 4
    for (view, cluster), of_one in itertools.groupby(found, lambda one: (one.view, one.cluster)):
        features = list(of_one)
        sizes = [abs(one.effect) for one in features]
        assert sizes == sorted(sizes, reverse=True)
        planted = labels[np.flatnonzero(model.labels_ == cluster)[0]]
        assert features[0].feature == f"{view}{planted}"
        assert features[0].column == planted
        assert features[0].effect > 3
        own = frames[view].to_numpy()[model.labels_ == cluster, planted]
        assert features[0].mean == pytest.approx(own.mean())
        assert features[0].mean > features[0].mean_of_rest
        assert (features[0].share, features[0].share_of_rest) == (1.0, 1.0)


def test_distances_and_kernels_have_no_features() -> None:
    features, distances, kernel, _ = pair_views()
    model = quick(view_type=("features", "distance", "kernel")).fit([features, distances, kernel])
    found = model.cluster_features(top=100)
    assert {one.view for one in found} == {"view_0"}
    assert {one.feature for one in found} == set("0123")


@pytest.mark.parametrize("top", [0, 2.5, True, "all"])
def test_top_out_of_range(top: Any) -> None:
    model = quick().fit(gaussian_views(0, n_samples=60)[0])
    with pytest.raises(ConfigurationError):
        model.cluster_features(top)


def test_one_cluster_has_no_features_and_changed_arrays_are_refused() -> None:
    views, _ = gaussian_views(0, n_samples=30)
    assert quick(1).fit(views).cluster_features() == ()
    model = quick().fit(views)
    views[0][2, 1] += 1
    with pytest.raises(DataError):
        model.cluster_features()
