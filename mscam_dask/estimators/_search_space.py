"""Candidate settings of a fit: given values are fixed, values of None are selected."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.engine.checkpoint import CheckpointStore
from mscam_dask.engine.prepare import exact_limit
from mscam_dask.errors import ConfigurationError
from mscam_dask.types.parameters import (
    Choices,
    Constants,
    Fixed,
    Parameters,
    ViewSettings,
    most_clusters,
    most_neighbors,
    settings_grid,
    view_settings_grid,
)


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
        """Candidate settings: given values are fixed, values of None are selected."""
        fixed, choose = self._fixed(), self.chooses_graph
        settings = settings_grid(
            fixed,
            self._options(data),
            any_features=_any_features(data),
            choose=choose,
        )
        common: dict[str, Any] = {"n_clusters": self._most_clusters(data), "seed": self._seed()}
        common |= {"max_iter": self.max_iter, "constants": self._constants}
        common["model"] = "mscam" if self._learns_metric else "mscan"
        common |= exact_limit(data)
        common["exclude_views"] = fixed.excluded_positions(data.view_names)
        if fixed.by_view:
            common["view_settings"] = fixed.view_settings(data.view_names)
        tried = [Parameters(**one, **common) for one in settings]
        if self.n_neighbors is None:  # a default is adapted to the data; a given value is validated
            known = tried[0].n_clusters if choose and not self._chooses_count else None
            most = most_neighbors(data.n_samples, known)
            tried = [
                dataclasses.replace(one, n_neighbors=min(one.n_neighbors, most)) for one in tried
            ]
        return tuple(dict.fromkeys(tried))

    def _choices(self, data: MultiViewData) -> Choices:
        """Choices that the fit makes in addition to the candidate settings."""
        return Choices(
            self._options(data),
            self._chooses_count,
            initial_graph=self.chooses_graph,
            may_exclude_views=self.exclude_views is None,
        )

    def _most_clusters(self, data: MultiViewData) -> int:
        """Number of clusters, or the largest allowed number if it is selected."""
        if not self._chooses_count:
            if self.max_clusters is not None:
                raise ConfigurationError(
                    f"max_clusters={self.max_clusters!r} requires n_clusters='auto', but n_clusters is "
                    f"{self.n_clusters!r}. Remove max_clusters."
                )
            given: int = self.n_clusters  # checked by Parameters
            return given
        return most_clusters(self.max_clusters, data.n_samples)

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

    def _fixed(self) -> Fixed:
        return Fixed(self.scale, self.alpha, self.n_neighbors, self.exclude_views)

    def _options(self, data: MultiViewData) -> tuple[ViewSettings, ...]:
        """Candidate settings of a view; empty if there is nothing to select."""
        if not self.chooses_graph or len(data.views) < 2:
            return ()
        return view_settings_grid(self._fixed(), any_features=_any_features(data))

    def _seed(self) -> int:
        return seed_of(self.random_state, is_continued=self.checkpoint_store is not None)


def _any_features(data: MultiViewData) -> bool:
    return any(source.view_type == "features" for source in data.views)


_ALLOWED = "allowed is a whole number >= 0, a RandomState or None"


def seed_of(random_state: object, *, is_continued: bool = False) -> int:
    """Seed of all random numbers of a fit; it must be a fixed one if the fit is continued from checkpoints."""
    if isinstance(random_state, int | np.integer):
        if random_state < 0:
            raise ConfigurationError(f"random_state={random_state} is not usable: {_ALLOWED}.")
        return int(random_state)
    if is_continued and (random_state is None or random_state is np.random):
        raise ConfigurationError(
            f"random_state={random_state!r} draws another seed for each fit, so no fit can resume from "
            "the checkpoints of checkpoint_store. Set random_state to a whole number."
        )
    try:
        generator = check_random_state(random_state)
    except ValueError as error:
        raise ConfigurationError(
            f"random_state={random_state!r} is not usable: {_ALLOWED}."
        ) from error
    return int(generator.randint(2**31 - 1))
