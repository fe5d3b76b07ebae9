"""Distances of samples to the clusters, and a label-free score of predicted clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from mscam_dask.data.views.as_multi_view import MultiViewData
from mscam_dask.data.views.sampling import sampled_view
from mscam_dask.engine.tasks.partition_scores import (
    partition_scores,
    reference_graphs_of_view,
    score_partitions,
)
from mscam_dask.errors import DataError
from mscam_dask.estimators._describe import ClusterDescriptionMixin
from mscam_dask.linalg.distances import squared_distances
from mscam_dask.solvers.membership import NeighborVotes, fit_votes
from mscam_dask.solvers.n_clusters import adjusted_modularity
from mscam_dask.solvers.partition_score import PartitionScore, mean_score
from mscam_dask.solvers.reference_graphs import view_modularity
from mscam_dask.solvers.row_blocks import row_blocks
from mscam_dask.solvers.spectral_cut import sampled_rows
from mscam_dask.types.rules import CONSTANTS, SIZES

__all__ = ["ClusterSpaceMixin", "label_free_scores"]


class ClusterSpaceMixin(
    ClusterDescriptionMixin,
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]  # untyped, as the next
    TransformerMixin,  # type: ignore[misc]  # wraps only a `transform` that is defined below it
):
    """Mixin for estimators with `transform` and `score`."""

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Return the distances of samples to the centers of the clusters.

        Parameters
        ----------
        X : as for `predict`

        Returns
        -------
        distances : (n, n_clusters) float64
            Root mean square over the views of the Euclidean distances in the linear discriminants of
            each view, which separate the clusters; with one cluster, in the ridge embedding.
            Columns are in the order of `cluster_names_`. Incomplete views: over the views that have
            the sample and the cluster, NaN if there are none.

        Raises
        ------
        ConfigurationError, DataError
            As `predict`.
        """
        self._require_encoders()
        new = self._views(X, reset=False)
        samples = sampled_rows(len(self.labels_), SIZES.exact_samples)
        views = self._training_coordinates(samples)
        positions = np.searchsorted(self.cluster_names_, self.labels_)
        model = fit_votes(views, positions[samples], self.n_clusters_, self._n_voting(len(samples)))
        sums = np.zeros((self.n_clusters_, _in_discriminants(model, views).shape[1]))
        counts = np.zeros_like(sums)
        for start, parts in self._training_blocks():
            points = _in_discriminants(model, parts)
            own = positions[start : start + len(points)]
            np.add.at(counts, own, ~np.isnan(points))
            np.add.at(sums, own, np.nan_to_num(points))
        with np.errstate(invalid="ignore"):
            centers = sums / counts  # NaN in views that have no sample of a cluster
        widths = [view.shape[1] for view in views]
        if model.loadings:
            widths = [loadings.shape[1] for loadings in model.loadings]
        distances = [
            _mean_distances(
                _in_discriminants(model, self._coordinates(new, start, stop)), centers, widths
            )
            for start, stop in row_blocks(new.n_samples, sum(view.shape[1] for view in views))
        ]
        return np.asarray(np.concatenate(distances))

    @property
    def _n_features_out(self) -> int:
        """Number of columns of `transform`, for `get_feature_names_out`."""
        return self.n_clusters_

    def score(self, X: Any, y: object = None) -> float:
        """Score the clusters that are predicted for samples, without labels.

        Parameters
        ----------
        X : as for `predict`
            Feature views.
        y : ignored

        Returns
        -------
        float
            Adjusted modularity of the predicted clusters on the reference graphs of `X`: their
            modularity, as a mean over the views, times the share of their entropy that the
            neighbors in all views explain. It does not grow with the number of clusters, and is
            by which ``n_clusters="auto"`` selects; 0 where all samples are in one cluster.

        Raises
        ------
        ConfigurationError, DataError
            As `predict`; or `X` has fewer than three samples, or a view of distances or kernel
            values, which has none between the new samples.

        Notes
        -----
        Of more than 4000 samples, a sample of that size is scored.
        """
        check_is_fitted(self)
        new = self._views(X, reset=False)
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
        labels = self.predict(X)
        return label_free_scores(new, labels)["adjusted_modularity"]


def _in_discriminants(
    model: NeighborVotes, views: list[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Coordinates in the discriminants of all views; in the ridge embedding where there are none."""
    if not model.loadings:
        return np.hstack(views)
    pairs = zip(views, model.loadings, strict=True)
    return np.hstack([view[:, : len(loadings)] @ loadings for view, loadings in pairs])


def _mean_distances(
    points: NDArray[np.float64], centers: NDArray[np.float64], widths: Sequence[int]
) -> NDArray[np.float64]:
    """Root mean square over the views of the distances to the centers; NaN without a common view."""
    if not (np.isnan(points).any() or np.isnan(centers).any()):
        return np.asarray(np.sqrt(squared_distances(points, centers)) / np.sqrt(len(widths)))
    totals, counts = np.zeros((len(points), len(centers))), np.zeros((len(points), len(centers)))
    stop = 0
    for width in widths:
        view = slice(stop, stop + width)
        stop += width
        rows = np.flatnonzero(~np.isnan(points[:, view]).any(axis=1))
        own = np.flatnonzero(~np.isnan(centers[:, view]).any(axis=1))
        if width and rows.size and own.size:
            pairs = np.ix_(rows, own)
            totals[pairs] += squared_distances(points[rows, view], centers[own, view])
            counts[pairs] += 1.0
    with np.errstate(invalid="ignore"):
        return np.sqrt(totals / counts)


def label_free_scores(data: MultiViewData, labels: NDArray[np.int64]) -> dict[str, float]:
    """Scores of a partition on the reference graphs of the views: of a sample of large data.

    Parameters
    ----------
    data : MultiViewData
        At least three samples.
    labels : (n,) int64

    Returns
    -------
    dict
        "adjusted_modularity" and "cross_view_information" (nats).
    """
    rows = sampled_rows(data.n_samples, SIZES.n_scored)
    views = data.views
    if len(rows) < data.n_samples:
        views = tuple(sampled_view(view, rows) for view in views)
    labels = np.unique(labels[rows], return_inverse=True)[1]
    graphs = [
        reference_graphs_of_view(view, min(CONSTANTS.validation_neighbors, len(rows) - 1))
        for view in views
    ]
    (fields,) = partition_scores([labels], [score_partitions(graphs, [labels])])
    score = PartitionScore(*fields)
    modularity = mean_score([view_modularity(graph, labels) for graph in graphs])
    return {
        "adjusted_modularity": adjusted_modularity(modularity, score.reliability),
        "cross_view_information": score.score,
    }
