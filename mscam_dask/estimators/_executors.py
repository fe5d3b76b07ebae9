"""Executors and observers of a fit, from the parameters of an estimator."""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING

from mscam_dask.data.views.as_multi_view import MultiViewData
from mscam_dask.engine.executors.base import Executor
from mscam_dask.engine.executors.local import SerialExecutor, ThreadExecutor, usable_cores
from mscam_dask.engine.fit import Observer
from mscam_dask.errors import ConfigurationError

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["executor_for", "validate_callbacks", "validate_client", "with_dashboard"]

_MOST_THREADS = 8


def executor_for(client: Client | None, n_jobs: object, run_id: str | None = None) -> Executor:
    """Executor of a fit: the workers of the client, or `n_jobs` threads of this process.

    Raises
    ------
    ConfigurationError
        `n_jobs` is not a whole number of threads, None or −1.
    ClusterError
        The client is closed.
    """
    if client is not None:
        from mscam_dask.engine.executors.dask import DaskExecutor
        from mscam_dask.monitor.dashboard.client import page_link

        watched = None if run_id is None else page_link(client)
        return DaskExecutor(client, run_id=run_id, dashboard=watched)
    if n_jobs is None or n_jobs == -1:
        n_jobs = min(_MOST_THREADS, usable_cores())
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, Integral) or n_jobs < 1:
        raise ConfigurationError(
            f"n_jobs={n_jobs!r} is not usable: allowed is a whole number >= 1, or None "
            "or -1 for all cores."
        )
    return SerialExecutor() if n_jobs == 1 else ThreadExecutor(int(n_jobs))


def validate_client(client: object) -> None:
    """Raise for a client that a fit cannot use, before anything is sent to it.

    Raises
    ------
    ConfigurationError
        `client` is neither None nor a synchronous `distributed.Client`.
    """
    if client is None:
        return
    if not hasattr(client, "scheduler_info"):
        raise ConfigurationError(
            f"client={client!r} is not usable: allowed is a distributed.Client, which "
            "distributed.Client(address) makes, or None for threads of this process."
        )
    if client.asynchronous:  # type: ignore[attr-defined]
        raise ConfigurationError(
            "client is asynchronous: allowed is a synchronous distributed.Client. Make it with "
            "distributed.Client(address), or call fit in a thread (asyncio.to_thread)."
        )


def validate_callbacks(callbacks: object, checkpoint_store: object) -> None:
    """Raise for unusable callbacks or an unusable checkpoint store, before a fit starts.

    Raises
    ------
    ConfigurationError
        `callbacks` is neither None nor a list of callables, or `checkpoint_store` has no load and save.
    """
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


def with_dashboard(
    observers: tuple[Observer, ...],
    client: Client,
    *,
    name: str,
    data: MultiViewData,
    n_clusters: int,
) -> tuple[tuple[Observer, ...], str]:
    """Observers including one for the dashboard of the cluster, and the id of the run there."""
    from mscam_dask.monitor.dashboard.client import ClusterEvents

    given = [one for one in observers if isinstance(one, ClusterEvents)]
    events = next((one for one in given if one.serves(client)), None)
    if events is None:
        events = ClusterEvents(client, name=name)
        observers = (*observers, events)
    run_id = events.new_run(views=data.view_names, n_samples=data.n_samples, n_clusters=n_clusters)
    return observers, run_id
