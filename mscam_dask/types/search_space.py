"""Candidate settings for the parameters that the user has not set."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from numbers import Integral
from typing import Any

from mscam_dask.errors import ConfigurationError
from mscam_dask.types.parameters import Scale, ViewSettings
from mscam_dask.types.rules import CONSTANTS, RULES, SIZES

__all__ = [
    "Choices",
    "Fixed",
    "most_clusters",
    "most_neighbors",
    "settings_grid",
    "view_settings_grid",
]

# Candidates for scale and α of each view: docs/decisions/0014.
_SCALES: tuple[Scale, ...] = ("unit", "standard")
_ALPHAS = (10.0, 1.0, 0.1)

# Smallest number of clusters for "auto".
_MIN_CLUSTERS = 2

# Candidate settings for one view, in order (ties go to the earlier one): docs/decisions/0012.
_SETTINGS: tuple[dict[str, Any], ...] = (
    {"scale": "unit", "alpha": 10.0, "n_neighbors": CONSTANTS.n_neighbors},
    {"scale": "standard", "alpha": 10.0, "n_neighbors": CONSTANTS.n_neighbors},
    {"scale": "standard", "alpha": 1.0, "n_neighbors": 9},
)

# Settings of the paper.
_NOTHING_CHOSEN: tuple[dict[str, Any], ...] = (
    {"scale": "standard", "alpha": 1.0, "n_neighbors": 9},
)


@dataclasses.dataclass(frozen=True, slots=True)
class Fixed:
    """Values set by the user; None for a value that is selected.

    Attributes
    ----------
    scale, alpha : value, or mapping of view name to value
        Mappings name every view, and both are given.
    n_neighbors : int or None
    exclude_views : sequence of str or None
        Names of views.
    """

    scale: Any = None
    alpha: Any = None
    n_neighbors: int | None = None
    exclude_views: Any = None

    @property
    def by_view(self) -> bool:
        """True if scale or alpha is set for each view."""
        return isinstance(self.scale, Mapping) or isinstance(self.alpha, Mapping)

    def view_settings(self, names: Sequence[str]) -> tuple[ViewSettings, ...]:
        """Settings of each view.

        Raises
        ------
        ConfigurationError
            If a view is missing or unknown, or only one of scale and alpha is set.
        """
        for parameter, value in (("scale", self.scale), ("alpha", self.alpha)):
            if value is None:
                raise ConfigurationError(
                    "scale and alpha by view go together: one is a mapping of views and "
                    f"{parameter} is None. Give both, or neither."
                )
            if isinstance(value, Mapping) and set(value) != set(names):
                raise ConfigurationError(
                    f"{parameter}={dict(value)!r} does not name the views {list(names)}: allowed "
                    "is one value for each of them."
                )
        return tuple(ViewSettings(_of(self.scale, name), _of(self.alpha, name)) for name in names)

    def excluded_positions(self, names: Sequence[str]) -> tuple[int, ...]:
        """Positions of the excluded views in the order of the views; empty if they are selected.

        Raises
        ------
        ConfigurationError
            If a name is unknown, or all views are excluded.
        """
        excluded = () if self.exclude_views is None else self.exclude_views
        if isinstance(excluded, str) or not isinstance(excluded, Collection):
            raise ConfigurationError(
                f"exclude_views={excluded!r} is a {type(excluded).__name__}; allowed is a list of names of views, or None."
            )
        unknown = [name for name in excluded if name not in names]
        if unknown:
            raise ConfigurationError(
                f"exclude_views={list(excluded)!r}: there is no view {', '.join(map(repr, unknown))}; allowed are "
                f"some of {list(names)}."
            )
        if excluded and set(excluded) == set(names):
            raise ConfigurationError(
                f"exclude_views={list(excluded)!r} names every view; allowed are all but one of {list(names)}."
            )
        return tuple(view for view, name in enumerate(names) if name in excluded)


@dataclasses.dataclass(frozen=True, slots=True)
class Choices:
    """Selections of a fit other than the candidate settings.

    Attributes
    ----------
    view_settings : tuple of ViewSettings
        Candidates for every view; empty if the user set scale and α.
    n_clusters : bool
        Whether the number of clusters is selected, up to that of the settings.
    initial_graph : bool
        Whether the mixed initial graph is tried beside the mean one, and the fit has a refinement.
    may_exclude_views : bool
        Whether settings without uninformative views are tried; it needs `view_settings`.
    """

    view_settings: tuple[ViewSettings, ...] = ()
    n_clusters: bool = False
    initial_graph: bool = False
    may_exclude_views: bool = False


def view_settings_grid(fixed: Fixed, *, any_features: bool) -> tuple[ViewSettings, ...]:
    """Candidate settings of a view; empty if there is no choice.

    Parameters
    ----------
    fixed : Fixed
    any_features : bool
        Whether a view has features: only feature views are scaled.
    """
    if fixed.by_view:
        return ()
    scales = _SCALES if any_features else _SCALES[:1]
    if fixed.scale is not None:
        scales = (fixed.scale,)
    alphas = _ALPHAS if fixed.alpha is None else (fixed.alpha,)
    options = tuple(ViewSettings(scale, alpha) for scale in scales for alpha in alphas)
    return options if len(options) > 1 else ()


def settings_grid(
    fixed: Fixed,
    options: Sequence[ViewSettings],
    *,
    any_features: bool,
    choose: bool,
) -> tuple[dict[str, Any], ...]:
    """Scale, α and k of each candidate setting, in order.

    Parameters
    ----------
    fixed : Fixed
    options : sequence of ViewSettings
        If there are any, scale and α are placeholders: they are selected later, view by view.
    any_features : bool
    choose : bool
        Whether settings are selected; if not, values that are not fixed are those of the paper.
    """
    tried = _SETTINGS if choose else _NOTHING_CHOSEN
    if options:
        first = options[0]
        tried = (
            {"scale": first.scale, "alpha": first.alpha, "n_neighbors": CONSTANTS.n_neighbors},
        )
    fixed_values: dict[str, Any] = {}
    if fixed.by_view:
        tried = tried[:1]
    else:
        fixed_values = {name: getattr(fixed, name) for name in ("scale", "alpha")}
    fixed_values["n_neighbors"] = fixed.n_neighbors
    fixed_values = {name: value for name, value in fixed_values.items() if value is not None}
    if not any_features:
        fixed_values["scale"] = tried[0]["scale"]
    settings: list[dict[str, Any]] = []
    for setting in tried:
        limited = {**setting, **fixed_values}
        if limited not in settings:
            settings.append(limited)
    return tuple(settings)


def most_neighbors(n_samples: int, n_clusters: int | None = None) -> int:
    """Upper limit of k for n samples.

    Parameters
    ----------
    n_samples : int
    n_clusters : int, optional
        If given, k is at most the mean size of a cluster, since further neighbors are in other
        clusters; but at least 5.
    """
    most = max(1, n_samples - 1)
    if n_clusters is None:
        return most
    return min(most, max(RULES.min_neighbors, n_samples // n_clusters))


def most_clusters(asked: Any, n_samples: int) -> int:
    """Upper limit of the number of clusters for n samples: the given one, or n / 10, at most 30.

    Raises
    ------
    ConfigurationError
        If it is not a whole number from 2 to n − 1.
    """
    if n_samples <= _MIN_CLUSTERS:
        raise ConfigurationError(
            f"n_clusters='auto' with {n_samples} sample(s): allowed are {_MIN_CLUSTERS + 1} samples or more. "
            "Give the number of clusters."
        )
    if asked is None:
        return min(SIZES.max_clusters, max(_MIN_CLUSTERS, n_samples // 10))
    if isinstance(asked, bool) or not isinstance(asked, Integral):
        raise ConfigurationError(
            f"max_clusters={asked!r} is a {type(asked).__name__}; allowed are whole numbers from "
            f"{_MIN_CLUSTERS} to {n_samples - 1}, or None."
        )
    if not _MIN_CLUSTERS <= int(asked) < n_samples:
        raise ConfigurationError(
            f"max_clusters={asked} with {n_samples} samples; allowed are {_MIN_CLUSTERS} to {n_samples - 1}."
        )
    return int(asked)


def _of(value: Any, name: str) -> Any:
    return value[name] if isinstance(value, Mapping) else value
