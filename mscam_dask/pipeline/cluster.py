"""Dask cluster of a run: started for it by one of Dask's classes, or running elsewhere."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.resource_tracker import ensure_running
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask.config
import msgspec
from dask.system import CPU_COUNT
from dask.utils import parse_timedelta

from mscam_dask.data.store.object_store import Location, as_location
from mscam_dask.errors import (
    ClusterError,
    ClusterStartError,
    ConfigurationError,
    MscamError,
    NoWorkersError,
    SchedulerLostError,
    WorkersPausedError,
    holds_a_secret,
)
from mscam_dask.pipeline import security
from mscam_dask.pipeline.graceful_shutdown import defer_signals
from mscam_dask.pipeline.read_config import is_queue, load_class, type_of
from mscam_dask.pipeline.settings import CLUSTER_TYPES, ExecutionTable

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
    import distributed  # noqa: F401 - its import sets the default

    share = dask.config.get("distributed.worker.memory.target")
    return int(share * memory_limit_bytes) if share else None


@contextmanager
def open_cluster(execution: ExecutionTable) -> Iterator[OpenCluster]:
    """Start a cluster of the type in [execution], or connect to a running one; closed on leaving."""
    if execution.in_process:
        yield OpenCluster(client=None, description="in this process")
        return
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
            if name not in CLUSTER_TYPES and not security.is_encrypted(address):
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
        description = f"{number} {'worker' if number == '1' else 'workers'} of a {name} cluster"
        if name == "local":
            threads = f" of {execution.threads} threads" if (execution.threads or 1) > 1 else ""
            kind = f"{'process' if number == '1' else 'processes'}{threads} on this computer"
            description = f"{number} worker {kind}"
        with _lost_workers(name, timeout_s):
            yield OpenCluster(client, description)


@contextmanager
def _lost_workers(name: str, timeout_s: float) -> Iterator[None]:
    """Say of a cluster that a run started what its user can do where no worker comes back."""
    try:
        yield
    except NoWorkersError as error:
        if isinstance(error, WorkersPausedError):
            raise
        raise NoWorkersError(
            f"the cluster {name!r} has had no worker for {timeout_s:g} s: its workers are killed, or end at "
            "once. If they need more memory, give it (--memory-limit, or the request of a job or pod); otherwise repeat "
            "the command."
        ) from error


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
    security.check_execution(execution, insecure=insecure)
    if rank == _CLIENT_RANK:
        return
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
    execution = security.with_address(execution)
    address = execution.scheduler
    security.check_handshake(execution)
    with ExitStack() as stack:
        try:
            own = security.security_of(execution) if security.is_encrypted(str(address)) else None
            client = _client(stack, address, security=own, timeout=_CONNECT_TIMEOUT_S)
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


# clusters that a run starts ----------------------------------------------------------------------


LOG_LENGTHS = {
    "distributed.admin.log-length": 100,
    "distributed.admin.low-level-log-length": 100,
    "distributed.admin.system-monitor.log-length": 1200,
}
"""Lengths of the logs of a scheduler and of workers that a run starts. With Dask's 1000 a worker keeps a
profile of some 45 kB for each of the last 1000 seconds, and grows for as long."""

# The pages that only show: none that retires workers or forwards requests.
_ROUTES = [
    "distributed.http.scheduler.prometheus",
    "distributed.http.scheduler.info",
    "distributed.http.scheduler.json",
    "distributed.http.health",
    "distributed.http.statics",
]

# Workers write to the same terminal, and learn from their environment what they do not log.
_WORKER_ENVIRONMENT = {"DASK_LOGGING__DISTRIBUTED": "critical", "DASK_LOGGING__BOKEH": "critical"}

LOOPBACK = "127.0.0.1:0"
"""Dashboard of a worker: on loopback, at any free port."""

# Warnings of a start that are none here. Another program may take the dashboard's port between our
# probe and distributed's: it then takes a free one, which the run's own line names.
_EXPECTED = r"Port \d+ is already in use|Using a temporary security object"

_DASHBOARD_PORT = 8787
_LINK = "distributed.dashboard.link"
_REPLACE_EVERY = "5 s"
_ONE_BLAS_THREAD = "export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1"
# Words of batch schedulers and of Kubernetes for a request that no later attempt can cure.
_REFUSED = re.compile(
    r"invalid|not permitted|denied|forbidden|unknown|exceed|does not exist|certificate",
    re.IGNORECASE,
)
# In errors of dask-jobqueue: with OAR it is the whole job script, before the reason.
_COMMAND_LINE = re.compile(r"\nCommand:\n.*?(?=\nstdout:\n)", re.DOTALL)
# By default, and running clusters of an unknown size.
_ON_ALL_CORES = ("local", "scheduler", "scheduler-file")


@contextmanager
def start_errors(name: str) -> Iterator[None]:
    """Turn errors of a cluster class into those of the package."""
    try:
        yield
    except MscamError:
        raise
    except Exception as error:
        reason = _COMMAND_LINE.sub("", f"{type(error).__name__}: {error}")
        reason = " ".join(reason.split())[:600].rstrip(".")
        kind: type[MscamError] = ClusterStartError
        what, remedy = "could not be started", "Repeat the command when its service is back."
        correct = "Correct [execution.cluster_options] or Dask's configuration."
        if isinstance(error, TypeError | ValueError | KeyError | ImportError):
            kind, what, remedy = ConfigurationError, "refuses its options", correct
        elif name == "local":
            remedy = (
                "Try --workers 1, or --in-process for none; mscam-dask doctor checks this computer."
            )
        elif isinstance(error, FileNotFoundError):
            kind, what = ConfigurationError, "needs a program or file that this computer lacks"
            remedy = "Run the pipeline where the scheduler's commands are."
        elif _REFUSED.search(reason):
            kind, what, remedy = ClusterError, "was refused", correct
        raise kind(f"the cluster {name!r} {what}: {reason}. {remedy}") from error


def configuration(execution: ExecutionTable, name: str) -> dict[str, Any]:
    """Return Dask's configuration while a cluster is started and used.

    The scheduler of a batch cluster is in this process, and its workers reach it by the name or address of
    this computer. Its dashboard listens on loopback alone, which its link then names; a template in Dask's
    configuration is kept.
    """
    found: dict[str, Any] = {**LOG_LENGTHS, "distributed.scheduler.http.routes": _ROUTES}
    if "MSCAM_DASHBOARD_TOKEN" in os.environ:  # `access`, which checks it, imports tornado
        from mscam_dask.monitor.dashboard import access

        access.dashboard_token()
        for server in ("scheduler", "worker"):
            key = f"distributed.{server}.preload"
            found[key] = [*dask.config.get(key), access.__name__]
    if name in ("ssh", "slurm-runner") and execution.tls_ca is not None:
        found |= security.certificates(execution) | {"distributed.comm.require-encryption": True}
    if is_queue(name):
        scheduler = _given(execution, name, "scheduler_options", {})
        is_default = dask.config.get(_LINK) == "{scheme}://{host}:{port}/status"
        if is_default and "dashboard_address" not in scheduler:
            found[_LINK] = "{scheme}://127.0.0.1:{port}/status"
    return found


@contextmanager
def public_configuration(name: str) -> Iterator[None]:
    """Hide secrets of Dask's configuration, which SSHCluster puts on command lines that all can list."""
    if name != "ssh":
        yield
        return
    with dask.config.set(dict.fromkeys(_secret_keys(dask.config.config))):
        yield


def _secret_keys(settings: Mapping[str, Any], parent: str = "") -> Iterator[str]:
    """Yield the dotted keys of the settings that hold secrets."""
    for key, value in settings.items():
        if holds_a_secret(str(key), value, os.environ):
            yield f"{parent}{key}"
        elif isinstance(value, Mapping):
            yield from _secret_keys(value, f"{parent}{key}.")
        elif isinstance(value, list | tuple) and holds_a_secret("", repr(value), os.environ):
            yield f"{parent}{key}"


def new_cluster(execution: ExecutionTable, name: str) -> Any:
    """Make a cluster of one of Dask's classes, without workers where they are asked for afterwards."""
    found = load_class(name)
    options = dict(execution.cluster_options or {})
    if name == "kubernetes":
        from mscam_dask.pipeline.manifest_cluster import kubernetes_cluster

        return kubernetes_cluster(execution, options)
    if name == "ssh":
        options |= role_options(execution, scheduler={"port": 0}, worker={"nthreads": 1})
    elif name == "local":
        options = _local_options(execution, options)
    elif is_queue(name):
        options = _queue_options(execution, name, options)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=_EXPECTED)
        try:
            return found(**options)
        except RuntimeError:
            if name != "local":
                raise
            return found(**options)  # a worker process died while it started


def role_options(execution: ExecutionTable, **defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of scheduler and workers: dashboards on loopback, encrypted with certificates."""
    given = execution.cluster_options or {}
    protocol = {"protocol": "tls://"} if security.has_certificates(execution) else {}
    return {
        f"{role}_options": {
            "dashboard_address": LOOPBACK,
            **own,
            **protocol,
            **given.get(f"{role}_options", {}),
        }
        for role, own in defaults.items()
    }


def _local_options(execution: ExecutionTable, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of LocalCluster, closed to other users: its certificates exist in the memory of its processes alone."""
    from distributed import Security

    return {
        "threads_per_worker": execution.threads or 1,
        "dashboard_address": dashboard_address(),
        "memory_limit": "auto" if execution.memory_limit is None else execution.memory_limit,
        "env": _WORKER_ENVIRONMENT,
        **options,
        "n_workers": worker_counts(execution)[0],
        "host": "127.0.0.1",
        "protocol": "tls://",
        "security": Security.temporary(),
        "silence_logs": logging.CRITICAL,
    }


def worker_counts(execution: ExecutionTable) -> tuple[int, int]:
    """Return the smallest and the largest number of workers, as far as this process knows them."""
    if execution.adapt is not None:
        return execution.adapt.minimum, execution.adapt.maximum
    count = execution.workers or 1
    if execution.cluster == "ssh":
        count = max(len((execution.cluster_options or {}).get("hosts", ())) - 1, 1)
    elif execution.workers is None and type_of(execution) in _ON_ALL_CORES:
        count = 1 if execution.in_process else int(CPU_COUNT)
    return count, count


def _queue_options(
    execution: ExecutionTable, name: str, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Options of a class of dask-jobqueue: encrypted, dashboards on loopback, one BLAS thread."""
    from distributed import Security

    arguments = ["--dashboard-address", LOOPBACK]
    for key in ("lifetime", "lifetime_stagger"):
        if (text := getattr(execution, key)) is not None:
            arguments += [f"--{key.replace('_', '-')}", f"{parse_timedelta(text):g}s"]
    sizes: dict[str, Any] = {}
    if execution.threads is not None:
        sizes |= {"cores": execution.threads, "processes": 1}
    if execution.memory_limit is not None:
        sizes["memory"] = str(execution.memory_limit)
    scheduler = _given(execution, name, "scheduler_options", {})
    prologue = _given(execution, name, "job_script_prologue", [])
    return {
        **sizes,
        **options,
        "security": Security.temporary()
        if execution.tls_ca is None
        else security.security_of(execution),
        "protocol": "tls://",
        "scheduler_options": {"dashboard_address": dashboard_address(), **scheduler},
        "worker_extra_args": [*arguments, *_given(execution, name, "worker_extra_args", [])],
        "job_script_prologue": [_ONE_BLAS_THREAD, *prologue],
        "silence_logs": logging.CRITICAL,
    }


def _given(execution: ExecutionTable, name: str, key: str, default: Any) -> Any:
    """Return an option of a class of dask-jobqueue, or its value in Dask's configuration."""
    configured = dask.config.get(f"jobqueue.{name}.{key.replace('_', '-')}", None)
    return (execution.cluster_options or {}).get(key) or configured or default


def scale(cluster: Any, execution: ExecutionTable, name: str) -> None:
    """Ask for the workers of [execution]; those of a batch scheduler are replaced when they are lost."""
    adapt, workers = execution.adapt, execution.workers
    if adapt is not None:
        cluster.adapt(minimum=adapt.minimum, maximum=adapt.maximum)
    elif is_queue(name):
        cluster.scale(workers or 1)
        cluster.sync(_submitted, cluster)
        n_jobs = len(cluster.worker_spec)
        cluster.adapt(minimum_jobs=n_jobs, maximum_jobs=n_jobs, interval=_REPLACE_EVERY)
    elif name == "gateway" or (workers is not None and name not in CLUSTER_TYPES):
        cluster.scale(workers or 1)


async def _submitted(cluster: Any) -> None:
    """Wait until jobs are submitted; an error of the batch scheduler is raised here."""
    await cluster
    for job in tuple(cluster.workers.values()):
        await job


def dashboard_address() -> str:
    """Loopback address for the dashboard, or metrics alone: the usual port when it is free."""
    with socket.socket() as probe:  # distributed leaves a socket open where it finds the port taken
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", _DASHBOARD_PORT))
        except OSError:
            return "127.0.0.1:0"
    return f"127.0.0.1:{_DASHBOARD_PORT}"
