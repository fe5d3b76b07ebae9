"""From an experiment file, or a few options, to checked settings."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from mscam_dask.benchmark.lookup import dataset_table, method_problems
from mscam_dask.benchmark.settings import (
    KIND_TABLES,
    CompareTable,
    DatasetTable,
    ExperimentSettings,
    RobustnessTable,
    SweepTable,
)
from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.config.file_names import are_one_name, name_of_pipeline, name_problem
from mscam_dask.pipeline.config.parse import read_table, shown, sub_tables, unknown_tables
from mscam_dask.pipeline.config.settings import ExecutionTable, OutputTable
from mscam_dask.pipeline.config.toml_document import Document, Override, document_of, read_document
from mscam_dask.pipeline.config.validate import (
    credential_problems,
    execution_problems,
    text_problems,
)

__all__ = ["Command", "experiment_command", "read_experiment"]

Command = Literal["compare", "sweep"]

_KINDS: dict[str, type[CompareTable | RobustnessTable | SweepTable]] = {
    "compare": CompareTable,
    "robustness": RobustnessTable,
    "sweep": SweepTable,
}
_TABLES = (*_KINDS, "dataset", "parameters", "grid", "execution", "output")


def experiment_command(tables: Collection[str]) -> Command | None:
    """Return the command that a file with these tables is for; None when it is no experiment."""
    if not _KINDS.keys() & set(tables):
        return None
    return "compare" if {"compare", "robustness"} & set(tables) else "sweep"


def read_experiment(
    path: str | Path | None,
    overrides: Sequence[Override] = (),
    *,
    command: Command = "compare",
) -> ExperimentSettings:
    """Read and check an experiment file, and that data and methods it names exist.

    Parameters
    ----------
    path
        TOML file; None when the overrides say everything.
    overrides
        Values from the command line, which win over the file's.
    command
        "compare" or "sweep": a file for the other one is refused.

    Returns
    -------
    ExperimentSettings
        With absolute paths.

    Raises
    ------
    ConfigurationError
        Listing every problem with file, line, table and key: unknown keys, wrong types and
        values, methods, parameters and data sets that do not exist, with the nearest ones.
    """
    document = document_of(overrides) if path is None else read_document(path, overrides)
    problems: list[str] = [
        *unknown_tables(document, _TABLES),
        *text_problems(document),
        *credential_problems(document),
    ]
    name = _kind_table(document, command, problems)
    table = None if name is None else read_table(document, (name,), _KINDS[name], problems)
    execution = read_table(document, ("execution",), ExecutionTable, problems)
    output = read_table(document, ("output",), OutputTable, problems)
    if execution is not None:
        problems.extend(execution_problems(document, execution))
    problems.extend(
        f"{document.where('output', key)}: [output] {key} is of runs; an experiment keeps every fit "
        "that has ended in its one directory. Leave it out."
        for key in ("checkpoints", "keep")
        if getattr(output, key, None) is not None
    )
    parameters = sub_tables(document, "parameters", problems)
    grids = sub_tables(document, "grid", problems)
    datasets: dict[str, DatasetTable] = {}
    if table is not None and name is not None:
        datasets = _datasets(document, name, table, problems)
        problems.extend(method_problems(document, name, table, parameters, grids))
    if problems:
        raise ConfigurationError("\n".join(dict.fromkeys(problems)))
    assert name is not None
    assert table is not None
    assert execution is not None
    assert output is not None
    return ExperimentSettings(
        name="comparison" if path is None else name_of_pipeline(path),
        file=None if path is None else str(path),
        kind=KIND_TABLES[name],
        table=table,
        datasets=datasets,
        parameters=parameters,
        grids=grids,
        execution=_absolute(document, "execution", execution, ("tls_ca", "tls_cert", "tls_key")),
        output=_absolute(document, "output", output, ("directory", "root")),
    )


def _kind_table(document: Document, command: str, problems: list[str]) -> str | None:
    """Which of [compare], [robustness] and [sweep] the file has."""
    found = [name for name in _KINDS if name in document.tables]
    allowed = ["sweep"] if command == "sweep" else ["compare", "robustness"]
    words = " or ".join(f"[{name}]" for name in allowed)
    if len(found) > 1:
        problems.append(
            f"{document.where(found[1])}: an experiment is one of [{found[0]}] and [{found[1]}]; "
            "keep one of them."
        )
        return None
    if not found:
        problems.append(
            f"{document.path}: there is no table {words}, which says what to do with which data."
        )
        return None
    if found[0] not in allowed:
        other = "sweep" if found[0] == "sweep" else "compare"
        problems.append(
            f"{document.where(found[0])}: [{found[0]}] is for mscam-dask {other}; mscam-dask "
            f"{command} takes {words}."
        )
        return None
    return found[0]


def _datasets(
    document: Document,
    name: str,
    table: CompareTable | RobustnessTable | SweepTable,
    problems: list[str],
) -> dict[str, DatasetTable]:
    declared = sub_tables(document, "dataset", problems)
    read: dict[str, DatasetTable] = {}
    for key in declared:
        if (problem := name_problem(key)) is not None:
            problems.append(
                f"{document.where('dataset', key)}: the name {shown(key)} of a data set {problem}; "
                "its store is called by it. Choose another NAME for [dataset.NAME]."
            )
        given = read_table(document, ("dataset", key), DatasetTable, problems)
        if given is not None:
            read[key] = _source_paths(document, key, given)
    if isinstance(table, RobustnessTable):
        if declared:
            problems.append(
                f"{document.where('dataset')}: [robustness] makes its own data; leave "
                f"[dataset.{next(iter(declared))}] out."
            )
        return {}
    directory = table.directory
    if directory is not None:
        directory = document.absolute(directory, name, "directory")
    found: dict[str, DatasetTable] = {}
    for asked in table.datasets:
        where = document.where(name, "datasets")
        key, one = dataset_table(
            asked,
            read,
            absolute=lambda written: document.absolute(written, name, "datasets"),
            directory=directory,
            declared=tuple(declared),
        )
        if isinstance(one, str):
            problems.append(f"{where}: [{name}] datasets has {asked!r}: {one}")
        elif key in found:
            problems.append(f"{where}: [{name}] datasets has {key!r} twice; keep one of them.")
        elif key not in declared and (problem := name_problem(key)) is not None:
            problems.append(
                f"{where}: [{name}] datasets has {asked!r}, and the name {shown(key)} {problem}; the "
                "data set's store is called by it. Choose a name for it in a table [dataset.NAME]."
            )
        elif one is not None:
            problems.extend(
                f"{where}: [{name}] datasets has {shown(other)} and {shown(key)}; their stores are called "
                "by these names, which not every file system tells apart. Choose another name for one "
                "of them in a table [dataset.NAME]."
                for other in found
                if are_one_name(other, key)
            )
            found[key] = one
    return found


def _source_paths(document: Document, key: str, table: DatasetTable) -> DatasetTable:
    from mscam_dask.pipeline.config.settings import BUILT_IN_SOURCES

    changes: dict[str, Any] = {}
    if table.source not in BUILT_IN_SOURCES:
        paths = [document.absolute(item, "dataset", key, "source") for item in table.sources]
        changes["source"] = paths[0] if len(paths) == 1 else paths
    for name in ("path", "cache"):
        value = getattr(table, name)
        if value is not None:
            changes[name] = document.absolute(value, "dataset", key, name)
    if table.labels is not None:
        labels = document.absolute(table.labels, "dataset", key, "labels")
        changes["labels"] = labels if Path(labels).is_file() else table.labels
    return msgspec.structs.replace(table, **changes)


def _absolute(document: Document, name: str, table: Any, keys: Sequence[str]) -> Any:
    changes: Mapping[str, Any] = {
        key: document.absolute(value, name, key)
        for key in keys
        if (value := getattr(table, key)) is not None
    }
    return msgspec.structs.replace(table, **changes)
