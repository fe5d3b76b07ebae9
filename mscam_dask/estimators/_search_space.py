"""Candidate settings of a fit: given values are fixed, values of None are selected."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.engine.prepare import exact_limit
from mscam_dask.errors import ConfigurationError
from mscam_dask.types.allowed import Count, check_value
from mscam_dask.types.parameters import Choices, Constants, Parameters, Scale, ViewSettings
from mscam_dask.types.rules import CONSTANTS, SIZES

if TYPE_CHECKING:
    from mscam_dask.estimators.mscam import MSCAM

# Candidates for scale and α of each view: docs/decisions/0014.
_SCALES: tuple[Scale, ...] = ("unit", "standard")
_ALPHAS = (10.0, 1.0, 0.1)

# Candidate scale, α and k for one view, in order (ties go to the earlier one): docs/decisions/0014.
# The last are those of the paper.
_SETTINGS: tuple[tuple[Scale, float, int], ...] = (
    ("unit", 10.0, CONSTANTS.n_neighbors),
    ("standard", 10.0, CONSTANTS.n_neighbors),
    ("standard", 1.0, 9),
)

# Smallest number of clusters for "auto".
_MIN_CLUSTERS = 2


def search_space(estimator: MSCAM, data: MultiViewData) -> tuple[tuple[Parameters, ...], Choices]:
    """Candidate settings, in the order in which they are tried, and what the fit selects besides; scale and α of views with options are selected later."""
    allowed = Annotated[Constants | None, Meta(title="a mscam_dask.Constants, or None")]
    constants = check_value("constants", estimator.constants, allowed) or Constants()
    n_clusters = check_value("n_clusters", estimator.n_clusters, Count | Literal["auto"])
    is_selected, selects_settings = n_clusters == "auto", constants.auto_settings
    has_features = any(view.view_type == "features" for view in data.views)
    given = {name: getattr(estimator, name) for name in ("scale", "alpha", "n_neighbors")}
    of_views: tuple[ViewSettings, ...] | None = None
    options: tuple[ViewSettings, ...] = ()
    tried = _SETTINGS if selects_settings else _SETTINGS[-1:]
    if any(isinstance(given[name], Mapping) for name in ("scale", "alpha")):
        of_views = _settings_by_view(given.pop("scale"), given.pop("alpha"), data.view_names)
        tried = tried[:1]
    elif selects_settings and len(data.views) > 1:
        options = _options_of_views(given["scale"], given["alpha"], has_features=has_features)
        if options:
            tried = ((options[0].scale, options[0].alpha, CONSTANTS.n_neighbors),)
    common = {name: value for name, value in given.items() if value is not None} | {
        "n_clusters": _most_clusters(n_clusters, estimator.max_clusters, data.n_samples),
        "seed": seed_of(
            estimator.random_state, is_continued=estimator.checkpoint_store is not None
        ),
        "max_iter": estimator.max_iter,
        "constants": constants,
        "model": estimator._model,
        "exclude_views": excluded_positions(estimator.exclude_views, data.view_names),
        "view_settings": of_views,
        **exact_limit(data),
    }
    # the default number of neighbors is at most the mean size of a cluster
    most = data.n_samples - 1
    if selects_settings and not is_selected:
        most = min(most, data.n_samples // n_clusters)
    found = [
        Parameters(
            **{
                "scale": scale if has_features else tried[0][0],
                "alpha": alpha,
                "n_neighbors": min(k, max(1, most)),
                **common,
            }
        )
        for scale, alpha, k in tried
    ]
    choices = Choices(
        options,
        n_clusters=is_selected,
        initial_graph=selects_settings,
        may_exclude_views=estimator.exclude_views is None,
    )
    return tuple(dict.fromkeys(found)), choices


def log_views(
    scale: Scale | Mapping[str, Scale] | None, names: Collection[str], counts: Collection[str]
) -> frozenset[str]:
    """Views whose logarithms are compared: those with that scale, or those of `counts` if scales are selected."""
    if scale is None:
        return frozenset(counts)
    given = scale if isinstance(scale, Mapping) else dict.fromkeys(names, scale)
    return frozenset(name for name in names if given.get(name) == "log")


def _options_of_views(
    scale: Scale | None, alpha: float | None, *, has_features: bool
) -> tuple[ViewSettings, ...]:
    """Settings from which those of each view are selected, by a given scale and α; empty if there is no choice."""
    possible = _SCALES if has_features else _SCALES[:1]  # only feature views are scaled
    scales = possible if scale is None else (scale,)
    alphas = _ALPHAS if alpha is None else (alpha,)
    options = tuple(ViewSettings(scale, alpha) for scale in scales for alpha in alphas)
    return options if len(options) > 1 else ()


def _settings_by_view(scale: Any, alpha: Any, names: Sequence[str]) -> tuple[ViewSettings, ...]:
    """Given settings of each view."""
    columns = []
    for parameter, value in (("scale", scale), ("alpha", alpha)):
        by_view = value if isinstance(value, Mapping) else dict.fromkeys(names, value)
        if value is None or set(by_view) != set(names):
            raise ConfigurationError(
                f"{parameter}={value!r}, but scale or alpha is given by view: allowed is one value of both for each "
                f"of {list(names)}. Give both, or neither."
            )
        columns.append([by_view[name] for name in names])
    return tuple(map(ViewSettings, *columns))


def _most_clusters(n_clusters: int | str, asked: Any, n_samples: int) -> int:
    """Number of clusters; if it is selected, the largest: the given one, or n / 10, at most 30."""
    if isinstance(n_clusters, int):
        if asked is not None:
            raise ConfigurationError(
                f"max_clusters={asked!r} requires n_clusters='auto', but n_clusters is {n_clusters!r}. Remove it."
            )
        return n_clusters
    if n_samples <= _MIN_CLUSTERS:
        raise ConfigurationError(
            f"n_clusters='auto' with {n_samples} sample(s): allowed are {_MIN_CLUSTERS + 1} samples or more. "
            "Give the number of clusters."
        )
    if asked is None:
        return min(SIZES.max_clusters, max(_MIN_CLUSTERS, n_samples // 10))
    allowed = (
        f"a whole number from {_MIN_CLUSTERS} to {n_samples - 1} for {n_samples} samples, or None"
    )
    limits = Meta(ge=_MIN_CLUSTERS, lt=n_samples, title=allowed)
    most: int = check_value("max_clusters", asked, Annotated[int, limits])
    return most


def excluded_positions(exclude_views: Any, names: Sequence[str]) -> tuple[int, ...]:
    """Positions of the excluded views in the order of the views; empty if they are selected."""
    excluded = () if exclude_views is None else exclude_views
    is_list = isinstance(excluded, Collection) and not isinstance(excluded, str)
    unknown = [one for one in excluded if one not in names] if is_list else []
    if not is_list or unknown or {*excluded} == {*names}:
        problem = f"names {unknown}, which are no views" if unknown else "is not usable"
        raise ConfigurationError(
            f"exclude_views={exclude_views!r} {problem}: allowed is a list of some, but not all, of "
            f"{list(names)}, or None."
        )
    return tuple(view for view, name in enumerate(names) if name in excluded)


def seed_of(random_state: object, *, is_continued: bool = False) -> int:
    """Seed of all random numbers of a fit; it must be a fixed one if the fit is continued from checkpoints."""
    if is_continued and (random_state is None or random_state is np.random):
        raise ConfigurationError(
            f"random_state={random_state!r} draws another seed for each fit, so no fit can resume from "
            "the checkpoints of checkpoint_store. Set random_state to a whole number."
        )
    if isinstance(random_state, int | np.integer) and random_state >= 0:
        return int(random_state)
    from sklearn.utils import check_random_state  # slow to import

    try:
        generator = check_random_state(random_state)
    except ValueError as error:
        raise ConfigurationError(
            f"random_state={random_state!r} is not usable: allowed is a whole number >= 0, a RandomState or None."
        ) from error
    return int(generator.randint(2**31 - 1))
