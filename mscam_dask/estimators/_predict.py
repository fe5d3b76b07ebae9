"""Prediction of clusters and memberships by neighbors, for new and for training samples."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import RowSource, view_digest
from mscam_dask.engine.executors.base import Executor
from mscam_dask.errors import DataError
from mscam_dask.estimators._fitted import FittedAttributes
from mscam_dask.estimators._inputs import views_to_predict
from mscam_dask.estimators._resources import connected, executor_for, is_connected
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
from mscam_dask.types.rules import SIZES

if TYPE_CHECKING:
    from distributed import Client
    from distributed.deploy.cluster import Cluster

    from mscam_dask.estimators.mscam import MSCAM

# Largest coordinate of a new sample, in units of the spread of the training samples: squares are finite.
_FARTHEST = 1e150


class NeighborPredictMixin(FittedAttributes):
    """Mixin for estimators that assigns samples by their neighbors in the ridge embedding."""

    client: Client | Cluster | None
    n_jobs: int | None

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
            parts.append(calibration(model(rows), rows))
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
            for view, column in zip(self._voting_views(), votes.T, strict=True)
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

    def _voting_views(self) -> list[str]:
        return [view.name for view in self._training.views if view.name in self.solution_.encoders]

    def _cross_fitted(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Memberships and votes of the training samples, each by the voters of the other folds; a large store is read by tasks."""
        folds, (samples, fitting) = folds_of(len(self.labels_)), self._fitting()
        fit: _Fit = functools.partial(fit_folds, folds=folds[samples], **fitting)
        if len(samples) == len(folds):
            views = self._training_coordinates(samples)
            return fit(views)(views, folds)
        train = self._training_views()
        self._check_unchanged(train.views)
        in_tasks = all(view.recorded_digest for view in train.views)
        client = self.client if in_tasks and is_connected(self.client) else None
        with connected(client) as opened:
            executor = executor_for(opened, self.n_jobs if in_tasks else 1)
            return _votes_by_tasks(self._encoded(train), samples, fit, folds, executor)

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
        train = self._training_views()
        loaded = self._coordinates_loaded
        if loaded is None:
            self._check_unchanged(train.views)
        rows = self._encoded(train)
        for start, stop in row_blocks(train.n_samples, rows.width):
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
        encoders = {name: self.solution_.encoders[name] for name in self._voting_views()}
        return EncodedRows(data, cast("dict[str, Encoder]", encoders))

    def _training_views(self) -> MultiViewData:
        """Views of the fit that vote, without ids and labels."""
        names = self._voting_views()
        return MultiViewData(tuple(view for view in self._training.views if view.name in names))


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
            with np.errstate(over="ignore", invalid="ignore"):
                encoded = encoder(source.read(int(first), int(last)))
            part[samples[first:last] - start] = encoded
            far = samples[first + np.flatnonzero(~(np.abs(encoded) < _FARTHEST).all(axis=1))]
            if far.size:
                raise DataError(
                    f"View {name!r}: {far.size} new sample(s) cannot be scaled like the training samples, or are "
                    f"farther from them than {_FARTHEST:g} times their spread (first rows: {far[:5].tolist()}). Check "
                    "their units."
                )
        return parts


_Votes = tuple[NDArray[np.float64], NDArray[np.int64]]
_Fit = Callable[[Sequence[NDArray[np.float64]]], CrossFit]


def _votes_by_tasks(
    rows: EncodedRows,
    samples: NDArray[np.int64],
    fit: _Fit,
    folds: NDArray[np.int64],
    executor: Executor,
) -> _Votes:
    """Memberships and votes of training samples, a task for each block of rows."""
    ranges = list(row_blocks(len(folds), rows.width))
    with executor:
        shared = executor.submit(dataclasses.replace, rows, key="encoders/membership")
        drawn = [
            executor.submit(_sampled, shared, start, stop, own, key=f"voters/{start}")
            for start, stop in ranges
            if (own := samples[slice(*np.searchsorted(samples, (start, stop)))] - start).size
        ]
        model = executor.submit(_fitted, drawn, fit, key="fit_votes")
        del drawn
        parts = [
            executor.submit(
                _votes_of_rows, shared, model, folds[start:stop], start, stop, key=f"votes/{start}"
            )
            for start, stop in ranges
        ]
        del shared, model
        membership, preferred = zip(*executor.gather(parts), strict=True)
    return np.concatenate(membership), np.concatenate(preferred)


def _sampled(
    rows: EncodedRows, start: int, stop: int, own: NDArray[np.int64]
) -> list[NDArray[np.float64]]:
    return [part[own] for part in rows(start, stop)]


def _fitted(drawn: list[list[NDArray[np.float64]]], fit: _Fit) -> CrossFit:
    return fit([np.concatenate(parts) for parts in zip(*drawn, strict=True)])


def _votes_of_rows(
    rows: EncodedRows,
    model: CrossFit,
    folds: NDArray[np.int64],
    start: int,
    stop: int,
) -> _Votes:
    return model(rows(start, stop), folds)
