"""The estimators MSCAM and MSCAN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from mscam_dask.engine.checkpoint import CheckpointStore
from mscam_dask.engine.session import Observer
from mscam_dask.estimators._base import BaseMultiViewClustering
from mscam_dask.types.parameters import Parameters, Scale

if TYPE_CHECKING:
    from distributed import Client
    from distributed.deploy.cluster import Cluster

__all__ = ["MSCAM", "MSCAN"]


class MSCAM(BaseMultiViewClustering):
    """Multi-view clustering with a learned metric per view and one consensus graph.

    The metric of each view is fitted to a shared sparse graph, and the graph to the distances of the
    views. The labels are the connected components of the graph or, on most real data, the spectral
    cut with the highest partition score. In that case the graph is rebuilt so that its components are
    the clusters, and `status_` says so. No labels are used in a fit.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Number of clusters c. "auto" selects it without labels: the largest number up to `max_clusters`
        whose clusters are all separated by borders, or 1 if there is none. The p-values are in
        `n_clusters_curves_` and in an event for the callbacks.
    alpha : float or mapping, optional
        Ridge penalty of the self-representation, in units of the mean squared singular value of a
        view, from 1e-6 to 1e6: one value, or a mapping by view name (then `scale` must be one
        too). None: selected without labels.
    graph_weight : float, default=0.1
        Initial graph weight λ, from 1e-30 to 1e30. It is raised or lowered during the fit.
    n_neighbors : int, optional
        Neighbors of a sample in the consensus graph. None: selected, starting from 20, or fewer if
        the average cluster has fewer samples.
    identity_weight : float, default=1.0
        Weight w of the identity in the learned metric M = wI + PPᵀ, from 1e-6 to 1e6.
    metric_ridge : float, default=1.0
        Ridge on the metric factor P: 0, or from 1e-6 to 1e6.
    scale : {"standard", "unit", "minmax", "none"} or mapping, optional
        Scaling of feature views before they are centered: columns to variance 1, rows to length
        1, columns to [0, 1], or none. None: selected without labels.
    auto_settings : bool, default=True
        Whether `scale`, `alpha` and `n_neighbors` that are None are selected without labels.
        True: each view gets the scale and α whose nearest neighbors overlap most with those of the
        other views, and `n_neighbors` is 20. With one view, a few settings are initialized, and the one
        with the best partition score is used. The initial graph may be mixed with the neighbor graphs
        of the single views, and the last outer iterations learn the metrics from the best partition
        (the refinement); this holds for 2 to 16 views and samples × (views + 1) up to 2¹⁹, unless the
        partition score is nearly perfect. False: the settings of the paper, which are "standard", 1
        and 9, the graph of the mean distance, and a graph weight that grows until the graph has c
        components.
    view_type : {"features", "distance", "kernel"} or mapping or sequence, default="features"
        Type of the values of each view: one for all views, by view name, or in order.
    max_clusters : int, optional
        Largest number of clusters for "auto"; at least 2 and below the number of samples. None: a
        tenth of the samples, at most 30.
    n_features_per_view : sequence of int, optional
        Number of columns of each view if `fit` gets one 2-D array.
    max_iter : int, default=30
        Maximum number of outer iterations with ADMM. With `auto_settings` a fit has at most three of them,
        and at most three more in the refinement.
    tol : float, default=1e-3
        Relative difference up to which two partition scores count as equal; then the earlier partition
        is kept.
    random_state : int, RandomState or None, default=0
        Seed of all random numbers of a fit: the start of the eigensolver, which matters only within
        its tolerance; the k-means starts of the spectral cuts, which may change clusters that
        overlap; the random edge halves if the number of clusters is selected; above 3000 samples,
        the sample on which scale and α are compared; above 12 000 samples, the cells of the
        approximate neighbor search.
    n_jobs : int or None, default=None
        Threads of a fit in this process; None or -1 uses all cores, at most 8. The result does not
        depend on it.
    client : distributed.Client or cluster, optional
        Dask cluster that runs the fit, with the same result: a synchronous client, or a cluster object
        such as ``LocalCluster()``, to which each fit opens a client of its own. Clones share the client,
        the callbacks and the checkpoint store. A pickle of the model omits the client, and callbacks and checkpoint
        store if they cannot be pickled; a loaded model fits in its own process.
    callbacks : sequence of callable, optional
        Called with each event of `mscam_dask.types.events` as it happens: `FitStarted`,
        `NClustersSelected` (if the number of clusters was selected), `SettingsSelected`, an
        `IterationFinished` for each outer iteration, `RefinementFinished` (if there was a
        refinement), `FitFinished` or `FitFailed`.
        Ready-made: `mscam_dask.monitor.progress.progress_on` for a terminal or notebook,
        `mscam_dask.monitor.events.JsonLines` for a file. With `client`, the Dask dashboard has a
        page of the fit even without callbacks. An exception in a callback ends the fit. Callbacks of
        scikit-learn (1.9 and later) go to `set_callbacks` instead.
    checkpoint_store : CheckpointStore, optional
        Stores a checkpoint after each outer iteration, from which a later fit resumes, such as
        ``mscam_dask.data.checkpoints.FileCheckpointStore(directory)``. It requires a fixed
        `random_state`.
    init_labels : (n_samples,) array of int, optional
        Initial labels from an earlier fit, −1 for new samples. They require the `scale`, `alpha`,
        `n_neighbors` and excluded views of that fit. Mainly saves time; the result may differ from
        that of a cold fit, because the initial partition competes with new ones by its score.
    exclude_views : sequence of str, optional
        Names of views to exclude, as if they were not given. By default, if `scale` or `alpha` is
        selected for each view, uninformative views are excluded if the partition scores higher
        without them; an empty list keeps all views.
    impute : {"mean", "median", "knn"} or mapping, optional
        Imputation of missing cells, NaN in rows that are not all NaN, of feature views: the mean or
        median of the column, or the mean of the five nearest samples that have the cell (as
        scikit-learn's SimpleImputer and KNNImputer); one method for all views, or a mapping by view
        name. Such views are read into memory. None: missing cells are refused.

    Attributes
    ----------
    labels_ : (n_samples,) int64
        Clusters, numbered by first appearance.
    consensus_graph_ : (n_samples, n_samples) CSR
        A. Rows are on the simplex; the row of a sample alone in its component is empty.
    learned_graph_ : (n_samples, n_samples) CSR
        Last graph of the outer iterations, before `consensus_graph_` was rebuilt from the partition:
        it has edges between clusters that touch.
    membership_ : (n_samples, n_clusters) float64
        Memberships of each sample in the clusters, rows summing to one: shares of the votes of its
        neighbors in the joint embedding and in each view's discriminants, by cross-fitting. Computed
        at the first access.
    confidence_ : (n_samples,) float64
        Membership of each sample in its own cluster.
    n_connected_components_ : int
        Connected components of `consensus_graph_`.
    n_clusters_ : int
        Number of clusters, given or selected.
    n_clusters_curves_ : xarray.Dataset or None
        With ``n_clusters="auto"``: ``p_value``, the largest of the borders, over n_clusters, with the
        selected number as an attribute.
    cluster_borders_ : (n_clusters, n_clusters)
        p-value of the border between each pair of clusters; up to 0.05 the border holds.
    standing_clusters_ : tuple of int
        Clusters that a border separates from each other cluster.
    structure_ : Structure
        CLEAR, PARTLY (some clusters are separated), NONE (no cluster structure), or TRIVIAL (one cluster, or
        one for each sample).
    cluster_agreement_, view_agreement_ : dict
        Agreement of each view with each cluster, and of each view with each other view.
    cluster_tree_ : (n_clusters − 1, 4)
        Linkage matrix of SciPy over the clusters.
    status_ : Status
        Origin of the labels; ``status_.message`` is a sentence.
    cross_view_information_ : float
        Cross-view information of the partition, in nats. The partition with the largest one is kept if
        its borders support it.
    n_iter_ : int
        Outer iterations, those of the refinement included.
    n_neighbors_ : int
        Number of neighbors used; larger than requested if the graph has too many components.
    view_names_ : tuple of str
    view_embeddings_ : dict of str to (n_samples, n_clusters)
        F_v given the final graph, NaN for samples that the view does not have; empty if n_clusters
        is 1 or the number of samples.
    view_contributions_ : dict of str to float
        Share of each view in the score; they sum to 1.
    view_settings_ : dict of str to ViewSettings
        Scale and α of each view.
    view_presence_ : (n_samples, n_views) bool
        Whether each view has each sample.
    imputed_shares_ : dict of str to (n_samples,)
        Share of the cells of each sample that were imputed, for views with missing cells.
    excluded_views_ : tuple of str
        Excluded views. They have no embedding, no history and no share in the score.
    sample_ids_ : tuple of str or None
        Ids of the samples; None if samples are identified by row.
    view_votes_ : dict of str to (n_samples,) int64
        Cluster for which most neighbors of each sample in each view vote.
    history_ : xarray.Dataset
        Quantities of the fit over (outer_iteration, view).
    data_warnings_ : tuple
        Unusual but accepted properties of the data (rows of zeros, constant columns, fewer distinct
        samples than clusters).
    solution_ : Solution
        Result of the engine with all of the above, the candidate settings and the parameters used.

    References
    ----------
    N. Xu, Y. Guo, J. Wang, X. Luo, R. He, "Joint Adaptive Neighbours and Metric Learning for
    Multi-view Subspace Clustering", arXiv:1709.03656.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> centers = np.repeat(np.eye(3), 20, axis=0)
    >>> views = [10 * centers @ rng.normal(size=(3, d)) + rng.normal(size=(60, d)) for d in (5, 8)]
    >>> model = MSCAM(n_clusters=3).fit(views)
    >>> model.n_connected_components_, np.bincount(model.labels_).tolist()
    (3, [20, 20, 20])
    """

    def __init__(
        self,
        n_clusters: int | Literal["auto"] = 8,
        *,
        alpha: float | Mapping[str, float] | None = None,
        graph_weight: float = 0.1,
        n_neighbors: int | None = None,
        identity_weight: float = 1.0,
        metric_ridge: float = 1.0,
        scale: Scale | Mapping[str, Scale] | None = None,
        auto_settings: bool = True,
        view_type: str | Mapping[str, str] | Sequence[str] = "features",
        max_clusters: int | None = None,
        n_features_per_view: Sequence[int] | None = None,
        max_iter: int = 30,
        tol: float = 1e-3,
        random_state: int | np.random.RandomState | None = 0,
        n_jobs: int | None = None,
        client: Client | Cluster | None = None,
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
        self.identity_weight = identity_weight
        self.metric_ridge = metric_ridge
        self.scale = scale
        self.auto_settings = auto_settings
        self.view_type = view_type
        self.max_clusters = max_clusters
        self.n_features_per_view = n_features_per_view
        self.max_iter = max_iter
        self.tol = tol
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
            model="mscam",
            **setting,
            graph_weight=self.graph_weight,
            identity_weight=self.identity_weight,
            metric_ridge=self.metric_ridge,
            max_iter=self.max_iter,
            tol=self.tol,
        )


class MSCAN(BaseMultiViewClustering):
    """Multi-view clustering with adaptive neighbors of self-representations.

    This is the simpler model of the paper, without metric learning. The consensus graph is built from
    the distances between the columns of the self-representations, and the graph smooths these columns.

    Parameters
    ----------
    n_clusters, alpha, graph_weight, n_neighbors, scale, auto_settings, view_type, max_clusters, n_features_per_view, \
max_iter, tol, random_state, n_jobs, client, callbacks, checkpoint_store, init_labels, \
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
        random_state: int | np.random.RandomState | None = 0,
        n_jobs: int | None = None,
        client: Client | Cluster | None = None,
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
