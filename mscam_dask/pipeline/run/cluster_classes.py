"""Clusters by Dask's own classes: their options, certificates, errors and workers."""

from __future__ import annotations

import logging
import os
import re
import socket
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from mscam_dask.errors import (
    ClusterError,
    ClusterStartError,
    ConfigurationError,
    MscamError,
    holds_a_secret,
)
from mscam_dask.pipeline.config.cluster_types import (
    is_queue,
    load_class,
)
from mscam_dask.pipeline.config.settings import CLUSTER_TYPES, ExecutionTable
from mscam_dask.pipeline.run.security import has_certificates, security_of

LOOPBACK = "127.0.0.1:0"
"""Dashboard of a worker: on loopback, at any free port."""

# Another program may take the dashboard's port between our probe and distributed's: it then takes
# a free one, which the run's own line names.
PORT_TAKEN = r"Port \d+ is already in use"
"""Warning of distributed when the port of the dashboard is taken."""

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
_SHARED_FILES = "Using a temporary security object"


@contextmanager
def start_errors(name: str) -> Iterator[None]:
    """Turn errors of a cluster class into those of the package."""
    try:
        yield
    except MscamError:
        raise
    except (TypeError, ValueError, KeyError, ImportError) as error:
        raise ConfigurationError(
            f"the cluster {name!r} refuses its options: {_first_lines(error)}. Correct "
            "[execution.cluster_options] or Dask's configuration."
        ) from error
    except FileNotFoundError as error:
        raise ConfigurationError(
            f"the cluster {name!r} needs a program or file that this computer lacks: {error}. Run the "
            "pipeline where the scheduler's commands are."
        ) from error
    except Exception as error:
        reason = _first_lines(error)
        if _REFUSED.search(reason):
            raise ClusterError(
                f"the cluster {name!r} was refused: {reason}. Correct [execution.cluster_options] or "
                "Dask's configuration."
            ) from error
        raise ClusterStartError(
            f"the cluster {name!r} could not be started: {reason}. Repeat the command when its service "
            "is back."
        ) from error


def _first_lines(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}"
    text = _COMMAND_LINE.sub("", text)
    return " ".join(text.split())[:600].rstrip(".")


@contextmanager
def certificates(execution: ExecutionTable, name: str) -> Iterator[None]:
    """Certificates of [execution] for every role of a cluster whose processes read Dask's configuration."""
    import dask.config

    if name not in ("ssh", "slurm-runner") or execution.tls_ca is None:
        yield
        return
    setting = "distributed.comm.tls"
    tls: dict[str, str | None] = {f"{setting}.ca-file": execution.tls_ca}
    for role in ("scheduler", "worker", "client"):
        tls[f"{setting}.{role}.cert"] = execution.tls_cert
        tls[f"{setting}.{role}.key"] = execution.tls_key or execution.tls_cert
    with dask.config.set({**tls, "distributed.comm.require-encryption": True}):
        yield


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
    if is_queue(name):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=_SHARED_FILES)
            warnings.filterwarnings("ignore", message=PORT_TAKEN)
            return found(**_queue_options(execution, name, options))
    if name == "ssh":
        protocol = {"protocol": "tls://"} if has_certificates(execution) else {}
        for role, defaults in (
            ("scheduler_options", {"port": 0, "dashboard_address": LOOPBACK}),
            ("worker_options", {"nthreads": 1, "dashboard_address": LOOPBACK}),
        ):
            options[role] = {**defaults, **protocol, **options.get(role, {})}
    return found(**options)


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
    return {
        **sizes,
        **options,
        "security": Security.temporary() if execution.tls_ca is None else security_of(execution),
        "protocol": "tls://",
        "scheduler_options": {
            "dashboard_address": dashboard_address(),
            **_given(options, name, "scheduler_options", {}),
        },
        "worker_extra_args": [*arguments, *_given(options, name, "worker_extra_args", [])],
        "job_script_prologue": [
            _ONE_BLAS_THREAD,
            *_given(options, name, "job_script_prologue", []),
        ],
        "silence_logs": logging.CRITICAL,
    }


def _given(options: Mapping[str, Any], name: str, key: str, default: Any) -> Any:
    """Return an option of a class of dask-jobqueue, or its value in Dask's configuration."""
    import dask.config

    configured = dask.config.get(f"jobqueue.{name}.{key.replace('_', '-')}", None)
    return options.get(key) or configured or default


@contextmanager
def links_to_this_computer(execution: ExecutionTable, name: str) -> Iterator[None]:
    """Name the loopback interface in the link to a dashboard that listens there alone.

    The scheduler of a batch cluster is in this process, and its workers reach it by the name or address
    of this computer, which distributed puts into the link. A template in Dask's configuration is kept.
    """
    import dask.config

    options = _given(execution.cluster_options or {}, name, "scheduler_options", {})
    template = dask.config.get(_LINK)
    is_default = template == "{scheme}://{host}:{port}/status"
    if is_queue(name) and is_default and "dashboard_address" not in options:
        template = template.replace("{host}", "127.0.0.1")
    with dask.config.set({_LINK: template}):
        yield


def close_quietly(cluster: Any, kind: type[BaseException] | None, *_: object) -> None:
    """Close a cluster; where another error is on its way, that is the one to report."""
    with ExitStack() as stack:
        if kind is not None:
            stack.enter_context(suppress(Exception))
        cluster.close()


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
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", _DASHBOARD_PORT))
        except OSError:
            return "127.0.0.1:0"
    return f"127.0.0.1:{_DASHBOARD_PORT}"
