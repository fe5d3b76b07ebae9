"""The scikit-learn face: `MSCAM` and `MSCAN`."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from mscam_dask.data.history import count_dataset, history_dataset
from mscam_dask.data.validation import check_finite, validate
from mscam_dask.data.views import MultiViewData, as_multi_view
from mscam_dask.engine.checkpointing import Checkpointer
from mscam_dask.engine.executor import Executor
from mscam_dask.engine.fit import Observer, run_fit
from mscam_dask.engine.local import SerialExecutor, ThreadExecutor, usable_cores
from mscam_dask.engine.paper import run_paper
from mscam_dask.engine.plan import check_memory
from mscam_dask.engine.warm import UNKNOWN
from mscam_dask.errors import (
    ConfigurationError,
    ConvergenceWarning,
    DataError,
    DataTypeError,
    MscamError,
)
from mscam_dask.model.candidates import (
    Choices,
    Fixed,
    most_clusters,
    preparation_options,
    settings_to_try,
)
from mscam_dask.model.parameters import Model, Parameters, Preparation, Scale
from mscam_dask.model.solution import Solution
from mscam_dask.model.status import Status
from mscam_dask.monitor.fit_callbacks import CallbackSupportMixin, FitCallbacks, with_callbacks
from mscam_dask.solvers.assign import assign_by_neighbors
from mscam_dask.solvers.view_basis import row_blocks

if TYPE_CHECKING:
    import xarray
    from distributed import Client
    from scipy.sparse import csr_array

__all__ = ["MSCAM", "MSCAN"]

_SOLVERS = ("reduced", "paper")

# Coordinates of new samples, in units of the training samples' spread, whose squares are numbers.
_FARTHEST = 1e150


class _ConsensusClustering(CallbackSupportMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]  # untyped bases
    """What MSCAM and MSCAN share: taking views in, running the fit, showing the result."""

    _model: Model

    labels_: NDArray[np.int64]
    consensus_graph_: csr_array[np.float64]
    n_connected_components_: int
    status_: Status
    n_iter_: int
    n_neighbors_: int
    score_: float
    view_names_: tuple[str, ...]
    view_embeddings_: dict[str, NDArray[np.float64]]
    view_contributions_: dict[str, float]
    view_preparations_: dict[str, Preparation]
    n_clusters_: int
    solution_: Solution
    data_findings_: tuple[Any, ...]

    def _parameters(self, setting: Mapping[str, Any]) -> Parameters:
        raise NotImplementedError

    @with_callbacks
    def fit(self, X: Any, y: object = None) -> Self:
        """Cluster the samples.

        Parameters
        ----------
        X : list or dict of (n_samples, n_features_v) arrays, xarray.Dataset, store path or array
            The views: NumPy, SciPy sparse or Dask arrays of any real dtype; the path of a store
            made by ``mscam-dask ingest``; or one (n_samples, n_features) array, cut into views
            by `view_sizes`. Row i is sample i in every view.
        y : ignored
            Present for scikit-learn; labels never enter a fit.

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
            The Dask cluster cannot carry the work.
        """
        if self.solver not in _SOLVERS:
            raise ConfigurationError(
                f"solver={self.solver!r} is not usable: allowed is one of {_SOLVERS}."
            )
        data = self._views(X, reset=True)
        candidates = self._candidates(data)
        first = candidates[0]
        report = validate(data, n_clusters=first.n_clusters, n_neighbors=first.n_neighbors)
        solution = self._solve(data, candidates)
        self.solution_ = solution
        self.labels_ = solution.labels
        self.consensus_graph_ = solution.consensus_graph
        self.n_clusters_ = solution.parameters.n_clusters
        self.n_connected_components_ = solution.n_connected_components
        self.status_ = solution.status
        self.n_iter_ = len(solution.history)
        self.n_neighbors_ = solution.n_neighbors
        self.score_ = solution.score
        self.view_names_ = data.view_names
        self.view_embeddings_ = solution.view_embeddings
        self.view_contributions_ = solution.view_contributions
        self.view_preparations_ = {
            name: solution.parameters.preparation(index)
            for index, name in enumerate(data.view_names)
        }
        self.data_findings_ = tuple(report.findings)
        self._training = data
        return self

    def settings_tried(self, X: Any) -> tuple[Parameters, ...]:
        """The settings that a fit of `X` would choose from; nothing is fitted.

        Parameters
        ----------
        X : as for `fit`
        """
        return self._candidates(self._views(X, reset=True))

    def _candidates(self, data: MultiViewData) -> tuple[Parameters, ...]:
        """The settings to try: what the user fixed is fixed, what is None is chosen."""
        if self.selection not in ("auto", None):
            raise ConfigurationError(
                f"selection={self.selection!r} is not usable: allowed is 'auto' or None."
            )
        fixed = self._fixed()
        settings = settings_to_try(
            fixed,
            self._options(data),
            any_features=_any_features(data),
            choose=self.selection == "auto" and self.solver == "reduced",
        )
        common: dict[str, Any] = {"n_clusters": self._most_clusters(data), "seed": self._seed()}
        if fixed.by_view:
            common["preparations"] = fixed.preparations(data.view_names)
        if self.n_neighbors is None:  # what was chosen fits the data; what was asked for is checked
            most = max(1, data.n_samples - 1)
            settings = tuple(
                {**setting, "n_neighbors": min(setting["n_neighbors"], most)}
                for setting in settings
            )
        return tuple(dict.fromkeys(self._parameters({**one, **common}) for one in settings))

    def _most_clusters(self, data: MultiViewData) -> int:
        """The number of clusters or, where it is chosen, the most there may be."""
        if not self._chooses_count:
            if self.max_clusters is not None:
                raise ConfigurationError(
                    f"max_clusters={self.max_clusters!r} goes with n_clusters='auto', and n_clusters is "
                    f"{self.n_clusters!r}. Leave max_clusters out."
                )
            given: int = self.n_clusters  # checked by Parameters
            return given
        if self.solver == "paper":
            raise ConfigurationError(
                "solver='paper' takes the number of clusters as the paper does: n_clusters='auto' "
                "goes with solver='reduced'."
            )
        if self.initial_labels is not None:
            raise ConfigurationError(
                "initial_labels go with the number of clusters of the earlier fit, and n_clusters "
                "is 'auto'. Give that number (n_clusters_)."
            )
        return most_clusters(self.max_clusters, data.n_samples)

    @property
    def _chooses_count(self) -> bool:
        if not isinstance(self.n_clusters, str):
            return False
        if self.n_clusters != "auto":
            raise ConfigurationError(
                f"n_clusters={self.n_clusters!r} is not usable: allowed is a whole number >= 1, or "
                "'auto' to have it chosen without labels."
            )
        return True

    def _fixed(self) -> Fixed:
        return Fixed(self.scale, self.alpha, self.n_neighbors)

    def _options(self, data: MultiViewData) -> tuple[Preparation, ...]:
        """Preparations among which one is chosen for each view; none where there is no choice."""
        if self.selection is None or self.solver != "reduced" or len(data.views) < 2:
            return ()
        return preparation_options(self._fixed(), any_features=_any_features(data))

    def _solve(self, data: MultiViewData, candidates: tuple[Parameters, ...]) -> Solution:
        observers, run_id = self._observers(data, candidates[0].n_clusters)
        executor = self._executor(run_id)
        known = self._known(data, candidates)
        if self.solver == "paper":
            (parameters,) = candidates
            solution = run_paper(data, parameters, memory_limit_bytes=executor.memory_limit_bytes)
            if not solution.status.reached:
                warnings.warn(
                    f"{solution.n_connected_components} connected components instead of "
                    f"{parameters.n_clusters}: {solution.status.message}",
                    ConvergenceWarning,
                    stacklevel=3,
                )
            return solution
        for parameters in candidates:
            check_memory(data, parameters, executor)
        solution = run_fit(
            data,
            candidates,
            executor,
            choices=Choices(self._options(data), self._chooses_count),
            observers=observers,
            checkpointer=self.checkpointer,
            known=known,
        )
        _warn_of_spectra(solution)
        return solution

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Clusters of new samples, by their adaptive neighbours among the training samples.

        Parameters
        ----------
        X : as for `fit`
            The same views of other samples. A distance or kernel view holds the new samples'
            distances or kernel values to the training samples, (n_new, n_samples).

        Returns
        -------
        (n_new,) int64
        """
        check_is_fitted(self)
        if not self.solution_.encoders:
            raise ConfigurationError(
                f"solver={self.solver!r} has no form for new samples; fit with solver='reduced'."
            )
        fresh = self._views(X, reset=False)
        queries = self._anchors(fresh, 0, fresh.n_samples)
        train = self._training
        width = sum(source.shape[1] for source in train.views)

        def blocks() -> Iterator[tuple[int, NDArray[np.float64]]]:
            for start, stop in row_blocks(train.n_samples, width):
                yield start, self._anchors(train, start, stop)

        return assign_by_neighbors(queries, blocks(), self.labels_, n_neighbors=self.n_neighbors_)

    def _anchors(self, data: MultiViewData, start: int, stop: int) -> NDArray[np.float64]:
        encoders = self.solution_.encoders
        with np.errstate(over="ignore", invalid="ignore"):
            parts = [encoders[source.name](source.read(start, stop)) for source in data.views]
        for source, part in zip(data.views, parts, strict=True):
            far = np.flatnonzero(~(np.abs(part) < _FARTHEST).all(axis=1))
            if far.size:
                raise DataError(
                    f"View {source.name!r}: {far.size} new sample(s) are farther than {_FARTHEST:g} "
                    f"times the spread of the training samples (first rows: "
                    f"{(far[:5] + start).tolist()}); no distance to them can be computed. Check "
                    "their units."
                )
        return np.asarray(np.hstack(parts) / np.sqrt(len(parts)), dtype=np.float64)

    @property
    def cluster_counts_(self) -> xarray.Dataset | None:
        """Curves over the numbers of clusters looked at; None when the number was given."""
        check_is_fitted(self)
        counted = self.solution_.counted
        return None if counted is None else count_dataset(counted)

    @property
    def history_(self) -> xarray.Dataset:
        """The outer iterations, over (outer_iteration, view)."""
        check_is_fitted(self)
        return history_dataset(self.solution_.history, self.view_names_)

    def _views(self, X: Any, *, reset: bool) -> MultiViewData:
        """Views of `X`; one plain table goes through scikit-learn's own validation first."""
        if _is_plain_table(X):
            table = self._table(X, reset=reset)
            n_columns = table.shape[1]
            sizes = (n_columns,) if self.view_sizes is None else tuple(self.view_sizes)
            data = as_multi_view(table, view_sizes=sizes, metric=self.metric)
        elif self.view_sizes is not None:
            raise ConfigurationError(
                f"view_sizes={tuple(self.view_sizes)} goes with one 2-D array; the views given "
                "are separate already. Leave view_sizes out."
            )
        else:
            data = as_multi_view(X, metric=self.metric)
        return data if reset else self._as_fitted(data)

    def _table(self, X: Any, *, reset: bool) -> Any:
        """Scikit-learn's words, in an error of this package."""
        try:
            return validate_data(
                self, X, reset=reset, accept_sparse="csr", ensure_min_samples=2 if reset else 1
            )
        except MscamError:
            raise
        except TypeError as error:
            raise DataTypeError(str(error)) from error
        except ValueError as error:
            raise DataError(str(error)) from error

    def _as_fitted(self, data: MultiViewData) -> MultiViewData:
        """New samples' views, checked, in the order of the fit."""
        expected = {
            source.name: source.shape[0] if source.metric != "features" else source.shape[1]
            for source in self._training.views
        }
        got = {source.name: source.shape[1] for source in data.views}
        if got != expected:
            raise DataError(
                f"the fit saw views with these numbers of columns: {expected}; got {got}. "
                "Give the same views, by the same names, with the same features."
            )
        by_name = {source.name: source for source in data.views}
        for source in data.views:
            check_finite(source)
        return dataclasses.replace(data, views=tuple(by_name[name] for name in self.view_names_))

    def _known(
        self, data: MultiViewData, candidates: tuple[Parameters, ...]
    ) -> NDArray[np.int64] | None:
        """The clusters handed down by an earlier fit, checked."""
        if self.initial_labels is None:
            return None
        if self.solver == "paper":
            raise ConfigurationError(
                "solver='paper' starts as the paper does; leave initial_labels out."
            )
        labels = np.asarray(self.initial_labels)
        if labels.shape != (data.n_samples,) or labels.dtype.kind not in "iu":
            raise DataError(
                f"initial_labels has shape {labels.shape} and dtype {labels.dtype}; allowed is one "
                f"whole number for each of the {data.n_samples} samples."
            )
        n_clusters = candidates[0].n_clusters
        if labels.min() < UNKNOWN or labels.max() >= n_clusters or labels.max() == UNKNOWN:
            raise DataError(
                f"initial_labels go from {labels.min()} to {labels.max()}; allowed are 0 to "
                f"{n_clusters - 1}, and {UNKNOWN} for samples without one, not for all."
            )
        if len(candidates) > 1 or self._options(data):
            raise ConfigurationError(
                "initial_labels start from one setting, and scale, alpha or n_neighbors is left to "
                "be chosen. Give the three of the earlier fit (solution_.parameters)."
            )
        return labels.astype(np.int64)

    def _executor(self, run_id: str | None) -> Executor:
        if self.client is not None:
            from mscam_dask.engine.dask import DaskExecutor

            return DaskExecutor(self.client, run_id=run_id)
        n_threads = self.n_jobs
        if n_threads is None or n_threads == -1:
            n_threads = min(8, usable_cores())
        if isinstance(n_threads, bool) or not isinstance(n_threads, Integral) or n_threads < 1:
            raise ConfigurationError(
                f"n_jobs={self.n_jobs!r} is not usable: allowed is a whole number >= 1, or None "
                "or -1 for all cores."
            )
        return SerialExecutor() if n_threads == 1 else ThreadExecutor(int(n_threads))

    def _observers(
        self, data: MultiViewData, n_clusters: int
    ) -> tuple[tuple[Observer, ...], str | None]:
        """The callbacks; with a client, the one for its dashboard too, and the id of the run."""
        observers = () if self.callbacks is None else tuple(self.callbacks)
        if FitCallbacks.are_set(self):
            observers = (*observers, FitCallbacks(self))
        if self.client is None or self.solver == "paper":
            return observers, None
        from mscam_dask.monitor.dashboard.client import ClusterEvents

        given = [one for one in observers if isinstance(one, ClusterEvents)]
        events = next((one for one in given if one.serves(self.client)), None)
        if events is None:
            name = f"{type(self).__name__}, {data.n_samples} samples"
            events = ClusterEvents(self.client, name=name)
            observers = (*observers, events)
        run_id = events.new_run(
            views=data.view_names, n_samples=data.n_samples, n_clusters=n_clusters
        )
        return observers, run_id

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _warn_of_spectra(solution: Solution) -> None:
    """Say so when clusters were cut from eigenvectors that had not converged."""
    rough = [record.iteration for record in solution.history if not record.spectrum_converged]
    if rough:
        warnings.warn(
            f"the graph's eigenvectors did not reach their tolerance in {len(rough)} of "
            f"{len(solution.history)} outer iterations (first: {rough[0]}), so clusters cut from "
            "them may depend on random_state. Fit with another random_state and compare; if the "
            "clusters differ, a larger n_neighbors (a better connected graph) or fewer n_clusters "
            "gives eigenvalues that are easier to tell apart.",
            ConvergenceWarning,
            stacklevel=4,
        )


def _any_features(data: MultiViewData) -> bool:
    return any(source.metric == "features" for source in data.views)


def _is_plain_table(X: Any) -> bool:
    """Whether X is one table, as scikit-learn knows it, and not a collection of views."""
    if issparse(X):  # a dictionary of keys is a mapping as well
        return True
    if isinstance(X, MultiViewData | str | os.PathLike | Mapping):
        return False
    if type(X).__module__.partition(".")[0] == "xarray":
        return False
    if isinstance(X, Sequence):
        return len(X) > 0 and not any(hasattr(item, "shape") for item in X)
    return True


class MSCAM(_ConsensusClustering):
    """Multi-view clustering with a learned metric per view and one consensus graph.

    Every view's self-representation and Mahalanobis metric are fitted to a shared sparse graph,
    the graph to the views' distances, until its connected components are the clusters. There is
    no k-means on the result and no label in the fit.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        Number of clusters c. "auto": chosen without labels, from 2 to `max_clusters`; the
        curves it follows from are in `cluster_counts_` and told to the callbacks.
    alpha : float or mapping, optional
        Ridge of the self-representation, in units of a view's mean squared singular value; of
        all views, or by view name (`scale` then too). None: chosen.
    graph_weight : float, default=0.1
        First weight λ of the graph; it grows along the path.
    n_neighbors : int, optional
        Neighbours of a sample in the consensus graph. None: chosen.
    metric_floor : float, default=1.0
        Weight of the data distances beside the learned metric (M = floor·I + PPᵀ).
    metric_ridge : float, default=1.0
        Ridge on the metric factor P.
    scale : {"standard", "unit", "minmax", "none"} or mapping, optional
        Scaling of feature views before they are centred: columns to variance 1, rows to length
        1, columns to [0, 1], or as they are. None: chosen.
    selection : {"auto"} or None, default="auto"
        How `scale`, `alpha` and `n_neighbors` are chosen where they are None. "auto": view by
        view, the scaling and α whose nearest neighbours the other views confirm, and 20
        neighbours; with one view a few settings are started and the one whose clusters its
        neighbour graphs know most about is taken. No labels. None: "standard", 1 and 9, as in
        the paper.
    metric : {"features", "distance", "kernel"} or mapping or sequence, default="features"
        What the numbers of a view are; one for all, by view name, or in order.
    max_clusters : int, optional
        Most clusters that "auto" may choose; at least 2, fewer than samples. None: a tenth of the
        samples, 30 at most.
    view_sizes : sequence of int, optional
        Columns of each view when `fit` gets one 2-D array.
    max_outer_iter : int, default=30
        Most outer iterations.
    tol : float, default=1e-3
        Partition scores closer than this (relative) are a tie, which the simpler one wins.
    solver : {"reduced", "paper"}, default="reduced"
        "paper" runs the corrected Algorithm 2 literally, with dense n×n matrices: slow, for
        comparison on small data.
    random_state : int, RandomState or None, default=0
        Seed of the random start of the eigensolver; results differ only by its tolerance.
    n_jobs : int or None, default=None
        Threads of a fit in this process; None or -1 for all cores, 8 at most. The result does
        not depend on it.
    client : distributed.Client, optional
        Run on this Dask cluster, with the same result.
    callbacks : sequence of callable, optional
        Called with each event of `mscam_dask.model.records` as it happens: `FitStarted`,
        `ClusterCountEnded` (where the number of clusters was chosen), `SelectionEnded`, an
        `OuterRecord` for each outer iteration, `FitEnded` or `FitFailed`.
        Ready-made: `mscam_dask.monitor.progress.progress_on` for a terminal or notebook,
        `mscam_dask.monitor.events.JsonLines` for a file. With `client`, the Dask dashboard has a
        page of the fit without any. What a callback raises ends the fit. Callbacks of
        scikit-learn (1.9 and later) go to `set_callbacks` instead.
    checkpointer : Checkpointer, optional
        Keeps the state after each outer iteration, and may have one to go on from, such as
        ``mscam_dask.data.checkpoint.CheckpointStore(directory)``. It needs a fixed
        `random_state`; ``solver="paper"`` has no use for it.
    initial_labels : (n_samples,) array of int, optional
        Clusters of an earlier fit to start from, −1 for samples that it did not see; with its
        `scale`, `alpha` and `n_neighbors`. A matter of time only as far as the path allows: the
        result is judged as ever, and may differ from that of a fit without.

    Attributes
    ----------
    labels_ : (n_samples,) int64
        Clusters, numbered by first appearance.
    consensus_graph_ : (n_samples, n_samples) CSR
        A, rows on the simplex.
    n_connected_components_ : int
        Of `consensus_graph_`.
    n_clusters_ : int
        Clusters asked for, or chosen.
    cluster_counts_ : xarray.Dataset or None
        With ``n_clusters="auto"``: relative eigengap, modularity, information (nats) and
        stability over n_clusters, and the number taken as an attribute.
    status_ : Status
        How the clusters were reached; ``status_.message`` is a sentence.
    score_ : float
        Cross-view information of the partition in nats, the label-free mark used throughout.
    n_iter_ : int
        Outer iterations.
    n_neighbors_ : int
        Neighbours used; more than asked for when the data alone fall into too many pieces.
    view_names_ : tuple of str
    view_embeddings_ : dict of str to (n_samples, n_clusters)
        F_v given the final graph.
    view_contributions_ : dict of str to float
        Each view's share in the score, summing to 1.
    view_preparations_ : dict of str to Preparation
        Scaling and α of each view.
    history_ : xarray.Dataset
        Over (outer_iteration, view).
    data_findings_ : tuple
        What was found odd in the data but accepted (all-zero rows, constant columns).

    References
    ----------
    N. Xu, Y. Guo, J. Wang, X. Luo, X. He, "Multi-view clustering via simultaneously learning
    shared subspace and affinity matrix", arXiv:1709.03656.

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

    _model: Model = "mscam"

    def __init__(
        self,
        n_clusters: int | Literal["auto"] = 8,
        *,
        alpha: float | Mapping[str, float] | None = None,
        graph_weight: float = 0.1,
        n_neighbors: int | None = None,
        metric_floor: float = 1.0,
        metric_ridge: float = 1.0,
        scale: Scale | Mapping[str, Scale] | None = None,
        selection: Literal["auto"] | None = "auto",
        metric: str | Mapping[str, str] | Sequence[str] = "features",
        max_clusters: int | None = None,
        view_sizes: Sequence[int] | None = None,
        max_outer_iter: int = 30,
        tol: float = 1e-3,
        solver: Literal["reduced", "paper"] = "reduced",
        random_state: int | np.random.RandomState | None = 0,
        n_jobs: int | None = None,
        client: Client | None = None,
        callbacks: Sequence[Observer] | None = None,
        checkpointer: Checkpointer | None = None,
        initial_labels: ArrayLike | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.alpha = alpha
        self.graph_weight = graph_weight
        self.n_neighbors = n_neighbors
        self.metric_floor = metric_floor
        self.metric_ridge = metric_ridge
        self.scale = scale
        self.selection = selection
        self.metric = metric
        self.max_clusters = max_clusters
        self.view_sizes = view_sizes
        self.max_outer_iter = max_outer_iter
        self.tol = tol
        self.solver = solver
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.client = client
        self.callbacks = callbacks
        self.checkpointer = checkpointer
        self.initial_labels = initial_labels

    def _parameters(self, setting: Mapping[str, Any]) -> Parameters:
        return Parameters(
            model="mscam",
            **setting,
            graph_weight=self.graph_weight,
            metric_floor=self.metric_floor,
            metric_ridge=self.metric_ridge,
            max_outer_iter=self.max_outer_iter,
            tol=self.tol,
        )


class MSCAN(_ConsensusClustering):
    """Multi-view clustering with adaptive neighbours of self-representations, no metric learned.

    The simpler model of the paper: the graph follows plain distances between the columns of
    self-representations that the graph itself smooths.

    Parameters
    ----------
    n_clusters, alpha, graph_weight, n_neighbors, scale, selection, metric, max_clusters, view_sizes, \
max_outer_iter, tol, solver, random_state, n_jobs, client, callbacks, checkpointer, initial_labels
        As for `MSCAM`.

    Attributes
    ----------
    labels_, consensus_graph_, n_connected_components_, n_clusters_, cluster_counts_, status_, score_, \
n_iter_, n_neighbors_, view_names_, view_contributions_, history_, data_findings_
        As for `MSCAM`.
    view_embeddings_ : dict of str to (n_samples, r_v)
        The smoothed self-representation of each view in its own basis.

    References
    ----------
    As for `MSCAM`.
    """

    _model: Model = "mscan"

    def __init__(
        self,
        n_clusters: int | Literal["auto"] = 8,
        *,
        alpha: float | Mapping[str, float] | None = None,
        graph_weight: float = 0.1,
        n_neighbors: int | None = None,
        scale: Scale | Mapping[str, Scale] | None = None,
        selection: Literal["auto"] | None = "auto",
        metric: str | Mapping[str, str] | Sequence[str] = "features",
        max_clusters: int | None = None,
        view_sizes: Sequence[int] | None = None,
        max_outer_iter: int = 30,
        tol: float = 1e-3,
        solver: Literal["reduced", "paper"] = "reduced",
        random_state: int | np.random.RandomState | None = 0,
        n_jobs: int | None = None,
        client: Client | None = None,
        callbacks: Sequence[Observer] | None = None,
        checkpointer: Checkpointer | None = None,
        initial_labels: ArrayLike | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.alpha = alpha
        self.graph_weight = graph_weight
        self.n_neighbors = n_neighbors
        self.scale = scale
        self.selection = selection
        self.metric = metric
        self.max_clusters = max_clusters
        self.view_sizes = view_sizes
        self.max_outer_iter = max_outer_iter
        self.tol = tol
        self.solver = solver
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.client = client
        self.callbacks = callbacks
        self.checkpointer = checkpointer
        self.initial_labels = initial_labels

    def _parameters(self, setting: Mapping[str, Any]) -> Parameters:
        return Parameters(
            model="mscan",
            **setting,
            graph_weight=self.graph_weight,
            max_outer_iter=self.max_outer_iter,
            tol=self.tol,
        )
