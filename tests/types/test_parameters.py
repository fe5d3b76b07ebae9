"""Parameters: validation, and candidate settings for those that are not set."""

from __future__ import annotations

from typing import Any

import pytest

from mscam_dask.errors import ConfigurationError
from mscam_dask.types.parameters import (
    Fixed,
    Parameters,
    ViewSettings,
    most_neighbors,
    settings_grid,
    view_settings_grid,
)


@pytest.mark.parametrize(
    ("n_clusters", "n_samples", "expected"),
    [
        (3, 1000, 20),
        (3, 150, 15),  # a tenth of the samples
        (3, 40, 6),
        (12, 1000, 24),
        (3, 5, 5),  # there are no more
        (3, 50_000, 6),  # large
        (30, 50_000, 60),
    ],
)
def test_eigenpairs_are_twice_the_clusters_and_twenty_where_samples_allow(
    n_clusters: int, n_samples: int, expected: int
) -> None:
    assert Parameters(n_clusters=n_clusters).n_pairs(n_samples) == expected


def test_nothing_fixed_leaves_two_scalings_and_three_alphas() -> None:
    options = view_settings_grid(Fixed(), any_features=True)
    assert len(options) == 6
    assert {option.scale for option in options} == {"unit", "standard"}
    assert {option.alpha for option in view_settings_grid(Fixed(), any_features=False)} == {
        option.alpha for option in options
    }
    assert len(view_settings_grid(Fixed(), any_features=False)) == 3


@pytest.mark.parametrize(
    ("fixed", "expected"),
    [
        (Fixed(scale="minmax"), 3),
        (Fixed(alpha=2.0), 2),
        (Fixed(scale="unit", alpha=2.0), 0),
        (Fixed(scale={"a": "unit"}, alpha=2.0), 0),
    ],
)
def test_what_is_fixed_is_not_varied(fixed: Fixed, expected: int) -> None:
    assert len(view_settings_grid(fixed, any_features=True)) == expected


@pytest.mark.parametrize("fixed", [{}, {"scale": "none"}, {"alpha": 3.0}, {"n_neighbors": 4}])
@pytest.mark.parametrize("choose", [True, False])
def test_settings_keep_what_is_fixed(fixed: dict[str, Any], choose: bool) -> None:
    settings = settings_grid(Fixed(**fixed), (), any_features=True, choose=choose)
    assert settings
    for setting in settings:
        assert set(setting) == {"scale", "alpha", "n_neighbors"}
        assert all(setting[name] == value for name, value in fixed.items())
    assert len({tuple(setting.items()) for setting in settings}) == len(settings)


def test_without_choice_the_paper_is_followed() -> None:
    assert settings_grid(Fixed(), (), any_features=True, choose=False) == (
        {"scale": "standard", "alpha": 1.0, "n_neighbors": 9},
    )


def test_preparations_by_view() -> None:
    fixed = Fixed(scale={"a": "unit", "b": "none"}, alpha=2)
    assert fixed.view_settings(["b", "a"]) == (ViewSettings("none", 2.0), ViewSettings("unit", 2.0))
    assert settings_grid(fixed, (), any_features=True, choose=True)[0].keys() == {
        "scale",
        "alpha",
        "n_neighbors",
    }


@pytest.mark.parametrize(
    "fixed",
    [
        Fixed(scale={"a": "unit", "b": "unit"}),
        Fixed(scale={"a": "unit"}, alpha=1.0),
        Fixed(scale="unit", alpha={"a": 1.0, "b": -1.0}),
    ],
)
def test_what_does_not_fit_the_views_is_refused(fixed: Fixed) -> None:
    with pytest.raises(ConfigurationError):
        fixed.view_settings(["a", "b"])


@pytest.mark.parametrize(
    ("n_samples", "n_clusters", "expected"),
    [
        (1000, 10, 100),
        (80, 4, 20),
        (80, 10, 8),
        (80, 40, 2),
        (80, None, 79),
        (4, 2, 2),
        (1, 1, 1),
        (3, 5, 1),
    ],
)
def test_no_more_neighbors_than_a_cluster_has_samples(
    n_samples: int, n_clusters: int | None, expected: int
) -> None:
    assert most_neighbors(n_samples, n_clusters) == expected
