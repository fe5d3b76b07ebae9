"""Base class of MSCAM and MSCAN: runs a fit, warns about its result and exposes it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted

from mscam_dask.data.results import count_dataset, history_dataset
from mscam_dask.data.views.missing_cells import (
    LazyImputer,
    impute_methods,
    impute_methods_of,
    impute_views,
)
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.presence import present_samples
from mscam_dask.data.views.sampling import blocks_of_rows
from mscam_dask.data.views.sources import RowSource
from mscam_dask.data.views.validation import DataIssue, validate
from mscam_dask.engine.executors.base import Executor
from mscam_dask.engine.fit import run_fit
from mscam_dask.engine.memory import check_memory
from mscam_dask.engine.session import Observer
from mscam_dask.errors import (
    ConfigurationError,
    ConvergenceWarning,
    DataWarning,
    UnstableClustersWarning,
)
from mscam_dask.estimators._describe import ClusterSpaceMixin
from mscam_dask.estimators._inputs import validate_labels
from mscam_dask.estimators._resources import (
    CallbackSupportMixin,
    FitCallbacks,
    SharedResourcesMixin,
    connected,
    executor_for,
    map_views,
    validate_callbacks,
    with_callbacks,
    with_dashboard,
)
from mscam_dask.estimators._search_space import SearchSpaceMixin
from mscam_dask.solvers.row_blocks import row_blocks
from mscam_dask.types.parameters import Parameters, ViewSettings
from mscam_dask.types.result import Solution, Status, Structure

if TYPE_CHECKING:
    import xarray
    from distributed import Client
    from scipy.sparse import csr_array

__all__ = [
    "BaseMultiViewClustering",
    "row_fingerprints",
    "warn_duplicate_samples",
    "warn_excluded_views",
    "warn_no_structure",
    "warn_split_duplicates",
    "warn_unconverged_spectra",
]


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
    n_connected_components_: int
    status_: Status
    n_iter_: int
    n_neighbors_: int
    cross_view_information_: float
    view_names_: tuple[str, ...]
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

    # where workers write the graphs and embeddings of large data; set by a run before `fit`
    _results_directory: Path | None = None

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
            Views were excluded or share few samples; the data show no clusters, `structure_` is NONE;
            equal samples are in different clusters.
        UnstableClustersWarning
            Borders separate some of the clusters only: `structure_` is PARTLY.
        """
        validate_callbacks(self.callbacks, self.checkpoint_store)
        with connected(self.client) as client:
            data, of_table = self._views_to_fit(X)
            stored_methods = impute_methods_of(data)
            imputed = impute_views(data, impute_methods(self.impute, data.view_names))
            data = imputed.data
            candidates = self._candidates(data)
            first = candidates[0]
            executor = executor_for(client, self.n_jobs, watched=True)
            report = validate(
                data,
                n_clusters=first.n_clusters,
                n_neighbors=first.n_neighbors,
                digest=True,
                over=lambda look, views: map_views(look, views, executor, stage="validate"),
            )
            warn_few_shared_samples(report.issues, stacklevel=3)
            init_labels = self._validated_init_labels(data, candidates)
            observers = self._observers(data, first.n_clusters, client, executor)
            for parameters in candidates:
                check_memory(data, parameters, executor, view_graphs=self.chooses_graph)
            solution = run_fit(
                data,
                candidates,
                executor,
                choices=self._choices(data),
                observers=observers,
                checkpoint_store=self.checkpoint_store,
                init_labels=init_labels,
                results_directory=self._results_directory,
            )
            warn_unconverged_spectra(solution, stacklevel=3)
            if self.exclude_views is None:
                warn_excluded_views(solution, stacklevel=3)
            self._keep_fit(solution, data)
            self.data_warnings_ = tuple(report.issues)
            self.imputed_shares_ = imputed.shares
            stored = [view for view in data.views if view.name in stored_methods]
            self._imputers = {
                **{view.name: LazyImputer(view, stored_methods[view.name]) for view in stored},
                **imputed.imputers,
            }
            self._training_digests = report.digests
            self._keep(of_table)
            if not warn_duplicate_samples(report.issues, self.n_clusters_, stacklevel=3):
                self._warn_split_duplicates(executor, stacklevel=4)
            warn_no_structure(solution, stacklevel=3)
        return self

    def _keep_fit(self, solution: Solution, data: MultiViewData) -> None:
        """Set the attributes of a fit of `data`."""
        self.solution_ = solution
        self.labels_ = solution.labels
        self.n_clusters_ = solution.parameters.n_clusters
        self.n_connected_components_ = solution.n_connected_components
        self.status_ = solution.status
        self.n_iter_ = len(solution.history)
        self.n_neighbors_ = solution.n_neighbors
        self.cross_view_information_ = solution.score
        self.view_names_ = data.view_names
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

    def _warn_split_duplicates(self, executor: Executor, *, stacklevel: int) -> None:
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

    @property
    def consensus_graph_(self) -> csr_array[np.float64]:
        """Consensus graph (n_samples, n_samples); large ones of a run are read when they are used."""
        check_is_fitted(self)
        return self.solution_.consensus_graph

    @property
    def learned_graph_(self) -> csr_array[np.float64]:
        """Last graph of the outer iterations, as `consensus_graph_`."""
        check_is_fitted(self)
        return self.solution_.learned_graph

    @property
    def view_embeddings_(self) -> dict[str, NDArray[np.float64]]:
        """Embedding of each view, (n_samples, n_clusters), as `consensus_graph_`."""
        check_is_fitted(self)
        return self.solution_.view_embeddings

    @property
    def n_clusters_curves_(self) -> xarray.Dataset | None:
        """Largest p-value of the borders over the numbers of clusters; None if the number was given."""
        check_is_fitted(self)
        selection = self.solution_.n_clusters_selection
        return None if selection is None else count_dataset(selection)

    @property
    def history_(self) -> xarray.Dataset:
        """Quantities of the fit over (outer_iteration, view)."""
        check_is_fitted(self)
        return history_dataset(self.solution_.history, self.view_names_)

    def _validated_init_labels(
        self, data: MultiViewData, candidates: tuple[Parameters, ...]
    ) -> NDArray[np.int64] | None:
        """Validated initial labels, or None."""
        if self.init_labels is None:
            return None
        labels = validate_labels(self.init_labels, data.n_samples, candidates[0].n_clusters)
        if len(candidates) > 1 or self._options(data):
            raise ConfigurationError(
                "init_labels requires fixed settings, but scale, alpha or n_neighbors is None. Set "
                "all three to those of the earlier fit (solution_.parameters)."
            )
        return labels

    def _observers(
        self, data: MultiViewData, n_clusters: int, client: Client | None, executor: Executor
    ) -> tuple[Observer, ...]:
        """Callbacks, including that of the dashboard of a client."""
        observers = () if self.callbacks is None else tuple(self.callbacks)
        if FitCallbacks.are_set(self):
            observers = (*observers, FitCallbacks(self))
        if client is None:
            return observers
        return with_dashboard(
            observers,
            client,
            executor,
            name=f"{type(self).__name__}, {data.n_samples} samples",
            data=data,
            n_clusters=n_clusters,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.impute is not None
        return tags


_SHOWN = 5


def warn_unconverged_spectra(solution: Solution, *, stacklevel: int) -> None:
    """Warn when clusters were cut from eigenvectors that did not converge."""
    rough = [record.iteration for record in solution.history if not record.spectrum_converged]
    if rough:
        warnings.warn(
            f"The eigenvectors of the graph did not reach their tolerance in {len(rough)} of "
            f"{len(solution.history)} outer iterations (first: {rough[0]}), so the clusters may depend "
            "on random_state. Fit with another random_state and compare; if the clusters differ, raise "
            "n_neighbors or lower n_clusters.",
            ConvergenceWarning,
            stacklevel=stacklevel + 1,
        )


def warn_excluded_views(solution: Solution, *, stacklevel: int) -> None:
    """Warn when views were excluded because their neighbors overlap with those of no other view."""
    if solution.exclude_views:
        warnings.warn(
            f"View(s) {list(solution.exclude_views)} were excluded: their nearest neighbors overlap "
            "with those of the other views no more than by chance, as with noise or rows in another "
            "order, and the partition scores higher without them. Correct or drop these views, or keep "
            "them with exclude_views=[].",
            DataWarning,
            stacklevel=stacklevel + 1,
        )


def warn_few_shared_samples(issues: Iterable[DataIssue], *, stacklevel: int) -> None:
    """Warn when few samples link the views."""
    for issue in issues:
        if issue.kind == "few shared samples":
            warnings.warn(issue.message, DataWarning, stacklevel=stacklevel + 1)


def warn_duplicate_samples(
    issues: Iterable[DataIssue], n_clusters: int, *, stacklevel: int
) -> bool:
    """Warn when there are more clusters than distinct samples, and return whether there are."""
    for issue in issues:
        n_distinct = issue.total - issue.count
        if issue.kind == "repeated samples" and n_clusters > n_distinct:
            warnings.warn(
                f"{n_clusters} clusters: {issue.message}",
                ConvergenceWarning,
                stacklevel=stacklevel + 1,
            )
            return True
    return False


def warn_no_structure(solution: Solution, *, stacklevel: int) -> None:
    """Warn when the data do not support the clusters, or support some of them only."""
    assessment = solution.assessment
    if assessment.structure in (Structure.CLEAR, Structure.TRIVIAL):
        return
    found = f"{assessment.message[:1].upper()}{assessment.message[1:]}."
    if assessment.structure is Structure.PARTLY:
        warnings.warn(
            f"{found} Compare with fewer clusters; cluster_tree_ says which to merge.",
            UnstableClustersWarning,
            stacklevel=stacklevel + 1,
        )
    else:
        warnings.warn(
            f"{found} Check that row i is the same sample in every view, and treat the data as having no "
            "clusters, or other numbers of them.",
            DataWarning,
            stacklevel=stacklevel + 1,
        )


# Odd, so that groups stay apart when they are added to fingerprints modulo 2**64.
_ODD = np.uint64(0x9E3779B97F4A7C15)


def warn_split_duplicates(
    views: Sequence[RowSource],
    labels: NDArray[np.int64],
    fingerprints_of: Callable[[RowSource], NDArray[np.uint64]],
    *,
    stacklevel: int,
) -> None:
    """Warn when samples that are equal in all views are in different clusters.

    Views are read from the narrowest to the widest, until no such samples are left.
    """
    split: NDArray[np.int64] | None = None  # at first all samples, without an array of them
    groups = np.zeros(0, dtype=np.uint64)
    for view in sorted(views, key=lambda one: one.shape[1]):
        fingerprints, present = fingerprints_of(view), present_samples(view)
        if present is not None:  # absent samples are alike in the view
            fingerprints = present.spread(fingerprints, 0)
        keys = fingerprints if split is None else groups * _ODD + fingerprints[split]
        repeated = _repeated(keys)
        if not repeated.size:
            return
        positions = np.searchsorted(repeated, keys)
        equal = np.flatnonzero(repeated[np.minimum(positions, repeated.size - 1)] == keys)
        split, positions = equal if split is None else split[equal], positions[equal]
        lowest = np.full(repeated.size, np.iinfo(np.int64).max)
        highest = np.full(repeated.size, -1)
        np.minimum.at(lowest, positions, labels[split])
        np.maximum.at(highest, positions, labels[split])
        differ = (lowest != highest)[positions]
        split, groups = split[differ], positions[differ].astype(np.uint64)
        if not split.size:
            return
    assert split is not None, "data have views"
    warnings.warn(
        f"{split.size} samples are in another cluster than a sample that equals them in every view "
        f"(first rows: {split[:_SHOWN].tolist()}). Drop the duplicates, or lower n_clusters: no "
        "feature separates equal samples.",
        DataWarning,
        stacklevel=stacklevel + 1,
    )


def _repeated(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Keys that occur twice or more, ascending; a sixteenth of all keys is sorted at a time."""
    found = []
    for part in range(16):
        low, high = np.uint64(part << 60), np.uint64(((part + 1) << 60) - 1)
        ordered = np.sort(keys[(keys >= low) & (keys <= high)])
        found.append(np.unique(ordered[1:][ordered[1:] == ordered[:-1]]))
    return np.concatenate(found)


def row_fingerprints(view: RowSource) -> NDArray[np.uint64]:
    """Fingerprint (n,) of each row: equal for equal rows, and for others only by rare collisions.

    It is computed from the bits of the values, so values of any magnitude are distinguished.
    """
    rng = np.random.default_rng(0)
    weights = rng.integers(2**63, size=view.shape[1], dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    numbers = []
    for start, stop in row_blocks(*view.shape):
        values = np.ascontiguousarray(view.read(start, stop), dtype=np.float64) + 0.0  # no -0.0
        bits = values.view(np.uint64)
        mixed = (bits ^ (bits >> np.uint64(32))) * _ODD
        mixed ^= mixed >> np.uint64(29)
        numbers.append((mixed * weights).sum(axis=1, dtype=np.uint64))
    return np.concatenate(numbers)
