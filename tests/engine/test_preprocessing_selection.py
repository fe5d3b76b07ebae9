"""Settings of the views: given values are fixed, and the others are selected from few."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mscam_dask import MSCAM, Constants
from mscam_dask.data.store.dataset import write_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.engine.blocks import Stage
from mscam_dask.engine.executors.base import SerialExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.engine.preprocessing_selection import select_view_settings
from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.metrics import adjusted_rand_index
from mscam_dask.types.events import ViewSettingsSelected
from mscam_dask.types.parameters import Choices, Parameters, ViewSettings
from tests.messages import raises
from tests.synthetic import distances_between, gaussian_views

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


def selected(
    data: MultiViewData,
    options: Sequence[ViewSettings] = OPTIONS,
    *,
    seed: int = 0,
    n_clusters: int = 3,
    **more: int,
) -> Sequence[ViewSettingsSelected]:
    with SerialExecutor() as executor:
        stage = Stage(executor, "views")
        records, *_ = select_view_settings(
            stage, data, options, seed, {}, n_clusters=n_clusters, **more
        ).values()
    return records


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
    found, of_store = (selected(one, seed=3, n_compared=n_compared) for one in (data, stored))
    assert of_store == found
    records = {record.view: record for record in found}
    assert records["c"].scale == "standard"
    assert records["c"].ahead > 4.0
    assert all(record.agreement > 0.1 for record in records.values())


def test_distance_views_differ_in_alpha_alone() -> None:
    rows = spoilt_by_units(60)["a"]
    data = as_multi_view({"d": distances_between(rows), "a": rows}, view_type={"d": "distance"})
    assert selected(data)[0].scale == OPTIONS[0].scale


def test_a_scaling_that_makes_all_rows_equal_is_not_taken() -> None:
    rng = np.random.default_rng(1)
    data = as_multi_view({"age": 1.0 + rng.random((50, 1)), "rest": rng.random((50, 4))})
    assert selected(data)[0].scale == "standard"
    with raises(DataError, "'age'", "scale='unit'"):
        selected(data, OPTIONS[:2])


def test_the_judge_of_partitions_decides_between_the_two() -> None:
    """Views of three plain clusters and of a faint angle that is not about them."""
    rng = np.random.default_rng(4)
    truth = np.arange(300) % 3
    angle = rng.uniform(0, 2 * np.pi, 300)[:, None] * [1, 1, 2, 2]
    nuisance = 0.03 * np.cos(angle - [0, np.pi / 2, 0, np.pi / 2])
    views = {
        name: np.hstack([2 * rng.normal(size=(3, 4))[truth] + rng.normal(size=(300, 4)), nuisance])
        for name in ("a", "b", "c")
    }
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
    assert adjusted_rand_index(truth, solution.labels) == 1.0


def test_rows_of_few_columns_keep_their_length() -> None:
    """Two rings about one centre, in two views with the same angles: what these share is no cluster."""
    rng, labels = np.random.default_rng(0), np.arange(400) % 2
    angles = rng.uniform(0.0, 2.0 * np.pi, 400)
    views = []
    for _ in range(2):
        radii = 1.0 + labels + 0.08 * rng.standard_normal(400)
        views.append(np.column_stack([radii * np.cos(angles), radii * np.sin(angles)]))
    model = MSCAM(2).fit(views)
    assert adjusted_rand_index(labels, model.labels_) == 1.0
    assert {one.scale for one in model.view_settings_.values()} == {"standard"}
    chosen = selected(as_multi_view(views), OPTIONS[:2], n_clusters=2)
    assert {one.scale for one in chosen} == {"unit"}  # as it is asked for


VIEWS = dict(zip("ba", gaussian_views(0, n_samples=72, dims=(3, 5))[0], strict=True))
ONE = [VIEWS["a"]]
PAPER = Constants.paper()


def tried(views: Any, **parameters: Any) -> list[tuple[Any, ...]]:
    found = MSCAM(3, **parameters).candidate_settings(views)
    return [(one.scale, one.alpha, one.n_neighbors) for one in found]


def test_settings_of_one_view_end_with_those_of_the_paper() -> None:
    assert tried(ONE) == [("unit", 10.0, 20), ("standard", 10.0, 20), ("standard", 1.0, 9)]
    assert tried(ONE, constants=PAPER) == tried(VIEWS, constants=PAPER) == [("standard", 1.0, 9)]


def test_settings_of_several_views_are_selected_by_view_if_there_is_a_choice() -> None:
    assert tried(VIEWS) == [("unit", 10.0, 20)]
    assert tried(VIEWS, scale="minmax") == [("minmax", 10.0, 20)]
    assert tried(VIEWS, scale="unit", alpha=2.0) == [("unit", 2.0, 20), ("unit", 2.0, 9)]


def test_settings_by_view() -> None:
    scale: Any = {"a": "unit", "b": "none"}
    (one,) = MSCAM(3, scale=scale, alpha=2).candidate_settings(VIEWS)
    assert list(VIEWS) == ["b", "a"]
    assert one.view_settings == (ViewSettings("none", 2.0), ViewSettings("unit", 2.0))


@pytest.mark.parametrize(
    "parameters",
    [
        {"scale": {"a": "unit", "b": "unit"}},
        {"scale": {"a": "unit"}, "alpha": 1.0},
        {"scale": "unit", "alpha": {"a": 1.0, "b": -1.0}},
    ],
)
def test_settings_that_do_not_fit_the_views_are_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        tried(VIEWS, **parameters)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"n_clusters": 3}, 20),
        ({"n_clusters": 6}, 12),  # the mean size of a cluster
        ({"n_clusters": 72}, 1),
        ({"n_clusters": 6, "n_neighbors": 20}, 20),
        ({"n_clusters": "auto"}, 20),
        ({"n_clusters": 24, "constants": PAPER}, 9),
    ],
)
def test_neighbors_that_are_selected_are_no_more_than_a_cluster_has(
    parameters: dict[str, Any], expected: int
) -> None:
    first: Parameters = MSCAM(**parameters).candidate_settings(VIEWS)[0]
    assert first.n_neighbors == expected


def counts_of_clusters(n_views: int) -> tuple[list[NDArray[np.int64]], NDArray[np.int64]]:
    """Overdispersed counts of four clusters, in samples of different totals, such as library sizes."""
    rng = np.random.default_rng(7)
    labels, views = np.arange(180) % 4, []
    for _ in range(n_views):
        means = np.exp(rng.normal(1.0, 2.0, 200) + rng.normal(0.0, 0.5, (4, 200)))[labels]
        totals = np.exp(rng.normal(0.0, 0.7, (180, 1)))
        views.append(rng.poisson(rng.gamma(1.0, means * totals)))
    return views, labels


@pytest.mark.parametrize("n_views", [1, 2])
def test_logarithms_of_counts_are_clustered_unless_a_scale_is_given(n_views: int) -> None:
    views, labels = counts_of_clusters(n_views)
    model = MSCAM(4, n_jobs=1).fit(views)
    assert adjusted_rand_index(labels, model.labels_) > 0.9
    assert {one.kind for one in model.data_warnings_} == {"counts"}
    assert {one.scale for one in model.view_settings_.values()} == {"log"}
    assert np.mean(model.predict(views) == model.labels_) > 0.98
    logs = [np.log1p(view) for view in views]
    same = MSCAM(4, scale="unit", n_jobs=1).fit(
        logs
    )  # and their standardized columns, not those of logarithms
    assert adjusted_rand_index(same.labels_, model.labels_) > 0.9
    counts = MSCAM(4, scale="unit", n_jobs=1).fit(views)
    assert adjusted_rand_index(labels, counts.labels_) < 0.5


def test_settings_of_a_fit_of_counts_can_be_given_to_the_next_one() -> None:
    views, _ = counts_of_clusters(2)
    model = MSCAM(4, n_jobs=1).fit(views)
    chosen = model.view_settings_
    again = MSCAM(
        4,
        scale={name: one.scale for name, one in chosen.items()},
        alpha={name: one.alpha for name, one in chosen.items()},
        n_neighbors=model.solution_.parameters.n_neighbors,
        exclude_views=model.excluded_views_,
        n_jobs=1,
    ).fit(views)
    assert again.cross_view_information_ == pytest.approx(model.cross_view_information_)
    assert again.labels_.tolist() == model.labels_.tolist()
