"""Settings: one frozen structure for each table of a pipeline file.

The text below a field describes its key; its `Meta` has the allowed values where the type is not
enough. docs/settings_page.py writes docs/pipeline-settings.md from them.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, Struct

from mscam_dask.types.allowed import Count, Positive, Share, WholeNumber
from mscam_dask.types.parameters import Constants, ImputeMethod, InUnits, Model, Scale

if TYPE_CHECKING:
    from mscam_dask.estimators.mscam import MSCAM


ViewType = Literal["features", "distance", "kernel"]
Text = Annotated[str, Meta(min_length=1)]
Names = Annotated[list[Text], Meta(min_length=1, title="a list of names")]
Directory = Annotated[Text, Meta(title="a directory", extra={"path": "always"})]
File = Annotated[Text, Meta(title="a file", extra={"path": "always"})]
FileOrColumn = Annotated[
    Text, Meta(title="a file, or a column of obs", extra={"path": "if it is one"})
]


# Texts that Dask's parse_bytes and parse_timedelta read as a value above 0; the second takes no sign.
# msgspec 0.22 crashes on a pattern beside a list with a least length, so that `Text` has none.
_DIGITS = r"\d+(_\d+)*"
_NUMBER = rf"(?i)^\s*(?=[\d._]*[1-9])({_DIGITS}\.?({_DIGITS})?|\.{_DIGITS})(e\d\d?)?\s*"
_UNITS = "[mun]?s|m|h|d|w|(milli|micro|nano)?seconds?|minutes?|hours?|days?|weeks?"
Memory = Annotated[
    Count | Annotated[str, Meta(pattern=rf"{_NUMBER}([kmgtp]i?)?b?\s*\Z")],
    Meta(title='bytes, or a text such as `"4 GiB"`, without a sign'),
]
Duration = Annotated[
    str,
    Meta(
        pattern=rf"{_NUMBER}({_UNITS})?\s*\Z",
        title='a duration such as `"55 minutes"`, without a sign',
    ),
]


def extras_of(annotation: Any) -> dict[str, Any]:
    """Return the extras of every `Meta` in a type."""
    if isinstance(annotation, Meta):
        return annotation.extra or {}
    parts = map(extras_of, get_args(annotation))
    return {name: value for part in parts for name, value in part.items()}


BUILT_IN_SOURCES = ("digits", "mfeat")
"""Names of the data sets of the package; a file with such a name is ./digits."""

CLUSTER_TYPES: Mapping[str, str] = {
    "local": "distributed:LocalCluster",
    "scheduler": "",
    "scheduler-file": "",
    "slurm": "dask_jobqueue:SLURMCluster",
    "pbs": "dask_jobqueue:PBSCluster",
    "sge": "dask_jobqueue:SGECluster",
    "lsf": "dask_jobqueue:LSFCluster",
    "htcondor": "dask_jobqueue:HTCondorCluster",
    "oar": "dask_jobqueue:OARCluster",
    "slurm-runner": "dask_jobqueue.slurm:SLURMRunner",
    "gateway": "dask_gateway:GatewayCluster",
    "kubernetes": "dask_kubernetes.operator:KubeCluster",
    "ssh": "distributed:SSHCluster",
}
"""Classes by short names, "" for a cluster that runs already; another one is its own "module:Class"."""

ENCRYPTED_BY_FILES = ("ssh", "slurm-runner", "kubernetes")
"""Clusters that Dask encrypts with files that every host has."""


class DataTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[data]: where the views come from; files are read by `mscam_dask.data.ingest`."""

    source: Annotated[
        Text | Names,
        Meta(
            title='a path, a URL of a store, a list of paths, `"digits"` or `"mfeat"`',
            extra={"path": "unless built in"},
        ),
    ]
    """Files, a directory or a store; or a data set that comes with the package."""
    path: Directory | None = None
    """For `"mfeat"`: directory of the six UCI files; by default they are downloaded from OpenML."""
    cache: Directory | None = None
    """For `"mfeat"`: where downloads from OpenML are kept; by default `~/.cache/mscam_dask`."""
    families: Names | None = None
    """For `"digits"`: feature families to compute; all by default."""
    views: Annotated[
        Names | dict[Text, Text] | None,
        Meta(title='a list of names, or a table `{old = "new"}`'),
    ] = None
    """Views to take, in this order, and their new names; the name of a MATLAB cell array takes all
    views in it; all views by default."""
    view_type: Annotated[
        ViewType | list[ViewType] | dict[Text, ViewType] | None,
        Meta(title='`"features"`, `"distance"`, `"kernel"`; a list, or a table by view'),
    ] = None
    """Kind of the views: feature columns, a distance matrix or a kernel matrix; features by
    default."""
    labels: Annotated[
        Text | None, Meta(title="a variable, a column or a file", extra={"path": "if it is one"})
    ] = None
    """Ground truth, for the evaluation only; a file has one label per line, or ids and labels."""
    batches: FileOrColumn | None = None
    """Batch of each sample, such as machine, site or day, whose effects are removed: a file with ids
    and batches, or one batch per line, or the name of a column of obs of `.h5ad` and `.h5mu`
    files."""
    partial_labels: FileOrColumn | None = None
    """Known labels of some samples, which the clusters keep, as `batches`; -1, an empty cell or no row
    for the others."""
    samples_in: Annotated[
        Literal["rows", "columns"] | dict[Text, Literal["rows", "columns"]] | None,
        Meta(title='`"rows"`, `"columns"`, or a table by view'),
    ] = None
    """Where the samples are in matrices of files; rows by default. With columns, the header of a
    text file has their ids."""
    header: bool | None = None
    """Whether text files name their columns; by default they do if the first line is not all
    numbers."""
    id_column: Annotated[
        bool | int | str | None,
        Meta(title="a name, a position from 0, or `false` if there are no ids"),
    ] = None
    """Column of tables with sample ids; by default one that the tables share, one that is called
    id, patient or the like, the first of text, or a first one of consecutive whole numbers; its
    values differ in every row."""
    join: Literal["inner", "outer"] | None = None
    """Samples of files whose sample ids differ: `inner` takes those in every file, `outer` those in
    any, which are absent from the views of the others; by default such files are refused."""
    impute: Annotated[
        ImputeMethod | dict[Text, ImputeMethod] | None,
        Meta(title='`"mean"`, `"median"`, `"knn"`, or a table by view'),
    ] = None
    """Imputation of missing cells in the store that a run writes; by default they are refused."""
    delimiter: Text | None = None
    """Separates the columns of text files; by default tab, semicolon, bar, comma or runs of blanks,
    as the first lines say."""
    decimal: Literal[".", ","] | None = None
    """Decimal mark of text files; by default as the numbers say."""
    comment: Text | None = None
    """Lines of text files that begin with this text are left out; by default those with `#` above
    the header."""
    skip: WholeNumber | None = None
    """Lines of text files, or rows of sheets, above the header."""
    max_bytes: Memory | None = None
    """Largest size in memory that an array of a file may have, or a chunk of it where the format is
    read by chunks; 8 GiB by default."""
    chunk_size: Count | None = None
    """Samples per chunk of the store; by default as many as fit in 8 MiB."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Sources as a tuple."""
        return (self.source,) if isinstance(self.source, str) else tuple(self.source)


class ClusterTable(Struct, frozen=True, kw_only=True):
    """[cluster] after parsing: the method, and the parameters of its estimator."""

    method: Model
    parameters: dict[str, Any]
    """With defaults; None if the estimator selects the value. The constants are a table, as in the file."""

    @property
    def n_clusters(self) -> int | None:
        """Requested number of clusters; None if it is selected."""
        value = self.parameters["n_clusters"]
        return None if value == "auto" else int(value)

    def estimator(self, **others: Any) -> MSCAM:
        """Return the estimator; other parameters replace those of the table."""
        from mscam_dask.estimators.mscam import MSCAM, MSCAN

        estimator_class = {"mscam": MSCAM, "mscan": MSCAN}[self.method]
        parameters = {**self.parameters, **others}
        parameters["constants"] = msgspec.convert(parameters["constants"], Constants)
        return estimator_class(**parameters)


class ClusterKeys(Struct, frozen=True, kw_only=True):
    """[cluster] as written: the parameters of `MSCAM` and `MSCAN`, with their types in TOML.

    Defaults are those of the estimators.
    """

    method: Model = "mscam"
    """With a learned metric in each view, or the model of the paper without."""
    n_clusters: Count | Literal["auto"]
    """Number of clusters; `"auto"` selects it without labels, from 1 to `max_clusters`."""
    max_clusters: Annotated[int, Meta(ge=2)] | None = None
    """Largest number of clusters that `"auto"` may select; by default a tenth of the samples, 30 at
    most."""
    alpha: InUnits | None = None
    """Ridge of the self-representation, in units of a view's mean squared singular value; selected
    for each view by default."""
    scale: Scale | None = None
    """Scaling of feature views: columns to variance 1, rows to length 1, log(1 + x) to rows of length 1,
    columns to [0, 1], none;
    selected for each view by default."""
    n_neighbors: Count | None = None
    """Neighbors of a sample in the consensus graph; by default 20, or fewer if the mean cluster
    size is smaller."""
    exclude_views: Annotated[tuple[str, ...] | None, Meta(title="a list of names of views")] = None
    """Views to exclude from the fit; by default those whose nearest neighbors overlap with those of
    the other views no more than by chance, if the partition scores higher without them. `[]` keeps
    all."""
    max_iter: Count | None = None
    """Maximum number of outer iterations; by default three by ADMM and three of the refinement.
    Without a refinement, iterations by ADMM end after `patience` of them without a better partition."""
    constants: Constants = Constants()
    """Constants of the method: `[cluster.constants]`."""
    random_state: WholeNumber = 0
    """Seed."""


class AdaptTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[execution] adapt: bounds on the number of workers of an adaptive cluster."""

    minimum: WholeNumber = 0
    maximum: Count


class ExecutionTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[execution]: executor of the tasks; nothing in it changes the result."""

    cluster: Annotated[
        Text | None,
        Meta(title=", ".join(f'`"{name}"`' for name in (*CLUSTER_TYPES, "module:Class"))),
    ] = None
    """Type of the Dask cluster; by default a local one, or the running one of `scheduler` or
    `scheduler_file`."""
    cluster_options: Annotated[dict[str, Any] | None, Meta(title="a table")] = None
    """Keyword arguments of the class of the cluster, as in its documentation."""
    workers: Count | None = None
    """Workers of the cluster that is started; on this computer one per core by default, otherwise
    one. Lost ones are replaced."""
    adapt: Annotated[AdaptTable | None, Meta(title="a table `{minimum = 0, maximum = 8}`")] = None
    """In place of `workers`: bounds between which Dask adapts their number to the tasks."""
    threads: Count | None = None
    """Threads of each worker, one by default; with `in_process` of the fit."""
    memory_limit: Memory | None = None
    """Memory of each worker; by default an equal share of the memory there is."""
    lifetime: Duration | None = None
    """With a batch scheduler: time after which a worker leaves and is replaced, before the walltime
    of its job ends it."""
    lifetime_stagger: Duration | None = None
    """Random difference of lifetimes, so that workers do not leave together."""
    start_timeout: Positive | None = None
    """Seconds until the first worker of a cluster that the run starts; 3600 by default with a batch
    scheduler, otherwise as `workers_timeout`."""
    scheduler: Annotated[Text | None, Meta(title='`"tls://host:port"`, `"tcp://host:port"`')] = None
    """A running cluster to use; by default one is started."""
    scheduler_file: File | None = None
    """A running cluster by the file that `dask scheduler --scheduler-file` wrote."""
    tls_ca: File | None = None
    """For `tls://`, ssh and slurm-runner: certificate of the authority of all sides."""
    tls_cert: File | None = None
    """For the same: certificate of this side."""
    tls_key: File | None = None
    """For the same: key of that certificate."""
    workers_timeout: Positive | None = None
    """Seconds without a usable worker, or without an answer of the scheduler, after which a run
    ends; 60 by default."""
    in_process: bool = False
    """No cluster: the tasks run in threads of this process."""


class EvaluateTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[evaluate]: comparison of the clusters with ground truth."""

    enabled: bool = True
    """Whether the clusters are scored against the labels, if there are any."""


class ReportTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[report]: the report of a run."""

    enabled: bool = True
    """Whether a `report.html` is written to the run directory."""
    columns: File | None = None
    """Table of properties of the samples to color the plots by: `.csv`, `.tsv` or `.parquet`,
    sample ids in the first column."""


class IncrementalTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[incremental]: start from the last run of the same pipeline."""

    enabled: bool = False
    """Whether a run starts from the settings, clusters and λ of the last run of the pipeline, and
    names clusters as that run did."""
    min_overlap: Share = 0.5
    """Share of the samples that the last run must have contained; below it the run starts without
    it."""
    max_warm_runs: Count = 30
    """Consecutive runs that start from the last one, before settings are selected again."""
    max_drift: Share | None = None
    """Largest share of the common samples that may change cluster since the last run; above it the
    exit code is 6, and the results are written. No limit by default."""


class OutputTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[output]: the run directory.

    A run of the same fit in another run directory resumes from the checkpoints; see also
    `mscam_dask.pipeline.stored_run`.
    """

    directory: Directory | None = None
    """The run directory itself; not with [incremental] or `keep`, which need a root of run
    directories."""
    root: Directory | None = None
    """Directory of run directories, each named after pipeline, settings and data; `runs` by
    default."""
    keep: Count | None = None
    """Finished runs of the pipeline to keep in the root, the new one included; all by default."""
    checkpoints: Annotated[
        Text | None, Meta(title="a directory or a URL", extra={"path": "or a URL"})
    ] = None
    """Directory of the checkpoints of fits that have not finished; by default in the run
    directory."""
    metrics: Directory | None = None
    """Directory of a textfile collector of Prometheus, for a copy of `metrics.prom` named after the
    pipeline."""


class PipelineTables(Struct, frozen=True, kw_only=True):
    """Tables of a pipeline file."""

    data: DataTable
    cluster: ClusterKeys
    execution: ExecutionTable = ExecutionTable()
    evaluate: EvaluateTable = EvaluateTable()
    incremental: IncrementalTable = IncrementalTable()
    report: ReportTable = ReportTable()
    output: OutputTable = OutputTable()


class Settings(Struct, frozen=True, kw_only=True):
    """All settings of a pipeline after validation, with absolute paths, and the name of its file."""

    name: str
    data: DataTable
    cluster: ClusterTable
    execution: ExecutionTable = ExecutionTable()
    evaluate: EvaluateTable = EvaluateTable()
    report: ReportTable = ReportTable()
    incremental: IncrementalTable = IncrementalTable()
    output: OutputTable = OutputTable()


# A field of a class, and the text below it.
_FIELD = re.compile(r'^    (\w+):(?:(?!^    \w+:).)*?^    """(.+?)"""', re.MULTILINE | re.DOTALL)


@functools.cache
def texts_of(table: type[Struct]) -> dict[str, str]:
    """Return the text below each field of a table and its bases, for the options and the page of settings."""
    bases = reversed(table.__mro__[: table.__mro__.index(Struct)])
    fields = _FIELD.findall("\n".join(map(inspect.getsource, bases)))
    return {name: " ".join(text.split()) for name, text in fields}
