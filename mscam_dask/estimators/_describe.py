"""Descriptions of the clusters of a fit: how stable each is, and the features that set it apart."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from mscam_dask.data.views.as_multi_view import RowSource
from mscam_dask.data.views.presence import present_samples
from mscam_dask.data.views.sources import ViewDigest, feature_names_of, recorded_digest
from mscam_dask.engine.map_views import map_views
from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.estimators._predict import CHANGED, NeighborPredictMixin
from mscam_dask.estimators._resources import executor_for
from mscam_dask.solvers.feature_effects import FeatureEffects, feature_effects
from mscam_dask.solvers.row_blocks import row_blocks
from mscam_dask.types.result import Assessment, Structure

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["ClusterDescriptionMixin", "ClusterFeature"]


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterFeature:
    """One feature of one view that sets a cluster apart.

    Attributes
    ----------
    view : str
    cluster : int
        As in `labels_`.
    feature : str
        Name of the column, or its position where the view has no names.
    column : int
        Position of the column in its view.
    mean, mean_of_rest : float
        Mean over the samples of the cluster and over all others, in the units of the data.
    effect : float
        Their difference in units of the pooled standard deviation (Cohen's d), positive where the
        cluster has more; infinite where the column varies neither in the cluster nor outside.
    """

    view: str
    cluster: int
    feature: str
    column: int
    mean: float
    mean_of_rest: float
    effect: float


class ClusterDescriptionMixin(NeighborPredictMixin):
    """Mixin for estimators that describes the clusters of a fit."""

    client: Client | None
    n_jobs: int | None

    @property
    def cluster_stability_(self) -> NDArray[np.float64]:
        """Stability (n_clusters,) of each cluster, from 0 to 1; see `stability_`."""
        check_is_fitted(self)
        assessment = self.solution_.assessment
        if assessment is not None:
            return assessment.cluster_stability
        return np.full(self.n_clusters_, 1.0 if self.n_clusters_ == 1 else np.nan)

    @property
    def stability_(self) -> float:
        """Mean of `cluster_stability_`: how well cuts of perturbed graphs recover the clusters.

        Random halves of the edges of the learned graph, and the reference graphs of two halves of the
        views, are cut; no label enters. Below 0.75, `fit` warns and `structure_` is
        ``Structure.UNSTABLE``; see docs/confidence.md for the benchmark sets. 1 for one cluster, NaN
        where every sample is its own, and with solver="reference".
        """
        stability = self.cluster_stability_
        return float("nan") if np.isnan(stability).all() else float(np.nanmean(stability))

    @property
    def structure_(self) -> Structure | None:
        """Whether the data support the clusters: stable, unstable or none.

        None where nothing is assessed: one cluster, every sample its own, solver="reference".
        """
        check_is_fitted(self)
        assessment = self.solution_.assessment
        return None if assessment is None else assessment.structure

    @property
    def neighbor_overlap_(self) -> dict[str, float]:
        """Overlap of each view's neighbors with those of the other views, in standard errors.

        Expected around 0 for views that are independent of each other, whatever their own clusters.
        Empty where the settings of the views were not selected: one view, auto_settings=False, or
        given `scale` and `alpha`.
        """
        check_is_fitted(self)
        assessment = self.solution_.assessment
        return {} if assessment is None else assessment.neighbor_overlap

    @property
    def cluster_agreement_(self) -> dict[str, NDArray[np.float64]]:
        """How well each view sees each cluster (n_clusters,): 1 at most, about 0 if it does not.

        Share of a cluster's neighbors in that view that are in the cluster, less what chance gives.
        Of more than 16 views, 16 are compared.
        """
        assessment = self._assessment
        return dict(zip(assessment.view_names, assessment.cluster_agreement, strict=True))

    @property
    def view_agreement_(self) -> dict[str, dict[str, float]]:
        """How far two views have the same neighbors: 1 for equal views, about 0 for independent ones."""
        assessment = self._assessment
        return {
            name: dict(zip(assessment.view_names, map(float, row), strict=True))
            for name, row in zip(assessment.view_names, assessment.view_agreement, strict=True)
        }

    @property
    def cluster_tree_(self) -> NDArray[np.float64]:
        """Tree over the clusters: linkage matrix (n_clusters − 1, 4) of SciPy.

        Clusters that the learned graph connects most are merged first.
        ``scipy.cluster.hierarchy.fcluster(model.cluster_tree_, m, "maxclust")[model.labels_]`` is a
        partition into m groups of clusters, without another fit.
        """
        return self._assessment.cluster_tree

    @property
    def _assessment(self) -> Assessment:
        check_is_fitted(self)
        if self.solution_.assessment is None:
            raise ConfigurationError(
                f"n_clusters={self.n_clusters_} of {len(self.labels_)} samples, "
                f"solver={self.solver!r}: nothing is compared. Fit 2 to {len(self.labels_) - 1} "
                "clusters with solver='reduced'."
            )
        return self.solution_.assessment

    def cluster_features(self, top: int = 20) -> tuple[ClusterFeature, ...]:
        """List the features that set each cluster apart from all other samples.

        Parameters
        ----------
        top : int, default=20
            Number of features of each view and cluster, those with the largest absolute effect.

        Returns
        -------
        tuple of ClusterFeature
            By view, cluster and decreasing absolute effect; features without an effect are left
            out. Views of distances and kernels have no features, and excluded views are not read.
            ``pandas.DataFrame(map(dataclasses.asdict, model.cluster_features()))`` is a table of them.

        Raises
        ------
        ConfigurationError
            `top` is not a whole number ≥ 1.
        DataError
            A training array was changed since the fit.

        Notes
        -----
        One pass over each view by row blocks; views of a store are read by the workers of `client`.
        """
        check_is_fitted(self)
        if isinstance(top, bool) or not isinstance(top, int | np.integer) or top < 1:
            raise ConfigurationError(f"top={top!r} is not usable: allowed is a whole number >= 1.")
        views = [
            view
            for view in self._training.views
            if view.view_type == "features" and view.name not in self.excluded_views_
        ]
        names = self.cluster_names_
        look = functools.partial(
            _effects_of,
            labels=np.searchsorted(names, self.labels_),
            n_clusters=self.n_clusters_,
        )
        found = map_views(
            look, views, executor_for(self.client, self.n_jobs), stage="cluster_features"
        )
        listed: list[ClusterFeature] = []
        for view, (effects, digest) in zip(views, found, strict=True):
            if digest not in (None, self._training_digests.get(view.name, digest)):
                raise DataError(CHANGED.format(view.name))
            listed.extend(_strongest(view, effects, names, int(top)))
        return tuple(listed)


def _effects_of(
    view: RowSource, *, labels: NDArray[np.int64], n_clusters: int
) -> tuple[FeatureEffects, str | None]:
    """Effects of one view, and the digest of its rows unless it is recorded."""
    digest = None if recorded_digest(view) else ViewDigest(view.shape)
    present = present_samples(view)
    own = labels if present is None else labels[present.samples]

    def blocks() -> Iterator[tuple[int, NDArray[np.float64]]]:
        for start, stop in row_blocks(*view.shape):
            rows = view.read(start, stop)
            if digest is not None:
                digest.update(rows)
            yield start, rows

    effects = feature_effects(blocks(), own, n_clusters)
    return effects, None if digest is None else digest.hexdigest()


def _strongest(
    view: RowSource, effects: FeatureEffects, clusters: NDArray[np.int64], top: int
) -> Iterator[ClusterFeature]:
    names: Any = feature_names_of(view) or range(view.shape[1])
    for cluster, row in enumerate(
        np.nan_to_num(effects.effects, nan=0.0, posinf=np.inf, neginf=-np.inf)
    ):
        for column in np.argsort(-np.abs(row), kind="stable")[:top]:
            if row[column] != 0.0:
                yield ClusterFeature(
                    view=view.name,
                    cluster=int(clusters[cluster]),
                    feature=str(names[column]),
                    column=int(column),
                    mean=float(effects.means[cluster, column]),
                    mean_of_rest=float(effects.means_of_rest[cluster, column]),
                    effect=float(row[column]),
                )
