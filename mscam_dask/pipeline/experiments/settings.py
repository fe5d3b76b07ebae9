"""What an experiment file may say: one frozen structure for each table."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from mscam_dask.data.mixtures import CORRUPTED_SHARES
from mscam_dask.model.parameters import Scale
from mscam_dask.pipeline.experiments.results import Kind, Protocol
from mscam_dask.pipeline.settings import Count, DataTable, ExecutionTable, OutputTable, Text

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
"""The table that says which experiment a file is."""

Seed = Annotated[int, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
Share = Annotated[float, Meta(ge=0, le=1)]


class DatasetTable(DataTable, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[dataset.NAME]: the keys of [data] of a run, and what is asked of the data.

    Attributes
    ----------
    n_clusters
        By default the number of classes.
    per_class
        Draw this many samples of every class (with a seed) and leave the others out.
    seed
        Of that draw.
    """

    n_clusters: Count | None = None
    per_class: Count | None = None
    seed: Seed = 0


class RunsTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What [compare] and [robustness] have in common.

    Attributes
    ----------
    methods
        Names of methods; all by default.
    runs, seed
        Run i has seed `seed + i`.
    protocols
        "defaults" (label-free) and "grid" (the paper's, chosen with labels, and many times the
        fits).
    grid_runs
        Runs of each point of a grid by which the best is chosen; the best has all runs.
    time_limit_s, memory_limit
        Of a cell. Memory, in bytes or such as "4 GiB": by default a worker thread's share.
    """

    methods: Annotated[tuple[Text, ...], Meta(min_length=1)] | None = None
    runs: Count = 10
    seed: Seed = 0
    protocols: Annotated[tuple[Protocol, ...], Meta(min_length=1)] = ("defaults",)
    grid_runs: Count = 1
    time_limit_s: Positive = 900.0
    memory_limit: Count | Text | None = None


class CompareTable(RunsTable, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[compare]: methods side by side on data sets.

    Attributes
    ----------
    datasets
        Names or paths, see docs/experiments.md.
    directory
        Where names are looked for; $MSCAM_DATA by default.
    shuffle
        Whether the samples are shuffled by the seed of the run (seed 0 keeps the order).
    """

    datasets: Annotated[tuple[Text, ...], Meta(min_length=1)]
    directory: Text | None = None
    shuffle: bool = True


class RobustnessTable(RunsTable, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[robustness]: accuracy over the corrupted share; see `corrupted_mixture`."""

    methods: Annotated[tuple[Text, ...], Meta(min_length=1)] | None = ("mlan", "mscan", "mscam")
    corrupted: Annotated[tuple[Share, ...], Meta(min_length=1)] = CORRUPTED_SHARES
    n_samples: Annotated[int, Meta(ge=20)] = 1000
    noise_variance: Annotated[float, Meta(ge=0)] = 0.3
    covariance_scale: Positive = 0.89


class SweepTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[sweep]: α × λ on data sets, each view factored once.

    Attributes
    ----------
    datasets, directory
        As in [compare].
    method
        "mscam" or "mscan".
    alpha, graph_weight
        The grid.
    scale, n_neighbors, max_outer_iter, seed
        The same in every cell.
    """

    datasets: Annotated[tuple[Text, ...], Meta(min_length=1)]
    directory: Text | None = None
    method: Literal["mscam", "mscan"] = "mscam"
    alpha: Annotated[tuple[Positive, ...], Meta(min_length=1)] = (0.01, 0.1, 1.0, 10.0, 100.0)
    graph_weight: Annotated[tuple[Positive, ...], Meta(min_length=1)] = (
        0.001,
        0.01,
        0.1,
        1.0,
        10.0,
    )
    scale: Scale = "standard"
    n_neighbors: Count = 9
    max_outer_iter: Count = 30
    seed: Seed = 0


class ExperimentSettings(Struct, frozen=True, kw_only=True):
    """A whole experiment file, checked.

    Attributes
    ----------
    name
        Its file without ending.
    file
        As the user named it, for the command that makes it again; None without a file.
    kind
    table
        Of its kind.
    datasets
        In order, by name.
    parameters
        [parameters.METHOD]: in place of a method's defaults, in every protocol.
    grids
        [grid.METHOD]: in place of a method's grid.
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
