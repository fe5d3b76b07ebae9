"""Settings of each view and views that have nothing in common with the others, selected without labels."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from mscam_dask import MSCAM
from mscam_dask.data.store.write import write_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.engine.blocks import Stage
from mscam_dask.engine.executors.base import SerialExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.engine.preprocessing_selection import (
    choice_for,
    rows_compared,
    select_view_settings,
    with_view_settings,
)
from mscam_dask.errors import ConfigurationError, DataError, DataWarning, UnstableClustersWarning
from mscam_dask.metrics import adjusted_rand_index
from mscam_dask.types.events import ViewSettingsSelected
from mscam_dask.types.parameters import Choices, Parameters, ViewSettings
from tests.messages import quotes
from tests.snapshots import Memory
from tests.synthetic import assert_partition_and_graph_agree, distances_between, gaussian_views

Views = dict[str, NDArray[np.float64]]

OPTIONS = tuple(
    ViewSettings(scale, alpha) for scale in ("unit", "standard") for alpha in (10.0, 1.0)
)
LEAVES_OUT = Choices(OPTIONS, initial_graph=True, may_exclude_views=True)


def with_useless(n_samples: int = 360, seed: int = 1) -> tuple[Views, NDArray[np.int64]]:
    """Four clusters that touch in two views, a third in another order of samples, and two of noise."""
    rng = np.random.default_rng(seed)
    (a, b, c), labels = gaussian_views(
        seed, n_samples=n_samples, n_clusters=4, spread=0.8, dims=(8, 10, 12)
    )
    noise = [3 * rng.standard_normal((n_samples, 30)) for _ in range(2)]
    shuffled = c[rng.permutation(n_samples)]
    return dict(zip("abcde", (a, b, shuffled, *noise), strict=True)), labels


USELESS = ("c", "d", "e")


class Fitted(NamedTuple):
    """A fit of all views, its states, and one of the two useful views."""

    views: Views
    model: MSCAM
    memory: Memory
    alone: MSCAM


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    views, _ = with_useless()
    memory = Memory()
    with pytest.warns(DataWarning, match=quotes(["c", "d", "e"], "exclude_views=[]")):
        model = MSCAM(4, n_jobs=1, checkpoint_store=memory).fit(views)
    alone = MSCAM(4, n_jobs=1).fit({name: views[name] for name in "ab"})
    return Fitted(views, model, memory, alone)


def test_views_that_nobody_confirms_are_left_out_and_it_is_said(fitted: Fitted) -> None:
    views, model, _, alone = fitted
    assert model.excluded_views_ == USELESS
    solution = model.solution_
    informative = [record.is_informative for record in solution.selected_view_settings]
    assert informative == [True, True, False, False, False]
    assert {record.exclude_views for record in solution.settings} == {USELESS, ()}
    assert solution.settings[solution.chosen].exclude_views == USELESS
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", UnstableClustersWarning)  # three views are useless
        everything = MSCAM(4, n_jobs=1, exclude_views=[], max_iter=1).fit(views)
    assert everything.excluded_views_ == ()
    labels = with_useless()[1]
    truth = [adjusted_rand_index(labels, one.labels_) for one in (model, alone, everything)]
    assert truth[0] == truth[1]
    assert truth[0] > truth[2] + 0.2


def test_what_is_told_of_views_left_out(fitted: Fitted) -> None:
    views, model, *_ = fitted
    assert_partition_and_graph_agree(model.solution_, n_clusters=4)
    assert set(model.view_embeddings_) == {"a", "b"}
    assert list(model.history_["view"].values) == list(views)
    residuals = model.history_["primal_residual"]
    assert np.isnan(residuals.sel(view=list(USELESS))).all()
    assert np.isfinite(residuals.sel(view=["a", "b"])).all()
    assert np.isnan(model.history_["view_score"].sel(view="c")).all()
    assert list(model.view_contributions_) == list(views)
    assert {model.view_contributions_[name] for name in USELESS} == {0.0}
    assert sum(model.view_contributions_.values()) == pytest.approx(1.0)


def test_a_fit_is_as_if_they_were_not_there(fitted: Fitted) -> None:
    views, model, _, alone = fitted
    given: dict[str, Any] = {"scale": "standard", "alpha": 1.0, "n_neighbors": 15, "n_jobs": 1}
    pairs = [
        (model, alone),
        (
            MSCAM(4, exclude_views=USELESS, **given).fit(views),
            MSCAM(4, **given).fit({name: views[name] for name in "ab"}),
        ),
    ]
    for one, as_alone in pairs:
        assert_array_equal(one.labels_, as_alone.labels_)
        assert_array_equal(one.consensus_graph_.data, as_alone.consensus_graph_.data)
        assert one.cross_view_information_ == as_alone.cross_view_information_
    # the samples are in order in `c` again where new ones are placed: nobody looks at it
    new = {name: view[:50] for name, view in views.items()}
    other = {**new, **{name: 9.0 * new[name] for name in USELESS}}
    assert_array_equal(model.predict(new), model.predict(other))
    assert np.mean(model.predict(new) == model.labels_[:50]) > 0.95


def test_new_samples_need_no_views_that_are_left_out(fitted: Fitted) -> None:
    views, model, *_ = fitted
    new = {name: view[:50] for name, view in views.items()}
    found = model.predict(new)
    assert_array_equal(model.predict({name: new[name] for name in "ab"}), found)
    assert_array_equal(model.predict({**new, "d": np.full_like(new["d"], np.nan)}), found)
    for wrong in ("abf", "cde"):
        given = {name: new.get(name, new["a"]) for name in wrong}
        with pytest.raises(DataError):
            model.predict(given)
    without = {name: new[name] for name in "acde"}
    assert_array_equal(model.predict(without), model.predict({"a": new["a"]}))
    with pytest.raises(DataError):
        model.predict({**new, "d": new["d"][:, 1:]})


@pytest.mark.usefixtures("small_blocks")
def test_large_data_leave_them_out() -> None:
    views, labels = with_useless(700)
    parameters = Parameters(n_clusters=4, n_neighbors=20, exact_samples=400)
    solution = run_fit(as_multi_view(views), parameters, SerialExecutor(), choices=LEAVES_OUT)
    assert solution.exclude_views == USELESS
    assert adjusted_rand_index(labels, solution.labels) > 0.6
    assert_partition_and_graph_agree(solution, n_clusters=4)


def complementary(n_views: int) -> tuple[list[NDArray[np.float64]], NDArray[np.int64]]:
    """Six clusters: two halves that all views but the last tell, times three that it alone tells."""
    rng = np.random.default_rng(n_views)
    halves, thirds = rng.integers(2, size=600), rng.integers(3, size=600)
    views = []
    for view in range(n_views):
        of, n_groups = (thirds, 3) if view == n_views - 1 else (halves, 2)
        views.append(2 * rng.standard_normal((n_groups, 10))[of] + rng.standard_normal((600, 10)))
    return views, 3 * halves + thirds


def test_a_view_that_tells_what_no_other_does_counts() -> None:
    views, labels = complementary(3)
    model = MSCAM(6, n_jobs=1).fit(views)
    assert [record.is_informative for record in model.solution_.selected_view_settings][-1] is False
    assert model.excluded_views_ == ()
    assert adjusted_rand_index(labels, model.labels_) > 0.9


@pytest.mark.filterwarnings("ignore::mscam_dask.errors.DataWarning")
def test_a_fit_that_goes_on_leaves_the_same_views_out(fitted: Fitted) -> None:
    views, model, memory, _ = fitted
    resumed = MSCAM(4, n_jobs=1, checkpoint_store=Memory(memory.saved[1])).fit(views)
    assert resumed.excluded_views_ == USELESS
    assert_array_equal(resumed.labels_, model.labels_)
    assert_array_equal(resumed.consensus_graph_.data, model.consensus_graph_.data)
    with pytest.raises(ConfigurationError, match=quotes("exclude_views")):
        MSCAM(4, n_jobs=1, exclude_views=[], checkpoint_store=Memory(memory.saved[1])).fit(views)


@pytest.mark.parametrize(
    ("exclude_views", "values"),
    [
        ("a", ("exclude_views='a'", "str")),
        (3, ("exclude_views=3", "int")),
        (["a", "z"], ("exclude_views", "'z'", list("abcde"))),
        (list("abcde"), (f"exclude_views={list('abcde')}",)),
    ],
    ids=str,
)
def test_views_that_cannot_be_left_out(exclude_views: object, values: tuple[object, ...]) -> None:
    with pytest.raises(ConfigurationError, match=quotes(*values)):
        MSCAM(4, exclude_views=exclude_views).fit(with_useless(40)[0])  # type: ignore[arg-type]


def test_settings_without_unconfirmed_views_are_tried_first() -> None:
    agreement = tuple(
        ViewSettingsSelected(
            view=name,
            scale="unit",
            alpha=1.0,
            agreement=0.1,
            ahead=0.0,
            overlap=9.0,
            is_informative=name != "c",
        )
        for name in "abc"
    )
    given = Parameters(n_clusters=2, exclude_views=(0,))
    tried = with_view_settings([given], [agreement], may_exclude_views=True)
    assert [one.exclude_views for one in tried] == [(2,), ()]
    (kept,) = with_view_settings([given], [agreement], may_exclude_views=False)
    assert kept.exclude_views == (0,)


def spoilt_by_units(n: int = 240) -> dict[str, NDArray[np.float64]]:
    """Two clean views, and one with a column of another unit that says nothing."""
    rng = np.random.default_rng(0)
    points = rng.standard_normal((n, 12))
    views = {name: points + 0.1 * rng.standard_normal(points.shape) for name in ("a", "b", "c")}
    views["c"] = np.hstack([views["c"], 1e3 * rng.standard_normal((n, 1))])
    return views


@pytest.mark.parametrize(("n_samples", "n_compared"), [(240, 3000), (600, 150)])
@pytest.mark.parametrize("n_copies", [1, 4])
def test_a_column_of_another_unit_makes_the_columns_be_standardised(
    n_samples: int, n_compared: int, n_copies: int, tmp_path: Path
) -> None:
    """Also of a sample of the rows, of stored views, and of many views, which are in groups."""
    views = spoilt_by_units(n_samples)
    rng = np.random.default_rng(3)
    for copy in range(3 * (n_copies - 1)):
        views[f"more {copy}"] = views["a"] + 0.3 * rng.standard_normal(views["a"].shape)
    data = as_multi_view(views)
    stored = as_multi_view(write_store(data, tmp_path / "data.zarr"))
    with SerialExecutor() as executor:
        found, of_store = (
            select_view_settings(Stage(executor, "views"), one, OPTIONS, 3, n_compared=n_compared)
            for one in (data, stored)
        )
    assert of_store == found
    records = {record.view: record for record in found[0]}
    assert records["c"].scale == "standard"
    assert records["c"].ahead > 4.0
    assert all(record.agreement > 0.1 for record in records.values())


def test_distance_views_differ_in_alpha_alone() -> None:
    rows = spoilt_by_units(60)["a"]
    data = as_multi_view({"d": distances_between(rows), "a": rows}, view_type={"d": "distance"})
    with SerialExecutor() as executor:
        records, *_ = select_view_settings(Stage(executor, "views"), data, OPTIONS, 0)
    assert records[0].scale == OPTIONS[0].scale


def test_a_scaling_that_makes_all_rows_equal_is_not_taken() -> None:
    rng = np.random.default_rng(1)
    data = as_multi_view({"age": 1.0 + rng.random((50, 1)), "rest": rng.random((50, 4))})
    with SerialExecutor() as executor:
        records, *_ = select_view_settings(Stage(executor, "views"), data, OPTIONS, 0)
        assert records[0].scale == "standard"
        with pytest.raises(DataError, match=quotes("'age'", "scale='unit'")):
            select_view_settings(Stage(executor, "views"), data, OPTIONS[:2], 0)


def shares_a_faint_nuisance(n: int = 300) -> dict[str, NDArray[np.float64]]:
    """Views of three plain clusters and of a faint angle that is not about them."""
    rng = np.random.default_rng(4)
    truth = np.arange(n) % 3
    angle = rng.uniform(0, 2 * np.pi, n)[:, None] * [1, 1, 2, 2]
    nuisance = 0.03 * np.cos(angle - [0, np.pi / 2, 0, np.pi / 2])
    return {
        name: np.hstack([2 * rng.normal(size=(3, 4))[truth] + rng.normal(size=(n, 4)), nuisance])
        for name in ("a", "b", "c")
    }


def test_what_is_faint_and_shared_is_one_choice_and_leaving_it_out_another() -> None:
    data = as_multi_view(shares_a_faint_nuisance())
    options = tuple(ViewSettings("none", alpha) for alpha in (10.0, 1.0, 1e-6))
    with SerialExecutor() as executor:
        every, mild = select_view_settings(Stage(executor, "views"), data, options, 0)
    assert {record.alpha for record in every} == {1e-6}
    assert all(record.alpha >= 1.0 for record in mild)
    candidates = with_view_settings(
        [Parameters(n_clusters=3)], (every, mild), may_exclude_views=True
    )
    assert [choice_for(one, (every, mild)) for one in candidates] == [every, mild]
    assert choice_for(Parameters(n_clusters=3), (every, mild)) == ()


def test_the_judge_of_partitions_decides_between_the_two() -> None:
    views = shares_a_faint_nuisance()
    data = as_multi_view(views)
    options = tuple(ViewSettings("none", alpha) for alpha in (10.0, 1.0, 1e-6))
    solution = run_fit(
        data,
        Parameters(n_clusters=3, scale="none", n_neighbors=20),
        SerialExecutor(),
        choices=Choices(view_settings=options),
    )
    assert len(solution.settings) == 2
    assert len({record.view_settings for record in solution.settings}) == 2
    assert all(record.alpha >= 1.0 for record in solution.selected_view_settings)
    assert solution.parameters.view_settings == tuple(
        ViewSettings(record.scale, record.alpha) for record in solution.selected_view_settings
    )
    truth = np.arange(300) % 3
    assert adjusted_rand_index(truth, solution.labels) == 1.0


def rings(n_samples: int) -> tuple[list[NDArray[np.float64]], NDArray[np.int64]]:
    """Two rings about one centre, in two views with the same angles: what these share is no cluster."""
    rng = np.random.default_rng(0)
    labels = np.arange(n_samples) % 2
    angles = rng.uniform(0.0, 2.0 * np.pi, n_samples)
    views = []
    for _ in range(2):
        radii = 1.0 + labels + 0.08 * rng.standard_normal(n_samples)
        views.append(np.column_stack([radii * np.cos(angles), radii * np.sin(angles)]))
    return views, labels


def test_rows_of_few_columns_keep_their_length() -> None:
    views, labels = rings(400)
    model = MSCAM(2).fit(views)
    assert adjusted_rand_index(labels, model.labels_) == 1.0
    assert {one.scale for one in model.view_settings_.values()} == {"standard"}
    data, unit = as_multi_view(views), [option for option in OPTIONS if option.scale == "unit"]
    with SerialExecutor() as executor:  # if it is asked for, they have unit length
        chosen = select_view_settings(Stage(executor, "views"), data, unit, 0)
    assert {one.scale for one in chosen[0]} == {"unit"}


def test_many_views_are_compared_by_fewer_rows() -> None:
    assert [rows_compared(n_views, 3000) for n_views in (2, 8, 32, 1000)] == [
        3000,
        3000,
        1500,
        1000,
    ]
    assert rows_compared(1000, 150) == 150
