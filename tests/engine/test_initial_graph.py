"""The first partition of a fit: its initial graph, the cuts of it, and the tasks beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from mscam_dask import MSCAM, Constants
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.engine.executors.base import SerialExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.engine.initialize import have_view_graphs
from mscam_dask.solvers.partition_score import PartitionScore
from mscam_dask.types.parameters import Choices, Parameters
from tests.snapshots import Memory
from tests.synthetic import assert_partition_and_graph_agree, gaussian_views

Array = NDArray[np.float64]
EITHER = Choices(initial_graph=True)


def moons(n_views: int = 2, *, seed: int = 0, n_samples: int = 240) -> tuple[list[Array], Any]:
    """Two half circles in every view, a sample's place on its circle another in each.

    Few samples are near in all views at once, so the mean distance knows little of the circles.
    """
    rng = np.random.default_rng(seed)
    labels = np.arange(n_samples) % 2
    views = []
    for _ in range(n_views):
        t = rng.uniform(0, np.pi, n_samples)
        upper, lower = (
            np.column_stack([np.cos(t), np.sin(t)]),
            np.column_stack([1 - np.cos(t), 0.5 - np.sin(t)]),
        )
        view = np.where(labels[:, None] == 0, upper, lower)
        views.append(view + 0.12 * rng.standard_normal((n_samples, 2)))
    return views, labels


def settings() -> list[Parameters]:
    return [
        Parameters(n_clusters=2, scale=scale, alpha=10.0, n_neighbors=20, max_iter=3)
        for scale in ("unit", "standard")
    ]


def test_views_that_are_right_one_by_one_are_found_from_their_own_graphs_if_these_are_ahead() -> (
    None
):
    views, labels = moons(3)
    solution = run_fit(as_multi_view(views), settings(), SerialExecutor(), choices=EITHER)
    assert [one.initial_graph for one in solution.settings] == ["mean", "mean", "mixed"]
    assert solution.chosen == 2
    assert solution.score >= solution.settings[2].score
    assert adjusted_rand_score(labels, solution.labels) > 0.95
    assert_partition_and_graph_agree(solution, n_clusters=2)
    by_distances = max(one.score for one in solution.settings[:2])
    ahead = solution.settings[2].score / by_distances - 1.0
    assert ahead > settings()[0].constants.score_tie
    for tie, taken in ((ahead * 0.99, True), (ahead * 1.01, False)):
        tried = [dataclasses.replace(one, constants=Constants(score_tie=tie)) for one in settings()]
        found = run_fit(as_multi_view(views), tried, SerialExecutor(), choices=EITHER)
        assert (found.chosen == 2) is taken


@pytest.mark.parametrize("n_views", [1, 17])
def test_one_view_and_many_views_have_no_second_graph(n_views: int) -> None:
    views, _ = moons(n_views)
    parameters = Parameters(n_clusters=2, max_iter=1)
    solution = run_fit(as_multi_view(views), parameters, SerialExecutor(), choices=EITHER)
    assert {one.initial_graph for one in solution.settings} == {"mean"}


def test_millions_of_samples_have_no_second_graph() -> None:
    assert have_view_graphs(3, 2**17)
    assert not have_view_graphs(3, 2**17 + 1)
    assert have_view_graphs(16, 30_000)
    assert not have_view_graphs(16, 40_000)


def test_an_uninformative_view_of_ties_does_not_take_over() -> None:
    """Two values only: each sample has hundreds of neighbours at distance zero."""
    views, labels = gaussian_views(4, n_samples=150, spread=0.8)
    coin = np.random.default_rng(0).integers(0, 2, (150, 1)).astype(float)
    found = MSCAM(3, random_state=0, n_jobs=1, exclude_views=[]).fit([*views, coin]).labels_
    assert adjusted_rand_score(labels, found) > 0.9
    assert_array_equal(np.unique(found), np.arange(3))


SIX = Parameters(n_clusters=6, n_neighbors=10, max_iter=1)


def before_and_after(seed: int, *, apart: float = 1.8, **more: Any) -> tuple[float, float]:
    """Score of the initial graph of six clusters in two views, before and after all its cuts are tried."""
    rng = np.random.default_rng(seed)
    labels = np.arange(300) % 6
    views = [apart * np.eye(6, 8)[labels] + rng.standard_normal((300, 8)) for _ in range(2)]
    parameters, memory = dataclasses.replace(SIX, **more), Memory()
    solution = run_fit(as_multi_view(views), parameters, SerialExecutor(), checkpoint_store=memory)
    start = memory.saved[0]
    assert_array_equal(np.unique(start.arrays["best_labels"]), np.arange(6))
    after = PartitionScore(tuple(start.record["best_view_scores"])).score
    return solution.settings[0].score, after


def test_a_better_minimum_is_taken_unless_it_is_hardly_better() -> None:
    before, after = before_and_after(3)
    assert after > before
    before, after = before_and_after(3, constants=Constants(score_tie=10.0))
    assert after == before


def with_repeats(seed: int) -> tuple[list[Array], Any]:
    """Three overlapping clusters in two views, 26 samples of each nearly the same.

    With twenty neighbours the repeats are nearly a component of their own.
    """
    rng = np.random.default_rng(seed)
    labels = np.arange(600) % 3
    views = []
    for _ in range(2):
        view = 2.5 * np.eye(3, 8)[labels] + rng.standard_normal((600, 8))
        for cluster in range(3):
            repeats = np.flatnonzero(labels == cluster)[:26]
            view[repeats] = view[repeats[0]] + 0.3 * rng.standard_normal((26, 8))
        views.append(view)
    return views, labels


def test_repeats_do_not_take_the_place_of_clusters() -> None:
    views, labels = with_repeats(1)
    given = Parameters(n_clusters=3, alpha=10.0, n_neighbors=20, max_iter=3)
    solution = run_fit(as_multi_view(views), given, SerialExecutor())
    assert adjusted_rand_score(labels, solution.labels) > 0.8
    assert_partition_and_graph_agree(solution, n_clusters=3)


class Listed(SerialExecutor):
    """Executor that lists the stages of its tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.stages: list[str] = []

    def submit(self, function: Callable[..., Any], /, *args: Any, key: str) -> Any:
        self.stages.append(key.partition("/")[0])
        return super().submit(function, *args, key=key)


def test_tasks_of_the_assessment_are_submitted_once_and_before_the_first_iteration() -> None:
    views, _ = gaussian_views(3, n_samples=150, n_clusters=3, spread=2.0, dims=(6,) * 3)
    executor = Listed()
    settings = [Parameters(n_clusters=3, scale=scale) for scale in ("unit", "standard")]
    solution = run_fit(as_multi_view(views), settings, executor)
    stages, first = executor.stages, executor.stages.index("admm_view")
    assert stages.count("view_agreement") == 1
    assert stages.index("view_agreement") < first
    agreement = solution.assessment.view_agreement
    assert agreement.shape == (3, 3)
    assert_array_equal(np.diag(agreement), 1.0)
