"""Of all good cuts of the graph that was taken, the judge takes the best."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.engine import cuts, initialize
from mscam_dask.engine import select as selection
from mscam_dask.engine.executors.base import SerialExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.engine.initialize import Initialization, improve_by_restarts
from mscam_dask.engine.stage import Stage
from mscam_dask.types.parameters import Constants, Parameters
from mscam_dask.types.result import Solution
from mscam_dask.types.rules import SIZES

SETTINGS = Parameters(n_clusters=6, n_neighbors=10, max_iter=2)


def overlapping(seed: int = 0, *, apart: float = 1.8) -> list[NDArray[np.float64]]:
    """Six clusters in two views, that hardly part as they are by default."""
    rng = np.random.default_rng(seed)
    labels = np.arange(300) % 6
    return [apart * np.eye(6, 8)[labels] + rng.standard_normal((300, 8)) for _ in range(2)]


class Watch:
    """Sees a start before and after its minima were looked at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scores: list[tuple[float, float]] = []
        self.labels: list[Any] = []
        monkeypatch.setattr(selection, "improve_by_restarts", self._among)

    def _among(self, stage: Stage, start: Initialization) -> Initialization:
        after = improve_by_restarts(stage, start)
        self.scores.append((start.best.score, after.best.score))
        self.labels.append(stage.value(after.best.labels))
        return after


def solve(views: list[NDArray[np.float64]], **more: Any) -> Solution:
    parameters = dataclasses.replace(SETTINGS, **more)
    return run_fit(as_multi_view(views), parameters, SerialExecutor())


def test_a_better_minimum_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    for seed in range(4):
        solve(overlapping(seed))
    assert all(after >= before for before, after in watch.scores)
    assert any(after > before for before, after in watch.scores)
    for labels in watch.labels:
        assert_array_equal(np.unique(labels), np.arange(6))


def test_one_that_is_hardly_better_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    solve(overlapping(), constants=Constants(score_tie=10.0))
    ((before, after),) = watch.scores
    assert after == before


def test_clear_clusters_are_not_cut_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = cuts.spectral_cuts

    def never(*arguments: Any, all_minima: bool = False, **settings: Any) -> Any:
        assert not all_minima, "minima of a clear start were looked for"
        return plain(*arguments, all_minima=all_minima, **settings)

    monkeypatch.setattr(initialize, "spectral_cuts", never)
    solve(overlapping(apart=20.0))
    with pytest.raises(AssertionError, match="clear start"):
        solve(overlapping())


def test_settings_are_compared_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    views = as_multi_view(overlapping(2))
    compared = run_fit(views, SETTINGS, SerialExecutor()).settings
    monkeypatch.setattr(selection, "improve_by_restarts", lambda _, start: start)
    assert run_fit(views, SETTINGS, SerialExecutor()).settings == compared


def test_large_data_are_cut_on_some_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mscam_dask.engine.cuts.SIZES", dataclasses.replace(SIZES, n_cut=200))
    watch = Watch(monkeypatch)
    solution = solve(overlapping(), exact_samples=100)
    assert len(watch.labels[0]) == len(solution.labels) == 300
