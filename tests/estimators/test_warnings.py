"""Warnings of a fit: views without anything in common, noise, equal samples in different clusters."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mscam_dask import MSCAM, Constants
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.sources import ArrayRows
from mscam_dask.engine.executors.base import SerialExecutor
from mscam_dask.errors import DataWarning
from mscam_dask.estimators._inputs import equal_samples
from tests.synthetic import gaussian_views


def draws(n_draws: int) -> Iterator[list[np.ndarray]]:
    """Independent views without clusters: normal and uniform."""
    for seed in range(n_draws):
        rng = np.random.default_rng(seed)
        n_samples, n_views = int(rng.integers(80, 160)), int(rng.integers(2, 4))
        dims = rng.integers(3, 20, size=n_views).tolist()
        yield [(rng.normal, rng.uniform)[seed % 2](size=(n_samples, d)) for d in dims]


@pytest.mark.thorough
def test_independent_views_are_warned_of() -> None:
    silent = several = 0
    for views in draws(9):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = MSCAM("auto", max_clusters=8, n_jobs=1).fit(views)
        silent += not any(issubclass(one.category, DataWarning) for one in caught)
        assert max(model.neighbor_overlap_.values()) < 5
        several += model.n_clusters_ > 1
    assert silent == 0
    assert several <= 2


def test_common_clusters_are_not_warned_of() -> None:
    views, _ = gaussian_views(0, n_samples=120, spread=2.0)
    model = MSCAM("auto", max_clusters=4, n_jobs=1).fit(views)  # warnings are errors here
    assert min(model.neighbor_overlap_.values()) > 5
    paper = MSCAM(3, constants=Constants.paper(), n_jobs=1).fit(views)
    assert paper.neighbor_overlap_ == {}


@pytest.mark.thorough
def test_clusters_that_overlap_much_are_no_chance() -> None:
    """Few of the nearest neighbors are common, but many of the near ones: two normals in each view."""
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=1500)
    views = [rng.normal(size=(1500, 7)) + 0.9 * (2 * kind[:, None] - 1) / 2 for _ in range(3)]
    model = MSCAM("auto", max_clusters=4, n_jobs=1).fit(views)  # DataWarning is an error here
    assert model.n_clusters_ == 2
    assert min(model.neighbor_overlap_.values()) > 5


class Unreadable(ArrayRows):
    """A view that must not be read."""

    def read(self, start: int, stop: int) -> Any:
        """Fail."""
        raise AssertionError((start, stop))


def test_views_are_read_only_as_long_as_samples_are_equal() -> None:
    rng = np.random.default_rng(0)
    narrow, wide = rng.integers(2, size=(40, 1)) * 1.0, rng.normal(size=(40, 3))
    views = as_multi_view({"wide": wide, "narrow": narrow}).views
    widest = Unreadable(rng.normal(size=(40, 9)), "widest")
    assert equal_samples([widest, *views], SerialExecutor()) is None
    with pytest.raises(AssertionError):
        equal_samples([widest], SerialExecutor())
