"""What a pipeline file may say: one frozen structure for each table."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

__all__ = [
    "BUILT_IN_SOURCES",
    "ClusterTable",
    "DataTable",
    "EvaluateTable",
    "ExecutionTable",
    "IncrementalTable",
    "Method",
    "OutputTable",
    "ReportTable",
    "Settings",
]

Metric = Literal["features", "distance", "kernel"]
Method = Literal["mscam", "mscan"]
Count = Annotated[int, Meta(ge=1)]
Text = Annotated[str, Meta(min_length=1)]

BUILT_IN_SOURCES = ("digits", "mfeat")
"""Sources that are named instead of being files; a file of that name is ./digits."""


class DataTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[data]: where the views come from.

    Attributes
    ----------
    source
        "digits", "mfeat", or one or more files or a store (see `mscam_dask.data.ingest`).
    path, cache
        For "mfeat": directory with the six UCI files, or the directory in which the tables of
        OpenML are kept once they were fetched.
    families
        For "digits": feature families to compute; all by default.
    views
        Views to take, in which order; a table {old name = new name} renames them too.
    metric
        One for all views, one per view in order, or a table {view = metric}.
    labels
        Variable, column or file with ground truth, for evaluation only.
    samples_on, header, id_column, delimiter
        How files are read; see `mscam_dask.data.ingest.Source`.
    chunk_rows
        Samples per chunk of the store.
    """

    source: Text | Annotated[list[Text], Meta(min_length=1)]
    path: Text | None = None
    cache: Text | None = None
    families: Annotated[list[Text], Meta(min_length=1)] | None = None
    views: Annotated[list[Text], Meta(min_length=1)] | dict[Text, Text] | None = None
    metric: Metric | list[Metric] | dict[Text, Metric] | None = None
    labels: Text | None = None
    samples_on: Literal["rows", "columns"] | None = None
    header: bool | None = None
    id_column: int | str | None = None
    delimiter: Text | None = None
    chunk_rows: Count | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        """Its sources, one or more."""
        return (self.source,) if isinstance(self.source, str) else tuple(self.source)


class ClusterTable(Struct, frozen=True, kw_only=True):
    """[cluster]: the method and every parameter of its estimator that a file can give.

    Attributes
    ----------
    method
        "mscam" or "mscan".
    parameters
        Of the estimator, defaults included; None where the estimator chooses.
    """

    method: Method
    parameters: dict[str, Any]

    @property
    def n_clusters(self) -> int | None:
        """Clusters asked for; None where the number is chosen."""
        value = self.parameters["n_clusters"]
        return None if value == "auto" else int(value)

    @property
    def n_neighbors(self) -> int | None:
        """Neighbours asked for; None where the estimator chooses."""
        value = self.parameters["n_neighbors"]
        return None if value is None else int(value)

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the estimator: TOML has no None, selection = "none" stands for it."""
        arguments = dict(self.parameters)
        if arguments.get("selection") == "none":
            arguments["selection"] = None
        return arguments


class ExecutionTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[execution]: what runs the tasks; nothing in it changes the result.

    Attributes
    ----------
    workers
        Worker processes of the cluster started for the run; one per core by default.
    threads
        Of each worker, or of the fit with `in_process`.
    memory_limit
        Of each worker, in bytes or such as "4 GiB"; by default its share of the memory.
    scheduler
        Address of a running cluster, "tls://host:port" or "tcp://host:port".
    tls_ca, tls_cert, tls_key
        Certificate files for tls://.
    in_process
        No cluster: the tasks run in this process.
    """

    workers: Count | None = None
    threads: Count | None = None
    memory_limit: Count | Text | None = None
    scheduler: Text | None = None
    tls_ca: Text | None = None
    tls_cert: Text | None = None
    tls_key: Text | None = None
    in_process: bool = False


class EvaluateTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[evaluate]: whether the clusters are compared with the labels, where there are any."""

    enabled: bool = True


class ReportTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[report]: whether the run directory gets a report.html."""

    enabled: bool = True


class IncrementalTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[incremental]: whether a run starts from the last one of the same pipeline.

    Attributes
    ----------
    enabled
        Take setting, clusters and graph weight over from the last run, and name clusters as there.
    least_common
        Share of the samples that the last run must have seen; with less the run starts afresh.
    fresh_after
        Runs in a row that start from the last one before the setting is chosen anew.
    """

    enabled: bool = False
    least_common: Annotated[float, Meta(ge=0, le=1)] = 0.5
    fresh_after: Count = 30


class OutputTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[output]: the run directory.

    Attributes
    ----------
    directory
        The run directory itself; not with [incremental] or `keep`, which are of runs in a root.
    root
        Directory of run directories, each <pipeline>-<digest of settings and data>; by default
        runs where the command runs.
    keep
        Finished runs of the pipeline that stay in the root when one more has finished, this one
        included; all by default. See `mscam_dask.pipeline.retention`.
    checkpoints
        Directory or URL below which the checkpoints of a fit lie until it has ended, each fit in a
        place of its own; by default the run directory. A run of the same fit in another run
        directory goes on from them.
    """

    directory: Text | None = None
    root: Text | None = None
    keep: Count | None = None
    checkpoints: Text | None = None


class Settings(Struct, frozen=True, kw_only=True):
    """A whole pipeline, checked, with every path absolute.

    Attributes
    ----------
    name
        Of the pipeline: its file without ending.
    """

    name: str
    data: DataTable
    cluster: ClusterTable
    execution: ExecutionTable = ExecutionTable()
    evaluate: EvaluateTable = EvaluateTable()
    report: ReportTable = ReportTable()
    incremental: IncrementalTable = IncrementalTable()
    output: OutputTable = OutputTable()
