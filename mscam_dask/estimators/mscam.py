"""The estimators MSCAM and MSCAN."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClusterMixin

from mscam_dask.data.views.missing_cells import Imputer, impute_methods, impute_views
from mscam_dask.data.views.validation import repeated_samples, validate
from mscam_dask.engine.fit import run_fit
from mscam_dask.engine.memory import check_memory
from mscam_dask.engine.session import CheckpointStore, Observer
from mscam_dask.errors import ConfigurationError, DataWarning
from mscam_dask.estimators._describe import ClusterSpaceMixin
from mscam_dask.estimators._fitted import TOLD_BEFORE, doubts, warn_of
from mscam_dask.estimators._inputs import views_to_fit
from mscam_dask.estimators._resources import (
    executor_for,
    map_views,
    observers_of,
    validate_callbacks,
)
from mscam_dask.estimators._sample_values import (
    equal_samples,
    fit_batches,
    validated_init_labels,
    validated_partial_labels,
)
from mscam_dask.estimators._search_space import log_views, search_space
from mscam_dask.types.parameters import Constants, Model, Parameters, Scale

if TYPE_CHECKING:
    from distributed import Client


# parameters that belong to a process: shared by clones, omitted from pickles
_OF_PROCESS = ("client", "callbacks", "checkpoint_store")


class MSCAM(
    ClusterSpaceMixin,
    ClusterMixin,  # type: ignore[misc]  # untyped, as the next
    BaseEstimator,  # type: ignore[misc]
):
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
    n_neighbors : int, optional
        Neighbors of a sample in the consensus graph. None: selected, starting from 20, or fewer if
        the average cluster has fewer samples.
    alpha : float or mapping, optional
        Ridge penalty of the self-representation, in units of the mean squared singular value of a
        view, from 1e-6 to 1e6: one value, or a mapping by view name (then `scale` must be one
        too). None: selected without labels.
    scale : {"standard", "unit", "log", "minmax", "none"} or mapping, optional
        Scaling of feature views before they are centered: columns to variance 1, rows to length
        1, logarithms log(1 + x) to rows of length 1, columns to [0, 1], or none. None: selected without
        labels, and "log" takes the place of "unit" for counts (docs/method.md).
    view_type : {"features", "distance", "kernel"} or mapping or sequence, default="features"
        Type of the values of each view: one for all views, by view name, or in order.
    exclude_views : sequence of str, optional
        Names of views to exclude, as if they were not given. By default, if `scale` or `alpha` is
        selected for each view, uninformative views are excluded if the partition scores higher
        without them; an empty list keeps all views.
    impute : {"mean", "median", "knn"} or mapping, optional
        Imputation of missing cells, NaN in rows that are not all NaN, of feature views: the mean or
        median of the column, or the mean of the five nearest samples that have the cell (as
        scikit-learn's SimpleImputer and KNNImputer); one method for all views, or a mapping by view
        name. Such views are read into memory. None: missing cells are refused.
    max_clusters : int, optional
        Largest number of clusters for "auto"; at least 2 and below the number of samples. None: a
        tenth of the samples, at most 30.
    max_iter : int, optional
        Maximum number of outer iterations of the whole fit. At most three are by ADMM and at most
        three are of the refinement; a fit without a refinement has `max_iter` by ADMM. None: these end
        after `patience` iterations (`constants`) without a better partition.
    random_state : int, RandomState or None, default=0
        Seed of all random numbers of a fit: the start of the eigensolver, which matters only within
        its tolerance; the k-means starts of the spectral cuts, which may change clusters that
        overlap; the random edge halves if the number of clusters is selected; above 3000 samples,
        the sample on which scale and α are compared; above 12 000 samples, the cells of the
        approximate neighbor search.
    n_jobs : int or None, default=None
        Threads of a fit in this process; None or -1 uses all cores, at most 8. The result does not
        depend on it.
    client : distributed.Client, optional
        Synchronous client of a Dask cluster that runs the fit, with the same result, such as
        ``distributed.Client(LocalCluster())``. Clones share the client, the callbacks and the checkpoint
        store; a pickle or copy of the model omits all three.
    callbacks : sequence of callable, optional
        Called with each event of `mscam_dask.types.events` as it happens.
        Ready-made: `mscam_dask.monitor.progress.progress_on` for a terminal or notebook,
        `mscam_dask.monitor.events.JsonLines` for a file. With `client`, the Dask dashboard has a
        page of the fit even without callbacks. An exception in a callback ends the fit.
    checkpoint_store : CheckpointStore, optional
        Stores a checkpoint after each outer iteration, from which a later fit resumes, such as
        ``mscam_dask.data.checkpoints.FileCheckpointStore(directory)``. It requires a fixed
        `random_state`.
    constants : Constants, optional
        Constants of the method, such as the initial graph weight, and whether settings are selected.
        None: ``Constants()``. ``Constants.paper()``: the path of the paper.

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
        at the first access, which reads the views once or twice more: those of a large store by the
        workers of `client` while it is connected.
    confidence_ : (n_samples,) float64
        Membership of each sample in its own cluster.
    n_connected_components_ : int
        Connected components of `consensus_graph_`.
    n_clusters_ : int
        Number of clusters, given or selected.
    cluster_names_ : (n_clusters,) int64
        Label of each column of `membership_`: 0, 1, ..., but for a loaded run that kept the names of clusters of
        an earlier run.
    n_clusters_curves_ : xarray.Dataset or None
        With ``n_clusters="auto"``: ``p_value``, the largest of the borders, over n_clusters, with the
        selected number as an attribute.
    cluster_borders_ : (n_clusters, n_clusters)
        p-value of the border between each pair of clusters, under the hypothesis that both are one cluster
        with no fewer samples between them; up to 0.05 the border holds. 1 for clusters of fewer than 5
        samples, 0 for pairs with a dozen nearer clusters each; empty for trivial partitions.
        ``solution_.assessment.borders.counts`` has the numbers of samples.
    standing_clusters_ : tuple of int
        Clusters that a border separates from each other cluster.
    structure_ : Structure
        CLEAR if borders separate all clusters, up to clusters with 5 % of the samples and at least 5 each;
        PARTLY if they separate some; NONE if no cluster is separated from all others, or none was found;
        TRIVIAL for one cluster and for one for each sample, which fit any data.
    cluster_agreement_ : dict of str to (n_clusters,)
        Share of a cluster's neighbors in a view that are in the cluster, corrected for chance: at most 1, about
        0 by chance, NaN for trivial partitions. Of more than 16 views, 16 are compared.
    contradictions_ : dict of str to dict of int to int
        By view, the clusters that it contradicts, and the cluster with which it puts each of them: more
        of the neighbors in the view are in the other cluster, both corrected for chance.
    view_agreement_ : dict of str to dict of str to float
        Share of neighbors that two views have in common, corrected for chance: 1 for equal views, about 0
        for independent ones, NaN if they share fewer than three samples.
    neighbor_overlap_ : dict of str to float
        Overlap of each view's neighbors with those of the other views, in standard errors: about 0 for
        independent views. Empty if the settings of the views were not selected.
    cluster_tree_ : (n_clusters − 1, 4)
        Linkage matrix of SciPy of `cluster_names_`: clusters that the learned graph connects most are merged first.
        ``scipy.cluster.hierarchy.fcluster(model.cluster_tree_, m, "maxclust")`` has the group of each, of m.
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
        Cluster for which most neighbors of each sample in each view vote; −1 for samples that the view
        does not have.
    history_ : xarray.Dataset
        Quantities of the fit over (outer_iteration, view).
    batch_shares_ : dict of str to BatchShares
        With `batches`: share of the neighbors in each feature view that are of the same batch, before and
        after the correction.
    data_warnings_ : tuple
        Unusual but accepted properties of the data (rows of zeros, constant columns, columns with a usual name of labels, fewer distinct
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

    # where the graphs and embeddings of large data are written; set by a run before `fit`
    _results_directory: Path | None = None
    _model: Model = "mscam"

    def __init__(
        self,
        n_clusters: int | Literal["auto"] = 8,
        *,
        n_neighbors: int | None = None,
        alpha: float | Mapping[str, float] | None = None,
        scale: Scale | Mapping[str, Scale] | None = None,
        view_type: str | Mapping[str, str] | Sequence[str] = "features",
        exclude_views: Sequence[str] | None = None,
        impute: Literal["mean", "median", "knn"] | Mapping[str, str | None] | None = None,
        max_clusters: int | None = None,
        max_iter: int | None = None,
        random_state: int | np.random.RandomState | None = 0,
        n_jobs: int | None = None,
        client: Client | None = None,
        callbacks: Sequence[Observer] | None = None,
        checkpoint_store: CheckpointStore | None = None,
        constants: Constants | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_neighbors = n_neighbors
        self.alpha = alpha
        self.scale = scale
        self.view_type = view_type
        self.exclude_views = exclude_views
        self.impute = impute
        self.max_clusters = max_clusters
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.client = client
        self.callbacks = callbacks
        self.checkpoint_store = checkpoint_store
        self.constants = constants

    def fit(
        self,
        X: Any,
        y: object = None,
        *,
        batches: ArrayLike | str | None = None,
        partial_labels: ArrayLike | str | None = None,
        init_labels: ArrayLike | None = None,
    ) -> Self:
        """Cluster the samples.

        Parameters
        ----------
        X : list or dict of (n_samples, n_features_v) arrays, xarray.Dataset, store path or array
            The views: NumPy, SciPy sparse or Dask arrays of any real dtype, frames of pandas or
            polars, Arrow tables, AnnData; a MuData; the path of a store made by ``mscam-dask ingest``;
            or one (n_samples, n_features) array, which is one view. Row i is sample i in every view;
            frames and AnnData with the same ids in another order are put in the order of the first. A
            row that is all NaN is a sample that the view does not have.
        y : ignored
            For API consistency; only `partial_labels` enter a fit.
        batches : (n_samples,) array or str, optional
            Batch of each sample, such as machine, site or day: text or numbers, or the name of a column of
            `obs`. Offsets and scales of batches are removed from the feature views where samples with
            similar values in all views differ by their batch; clusters of one batch only stay. A Series
            with the ids of the samples as its index is matched by them.
        partial_labels : (n_samples,) array or str, optional
            Known labels of some samples: text or numbers, with −1, None, NaN or empty text where unknown, or
            the name of a column of `obs`; a Series is matched as `batches`. Known samples with one label are
            in one cluster, and those with different labels in different ones. Clusters without a known
            sample are found as usual.
        init_labels : (n_samples,) array of int, optional
            Initial labels from an earlier fit, −1 for new samples; a Series is matched as `batches`. They require the `scale`, `alpha`,
            `n_neighbors` and excluded views of that fit. Mainly saves time; the result may differ from
            that of a cold fit, because the initial partition competes with new ones by its score.

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
            Views were excluded or share few samples; the data show no clusters, `structure_` is NONE.
        UnstableClustersWarning
            Borders separate some of the clusters only: `structure_` is PARTLY.
        """
        validate_callbacks(self.callbacks, self.checkpoint_store)
        executor = executor_for(self.client, self.n_jobs)
        data, of_table = views_to_fit(self, X)
        # of cells that were imputed when a store was written, and of those that are imputed here
        imputers = {view.name: Imputer(view, view.impute) for view in data.views if view.impute}
        methods = impute_methods(self.impute, data.view_names)
        data, imputers_of_fit, imputed_shares = impute_views(data, methods)
        tried, choices = search_space(self, data)
        first = tried[0]
        n_clusters = None if choices.n_clusters else first.n_clusters
        check = functools.partial(
            validate,
            n_clusters=first.n_clusters,
            n_neighbors=first.n_neighbors,
            digest=True,
            over=lambda look, views: map_views(look, views, executor, stage="validate"),
        )
        report = check(data)
        counts = [
            one.view
            for one in report.issues
            if one.kind == "counts" and first.constants.auto_settings
        ]
        by_logs = log_views(self.scale, data.view_names, counts)
        data = dataclasses.replace(data, log_views=by_logs)
        of_batches = None
        if batches is not None:
            of_batches = fit_batches(X, data, batches, n_clusters, executor)
            data = of_batches.correct(data)
            report = dataclasses.replace(report, digests=check(data).digests)
        warn_of((one.message, DataWarning) for one in report.issues if one.kind in TOLD_BEFORE)
        labels = None
        if init_labels is not None:
            if choices.n_clusters or len(tried) > 1 or choices.view_settings:
                raise ConfigurationError(
                    "init_labels requires fixed settings, but n_clusters is 'auto', or scale, alpha or n_neighbors "
                    "is None. Set all to those of the earlier fit (solution_.parameters)."
                )
            labels = validated_init_labels(init_labels, X, data, first.n_clusters)
        observers = observers_of(self, data, first.n_clusters, executor)
        for parameters in tried:
            check_memory(data, parameters, executor, view_graphs=choices.initial_graph)
        excluded = self.exclude_views or ()
        used = [view for view in data.views if view.name not in excluded]
        # samples of zeros alone have no values that tell their class
        equal = equal_samples(used, executor, zeros=partial_labels is None)
        issues = (*report.issues, *repeated_samples(equal, first.n_clusters))
        known = None
        if partial_labels is not None:
            known = validated_partial_labels(partial_labels, X, data, n_clusters, equal)
        solution = run_fit(
            data,
            tried,
            executor,
            choices=choices,
            observers=observers,
            checkpoint_store=self.checkpoint_store,
            init_labels=labels,
            results_directory=self._results_directory,
            equal=equal,
            known=known,
            batches_matched=of_batches is None or of_batches.effects.matched,
        )
        self._keep_fit(solution, data, batches=of_batches, of_table=of_table)
        self.data_warnings_, self.imputed_shares_ = issues, imputed_shares
        self._imputers = imputers | imputers_of_fit
        self._training_digests = report.digests
        warn_of(doubts(solution, issues, views_selected=self.exclude_views is None))
        return self

    def candidate_settings(self, X: Any) -> tuple[Parameters, ...]:
        """Candidate settings of a fit of `X`; nothing is fitted.

        Parameters
        ----------
        X : as for `fit`
        """
        return search_space(self, views_to_fit(self, X)[0])[0]

    def __sklearn_clone__(self) -> Self:
        cloned: Self = super(MSCAM, copy.copy(self)).__sklearn_clone__()
        for name in _OF_PROCESS:
            setattr(cloned, name, getattr(self, name))
        return cloned

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), **dict.fromkeys(_OF_PROCESS)}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.impute is not None
        return tags


class MSCAN(MSCAM):
    """Multi-view clustering with adaptive neighbors of self-representations: MSCAM without a metric.

    This is the simpler model of the paper. The consensus graph is built from the distances between the
    columns of the self-representations, and the graph smooths these columns.

    Parameters and attributes are those of `MSCAM`, but the constants `identity_weight`, `metric_ridge`
    and `admm` have no effect, and ``view_embeddings_[view]`` is the smoothed self-representation of the
    view, (n_samples, r_v), in the directions of the view that take part in the smoothing.

    References
    ----------
    N. Xu, Y. Guo, J. Wang, X. Luo, R. He, "Joint Adaptive Neighbours and Metric Learning for
    Multi-view Subspace Clustering", arXiv:1709.03656.
    """

    _model: Model = "mscan"
