"""Dask cluster of a run: started for it on this computer, or running elsewhere."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.resource_tracker import ensure_running
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from mscam_dask.data.store.object_store import Location, as_location
from mscam_dask.errors import ClusterError, ConfigurationError, NoWorkersError, SchedulerLostError
from mscam_dask.pipeline.config.cluster_types import is_queue, load_class, type_of
from mscam_dask.pipeline.config.settings import CLUSTER_TYPES, ExecutionTable
from mscam_dask.pipeline.run.cluster_classes import (
    configuration,
    new_cluster,
    public_configuration,
    role_options,
    scale,
    start_errors,
    worker_counts,
)
from mscam_dask.pipeline.run.graceful_shutdown import defer_signals
from mscam_dask.pipeline.run.security import (
    check_execution,
    check_handshake,
    is_encrypted,
    security_of,
    with_address,
)

if TYPE_CHECKING:
    from distributed import Client

    from mscam_dask.engine.session import Observer


_CONNECT_TIMEOUT_S = 15.0
_LOST_TIMEOUT_S = 2.0
_QUEUE_TIMEOUT_S = 3600.0
_POLL_S = 0.2

# Tasks of a SLURM job whose first process is the scheduler and whose second runs the pipeline.
_CLIENT_RANK = 1
_MIN_TASKS = 3


# Our own errors say what distributed logs about a lost worker or a closed connection.
_LOGGERS = ("distributed", "distributed.client", "distributed.gc", "bokeh", "tornado", "asyncio")


@dataclass(frozen=True)
class OpenCluster:
    """Executor of a run's tasks."""

    client: Client | None  # None when the tasks run in this process
    description: str  # for people


def smallest_memory_bytes() -> int:
    """Memory this process and its children may use, container limits included, in bytes."""
    from distributed.system import MEMORY_LIMIT

    return int(MEMORY_LIMIT)


def spill_threshold_bytes(memory_limit_bytes: int) -> int | None:
    """Bytes of results that a worker of this computer does not spill; None if it keeps all in memory."""
    import dask.config
    import distributed  # noqa: F401 - its import sets the default

    share = dask.config.get("distributed.worker.memory.target")
    return int(share * memory_limit_bytes) if share else None


@contextmanager
def open_cluster(execution: ExecutionTable) -> Iterator[OpenCluster]:
    """Start a cluster of the type in [execution], or connect to a running one; closed on leaving."""
    if execution.in_process:
        yield OpenCluster(client=None, description="in this process")
        return
    import dask.config

    from mscam_dask.engine.executors.dask import workers_timeout_s

    ensure_running()  # started by a deferred start of workers, its thread would receive SIGINT
    name = type_of(execution)
    with ExitStack() as stack:
        stack.enter_context(_quiet())
        if execution.workers_timeout is not None:
            own = {"mscam.workers-timeout": execution.workers_timeout}
            stack.enter_context(dask.config.set(own))
        if name in ("scheduler", "scheduler-file"):
            yield stack.enter_context(_connected(execution))
            return
        timeout_s = workers_timeout_s()
        stack.enter_context(dask.config.set(configuration(execution, name)))
        if name == "slurm-runner":
            yield stack.enter_context(_connected_in_slurm(execution))
            return
        if name == "local":
            waits = {"distributed.scheduler.no-workers-timeout": f"{timeout_s}s"}
        else:  # A job that is lost does not come back: another one is submitted soon.
            lost = dask.config.get("distributed.deploy.lost-worker-timeout")
            waits = {"mscam.lost-worker-timeout": lost}
        stack.enter_context(dask.config.set(waits))
        yield stack.enter_context(_started(execution, name, timeout_s))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep distributed's log out of the terminal while a cluster is open."""
    import distributed  # noqa: F401 - its import sets the levels that are changed here

    with ExitStack() as stack:
        for logger in map(logging.getLogger, _LOGGERS):
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.CRITICAL)
        yield


@contextmanager
def _started(execution: ExecutionTable, name: str, timeout_s: float) -> Iterator[OpenCluster]:
    """Start a cluster by one of Dask's classes, with its workers, and wait for the first."""
    from mscam_dask.engine.executors.dask import wait_for_a_worker

    with ExitStack() as stack:
        with start_errors(name), public_configuration(name):
            # Pods may take minutes to start, which a signal ends; KubeCluster starts no process.
            with nullcontext() if name == "kubernetes" else defer_signals():
                cluster = new_cluster(execution, name)
                stack.push(partial(_close_quietly, cluster))
            address = str(cluster.scheduler_address)
            if name not in CLUSTER_TYPES and not is_encrypted(address):
                raise ConfigurationError(
                    f"the cluster {name!r} has the scheduler {address} without encryption: anyone who reaches "
                    "the port can run code as this user. Give the class certificates (security), or start it "
                    "yourself and connect with --scheduler."
                )
            scale(cluster, execution, name)
            client = _client(stack, cluster)
        start_s = execution.start_timeout or (_QUEUE_TIMEOUT_S if is_queue(name) else timeout_s)
        try:
            if name != "local":  # which has waited for them
                wait_for_a_worker(client, start_s)
        except NoWorkersError as error:
            raise NoWorkersError(
                f"no worker of the cluster {name!r} has started within {start_s:g} s: there is no room, or "
                "workers end at once (see their logs). Try again later, or raise --start-timeout."
            ) from error
        least, most = worker_counts(execution)
        number = f"{least}" if least == most else f"{least} to {most}"
        if name == "local":
            threads = f" of {execution.threads} threads" if (execution.threads or 1) > 1 else ""
            kind = f"{'process' if number == '1' else 'processes'}{threads} on this computer"
            yield OpenCluster(client, f"{number} worker {kind}")
        else:
            workers = "worker" if number == "1" else "workers"
            yield OpenCluster(client, f"{number} {workers} of a {name} cluster")


def _close_quietly(cluster: Any, kind: type[BaseException] | None, *_: object) -> None:
    """Close a cluster; where another error is on its way, that is the one to report."""
    with nullcontext() if kind is None else suppress(Exception):
        cluster.close()


def _client(stack: ExitStack, target: Any, **options: Any) -> Client:
    """Connect a client, which the stack closes."""
    from distributed import Client

    with defer_signals():  # one that is half made keeps the process from ending
        client = Client(target, set_as_default=False, **options)
        stack.callback(_leave, client)
    return client


def serve_in_slurm(execution: ExecutionTable, *, insecure: bool) -> None:
    """Run the scheduler or a worker of a `slurm-runner` cluster in this task of srun.

    Returns at once in the task that runs the pipeline, and with other types of clusters. The other
    tasks end with the cluster, by SystemExit.
    """
    if execution.cluster != "slurm-runner":
        return
    try:
        rank, n_tasks = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    except (KeyError, ValueError) as error:
        raise ConfigurationError(
            "cluster = 'slurm-runner' works only inside tasks of srun, and this is not one. Start it in a SLURM job: "
            "srun --ntasks N --wait 60 mscam-dask run ..."
        ) from error
    if n_tasks < _MIN_TASKS:
        raise ConfigurationError(
            f"cluster = 'slurm-runner' has {n_tasks} task(s) of srun; allowed are at least {_MIN_TASKS}: the "
            "scheduler, the run and one for each worker. Raise --ntasks."
        )
    check_execution(execution, insecure=insecure)
    if rank == _CLIENT_RANK:
        return
    import dask.config

    runner = load_class("slurm-runner")
    n_threads = int(os.environ.get("SLURM_CPUS_PER_TASK", "1"))
    signal.signal(signal.SIGINT, lambda *_: sys.exit())  # the runner ends itself by this signal
    signal.set_wakeup_fd(-1)  # which is no interruption of the command
    with _quiet(), dask.config.set(configuration(execution, "slurm-runner")):
        roles = role_options(execution, scheduler={}, worker={"nthreads": n_threads})
        runner(scheduler_file=str(_slurm_file(execution)), **roles)
    sys.exit()


def _slurm_file(execution: ExecutionTable) -> Path:
    """Return the scheduler file of this start of a job, also when it is requeued."""
    given = (execution.cluster_options or {}).get("scheduler_file", "scheduler-{job_id}.json")
    parts = ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_STEP_ID")
    return Path(str(given).replace("{job_id}", "-".join(os.environ.get(p, "0") for p in parts)))


@contextmanager
def _connected_in_slurm(execution: ExecutionTable) -> Iterator[OpenCluster]:
    """Connect to the scheduler in another task of srun, and end all tasks on leaving."""
    if os.environ.get("SLURM_PROCID") != str(_CLIENT_RANK):
        raise ConfigurationError(
            "cluster = 'slurm-runner' works only with mscam-dask run in tasks of srun, which also "
            "resumes a run. Start it there, or give another --cluster."
        )
    file = _slurm_file(execution)
    start_s = execution.start_timeout or _QUEUE_TIMEOUT_S
    deadline = time.monotonic() + start_s
    while not file.exists():
        if time.monotonic() > deadline:
            raise SchedulerLostError(
                f"the first task of srun has written no {file} within {start_s:g} s. Check that all "
                "tasks see this directory, and repeat the command."
            )
        time.sleep(_POLL_S)
    count = int(os.environ["SLURM_NTASKS"]) - _MIN_TASKS + 1
    with _connected(msgspec.structs.replace(execution, scheduler_file=str(file))) as cluster:
        assert cluster.client is not None
        try:
            yield OpenCluster(cluster.client, f"{count} worker(s) in the tasks of a SLURM job")
        finally:
            cluster.client.shutdown()


@contextmanager
def _connected(execution: ExecutionTable) -> Iterator[OpenCluster]:
    execution = with_address(execution)
    address = execution.scheduler
    check_handshake(execution)
    with ExitStack() as stack:
        try:
            security = security_of(execution) if is_encrypted(str(address)) else None
            client = _client(stack, address, security=security, timeout=_CONNECT_TIMEOUT_S)
        except (OSError, RuntimeError, TimeoutError, ValueError) as error:
            raise SchedulerLostError(
                f"the scheduler {address} does not answer as a Dask scheduler should: {error}. "
                "Check that it runs, the address, and for tls:// that its certificate and yours "
                "come from the same authority."
            ) from error
        yield OpenCluster(client, f"the cluster at {address}")


def _leave(client: Client) -> None:
    """Close a client, quickly also when its scheduler is gone."""
    if client.status == "running":
        client.close()
        return
    with suppress(TimeoutError, OSError):  # another error is on its way
        client.close(timeout=_LOST_TIMEOUT_S)


def page_of(client: Client) -> tuple[str, tuple[str, ...]]:
    """Add the page of this package to the cluster's dashboard."""
    from mscam_dask.monitor.dashboard.plugin import ensure_page, page_link

    problem, link = ensure_page(client, log=False), page_link(client)
    if link is None:
        return f"no dashboard: {problem or 'the scheduler serves none'}", ()
    notes = () if problem is None else (f"The dashboard has no page of this run: {problem}.",)
    return f"dashboard {link}", notes


def observers_of(cluster: OpenCluster, name: str) -> tuple[Observer, ...]:
    """Observers that send a run's events to the cluster's dashboard and metrics under a name."""
    from mscam_dask.monitor.dashboard.plugin import ClusterEvents

    return () if cluster.client is None else (ClusterEvents(cluster.client, name=name),)


def check_workers(cluster: OpenCluster, paths: Sequence[Location]) -> None:
    """Check that every worker has this package and sees the data, before any task is sent."""
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
    """Return the paths that do not exist on this worker."""
    return [name for name in names if not as_location(name).exists()]
