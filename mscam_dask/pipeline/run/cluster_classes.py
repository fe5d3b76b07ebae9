"""Clusters by Dask's own classes: their options, configuration, errors and workers."""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from mscam_dask.errors import (
    ClusterError,
    ClusterStartError,
    ConfigurationError,
    MscamError,
    holds_a_secret,
)
from mscam_dask.pipeline.config.cluster_types import is_queue, load_class, type_of
from mscam_dask.pipeline.config.settings import CLUSTER_TYPES, ExecutionTable
from mscam_dask.pipeline.run.security import certificates, has_certificates, security_of

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

# Our own errors say what distributed logs about a lost worker or a closed connection. Workers
# write to the same terminal and learn it from their environment.
_WORKER_ENVIRONMENT = {"DASK_LOGGING__DISTRIBUTED": "critical", "DASK_LOGGING__BOKEH": "critical"}

LOOPBACK = "127.0.0.1:0"
"""Dashboard of a worker: on loopback, at any free port."""

# Warnings of a start that are none here. Where the dashboard's usual port is taken, distributed takes
# a free one, which the run's own line names.
_EXPECTED = r"Port \d+ is already in use|Using a temporary security object"

_DASHBOARD = "127.0.0.1:8787"  # or metrics alone
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
    import dask.config

    found: dict[str, Any] = {**LOG_LENGTHS, "distributed.scheduler.http.routes": _ROUTES}
    if "MSCAM_DASHBOARD_TOKEN" in os.environ:  # `access`, which checks it, imports tornado
        from mscam_dask.monitor.dashboard import access

        access.dashboard_token()
        for server in ("scheduler", "worker"):
            key = f"distributed.{server}.preload"
            found[key] = [*dask.config.get(key), access.__name__]
    if name in ("ssh", "slurm-runner") and execution.tls_ca is not None:
        found |= certificates(execution) | {"distributed.comm.require-encryption": True}
    if is_queue(name):
        scheduler = _given(execution, name, "scheduler_options", {})
        is_default = dask.config.get(_LINK) == "{scheme}://{host}:{port}/status"
        if is_default and "dashboard_address" not in scheduler:
            found[_LINK] = "{scheme}://127.0.0.1:{port}/status"
    return found


@contextmanager
def public_configuration(name: str) -> Iterator[None]:
    """Hide secrets of Dask's configuration, which SSHCluster puts on command lines that all can list."""
    import dask.config

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
        from mscam_dask.pipeline.run.manifest_cluster import kubernetes_cluster

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
    protocol = {"protocol": "tls://"} if has_certificates(execution) else {}
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
        "dashboard_address": _DASHBOARD,
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
    from dask.system import CPU_COUNT

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
    from dask.utils import parse_timedelta
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
        "security": Security.temporary() if execution.tls_ca is None else security_of(execution),
        "protocol": "tls://",
        "scheduler_options": {"dashboard_address": _DASHBOARD, **scheduler},
        "worker_extra_args": [*arguments, *_given(execution, name, "worker_extra_args", [])],
        "job_script_prologue": [_ONE_BLAS_THREAD, *prologue],
        "silence_logs": logging.CRITICAL,
    }


def _given(execution: ExecutionTable, name: str, key: str, default: Any) -> Any:
    """Return an option of a class of dask-jobqueue, or its value in Dask's configuration."""
    import dask.config

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
