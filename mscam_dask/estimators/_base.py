"""Base class of MSCAM and MSCAN: runs a fit and exposes its result."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted

from mscam_dask.data.results import count_dataset, history_dataset
from mscam_dask.data.views.as_multi_view import MultiViewData
from mscam_dask.data.views.missing_cells import impute_methods, impute_views
from mscam_dask.data.views.sampling import blocks_of_rows
from mscam_dask.data.views.validation import validate
from mscam_dask.engine.fit import Observer, run_fit
from mscam_dask.engine.map_views import map_views
from mscam_dask.engine.memory import check_memory
from mscam_dask.engine.reference import run_reference
from mscam_dask.errors import ConfigurationError, ConvergenceWarning
from mscam_dask.estimators._inputs import validate_labels
from mscam_dask.estimators._resources import (
    CallbackSupportMixin,
    FitCallbacks,
    SharedResourcesMixin,
    executor_for,
    validate_callbacks,
    validate_client,
    with_callbacks,
    with_dashboard,
)
from mscam_dask.estimators._search_space import SearchSpaceMixin
from mscam_dask.estimators._transform import ClusterSpaceMixin
from mscam_dask.estimators._warnings import (
    row_fingerprints,
    warn_duplicate_samples,
    warn_excluded_views,
    warn_no_structure,
    warn_split_duplicates,
    warn_unconverged_spectra,
)
from mscam_dask.types.parameters import Parameters, ViewSettings
from mscam_dask.types.result import Solution, Status

if TYPE_CHECKING:
    import xarray
    from scipy.sparse import csr_array

__all__ = ["BaseMultiViewClustering"]

_SOLVERS = ("reduced", "reference")


class BaseMultiViewClustering(
    SharedResourcesMixin,
    ClusterSpaceMixin,
    SearchSpaceMixin,
    CallbackSupportMixin,  # type: ignore[misc]  # untyped, as the next two
    ClusterMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Base class of MSCAM and MSCAN, which define the parameters."""

    labels_: NDArray[np.int64]
    consensus_graph_: csr_array[np.float64]
    learned_graph_: csr_array[np.float64]
    n_connected_components_: int
    status_: Status
    n_iter_: int
    n_neighbors_: int
    cross_view_information_: float
    view_names_: tuple[str, ...]
    view_embeddings_: dict[str, NDArray[np.float64]]
    view_contributions_: dict[str, float]
    view_settings_: dict[str, ViewSettings]
    excluded_views_: tuple[str, ...]
    sample_ids_: tuple[str, ...] | None
    view_presence_: NDArray[np.bool_]
    imputed_shares_: dict[str, NDArray[np.float64]]
    impute: str | Mapping[str, str | None] | None
    n_clusters_: int
    solution_: Solution
    data_warnings_: tuple[Any, ...]

    @with_callbacks
    def fit(self, X: Any, y: object = None) -> Self:
        """Cluster the samples.

        Parameters
        ----------
        X : list or dict of (n_samples, n_features_v) arrays, xarray.Dataset, store path or array
            The views: NumPy, SciPy sparse or Dask arrays of any real dtype, frames of pandas or
            polars, Arrow tables, AnnData; a MuData; the path of a store made by ``mscam-dask ingest``;
            or one (n_samples, n_features) array, cut into views by `n_features_per_view`. Row i is
            sample i in every view; frames and AnnData with the same ids in another order are put in
            the order of the first. A row that is all NaN is a sample that the view does not have.
        y : ignored
            For API consistency; labels never enter a fit.

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
            The Dask cluster is unusable or has too little memory.

        Warns
        -----
        ConvergenceWarning
            The clusters may depend on chance: eigenvectors did not converge, or there are fewer
            distinct samples than clusters.
        DataWarning
            Views were excluded; neighbors in one view are neighbors in the others no more often than
            by chance, or the spectral cut for the selected number of clusters is as unstable as noise;
            equal samples are in different clusters.
        UnstableClustersWarning
            Cuts of perturbed graphs have other clusters: `stability_` is below 0.75.
        """
        if self.solver not in _SOLVERS:
            raise ConfigurationError(
                f"solver={self.solver!r} is not usable: allowed is one of {_SOLVERS}."
            )
        validate_callbacks(self.callbacks, self.checkpoint_store)
        validate_client(self.client)
        data, of_table = self._views_to_fit(X)
        imputed = impute_views(data, impute_methods(self.impute, data.view_names))
        data = imputed.data
        candidates = self._candidates(data)
        first = candidates[0]
        report = validate(
            data,
            n_clusters=first.n_clusters,
            n_neighbors=first.n_neighbors,
            digest=bool(self.solver == "reduced"),
            over=lambda look, views: map_views(
                look, views, executor_for(self.client, self.n_jobs), stage="validate"
            ),
        )
        solution = self._solve(data, candidates)
        self._keep_fit(solution, data)
        self.data_warnings_ = tuple(report.issues)
        self.imputed_shares_ = imputed.shares
        self._imputers = imputed.imputers
        self._training_digests = report.digests
        self._keep(of_table)
        if not warn_duplicate_samples(report.issues, self.n_clusters_, stacklevel=3):
            self._warn_split_duplicates(stacklevel=4)
        warn_no_structure(solution, stacklevel=3)
        return self

    def _keep_fit(self, solution: Solution, data: MultiViewData) -> None:
        """Set the attributes of a fit of `data`."""
        self.solution_ = solution
        self.labels_ = solution.labels
        self.consensus_graph_ = solution.consensus_graph
        self.learned_graph_ = solution.learned_graph
        self.n_clusters_ = solution.parameters.n_clusters
        self.n_connected_components_ = solution.n_connected_components
        self.status_ = solution.status
        self.n_iter_ = len(solution.history)
        self.n_neighbors_ = solution.n_neighbors
        self.cross_view_information_ = solution.score
        self.view_names_ = data.view_names
        self.view_embeddings_ = solution.view_embeddings
        self.view_contributions_ = solution.view_contributions
        self.view_settings_ = {
            name: solution.parameters.settings_of_view(index)
            for index, name in enumerate(data.view_names)
        }
        self.excluded_views_ = solution.exclude_views
        self.sample_ids_ = data.sample_ids
        self.view_presence_ = data.presence
        self.data_warnings_ = ()
        self.imputed_shares_ = {}
        self._imputers = {}
        self._training = data
        self._training_digests = {}
        self._membership = None
        self._coordinates_loaded = None

    def _warn_split_duplicates(self, *, stacklevel: int) -> None:
        executor = executor_for(self.client, self.n_jobs)
        warn_split_duplicates(
            [view for view in self._training.views if view.name not in self.excluded_views_],
            self.labels_,
            lambda view: np.concatenate(
                map_views(row_fingerprints, blocks_of_rows(view), executor, stage="fingerprints")
            ),
            stacklevel=stacklevel,
        )

    def candidate_settings(self, X: Any) -> tuple[Parameters, ...]:
        """Candidate settings of a fit of `X`; nothing is fitted.

        Parameters
        ----------
        X : as for `fit`
        """
        data, _ = self._views_to_fit(X)
        return self._candidates(data)

    def _solve(self, data: MultiViewData, candidates: tuple[Parameters, ...]) -> Solution:
        observers, run_id = self._observers(data, candidates[0].n_clusters)
        executor = executor_for(self.client, self.n_jobs, run_id)
        known = self._known(data, candidates)
        if self.solver == "reference":
            (parameters,) = candidates
            solution = run_reference(
                data, parameters, memory_limit_bytes=executor.memory_limit_bytes
            )
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
            choices=self._choices(data),
            observers=observers,
            checkpoint_store=self.checkpoint_store,
            known=known,
        )
        warn_unconverged_spectra(solution, stacklevel=4)
        if self.exclude_views is None:
            warn_excluded_views(solution, stacklevel=4)
        return solution

    @property
    def n_clusters_curves_(self) -> xarray.Dataset | None:
        """Criteria over the candidate numbers of clusters; None if the number was given."""
        check_is_fitted(self)
        counted = self.solution_.counted
        return None if counted is None else count_dataset(counted)

    @property
    def history_(self) -> xarray.Dataset:
        """Quantities of the fit over (outer_iteration, view)."""
        check_is_fitted(self)
        return history_dataset(self.solution_.history, self.view_names_)

    def _known(
        self, data: MultiViewData, candidates: tuple[Parameters, ...]
    ) -> NDArray[np.int64] | None:
        """Validated initial labels, or None."""
        if self.init_labels is None:
            return None
        if self.solver == "reference":
            raise ConfigurationError(
                "init_labels is not supported with solver='reference'. Remove init_labels, or use solver='reduced'."
            )
        labels = validate_labels(self.init_labels, data.n_samples, candidates[0].n_clusters)
        if len(candidates) > 1 or self._options(data):
            raise ConfigurationError(
                "init_labels requires fixed settings, but scale, alpha or n_neighbors is None. Set "
                "all three to those of the earlier fit (solution_.parameters)."
            )
        return labels

    def _observers(
        self, data: MultiViewData, n_clusters: int
    ) -> tuple[tuple[Observer, ...], str | None]:
        """Callbacks, including that of the dashboard of a client, and the id of the run."""
        observers = () if self.callbacks is None else tuple(self.callbacks)
        if FitCallbacks.are_set(self):
            observers = (*observers, FitCallbacks(self))
        if self.client is None or self.solver == "reference":
            return observers, None
        return with_dashboard(
            observers,
            self.client,
            name=f"{type(self).__name__}, {data.n_samples} samples",
            data=data,
            n_clusters=n_clusters,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.impute is not None
        return tags
