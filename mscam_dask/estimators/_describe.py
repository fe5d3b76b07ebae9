"""Clusters of a fit: borders, features, distances of samples to them, and a score of predictions."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.rows import sampled_view
from mscam_dask.data.views.sources import RowSource
from mscam_dask.engine.scores import reference_graphs_of_view
from mscam_dask.errors import DataError
from mscam_dask.estimators._fitted import FittedMixin
from mscam_dask.estimators._resources import executor_for, map_views
from mscam_dask.estimators._sample_values import sample_values
from mscam_dask.linalg.distances import sums_by_group
from mscam_dask.solvers.partition_score import (
    explained_share,
    mean_score,
    view_modularity,
    view_scores,
)
from mscam_dask.solvers.predict import NeighborVotes, fit_votes
from mscam_dask.solvers.row_blocks import row_blocks
from mscam_dask.solvers.spectral_cut import sampled_rows
from mscam_dask.types.allowed import Count, check_value
from mscam_dask.types.rules import CONSTANTS, SIZES

if TYPE_CHECKING:
    import pandas as pd


_STATISTICS = ("mean", "mean_of_rest", "share", "share_of_rest", "effect")


class ClusterSpaceMixin(
    FittedMixin,
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]  # untyped, as the next
    TransformerMixin,  # type: ignore[misc]  # wraps only a `transform` that is defined below it
):
    """Mixin for estimators that describes the clusters of a fit, with `transform` and `score`."""

    def cluster_features(self, top: int = 20) -> pd.DataFrame:
        """List the features that set each cluster apart from all other samples.

        Parameters
        ----------
        top : int, default=20
            Number of features of each view and cluster, those with the largest absolute effect.

        Returns
        -------
        DataFrame
            A row for each feature, by view, cluster and decreasing absolute effect: ``view``, ``cluster``
            as in `labels_`, ``feature``, its name, or its position where the view has no names,
            ``column``, its position, ``mean`` in the cluster and ``mean_of_rest`` of all other
            samples, ``share`` and ``share_of_rest`` of values other than 0, and ``effect``, the
            difference of the means over the pooled standard deviation (Cohen's d). With
            batches the values are the corrected ones. Features without an effect are left out,
            views of distances and kernels have no features, and excluded views are not read.

        Raises
        ------
        ConfigurationError
            `top` is not a whole number ≥ 1.
        DataError
            A training array was changed since the fit.

        Notes
        -----
        Views are read by row blocks, those of a store by the workers of `client`.
        """
        import pandas as pd

        check_is_fitted(self)
        top = check_value("top", top, Count)
        views = [
            view
            for view in self._training.views
            if view.view_type == "features" and view.name not in self.excluded_views_
        ]
        names = self.cluster_names_
        labels = np.searchsorted(names, self.labels_)
        look = functools.partial(feature_effects, labels=labels, n_clusters=self.n_clusters_)
        self._check_unchanged(views)
        executor = executor_for(self.client, self.n_jobs)
        found = map_views(look, views, executor, stage="cluster_features")
        rows: list[dict[str, Any]] = []
        for view, effects in zip(views, found, strict=True):
            rows.extend(_strongest(view, effects, names, top))
        return pd.DataFrame(rows, columns=["view", "cluster", "feature", "column", *_STATISTICS])

    def cluster_batches(self, batches: ArrayLike) -> pd.DataFrame:
        """Count the samples of each batch in each cluster.

        Parameters
        ----------
        batches : (n_samples,) array or Series
            Batch of each training sample, or any other column, such as the site or day of a measurement; it
            need not have been given to `fit`.

        Returns
        -------
        counts : DataFrame (n_clusters, n_batches)
            The index has the clusters, the columns have the batches; samples without one are in a column NaN.

        Raises
        ------
        DataError
            The number of values is not that of the samples.
        """
        import pandas as pd

        check_is_fitted(self)
        values = sample_values(batches, "batches", None, self._training)
        counts = pd.crosstab(
            pd.Series(self.labels_, name="cluster"), pd.Series(values, name="batch"), dropna=False
        )
        return counts.reindex(self.cluster_names_, fill_value=0)

    def transform(self, X: Any, *, batches: ArrayLike | str | None = None) -> NDArray[np.float64]:
        """Return the distances of samples to the centers of the clusters.

        Parameters
        ----------
        X, batches : as for `predict`

        Returns
        -------
        distances : (n, n_clusters) float64
            Root mean square over the views of the Euclidean distances in the linear discriminants of
            each view, which separate the clusters; with one cluster, in the ridge embedding.
            Columns are in the order of `cluster_names_`. Incomplete views: over the views that have
            the sample and the cluster, NaN if there are none.

        Raises
        ------
        DataError
            As `predict`.
        """
        new = self._new_samples(X, batches)
        samples, fitting = self._fitting()
        views = self._training_coordinates(samples)
        model = fit_votes(views, **fitting)
        widths = [view.shape[1] for view in _in_discriminants(model, views)]
        sums, counts = np.zeros((2, self.n_clusters_, sum(widths)))
        positions = np.searchsorted(self.cluster_names_, self.labels_)
        for start, parts in self._training_blocks():
            points = np.hstack(_in_discriminants(model, parts))
            own = positions[start : start + len(points)]
            counts += sums_by_group(~np.isnan(points), own, self.n_clusters_)
            sums += sums_by_group(np.nan_to_num(points), own, self.n_clusters_)
        with np.errstate(invalid="ignore"):  # NaN in views that have no sample of a cluster
            centers = np.split(sums / counts, np.cumsum(widths)[:-1], axis=1)
        encoded = self._encoded(new)
        distances = [
            _mean_distances(_in_discriminants(model, encoded(start, stop)), centers)
            for start, stop in row_blocks(new.n_samples, encoded.width)
        ]
        return np.concatenate(distances)

    @property
    def _n_features_out(self) -> int:
        """Number of columns of `transform`, for `get_feature_names_out`."""
        return self.n_clusters_

    def score(self, X: Any, y: object = None, *, batches: ArrayLike | str | None = None) -> float:
        """Score the clusters that are predicted for samples, without labels.

        Parameters
        ----------
        X : as for `predict`
            Feature views.
        y : ignored
        batches : as for `predict`

        Returns
        -------
        float
            Adjusted modularity of the predicted clusters on the reference graphs of `X`: their
            modularity, as a mean over the views, times the share of their entropy that the
            neighbors in all views explain. It does not grow with the number of clusters; 0 if all
            samples are in one cluster.

        Raises
        ------
        ConfigurationError, DataError
            As `predict`; or `X` has fewer than three samples, or a distance or kernel view, which
            has no values between the new samples.

        Notes
        -----
        Of more than 4000 samples, a sample of that size is scored.
        """
        new = self._new_samples(X, batches)
        pairwise = [view.name for view in new.views if view.view_type != "features"]
        if pairwise:
            raise DataError(
                f"score takes feature views, but {pairwise} hold distances or kernel values to the "
                "training samples, not between new samples. Use cross_view_information_."
            )
        if new.n_samples < 3:
            raise DataError(
                f"score takes at least 3 samples, whose neighbors are compared; got {new.n_samples}."
            )
        labels = self.predict(X, batches=batches)
        return label_free_scores(new, labels)["adjusted_modularity"]


def feature_effects(
    view: RowSource, *, labels: NDArray[np.int64], n_clusters: int
) -> dict[str, NDArray[np.float64]]:
    """Statistics (c, d) of `cluster_features`, by cluster and column of a view; NaN without samples.

    J. Cohen, "Statistical Power Analysis for the Behavioral Sciences", 1988.
    """
    labels = labels if view.present is None else labels[view.present.samples]
    blocks = list(row_blocks(*view.shape))
    shift = view.read(*blocks[0]).mean(axis=0)
    sums, squares, n_nonzero = np.zeros((3, n_clusters, len(shift)))
    for start, stop in blocks:
        rows, own = view.read(start, stop), labels[start:stop]
        sums += sums_by_group(rows - shift, own, n_clusters)
        squares += sums_by_group((rows - shift) ** 2, own, n_clusters)
        n_nonzero += sums_by_group(rows != 0.0, own, n_clusters)
    sizes = np.bincount(labels, minlength=n_clusters).astype(np.float64)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        rest_sizes = sizes.sum() - sizes
        own_means, rest_means = sums / sizes, (sums.sum(axis=0) - sums) / rest_sizes
        shares, rest_shares = n_nonzero / sizes, (n_nonzero.sum(axis=0) - n_nonzero) / rest_sizes
        own_scatter = squares - sizes * own_means**2
        rest = squares.sum(axis=0) - squares - rest_sizes * rest_means**2
        scatter = np.maximum(own_scatter, 0.0) + np.maximum(rest, 0.0)
        # rounding error of sums over n samples of a column that varies in neither
        largest = np.finfo(np.float64).eps * len(labels) * squares.sum(axis=0)
        scatter[scatter <= largest] = 0.0
        difference = own_means - rest_means
        effects = difference / np.sqrt(scatter / max(1.0, float(sizes.sum()) - 2.0))
    effects[difference == 0.0] = 0.0
    means = own_means + shift, rest_means + shift
    return dict(zip(_STATISTICS, (*means, shares, rest_shares, effects), strict=True))


def _strongest(
    view: RowSource, effects: dict[str, NDArray[np.float64]], clusters: NDArray[np.int64], top: int
) -> Iterator[dict[str, Any]]:
    names: Any = view.feature_names or range(view.shape[1])
    sizes = effects["effect"]
    for cluster, row in enumerate(np.where(np.isnan(sizes), 0.0, sizes)):
        for column in np.argsort(-np.abs(row), kind="stable")[:top].tolist():
            if row[column] != 0.0:
                values = {key: array[cluster, column] for key, array in effects.items()}
                of_feature = {"feature": str(names[column]), "column": column, **values}
                yield {"view": view.name, "cluster": clusters[cluster], **of_feature}


def _in_discriminants(
    model: NeighborVotes, views: list[NDArray[np.float64]]
) -> list[NDArray[np.float64]]:
    """Coordinates in the discriminants of each view; in the ridge embedding where there are none."""
    if not any(loadings.size for loadings in model.loadings):
        return views
    pairs = zip(views, model.loadings, strict=True)
    return [view[:, : len(loadings)] @ loadings for view, loadings in pairs]


def _mean_distances(
    points: list[NDArray[np.float64]], centers: list[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Root mean square over the views of the distances to the centers; NaN without a common view."""
    pairs = [pair for pair in zip(points, centers, strict=True) if pair[0].shape[1]]
    squared = np.stack([cdist(*pair, "sqeuclidean") for pair in pairs])
    counts = np.count_nonzero(~np.isnan(squared), axis=0)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.sqrt(np.nansum(squared, axis=0) / counts))


def label_free_scores(data: MultiViewData, labels: NDArray[np.int64]) -> dict[str, float]:
    """Adjusted modularity and cross-view information (nats) of labels (n,) on the reference graphs of at least three samples."""
    rows = sampled_rows(data.n_samples, SIZES.n_scored)
    views = data.views
    if len(rows) < data.n_samples:
        views = tuple(sampled_view(view, rows) for view in views)
    labels = np.unique(labels[rows], return_inverse=True)[1]
    graphs = [
        reference_graphs_of_view(view, min(CONSTANTS.validation_neighbors, len(rows) - 1))
        for view in views
    ]
    modularity = mean_score([view_modularity(graph, labels) for graph in graphs])
    return {
        "adjusted_modularity": modularity * explained_share(graphs, labels),
        "cross_view_information": mean_score([view_scores(graph, [labels])[0] for graph in graphs]),
    }
