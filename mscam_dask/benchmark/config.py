"""Experiment files: reading, and checks that the methods, parameters and data sets they name exist."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct, structs

from mscam_dask.benchmark.methods import grid_points, known_methods, method
from mscam_dask.benchmark.results import Kind, Protocol
from mscam_dask.data.datasets import CORRUPTED_SHARES
from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.read_config import execution_problems
from mscam_dask.pipeline.settings import (
    BUILT_IN_SOURCES,
    DataTable,
    Directory,
    ExecutionTable,
    Memory,
    OutputTable,
    Text,
)
from mscam_dask.pipeline.toml_document import (
    COMMAND_LINE,
    Document,
    Override,
    are_one_name,
    check_name,
    dask_overrides,
    name_of_pipeline,
    read_document,
    read_tables,
    refuse,
    shown,
)
from mscam_dask.types.allowed import Count, NotNegative, Positive, Share, WholeNumber, nearest
from mscam_dask.types.parameters import GraphWeight, InUnits, Model, Scale

DATA_VARIABLE = "MSCAM_DATA"
"""Environment variable with the directory of data sets."""
_ENDINGS = (".npz", ".zarr", ".mat", ".nc", "")

DatasetNames = Annotated[
    tuple[Text, ...], Meta(min_length=1, title="a list of names, paths, or URLs of stores")
]
MethodNames = Annotated[tuple[Text, ...], Meta(min_length=1, title="a list of names of methods")]
Protocols = Annotated[
    tuple[Protocol, ...], Meta(min_length=1, title='a list of `"defaults"`, `"grid"`')
]
Shares = Annotated[tuple[Share, ...], Meta(min_length=1, title="a list of numbers from 0 to 1")]
Alphas = Annotated[
    tuple[InUnits, ...], Meta(min_length=1, title="a list of numbers from 1e-6 to 1e6")
]
GraphWeights = Annotated[
    tuple[GraphWeight, ...], Meta(min_length=1, title="a list of numbers from 1e-30 to 1e30")
]


class DatasetTable(DataTable, frozen=True, kw_only=True):
    """[dataset.NAME]: the keys of [data] of a run, and the number of clusters."""

    n_clusters: Count | None = None
    """Number of clusters; by default the number of classes."""


class RunsTable(Struct, frozen=True, kw_only=True):
    """Keys of both [compare] and [robustness]."""

    title: ClassVar[str]

    methods: MethodNames | None = None
    """`mscam`, `mscan` and the baselines to compare; all by default."""
    runs: Count = 10
    """Runs of each method; run i has seed `seed` + i."""
    seed: WholeNumber = 0
    """Seed of the first run."""
    protocols: Protocols = ("defaults",)
    """Label-free defaults, or the best point of a grid, chosen with labels."""
    search_runs: Count = 1
    """Runs of each point of a grid; the best point then has all runs."""
    time_limit_s: Positive = 900.0
    """Maximum seconds of a fit."""
    memory_limit: Memory | None = None
    """Maximum memory of a fit; by default the share of a worker thread."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seed of each run."""
        return tuple(range(self.seed, self.seed + self.runs))


class CompareTable(RunsTable, frozen=True, kw_only=True):
    """[compare]: methods side by side on data sets."""

    title: ClassVar[str] = "compare"
    kind: ClassVar[Kind] = "comparison"

    datasets: DatasetNames
    """Data sets to cluster."""
    directory: Directory | None = None
    """Directory in which names of data sets are looked up; `$MSCAM_DATA` by default."""
    shuffle: bool = True
    """Whether the seed of a run also shuffles the samples; seed 0 keeps their order."""


class RobustnessTable(RunsTable, frozen=True, kw_only=True):
    """[robustness]: accuracy over the corrupted share; see `corrupted_mixture`."""

    title: ClassVar[str] = "robustness"
    kind: ClassVar[Kind] = "robustness"

    methods: MethodNames | None = ("mlan", "mscan", "mscam")
    """Methods to compare."""
    corruption_rate: Shares = CORRUPTED_SHARES
    """Shares of the samples of each view to which noise is added."""
    n_samples: Annotated[int, Meta(ge=20)] = 1000
    """Samples of a mixture."""
    noise_variance: NotNegative = 0.3
    """Variance of the noise, relative to the length of the sample."""
    within_variance: Positive = 0.89
    """Factor on the covariances of the mixture."""


class SweepTable(Struct, frozen=True, kw_only=True):
    """[sweep]: α × λ on data sets, with the graph weight of the paper, which grows in the fit."""

    title: ClassVar[str] = "sweep"
    kind: ClassVar[Kind] = "sensitivity"

    datasets: DatasetNames
    """Data sets to cluster."""
    directory: Directory | None = None
    """Directory in which names of data sets are looked up; `$MSCAM_DATA` by default."""
    method: Model = "mscam"
    """Method to fit."""
    alpha: Alphas = (0.01, 0.1, 1.0, 10.0, 100.0)
    """Rows of the grid."""
    graph_weight: GraphWeights = (0.001, 0.01, 0.1, 1.0, 10.0)
    """Columns of the grid: the initial λ."""
    scale: Scale = "standard"
    """Scaling of feature views in all fits."""
    n_neighbors: Count = 9
    """Neighbors of a sample in the consensus graph in all fits."""
    max_iter: Count = 30
    """Maximum number of outer iterations of all fits."""
    seed: WholeNumber = 0
    """Seed of all fits."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """The one seed."""
        return (self.seed,)

    @property
    def fixed(self) -> dict[str, Any]:
        """Parameters that all fits share, but for the seed."""
        names = ("scale", "n_neighbors", "max_iter")
        return {**{name: getattr(self, name) for name in names}, "auto_settings": False}


_Table = CompareTable | RobustnessTable | SweepTable
_KINDS: dict[str, type[_Table]] = {
    kind.title: kind for kind in (CompareTable, RobustnessTable, SweepTable)
}
_Values = Annotated[list[Any], Meta(min_length=1, title="a list of values to try")]


class ExperimentTables(Struct, frozen=True, kw_only=True):
    """Tables of an experiment file, of which one is [compare], [robustness] or [sweep]."""

    compare: CompareTable | None = None
    robustness: RobustnessTable | None = None
    sweep: SweepTable | None = None
    dataset: dict[str, DatasetTable] = {}
    parameters: dict[str, dict[str, Any]] = {}  # in place of the defaults of a method
    grid: dict[str, dict[str, _Values]] = {}  # in place of the grid of a method
    execution: ExecutionTable = ExecutionTable()
    output: OutputTable = OutputTable()


class ExperimentSettings(ExperimentTables, frozen=True, kw_only=True):
    """The checked content of an experiment file, with the data sets that it uses, by name and in order."""

    name: str  # of the file without its ending

    @property
    def table(self) -> _Table:
        """The table of the experiment."""
        table = self.compare or self.robustness or self.sweep
        assert table is not None
        return table


def table_of(tables: Collection[str]) -> str | None:
    """Return the name of the table of an experiment among those of a file; None if it is none."""
    return next((name for name in _KINDS if name in tables), None)


def read_experiment(
    file: str | Path | Document, overrides: Sequence[Override] = ()
) -> ExperimentSettings:
    """Read and check an experiment file, with the data and methods that it names; one error has every problem."""
    document = file if isinstance(file, Document) else read_document(file)
    document = document.overridden(overrides)
    document = document.overridden(dask_overrides(document))
    names = [name for name in _KINDS if name in document.tables]
    if len(names) > 1:
        raise ConfigurationError(
            f"{document.where(names[1])}: the file has both [{names[0]}] and [{names[1]}]; "
            "keep one of them."
        )
    tables = read_tables(document, ExperimentTables, {"execution": execution_problems})
    table = tables.compare or tables.robustness or tables.sweep
    if table is None:
        raise ConfigurationError(
            f"{document.path}: the file has no table {' or '.join(f'[{name}]' for name in _KINDS)}. "
            "Add one, with the data sets to use."
        )
    problems = [
        f"{document.where('output', key)}: [output] {key} is for runs only; an experiment keeps "
        "every finished trial in its directory. Remove the key."
        for key in ("checkpoints", "keep", "metrics")
        if getattr(tables.output, key) is not None
    ]
    datasets = _datasets(document, table, tables.dataset, problems)
    if isinstance(table, SweepTable):
        problems.extend(_sweep_problems(document))
    else:
        problems.extend(_method_problems(document, table, tables))
    refuse(problems)
    settings = {**structs.asdict(tables), "dataset": datasets}
    if not isinstance(table, RobustnessTable):  # every data set has its table
        changed = {"datasets": tuple(datasets), "directory": None}
        settings[table.title] = structs.replace(table, **changed)
    is_file = document.path != COMMAND_LINE.path
    name = name_of_pipeline(document.path) if is_file else "comparison"
    return ExperimentSettings(name=name, **settings)


def _datasets(
    document: Document, table: _Table, declared: Mapping[str, DatasetTable], problems: list[str]
) -> dict[str, DatasetTable]:
    """Data sets of the experiment by name; problems are added."""
    if isinstance(table, RobustnessTable):
        problems.extend(
            f"{document.where('dataset')}: [robustness] draws its own data. Remove [dataset.{key}]."
            for key in declared
        )
        return {}
    datasets: dict[str, DatasetTable] = {}
    for requested in table.datasets:
        try:
            key, found = _found(requested, document, table, declared)
            check_name(key, "its name", "Give the data set another name in a table [dataset.NAME].")
            same = next((other for other in datasets if are_one_name(other, key)), None)
            if same is not None:
                raise ConfigurationError(
                    f"its store and that of {shown(same)} have names that some file systems do not "
                    f"distinguish, {shown(same)} and {shown(key)}. Keep one of them, or give one "
                    "another name in a table [dataset.NAME]."
                )
        except ConfigurationError as error:
            where = document.where(table.title, "datasets")
            problems.append(f"{where}: [{table.title}] datasets has {requested!r}: {error}")
        else:
            datasets[key] = found
    return datasets


def _found(
    requested: str,
    document: Document,
    table: CompareTable | SweepTable,
    declared: Mapping[str, DatasetTable],
) -> tuple[str, DatasetTable]:
    """Find a data set by name, path or URL: its name and table."""
    if requested in declared:
        return requested, declared[requested]
    if requested in BUILT_IN_SOURCES:
        return requested, DatasetTable(source=requested)
    if "://" in requested:
        return Path(requested).stem, DatasetTable(source=requested)
    beside = Path(document.absolute(requested, table.title, "datasets"))
    directory = table.directory or os.environ.get(DATA_VARIABLE)
    inside = [Path(directory or ".", f"{requested}{ending}") for ending in _ENDINGS]
    for file in [beside, *(inside if directory else ())]:
        if file.exists():
            return file.stem, DatasetTable(source=str(file))
    files = Path(directory).iterdir() if directory and Path(directory).is_dir() else ()
    stems = {file.stem for file in files if file.suffix in _ENDINGS[:-1]}
    names = sorted({*stems, *declared, *BUILT_IN_SOURCES})
    place = directory or f"`directory` or ${DATA_VARIABLE}, which are not set"
    raise ConfigurationError(
        f"there is no {beside}, no table [dataset.{requested}], and no such file in {place}."
        f"{nearest(requested, names)} Allowed are {', '.join(names)}."
    )


def _method_problems(
    document: Document, table: RunsTable, tables: ExperimentTables
) -> Iterable[str]:
    """Yield the problems of methods, [parameters.METHOD] and [grid.METHOD]."""
    where = f"{document.where(table.title, 'methods')}: [{table.title}] methods"
    for requested in table.methods or ():
        try:
            asked = method(requested)
            if requested not in known_methods():
                asked.make(2, 0, {})
        except ConfigurationError as error:
            yield f"{where}: {error}"
        except TypeError as error:
            yield (
                f"{where}: {requested!r} cannot be made with n_clusters alone ({error}). Give its "
                "other parameters defaults."
            )
    for requested, values in tables.parameters.items():
        yield from _parameter_problems(document, ("parameters", requested), values)
    for requested, grid in tables.grid.items():
        yield from _parameter_problems(document, ("grid", requested), grid_points(grid)[0])


def _parameter_problems(
    document: Document, path: tuple[str, str], values: Mapping[str, Any]
) -> Iterable[str]:
    """Yield the problem of a table of a method's parameters: the method, or their names."""
    keys: tuple[str, ...] = path
    hint = ""
    try:
        asked = method(path[1])
        view: dict[str, Any] = {"view": 0} if asked.label_aware_view_choice else {}
        allowed = asked.parameters()
        if unknown := next((key for key in values if key not in allowed), None):
            keys, hint = (*path, unknown), nearest(unknown, allowed)
        asked.make(2, 0, {**view, **values})
    except ConfigurationError as error:
        yield f"{document.where(*keys)}: [{'.'.join(path)}] {error}{hint}"


def _sweep_problems(document: Document) -> Iterable[str]:
    """Yield the tables that are not for a sweep."""
    for kind in ("parameters", "grid"):
        if kind in document.tables:
            yield (
                f"{document.where(kind)}: [{kind}] is not for a sweep, whose parameters are in "
                "[sweep]. Remove the table."
            )
