"""Candidate settings of a fit: given values are fixed, values of None are selected."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.engine.checkpoint import CheckpointStore
from mscam_dask.engine.prepare import exact_limit
from mscam_dask.errors import ConfigurationError
from mscam_dask.types.parameters import Choices, Constants, Parameters, Scale, ViewSettings
from mscam_dask.types.rules import CONSTANTS, SIZES

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


class SearchSpaceMixin:
    """Mixin for estimators: candidate settings of a fit, from the parameters."""

    n_clusters: Any
    max_clusters: Any
    scale: Any
    alpha: Any
    n_neighbors: int | None
    random_state: Any
    exclude_views: Any
    max_iter: int | None
    constants: Constants | None
    checkpoint_store: CheckpointStore | None

    _learns_metric = True

    def _candidates(self, data: MultiViewData) -> tuple[Parameters, ...]:
        """Candidate settings, in the order in which they are tried; scale and α of views with options are selected later."""
        options = self._options(data)
        tried = _SETTINGS if self.chooses_graph else _SETTINGS[-1:]
        common: dict[str, Any] = {
            "n_clusters": self._most_clusters(data),
            "seed": seed_of(self.random_state, is_continued=self.checkpoint_store is not None),
            "max_iter": self.max_iter,
            "constants": self._constants,
            "model": "mscam" if self._learns_metric else "mscan",
            "exclude_views": excluded_positions(self.exclude_views, data.view_names),
            **exact_limit(data),
        }
        if options:
            tried = ((options[0].scale, options[0].alpha, CONSTANTS.n_neighbors),)
        elif self._is_by_view:
            tried = tried[:1]
            common["view_settings"] = self._settings_by_view(data.view_names)
        asked: dict[str, Any] = {"n_neighbors": self.n_neighbors}
        if not self._is_by_view:
            asked |= {"scale": self.scale, "alpha": self.alpha}
        common |= {name: value for name, value in asked.items() if value is not None}
        found = []
        for scale, alpha, k in tried:
            one = Parameters(**{"scale": scale, "alpha": alpha, "n_neighbors": k, **common})
            if not _any_features(data):
                one = dataclasses.replace(one, scale=tried[0][0])
            if self.n_neighbors is None:  # a default, which is adapted to the data
                most = max(1, data.n_samples - 1)
                if self.chooses_graph and not self._chooses_count:  # the mean size of a cluster
                    most = min(most, max(1, data.n_samples // one.n_clusters))
                one = dataclasses.replace(one, n_neighbors=min(k, most))
            found.append(one)
        return tuple(dict.fromkeys(found))

    def _choices(self, data: MultiViewData) -> Choices:
        """Choices that the fit makes in addition to the candidate settings."""
        return Choices(
            self._options(data),
            self._chooses_count,
            initial_graph=self.chooses_graph,
            may_exclude_views=self.exclude_views is None,
        )

    def _options(self, data: MultiViewData) -> tuple[ViewSettings, ...]:
        """Candidate settings of a view; empty if there is no choice. Only feature views are scaled."""
        if not self.chooses_graph or len(data.views) < 2 or self._is_by_view:
            return ()
        scales = _SCALES if _any_features(data) else _SCALES[:1]
        if self.scale is not None:
            scales = (self.scale,)
        alphas = _ALPHAS if self.alpha is None else (self.alpha,)
        options = tuple(ViewSettings(scale, alpha) for scale in scales for alpha in alphas)
        return options if len(options) > 1 else ()

    def _most_clusters(self, data: MultiViewData) -> int:
        """Number of clusters, or the largest allowed number if it is selected."""
        if self._chooses_count:
            return most_clusters(self.max_clusters, data.n_samples)
        if self.max_clusters is not None:
            raise ConfigurationError(
                f"max_clusters={self.max_clusters!r} requires n_clusters='auto', but n_clusters is "
                f"{self.n_clusters!r}. Remove max_clusters."
            )
        given: int = self.n_clusters  # checked by Parameters
        return given

    @property
    def chooses_graph(self) -> bool:
        """Whether a fit may try the mixed initial graph."""
        return self._constants.auto_settings

    @property
    def _constants(self) -> Constants:
        if self.constants is None:
            return Constants()
        if not isinstance(self.constants, Constants):
            raise ConfigurationError(
                f"constants={self.constants!r} is not usable: allowed is a mscam_dask.Constants, or None."
            )
        return self.constants

    @property
    def _chooses_count(self) -> bool:
        if not isinstance(self.n_clusters, str):
            return False
        if self.n_clusters != "auto":
            raise ConfigurationError(
                f"n_clusters={self.n_clusters!r} is not usable: allowed is a whole number >= 1, or "
                "'auto' to select it without labels."
            )
        return True

    @property
    def _is_by_view(self) -> bool:
        return isinstance(self.scale, Mapping) or isinstance(self.alpha, Mapping)

    def _settings_by_view(self, names: Sequence[str]) -> tuple[ViewSettings, ...]:
        """Given settings of each view."""
        pairs = {"scale": self.scale, "alpha": self.alpha}
        for parameter, value in pairs.items():
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
        scales, alphas = (
            value if isinstance(value, Mapping) else dict.fromkeys(names, value)
            for value in pairs.values()
        )
        return tuple(ViewSettings(scales[name], alphas[name]) for name in names)


def excluded_positions(exclude_views: Any, names: Sequence[str]) -> tuple[int, ...]:
    """Positions of the excluded views in the order of the views; empty if they are selected."""
    excluded = () if exclude_views is None else exclude_views
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


def most_clusters(asked: Any, n_samples: int) -> int:
    """Upper limit of the number of clusters for n samples: the given one, or n / 10, at most 30."""
    if n_samples <= _MIN_CLUSTERS:
        raise ConfigurationError(
            f"n_clusters='auto' with {n_samples} sample(s): allowed are {_MIN_CLUSTERS + 1} samples or more. "
            "Give the number of clusters."
        )
    if asked is None:
        return min(SIZES.max_clusters, max(_MIN_CLUSTERS, n_samples // 10))
    is_whole = isinstance(asked, Integral) and not isinstance(asked, bool)
    if not is_whole or not _MIN_CLUSTERS <= asked < n_samples:
        raise ConfigurationError(
            f"max_clusters={asked!r} with {n_samples} samples; allowed are whole numbers from "
            f"{_MIN_CLUSTERS} to {n_samples - 1}, or None."
        )
    return int(asked)


_ALLOWED = "allowed is a whole number >= 0, a RandomState or None"


def seed_of(random_state: object, *, is_continued: bool = False) -> int:
    """Seed of all random numbers of a fit; it must be a fixed one if the fit is continued from checkpoints."""
    if is_continued and (random_state is None or random_state is np.random):
        raise ConfigurationError(
            f"random_state={random_state!r} draws another seed for each fit, so no fit can resume from "
            "the checkpoints of checkpoint_store. Set random_state to a whole number."
        )
    if isinstance(random_state, int | np.integer) and random_state >= 0:
        return int(random_state)
    try:
        generator = check_random_state(random_state)
    except ValueError as error:
        raise ConfigurationError(
            f"random_state={random_state!r} is not usable: {_ALLOWED}."
        ) from error
    return int(generator.randint(2**31 - 1))


def _any_features(data: MultiViewData) -> bool:
    return any(source.view_type == "features" for source in data.views)
