"""What a fit selects without labels before its first iteration: the initial graph and its cuts, the number of clusters."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.metrics import adjusted_rand_score

from mscam_dask import MSCAM, MSCAN, Constants
from mscam_dask.data.results import count_dataset
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.engine import select
from mscam_dask.engine.executors.base import SerialExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.errors import ConfigurationError, DataWarning
from mscam_dask.monitor.events import JsonLines
from mscam_dask.types.events import (
    FitEvent,
    FitFinished,
    FitStarted,
    NClustersSelected,
    SettingsSelected,
)
from mscam_dask.types.parameters import Choices, Parameters
from mscam_dask.types.result import Solution, Status, Structure
from mscam_dask.types.rules import RULES
from tests.snapshots import Memory
from tests.synthetic import (
    Array,
    assert_partition_and_graph_agree,
    distances_between,
    gaussian_views,
)


def chosen(solution: Solution) -> NClustersSelected:
    return dataclasses.replace(solution.n_clusters_selection, seconds=0.0)


@pytest.mark.parametrize(("estimator", "n_clusters"), [(MSCAM, 7), (MSCAN, 4)])
def test_blobs_that_are_far_apart_are_counted(estimator: Any, n_clusters: int) -> None:
    views, labels = gaussian_views(3, n_clusters=n_clusters, spread=4.0, dims=(6, 12))
    model = estimator("auto", max_clusters=9, n_jobs=1).fit(views)
    assert model.n_clusters_ == n_clusters
    assert model.solution_.assessment.n_tried == 9
    assert adjusted_rand_score(labels, model.labels_) == 1.0
    assert_partition_and_graph_agree(model.solution_, n_clusters=n_clusters)


def test_p_values_are_told_and_kept() -> None:
    views, _ = gaussian_views(1, n_samples=80, n_clusters=3, spread=4.0, dims=(6, 12))
    told: list[FitEvent] = []
    model = MSCAM("auto", n_jobs=1, callbacks=[told.append]).fit(views)
    started, counted, selected = told[:3]
    assert isinstance(started, FitStarted)
    assert isinstance(counted, NClustersSelected)
    assert isinstance(selected, SettingsSelected)
    assert started.n_clusters == counted.n_clusters == model.n_clusters_ == 3
    assert counted.counts == tuple(range(2, 9))
    curves = model.n_clusters_curves_
    assert curves.attrs["chosen"] == 3
    np.testing.assert_array_equal(curves["p_value"], counted.p_values)
    assert curves["p_value"].sel(n_clusters=3) <= RULES.level
    assert curves["p_value"].attrs["long_name"]
    assert curves.equals(count_dataset(counted))


def test_copies_of_samples_count_once_but_equal_answers_count_each() -> None:
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, 100, 400)  # 100 samples, four times each on average
    factors = rng.normal(size=(100, 3))
    views = [factors @ rng.normal(size=(3, d)) + 0.4 * rng.normal(size=(100, d)) for d in (8, 12)]
    with pytest.warns(DataWarning):
        assert MSCAM("auto", n_jobs=1).fit([view[drawn] for view in views]).n_clusters_ == 1
    labels = np.repeat([0, 1], 200)
    answers = [(rng.random((400, 3)) < 0.05 + 0.9 * labels[:, None]) * 1.0 for _ in range(2)]
    model = MSCAM("auto", max_clusters=6, n_jobs=1).fit(
        answers
    )  # nearly all samples equal another one
    assert adjusted_rand_score(labels, model.labels_) > 0.95
    together = np.equal.outer(labels, labels).astype(float)
    pairs = MSCAM("auto", max_clusters=6, view_type="kernel", n_jobs=1).fit([together] * 2)
    assert pairs.n_clusters_ == 2


def gaussian_kernel(rows: Array) -> Array:
    distances = distances_between(rows)
    return np.asarray(np.exp(-((distances / np.median(distances)) ** 2)))


@pytest.mark.parametrize(
    ("view_type", "pairs_of"),
    [("distance", distances_between), ("kernel", gaussian_kernel)],
    ids=["distances", "Gaussian kernels"],
)
def test_a_ring_has_no_clusters_between_pairs_either(view_type: Any, pairs_of: Any) -> None:
    rng = np.random.default_rng(0)
    angle = rng.uniform(0.0, 2.0 * np.pi, 400)
    ring = 3.0 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    rows = [ring @ rng.normal(size=(2, d)) + 0.5 * rng.normal(size=(400, d)) for d in (8, 12)]
    views = [pairs_of(of_view) for of_view in rows]
    with pytest.warns(DataWarning):
        auto = MSCAM("auto", max_clusters=6, view_type=view_type, n_jobs=1).fit(views)
    assert (auto.n_clusters_, auto.structure_) == (1, Structure.NONE)
    with pytest.warns(DataWarning):
        given = MSCAM(3, view_type=view_type, n_jobs=1).fit(views)
    assert given.structure_ is Structure.NONE


@pytest.mark.parametrize("spread", [0.6, 1.0, 1.5])
def test_the_largest_number_whose_borders_hold_is_selected(spread: float) -> None:
    views, _ = gaussian_views(2, n_samples=90, n_clusters=4, spread=spread, dims=(6, 12))
    solution = run_fit(
        as_multi_view(views),
        Parameters(n_clusters=6, n_neighbors=10),
        SerialExecutor(),
        choices=Choices(n_clusters=True),
    )
    counted = chosen(solution)
    assert counted.counts == (2, 3, 4, 5, 6)
    held = [c for c, p in zip(counted.counts, counted.p_values, strict=True) if p <= RULES.level]
    expected = max(held, default=1) if counted.views_agree else 1
    assert counted.n_clusters == solution.parameters.n_clusters == expected


@pytest.mark.parametrize(
    ("parameters", "scaled"),
    [({"n_clusters": 6}, np.log1p), ({"n_clusters": "auto", "max_clusters": 8}, np.asarray)],
)
def test_counts_with_a_large_spread_of_library_sizes_are_clustered(
    parameters: dict[str, Any], scaled: Callable[[Any], Any]
) -> None:
    rng = np.random.default_rng(3)
    labels = np.arange(240) % 6
    library_size = rng.lognormal(0.0, 0.6, 240)[:, None]
    rates = [np.exp(2.0 + 0.3 * rng.normal(size=(6, d))) for d in (12, 5, 15, 40)]
    views = [scaled(rng.poisson(rate[labels] * library_size)) for rate in rates]
    model = MSCAM(**parameters, n_jobs=1).fit(views)
    assert adjusted_rand_score(labels, model.labels_) > 0.9
    assert model.structure_ is Structure.CLEAR


def test_a_continued_fit_does_not_choose_again() -> None:
    views, _ = gaussian_views(5, n_samples=80, n_clusters=3, spread=1.5, dims=(6, 12))
    memory = Memory()
    whole = MSCAM("auto", n_jobs=1, checkpoint_store=memory).fit(views)
    state = memory.saved[0]
    with pytest.raises(ConfigurationError):
        MSCAM(8, n_jobs=1, checkpoint_store=Memory(state)).fit(views)
    told: list[FitEvent] = []
    continued = Memory(state)
    again = MSCAM("auto", n_jobs=1, checkpoint_store=continued, callbacks=[told.append])
    again.fit(views)
    assert (
        told[1] == whole.solution_.n_clusters_selection
    )  # with the seconds of the first selection
    np.testing.assert_array_equal(again.labels_, whole.labels_)
    counted = [of.saved[-1].arrays["counted_labels"] for of in (memory, continued)]
    np.testing.assert_array_equal(*counted)  # the partition whose borders gave the number
    assert len(np.unique(counted[0])) == whole.n_clusters_


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("has_clusters", [True, False])
def test_large_data_are_counted_on_their_sample(has_clusters: bool) -> None:
    views, labels = gaussian_views(6, n_samples=600, n_clusters=4, spread=4.0, dims=(6, 12))
    solution = run_fit(
        as_multi_view(views if has_clusters else independent_views(600)),
        Parameters(n_clusters=8, exact_samples=400, n_neighbors=10),
        SerialExecutor(),
        choices=Choices(n_clusters=True),
    )
    expected = labels if has_clusters else np.zeros(600)
    assert adjusted_rand_score(expected, solution.labels) == 1.0
    assert (solution.status is Status.NO_STRUCTURE) is not has_clusters


def test_views_have_to_agree_on_the_clusters_of_the_selected_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    views, _ = gaussian_views(1, n_samples=80, n_clusters=3, spread=4.0, dims=(6, 12))

    def agree_on_three(_views: Any, _points: Any, labels: Any) -> bool:
        return len(np.unique(labels)) == 3

    monkeypatch.setattr(select, "views_agree", agree_on_three)
    model = MSCAM("auto", n_jobs=1).fit(views)
    two, three, *_ = chosen(model.solution_).p_values
    assert max(two, three) <= RULES.level  # both hold
    assert model.n_clusters_ == 3


def independent_views(n_samples: int = 80) -> list[Array]:
    rng = np.random.default_rng(7)
    return [rng.standard_normal((n_samples, width)) for width in (4, 9)]


@pytest.mark.parametrize("views", [independent_views(), independent_views(200)[1:]], ids=len)
def test_without_structure_all_samples_form_one_cluster(views: list[Array]) -> None:
    told: list[FitEvent] = []
    kept = Memory()
    model = MSCAM("auto", n_jobs=1, callbacks=[told.append], checkpoint_store=kept)
    with pytest.warns(DataWarning):
        model.fit(views)
    assert model.n_clusters_ == model.n_connected_components_ == 1
    assert not model.labels_.any()
    assert model.status_ is Status.NO_STRUCTURE
    assert model.structure_ is Structure.NONE
    started, counted, finished = told
    assert isinstance(started, FitStarted)
    assert isinstance(counted, NClustersSelected)
    assert isinstance(finished, FitFinished)
    assert started.n_clusters == counted.n_clusters == 1
    assert (finished.status, finished.structure) == ("NO_STRUCTURE", "NONE")
    assert kept.saved == [], "there is nothing to resume"
    curves = model.n_clusters_curves_
    assert curves.sizes["n_clusters"] == len(counted.counts)
    assert min(counted.p_values) > RULES.level
    np.testing.assert_allclose(model.membership_, 1.0)
    assert model.cluster_features().empty
    assert model.cluster_tree_.shape == (0, 4)
    assert not model.predict(views).any()
    np.testing.assert_allclose(model.predict_proba(views), 1.0)


@pytest.mark.parametrize(
    "parameters",
    [
        {"max_clusters": 1},
        {"max_clusters": 40},
        {"max_clusters": 3.5},
        {"n_clusters": 3, "max_clusters": 5},
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused(parameters: dict[str, Any]) -> None:
    views, _ = gaussian_views(0, n_samples=40, dims=(4,))
    with pytest.raises(ConfigurationError):
        MSCAM(**{"n_clusters": "auto", **parameters}).fit(views)


@pytest.mark.filterwarnings("ignore::mscam_dask.errors.DataWarning")  # noise
@pytest.mark.parametrize("n_samples", [2, 3, 5, 9])
def test_few_samples(n_samples: int) -> None:
    views = [np.random.default_rng(0).standard_normal((n_samples, 3))]
    if n_samples == 2:
        with pytest.raises(ConfigurationError):
            MSCAM("auto").fit(views)
    else:
        assert MSCAM("auto", n_jobs=1).fit(views).n_clusters_ == 1


@pytest.mark.parametrize("seed", [0, 1])
def test_a_ring_around_another_is_two_clusters(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels, angle = rng.integers(2, size=500), rng.uniform(0.0, 2.0 * np.pi, 500)
    rings = (1.0 + 1.5 * labels)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    views = [rings @ rng.normal(size=(2, d)) + 0.2 * rng.normal(size=(500, d)) for d in (6, 8)]
    log = io.BytesIO()
    model = MSCAM("auto", max_clusters=6, n_jobs=1, callbacks=[JsonLines(log)]).fit(views)
    assert model.n_clusters_ == 2
    assert model.structure_ is Structure.CLEAR
    assert adjusted_rand_score(labels, model.labels_) > 0.95
    (selection,) = [
        event
        for event in map(json.loads, log.getvalue().splitlines())
        if event["event"] == "n_clusters_selected"
    ]
    assert selection["p_values"][0] <= RULES.level


def test_a_given_number_has_the_partition_that_auto_finds() -> None:
    rng = np.random.default_rng([79, 600, 0])
    labels = (rng.uniform(size=600) < 0.35).astype(int)  # a ring around another one
    angle, radius = rng.uniform(0.0, 2.0 * np.pi, 600), np.where(labels, 0.8, 2.0)
    plane = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    views = [plane @ rng.normal(size=(2, d)) + 0.25 * rng.normal(size=(600, d)) for d in (6, 8)]
    model = MSCAM(2, n_jobs=1).fit(views)
    assert model.structure_ is Structure.CLEAR
    assert adjusted_rand_score(labels, model.labels_) > 0.95


EITHER = Choices(initial_graph=True)


def moons(n_views: int) -> tuple[list[Array], Any]:
    """Two half circles in every view, a sample's place on its circle another in each.

    Few samples are near in all views at once, so the mean distance knows little of the circles.
    """
    rng, n_samples = np.random.default_rng(0), 240
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


def test_views_that_are_right_one_by_one_are_found_from_their_own_graphs() -> None:
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
    assert select.have_view_graphs(3, 2**17)
    assert not select.have_view_graphs(3, 2**17 + 1)
    assert select.have_view_graphs(16, 30_000)
    assert not select.have_view_graphs(16, 40_000)


def test_an_uninformative_view_of_ties_does_not_take_over() -> None:
    """Two values only: each sample has hundreds of neighbours at distance zero."""
    views, labels = gaussian_views(4, n_samples=150, spread=0.8)
    coin = np.random.default_rng(0).integers(0, 2, (150, 1)).astype(float)
    found = MSCAM(3, random_state=0, n_jobs=1, exclude_views=[]).fit([*views, coin]).labels_
    assert adjusted_rand_score(labels, found) > 0.9
    assert_array_equal(np.unique(found), np.arange(3))
