"""Settings among which a fit chooses where the user has fixed none."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from numbers import Integral
from typing import Any

from mscam_dask.errors import ConfigurationError
from mscam_dask.types.parameters import Scale, ViewSettings

__all__ = [
    "Choices",
    "Fixed",
    "most_clusters",
    "most_neighbors",
    "settings_grid",
    "view_settings_grid",
]

# Among these each view's scaling and α are chosen: docs/decisions/0014.
_SCALES: tuple[Scale, ...] = ("unit", "standard")
_ALPHAS = (10.0, 1.0, 0.1)

# Numbers of clusters among which "auto" chooses, unless told otherwise.
_FEWEST = 2
_MOST_CLUSTERS = 30

# k then.
_NEIGHBORS = 20

# The least that k is limited to where clusters are small: docs/decisions/0053.
_FEWEST_NEIGHBORS = 5

# What is tried with one view, in order (ties go to the earlier): docs/decisions/0012.
_SETTINGS: tuple[dict[str, Any], ...] = (
    {"scale": "unit", "alpha": 10.0, "n_neighbors": 20},
    {"scale": "standard", "alpha": 10.0, "n_neighbors": 20},
    {"scale": "standard", "alpha": 1.0, "n_neighbors": 9},
)

# As in the paper.
_NOTHING_CHOSEN: tuple[dict[str, Any], ...] = (
    {"scale": "standard", "alpha": 1.0, "n_neighbors": 9},
)


@dataclasses.dataclass(frozen=True, slots=True)
class Fixed:
    """What the user has set; None where a value is to be chosen.

    Attributes
    ----------
    scale, alpha : value, or mapping of view name to value
        Mappings name every view and go together.
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
        """Whether the views are told apart."""
        return isinstance(self.scale, Mapping) or isinstance(self.alpha, Mapping)

    def view_settings(self, names: Sequence[str]) -> tuple[ViewSettings, ...]:
        """One for each view.

        Raises
        ------
        ConfigurationError
            When a view is missing, unknown, or has one of the two only.
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
        """Of the views left out, in the order of the views; none where that is to be chosen.

        Raises
        ------
        ConfigurationError
            When one is unknown, or no view would be left.
        """
        given = () if self.exclude_views is None else self.exclude_views
        if isinstance(given, str) or not isinstance(given, Collection):
            raise ConfigurationError(
                f"exclude_views={given!r} is a {type(given).__name__}; allowed is a list of names of views, or None."
            )
        unknown = [name for name in given if name not in names]
        if unknown:
            raise ConfigurationError(
                f"exclude_views={list(given)!r}: there is no view {', '.join(map(repr, unknown))}; allowed are "
                f"some of {list(names)}."
            )
        if given and set(given) == set(names):
            raise ConfigurationError(
                f"exclude_views={list(given)!r} names every view; allowed are all but one of {list(names)}."
            )
        return tuple(view for view, name in enumerate(names) if name in given)


@dataclasses.dataclass(frozen=True, slots=True)
class Choices:
    """What a fit chooses for itself before it tries settings.

    Attributes
    ----------
    view_settings : tuple of Preparation
        Tried on every view; none for scaling and α as given.
    n_clusters : bool
        Whether the number of clusters of the settings is only the most there may be.
    initial_graph : bool
        Whether the path may begin with neighbours in each view too, not by the mean distance alone,
        and may end with distances learned from its best partition.
    may_exclude_views : bool
        Whether settings without views that no other view confirms are tried; it goes
        with `view_settings`.
    """

    view_settings: tuple[ViewSettings, ...] = ()
    n_clusters: bool = False
    initial_graph: bool = False
    may_exclude_views: bool = False


def view_settings_grid(fixed: Fixed, *, any_features: bool) -> tuple[ViewSettings, ...]:
    """Preparations among which one is chosen for each view; none where there is no choice.

    Parameters
    ----------
    fixed : Fixed
    any_features : bool
        Whether a view has features: scalings concern no other.
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
    """Scale, α and k of each setting to try, in order.

    Parameters
    ----------
    fixed : Fixed
    options : sequence of Preparation
        Where there are some, scale and α stand for what is chosen later, view by view.
    any_features : bool
    choose : bool
        Whether anything is chosen at all; if not, what is not fixed is as in the paper.
    """
    tried = _SETTINGS if choose else _NOTHING_CHOSEN
    if options:
        first = options[0]
        tried = ({"scale": first.scale, "alpha": first.alpha, "n_neighbors": _NEIGHBORS},)
    given: dict[str, Any] = {}
    if fixed.by_view:
        tried = tried[:1]
    else:
        given = {name: getattr(fixed, name) for name in ("scale", "alpha")}
    given["n_neighbors"] = fixed.n_neighbors
    given = {name: value for name, value in given.items() if value is not None}
    if not any_features:
        given["scale"] = tried[0]["scale"]
    settings: list[dict[str, Any]] = []
    for setting in tried:
        limited = {**setting, **given}
        if limited not in settings:
            settings.append(limited)
    return tuple(settings)


def most_neighbors(n_samples: int, n_clusters: int | None = None) -> int:
    """The largest k that is chosen for n samples.

    Parameters
    ----------
    n_samples : int
    n_clusters : int, optional
        Where known, k is no more than the samples that a cluster has on average, since further
        neighbours are of other clusters; but 5 at least.
    """
    most = max(1, n_samples - 1)
    if n_clusters is None:
        return most
    return min(most, max(_FEWEST_NEIGHBORS, n_samples // n_clusters))


def most_clusters(asked: Any, n_samples: int) -> int:
    """The most clusters that may be chosen for n samples: as asked, or n / 10, 30 at most.

    Raises
    ------
    ConfigurationError
        When that is no whole number from 2 to n − 1.
    """
    if n_samples <= _FEWEST:
        raise ConfigurationError(
            f"n_clusters='auto' with {n_samples} sample(s): allowed are {_FEWEST + 1} samples or more. "
            "Give the number of clusters."
        )
    if asked is None:
        return min(_MOST_CLUSTERS, max(_FEWEST, n_samples // 10))
    if isinstance(asked, bool) or not isinstance(asked, Integral):
        raise ConfigurationError(
            f"max_clusters={asked!r} is a {type(asked).__name__}; allowed are whole numbers from "
            f"{_FEWEST} to {n_samples - 1}, or None."
        )
    if not _FEWEST <= int(asked) < n_samples:
        raise ConfigurationError(
            f"max_clusters={asked} with {n_samples} samples; allowed are {_FEWEST} to {n_samples - 1}."
        )
    return int(asked)


def _of(value: Any, name: str) -> Any:
    return value[name] if isinstance(value, Mapping) else value
