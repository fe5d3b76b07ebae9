"""Types of Dask clusters that [execution] can name: their classes, options and checks.

The classes are Dask's own: distributed, dask-jobqueue, dask-gateway and dask-kubernetes.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import inspect
import re
import signal
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import msgspec

from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.config.parse import nearest, shown
from mscam_dask.pipeline.config.settings import ExecutionTable
from mscam_dask.pipeline.config.toml_document import Document

# Keys of [execution] that say where the tasks run.
_PLACES = ("cluster", "scheduler", "scheduler_file", "in_process")
_NAMESPACE = "mscam"
_OF_FITS = ("workers_timeout", "lost_worker_timeout")  # a fit reads these itself
_OF_STARTED = ("cluster_options", "adapt", "lifetime", "lifetime_stagger", "start_timeout")
_SECRET = re.compile(r"password|passwd|secret|token|api_?key|access_?key", re.IGNORECASE)
_DURATION = re.compile(r"(\d+(\.\d+)?|\.\d+)\s*([a-zA-Z]+)?")

# Never options: the run sets them, or they are not values of TOML.
_OURS = {
    "asynchronous": "",
    "loop": "",
    "self": "",
    "client": "",
    "scheduler": "",
    "config_name": "",
    "job_cls": "",
    "job_name": "",
    "scheduler_cls": "",
    "worker_class": "",
    "silence_logs": "",
    "host": "a cluster on this computer is on the loopback interface",
    "security": "the run encrypts the connections; tls_ca, tls_cert and tls_key name certificates",
    "protocol": "the run encrypts the connections",
    "n_workers": "[execution] workers is their number",
}

# Never options of KubeCluster: they are in its manifest.
_OF_THE_MANIFEST = frozenset(
    {
        "create_mode",
        "env",
        "idle_timeout",
        "jupyter",
        "name",
        "quiet",
        "resources",
        "scheduler_service_type",
        "shutdown_on_close",
        "worker_command",
    }
)


@dataclass(frozen=True)
class ClusterType:
    """Row of the table of cluster types.

    Attributes
    ----------
    target
        "module:Class"; empty for a cluster that runs already.
    install
        What pip installs for it; empty where distributed suffices.
    threads, memory
        Options of the class for `threads` and `memory_limit` of [execution]; None where it has none.
    is_queue
        Whether workers are jobs of a batch scheduler.
    scales, adapts
        Whether `workers` and `adapt` of [execution] apply.
    reserved
        Options of the class that are not for [execution.cluster_options].
    """

    target: str
    install: str = ""
    threads: str | None = None
    memory: str | None = None
    is_queue: bool = False
    scales: bool = True
    adapts: bool = True
    reserved: frozenset[str] = frozenset(_OURS)


def _queue(name: str) -> ClusterType:
    return ClusterType(
        f"dask_jobqueue:{name}", "mscam-dask[jobqueue]", "cores", "memory", is_queue=True
    )


CLUSTER_TYPES: Mapping[str, ClusterType] = {
    "local": ClusterType(
        "distributed:LocalCluster", threads="threads_per_worker", memory="memory_limit"
    ),
    "scheduler": ClusterType("", scales=False, adapts=False),
    "scheduler-file": ClusterType("", scales=False, adapts=False),
    "slurm": _queue("SLURMCluster"),
    "pbs": _queue("PBSCluster"),
    "sge": _queue("SGECluster"),
    "lsf": _queue("LSFCluster"),
    "htcondor": _queue("HTCondorCluster"),
    "oar": _queue("OARCluster"),
    "slurm-runner": ClusterType(
        "dask_jobqueue.slurm:SLURMRunner",
        "mscam-dask[jobqueue]",
        scales=False,
        adapts=False,
    ),
    "gateway": ClusterType("dask_gateway:GatewayCluster", "mscam-dask[gateway]"),
    "kubernetes": ClusterType(
        "dask_kubernetes.operator:KubeCluster",
        "mscam-dask[kubernetes]",
        reserved=frozenset(_OURS) | _OF_THE_MANIFEST,
    ),
    "ssh": ClusterType("distributed:SSHCluster", "mscam-dask[ssh]", scales=False, adapts=False),
}
"""Cluster types by name. Another one is "module:Class", a subclass of Dask's Cluster."""

# Imported by the class only when it starts.
_ALSO_NEEDED = {"ssh": "asyncssh"}


def type_of(execution: ExecutionTable) -> str:
    """Return the name of the cluster type that [execution] means."""
    if execution.cluster is not None:
        return execution.cluster
    if execution.scheduler is not None:
        return "scheduler"
    return "local" if execution.scheduler_file is None else "scheduler-file"


def cluster_type(name: str) -> ClusterType | None:
    """Return a row of the table, or one for "module:Class"; None for another name."""
    module, colon, attribute = name.partition(":")
    if colon and re.fullmatch(r"[A-Za-z_][\w.]*", module) and attribute.isidentifier():
        return ClusterType(name, module.partition(".")[0], reserved=frozenset({"self"}))
    return CLUSTER_TYPES.get(name)


def load_class(name: str) -> Any:
    """Import the class of a cluster type."""
    kind = cluster_type(name)
    assert kind is not None
    module, _, attribute = kind.target.partition(":")
    try:
        found = getattr(_imported(module), attribute)
        if name in _ALSO_NEEDED:
            _imported(_ALSO_NEEDED[name])
    except ImportError as error:
        raise ConfigurationError(
            f"the cluster {name!r} needs a library that is not installed ({error}). Install it: "
            f"pip install '{kind.install or 'distributed'}'"
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


def options_of(name: str, found: Any) -> set[str] | None:
    """Return the options that a class takes; None when it takes any."""
    kind = cluster_type(name)
    assert kind is not None
    callables = [found]
    if kind.is_queue:  # the options of a job are passed on
        callables += [part.__init__ for part in found.job_cls.__mro__[:-1]]
    elif name == "local":
        callables.append(import_module("distributed").Worker)
    elif name == "slurm-runner":
        callables.append(found.__mro__[1])
    names: set[str] = set()
    takes_any = False
    for each in callables:
        for parameter in inspect.signature(each).parameters.values():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                takes_any = True
            elif parameter.kind is not inspect.Parameter.VAR_POSITIONAL:
                names.add(parameter.name)
    if takes_any and (name == "gateway" or name not in CLUSTER_TYPES):
        return None
    return names - kind.reserved


def cluster_problems(document: Document, execution: ExecutionTable) -> Iterable[str]:
    """Yield each problem of the cluster that [execution] names."""
    name = type_of(execution)
    kind = cluster_type(name)
    if kind is None:
        yield (
            f"{document.where('execution', 'cluster')}: [execution] cluster = {shown(name)}; allowed "
            f"are {', '.join(CLUSTER_TYPES)} and module:Class.{nearest(name, CLUSTER_TYPES)}"
        )
        return
    yield from _misplaced(document, execution, name, kind)
    yield from _malformed(document, execution)
    if execution.cluster is None or not kind.target:
        return
    try:
        found = load_class(name)
    except ConfigurationError as error:
        yield f"{document.where('execution', 'cluster')}: {error}"
        return
    yield from _option_problems(document, execution, name, found)
    yield from _missing(document, execution, name, kind)


def _misplaced(
    document: Document, execution: ExecutionTable, name: str, kind: ClusterType
) -> Iterable[str]:
    """Yield a problem for each key that does not go with the type."""
    starts = bool(kind.target) and not execution.in_process
    for key, reason in (
        *_misplaced_place(execution, name),
        *(_misplaced_of_started(execution, name, kind) if starts else _none_started(execution)),
    ):
        yield f"{document.where('execution', key)}: [execution] {key} {reason}"


_Reasons = Iterable[tuple[str, str]]


def _misplaced_place(execution: ExecutionTable, name: str) -> _Reasons:
    for key in ("scheduler", "scheduler_file"):
        wanted = key.replace("_", "-")
        if getattr(execution, key) is not None and name != wanted:
            yield key, f"is for a running cluster, not for {name!r}. Remove one of them."
        if getattr(execution, key) is None and name == wanted:
            yield "cluster", f"= {name!r} needs {key}. Add it."
    if execution.in_process and execution.cluster is not None:
        yield "in_process", f"starts no cluster, but cluster = {name!r}. Keep one of them."


def _none_started(execution: ExecutionTable) -> _Reasons:
    for key in _OF_STARTED:
        if getattr(execution, key) is not None:
            yield key, "is for a cluster that the run starts. Remove it."


def _misplaced_of_started(execution: ExecutionTable, name: str, kind: ClusterType) -> _Reasons:
    if execution.adapt is not None and not kind.adapts:
        yield "adapt", f"does not apply to {name!r}, whose workers are fixed. Remove it."
    for key in ("lifetime", "lifetime_stagger"):
        if getattr(execution, key) is not None and not kind.is_queue:
            yield key, f"is for workers of a batch scheduler, not of {name!r}. Remove it."
    if execution.lifetime_stagger is not None and execution.lifetime is None:
        yield "lifetime_stagger", "needs lifetime. Add it."
    if execution.workers is not None and execution.adapt is not None:
        yield "workers", "is a fixed number, and adapt changes it. Keep one of them."
    if execution.workers is not None and not kind.scales:
        yield "workers", f"does not apply to {name!r}. {_WORKERS_OF[name]}"
    for key, option in (("threads", kind.threads), ("memory_limit", kind.memory)):
        if getattr(execution, key) is None:
            continue
        if option is None:
            yield key, f"does not apply to {name!r}. Give an option of its class, cluster_options."
        elif option in (execution.cluster_options or {}):
            yield key, f"and cluster_options {option} are the same. Keep one of them."


_WORKERS_OF = {
    "ssh": "[execution.cluster_options] hosts names the scheduler's host and one for each worker.",
    "slurm-runner": "srun --ntasks is their number and two more.",
}


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
    kind = cluster_type(name)
    assert kind is not None
    allowed = options_of(name, found)
    for key in execution.cluster_options or {}:
        where = document.where("execution", "cluster_options", key)
        if key in kind.reserved:
            reason = f": {_OURS[key]}" if _OURS.get(key) else ""
            yield f"{where}: [execution.cluster_options] {key} is not for {name!r}{reason}. Remove it."
        elif allowed is not None and key not in allowed:
            yield (
                f"{where}: [execution.cluster_options] has no key {key!r} for {name!r}."
                f"{nearest(key, allowed)} Allowed are {', '.join(sorted(allowed))}."
            )


def _missing(
    document: Document, execution: ExecutionTable, name: str, kind: ClusterType
) -> Iterable[str]:
    """Yield a problem for required options that neither the pipeline nor Dask's configuration sets."""
    import dask.config

    where = document.where("execution", "cluster")
    options = execution.cluster_options or {}
    if kind.is_queue:
        needed = {"cores": execution.threads, "memory": execution.memory_limit}
        if name == "htcondor":
            needed["disk"] = None
        lacking = [
            key
            for key, value in {**needed, **options}.items()
            if key in needed
            and value is None
            and dask.config.get(f"jobqueue.{name}.{key}", None) is None
        ]
        if lacking:
            yield (
                f"{where}: the cluster {name!r} needs {' and '.join(lacking)} of a job. Give threads and memory_limit in [execution], options in "
                f"[execution.cluster_options], or Dask's configuration jobqueue.{name}."
            )
    if name == "ssh" and len(_hosts(options)) < 2:
        yield (
            f"{where}: the cluster 'ssh' needs hosts in [execution.cluster_options]: the host of the "
            "scheduler, and one for each worker."
        )
    if name == "kubernetes" and not isinstance(options.get("custom_cluster_spec"), str):
        yield (
            f"{where}: the cluster 'kubernetes' needs custom_cluster_spec in [execution.cluster_options]: a "
            "file with the manifest of a DaskCluster, such as deploy/k8s/cluster.yaml."
        )
    if name == "gateway" and not (
        options.get("address") or dask.config.get("gateway.address", None)
    ):
        yield (
            f"{where}: the cluster 'gateway' needs the address of the gateway. Give it in "
            "[execution.cluster_options], or gateway.address in Dask's configuration."
        )


def _hosts(options: Mapping[str, Any]) -> list[Any]:
    hosts = options.get("hosts")
    return hosts if isinstance(hosts, list) else []


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
