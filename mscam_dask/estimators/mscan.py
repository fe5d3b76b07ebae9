"""MSCAN estimator: adaptive neighbors of self-representations, without metric learning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from mscam_dask.engine.checkpoint import CheckpointStore
from mscam_dask.engine.fit import Observer
from mscam_dask.estimators._base import BaseMultiViewClustering
from mscam_dask.types.parameters import Parameters, Scale

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["MSCAN"]


class MSCAN(BaseMultiViewClustering):
    """Multi-view clustering with adaptive neighbors of self-representations.

    This is the simpler model of the paper, without metric learning. The consensus graph is built from
    the distances between the columns of the self-representations, and the graph smooths these columns.

    Parameters
    ----------
    n_clusters, alpha, graph_weight, n_neighbors, scale, auto_settings, view_type, max_clusters, n_features_per_view, \
max_iter, tol, solver, random_state, n_jobs, client, callbacks, checkpoint_store, init_labels, \
exclude_views, impute
        As for `MSCAM`.

    Attributes
    ----------
    labels_, consensus_graph_, membership_, confidence_, n_connected_components_, n_clusters_, n_clusters_curves_, status_, cross_view_information_, \
n_iter_, n_neighbors_, view_names_, view_contributions_, view_settings_, excluded_views_, sample_ids_, \
view_presence_, imputed_shares_, view_votes_, history_, \
data_warnings_, solution_
        As for `MSCAM`.
    view_embeddings_ : dict of str to (n_samples, r_v)
        Smoothed self-representation of each view, in the basis of the view.

    References
    ----------
    N. Xu, Y. Guo, J. Wang, X. Luo, R. He, "Joint Adaptive Neighbours and Metric Learning for
    Multi-view Subspace Clustering", arXiv:1709.03656.
    """

    def __init__(
        self,
        n_clusters: int | Literal["auto"] = 8,
        *,
        alpha: float | Mapping[str, float] | None = None,
        graph_weight: float = 0.1,
        n_neighbors: int | None = None,
        scale: Scale | Mapping[str, Scale] | None = None,
        auto_settings: bool = True,
        view_type: str | Mapping[str, str] | Sequence[str] = "features",
        max_clusters: int | None = None,
        n_features_per_view: Sequence[int] | None = None,
        max_iter: int = 30,
        tol: float = 1e-3,
        solver: Literal["reduced", "reference"] = "reduced",
        random_state: int | np.random.RandomState | None = 0,
        n_jobs: int | None = None,
        client: Client | None = None,
        callbacks: Sequence[Observer] | None = None,
        checkpoint_store: CheckpointStore | None = None,
        init_labels: ArrayLike | None = None,
        exclude_views: Sequence[str] | None = None,
        impute: Literal["mean", "median", "knn"] | Mapping[str, str | None] | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.alpha = alpha
        self.graph_weight = graph_weight
        self.n_neighbors = n_neighbors
        self.scale = scale
        self.auto_settings = auto_settings
        self.view_type = view_type
        self.max_clusters = max_clusters
        self.n_features_per_view = n_features_per_view
        self.max_iter = max_iter
        self.tol = tol
        self.solver = solver
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.client = client
        self.callbacks = callbacks
        self.checkpoint_store = checkpoint_store
        self.init_labels = init_labels
        self.exclude_views = exclude_views
        self.impute = impute

    def _parameters(self, setting: Mapping[str, Any]) -> Parameters:
        return Parameters(
            model="mscan",
            **setting,
            graph_weight=self.graph_weight,
            max_iter=self.max_iter,
            tol=self.tol,
        )
