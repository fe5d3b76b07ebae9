"""MSCAM: a metric of every view is learned with the graph."""

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

__all__ = ["MSCAM"]


class MSCAM(BaseMultiViewClustering):
    """Multi-view clustering with a learned metric per view and one consensus graph.

    Every view's self-representation and Mahalanobis metric are fitted to a shared sparse graph,
    the graph to the views' distances, until its connected components are the clusters. Where another
    partition met on the way, a cut of a graph before, is better by the views themselves, the graph
    is closed around that one. No label enters the fit.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Number of clusters c. "auto": chosen without labels, from 2 to `max_clusters`; the
        curves it follows from are in `n_clusters_curves_` and told to the callbacks.
    alpha : float or mapping, optional
        Ridge of the self-representation, in units of a view's mean squared singular value; of
        all views, or by view name (`scale` then too); from 1e-6 to 1e6. None: chosen.
    graph_weight : float, default=0.1
        First weight λ of the graph, from 1e-30 to 1e30; it grows along the path.
    n_neighbors : int, optional
        Neighbors of a sample in the consensus graph. None: chosen; to begin with 20, or fewer where
        the average cluster has fewer samples.
    identity_weight : float, default=1.0
        Weight of the data distances beside the learned metric (M = wI + PPᵀ), from 1e-6 to 1e6.
    metric_ridge : float, default=1.0
        Ridge on the metric factor P: 0, or from 1e-6 to 1e6.
    scale : {"standard", "unit", "minmax", "none"} or mapping, optional
        Scaling of feature views before they are centered: columns to variance 1, rows to length
        1, columns to [0, 1], or as they are. None: chosen.
    auto_settings : bool, default=True
        Whether `scale`, `alpha` and `n_neighbors` that are None are selected without labels.
        True: for each view the scaling and α whose nearest neighbors overlap most with those of
        the other views, and 20 neighbors; with one view a few settings are initialized and the one
        with the best partition score is taken. With 2 to 16 views, and samples × (views + 1)
        up to 2¹⁹, two more graphs are tried unless the partition is nearly perfect: first the
        mean of the distance graph and the views' own neighbor graphs, last the graph of distances
        learned from the best partition. False: "standard", 1 and 9, and the graph of the mean
        distance, as in the paper.
    view_type : {"features", "distance", "kernel"} or mapping or sequence, default="features"
        What the numbers of a view are; one for all, by view name, or in order.
    max_clusters : int, optional
        Most clusters that "auto" may choose; at least 2, fewer than samples. None: a tenth of the
        samples, 30 at most.
    n_features_per_view : sequence of int, optional
        Columns of each view when `fit` gets one 2-D array.
    max_iter : int, default=30
        Most outer iterations.
    tol : float, default=1e-3
        Partition scores closer than this (relative) are a tie, which the simpler one wins.
    solver : {"reduced", "reference"}, default="reduced"
        "reference" runs the corrected Algorithm 2 literally, with dense n×n matrices: slow, for
        comparison on small data. It chooses nothing (as ``auto_settings=False``), has no use for `tol`
        and refuses another than the default, and runs in this process, with nothing random and
        nothing told to `callbacks`.
    random_state : int, RandomState or None, default=0
        Seed of all that is random in a fit: the start of the eigensolver, which shows within its
        tolerance alone, and the k-means starts of the cuts, by which clusters that overlap may
        come out otherwise; the halves of the edges where the number of clusters is chosen; above
        3000 samples those on which scalings and α are compared; above 12 000 the cells in which
        neighbors are sought.
    n_jobs : int or None, default=None
        Threads of a fit in this process; None or -1 for all cores, 8 at most. The result does
        not depend on it.
    client : distributed.Client, optional
        Run on this Dask cluster, with the same result. Clones share it, the callbacks and the
        checkpointer. A pickle of the model holds no client, and callbacks and a checkpointer only
        where these can be pickled: once loaded it fits in its own process.
    callbacks : sequence of callable, optional
        Called with each event of `mscam_dask.types.events` as it happens: `FitStarted`,
        `NClustersSelected` (where the number of clusters was chosen), `SettingsSelected`, an
        `IterationFinished` for each outer iteration, `RefinementFinished` (where distances were
        learned from the best partition), `FitFinished` or `FitFailed`.
        Ready-made: `mscam_dask.monitor.progress.progress_on` for a terminal or notebook,
        `mscam_dask.monitor.events.JsonLines` for a file. With `client`, the Dask dashboard has a
        page of the fit without any. What a callback raises ends the fit. Callbacks of
        scikit-learn (1.9 and later) go to `set_callbacks` instead.
    checkpoint_store : CheckpointStore, optional
        Keeps the state after each outer iteration, and may have one to go on from, such as
        ``mscam_dask.data.checkpoints.FileCheckpointStore(directory)``. It needs a fixed
        `random_state`; ``solver="reference"`` has no use for it.
    init_labels : (n_samples,) array of int, optional
        Clusters of an earlier fit to start from, −1 for samples that it did not see; with its
        `scale`, `alpha`, `n_neighbors` and `excluded_views_`. A matter of time only as far as the path allows: the
        result is judged as ever, and may differ from that of a fit without.
    exclude_views : sequence of str, optional
        Names of views that do not count, as if they were not there. By default, where `scale` or `alpha` is chosen
        view by view, those whose neighbors no other view confirms, if the partition is better
        without; an empty list keeps all.

    Attributes
    ----------
    labels_ : (n_samples,) int64
        Clusters, numbered by first appearance.
    consensus_graph_ : (n_samples, n_samples) CSR
        A. Rows are on the simplex; that of a sample alone in its component is empty.
    membership_ : (n_samples, n_clusters) float64
        Memberships of each sample in the clusters, rows summing to one: shares of the votes of its
        neighbors in the joint embedding and in each view's discriminants, by cross-fitting. Computed
        at the first access; needs solver="reduced".
    confidence_ : (n_samples,) float64
        Membership of each sample in its own cluster.
    n_connected_components_ : int
        Of `consensus_graph_`.
    n_clusters_ : int
        Clusters asked for, or chosen.
    n_clusters_curves_ : xarray.Dataset or None
        With ``n_clusters="auto"``: relative eigengap, modularity, reliable modularity, information (nats) and
        stability over n_clusters, and the number taken as an attribute.
    status_ : Status
        How the clusters were reached; ``status_.message`` is a sentence.
    cross_view_information_ : float
        Cross-view information of the partition in nats, the label-free mark used throughout; where
        neighbors tell one partition clearly more reliably than another, that decides instead.
    n_iter_ : int
        Outer iterations.
    n_neighbors_ : int
        Neighbors used; more than asked for when the data alone fall into too many pieces.
    view_names_ : tuple of str
    view_embeddings_ : dict of str to (n_samples, n_clusters)
        F_v given the final graph; empty where one cluster was asked for, or as many as samples.
    view_contributions_ : dict of str to float
        Each view's share in the score, summing to 1.
    view_settings_ : dict of str to Preparation
        Scaling and α of each view.
    excluded_views_ : tuple of str
        Views that did not count: they have no embedding, no history and no part in the score.
    history_ : xarray.Dataset
        Over (outer_iteration, view).
    data_warnings_ : tuple
        What was found odd in the data but accepted (all-zero rows, constant columns, fewer samples
        that differ than clusters).
    solution_ : Solution
        All of the above and more, as the engine returns it: the settings tried, the parameters taken.

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
        solver: Literal["reduced", "reference"] = "reduced",
        random_state: int | np.random.RandomState | None = 0,
        n_jobs: int | None = None,
        client: Client | None = None,
        callbacks: Sequence[Observer] | None = None,
        checkpoint_store: CheckpointStore | None = None,
        init_labels: ArrayLike | None = None,
        exclude_views: Sequence[str] | None = None,
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
        self.solver = solver
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.client = client
        self.callbacks = callbacks
        self.checkpoint_store = checkpoint_store
        self.init_labels = init_labels
        self.exclude_views = exclude_views

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
