"""Fitted attributes of an estimator, and the warnings of a fit about its data and its result."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from mscam_dask.data.results import count_dataset, history_dataset
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.validation import DataIssue
from mscam_dask.errors import ConvergenceWarning, DataWarning, UnstableClustersWarning
from mscam_dask.estimators._inputs import OF_TABLE
from mscam_dask.types.parameters import ViewSettings
from mscam_dask.types.result import BatchShares, Solution, Status, Structure

if TYPE_CHECKING:
    import xarray
    from scipy.sparse import csr_array

    from mscam_dask.estimators._inputs import FittedBatches


_Value = TypeVar("_Value")


def _fitted(function: Callable[[Any], _Value]) -> _Value:
    """Read-only attribute of a fitted estimator, for the type checker its value."""

    def read(estimator: Any) -> _Value:
        check_is_fitted(estimator)
        return function(estimator)

    return cast("_Value", property(read))


class FittedAttributes:
    """Mixin for estimators with the attributes of a fit; those for users are in the docstring of `MSCAM`."""

    solution_: Solution
    data_warnings_: tuple[DataIssue, ...]
    imputed_shares_: dict[str, NDArray[np.float64]]
    _training: MultiViewData  # without batch effects
    _training_digests: Mapping[str, str]  # by view; empty for a run that was loaded
    _imputers: Mapping[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]]
    _batches: FittedBatches | None
    # Memberships and the preferred cluster by view, when they were computed.
    _membership: tuple[NDArray[np.float64], NDArray[np.int64]] | None
    # Ridge coordinates of the training samples by view, of an estimator that was loaded with them.
    _coordinates_loaded: Sequence[NDArray[np.float64]] | None

    def _keep_fit(
        self,
        solution: Solution,
        training: MultiViewData,
        *,
        batches: FittedBatches | None = None,
        membership: tuple[NDArray[np.float64], NDArray[np.int64]] | None = None,
        coordinates: Sequence[NDArray[np.float64]] | None = None,
        of_table: Mapping[str, Any] | None = None,
    ) -> None:
        """Replace the attributes of an earlier fit."""
        for name in OF_TABLE:
            vars(self).pop(name, None)
        vars(self).update(of_table or {})
        self.solution_ = solution
        self.data_warnings_, self.imputed_shares_ = (), {}
        self._training, self._training_digests, self._imputers = training, {}, {}
        self._batches, self._membership, self._coordinates_loaded = batches, membership, coordinates

    labels_: NDArray[np.int64] = _fitted(attrgetter("solution_.labels"))
    n_clusters_: int = _fitted(attrgetter("solution_.parameters.n_clusters"))
    n_connected_components_: int = _fitted(attrgetter("solution_.n_connected_components"))
    status_: Status = _fitted(attrgetter("solution_.status"))
    n_neighbors_: int = _fitted(attrgetter("solution_.n_neighbors"))
    cross_view_information_: float = _fitted(attrgetter("solution_.score"))
    consensus_graph_: csr_array[np.float64] = _fitted(attrgetter("solution_.consensus_graph"))
    learned_graph_: csr_array[np.float64] = _fitted(attrgetter("solution_.learned_graph"))
    view_names_: tuple[str, ...] = _fitted(attrgetter("_training.view_names"))
    view_presence_: NDArray[np.bool_] = _fitted(attrgetter("_training.presence"))
    sample_ids_: tuple[str, ...] | None = _fitted(attrgetter("_training.sample_ids"))
    excluded_views_: tuple[str, ...] = _fitted(attrgetter("solution_.exclude_views"))
    view_embeddings_: dict[str, NDArray[np.float64]] = _fitted(
        attrgetter("solution_.view_embeddings")
    )
    view_contributions_: dict[str, float] = _fitted(attrgetter("solution_.view_contributions"))
    standing_clusters_: tuple[int, ...] = _fitted(
        attrgetter("solution_.assessment.standing_clusters")
    )
    structure_: Structure = _fitted(attrgetter("solution_.assessment.structure"))
    cluster_tree_: NDArray[np.float64] = _fitted(attrgetter("solution_.assessment.cluster_tree"))

    @_fitted
    def n_iter_(self) -> int:
        return len(self.solution_.history)

    @_fitted
    def view_settings_(self) -> dict[str, ViewSettings]:
        settings_of = self.solution_.parameters.settings_of_view
        return {name: settings_of(index) for index, name in enumerate(self.view_names_)}

    @_fitted
    def history_(self) -> xarray.Dataset:
        return history_dataset(self.solution_.history, self.view_names_)

    @_fitted
    def n_clusters_curves_(self) -> xarray.Dataset | None:
        selection = self.solution_.n_clusters_selection
        return None if selection is None else count_dataset(selection)

    @_fitted
    def batch_shares_(self) -> dict[str, BatchShares]:
        return {} if self._batches is None else dict(self._batches.effects.shares)

    @_fitted
    def neighbor_overlap_(self) -> dict[str, float]:
        return {one.view: one.overlap for one in self.solution_.selected_view_settings}

    @_fitted
    def cluster_borders_(self) -> NDArray[np.float64]:
        borders = self.solution_.assessment.borders
        return np.zeros((0, 0)) if borders is None else borders.p_values

    @_fitted
    def cluster_agreement_(self) -> dict[str, NDArray[np.float64]]:
        assessment = self.solution_.assessment
        return dict(zip(assessment.view_names, assessment.cluster_agreement, strict=True))

    @_fitted
    def contradictions_(self) -> dict[str, dict[int, int]]:
        assessment = self.solution_.assessment
        names = assessment.cluster_names
        return {
            view: {names[k]: names[other] for k, other in enumerate(row) if other >= 0}
            for view, row in zip(assessment.view_names, assessment.contradictions, strict=True)
        }

    @_fitted
    def view_agreement_(self) -> dict[str, dict[str, float]]:
        assessment = self.solution_.assessment
        return {
            name: dict(zip(assessment.view_names, map(float, row), strict=True))
            for name, row in zip(assessment.view_names, assessment.view_agreement, strict=True)
        }

    @_fitted
    def cluster_names_(self) -> NDArray[np.int64]:
        has_gaps = int(self.labels_.max()) >= self.n_clusters_
        return np.unique(self.labels_) if has_gaps else np.arange(self.n_clusters_)


# warnings ----------------------------------------------------------------------------------------


# The caller of `fit`.
_STACK_LEVEL = 3


def warn_of_data(issues: Iterable[DataIssue]) -> None:
    """Warn before a fit when few samples link the views, and of features that may be labels."""
    for issue in issues:
        if issue.kind in ("few shared samples", "label columns"):
            warnings.warn(issue.message, DataWarning, stacklevel=_STACK_LEVEL)


def warn_of_result(
    solution: Solution, issues: Iterable[DataIssue], *, views_selected: bool
) -> None:
    """Warn after a fit whose clusters may depend on chance, or that the data do not support."""
    for message, kind in _found(solution, issues, views_selected=views_selected):
        warnings.warn(message, kind, stacklevel=_STACK_LEVEL)


def _found(
    solution: Solution, issues: Iterable[DataIssue], *, views_selected: bool
) -> Iterator[tuple[str, type[Warning]]]:
    rough = [record.iteration for record in solution.history if not record.spectrum_converged]
    if rough:
        message = (
            f"The eigenvectors of the graph did not reach their tolerance in {len(rough)} of "
            f"{len(solution.history)} outer iterations (first: {rough[0]}), so the clusters may depend "
            "on random_state. Fit with another random_state and compare; if the clusters differ, raise "
            "n_neighbors or lower n_clusters."
        )
        yield message, ConvergenceWarning
    n_clusters = solution.parameters.n_clusters
    for issue in issues:
        if issue.kind == "repeated samples" and n_clusters > issue.total - issue.count:
            yield f"{n_clusters} clusters: {issue.message}", ConvergenceWarning
    if views_selected and solution.exclude_views:
        message = (
            f"View(s) {list(solution.exclude_views)} were excluded: their nearest neighbors overlap "
            "with those of the other views no more than by chance, as with noise or rows in another "
            "order, and the partition scores higher without them. Correct or drop these views, or keep "
            "them with exclude_views=[]."
        )
        yield message, DataWarning
    assessment = solution.assessment
    message = f"{assessment.message[:1].upper()}{assessment.message[1:]}."
    if assessment.structure is Structure.PARTLY:
        advice = "Compare with fewer clusters; cluster_tree_ says which to merge."
        if not assessment.batches_matched:
            advice = "Add a view without batch effects, or samples of the same clusters in several batches."
        yield f"{message} {advice}", UnstableClustersWarning
    elif assessment.structure is Structure.NONE:
        advice = (
            "Check that row i is the same sample in every view, and treat the data as having no "
            "clusters, or other numbers of them."
        )
        yield f"{message} {advice}", DataWarning
