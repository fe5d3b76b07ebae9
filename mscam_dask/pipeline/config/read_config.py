"""Parsing and validation of a pipeline file, with all problems in one error."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec

from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.config.cluster_types import with_dask_defaults
from mscam_dask.pipeline.config.parse import (
    known_keys,
    name_of_pipeline,
    nearest,
    read_table,
    shown,
    type_problem,
)
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
    credential_problems,
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

# Parameters of the estimators that belong elsewhere, or are for Python only.
_NOT_IN_CLUSTER = {
    "view_type": "view types belong in [data]",
    "type": "[execution] cluster is the type of the Dask cluster",
    "options": "[execution.cluster_options] are the options of the Dask cluster",
    "adapt": "[execution] adapt is that of the Dask cluster",
    "n_jobs": "threads belong in [execution]",
    "client": "[execution] names the cluster",
    "n_features_per_view": "[data] gives the views",
    "impute": "[data] impute fills missing cells in the store",
    "callbacks": "they are for Python only",
    "checkpoint_store": "[output] checkpoints is their place",
    "init_labels": "[incremental] takes them from the previous run",
}


def read_config(
    path: str | Path, overrides: Sequence[Override] = (), *, dask_defaults: bool = False
) -> Settings:
    """Read and check a pipeline file.

    Parameters
    ----------
    path
        TOML file.
    overrides
        Values that replace those of the file.
    dask_defaults
        Whether Dask's configuration has defaults of [execution]
        (`mscam_dask.pipeline.config.cluster_types.with_dask_defaults`).

    Returns
    -------
    Settings
        Settings with absolute paths. Paths in the file are relative to the file, and paths on the
        command line to the working directory.

    Raises
    ------
    ConfigurationError
        Lists every unknown or misplaced key, wrong type and wrong value, with file, line, table and
        key. Also raised when the name of the file is not valid for a directory.
    """
    document = read_document(path, overrides)
    if dask_defaults:
        document = with_dask_defaults(document)
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
        execution=_with_paths(
            document, "execution", execution, ("tls_ca", "tls_cert", "tls_key", "scheduler_file")
        ),
        evaluate=evaluate,
        report=_with_paths(document, "report", report, ("columns",)),
        incremental=incremental,
        output=_with_paths(
            document, "output", output, ("directory", "root", "checkpoints", "metrics")
        ),
    )


def _unknown_tables(document: Document) -> Iterable[str]:
    for name, value in document.tables.items():
        if name not in _TABLES:
            kind = f"table [{name}]" if isinstance(value, dict) else f"key {name!r}"
            hint = nearest(name, _TABLES)
            if name in _EXPERIMENTS:
                hint = (
                    " An experiment file has no [data] and [cluster]: "
                    f"[{name}] and [dataset.NAME] name its data."
                )
            yield (
                f"{document.where(name)}: a pipeline has no {kind}.{hint} Allowed are "
                f"the tables {', '.join(f'[{table}]' for table in _TABLES)}."
            )
    for name in ("data", "cluster"):
        if name not in document.tables:
            yield f"{document.path}: the table [{name}] is missing. Add it."


def _table(
    document: Document, name: str, kind: type[_TableT], problems: list[str]
) -> _TableT | None:
    """Read one table; None, with problems, if it is invalid."""
    if name == "data" and name not in document.tables:
        return None  # reported as missing
    return read_table(document, (name,), kind, problems, _suggest_table)


def _suggest_table(key: str, allowed: Sequence[str]) -> str:
    """Suggest the right table for a key, or else the closest allowed key."""
    tables = [other for other, kind in _KINDS.items() if key in kind.__struct_fields__]
    return f" It belongs in [{tables[0]}]." if tables else nearest(key, allowed)


def _not_in_cluster(key: str, allowed: Sequence[str]) -> str:
    if key in _NOT_IN_CLUSTER:
        return f" It does not belong here: {_NOT_IN_CLUSTER[key]}."
    return _suggest_table(key, allowed)


def _cluster(document: Document, problems: list[str]) -> ClusterTable | None:
    from mscam_dask.estimators import MSCAM, MSCAN

    given = document.tables.get("cluster")
    if given is None:
        return None  # reported as missing
    methods: tuple[Method, ...] = get_args(Method)
    requested = given.get("method", methods[0]) if isinstance(given, dict) else methods[0]
    method = next((name for name in methods if name == requested), None)
    if method is None:
        problems.append(
            f"{document.where('cluster', 'method')}: [cluster] method = {shown(requested)}; allowed "
            f"are {', '.join(methods)}.{nearest(str(requested), methods)}"
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
            f'{shown(known["n_clusters"])}. Give a whole number >= 1, or "auto" to select it '
            "without labels."
        )
        return None
    if "n_clusters" not in known:
        problems.append(
            f"{document.where('cluster')}: [cluster] has no n_clusters. "
            'Give the number of clusters, or "auto".'
        )
        return None
    table = _parameter_struct(defaults)
    type_problems = []
    for name, value in known.items():  # msgspec reports only the first
        try:
            msgspec.convert({name: value}, table)
        except msgspec.ValidationError as error:
            type_problems.append(type_problem(document, "cluster", known, error, table))
    if type_problems:
        problems.extend(type_problems)
        return None
    parameters = msgspec.structs.asdict(msgspec.convert(known, table))
    problems.extend(_range_problems(document, method, parameters))
    return ClusterTable(method=method, parameters=parameters)


def _parameter_struct(defaults: Mapping[str, Any]) -> type[msgspec.Struct]:
    """Return the structure of [cluster] for one method, with the types of `ClusterKeys`."""
    types = {field.name: field.type for field in msgspec.structs.fields(ClusterKeys)}
    fields = [(name, types[name], default) for name, default in defaults.items()]
    return msgspec.defstruct("ClusterParameters", fields, kw_only=True)


def _range_problems(
    document: Document, method: Method, parameters: Mapping[str, Any]
) -> Iterable[str]:
    """Yield a problem for each value outside the range of its parameter."""
    from mscam_dask.types.parameters import Parameters

    # here, views are excluded by name; in Parameters, by position
    names = {field.name for field in dataclasses.fields(Parameters)} - {"exclude_views"}
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
            Parameters(**{"n_clusters": 1, "model": method, name: value})
        except ConfigurationError as error:
            key = "random_state" if name == "seed" else name
            message = str(error).replace(f"{name}=", f"{key}=", 1)
            yield f"{document.where('cluster', key)}: [cluster] {message}"


def _with_paths(document: Document, name: str, table: _TableT, keys: Sequence[str]) -> _TableT:
    """Make the paths of a table absolute."""
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
