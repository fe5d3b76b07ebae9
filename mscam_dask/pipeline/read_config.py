"""Pipeline files: their tables, the cluster types that they can name, and conflicts between keys, all in one error."""

from __future__ import annotations

import inspect
import signal
import threading
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.settings import (
    BUILT_IN_SOURCES,
    CLUSTER_TYPES,
    ClusterKeys,
    ClusterTable,
    DataTable,
    ExecutionTable,
    OutputTable,
    PipelineTables,
    Settings,
)
from mscam_dask.pipeline.toml_document import (
    Check,
    Document,
    Key,
    Override,
    dask_overrides,
    misplaced,
    name_of_pipeline,
    read_document,
    read_tables,
    shown,
    toml_text,
)
from mscam_dask.types.allowed import nearest

# Tables of other files, and parameters of the estimators that are elsewhere.
_ELSEWHERE = {
    **dict.fromkeys(
        ("compare", "robustness", "sweep"),
        "an experiment file, which has [dataset.NAME] in place of [data]",
    ),
    "n_jobs": "[execution] as threads",
    "client": "[execution] as scheduler",
    "checkpoint_store": "[output] as checkpoints",
    "tol": "[cluster.constants] as score_tie",
}

# Keys of [data] that are for one kind of sources only.
_OF_SOURCES = {
    "digits": ("families",),
    "mfeat": ("path", "cache"),
    "files": (
        *("samples_in", "header", "id_column", "join", "impute", "max_bytes"),
        *("delimiter", "decimal", "comment", "skip"),
    ),
}


def read_config(
    file: str | Path | Document,
    overrides: Sequence[Override] = (),
    *,
    dask_defaults: bool = False,
) -> Settings:
    """Read and check a pipeline file."""
    document = file if isinstance(file, Document) else read_document(file)
    document = document.overridden(overrides)
    if dask_defaults:
        document = document.overridden(dask_overrides(document))
    checks: dict[str, Check] = {
        "data": _data_problems,
        "cluster": _cluster_problems,
        "execution": execution_problems,
        "output": _output_problems,
    }
    tables = read_tables(document, PipelineTables, checks, _ELSEWHERE)
    parameters = msgspec.structs.asdict(tables.cluster)
    parameters["constants"] = msgspec.to_builtins(tables.cluster.constants)
    cluster = ClusterTable(method=parameters.pop("method"), parameters=parameters)
    settings = {**msgspec.structs.asdict(tables), "cluster": cluster}
    return Settings(name=name_of_pipeline(document.path), **settings)


def _data_problems(data: DataTable) -> Iterable[tuple[Key, str]]:
    built_in = [source for source in data.sources if source in BUILT_IN_SOURCES]
    if built_in and len(data.sources) > 1:
        name = built_in[0]
        yield ("source",), f"has {name!r} beside others. Name it alone, or a file as ./{name}."
        return
    yield from misplaced(data, built_in[0] if built_in else "files", _OF_SOURCES)
    if data.path is not None and data.cache is not None:
        yield ("cache",), "(of downloads) and path (existing files) exclude each other. Keep one."


def _cluster_problems(cluster: ClusterKeys) -> Iterable[tuple[Key, str]]:
    if cluster.max_clusters is not None and cluster.n_clusters != "auto":
        yield ("max_clusters",), 'requires n_clusters = "auto". Remove it.'


def _output_problems(output: OutputTable) -> Iterable[tuple[Key, str]]:
    if output.keep is not None and output.directory is not None:
        yield ("keep",), "counts runs in root, but directory names a single one. Keep one of them."


def settings_text(settings: Settings) -> str:
    """Return the text of a pipeline file with these settings, including defaults."""
    tables = msgspec.to_builtins(settings)
    del tables["name"]
    tables["cluster"] = {"method": settings.cluster.method, **settings.cluster.parameters}
    return toml_text(tables)


# cluster types -----------------------------------------------------------------------------------


# Names for pip install, by the module of a class; SSHCluster imports its library only when it starts.
_EXTRAS = {
    "dask_jobqueue": "mscam-dask[jobqueue]",
    "dask_gateway": "mscam-dask[gateway]",
    "dask_kubernetes": "mscam-dask[kubernetes]",
    "asyncssh": "mscam-dask[ssh]",
}

# Options that the run sets, or that are not values of TOML.
_OURS = {
    *("asynchronous", "client", "config_name", "host", "job_cls", "job_name", "loop", "n_workers"),
    *("protocol", "scheduler", "scheduler_cls", "security", "self", "silence_logs", "worker_class"),
}
# The others of KubeCluster are in its manifest.
_OF_KUBERNETES = {
    *("custom_cluster_spec", "image", "namespace", "port_forward_cluster_ip"),
    *("resource_timeout", "scheduler_forward_port"),
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


def load_class(name: str) -> Any:
    """Import the class of a cluster."""
    module, _, attribute = CLUSTER_TYPES.get(name, name).partition(":")
    root = "asyncssh" if name == "ssh" else module.partition(".")[0]
    try:
        _imported(root)
        found = getattr(_imported(module), attribute, None)
    except (ImportError, TypeError, ValueError) as error:
        remedy = "Correct the name, install it, or add its directory to PYTHONPATH."
        if name in CLUSTER_TYPES:
            remedy = f"Install it: pip install '{_EXTRAS.get(root, root)}'"
        raise ConfigurationError(
            f"the cluster {name!r} needs a library that is not installed ({error}). {remedy}"
        ) from error
    is_cluster = isinstance(found, type) and hasattr(found, "scheduler_address")
    if found is None or not (is_cluster or name in CLUSTER_TYPES):
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
    """Return the options that a class of the table takes; None for those that a gateway decides."""
    if name == "gateway":
        return None
    if name == "kubernetes":
        return _OF_KUBERNETES
    callables = [found]
    if is_queue(name):  # the options of a job are passed on
        callables += [part.__init__ for part in found.job_cls.__mro__[:-1]]
    elif name == "local":
        callables.append(import_module("distributed").Worker)
    elif name == "slurm-runner":
        callables.append(found.__mro__[1])
    taken = map(inspect.getfullargspec, callables)
    return {option for each in taken for option in (*each.args, *each.kwonlyargs)} - _OURS


_TLS = {"tls_ca", "tls_cert", "tls_key"}
_STARTED = {"cluster_options", "start_timeout"}
_SCALED = {*_STARTED, "workers", "adapt"}
_SIZED = {*_SCALED, "threads", "memory_limit"}
_RUNNING = ("scheduler", "scheduler-file")
_QUEUES = [name for name in CLUSTER_TYPES if is_queue(name)]
_OF_CLUSTERS = {
    "in_process": {"in_process", "threads"},
    "scheduler": {"scheduler", *_TLS},
    "scheduler-file": {"scheduler_file", *_TLS},
    "local": _SIZED,
    **{name: {*_SIZED, *_TLS, "lifetime", "lifetime_stagger"} for name in _QUEUES},
    "ssh": {*_STARTED, *_TLS},  # its workers are one for each host
    "slurm-runner": {*_STARTED, *_TLS},  # ... for each task of srun
    "gateway": _SCALED,
    "kubernetes": {*_SCALED, *_TLS},
}
"""Keys of [execution] for each type of a cluster, besides those of all; other classes have `_SCALED`."""


def execution_problems(execution: ExecutionTable) -> Iterable[tuple[Key, str]]:
    """Yield the keys of [execution] that conflict, and what is wrong with its cluster."""
    name = type_of(execution)
    if name not in CLUSTER_TYPES and ":" not in name:
        allowed = f"{', '.join(CLUSTER_TYPES)} and module:Class"
        yield ("cluster",), f"= {shown(name)}; allowed are {allowed}.{nearest(name, CLUSTER_TYPES)}"
        return
    yield from _conflicts(execution, name)
    if execution.cluster is None or name in _RUNNING:
        return
    try:
        found = load_class(name)
    except ConfigurationError as error:
        yield ("cluster",), f"= {shown(name)}: {error}"
        return
    if name in CLUSTER_TYPES:
        if needed := _needed(execution, name):
            yield ("cluster",), f"= {shown(name)} needs {needed}."
        yield from _option_problems(execution.cluster_options or {}, name, found)


def _conflicts(execution: ExecutionTable, name: str) -> Iterable[tuple[Key, str]]:
    """Yield the keys that are not for the type of the cluster, or conflict with another key."""
    running = (execution.cluster, execution.scheduler, execution.scheduler_file)
    kind = "in_process" if execution.in_process and not any(running) else name
    yield from misplaced(execution, kind, {**_OF_CLUSTERS, kind: _OF_CLUSTERS.get(kind, _SCALED)})
    needed = name.replace("-", "_")
    if name in _RUNNING and getattr(execution, needed) is None:
        yield ("cluster",), f"= {name!r} needs {needed}. Add it."
    if execution.lifetime_stagger is not None and execution.lifetime is None:
        yield ("lifetime_stagger",), "needs lifetime. Add it."
    if execution.workers is not None and execution.adapt is not None:
        yield ("workers",), "is a fixed number, and adapt changes it. Keep one of them."
    adapt = execution.adapt
    if adapt is not None and adapt.minimum > adapt.maximum:
        above = f"has minimum {adapt.minimum} above maximum {adapt.maximum}. Exchange them."
        yield ("adapt",), above
    same = {"threads": "threads_per_worker", "memory_limit": "memory_limit"}
    if is_queue(name):
        same = {"threads": "cores", "memory_limit": "memory"}
    for key, option in same.items():
        if getattr(execution, key) is not None and option in (execution.cluster_options or {}):
            yield (key,), f"and cluster_options {option} are the same. Keep one of them."


def _needed(execution: ExecutionTable, name: str) -> str:
    """Return what neither the pipeline nor Dask's configuration sets; empty if nothing lacks."""
    import dask.config

    options = execution.cluster_options or {}
    hosts = options.get("hosts")
    if name == "ssh" and not (isinstance(hosts, list) and len(hosts) > 1):
        return "cluster_options hosts: the host of the scheduler, and one for each worker"
    if name == "kubernetes" and not isinstance(options.get("custom_cluster_spec"), str):
        return "cluster_options custom_cluster_spec: a manifest such as deploy/k8s/cluster.yaml"
    if not is_queue(name):
        return ""
    sizes = {"cores": execution.threads, "memory": execution.memory_limit, **options}
    lacking = [
        key
        for key in ("cores", "memory", *(["disk"] if name == "htcondor" else []))
        if sizes.get(key) is None and dask.config.get(f"jobqueue.{name}.{key}", None) is None
    ]
    where = f"[execution] threads and memory_limit, cluster_options, or Dask's jobqueue.{name}"
    return f"{' and '.join(lacking)} of a job, in {where}" if lacking else ""


def _option_problems(
    options: Mapping[str, Any], name: str, found: Any
) -> Iterable[tuple[Key, str]]:
    allowed = options_of(name, found)
    for key in options:
        if key in _OURS:
            problem = (
                f"is not for {name!r}: the run sets it, by [execution] workers, tls_ca, tls_cert and tls_key, "
                "and starts a local cluster on the loopback interface. Remove it."
            )
            yield ("cluster_options", key), problem
        elif allowed is not None and key not in allowed:
            names = ", ".join(sorted(allowed))
            problem = f"is not an option of {name!r}.{nearest(key, allowed)} Allowed are {names}."
            yield ("cluster_options", key), problem
