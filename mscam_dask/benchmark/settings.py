"""Tables of an experiment file, as in `mscam_dask.pipeline.config.settings`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from mscam_dask.benchmark.results import Kind, Protocol
from mscam_dask.data.datasets.mixtures import CORRUPTED_SHARES
from mscam_dask.pipeline.config.settings import (
    Count,
    DataTable,
    Directory,
    ExecutionTable,
    Memory,
    OutputTable,
    Text,
)
from mscam_dask.types.parameters import Scale

__all__ = [
    "KIND_TABLES",
    "CompareTable",
    "DatasetTable",
    "ExperimentSettings",
    "RobustnessTable",
    "RunsTable",
    "SweepTable",
]

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
    corrupted: Annotated[
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
    file
        Path as the user gave it; None without a file.
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
    file: str | None
    kind: Kind
    table: CompareTable | RobustnessTable | SweepTable
    datasets: dict[str, DatasetTable] = {}
    parameters: dict[str, dict[str, Any]] = {}
    grids: dict[str, dict[str, list[Any]]] = {}
    execution: ExecutionTable = ExecutionTable()
    output: OutputTable = OutputTable()
