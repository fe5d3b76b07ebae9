"""The results of an experiment: `experiment.json`, and its tables as Markdown and CSV.

    {
      "format": "mscam_dask.experiment", "format_version": 1,
      "kind": "comparison" | "robustness" | "sensitivity",
      "state": "running" until the last file is written, then "finished",
      "datasets": [...],     the data, with digests
      "methods": [...],      the methods, with their grids
      "rows": [...],         mean and standard deviation over runs, by data set, method, protocol
      "curves": [...],       robustness: accuracy by corrupted share, with the paper's
      "heat_maps": [...],    sensitivity: scores over α × λ, and the best label-free point
      "trials": [...]        every fit, also the failed ones with their reasons
    }

The record is complete: tables and report are made from it alone. Scores have the names of
`mscam_dask.metrics.PartitionScores`; unknown values are null. docs/experiments.md has an example.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, Literal, Self

import msgspec
from msgspec import Struct

from mscam_dask.benchmark.methods import Method
from mscam_dask.errors import DataError
from mscam_dask.monitor.run_record import ViewEntry

EXPERIMENT_FORMAT = "mscam_dask.experiment"
EXPERIMENT_FORMAT_VERSION = 1

Kind = Literal["comparison", "robustness", "sensitivity"]
Protocol = Literal["defaults", "grid"]
Outcome = Literal["ok", "failed", "over time", "over memory", "worker lost"]

PROTOCOLS: dict[Protocol, str] = {
    "defaults": "label-free defaults: one setting for all data sets, chosen without labels",
    "grid": "best of the parameter grid or of the single views, as in the paper: CHOSEN WITH LABELS",
}

SCORES = ("accuracy", "normalized_mutual_information", "adjusted_rand_index", "purity")
"""Scores of a trial against the labels, each in [0, 1] (ARI: [-0.5, 1])."""

LABEL_FREE_SCORES = ("adjusted_modularity", "cross_view_information")
"""Scores of a trial on data without labels, from the reference graphs of the views."""

TITLES = {
    "accuracy": "ACC",
    "normalized_mutual_information": "NMI",
    "adjusted_rand_index": "ARI",
    "purity": "purity",
    "adjusted_modularity": "adjusted modularity",
    "cross_view_information": "information (nats)",
}
"""Titles of scores in tables."""

TIE = 5e-4
"""Means that differ by less are equal to three decimals, so all of them are the best."""


class DatasetEntry(Struct, frozen=True, kw_only=True):
    """A data set.

    Attributes
    ----------
    source
        Source as the pipeline names it.
    digest
        `MultiViewData.digest` (names, view types, shapes, values), with the labels.
    n_clusters
        Requested number; the number of classes unless the pipeline sets another.
    corruption_rate
        Robustness: the share of samples corrupted in each view.
    note
        Remark on the data; "" without.
    """

    name: str
    source: str
    digest: str
    n_samples: int
    n_clusters: int
    n_classes: int
    views: tuple[ViewEntry, ...]
    corruption_rate: float | None = None
    note: str = ""


class MethodEntry(Struct, frozen=True, kw_only=True):
    """A method: its name in pipelines, its title in tables, its publication."""

    name: str
    title: str
    reference: str
    grid: dict[str, tuple[Any, ...]]
    dense: bool

    @classmethod
    def from_method(cls, method: Method) -> Self:
        """Return the entry of a method."""
        return msgspec.convert(method, cls, from_attributes=True)


class MeanStd(Struct, frozen=True, kw_only=True):
    """Mean and sample standard deviation (n − 1) over runs; the latter is null for a single run."""

    mean: float | None
    std: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Return the statistics of some values."""
        return cls(
            mean=statistics.fmean(values) if values else None,
            std=statistics.stdev(values) if len(values) > 1 else None,
        )

    def text(self, digits: int = 4) -> str:
        """Return "mean ± standard deviation" as far as they are known."""
        if self.mean is None:
            return "-"
        return f"{self.mean:.{digits}f}" + ("" if self.std is None else f" ± {self.std:.{digits}f}")


class RowEntry(Struct, frozen=True, kw_only=True):
    """One method on one data set under one protocol.

    Attributes
    ----------
    parameters
        Parameters of the setting.
    n_runs, n_failed
        Requested runs, and those without a result.
    scores
        `SCORES` (without labels `LABEL_FREE_SCORES`), "seconds" (of the fit alone) and "peak_memory_bytes", over the runs with a result.
    paper
        Scores of this row in the paper: "accuracy", "normalized_mutual_information".
    reasons
        Reasons of failed runs, each once.
    note
        Remark on the row, such as a view chosen with labels; "" without.
    """

    dataset: str
    method: str
    protocol: Protocol
    parameters: dict[str, Any]
    n_runs: int
    n_failed: int
    scores: dict[str, MeanStd]
    paper: dict[str, float] = {}
    reasons: tuple[str, ...] = ()
    note: str = ""

    @property
    def runs(self) -> str:
        """Number of runs with a result, of all."""
        return f"{self.n_runs - self.n_failed} of {self.n_runs}"


class CurveEntry(Struct, frozen=True, kw_only=True):
    """Accuracy of one method by the corrupted share of the samples; lists of equal length.

    Attributes
    ----------
    paper
        Values of the paper; null where unknown.
    """

    method: str
    protocol: Protocol
    corruption_rate: tuple[float, ...]
    mean: tuple[float | None, ...]
    std: tuple[float | None, ...]
    paper: tuple[float | None, ...]

    @property
    def texts(self) -> list[str]:
        """Mean and standard deviation at each share."""
        points = zip(self.mean, self.std, strict=True)
        return [MeanStd(mean=mean, std=std).text(3) for mean, std in points]


class HeatMapEntry(Struct, frozen=True, kw_only=True):
    """Scores of one data set over α × λ.

    Attributes
    ----------
    alpha, graph_weight
        The axes: rows and columns of every map.
    with_labels
        Map[i][j] at alpha[i], graph_weight[j], by score name of `SCORES`; empty without labels.
    label_free
        "cross_view_information" (nats), "eigengap", "modularity", "n_connected_components".
    best
        Position (i, j) of the largest value, by label-free score name. `MSCAM` selects settings
        by "cross_view_information".
    fixed
        The other parameters, the same in every trial.
    """

    dataset: str
    method: str
    alpha: tuple[float, ...]
    graph_weight: tuple[float, ...]
    with_labels: dict[str, tuple[tuple[float | None, ...], ...]]
    label_free: dict[str, tuple[tuple[float | None, ...], ...]]
    best: dict[str, tuple[int, int]]
    fixed: dict[str, Any]

    @property
    def maps(self) -> dict[str, tuple[tuple[float | None, ...], ...]]:
        """All maps by score name."""
        return {**self.label_free, **self.with_labels}


class TrialEntry(Struct, frozen=True, kw_only=True):
    """A trial that has ended, as in trials/<key>.json.

    Attributes
    ----------
    key
        Digest of everything that determines the result.
    seed
        Seed of the method, and of the order of the samples if `shuffled`.
    outcome, reason
        "ok", or the kind of failure and its message.
    scores
        `SCORES`; in a sensitivity experiment also the label-free scores.
    n_found
        Number of clusters in the result.
    seconds, peak_memory_bytes
        Wall time of the fit, and its peak resident memory above that of the process before.
    limits
        Limits "time_s" and "memory_bytes"; null for none.
    """

    key: str
    dataset: str
    method: str
    seed: int
    shuffled: bool
    parameters: dict[str, Any]
    outcome: Outcome
    reason: str = ""
    scores: dict[str, float | None] = {}
    n_found: int | None = None
    seconds: float | None = None
    peak_memory_bytes: int | None = None
    limits: dict[str, int | float | None] = {}
    ended: str = ""


class ExperimentRecord(Struct, frozen=True, kw_only=True):
    """The record of an experiment; see the module.

    Attributes
    ----------
    command
        Command that repeats the experiment.
    varies
        Sentence on the difference between runs.
    protocols
        Sentence by name of each protocol of the rows.
    n_reused
        Number of trials that an earlier run of the experiment had finished.
    """

    format: str = EXPERIMENT_FORMAT
    format_version: int = EXPERIMENT_FORMAT_VERSION
    kind: Kind
    name: str
    state: Literal["running", "finished", "failed", "interrupted"]
    command: str
    started: str
    ended: str | None = None
    seconds: float | None = None
    seeds: tuple[int, ...] = ()
    varies: str = ""
    protocols: dict[str, str] = {}
    executor: str | None = None
    versions: dict[str, str] = {}
    blas: tuple[dict[str, Any], ...] = ()
    n_reused: int = 0
    datasets: tuple[DatasetEntry, ...] = ()
    methods: tuple[MethodEntry, ...] = ()
    rows: tuple[RowEntry, ...] = ()
    curves: tuple[CurveEntry, ...] = ()
    heat_maps: tuple[HeatMapEntry, ...] = ()
    trials: tuple[TrialEntry, ...] = ()

    @property
    def titles(self) -> dict[str, str]:
        """Titles of the methods by name."""
        return {method.name: method.title for method in self.methods}


def encode_experiment(record: ExperimentRecord) -> bytes:
    """Return the record as indented JSON; values that are not finite become null."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


def decode_experiment(content: bytes, where: str) -> ExperimentRecord:
    """Return the record from the bytes of `encode_experiment`.

    Raises
    ------
    DataError
        If the content is not the record of an experiment, or has another format version.
    """
    try:
        record = msgspec.json.decode(content, type=ExperimentRecord)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{where} is not the record of an experiment: {error}.") from error
    if record.format != EXPERIMENT_FORMAT:
        raise DataError(f"{where} is not the record of an experiment (format={record.format!r}).")
    if record.format_version != EXPERIMENT_FORMAT_VERSION:
        raise DataError(
            f"{where} has format version {record.format_version}; this version reads "
            f"{EXPERIMENT_FORMAT_VERSION}. Use the version of mscam_dask that wrote it, or run it again."
        )
    return record
