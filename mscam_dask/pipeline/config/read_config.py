"""From a pipeline file to checked settings, every problem at once and each with its place."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec

from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.config.errors import nearest, shown, type_problem
from mscam_dask.pipeline.config.file_names import name_of_pipeline
from mscam_dask.pipeline.config.parse import known_keys, read_table
from mscam_dask.pipeline.config.redaction import credential_problems
from mscam_dask.pipeline.config.settings import (
    BUILT_IN_SOURCES,
    ClusterKeys,
    ClusterTable,
    DataTable,
    EvaluateTable,
    ExecutionTable,
    IncrementalTable,
    Method,
    OutputTable,
    ReportTable,
    Settings,
)
from mscam_dask.pipeline.config.toml_document import Document, Override, read_document
from mscam_dask.pipeline.config.validate import (
    data_problems,
    execution_problems,
    output_problems,
    text_problems,
)

__all__ = ["read_config"]

_TableT = TypeVar(
    "_TableT",
    DataTable,
    ExecutionTable,
    EvaluateTable,
    IncrementalTable,
    ReportTable,
    OutputTable,
)

_KINDS: dict[str, type[msgspec.Struct]] = {
    "data": DataTable,
    "execution": ExecutionTable,
    "evaluate": EvaluateTable,
    "incremental": IncrementalTable,
    "report": ReportTable,
    "output": OutputTable,
}
_TABLES = ("data", "cluster", "execution", "evaluate", "incremental", "report", "output")
_EXPERIMENTS = ("compare", "robustness", "sweep")

# Parameters of the estimators that a pipeline says elsewhere, or that only Python can give.
_NOT_IN_CLUSTER = {
    "view_type": "view types belong in [data]",
    "n_jobs": "threads belong in [execution]",
    "client": "the cluster is named in [execution]",
    "n_features_per_view": "the views come apart from [data]",
    "callbacks": "only Python can give them",
    "checkpoint_store": "a run always keeps checkpoints, in its directory",
    "init_labels": "[incremental] takes them from the last run",
}


def read_config(path: str | Path, overrides: Sequence[Override] = ()) -> Settings:
    """Read and check a pipeline file.

    Parameters
    ----------
    path
        TOML file.
    overrides
        Values from the command line, which win over the file's.

    Returns
    -------
    Settings
        With absolute paths: those in the file are relative to the file, those given on the
        command line to the working directory.

    Raises
    ------
    ConfigurationError
        Listing every unknown or misplaced key, wrong type and wrong value, with file, line,
        table and key. When no directory of a run can be called by the file's name.
    """
    document = read_document(path, overrides)
    problems: list[str] = [
        *_unknown_tables(document),
        *text_problems(document),
        *credential_problems(document),
    ]
    data = _table(document, "data", DataTable, problems)
    execution = _table(document, "execution", ExecutionTable, problems)
    evaluate = _table(document, "evaluate", EvaluateTable, problems)
    report = _table(document, "report", ReportTable, problems)
    incremental = _table(document, "incremental", IncrementalTable, problems)
    output = _table(document, "output", OutputTable, problems)
    cluster = _cluster(document, problems)
    if data is not None:
        problems.extend(data_problems(document, data))
    if execution is not None:
        problems.extend(execution_problems(document, execution))
    if output is not None:
        problems.extend(output_problems(document, output))
    if problems:
        raise ConfigurationError("\n".join(dict.fromkeys(problems)))
    assert data is not None
    assert cluster is not None
    assert execution is not None
    assert evaluate is not None
    assert report is not None
    assert incremental is not None
    assert output is not None
    return Settings(
        name=name_of_pipeline(path),
        data=_with_paths(document, "data", data, ("path", "cache")),
        cluster=cluster,
        execution=_with_paths(document, "execution", execution, ("tls_ca", "tls_cert", "tls_key")),
        evaluate=evaluate,
        report=report,
        incremental=incremental,
        output=_with_paths(document, "output", output, ("directory", "root", "checkpoints")),
    )


def _unknown_tables(document: Document) -> Iterable[str]:
    for name, value in document.tables.items():
        if name not in _TABLES:
            kind = f"table [{name}]" if isinstance(value, dict) else f"key {name!r}"
            hint = nearest(name, _TABLES)
            if name in _EXPERIMENTS:
                hint = (
                    " An experiment is a file of its own, without [data] and [cluster]: its data "
                    f"are named in [{name}] and [dataset.NAME]."
                )
            yield (
                f"{document.where(name)}: there is no {kind} in a pipeline.{hint} Allowed are "
                f"the tables {', '.join(f'[{table}]' for table in _TABLES)}."
            )
    for name in ("data", "cluster"):
        if name not in document.tables:
            yield f"{document.path}: the table [{name}] is missing; every pipeline needs it."


def _table(
    document: Document, name: str, kind: type[_TableT], problems: list[str]
) -> _TableT | None:
    """Check one table; None, with the problems added, when it cannot be used."""
    if name == "data" and name not in document.tables:
        return None  # reported as missing
    return read_table(document, (name,), kind, problems, _home_of)


def _home_of(key: str, allowed: Sequence[str]) -> str:
    """Where a key belongs that is in the wrong table, else the key that may be meant."""
    homes = [other for other, kind in _KINDS.items() if key in kind.__struct_fields__]
    return f" It belongs in [{homes[0]}]." if homes else nearest(key, allowed)


def _not_in_cluster(key: str, allowed: Sequence[str]) -> str:
    if key in _NOT_IN_CLUSTER:
        return f" It is not given here: {_NOT_IN_CLUSTER[key]}."
    return _home_of(key, allowed)


def _cluster(document: Document, problems: list[str]) -> ClusterTable | None:
    from mscam_dask.estimators import MSCAM, MSCAN

    given = document.tables.get("cluster")
    if given is None:
        return None  # reported as missing
    methods: tuple[Method, ...] = get_args(Method)
    asked = given.get("method", methods[0]) if isinstance(given, dict) else methods[0]
    method = next((name for name in methods if name == asked), None)
    if method is None:
        problems.append(
            f"{document.where('cluster', 'method')}: [cluster] method = {shown(asked)}; allowed "
            f"are {', '.join(methods)}.{nearest(str(asked), methods)}"
        )
        method = methods[0]
    estimator = MSCAM if method == "mscam" else MSCAN
    defaults = {
        name: value
        for name, value in estimator().get_params().items()
        if name not in _NOT_IN_CLUSTER
    }
    allowed = sorted({"method", *defaults})
    known = known_keys(document, ("cluster",), allowed, problems, _not_in_cluster)
    if known is None:
        return None
    known.pop("method", None)
    if isinstance(known.get("n_clusters"), str) and known["n_clusters"] != "auto":
        problems.append(
            f"{document.where('cluster', 'n_clusters')}: [cluster] n_clusters = "
            f'{shown(known["n_clusters"])}; allowed is a whole number >= 1, or "auto" to have it '
            "chosen without labels."
        )
        return None
    if "n_clusters" not in known:
        problems.append(
            f"{document.where('cluster')}: [cluster] needs n_clusters, the number of clusters to "
            "find."
        )
        return None
    table = _parameter_struct(defaults)
    of_type = []
    for name, value in known.items():  # msgspec stops at the first
        try:
            msgspec.convert({name: value}, table)
        except msgspec.ValidationError as error:
            of_type.append(type_problem(document, "cluster", known, error, table))
    if of_type:
        problems.extend(of_type)
        return None
    parameters = msgspec.structs.asdict(msgspec.convert(known, table))
    problems.extend(_range_problems(document, method, parameters))
    return ClusterTable(method=method, parameters=parameters)


def _parameter_struct(defaults: Mapping[str, Any]) -> type[msgspec.Struct]:
    """Return [cluster] of one method: its parameters with the types of `ClusterKeys`."""
    types = {field.name: field.type for field in msgspec.structs.fields(ClusterKeys)}
    fields = [(name, types[name], default) for name, default in defaults.items()]
    return msgspec.defstruct("ClusterParameters", fields, kw_only=True)


def _range_problems(
    document: Document, method: Method, parameters: Mapping[str, Any]
) -> Iterable[str]:
    """What the model itself says against the values, before any data are read."""
    from mscam_dask.types.parameters import Parameters

    names = {field.name for field in dataclasses.fields(Parameters)} - {
        "exclude_views"
    }  # known by name
    values = {
        name: value for name, value in parameters.items() if name in names and value is not None
    }
    if values["n_clusters"] == "auto":
        values["n_clusters"] = parameters["max_clusters"] or 2
    elif parameters["max_clusters"] is not None:
        yield (
            f"{document.where('cluster', 'max_clusters')}: [cluster] max_clusters goes with "
            'n_clusters = "auto". Leave it out.'
        )
    seed = parameters.get("random_state")
    values["seed"] = 0 if seed is None else seed
    for name, value in values.items():  # each for itself: the first would hide the others
        try:
            Parameters(**{"n_clusters": 1, "model": method, name: value})
        except ConfigurationError as error:
            key = "random_state" if name == "seed" else name
            message = str(error).replace(f"{name}=", f"{key}=", 1)
            yield f"{document.where('cluster', key)}: [cluster] {message}"


def _with_paths(document: Document, name: str, table: _TableT, keys: Sequence[str]) -> _TableT:
    """Make the paths of a table absolute, each from where it was written."""
    changes: dict[str, Any] = {}
    for key in keys:
        value = getattr(table, key)
        if value is not None:
            changes[key] = document.absolute(value, name, key)
    if isinstance(table, DataTable):
        if table.source not in BUILT_IN_SOURCES:
            paths = [document.absolute(item, name, "source") for item in table.sources]
            changes["source"] = paths[0] if len(paths) == 1 else paths
        if table.labels is not None:
            candidate = document.absolute(table.labels, name, "labels")
            changes["labels"] = candidate if Path(candidate).is_file() else table.labels
    return msgspec.structs.replace(table, **changes)
