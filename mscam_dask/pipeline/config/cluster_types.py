"""Types of Dask clusters that [execution] can name: their classes, options and checks."""

from __future__ import annotations

import dataclasses
import datetime as dt
import inspect
import re
import signal
import threading
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

import msgspec

from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.config.parse import nearest, shown
from mscam_dask.pipeline.config.settings import ENCRYPTED_BY_FILES, ExecutionTable
from mscam_dask.pipeline.config.toml_document import Document

# Keys of [execution] that say where the tasks run.
_PLACES = ("cluster", "scheduler", "scheduler_file", "in_process")
_NAMESPACE = "mscam"
_OF_FITS = ("workers_timeout", "lost_worker_timeout")  # a fit reads these itself
_OF_STARTED = (
    *("workers", "threads", "memory_limit", "cluster_options", "adapt"),
    *("lifetime", "lifetime_stagger", "start_timeout"),
)
_SECRET = re.compile(r"password|passwd|secret|token|api_?key|access_?key", re.IGNORECASE)
_DURATION = re.compile(r"(\d+(\.\d+)?|\.\d+)\s*([a-zA-Z]+)?")

# Never options: the run sets them, or they are not values of TOML.
_OURS = {
    **dict.fromkeys(("asynchronous", "loop", "self", "client", "scheduler", "config_name"), ""),
    **dict.fromkeys(("job_cls", "job_name", "scheduler_cls", "worker_class", "silence_logs"), ""),
    "host": "a cluster on this computer is on the loopback interface",
    "security": "the run encrypts the connections; tls_ca, tls_cert and tls_key name certificates",
    "protocol": "the run encrypts the connections",
    "n_workers": "[execution] workers is their number",
}

# Never options of KubeCluster: they are in its manifest.
_OF_THE_MANIFEST = frozenset(
    (
        *("create_mode", "env", "idle_timeout", "jupyter", "name", "quiet", "resources"),
        *("scheduler_service_type", "shutdown_on_close", "worker_command"),
    )
)

CLUSTER_TYPES: Mapping[str, str] = {
    "local": "distributed:LocalCluster",
    "scheduler": "",
    "scheduler-file": "",
    "slurm": "dask_jobqueue:SLURMCluster",
    "pbs": "dask_jobqueue:PBSCluster",
    "sge": "dask_jobqueue:SGECluster",
    "lsf": "dask_jobqueue:LSFCluster",
    "htcondor": "dask_jobqueue:HTCondorCluster",
    "oar": "dask_jobqueue:OARCluster",
    "slurm-runner": "dask_jobqueue.slurm:SLURMRunner",
    "gateway": "dask_gateway:GatewayCluster",
    "kubernetes": "dask_kubernetes.operator:KubeCluster",
    "ssh": "distributed:SSHCluster",
}
"""Classes by short names, "" for a cluster that runs already; another one is its own "module:Class"."""

# Names for pip install, by the module of a class; SSHCluster imports its library only when it starts.
_EXTRAS = {
    "dask_jobqueue": "mscam-dask[jobqueue]",
    "dask_gateway": "mscam-dask[gateway]",
    "dask_kubernetes": "mscam-dask[kubernetes]",
    "asyncssh": "mscam-dask[ssh]",
}

# Workers of these do not change in number.
_WORKERS_OF = {
    "ssh": "[execution.cluster_options] hosts names the scheduler's host and one for each worker.",
    "slurm-runner": "srun --ntasks is their number and two more.",
}


def is_queue(name: str) -> bool:
    """Whether the workers of a cluster are jobs of a batch scheduler."""
    return CLUSTER_TYPES.get(name, "").startswith("dask_jobqueue:")


def type_of(execution: ExecutionTable) -> str:
    """Return the name of the cluster type that [execution] means."""
    if execution.cluster is not None:
        return execution.cluster
    if execution.scheduler is not None:
        return "scheduler"
    return "local" if execution.scheduler_file is None else "scheduler-file"


def target_of(name: str) -> str | None:
    """Return the "module:Class" of a cluster; "" for one that runs already, None for another name."""
    module, colon, attribute = name.partition(":")
    if colon and re.fullmatch(r"[A-Za-z_][\w.]*", module) and attribute.isidentifier():
        return name
    return CLUSTER_TYPES.get(name)


def load_class(name: str) -> Any:
    """Import the class of a cluster."""
    module, _, attribute = (target_of(name) or "").partition(":")
    root = "asyncssh" if name == "ssh" else module.partition(".")[0]
    try:
        _imported(root)
        found = getattr(_imported(module), attribute)
    except ImportError as error:
        raise ConfigurationError(
            f"the cluster {name!r} needs a library that is not installed ({error}). Install it: "
            f"pip install '{_EXTRAS.get(root, root)}'"
        ) from error
    except AttributeError as error:
        raise ConfigurationError(
            f"the module {module} has no {attribute}. Give module:Class of a Dask cluster."
        ) from error
    is_own = name not in CLUSTER_TYPES
    if is_own and not (isinstance(found, type) and hasattr(found, "scheduler_address")):
        raise ConfigurationError(
            f"{name} is not the class of a Dask cluster. Give a subclass of distributed.deploy.Cluster."
        )
    return found


def _imported(module: str) -> Any:
    """Import a module; dask-jobqueue replaces the handler of Ctrl-C, which is put back."""
    if threading.current_thread() is not threading.main_thread():
        return import_module(module)
    handler = signal.getsignal(signal.SIGINT)
    try:
        return import_module(module)
    finally:
        if handler is not None:
            signal.signal(signal.SIGINT, handler)


def _reserved(name: str) -> frozenset[str]:
    """Options of a class that are not for [execution.cluster_options]."""
    if name not in CLUSTER_TYPES:
        return frozenset({"self"})
    return frozenset(_OURS) | (_OF_THE_MANIFEST if name == "kubernetes" else frozenset())


def options_of(name: str, found: Any) -> set[str] | None:
    """Return the options that the class of a cluster takes; None when it takes any."""
    callables = [found]
    if is_queue(name):  # the options of a job are passed on
        callables += [part.__init__ for part in found.job_cls.__mro__[:-1]]
    elif name == "local":
        callables.append(import_module("distributed").Worker)
    elif name == "slurm-runner":
        callables.append(found.__mro__[1])
    parameters = [
        part for each in callables for part in inspect.signature(each).parameters.values()
    ]
    kinds = {part.kind for part in parameters}
    may_take_any = name == "gateway" or name not in CLUSTER_TYPES
    if may_take_any and inspect.Parameter.VAR_KEYWORD in kinds:
        return None
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {part.name for part in parameters if part.kind not in variable} - _reserved(name)


def execution_problems(document: Document, execution: ExecutionTable) -> Iterable[str]:
    """Yield the conflicts between keys of [execution], and what is wrong with its cluster."""
    name = type_of(execution)
    if target_of(name) is None:
        yield (
            f"{document.where('execution', 'cluster')}: [execution] cluster = {shown(name)}; allowed "
            f"are {', '.join(CLUSTER_TYPES)} and module:Class.{nearest(name, CLUSTER_TYPES)}"
        )
        return
    for key, reason in _misplaced(execution, name):
        yield f"{document.where('execution', key)}: [execution] {key} {reason}"
    yield from _malformed(document, execution)
    if execution.cluster is None or not target_of(name):
        return
    try:
        found = load_class(name)
    except ConfigurationError as error:
        yield f"{document.where('execution', 'cluster')}: {error}"
        return
    yield from _option_problems(document, execution, name, found)
    where = document.where("execution", "cluster")
    yield from (f"{where}: the cluster {name!r} needs {what}" for what in _missing(execution, name))


_Reasons = Iterable[tuple[str, str]]


def _misplaced(execution: ExecutionTable, name: str) -> _Reasons:
    """Yield each key that does not go with the type of the cluster, and why."""
    given = {key for key, value in msgspec.structs.asdict(execution).items() if value is not None}
    for key in ("scheduler", "scheduler_file"):
        wanted = key.replace("_", "-")
        if key in given and name != wanted:
            yield key, f"is for a running cluster, not for {name!r}. Remove one of them."
        if key not in given and name == wanted:
            yield "cluster", f"= {name!r} needs {key}. Add it."
    running = given & {"scheduler", "scheduler_file"}
    if execution.in_process and (running or "cluster" in given):
        with_what = f"{min(running)} is set" if running else f"cluster = {name!r}"
        yield "in_process", f"starts no cluster, but {with_what}. Keep one of them."
    if not (running or name in ENCRYPTED_BY_FILES or is_queue(name)):
        for key in sorted(given & {"tls_ca", "tls_cert", "tls_key"}):
            yield key, f"requires scheduler = 'tls://host:port'. Add it, or remove {key}."
    if running or execution.in_process:
        place = min(running) if running else "in_process"
        for key in _OF_STARTED:
            if key in given and not (key == "threads" and not running):
                yield (
                    key,
                    f"is for a cluster that the run starts, not for {place}. Remove one of them.",
                )
    else:
        yield from _misplaced_of_started(execution, name, given)


def _misplaced_of_started(execution: ExecutionTable, name: str, given: set[str]) -> _Reasons:
    if "adapt" in given and name in _WORKERS_OF:
        yield "adapt", f"does not apply to {name!r}, whose workers are fixed. Remove it."
    if "workers" in given and name in _WORKERS_OF:
        yield "workers", f"does not apply to {name!r}. {_WORKERS_OF[name]}"
    for key in ("lifetime", "lifetime_stagger"):
        if key in given and not is_queue(name):
            yield key, f"is for workers of a batch scheduler, not of {name!r}. Remove it."
    if "lifetime_stagger" in given and "lifetime" not in given:
        yield "lifetime_stagger", "needs lifetime. Add it."
    if {"workers", "adapt"} <= given:
        yield "workers", "is a fixed number, and adapt changes it. Keep one of them."
    options = {"threads": "cores", "memory_limit": "memory"} if is_queue(name) else {}
    if name == "local":
        options = {"threads": "threads_per_worker", "memory_limit": "memory_limit"}
    for key in given & {"threads", "memory_limit"}:
        if key not in options:
            yield key, f"does not apply to {name!r}. Give an option of its class, cluster_options."
        elif options[key] in (execution.cluster_options or {}):
            yield key, f"and cluster_options {options[key]} are the same. Keep one of them."


def _malformed(document: Document, execution: ExecutionTable) -> Iterable[str]:
    """Yield a problem for each value that is not a duration, not a range or not an option."""
    for key in ("lifetime", "lifetime_stagger"):
        value = getattr(execution, key)
        if value is not None and seconds_of(value) is None:
            yield (
                f"{document.where('execution', key)}: [execution] {key} = {shown(value)} is not a "
                "duration. Give one such as '55 minutes'."
            )
    adapt = execution.adapt
    if adapt is not None and adapt.minimum > adapt.maximum:
        yield (
            f"{document.where('execution', 'adapt')}: [execution] adapt has minimum {adapt.minimum} "
            f"above maximum {adapt.maximum}. Exchange them."
        )
    for key, value in (execution.cluster_options or {}).items():
        where = document.where("execution", "cluster_options", key)
        if _has_a_date(value):
            yield f"{where}: [execution.cluster_options] {key} has a date or time. Give a text."
        if any(_SECRET.search(part) for part in _names(key, value)):
            yield (
                f"{where}: [execution.cluster_options] {key} is a credential, and pipeline files are copied "
                "into run directories. Put it into Dask's configuration (~/.config/dask) or the "
                "environment."
            )


def seconds_of(text: str) -> float | None:
    """Return the seconds of a duration such as "55 minutes"; None for another text."""
    from dask.utils import parse_timedelta

    try:
        seconds = float(parse_timedelta(text)) if _DURATION.fullmatch(text.strip()) else 0.0
    except (KeyError, ValueError):
        return None
    return seconds if seconds > 0 else None


def _has_a_date(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_a_date, value.values()))
    if isinstance(value, list):
        return any(map(_has_a_date, value))
    return isinstance(value, dt.date | dt.time)


def _names(key: str, value: Any) -> Iterable[str]:
    """Yield the names of texts in an option."""
    if isinstance(value, str):
        yield key
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _names(str(name), item)
    elif isinstance(value, list):
        for item in value:
            yield from _names(key, item)


def _option_problems(
    document: Document, execution: ExecutionTable, name: str, found: Any
) -> Iterable[str]:
    allowed = options_of(name, found)
    for key in execution.cluster_options or {}:
        where = document.where("execution", "cluster_options", key)
        if key in _reserved(name):
            reason = f": {_OURS[key]}" if _OURS.get(key) else ""
            yield f"{where}: [execution.cluster_options] {key} is not for {name!r}{reason}. Remove it."
        elif allowed is not None and key not in allowed:
            yield (
                f"{where}: [execution.cluster_options] has no key {key!r} for {name!r}."
                f"{nearest(key, allowed)} Allowed are {', '.join(sorted(allowed))}."
            )


def _missing(execution: ExecutionTable, name: str) -> Iterable[str]:
    """Yield required options that neither the pipeline nor Dask's configuration sets."""
    import dask.config

    options = execution.cluster_options or {}
    if is_queue(name):
        values = {"cores": execution.threads, "memory": execution.memory_limit, **options}
        lacking = [
            key
            for key in ("cores", "memory", *(["disk"] if name == "htcondor" else []))
            if values.get(key) is None and dask.config.get(f"jobqueue.{name}.{key}", None) is None
        ]
        if lacking:
            yield (
                f"{' and '.join(lacking)} of a job. Give threads and memory_limit in [execution], options "
                f"in [execution.cluster_options], or Dask's configuration jobqueue.{name}."
            )
    hosts = options.get("hosts")
    if name == "ssh" and not (isinstance(hosts, list) and len(hosts) > 1):
        yield (
            "hosts in [execution.cluster_options]: the host of the scheduler, and one for each worker."
        )
    if name == "kubernetes" and not isinstance(options.get("custom_cluster_spec"), str):
        yield (
            "custom_cluster_spec in [execution.cluster_options]: a file with the manifest of a "
            "DaskCluster, such as deploy/k8s/cluster.yaml."
        )
    if name == "gateway" and not (
        options.get("address") or dask.config.get("gateway.address", None)
    ):
        yield (
            "the address of the gateway. Give it in [execution.cluster_options], or gateway.address in "
            "Dask's configuration."
        )


def with_dask_defaults(document: Document) -> Document:
    """Return a document whose [execution] has the defaults of Dask's configuration, `mscam:`.

    They apply when neither the file nor options nor the environment say where the tasks run.

    Examples
    --------
    The key is that of [execution] with dashes, in ~/.config/dask/*.yaml or the environment
    (DASK_MSCAM__CLUSTER=slurm)::

        mscam:
          cluster: slurm
          workers: 8
          cluster-options: {walltime: "02:00:00"}
    """
    import dask.config

    given = document.tables.get("execution", {})
    defaults = {
        str(key).replace("-", "_"): value
        for key, value in (dask.config.get(_NAMESPACE, None) or {}).items()
    }
    known = ExecutionTable.__struct_fields__
    for key in _OF_FITS:
        defaults.pop(key, None)
    for key in defaults.keys() - set(known):
        raise ConfigurationError(
            f"Dask's configuration has {_NAMESPACE}.{key.replace('_', '-')}, which is not a key of "
            f"[execution].{nearest(key, known)} Remove it."
        )
    if not isinstance(given, dict) or any(key in given for key in _PLACES):
        return document
    added = {key: value for key, value in defaults.items() if key not in given}
    if not added:
        return document
    origins: dict[tuple[str, ...], str] = {
        ("execution", key): f"Dask's configuration, {_NAMESPACE}.{key.replace('_', '-')}"
        for key in added
    }
    return dataclasses.replace(
        document,
        tables={**document.tables, "execution": {**given, **msgspec.to_builtins(added)}},
        overrides={**document.overrides, **origins},
    )
