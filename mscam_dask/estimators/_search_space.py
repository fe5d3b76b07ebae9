"""Which settings a fit tries: what the user fixed is fixed, what is None is chosen."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from mscam_dask.data.views.as_multi_view import MultiViewData
from mscam_dask.engine.checkpoint import CheckpointStore
from mscam_dask.errors import ConfigurationError
from mscam_dask.estimators._random_state import seed_of
from mscam_dask.types.parameters import Parameters, ViewSettings
from mscam_dask.types.search_space import (
    Choices,
    Fixed,
    most_clusters,
    most_neighbors,
    settings_grid,
    view_settings_grid,
)

__all__ = ["SearchSpaceMixin"]


class SearchSpaceMixin(ABC):
    """Part of an estimator: the settings among which a fit chooses, from its parameters."""

    n_clusters: Any
    max_clusters: Any
    scale: Any
    alpha: Any
    n_neighbors: int | None
    auto_settings: bool
    solver: str
    random_state: Any
    init_labels: Any
    exclude_views: Any
    checkpoint_store: CheckpointStore | None

    @abstractmethod
    def _parameters(self, setting: Mapping[str, Any]) -> Parameters:
        """Parameters of a fit: those of the estimator, with `setting` before them."""

    def _candidates(self, data: MultiViewData) -> tuple[Parameters, ...]:
        """The settings to try: what the user fixed is fixed, what is None is chosen."""
        if not isinstance(self.auto_settings, bool | np.bool_):
            raise ConfigurationError(
                f"auto_settings={self.auto_settings!r} is not usable: allowed is True or False."
            )
        fixed = self._fixed()
        choose = bool(self.auto_settings) and self.solver == "reduced"
        settings = settings_grid(
            fixed,
            self._options(data),
            any_features=_any_features(data),
            choose=choose,
        )
        common: dict[str, Any] = {"n_clusters": self._most_clusters(data), "seed": self._seed()}
        common["exclude_views"] = fixed.excluded_positions(data.view_names)
        if common["exclude_views"] and self.solver == "reference":
            raise ConfigurationError(
                f"exclude_views={list(self.exclude_views)!r} goes with solver='reduced': the paper's algorithm takes "
                "all views. Fit without these."
            )
        if fixed.by_view:
            common["view_settings"] = fixed.view_settings(data.view_names)
        tried = [self._parameters({**one, **common}) for one in settings]
        if self.n_neighbors is None:  # what was chosen fits the data; what was asked for is checked
            known = tried[0].n_clusters if choose and not self._chooses_count else None
            most = most_neighbors(data.n_samples, known)
            tried = [
                dataclasses.replace(one, n_neighbors=min(one.n_neighbors, most)) for one in tried
            ]
        return tuple(dict.fromkeys(tried))

    def _choices(self, data: MultiViewData) -> Choices:
        """What the fit chooses beside them."""
        return Choices(
            self._options(data),
            self._chooses_count,
            initial_graph=self.chooses_graph,
            may_exclude_views=self.exclude_views is None,
        )

    def _most_clusters(self, data: MultiViewData) -> int:
        """The number of clusters or, where it is chosen, the most there may be."""
        if not self._chooses_count:
            if self.max_clusters is not None:
                raise ConfigurationError(
                    f"max_clusters={self.max_clusters!r} goes with n_clusters='auto', and n_clusters is "
                    f"{self.n_clusters!r}. Leave max_clusters out."
                )
            given: int = self.n_clusters  # checked by Parameters
            return given
        if self.solver == "reference":
            raise ConfigurationError(
                "solver='reference' takes the number of clusters as the paper does: n_clusters='auto' "
                "goes with solver='reduced'."
            )
        if self.init_labels is not None:
            raise ConfigurationError(
                "init_labels go with the number of clusters of the earlier fit, and n_clusters "
                "is 'auto'. Give that number (n_clusters_)."
            )
        return most_clusters(self.max_clusters, data.n_samples)

    @property
    def chooses_graph(self) -> bool:
        """Whether a fit may try graphs with the views' own in them."""
        return bool(self.auto_settings)

    @property
    def _chooses_count(self) -> bool:
        if not isinstance(self.n_clusters, str):
            return False
        if self.n_clusters != "auto":
            raise ConfigurationError(
                f"n_clusters={self.n_clusters!r} is not usable: allowed is a whole number >= 1, or "
                "'auto' to have it chosen without labels."
            )
        return True

    def _fixed(self) -> Fixed:
        return Fixed(self.scale, self.alpha, self.n_neighbors, self.exclude_views)

    def _options(self, data: MultiViewData) -> tuple[ViewSettings, ...]:
        """Preparations among which one is chosen for each view; none where there is no choice."""
        if not self.auto_settings or self.solver != "reduced" or len(data.views) < 2:
            return ()
        return view_settings_grid(self._fixed(), any_features=_any_features(data))

    def _seed(self) -> int:
        keeps = self.checkpoint_store is not None and self.solver == "reduced"
        return seed_of(self.random_state, is_continued=keeps)


def _any_features(data: MultiViewData) -> bool:
    return any(source.view_type == "features" for source in data.views)
