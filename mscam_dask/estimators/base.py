"""What MSCAM and MSCAN share: asking for a fit and showing its result."""

from __future__ import annotations

import dataclasses
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted

from mscam_dask.data.history import count_dataset, history_dataset
from mscam_dask.data.validation import validate
from mscam_dask.data.views import MultiViewData
from mscam_dask.engine.fit import Observer, run_fit
from mscam_dask.engine.paper import run_paper
from mscam_dask.engine.plan import check_memory
from mscam_dask.engine.reading import found_in_each
from mscam_dask.engine.seed import seed_of
from mscam_dask.errors import ConfigurationError, ConvergenceWarning
from mscam_dask.estimators.cautions import warn_of_repeated_samples, warn_of_spectra
from mscam_dask.estimators.copies import SharesResources
from mscam_dask.estimators.execution import check_listeners, executor_for, with_dashboard
from mscam_dask.estimators.inputs import checked_labels
from mscam_dask.estimators.prediction import PredictsByNeighbors
from mscam_dask.model.candidates import (
    Choices,
    Fixed,
    most_clusters,
    most_neighbors,
    preparation_options,
    settings_to_try,
)
from mscam_dask.model.parameters import Model, Parameters, Preparation
from mscam_dask.model.solution import Solution
from mscam_dask.model.status import Status
from mscam_dask.monitor.fit_callbacks import CallbackSupportMixin, FitCallbacks, with_callbacks

if TYPE_CHECKING:
    import xarray
    from scipy.sparse import csr_array

__all__ = ["ConsensusClustering"]

_SOLVERS = ("reduced", "paper")


class ConsensusClustering(
    SharesResources,
    PredictsByNeighbors,
    CallbackSupportMixin,  # type: ignore[misc]  # untyped, as the next two
    ClusterMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
    ABC,
):
    """Base of MSCAM and MSCAN, which give their parameters."""

    _model: Model

    labels_: NDArray[np.int64]
    consensus_graph_: csr_array[np.float64]
    n_connected_components_: int
    status_: Status
    n_iter_: int
    n_neighbors_: int
    score_: float
    view_names_: tuple[str, ...]
    view_embeddings_: dict[str, NDArray[np.float64]]
    view_contributions_: dict[str, float]
    view_preparations_: dict[str, Preparation]
    n_clusters_: int
    solution_: Solution
    data_findings_: tuple[Any, ...]

    @abstractmethod
    def _parameters(self, setting: Mapping[str, Any]) -> Parameters:
        """Parameters of a fit: those of the estimator, with `setting` before them."""

    @with_callbacks
    def fit(self, X: Any, y: object = None) -> Self:
        """Cluster the samples.

        Parameters
        ----------
        X : list or dict of (n_samples, n_features_v) arrays, xarray.Dataset, store path or array
            The views: NumPy, SciPy sparse or Dask arrays of any real dtype; the path of a store
            made by ``mscam-dask ingest``; or one (n_samples, n_features) array, cut into views
            by `view_sizes`. Row i is sample i in every view.
        y : ignored
            Present for scikit-learn; labels never enter a fit.

        Returns
        -------
        self

        Raises
        ------
        ConfigurationError
            A parameter is out of range, or does not fit the data (c > n, k ≥ n).
        DataError
            The views cannot be clustered as given; the message names view and rows.
        ClusterError
            The Dask cluster cannot carry the work.

        Warns
        -----
        ConvergenceWarning
            The clusters may depend on chance: eigenvectors did not converge, or fewer samples differ
            than there are clusters.
        """
        if self.solver not in _SOLVERS:
            raise ConfigurationError(
                f"solver={self.solver!r} is not usable: allowed is one of {_SOLVERS}."
            )
        check_listeners(self.callbacks, self.checkpointer)
        data, of_table = self._views_to_fit(X)
        candidates = self._candidates(data)
        first = candidates[0]
        report = validate(
            data,
            n_clusters=first.n_clusters,
            n_neighbors=first.n_neighbors,
            digest=bool(self.solver == "reduced"),
            over=lambda look, views: found_in_each(
                look, views, executor_for(self.client, self.n_jobs), stage="validate"
            ),
        )
        solution = self._solve(data, candidates)
        self.solution_ = solution
        self.labels_ = solution.labels
        self.consensus_graph_ = solution.consensus_graph
        self.n_clusters_ = solution.parameters.n_clusters
        self.n_connected_components_ = solution.n_connected_components
        self.status_ = solution.status
        self.n_iter_ = len(solution.history)
        self.n_neighbors_ = solution.n_neighbors
        self.score_ = solution.score
        self.view_names_ = data.view_names
        self.view_embeddings_ = solution.view_embeddings
        self.view_contributions_ = solution.view_contributions
        self.view_preparations_ = {
            name: solution.parameters.preparation(index)
            for index, name in enumerate(data.view_names)
        }
        self.data_findings_ = tuple(report.findings)
        self._training = data
        self._training_digests = report.digests
        self._keep(of_table)
        warn_of_repeated_samples(report.findings, self.n_clusters_, stacklevel=3)
        return self

    def settings_tried(self, X: Any) -> tuple[Parameters, ...]:
        """The settings that a fit of `X` would choose from; nothing is fitted.

        Parameters
        ----------
        X : as for `fit`
        """
        data, _ = self._views_to_fit(X)
        return self._candidates(data)

    def _candidates(self, data: MultiViewData) -> tuple[Parameters, ...]:
        """The settings to try: what the user fixed is fixed, what is None is chosen."""
        if self.selection not in ("auto", None):
            raise ConfigurationError(
                f"selection={self.selection!r} is not usable: allowed is 'auto' or None."
            )
        fixed = self._fixed()
        choose = self.selection == "auto" and self.solver == "reduced"
        settings = settings_to_try(
            fixed,
            self._options(data),
            any_features=_any_features(data),
            choose=choose,
        )
        common: dict[str, Any] = {"n_clusters": self._most_clusters(data), "seed": self._seed()}
        if fixed.by_view:
            common["preparations"] = fixed.preparations(data.view_names)
        tried = [self._parameters({**one, **common}) for one in settings]
        if self.n_neighbors is None:  # what was chosen fits the data; what was asked for is checked
            known = tried[0].n_clusters if choose and not self._chooses_count else None
            most = most_neighbors(data.n_samples, known)
            tried = [
                dataclasses.replace(one, n_neighbors=min(one.n_neighbors, most)) for one in tried
            ]
        return tuple(dict.fromkeys(tried))

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
        if self.solver == "paper":
            raise ConfigurationError(
                "solver='paper' takes the number of clusters as the paper does: n_clusters='auto' "
                "goes with solver='reduced'."
            )
        if self.initial_labels is not None:
            raise ConfigurationError(
                "initial_labels go with the number of clusters of the earlier fit, and n_clusters "
                "is 'auto'. Give that number (n_clusters_)."
            )
        return most_clusters(self.max_clusters, data.n_samples)

    @property
    def chooses_graph(self) -> bool:
        """Whether a fit may try graphs with the views' own in them."""
        return bool(self.selection == "auto")

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
        return Fixed(self.scale, self.alpha, self.n_neighbors)

    def _options(self, data: MultiViewData) -> tuple[Preparation, ...]:
        """Preparations among which one is chosen for each view; none where there is no choice."""
        if self.selection is None or self.solver != "reduced" or len(data.views) < 2:
            return ()
        return preparation_options(self._fixed(), any_features=_any_features(data))

    def _solve(self, data: MultiViewData, candidates: tuple[Parameters, ...]) -> Solution:
        observers, run_id = self._observers(data, candidates[0].n_clusters)
        executor = executor_for(self.client, self.n_jobs, run_id)
        known = self._known(data, candidates)
        if self.solver == "paper":
            (parameters,) = candidates
            solution = run_paper(data, parameters, memory_limit_bytes=executor.memory_limit_bytes)
            if not solution.status.reached:
                warnings.warn(
                    f"{solution.n_connected_components} connected components instead of "
                    f"{parameters.n_clusters}: {solution.status.message}",
                    ConvergenceWarning,
                    stacklevel=4,
                )
            return solution
        for parameters in candidates:
            check_memory(data, parameters, executor, view_graphs=self.chooses_graph)
        solution = run_fit(
            data,
            candidates,
            executor,
            choices=Choices(
                self._options(data),
                self._chooses_count,
                first_graph=self.chooses_graph,
            ),
            observers=observers,
            checkpointer=self.checkpointer,
            known=known,
        )
        warn_of_spectra(solution, stacklevel=4)
        return solution

    @property
    def cluster_counts_(self) -> xarray.Dataset | None:
        """Curves over the numbers of clusters looked at; None when the number was given."""
        check_is_fitted(self)
        counted = self.solution_.counted
        return None if counted is None else count_dataset(counted)

    @property
    def history_(self) -> xarray.Dataset:
        """The outer iterations, over (outer_iteration, view)."""
        check_is_fitted(self)
        return history_dataset(self.solution_.history, self.view_names_)

    def _known(
        self, data: MultiViewData, candidates: tuple[Parameters, ...]
    ) -> NDArray[np.int64] | None:
        """The clusters handed down by an earlier fit, checked."""
        if self.initial_labels is None:
            return None
        if self.solver == "paper":
            raise ConfigurationError(
                "solver='paper' starts as the paper does; leave initial_labels out."
            )
        labels = checked_labels(self.initial_labels, data.n_samples, candidates[0].n_clusters)
        if len(candidates) > 1 or self._options(data):
            raise ConfigurationError(
                "initial_labels start from one setting, and scale, alpha or n_neighbors is left to "
                "be chosen. Give the three of the earlier fit (solution_.parameters)."
            )
        return labels

    def _observers(
        self, data: MultiViewData, n_clusters: int
    ) -> tuple[tuple[Observer, ...], str | None]:
        """The callbacks; with a client, the one for its dashboard too, and the id of the run."""
        observers = () if self.callbacks is None else tuple(self.callbacks)
        if FitCallbacks.are_set(self):
            observers = (*observers, FitCallbacks(self))
        if self.client is None or self.solver == "paper":
            return observers, None
        return with_dashboard(
            observers,
            self.client,
            name=f"{type(self).__name__}, {data.n_samples} samples",
            data=data,
            n_clusters=n_clusters,
        )

    def _seed(self) -> int:
        keeps = self.checkpointer is not None and self.solver == "reduced"
        return seed_of(self.random_state, is_continued=keeps)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _any_features(data: MultiViewData) -> bool:
    return any(source.metric == "features" for source in data.views)
