"""Experiment files: reading, and checks that the methods, parameters and data sets they name exist."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from mscam_dask.benchmark.methods import grid_points, known_methods, method
from mscam_dask.benchmark.results import Kind, Protocol
from mscam_dask.data.datasets import CORRUPTED_SHARES
from mscam_dask.data.store.object_store import as_location
from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.config.cluster_types import execution_problems, with_dask_defaults
from mscam_dask.pipeline.config.parse import (
    absolute_paths,
    are_one_name,
    name_of_pipeline,
    name_problem,
    nearest,
    read_table,
    shown,
    sub_tables,
    unknown_tables,
)
from mscam_dask.pipeline.config.read_config import (
    PATHS,
    credential_problems,
    text_problems,
)
from mscam_dask.pipeline.config.settings import (
    BUILT_IN_SOURCES,
    Count,
    DataTable,
    Directory,
    ExecutionTable,
    Memory,
    OutputTable,
    Text,
)
from mscam_dask.pipeline.config.toml_document import COMMAND_LINE, Document, Override, read_document
from mscam_dask.types.parameters import Scale

__all__ = [
    "DATA_VARIABLE",
    "KIND_TABLES",
    "Command",
    "CompareTable",
    "DatasetTable",
    "ExperimentSettings",
    "RobustnessTable",
    "RunsTable",
    "SweepTable",
    "experiment_command",
    "read_experiment",
]

Command = Literal["compare", "sweep"]


DATA_VARIABLE = "MSCAM_DATA"
"""Environment variable with the directory of data sets."""
_ENDINGS = (".npz", ".zarr", ".mat", ".nc", "")


def experiment_command(tables: Collection[str]) -> Command | None:
    """Return the command for a file with these tables; None if it is not an experiment."""
    if not _KINDS.keys() & set(tables):
        return None
    return "compare" if {"compare", "robustness"} & set(tables) else "sweep"


def read_experiment(
    file: str | Path | Document,
    overrides: Sequence[Override] = (),
    *,
    command: Command = "compare",
) -> ExperimentSettings:
    """Read and check an experiment file, with the data and methods that it names.

    Parameters
    ----------
    file
        TOML file, or its document; `COMMAND_LINE` if the overrides hold all settings.
    overrides
        Values from the command line, which override those of the file.
    command
        "compare" or "sweep"; a file for the other one is an error.

    Returns
    -------
    ExperimentSettings
        With absolute paths.

    Raises
    ------
    ConfigurationError
        With every problem, its file, line, table and key: unknown keys, invalid types and values,
        and unknown methods, parameters and data sets with the nearest names.
    """
    document = file if isinstance(file, Document) else read_document(file)
    document = with_dask_defaults(document.overridden(overrides))
    is_file = document.path != COMMAND_LINE.path
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
        f"{document.where('output', key)}: [output] {key} is for runs only; an experiment keeps "
        "every finished trial in its directory. Remove the key."
        for key in ("checkpoints", "keep", "metrics")
        if getattr(output, key, None) is not None
    )
    parameters = sub_tables(document, "parameters", problems)
    grids = sub_tables(document, "grid", problems)
    datasets: dict[str, DatasetTable] = {}
    if table is not None and name is not None:
        datasets = _datasets(document, name, table, problems)
        if isinstance(table, SweepTable):
            problems.extend(_sweep_problems(document, table, parameters, grids))
        else:
            problems.extend(_method_problems(document, name, table, parameters, grids))
    if problems:
        raise ConfigurationError("\n".join(dict.fromkeys(problems)))
    assert name is not None
    assert table is not None
    assert execution is not None
    assert output is not None
    return ExperimentSettings(
        name=name_of_pipeline(document.path) if is_file else "comparison",
        kind=KIND_TABLES[name],
        table=table,
        datasets=datasets,
        parameters=parameters,
        grids=grids,
        execution=absolute_paths(document, "execution", execution, PATHS["execution"]),
        output=absolute_paths(document, "output", output, PATHS["output"]),
    )


def _kind_table(document: Document, command: str, problems: list[str]) -> str | None:
    """Name of the one table of [compare], [robustness] and [sweep] in the file."""
    names = [name for name in _KINDS if name in document.tables]
    allowed = [name for name in _KINDS if experiment_command([name]) == command]
    words = " or ".join(f"[{name}]" for name in allowed)
    if len(names) > 1:
        problems.append(
            f"{document.where(names[1])}: the file has both [{names[0]}] and [{names[1]}]; "
            "keep one of them."
        )
    elif not names:
        problems.append(
            f"{document.path}: the file has no table {words}. Add one, with the data sets to use."
        )
    elif names[0] not in allowed:
        problems.append(
            f"{document.where(names[0])}: [{names[0]}] is for mscam-dask "
            f"{experiment_command(names)}; mscam-dask {command} takes {words}."
        )
    else:
        return names[0]
    return None


def _dataset_tables(
    document: Document, declared: Collection[str], problems: list[str]
) -> dict[str, DatasetTable]:
    """Read the tables [dataset.NAME]; those that are not valid are left out."""
    tables: dict[str, DatasetTable] = {}
    for key in declared:
        if (problem := name_problem(key)) is not None:
            problems.append(
                f"{document.where('dataset', key)}: the name {shown(key)} of a data set {problem}, "
                "so it cannot name its store. Choose another NAME for [dataset.NAME]."
            )
        dataset = read_table(document, ("dataset", key), DatasetTable, problems)
        if dataset is not None:
            tables[key] = _source_paths(document, key, dataset)
    return tables


def _datasets(
    document: Document,
    name: str,
    table: CompareTable | RobustnessTable | SweepTable,
    problems: list[str],
) -> dict[str, DatasetTable]:
    declared = sub_tables(document, "dataset", problems)
    tables = _dataset_tables(document, declared, problems)
    if isinstance(table, RobustnessTable):
        if declared:
            problems.append(
                f"{document.where('dataset')}: [robustness] draws its own data. Remove "
                f"[dataset.{next(iter(declared))}]."
            )
        return {}
    datasets: dict[str, DatasetTable] = {}
    where = document.where(name, "datasets")
    for requested in table.datasets:
        key, resolved = _dataset_table(requested, document, name, table, tables, tuple(declared))
        problem, name_error = None, name_problem(key)
        if isinstance(resolved, str):
            problem = f"{requested!r}: {resolved}"
        elif key in datasets:
            problem = f"{key!r} twice; keep one of them."
        elif key not in declared and name_error is not None:
            problem = (
                f"{requested!r}, and the name {shown(key)} {name_error}, so it cannot name its store. "
                "Give the data set another name in a table [dataset.NAME]."
            )
        elif resolved is not None:
            same = next((previous for previous in datasets if are_one_name(previous, key)), None)
            datasets[key] = resolved
            if same is not None:
                problem = (
                    f"{shown(same)} and {shown(key)}, names of stores that some file systems do not "
                    "distinguish. Give one of them another name in a table [dataset.NAME]."
                )
        if problem is not None:
            problems.append(f"{where}: [{name}] datasets has {problem}")
    return datasets


def _source_paths(document: Document, key: str, table: DatasetTable) -> DatasetTable:
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


def _dataset_table(
    requested: str,
    document: Document,
    name: str,
    table: CompareTable | SweepTable,
    tables: Mapping[str, DatasetTable],
    declared: tuple[str, ...],
) -> tuple[str, DatasetTable | str | None]:
    """Find a data set by name, path or URL.

    Parameters
    ----------
    requested
        Entry of `datasets`.
    document, name, table
        File, and the table with `datasets`.
    tables
        Valid tables [dataset.NAME].
    declared
        Names of all tables [dataset.NAME], valid or not.

    Returns
    -------
    key : str
        Name of the data set in the results.
    dataset : DatasetTable, str or None
        The table, or a problem, or None if its problem is listed already.
    """
    if requested in declared:
        own = tables.get(requested)
        return requested, None if own is None else _checked(own)
    if requested in BUILT_IN_SOURCES:
        return requested, DatasetTable(source=requested)
    if "://" in requested:
        return Path(requested).stem, _checked(DatasetTable(source=requested))
    path = Path(document.absolute(requested, name, "datasets"))
    if path.exists():
        return path.stem, DatasetTable(source=str(path))
    directory = os.environ.get(DATA_VARIABLE)
    if table.directory is not None:
        directory = document.absolute(table.directory, name, "directory")
    return Path(requested).name, _find_in_directory(requested, path, directory, declared)


def _find_in_directory(
    requested: str, path: Path, directory: str | None, declared: tuple[str, ...]
) -> DatasetTable | str:
    """Find a data set in the directory of data sets, or return the problem."""
    if directory is None:
        return (
            f"there is no {path} and no table [dataset.{requested}], and neither `directory` nor "
            f"${DATA_VARIABLE} names a directory of data sets. Set one of them."
        )
    if not Path(directory).is_dir():
        return f"the directory of data sets, {directory}, does not exist. Correct it."
    for ending in _ENDINGS:
        file = Path(directory) / f"{requested}{ending}"
        if file.exists():
            return DatasetTable(source=str(file))
    names = sorted(
        {item.stem for item in Path(directory).iterdir() if item.suffix in _ENDINGS[:-1]}
        | {*declared, *BUILT_IN_SOURCES}
    )
    return (
        f"there is no such data set in {directory} or beside the pipeline.{nearest(requested, names)} "
        f"Allowed are {', '.join(names)}."
    )


def _checked(table: DatasetTable) -> DatasetTable | str:
    """Return the table, or its missing files; a URL is checked when it is opened."""
    sources = [] if table.source in BUILT_IN_SOURCES else list(table.sources)
    sources += [table.path] if table.path is not None else []
    try:
        paths = [path for path in map(as_location, sources) if isinstance(path, Path)]
    except ConfigurationError as error:
        return str(error)
    missing = [str(path) for path in paths if not path.exists()]
    return f"there is no {', '.join(missing)}." if missing else table


def _method_problems(
    document: Document,
    name: str,
    table: RunsTable,
    parameters: Mapping[str, Mapping[str, Any]],
    grids: Mapping[str, Mapping[str, Any]],
) -> Iterable[str]:
    """Yield the problems of methods, [parameters.METHOD] and [grid.METHOD]."""
    for requested in table.methods or ():
        where = f"{document.where(name, 'methods')}: [{name}]"
        try:
            asked = method(requested)
        except ConfigurationError as error:
            yield f"{where} methods: {error}"
            continue
        if asked.takes_arrays and requested not in known_methods():
            try:
                asked.make(2, 0, {})
            except ConfigurationError as error:
                yield f"{where} {error}"
            except TypeError as error:
                yield (
                    f"{where} method {requested!r} cannot be made with n_clusters alone ({error}). "
                    "Give its other parameters defaults."
                )
    for requested, values in parameters.items():
        yield from _parameter_problems(document, ("parameters", requested), values)
    for requested, values in grids.items():
        invalid = [key for key, value in values.items() if not isinstance(value, list) or not value]
        for key in invalid:
            yield (
                f"{document.where('grid', requested, key)}: [grid.{requested}] {key} = "
                f"{shown(values[key])}; allowed is a list of values to try."
            )
        if not invalid:
            yield from _parameter_problems(document, ("grid", requested), grid_points(values)[0])


def _parameter_problems(
    document: Document, path: tuple[str, str], values: Mapping[str, Any]
) -> Iterable[str]:
    """Yield the problem of a table of a method's parameters: the method, or their names."""
    try:
        asked = method(path[1])
    except ConfigurationError as error:
        yield f"{document.where(*path)}: [{'.'.join(path)}] {error}"
        return
    view: dict[str, Any] = {"view": 0} if asked.label_aware_view_choice else {}
    try:
        asked.make(2, 0, {**view, **values})
    except ConfigurationError as error:
        unknown = [key for key in values if repr(key) in str(error)]
        where = document.where(*path, *unknown[:1])
        hint = nearest(unknown[0], asked.parameters()) if unknown else ""
        yield f"{where}: [{'.'.join(path)}] {error}{hint}"


def _sweep_problems(
    document: Document,
    table: SweepTable,
    parameters: Mapping[str, Mapping[str, Any]],
    grids: Mapping[str, Mapping[str, Any]],
) -> Iterable[str]:
    """Yield the problems of the parameters of a sweep."""
    for kind, tables in (("parameters", parameters), ("grid", grids)):
        if tables:
            yield (
                f"{document.where(kind)}: [{kind}] is not for a sweep, whose parameters are in "
                "[sweep]. Remove the table."
            )
    for key in ("alpha", "graph_weight"):
        values = getattr(table, key)
        if len(set(values)) < len(values):
            yield f"{document.where('sweep', key)}: [sweep] {key} has a value twice: {values}. Keep one of them."


KIND_TABLES: dict[str, Kind] = {
    "compare": "comparison",
    "robustness": "robustness",
    "sweep": "sensitivity",
}
"""Kind of experiment by the table that a file has."""

Seed = Annotated[int, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
DatasetNames = Annotated[
    tuple[Text, ...],
    Meta(
        min_length=1,
        title="a list of names, paths, or URLs of stores",
        description="Data sets to cluster.",
    ),
]
DatasetDirectory = Annotated[
    Directory | None,
    Meta(
        description="Directory in which names of data sets are looked up; `$MSCAM_DATA` by default."
    ),
]
MethodNames = Annotated[tuple[Text, ...], Meta(min_length=1, title="a list of names of methods")]


class DatasetTable(DataTable, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[dataset.NAME]: the keys of [data] of a run, the number of clusters and the samples."""

    n_clusters: Annotated[
        Count | None, Meta(description="Number of clusters; by default the number of classes.")
    ] = None
    per_class: Annotated[
        Count | None,
        Meta(description="Random samples of every class; all samples by default."),
    ] = None
    seed: Annotated[Seed, Meta(description="Seed of that random choice.")] = 0


class RunsTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of both [compare] and [robustness]."""

    methods: Annotated[
        MethodNames | None,
        Meta(description="`mscam`, `mscan` and the baselines to compare; all by default."),
    ] = None
    runs: Annotated[Count, Meta(description="Runs of each method; run i has seed `seed` + i.")] = 10
    seed: Annotated[Seed, Meta(description="Seed of the first run.")] = 0
    protocols: Annotated[
        tuple[Protocol, ...],
        Meta(
            min_length=1,
            title='a list of `"defaults"`, `"grid"`',
            description="Label-free defaults, or the best point of a grid, chosen with labels.",
        ),
    ] = ("defaults",)
    search_runs: Annotated[
        Count,
        Meta(description="Runs of each point of a grid; the best point then has all runs."),
    ] = 1
    time_limit_s: Annotated[Positive, Meta(description="Maximum seconds of a fit.")] = 900.0
    memory_limit: Annotated[
        Memory | None,
        Meta(description="Maximum memory of a fit; by default the share of a worker thread."),
    ] = None


class CompareTable(RunsTable, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[compare]: methods side by side on data sets."""

    datasets: DatasetNames
    directory: DatasetDirectory = None
    shuffle: Annotated[
        bool,
        Meta(
            description="Whether the seed of a run also shuffles the samples; seed 0 keeps their order."
        ),
    ] = True


class RobustnessTable(RunsTable, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[robustness]: accuracy over the corrupted share; see `corrupted_mixture`."""

    methods: Annotated[MethodNames | None, Meta(description="Methods to compare.")] = (
        "mlan",
        "mscan",
        "mscam",
    )
    corruption_rate: Annotated[
        tuple[Share, ...],
        Meta(
            min_length=1,
            title="a list of numbers from 0 to 1",
            description="Shares of the samples of each view to which noise is added.",
        ),
    ] = CORRUPTED_SHARES
    n_samples: Annotated[int, Meta(ge=20, description="Samples of a mixture.")] = 1000
    noise_variance: Annotated[
        float,
        Meta(ge=0, description="Variance of the noise, relative to the length of the sample."),
    ] = 0.3
    within_variance: Annotated[
        Positive, Meta(description="Factor on the covariances of the mixture.")
    ] = 0.89


class SweepTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[sweep]: α × λ on data sets, each view factored once."""

    datasets: DatasetNames
    directory: DatasetDirectory = None
    method: Annotated[Literal["mscam", "mscan"], Meta(description="Method to fit.")] = "mscam"
    alpha: Annotated[
        tuple[Positive, ...],
        Meta(
            min_length=1,
            title="a list of numbers from 10⁻⁶ to 10⁶",
            description="Rows of the grid.",
        ),
    ] = (0.01, 0.1, 1.0, 10.0, 100.0)
    graph_weight: Annotated[
        tuple[Positive, ...],
        Meta(
            min_length=1,
            title="a list of numbers from 10⁻³⁰ to 10³⁰",
            description="Columns of the grid: the initial λ.",
        ),
    ] = (0.001, 0.01, 0.1, 1.0, 10.0)
    scale: Annotated[Scale, Meta(description="Scaling of feature views in all fits.")] = "standard"
    n_neighbors: Annotated[
        Count, Meta(description="Neighbors of a sample in the consensus graph in all fits.")
    ] = 9
    max_iter: Annotated[
        Count, Meta(description="Maximum number of outer iterations of all fits.")
    ] = 30
    seed: Annotated[Seed, Meta(description="Seed of all fits.")] = 0


class ExperimentSettings(Struct, frozen=True, kw_only=True):
    """The checked content of an experiment file.

    Attributes
    ----------
    name
        Name of the file without its ending.
    kind
    table
        Table of this kind.
    datasets
        By name, in order.
    parameters
        [parameters.METHOD]: replace the defaults of a method, in every protocol.
    grids
        [grid.METHOD]: replaces the grid of a method.
    """

    name: str
    kind: Kind
    table: CompareTable | RobustnessTable | SweepTable
    datasets: dict[str, DatasetTable] = {}
    parameters: dict[str, dict[str, Any]] = {}
    grids: dict[str, dict[str, list[Any]]] = {}
    execution: ExecutionTable = ExecutionTable()
    output: OutputTable = OutputTable()


_KINDS: dict[str, type[CompareTable | RobustnessTable | SweepTable]] = {
    "compare": CompareTable,
    "robustness": RobustnessTable,
    "sweep": SweepTable,
}
_TABLES = (*_KINDS, "dataset", "parameters", "grid", "execution", "output")
