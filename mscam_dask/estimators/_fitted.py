"""Fitted attributes of an estimator, prediction of clusters and memberships by neighbors, and warnings of a fit."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from mscam_dask.data.results import count_dataset, history_dataset
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import RowSource, view_digest
from mscam_dask.data.views.validation import DataIssue
from mscam_dask.engine.views import encoded_rows
from mscam_dask.errors import ConvergenceWarning, DataError, DataWarning, UnstableClustersWarning
from mscam_dask.estimators._inputs import OF_TABLE, views_to_predict
from mscam_dask.estimators._resources import executor_for
from mscam_dask.linalg.distances import squared_distances
from mscam_dask.linalg.incomplete import SharedDistances
from mscam_dask.solvers.predict import (
    CrossFit,
    fit_folds,
    fit_votes,
    folds_of,
    n_voting_neighbors,
    predict_by_neighbors,
)
from mscam_dask.solvers.ridge_view import Encoder
from mscam_dask.solvers.row_blocks import row_blocks
from mscam_dask.solvers.spectral_cut import sampled_rows
from mscam_dask.types.parameters import ViewSettings
from mscam_dask.types.result import BatchShares, Solution, Status, Structure
from mscam_dask.types.rules import SIZES

if TYPE_CHECKING:
    import xarray
    from distributed import Client
    from scipy.sparse import csr_array

    from mscam_dask.estimators._sample_values import FittedBatches
    from mscam_dask.estimators.mscam import MSCAM


_Value = TypeVar("_Value")


def _fitted(function: Callable[[Any], _Value]) -> _Value:
    """Read-only attribute of a fitted estimator, for the type checker its value."""

    def read(estimator: Any) -> _Value:
        check_is_fitted(estimator)
        return function(estimator)

    return cast("_Value", property(read))


class FittedMixin:
    """Mixin with the attributes of a fit (docstring of `MSCAM`) and prediction by neighbors."""

    client: Client | None
    n_jobs: int | None
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

    # prediction -----------------------------------------------------------------------------------

    def predict(self, X: Any, *, batches: ArrayLike | str | None = None) -> NDArray[np.int64]:
        """Assign new samples to the cluster of their adaptive neighbors among the training samples.

        Parameters
        ----------
        X : as for `fit`
            The same views of other samples; excluded views are not read and may be missing. So may
            others: views that a mapping does not have, or that are None in a sequence, and rows
            that are all NaN. Every sample needs one view at least.
            A distance or kernel view holds the distances or kernel values of the new samples to
            the training samples, (n_new, n_samples). Columns of frames and DataArrays have the
            names of the fit, in its order; where only one of the two has names, a `UserWarning`
            says that columns go by their order.
        batches : (n_new,) array or str, optional
            Batch of each new sample, needed if the fit had batches. The effects of a batch that the fit did
            not have are estimated from its new samples, if there are ten or more.

        Returns
        -------
        labels : (n_new,) int64
            Clusters, numbered as `labels_`.

        Raises
        ------
        DataError
            The views are not those of the fit, their features have other names, or their values
            are not finite, negative distances or too far away; or a training array was changed
            since the fit. The message names the view.

        Notes
        -----
        Training samples given to `predict` may get another cluster than in `labels_`: the fit
        partitions the graph as a whole, `predict` looks at one sample's neighbors, of which the
        sample itself, at distance 0, is one. Equal samples always get the same cluster here.

        The training samples are not copied: the arrays given to `fit` are kept, read again and
        compared with their digests.
        """
        new = self._new_samples(X, batches)
        own = self._encoded(new)(0, new.n_samples)
        between, unit = squared_distances, np.sqrt(len(own))  # views count the same
        if self._training.is_incomplete or any(np.isnan(part).any() for part in own):
            between, unit = SharedDistances(tuple(part.shape[1] for part in own)), 1.0
        blocks = ((start, np.hstack(parts) / unit) for start, parts in self._training_blocks())
        return predict_by_neighbors(
            np.hstack(own) / unit,
            blocks,
            self.labels_,
            n_neighbors=self.n_neighbors_,
            distances_between=between,
        )

    def predict_proba(
        self, X: Any, *, batches: ArrayLike | str | None = None
    ) -> NDArray[np.float64]:
        """Estimate memberships of new samples in the clusters.

        Parameters
        ----------
        X, batches : as for `predict`

        Returns
        -------
        membership : (n_new, n_clusters) float64
            As `membership_`; rows sum to one. The largest entry may belong to another cluster than
            `predict` says, which weighs fewer neighbors by their distances.

        Raises
        ------
        DataError
            As `predict`.
        """
        new = self._new_samples(X, batches)
        samples, fitting = self._fitting()
        views = self._training_coordinates(samples)
        model = fit_votes(views, **fitting)
        folds = folds_of(len(self.labels_))[samples]
        calibration = fit_folds(views, folds=folds, **fitting).calibration
        parts = []
        for start, stop in row_blocks(new.n_samples, sum(view.shape[1] for view in views)):
            rows = self._encoded(new)(start, stop)
            parts.append(calibration(model(rows)[0], rows))
        return np.concatenate(parts)

    @property
    def membership_(self) -> NDArray[np.float64]:
        """Memberships (n_samples, n_clusters) of the training samples."""
        return self._votes()[0]

    @property
    def view_votes_(self) -> dict[str, NDArray[np.int64]]:
        """Cluster (n_samples,) that the neighbors of each sample in each view prefer, by view; −1 for absent samples."""
        votes = self._votes()[1]
        names = self.cluster_names_
        return {
            view: np.where(column < 0, -1, names[column])
            for view, column in zip(self.solution_.encoders, votes.T, strict=True)
        }

    @property
    def confidence_(self) -> NDArray[np.float64]:
        """Membership (n_samples,) of each training sample in its cluster of `labels_`."""
        membership = self.membership_
        own = np.searchsorted(self.cluster_names_, self.labels_)
        return np.take_along_axis(membership, own[:, None], axis=1)[:, 0]

    def _new_samples(self, X: Any, batches: Any) -> MultiViewData:
        """Validated views of new samples, without the effects of their batches."""
        check_is_fitted(self)
        new = views_to_predict(cast("MSCAM", self), X)
        if self._batches is not None:
            return self._batches.correct_new(X, new, batches)
        if batches is not None:
            raise DataError(
                "batches were given, but the fit had none. Fit with batches, or leave them out."
            )
        return new

    def _votes(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Memberships, and the preferred cluster by view as its position in `cluster_names_`."""
        check_is_fitted(self)
        if self._membership is None:
            self._membership = self._cross_fitted()
        return self._membership

    def _cross_fitted(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Memberships and votes of the training samples, each by the voters of the other folds; a large store is read by tasks."""
        folds, (samples, fitting) = folds_of(len(self.labels_)), self._fitting()
        fit: _Fit = functools.partial(fit_folds, folds=folds[samples], **fitting)
        if len(samples) == len(folds):
            views = self._training_coordinates(samples)
            return fit(views)(views, folds)
        rows = self._training_rows()
        self._check_unchanged(rows.data.views)
        in_tasks = all(view.recorded_digest for view in rows.data.views)
        is_open = self.client is not None and self.client.status == "running"
        client = self.client if in_tasks and is_open else None
        ranges = list(row_blocks(len(folds), rows.width))
        with executor_for(client, self.n_jobs if in_tasks else 1) as executor:
            shared = executor.submit(dataclasses.replace, rows, key="encoders/membership")
            drawn = [
                executor.submit(_sampled, shared, start, stop, own, key=f"voters/{start}")
                for start, stop in ranges
                if (own := samples[slice(*np.searchsorted(samples, (start, stop)))] - start).size
            ]
            model = executor.submit(_fit_of_drawn, drawn, fit, key="fit_votes")
            del drawn
            parts = [
                executor.submit(
                    _votes_of_rows,
                    *(shared, model, folds[start:stop], start, stop),
                    key=f"votes/{start}",
                )
                for start, stop in ranges
            ]
            del shared, model
            membership, preferred = zip(*executor.gather(parts), strict=True)
        return np.concatenate(membership), np.concatenate(preferred)

    def _fitting(self) -> tuple[NDArray[np.int64], dict[str, Any]]:
        """Training samples that vote, and the arguments of `fit_votes` but for their coordinates."""
        samples = sampled_rows(len(self.labels_), SIZES.exact_samples)
        return samples, {
            "labels": np.searchsorted(self.cluster_names_, self.labels_[samples]),
            "n_clusters": self.n_clusters_,
            "n_neighbors": n_voting_neighbors(len(samples), self.n_clusters_),
        }

    def _training_coordinates(self, samples: NDArray[np.int64]) -> list[NDArray[np.float64]]:
        """Ridge coordinates by view of some training samples, ascending."""
        parts: list[list[NDArray[np.float64]]] = []
        for start, views in self._training_blocks():
            stop = start + len(views[0])
            first, last = np.searchsorted(samples, (start, stop))
            parts.append([view[samples[first:last] - start] for view in views])
        return [np.concatenate(blocks) for blocks in zip(*parts, strict=True)]

    def _training_blocks(self) -> Iterator[tuple[int, list[NDArray[np.float64]]]]:
        """Start and ridge coordinates by view of each row block of the training samples."""
        rows, loaded = self._training_rows(), self._coordinates_loaded
        if loaded is None:
            self._check_unchanged(rows.data.views)
        for start, stop in row_blocks(rows.data.n_samples, rows.width):
            yield start, rows(start, stop) if loaded is None else [v[start:stop] for v in loaded]

    def _check_unchanged(self, views: Iterable[RowSource]) -> None:
        """Raise if an array of the fit was changed since; a store verifies its own checksums."""
        for view in views:
            known = None if view.recorded_digest else self._training_digests.get(view.name)
            if known is not None and view_digest(view) != known:
                raise DataError(
                    f"View {view.name!r}: the array given to fit has changed since, but it is read again. Fit again "
                    "with a copy of the array or the path of a store."
                )

    def _encoded(self, data: MultiViewData) -> EncodedRows:
        return EncodedRows(data, self.solution_.encoders)

    def _training_rows(self) -> EncodedRows:
        """Views of the fit that vote, without ids and labels."""
        views = [view for view in self._training.views if view.name in self.solution_.encoders]
        return self._encoded(MultiViewData(tuple(views)))


@dataclasses.dataclass(frozen=True)
class EncodedRows:
    """Ridge coordinates of samples by view; views without an encoder are not read."""

    data: MultiViewData
    encoders: Mapping[str, Encoder]

    @property
    def width(self) -> int:
        """Columns of all views, by which rows are read in blocks."""
        return sum(view.shape[1] for view in self.data.views)

    def __call__(self, start: int, stop: int) -> list[NDArray[np.float64]]:
        """Coordinates (stop − start, r) in each view, NaN for absent samples."""
        sources = {source.name: source for source in self.data.views}
        parts = []
        for name, encoder in self.encoders.items():
            part = np.full((stop - start, encoder.loadings.shape[1]), np.nan)
            parts.append(part)
            source = sources.get(name)
            if source is None:
                continue
            present = source.present
            samples = np.arange(self.data.n_samples) if present is None else present.samples
            first, last = np.searchsorted(samples, (start, stop))
            rows, own = source.read(int(first), int(last)), samples[first:last]
            part[own - start] = encoded_rows(encoder, rows, own, name)
        return parts


_Fit = Callable[[Sequence[NDArray[np.float64]]], CrossFit]
_Votes = tuple[NDArray[np.float64], NDArray[np.int64]]


def _sampled(
    rows: EncodedRows, start: int, stop: int, own: NDArray[np.int64]
) -> list[NDArray[np.float64]]:
    return [part[own] for part in rows(start, stop)]


def _fit_of_drawn(drawn: list[list[NDArray[np.float64]]], fit: _Fit) -> CrossFit:
    return fit([np.concatenate(parts) for parts in zip(*drawn, strict=True)])


def _votes_of_rows(
    rows: EncodedRows,
    model: CrossFit,
    folds: NDArray[np.int64],
    start: int,
    stop: int,
) -> _Votes:
    return model(rows(start, stop), folds)


# warnings ----------------------------------------------------------------------------------------


# Kinds of data warnings that are told before a fit, which takes time.
TOLD_BEFORE = ("few shared samples", "label columns", "missing codes", "presence table")


def warn_of(found: Iterable[tuple[str, type[Warning]]]) -> None:
    """Warn the caller of `fit`."""
    for message, kind in found:
        warnings.warn(message, kind, stacklevel=3)


def doubts(
    solution: Solution, issues: Iterable[DataIssue], *, views_selected: bool
) -> Iterator[tuple[str, type[Warning]]]:
    """Messages and kinds of warnings of a fit whose clusters may depend on chance, or that the data do not support."""
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
        if issue.kind == "repeated samples" and n_clusters > len(solution.labels) - issue.count:
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
