"""Candidate settings: given values are fixed, and the others are selected from few."""

from __future__ import annotations

from typing import Any

import pytest

from mscam_dask import MSCAM, Constants
from mscam_dask.errors import ConfigurationError
from mscam_dask.types.parameters import Parameters, ViewSettings
from tests.synthetic import gaussian_views

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
