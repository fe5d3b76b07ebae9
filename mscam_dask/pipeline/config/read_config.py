"""Pipeline files: their tables, and the conflicts between keys, all in one error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from mscam_dask.pipeline.config.cluster_types import execution_problems
from mscam_dask.pipeline.config.parse import Check, misplaced, name_of_pipeline, read_tables
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
from mscam_dask.pipeline.config.toml_document import (
    Document,
    Key,
    Override,
    dask_overrides,
    read_document,
)


class _Pipeline(msgspec.Struct, frozen=True, kw_only=True):
    """Tables of a pipeline file."""

    data: DataTable
    cluster: ClusterKeys
    execution: ExecutionTable = ExecutionTable()
    evaluate: EvaluateTable = EvaluateTable()
    incremental: IncrementalTable = IncrementalTable()
    report: ReportTable = ReportTable()
    output: OutputTable = OutputTable()


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
_KEYS = {
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
    tables = read_tables(document, _Pipeline, checks, _ELSEWHERE)
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
    yield from misplaced(data, built_in[0] if built_in else "files", _KEYS)
    if data.path is not None and data.cache is not None:
        yield ("cache",), "(of downloads) and path (existing files) exclude each other. Keep one."


def _cluster_problems(cluster: ClusterKeys) -> Iterable[tuple[Key, str]]:
    if cluster.max_clusters is not None and cluster.n_clusters != "auto":
        yield ("max_clusters",), 'requires n_clusters = "auto". Remove it.'


def _output_problems(output: OutputTable) -> Iterable[tuple[Key, str]]:
    if output.keep is not None and output.directory is not None:
        yield ("keep",), "counts runs in root, but directory names a single one. Keep one of them."
