"""Parsing and validation of a pipeline file, with all problems in one error."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from mscam_dask.data.store.object_store import as_location
from mscam_dask.errors import ConfigurationError, redacted
from mscam_dask.pipeline.config.cluster_types import (
    execution_problems,
    with_dask_defaults,
)
from mscam_dask.pipeline.config.parse import (
    absolute_paths,
    name_of_pipeline,
    nearest,
    parse_memory,
    read_table,
    shown,
    unknown_tables,
)
from mscam_dask.pipeline.config.settings import (
    BUILT_IN_SOURCES,
    ClusterKeys,
    ClusterTable,
    DataTable,
    EvaluateTable,
    ExecutionTable,
    IncrementalTable,
    OutputTable,
    ReportTable,
    Settings,
)
from mscam_dask.pipeline.config.toml_document import Document, Override, read_document
from mscam_dask.types.parameters import Constants, Parameters

# In these addresses the part before the @ is a container.
_CONTAINER = re.compile(r"\b((?:abfss?|wasbs?)://)[^\s/@:]+@")


def text_problems(document: Document) -> Iterable[str]:
    """Yield a problem for each text that cannot be a path, name or address."""
    for key, text in document.texts():
        if "://" in text and key[0] == "output" and key[1:] != ("checkpoints",):
            yield (
                f"{document.where(*key)}: {'.'.join(key)} = {shown(text)} is a URL, but a run directory is "
                "on a file system. Give a directory; only [output] checkpoints may be a URL."
            )
        if "://" in text and (
            (key[0] in ("data", "dataset") and key[-1] == "source")
            or key == ("output", "checkpoints")
        ):
            try:
                as_location(text)
            except ConfigurationError as error:
                yield f"{document.where(*key)}: {error}"
        if "\0" in text:
            name = ".".join(key[1:])
            yield (
                f"{document.where(*key)}: [{key[0]}] {name} has a NUL character: {shown(text)}. "
                "Remove it."
            )


_ONLY_OF = {
    "families": "digits",
    "path": "mfeat",
    "cache": "mfeat",
    **dict.fromkeys(
        ("samples_in", "header", "id_column", "join", "impute", "delimiter", "decimal", "comment"),
        "files",
    ),
    **dict.fromkeys(("skip", "max_bytes"), "files"),
}


def data_problems(document: Document, data: DataTable) -> Iterable[str]:
    """Yield the conflicts between keys of [data]."""
    built_in = [source for source in data.sources if source in BUILT_IN_SOURCES]
    if built_in and len(data.sources) > 1:
        yield (
            f"{document.where('data', 'source')}: {built_in[0]!r} cannot be combined with other "
            f"sources. Name it alone, or write ./{built_in[0]} for a file of that name."
        )
        return
    source = built_in[0] if built_in else "files"
    for key, owner in _ONLY_OF.items():
        if getattr(data, key) is not None and source != owner:
            meant = "source = files" if owner == "files" else f"source = {owner!r}"
            yield (
                f"{document.where('data', key)}: [data] {key} requires {meant}, not "
                f"{data.source!r}. Remove it."
            )
    if data.max_bytes is not None:
        try:
            parse_memory(data.max_bytes, "max_bytes")
        except ConfigurationError as error:
            yield f"{document.where('data', 'max_bytes')}: [data] {error}"
    if data.path is not None and data.cache is not None:
        yield (
            f"{document.where('data', 'cache')}: [data] has path (existing files) and "
            "cache (directory of downloads). Keep one of them."
        )


def output_problems(document: Document, output: OutputTable) -> Iterable[str]:
    """Yield the conflicts between keys of [output]."""
    if output.keep is not None and output.directory is not None:
        yield (
            f"{document.where('output', 'keep')}: [output] keep counts run directories in root, "
            "but directory names a single one. Keep one of them."
        )


def credential_problems(document: Document) -> Iterable[str]:
    """Yield a problem for each credential; a run directory has a copy of the pipeline file."""
    for key, value in document.texts():
        address = _CONTAINER.sub(r"\g<1>", value)
        if redacted(address) != address:
            yield (
                f"{document.where(*key)}: {'.'.join(key)} contains a credential, and pipeline "
                "files are copied into run directories. Put it into the environment "
                "(AWS_SECRET_ACCESS_KEY, ...) or the configuration file of its library."
            )


_KINDS: dict[str, type[msgspec.Struct]] = {
    "data": DataTable,
    "execution": ExecutionTable,
    "evaluate": EvaluateTable,
    "incremental": IncrementalTable,
    "report": ReportTable,
    "output": OutputTable,
}
_CHECKS: dict[str, Callable[[Document, Any], Iterable[str]]] = {
    "data": data_problems,
    "execution": execution_problems,
    "output": output_problems,
}
PATHS = {
    "data": ("path", "cache"),
    "execution": (
        *("tls_ca", "tls_cert", "tls_key", "scheduler_file"),
        "cluster_options.custom_cluster_spec",
    ),
    "report": ("columns",),
    "output": ("directory", "root", "checkpoints", "metrics"),
}
"""Keys of each table that are paths."""

_TABLES = ("data", "cluster", "execution", "evaluate", "incremental", "report", "output")
_EXPERIMENTS = ("compare", "robustness", "sweep")

# Parameters of the estimators that belong elsewhere, or are for Python only.
_NOT_IN_CLUSTER = {
    "view_type": "view types belong in [data]",
    "type": "[execution] cluster is the type of the Dask cluster",
    "options": "[execution.cluster_options] are the options of the Dask cluster",
    "adapt": "[execution] adapt is that of the Dask cluster",
    "n_jobs": "threads belong in [execution]",
    "client": "[execution] names the cluster",
    "impute": "[data] impute fills missing cells in the store",
    "callbacks": "they are for Python only",
    "checkpoint_store": "[output] checkpoints is their place",
    "tol": "it is score_tie in [cluster.constants]",
}
_CONSTANTS = tuple(field.name for field in dataclasses.fields(Constants))


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
        document = with_dask_defaults(document)
    problems = [
        *unknown_tables(document, _TABLES, "a pipeline", _hint_of_tables),
        *(
            f"{document.path}: the table [{name}] is missing. Add it."
            for name in ("data", "cluster")
            if name not in document.tables
        ),
        *text_problems(document),
        *credential_problems(document),
    ]
    tables: dict[str, Any] = {
        name: read_table(document, (name,), kind, problems, _suggest_table)
        for name, kind in _KINDS.items()
        if name != "data" or name in document.tables
    }
    cluster = _cluster(document, problems) if "cluster" in document.tables else None
    for name, check in _CHECKS.items():
        if tables.get(name) is not None:
            problems.extend(check(document, tables[name]))
    if problems or cluster is None:
        raise ConfigurationError("\n".join(dict.fromkeys(problems)))
    for name, keys in PATHS.items():
        tables[name] = absolute_paths(document, name, tables[name], keys)
    return Settings(
        name=name_of_pipeline(document.path),
        cluster=cluster,
        **{**tables, "data": _with_source_paths(document, tables["data"])},
    )


def _hint_of_tables(name: str, allowed: Sequence[str]) -> str:
    if name in _EXPERIMENTS:
        return f" An experiment file has no [data] and [cluster]: [{name}] and [dataset.NAME] name its data."
    return nearest(name, allowed)


def _suggest_table(key: str, allowed: Sequence[str]) -> str:
    """Suggest the right table for a key, or else the closest allowed key."""
    tables = [other for other, kind in _KINDS.items() if key in kind.__struct_fields__]
    return f" It belongs in [{tables[0]}]." if tables else nearest(key, allowed)


def _not_in_cluster(key: str, allowed: Sequence[str]) -> str:
    if key in _NOT_IN_CLUSTER:
        return f" It does not belong here: {_NOT_IN_CLUSTER[key]}."
    if key in _CONSTANTS:
        return " It belongs in [cluster.constants]."
    return _suggest_table(key, allowed)


def _cluster(document: Document, problems: list[str]) -> ClusterTable | None:
    keys = read_table(document, ("cluster",), ClusterKeys, problems, _not_in_cluster)
    if keys is None:
        return None
    parameters = msgspec.structs.asdict(keys)
    parameters["constants"] = msgspec.to_builtins(keys.constants)
    method = parameters.pop("method")
    problems.extend(_range_problems(document, parameters))
    return ClusterTable(method=method, parameters=parameters)


def _range_problems(document: Document, parameters: Mapping[str, Any]) -> Iterable[str]:
    """Yield a problem for each value outside the range of its parameter."""
    # here, views are excluded by name; in Parameters, by position; the constants are valid
    names = {field.name for field in dataclasses.fields(Parameters)}
    names -= {"exclude_views", "constants"}
    values = {
        name: value for name, value in parameters.items() if name in names and value is not None
    }
    if values["n_clusters"] == "auto":
        values["n_clusters"] = parameters["max_clusters"] or 2
    elif parameters["max_clusters"] is not None:
        yield (
            f"{document.where('cluster', 'max_clusters')}: [cluster] max_clusters requires "
            'n_clusters = "auto". Remove it.'
        )
    seed = parameters.get("random_state")
    values["seed"] = 0 if seed is None else seed
    for name, value in values.items():  # one by one, so that the first does not hide the others
        try:
            Parameters(**{"n_clusters": 1, name: value})
        except ConfigurationError as error:
            key = "random_state" if name == "seed" else name
            message = str(error).replace(f"{name}=", f"{key}=", 1)
            yield f"{document.where('cluster', key)}: [cluster] {message}"


def _with_source_paths(document: Document, data: DataTable) -> DataTable:
    """Make the paths of files in [data] absolute."""
    changes: dict[str, Any] = {}
    if data.source not in BUILT_IN_SOURCES:
        paths = [document.absolute(item, "data", "source") for item in data.sources]
        changes["source"] = paths[0] if len(paths) == 1 else paths
    for key in ("labels", "batches", "partial_labels"):
        named = getattr(data, key)
        if named is not None:
            candidate = document.absolute(named, "data", key)
            changes[key] = candidate if Path(candidate).is_file() else named
    return msgspec.structs.replace(data, **changes)
