"""Parameters of an estimator as a fit takes them: candidate settings, executor, callbacks and checkpoint store."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pickle import PicklingError, dumps
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar, cast

import numpy as np
from msgspec import Meta

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import RowSource
from mscam_dask.engine.executors.base import Executor, SerialExecutor, ThreadExecutor
from mscam_dask.engine.prepare import exact_limit
from mscam_dask.engine.session import CheckpointStore, Observer
from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.types.allowed import Count, check_value
from mscam_dask.types.parameters import Choices, Constants, Parameters, Scale, ViewSettings
from mscam_dask.types.rules import CONSTANTS, SIZES

if TYPE_CHECKING:
    from distributed import Client
    from distributed.deploy.cluster import Cluster

    from mscam_dask.estimators.mscam import MSCAM

# Candidates for scale and α of each view: docs/decisions/0014.
_SCALES: tuple[Scale, ...] = ("unit", "standard")
_ALPHAS = (10.0, 1.0, 0.1)

# Candidate scale, α and k for one view, in order (ties go to the earlier one): docs/decisions/0014.
# The last are those of the paper.
_SETTINGS: tuple[tuple[Scale, float, int], ...] = (
    ("unit", 10.0, CONSTANTS.n_neighbors),
    ("standard", 10.0, CONSTANTS.n_neighbors),
    ("standard", 1.0, 9),
)

# Smallest number of clusters for "auto".
_MIN_CLUSTERS = 2


def candidates(estimator: MSCAM, data: MultiViewData) -> tuple[Parameters, ...]:
    """Candidate settings, in the order in which they are tried; scale and α of views with options are selected later."""
    constants, by_view = constants_of(estimator), _is_by_view(estimator)
    tried = _SETTINGS if constants.auto_settings else _SETTINGS[-1:]
    common: dict[str, Any] = {
        "n_clusters": _most_clusters(estimator, data.n_samples),
        "seed": seed_of(
            estimator.random_state, is_continued=estimator.checkpoint_store is not None
        ),
        "max_iter": estimator.max_iter,
        "constants": constants,
        "model": estimator._model,
        "exclude_views": excluded_positions(estimator.exclude_views, data.view_names),
        **exact_limit(data),
    }
    if options := _options(estimator, data):
        tried = ((options[0].scale, options[0].alpha, CONSTANTS.n_neighbors),)
    elif by_view:
        tried = tried[:1]
        common["view_settings"] = _settings_by_view(estimator, data.view_names)
    given = ("n_neighbors",) if by_view else ("n_neighbors", "scale", "alpha")
    common |= {
        name: getattr(estimator, name) for name in given if getattr(estimator, name) is not None
    }
    found = []
    for scale, alpha, k in tried:
        one = Parameters(**{"scale": scale, "alpha": alpha, "n_neighbors": k, **common})
        if not _any_features(data):
            one = dataclasses.replace(one, scale=tried[0][0])
        if estimator.n_neighbors is None:  # a default, which is adapted to the data
            most = data.n_samples - 1
            if constants.auto_settings and not selects_n_clusters(estimator):
                # the mean size of a cluster
                most = min(most, data.n_samples // one.n_clusters)
            one = dataclasses.replace(one, n_neighbors=min(k, max(1, most)))
        found.append(one)
    return tuple(dict.fromkeys(found))


def choices_of(estimator: MSCAM, data: MultiViewData) -> Choices:
    """Choices that the fit makes in addition to the candidate settings."""
    return Choices(
        _options(estimator, data),
        selects_n_clusters(estimator),
        initial_graph=constants_of(estimator).auto_settings,
        may_exclude_views=estimator.exclude_views is None,
    )


def constants_of(estimator: MSCAM) -> Constants:
    """Constants of the method, by default those of the package."""
    allowed = Annotated[Constants | None, Meta(title="a mscam_dask.Constants, or None")]
    return check_value("constants", estimator.constants, allowed) or Constants()


def selects_n_clusters(estimator: MSCAM) -> bool:
    """Whether the number of clusters is selected."""
    given = check_value("n_clusters", estimator.n_clusters, Count | Literal["auto"])
    return isinstance(given, str)


def _is_by_view(estimator: MSCAM) -> bool:
    return isinstance(estimator.scale, Mapping) or isinstance(estimator.alpha, Mapping)


def _options(estimator: MSCAM, data: MultiViewData) -> tuple[ViewSettings, ...]:
    """Candidate settings of a view; empty if there is no choice. Only feature views are scaled."""
    chooses = constants_of(estimator).auto_settings and len(data.views) > 1
    if not chooses or _is_by_view(estimator):
        return ()
    scales = _SCALES if _any_features(data) else _SCALES[:1]
    if estimator.scale is not None:
        scales = (cast("Scale", estimator.scale),)
    alphas = _ALPHAS if estimator.alpha is None else (cast("float", estimator.alpha),)
    options = tuple(ViewSettings(scale, alpha) for scale in scales for alpha in alphas)
    return options if len(options) > 1 else ()


def _settings_by_view(estimator: MSCAM, names: Sequence[str]) -> tuple[ViewSettings, ...]:
    """Given settings of each view."""
    columns = []
    for parameter in ("scale", "alpha"):
        value = getattr(estimator, parameter)
        by_view = value if isinstance(value, Mapping) else dict.fromkeys(names, value)
        if value is None or set(by_view) != set(names):
            raise ConfigurationError(
                f"{parameter}={value!r}, but scale or alpha is given by view: allowed is one value of both for each "
                f"of {list(names)}. Give both, or neither."
            )
        columns.append([by_view[name] for name in names])
    return tuple(map(ViewSettings, *columns))


def _most_clusters(estimator: MSCAM, n_samples: int) -> Any:
    """Number of clusters, which `Parameters` checks; if it is selected, the largest: the given one, or n / 10, at most 30."""
    asked, n_clusters = estimator.max_clusters, estimator.n_clusters
    if not selects_n_clusters(estimator):
        if asked is not None:
            raise ConfigurationError(
                f"max_clusters={asked!r} requires n_clusters='auto', but n_clusters is {n_clusters!r}. Remove it."
            )
        return n_clusters
    if n_samples <= _MIN_CLUSTERS:
        raise ConfigurationError(
            f"n_clusters='auto' with {n_samples} sample(s): allowed are {_MIN_CLUSTERS + 1} samples or more. "
            "Give the number of clusters."
        )
    if asked is None:
        return min(SIZES.max_clusters, max(_MIN_CLUSTERS, n_samples // 10))
    allowed = (
        f"a whole number from {_MIN_CLUSTERS} to {n_samples - 1} for {n_samples} samples, or None"
    )
    limits = Meta(ge=_MIN_CLUSTERS, lt=n_samples, title=allowed)
    return check_value("max_clusters", asked, Annotated[int, limits])


def excluded_positions(exclude_views: Any, names: Sequence[str]) -> tuple[int, ...]:
    """Positions of the excluded views in the order of the views; empty if they are selected."""
    excluded = () if exclude_views is None else exclude_views
    is_list = isinstance(excluded, Collection) and not isinstance(excluded, str)
    if not is_list or any(one not in names for one in excluded) or {*excluded} == {*names}:
        raise ConfigurationError(
            f"exclude_views={exclude_views!r} is not usable: allowed is a list of some, but not all, of "
            f"{list(names)}, or None."
        )
    return tuple(view for view, name in enumerate(names) if name in excluded)


def seed_of(random_state: object, *, is_continued: bool = False) -> int:
    """Seed of all random numbers of a fit; it must be a fixed one if the fit is continued from checkpoints."""
    if is_continued and (random_state is None or random_state is np.random):
        raise ConfigurationError(
            f"random_state={random_state!r} draws another seed for each fit, so no fit can resume from "
            "the checkpoints of checkpoint_store. Set random_state to a whole number."
        )
    if isinstance(random_state, int | np.integer) and random_state >= 0:
        return int(random_state)
    from sklearn.utils import check_random_state  # slow to import

    try:
        generator = check_random_state(random_state)
    except ValueError as error:
        raise ConfigurationError(
            f"random_state={random_state!r} is not usable: allowed is a whole number >= 0, a RandomState or None."
        ) from error
    return int(generator.randint(2**31 - 1))


def _any_features(data: MultiViewData) -> bool:
    return any(source.view_type == "features" for source in data.views)


# executor, callbacks and checkpoint store --------------------------------------------------------


_MAX_THREADS = 8


def executor_for(client: Client | None, n_jobs: object, *, watched: bool = False) -> Executor:
    """Executor of a fit: the workers of the client, with a dashboard page if `watched`, or `n_jobs` threads of this process."""
    if client is not None:
        from mscam_dask.engine.executors.dask import DaskExecutor
        from mscam_dask.monitor.dashboard.plugin import ensure_page, page_link

        executor = DaskExecutor(client)
        if watched:
            ensure_page(client)  # logs once why there is none
            executor.dashboard = page_link(client)
        return executor
    if n_jobs is None or n_jobs == -1:
        from dask.system import CPU_COUNT

        n_jobs = min(_MAX_THREADS, CPU_COUNT)
    allowed = Meta(title="a whole number >= 1, or None or -1 for all cores")
    n_threads = check_value("n_jobs", n_jobs, Annotated[Count, allowed])
    return SerialExecutor() if n_threads == 1 else ThreadExecutor(n_threads)


@contextlib.contextmanager
def connected(client: Client | Cluster | None) -> Iterator[Client | None]:
    """Client for tasks: the given one, or one of the given cluster that is closed at the end."""
    if client is None:
        yield None
        return
    # as Dask tells them apart
    is_cluster = isinstance(getattr(client, "scheduler_address", None), str)
    is_usable = is_cluster or hasattr(client, "scheduler_info")
    if isinstance(client, type) or not is_usable or client.asynchronous:
        address = repr(client) if isinstance(client, str) else "address"
        raise ConfigurationError(
            f"client={client!r} is not usable: allowed is a synchronous distributed.Client, such as "
            f"distributed.Client({address}), a cluster such as distributed.LocalCluster(), or None for "
            "threads of this process. Make it without asynchronous=True, or call fit in a thread (asyncio.to_thread)."
        )
    if not is_cluster:
        yield cast("Client", client)
        return
    from mscam_dask.engine.executors.dask import client_of

    with client_of(client) as own:
        yield own


def validate_callbacks(callbacks: object, checkpoint_store: object) -> None:
    """Raise for unusable callbacks or an unusable checkpoint store, before a fit starts."""
    if callbacks is not None and not (
        isinstance(callbacks, list | tuple) and all(callable(one) for one in callbacks)
    ):
        raise ConfigurationError(
            f"callbacks={callbacks!r} is not usable: allowed is a list of callables, each called with "
            "every event of the fit, or None."
        )
    if checkpoint_store is not None and not (
        callable(getattr(checkpoint_store, "load", None))
        and callable(getattr(checkpoint_store, "save", None))
    ):
        raise ConfigurationError(
            f"checkpoint_store={checkpoint_store!r} is not usable: allowed is an object with load and save, such as "
            "mscam_dask.data.checkpoints.FileCheckpointStore(directory), or None."
        )


def observers_of(
    estimator: Any, data: MultiViewData, n_clusters: int, client: Client | None, executor: Any
) -> tuple[Observer, ...]:
    """Callbacks of an estimator, and one for the dashboard of the cluster, where the fit is announced."""
    observers = tuple(estimator.callbacks or ())
    if client is None:
        return observers
    from mscam_dask.monitor.dashboard.plugin import ClusterEvents

    given = (one for one in observers if isinstance(one, ClusterEvents) and one.serves(client))
    events = next(given, None)
    if events is None:
        events = ClusterEvents(client)
        observers = (*observers, events)
    events.new_run(
        executor.run_id, views=data.view_names, n_samples=data.n_samples, n_clusters=n_clusters
    )
    return observers


_SHARED = ("client", "callbacks", "checkpoint_store")


class SharedResourcesMixin:
    """Mixin for estimators: clones share client, callbacks and checkpoint store; pickles omit what cannot be pickled."""

    client: Client | Cluster | None
    callbacks: Sequence[Observer] | None
    checkpoint_store: CheckpointStore | None

    def __sklearn_clone__(self) -> Self:
        """Unfitted estimator with the same parameters; see `sklearn.base.clone`."""
        bare = self.__copy__()
        for name in _SHARED:
            setattr(bare, name, None)
        cloned: Self = super(SharedResourcesMixin, bare).__sklearn_clone__()  # type: ignore[misc]  # of BaseEstimator
        for name in _SHARED:
            setattr(cloned, name, getattr(self, name))
        return cloned

    def __copy__(self) -> Self:
        """Shallow copy with client, callbacks and checkpoint store, which are valid in this process."""
        copied = type(self).__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    def __getstate__(self) -> dict[str, Any]:
        """State for pickles and deep copies."""
        state: dict[str, Any] = {**super().__getstate__(), "client": None}  # type: ignore[dict-item]  # untyped
        if self.callbacks is not None:
            state["callbacks"] = tuple(filter(_can_be_pickled, self.callbacks))
        if not _can_be_pickled(self.checkpoint_store):
            state["checkpoint_store"] = None
        return state


def _can_be_pickled(value: object) -> bool:
    try:
        dumps(value)
    except (PicklingError, TypeError, AttributeError):
        return False
    return True


_Result = TypeVar("_Result")


def map_views(
    function: Callable[[RowSource], _Result],
    views: Sequence[RowSource],
    executor: Executor,
    *,
    stage: str,
) -> list[_Result]:
    """Apply a function to each view, or part of a view, and return the results in their order.

    Stored views are read by one task each, so that a large store does not pass through the driver; arrays in its
    memory are processed there, unless tasks share this memory. DataError: that of the first view that has one.
    """
    is_task = [executor.shares_memory or not view.is_in_memory for view in views]
    of_tasks: Iterator[_Result | DataError] = iter(())
    if any(is_task):
        with executor:
            handles = [
                executor.submit(_outcome, function, view, key=f"{stage}/{view.name}")
                for view, own in zip(views, is_task, strict=True)
                if own
            ]
            of_tasks = iter(executor.gather(handles))
    results = []
    for view, own in zip(views, is_task, strict=True):
        outcome = next(of_tasks) if own else _outcome(function, view)
        if isinstance(outcome, DataError):
            raise outcome
        results.append(outcome)
    return results


def _outcome(function: Callable[[RowSource], _Result], view: RowSource) -> _Result | DataError:
    """Result of the function, or its data error, returned so that the task is not retried."""
    try:
        return function(view)
    except DataError as error:
        return error
