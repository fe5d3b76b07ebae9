from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from mscam_dask import MSCAM
from mscam_dask.data.store.write import write_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.engine.executors.base import SerialExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.engine.prepare import precompute_views
from mscam_dask.engine.preprocessing_selection import (
    choice_for,
    rows_compared,
    select_view_settings,
    with_view_settings,
)
from mscam_dask.engine.stage import Stage
from mscam_dask.errors import DataError
from mscam_dask.metrics import adjusted_rand_index
from mscam_dask.types.events import CandidateSettings, ViewSettingsSelected
from mscam_dask.types.parameters import Choices, Parameters, ViewSettings
from mscam_dask.types.rules import SIZES
from tests.messages import quotes
from tests.synthetic import distances_between

OPTIONS = tuple(
    ViewSettings(scale, alpha) for scale in ("unit", "standard") for alpha in (10.0, 1.0)
)


def spoilt_by_units(n: int = 240) -> dict[str, NDArray[np.float64]]:
    """Two clean views, and one with a column of another unit that says nothing."""
    rng = np.random.default_rng(0)
    points = rng.standard_normal((n, 12))
    views = {name: points + 0.1 * rng.standard_normal(points.shape) for name in ("a", "b", "c")}
    views["c"] = np.hstack([views["c"], 1e3 * rng.standard_normal((n, 1))])
    return views


def test_a_column_of_another_unit_makes_the_columns_be_standardised() -> None:
    data = as_multi_view(spoilt_by_units())
    with SerialExecutor() as executor:
        records = {
            r.view: r for r in select_view_settings(Stage(executor, "views"), data, OPTIONS, 0)[0]
        }
    assert records["c"].scale == "standard"
    assert records["c"].ahead > 4.0
    assert all(record.agreement > 0.2 for record in records.values())


class Noting(SerialExecutor):
    """Executor that keeps the keys of its tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[str] = []

    def submit(self, function: Callable[..., Any], /, *args: Any, key: str) -> Any:
        self.keys.append(key)
        return super().submit(function, *args, key=key)


def test_settings_are_tried_side_by_side_with_the_same_choices_for_stored_views(
    tmp_path: Path,
) -> None:
    data = as_multi_view({**spoilt_by_units(), "d": np.arange(1.0, 241.0)[:, None]})
    stored = as_multi_view(write_store(data, tmp_path / "data.zarr"))
    for n_compared in (3000, 120):
        found = []
        for views in (data, stored):
            with Noting() as executor:
                stage = Stage(executor, "views")
                found.append(select_view_settings(stage, views, OPTIONS, 0, n_compared=n_compared))
            n_searches = sum(key.startswith("sampled_neighbors/") for key in executor.keys)
            assert n_searches == 3 * len(OPTIONS) + 2  # unit length is no option for one column
        assert found[0] == found[1]


def test_a_sample_of_the_rows_decides_where_there_are_many() -> None:
    data = as_multi_view(spoilt_by_units(600))
    with SerialExecutor() as executor:
        found = select_view_settings(Stage(executor, "views"), data, OPTIONS, 3, n_compared=150)
        assert (
            select_view_settings(Stage(executor, "views"), data, OPTIONS, 3, n_compared=150)
            == found
        )
    records = found[0]
    assert records[2].scale == "standard"


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


def test_the_same_views_are_confirmed_in_every_agreement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions without other views are judged by other views: their scores do not compare."""
    told = iter([(1,), ()])
    monkeypatch.setattr(
        "mscam_dask.engine.preprocessing_selection.uninformative_views", lambda *choices: next(told)
    )
    options = tuple(ViewSettings("none", alpha) for alpha in (10.0, 1.0, 1e-6))
    with SerialExecutor() as executor:
        agreements = select_view_settings(
            Stage(executor, "views"), as_multi_view(shares_a_faint_nuisance()), options, 0
        )
    assert [[one.is_informative for one in each] for each in agreements] == [
        [True, False, True]
    ] * 2


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


def test_settings_that_share_the_scaling_of_a_view() -> None:
    data = as_multi_view(spoilt_by_units(90))
    unit, standard = ViewSettings("unit", 10.0), ViewSettings("standard", 10.0)
    mixed = [(unit, unit, standard), (unit, unit, unit), (standard, unit, standard)]
    candidates = [Parameters(n_clusters=3, view_settings=one) for one in mixed]
    solution = run_fit(data, candidates, SerialExecutor())
    assert len(solution.settings) == 3
    # every one, taken or not, says how it prepares the views
    told = [record.view_settings for record in solution.settings]
    assert told == [
        tuple((name, way.scale, way.alpha) for name, way in zip(data.view_names, one, strict=True))
        for one in mixed
    ]
    assert (
        msgspec.convert(msgspec.to_builtins(solution.settings[0]), CandidateSettings)
        == (solution.settings[0])
    )


def test_candidates_that_become_equal_are_kept_once() -> None:
    agreement = tuple(
        ViewSettingsSelected(
            view=name,
            scale="unit",
            alpha=1.0,
            agreement=0.1,
            ahead=0.0,
            overlap=9.0,
            is_informative=True,
        )
        for name in ("a", "b")
    )
    first = Parameters(n_clusters=2)
    assert with_view_settings([first, first], [agreement], may_exclude_views=True) == (
        Parameters(n_clusters=2, view_settings=(ViewSettings("unit", 1.0),) * 2),
    )


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


def test_rows_of_few_columns_keep_their_length(monkeypatch: pytest.MonkeyPatch) -> None:
    views, labels = rings(400)
    model = MSCAM(2).fit(views)
    assert adjusted_rand_index(labels, model.labels_) == 1.0
    assert {one.scale for one in model.view_settings_.values()} == {"standard"}
    monkeypatch.setattr(
        "mscam_dask.engine.preprocessing_selection.has_few_columns", lambda shape: False
    )
    model = MSCAM(2).fit(views)
    assert {one.scale for one in model.view_settings_.values()} == {"unit"}
    assert adjusted_rand_index(labels, model.labels_) < 0.1


def test_rows_of_few_columns_have_unit_length_if_it_is_asked_for() -> None:
    data = as_multi_view(rings(60)[0])
    unit = [option for option in OPTIONS if option.scale == "unit"]
    with SerialExecutor() as executor:
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


@pytest.mark.parametrize("n_views", [9, 20])
def test_groups_of_views_choose_as_all_views_together(
    n_views: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    points = rng.standard_normal((300, 12))
    views = [points + 0.3 * rng.standard_normal(points.shape) for _ in range(n_views)]
    views[4] = np.hstack([views[4], 1e3 * rng.standard_normal((300, 1))])
    data = as_multi_view(views)
    with SerialExecutor() as executor:
        in_groups = select_view_settings(Stage(executor, "views"), data, OPTIONS, 0)
        monkeypatch.setattr("mscam_dask.engine.preprocessing_selection._MIN_TOGETHER", n_views)
        together = select_view_settings(Stage(executor, "views"), data, OPTIONS, 0)
    assert [one.scale for one in in_groups[0]].count("standard") == 1
    assert in_groups[0][4].scale == "standard"
    for one, other in zip(in_groups[0], together[0], strict=True):
        assert (one.scale, one.alpha) == (other.scale, other.alpha)
        assert one.agreement == pytest.approx(other.agreement, abs=1e-6)


def test_partitions_of_many_views_are_scored_on_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fit and the number of clusters, which looks at the modularity in the same graphs."""
    sizes = dataclasses.replace(SIZES, n_scored=150, n_coarsely_compared=90)
    monkeypatch.setattr("mscam_dask.engine.prepare.SIZES", sizes)
    monkeypatch.setattr("mscam_dask.engine.preprocessing_selection.SIZES", sizes)
    rng = np.random.default_rng(4)
    labels = np.arange(240) % 3
    centers = 6.0 * rng.standard_normal((9, 3, 5))
    views = [own[labels] + rng.standard_normal((240, 5)) for own in centers]
    model = MSCAM("auto", n_jobs=1).fit(views)
    assert model.n_clusters_ == 3
    assert adjusted_rand_index(labels, model.labels_) == 1.0
    stage = Stage(SerialExecutor(), "views")
    precomputed = precompute_views(stage, as_multi_view(views), [("unit",) * 9])
    ((graphs,),) = stage.gather(precomputed.scorer.graphs(["view_0"]))
    assert {graph.shape for graph in graphs.graphs} == {(141, 141)}
