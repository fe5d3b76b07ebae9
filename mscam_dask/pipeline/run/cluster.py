"""The Dask cluster of a run: one started for it on this computer, or one that is running."""

from __future__ import annotations

import logging
import socket
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from mscam_dask import __version__
from mscam_dask.data.store.object_store import Location, as_location
from mscam_dask.errors import ClusterError, NoWorkersError
from mscam_dask.pipeline.config.settings import ExecutionTable
from mscam_dask.pipeline.run.graceful_shutdown import defer_signals
from mscam_dask.pipeline.tls.check import check_handshake

if TYPE_CHECKING:
    from distributed import Client, Security

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
_WORKERS_TIMEOUT_S = 60.0
_LOST_TIMEOUT_S = 2.0

_CONFIG = {"distributed.scheduler.no-workers-timeout": f"{_WORKERS_TIMEOUT_S:g}s"}

# What distributed logs about a lost worker or a closed connection, our own errors say in terms of
# the run. Workers write to the same terminal and learn it from their environment.
_LOGGERS = ("distributed", "distributed.client", "distributed.gc", "bokeh", "tornado", "asyncio")
# Another program may take the dashboard's port between our look and distributed's: it then takes
# a free one, which the run's own line names.
_PORT_TAKEN = r"Port \d+ is already in use"
_WORKER_ENVIRONMENT = {"DASK_LOGGING__DISTRIBUTED": "critical", "DASK_LOGGING__BOKEH": "critical"}


@dataclass(frozen=True)
class OpenCluster:
    """What runs the tasks.

    Attributes
    ----------
    client
        Connected client; None when the tasks run in this process.
    description
        One line for people.
    dashboard
        Dask's own, its address; None where there is none or this computer lacks bokeh.
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

    Raises
    ------
    ClusterError
        When workers do not start, or the scheduler does not answer.
    """
    if execution.in_process:
        yield OpenCluster(client=None, description="in this process")
        return
    import dask.config

    with ExitStack() as stack:
        stack.enter_context(_quiet())
        if execution.scheduler is not None:
            yield stack.enter_context(_connected(execution))
        else:
            stack.enter_context(dask.config.set(_CONFIG))
            yield stack.enter_context(_started(execution))


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
def _started(execution: ExecutionTable) -> Iterator[OpenCluster]:
    from dask.system import CPU_COUNT
    from distributed import Client, LocalCluster

    n_workers = execution.workers or CPU_COUNT
    n_threads = execution.threads or 1
    memory = execution.memory_limit
    with ExitStack() as stack:
        try:
            with defer_signals(), warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=_PORT_TAKEN)
                cluster = LocalCluster(
                    n_workers=n_workers,
                    threads_per_worker=n_threads,
                    processes=True,
                    host="127.0.0.1",
                    dashboard_address=_dashboard_address(),
                    memory_limit="auto" if memory is None else memory,
                    silence_logs=logging.CRITICAL,
                    env=_WORKER_ENVIRONMENT,
                )
                stack.enter_context(cluster)
            client = stack.enter_context(Client(cluster, set_as_default=False))
            client.wait_for_workers(n_workers, timeout=_WORKERS_TIMEOUT_S)
        except (OSError, RuntimeError, TimeoutError) as error:
            raise ClusterError(
                f"a cluster of {n_workers} worker processes could not be started on this computer: "
                f"{str(error).rstrip('.')}. Try --workers 1, or --in-process for none; mscam-dask "
                "doctor says what is wrong."
            ) from error
        plural = "" if n_workers == 1 else "es"
        threads = "" if n_threads == 1 else f" of {n_threads} threads"
        yield OpenCluster(
            client=client,
            description=f"{n_workers} worker process{plural}{threads} on this computer",
            dashboard=_dashboard_of(client),
        )


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
            raise ClusterError(
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
    """Close a client, soon also when its scheduler is gone and it is looking for it."""
    if client.status == "running":
        client.close()
        return
    with suppress(TimeoutError, OSError):  # the error that is on its way says what happened
        client.close(timeout=_LOST_TIMEOUT_S)


def _security(execution: ExecutionTable) -> Security | None:
    from distributed import Security

    if not (execution.scheduler or "").startswith("tls://"):
        return None
    given = {
        "tls_ca_file": execution.tls_ca,
        "tls_client_cert": execution.tls_cert,
        "tls_client_key": execution.tls_key,
    }
    return Security(
        require_encryption=True, **{key: value for key, value in given.items() if value}
    )


def page_of(client: Client) -> tuple[str, tuple[str, ...]]:
    """Have the run shown on the cluster's dashboard.

    Returns
    -------
    words : str
        Address of our page, or of the dashboard, or why there is neither.
    notes : tuple of str
        Why our page is not there although there is a dashboard.
    """
    from mscam_dask.monitor.dashboard.client import ensure_page, page_link

    problem, link = ensure_page(client, log=False), page_link(client)
    if link is None:
        return f"no dashboard: {problem or 'the scheduler serves none'}", ()
    notes = () if problem is None else (f"The dashboard has no page of this run: {problem}.",)
    return f"dashboard {link}", notes


def observers_of(cluster: OpenCluster, name: str) -> tuple[Observer, ...]:
    """Return what sends a run's events to the cluster's dashboard and metrics under a name."""
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
        When no worker joins within a minute.
    ClusterError
        Naming the workers that lack something.
    """
    client = cluster.client
    if client is None:
        return
    try:
        client.wait_for_workers(1, timeout=_WORKERS_TIMEOUT_S)
    except TimeoutError as error:
        raise NoWorkersError(
            f"{cluster.description} has no worker, and none joined within "
            f"{_WORKERS_TIMEOUT_S:g} s. Start workers, for example: dask worker "
            f"{client.scheduler_info(n_workers=0)['address']}"
        ) from error
    names = [str(path) for path in paths]
    answers: dict[str, Any] = client.run(_probe, names, on_error="return")
    for worker, answer in answers.items():
        if isinstance(answer, BaseException):
            raise ClusterError(
                f"worker {worker} cannot run mscam_dask: {type(answer).__name__}: {answer}. "
                f"Install mscam-dask {__version__} on every worker."
            ) from answer
        version, missing = answer
        if version != __version__:
            raise ClusterError(
                f"worker {worker} has mscam_dask {version}, this is {__version__}. Install the "
                "same version everywhere."
            )
        if missing:
            raise ClusterError(
                f"worker {worker} does not see {', '.join(missing)}. Put data and run directory "
                "(--output) on storage that all workers mount under the same path."
            )


def _probe(names: list[str]) -> tuple[str, list[str]]:
    """Runs on a worker: its version of this package, and the paths it does not see."""
    return __version__, [name for name in names if not as_location(name).exists()]
