"""Executor, observers, callbacks and checkpoint store of an estimator, and functions applied to its views."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from msgspec import Meta

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import RowSource
from mscam_dask.engine.executors.base import Executor, SerialExecutor, ThreadExecutor
from mscam_dask.engine.session import Observer
from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.types.allowed import Count, check_value

if TYPE_CHECKING:
    from distributed import Client

_MAX_THREADS = 8


def executor_for(client: Client | None, n_jobs: object) -> Executor:
    """Executor of a fit: the workers of the client, or `n_jobs` threads of this process."""
    if client is not None:
        if not hasattr(client, "submit") or getattr(client, "asynchronous", True):
            given = repr(client) if isinstance(client, str) else "cluster"
            raise ConfigurationError(
                f"client={client!r} is not usable: allowed is a synchronous distributed.Client, such as "
                f"distributed.Client({given}), or None for threads of this process. Make it without "
                "asynchronous=True, or call fit in a thread (asyncio.to_thread)."
            )
        from mscam_dask.engine.executors.dask import DaskExecutor

        return DaskExecutor(client)
    if n_jobs is None or n_jobs == -1:
        from dask.system import CPU_COUNT

        n_jobs = min(_MAX_THREADS, CPU_COUNT)
    allowed = Meta(title="a whole number >= 1, or None or -1 for all cores")
    n_threads = check_value("n_jobs", n_jobs, Annotated[Count, allowed])
    return SerialExecutor() if n_threads == 1 else ThreadExecutor(n_threads)


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
    estimator: Any, data: MultiViewData, n_clusters: int, executor: Any
) -> tuple[Observer, ...]:
    """Callbacks of an estimator, and one for the dashboard of the cluster, where the fit is announced."""
    observers, client = tuple(estimator.callbacks or ()), estimator.client
    if client is None:
        return observers
    from mscam_dask.monitor.dashboard.plugin import ClusterEvents, page_link

    given = (one for one in observers if isinstance(one, ClusterEvents) and one.serves(client))
    events = next(given, None)
    if events is None:
        events = ClusterEvents(client)
        observers = (*observers, events)
    events.new_run(
        executor.run_id, views=data.view_names, n_samples=data.n_samples, n_clusters=n_clusters
    )
    executor.dashboard = page_link(client)
    return observers


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
