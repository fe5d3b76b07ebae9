"""Dask cluster of a run: started for it on this computer, or running elsewhere."""

from __future__ import annotations

import logging
import socket
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from mscam_dask.data.store.object_store import Location, as_location
from mscam_dask.errors import ClusterError, ClusterStartError, SchedulerLostError
from mscam_dask.pipeline.config.settings import ExecutionTable
from mscam_dask.pipeline.run.graceful_shutdown import defer_signals
from mscam_dask.pipeline.tls.check import check_handshake

if TYPE_CHECKING:
    from distributed import Client, Security, SpecCluster

    from mscam_dask.engine.fit import Observer

__all__ = [
    "OpenCluster",
    "check_workers",
    "observers_of",
    "open_cluster",
    "page_of",
    "smallest_memory_bytes",
]

_DASHBOARD_PORT = 8787
_CONNECT_TIMEOUT_S = 15.0
_LOST_TIMEOUT_S = 2.0
_START_ATTEMPTS = 2

# The pages that only show: none that retires workers or forwards requests.
_DASHBOARD_CONFIG = {
    "distributed.scheduler.http.routes": [
        "distributed.http.scheduler.prometheus",
        "distributed.http.scheduler.info",
        "distributed.http.scheduler.json",
        "distributed.http.health",
        "distributed.http.statics",
    ],
}

# Our own errors say what distributed logs about a lost worker or a closed connection. Workers
# write to the same terminal and learn it from their environment.
_LOGGERS = ("distributed", "distributed.client", "distributed.gc", "bokeh", "tornado", "asyncio")
# Another program may take the dashboard's port between our probe and distributed's: it then takes
# a free one, which the run's own line names.
_PORT_TAKEN = r"Port \d+ is already in use"
_WORKER_ENVIRONMENT = {"DASK_LOGGING__DISTRIBUTED": "critical", "DASK_LOGGING__BOKEH": "critical"}


@dataclass(frozen=True)
class OpenCluster:
    """Executor of a run's tasks.

    Attributes
    ----------
    client
        Connected client; None when the tasks run in this process.
    description
        One line for people.
    dashboard
        Address of Dask's dashboard; None where there is none or this computer lacks bokeh.
    """

    client: Client | None
    description: str
    dashboard: str | None = None


def smallest_memory_bytes() -> int:
    """Memory this process and its children may use, container limits included, in bytes."""
    from distributed.system import MEMORY_LIMIT

    return int(MEMORY_LIMIT)


@contextmanager
def open_cluster(execution: ExecutionTable) -> Iterator[OpenCluster]:
    """Start a cluster on this computer, or connect to a running one; closed on leaving.

    Parameters
    ----------
    execution
        Checked by `mscam_dask.pipeline.config.validate.check_execution`.

    Notes
    -----
    A cluster that is started is closed to other users of the computer: scheduler and workers
    accept certificates only that are made for it and exist in the memory of its processes alone.

    Raises
    ------
    ClusterStartError
        When workers do not start.
    SchedulerLostError
        When nothing answers at the address of the scheduler.
    ClusterError
        When the scheduler refuses the connection.
    """
    if execution.in_process:
        yield OpenCluster(client=None, description="in this process")
        return
    import dask.config

    from mscam_dask.engine.executors.dask import workers_timeout_s

    with ExitStack() as stack:
        stack.enter_context(_quiet())
        if execution.workers_timeout is not None:
            stack.enter_context(
                dask.config.set({"mscam.workers-timeout": execution.workers_timeout})
            )
        if execution.scheduler is not None:
            yield stack.enter_context(_connected(execution))
        else:
            timeout_s = workers_timeout_s()
            stack.enter_context(dask.config.set(_DASHBOARD_CONFIG))
            stack.enter_context(
                dask.config.set({"distributed.scheduler.no-workers-timeout": f"{timeout_s}s"})
            )
            yield stack.enter_context(_started(execution, timeout_s))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep distributed's log out of the terminal while a cluster is open."""
    import distributed  # noqa: F401 - its import sets the levels that are changed here

    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def _started(execution: ExecutionTable, timeout_s: float) -> Iterator[OpenCluster]:
    from dask.system import CPU_COUNT
    from distributed import Client

    n_workers = execution.workers or CPU_COUNT
    n_threads = execution.threads or 1
    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(_local_cluster(execution, n_workers, n_threads))
            client = stack.enter_context(Client(cluster, set_as_default=False))
            client.wait_for_workers(n_workers, timeout=timeout_s)
        except (OSError, RuntimeError, TimeoutError) as error:
            raise ClusterStartError(
                f"a cluster of {n_workers} worker processes could not be started on this computer: "
                f"{str(error).rstrip('.')}. Try --workers 1, or --in-process for none; mscam-dask "
                "doctor checks this computer."
            ) from error
        plural = "" if n_workers == 1 else "es"
        threads = "" if n_threads == 1 else f" of {n_threads} threads"
        yield OpenCluster(
            client=client,
            description=f"{n_workers} worker process{plural}{threads} on this computer",
            dashboard=_dashboard_of(client),
        )


def _local_cluster(execution: ExecutionTable, n_workers: int, n_threads: int) -> SpecCluster:
    """Start worker processes; once more where one of them died while it started."""
    from distributed import LocalCluster, Security

    memory = execution.memory_limit
    for attempt in range(1, _START_ATTEMPTS + 1):
        try:
            with defer_signals(), warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=_PORT_TAKEN)
                return LocalCluster(
                    n_workers=n_workers,
                    threads_per_worker=n_threads,
                    processes=True,
                    host="127.0.0.1",
                    protocol="tls://",
                    security=Security.temporary(),
                    dashboard_address=_dashboard_address(),
                    memory_limit="auto" if memory is None else memory,
                    silence_logs=logging.CRITICAL,
                    env=_WORKER_ENVIRONMENT,
                )
        except RuntimeError:
            if attempt == _START_ATTEMPTS:
                raise
    raise AssertionError


def _dashboard_address() -> str:
    """Loopback address for the dashboard, or metrics alone: the usual port when it is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", _DASHBOARD_PORT))
        except OSError:
            return "127.0.0.1:0"
    return f"127.0.0.1:{_DASHBOARD_PORT}"


def _dashboard_of(client: Client) -> str | None:
    if find_spec("bokeh") is None:
        return None  # metrics alone are served
    services = client.scheduler_info(n_workers=0).get("services", {})
    return str(client.dashboard_link) if "dashboard" in services else None


@contextmanager
def _connected(execution: ExecutionTable) -> Iterator[OpenCluster]:
    from distributed import Client

    address = execution.scheduler
    check_handshake(execution)
    with ExitStack() as stack:
        try:
            client = Client(
                address,
                security=_security(execution),
                timeout=_CONNECT_TIMEOUT_S,
                set_as_default=False,
            )
            stack.callback(_leave, client)
        except (OSError, RuntimeError, TimeoutError, ValueError) as error:
            raise SchedulerLostError(
                f"the scheduler {address} does not answer as a Dask scheduler should: {error}. "
                "Check that it runs, the address, and for tls:// that its certificate and yours "
                "come from the same authority."
            ) from error
        yield OpenCluster(
            client=client,
            description=f"the cluster at {address}",
            dashboard=_dashboard_of(client),
        )


def _leave(client: Client) -> None:
    """Close a client, quickly also when its scheduler is gone."""
    if client.status == "running":
        client.close()
        return
    with suppress(TimeoutError, OSError):  # another error is on its way
        client.close(timeout=_LOST_TIMEOUT_S)


def _security(execution: ExecutionTable) -> Security | None:
    from distributed import Security

    if not (execution.scheduler or "").startswith("tls://"):
        return None
    files = {
        "tls_ca_file": execution.tls_ca,
        "tls_client_cert": execution.tls_cert,
        "tls_client_key": execution.tls_key,
    }
    return Security(require_encryption=True, **{key: file for key, file in files.items() if file})


def page_of(client: Client) -> tuple[str, tuple[str, ...]]:
    """Add the page of this package to the cluster's dashboard.

    Returns
    -------
    words : str
        Address of our page, or of the dashboard, or the reason why there is neither.
    notes : tuple of str
        The reason why our page is missing from a dashboard.
    """
    from mscam_dask.monitor.dashboard.client import ensure_page, page_link

    problem, link = ensure_page(client, log=False), page_link(client)
    if link is None:
        return f"no dashboard: {problem or 'the scheduler serves none'}", ()
    notes = () if problem is None else (f"The dashboard has no page of this run: {problem}.",)
    return f"dashboard {link}", notes


def observers_of(cluster: OpenCluster, name: str) -> tuple[Observer, ...]:
    """Observers that send a run's events to the cluster's dashboard and metrics under a name."""
    from mscam_dask.monitor.dashboard.client import ClusterEvents

    return () if cluster.client is None else (ClusterEvents(cluster.client, name=name),)


def check_workers(cluster: OpenCluster, paths: Sequence[Location]) -> None:
    """Check that every worker has this package and sees the data, before any task is sent.

    Parameters
    ----------
    cluster
    paths
        Stores that tasks read.

    Raises
    ------
    NoWorkersError
        When no worker joins in time.
    ClusterError
        Naming the workers that lack something.
    """
    client = cluster.client
    if client is None:
        return
    from mscam_dask.engine.executors.dask import (
        ask_workers,
        check_versions,
        wait_for_a_worker,
        workers_timeout_s,
    )

    timeout_s = workers_timeout_s()
    wait_for_a_worker(client, timeout_s)
    check_versions(client, timeout_s)
    names = [str(path) for path in paths]
    for worker, answer in ask_workers(client, _missing, names, timeout_s=timeout_s).items():
        if isinstance(answer, BaseException):
            raise ClusterError(
                f"worker {worker} cannot open {', '.join(names)}: {type(answer).__name__}: {answer}. "
                "Check that workers may read the data."
            ) from answer
        if answer:
            raise ClusterError(
                f"worker {worker} does not see {', '.join(answer)}. Put data and run directory "
                "(--output) on storage that all workers mount under the same path."
            )


def _missing(names: list[str]) -> list[str]:
    """Those of some paths that this worker does not see."""
    return [name for name in names if not as_location(name).exists()]
