"""The results of an experiment: `experiment.json`.

The record is complete: tables and report are made from it alone. Scores have the names of
`mscam_dask.metrics.PartitionScores`; unknown values are null. docs/experiments.md has an example.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

import msgspec
from msgspec import Struct

from mscam_dask.data.store.filesystem import read_regular
from mscam_dask.errors import DataError
from mscam_dask.monitor.run_record import ViewEntry

Kind = Literal["comparison", "robustness", "sensitivity"]
Protocol = Literal["defaults", "grid"]
Outcome = Literal["ok", "failed", "over time", "over memory", "worker lost"]

RECORD = "experiment.json"

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
    """A data set."""

    name: str
    source: str  # as the pipeline names it
    digest: str  # `MultiViewData.digest` (names, view types, shapes, values), with the labels
    n_samples: int
    n_clusters: int  # the number of classes unless the pipeline sets another
    n_classes: int
    views: tuple[ViewEntry, ...]
    corruption_rate: float | None = None  # robustness: share of samples corrupted in each view
    note: str = ""


class MethodEntry(Struct, frozen=True, kw_only=True):
    """A method: its name in pipelines, its title in tables, its publication."""

    name: str
    title: str
    reference: str
    grid: dict[str, tuple[Any, ...]]


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
    """One method on one data set under one protocol."""

    dataset: str
    method: str
    protocol: Protocol
    parameters: dict[str, Any]
    n_runs: int
    n_failed: int  # runs without a result
    # `SCORES` (without labels `LABEL_FREE_SCORES`), "seconds" (of the fit alone) and
    # "peak_memory_bytes", over the runs with a result
    scores: dict[str, MeanStd]
    paper: dict[str, float] = {}  # scores of this row in the paper: of the first two `SCORES`
    reasons: tuple[str, ...] = ()  # of failed runs, each once
    note: str = ""  # such as a view chosen with labels

    @property
    def score_names(self) -> tuple[str, ...]:
        """Names of its scores, the label-free ones on data without labels."""
        return tuple(name for name in TITLES if name in self.scores)

    @property
    def score_titles(self) -> list[str]:
        """Titles of these scores."""
        return [TITLES[name] for name in self.score_names]

    @property
    def score_texts(self) -> list[str]:
        """Means and standard deviations of these scores."""
        return [self.scores[name].text() for name in self.score_names]

    @property
    def runs(self) -> str:
        """Number of runs with a result, of all."""
        return f"{self.n_runs - self.n_failed} of {self.n_runs}"


class CurveEntry(Struct, frozen=True, kw_only=True):
    """Accuracy of one method by the corrupted share of the samples; lists of equal length."""

    method: str
    protocol: Protocol
    corruption_rate: tuple[float, ...]
    mean: tuple[float | None, ...]
    std: tuple[float | None, ...]
    paper: tuple[float | None, ...]  # null where unknown

    @property
    def texts(self) -> list[str]:
        """Mean and standard deviation at each share."""
        points = zip(self.mean, self.std, strict=True)
        return [MeanStd(mean=mean, std=std).text(3) for mean, std in points]


ScoreMap = tuple[tuple[float | None, ...], ...]


class HeatMapEntry(Struct, frozen=True, kw_only=True):
    """Scores of one data set over α × λ: map[i][j] at alpha[i], graph_weight[j]."""

    dataset: str
    method: str
    alpha: tuple[float, ...]
    graph_weight: tuple[float, ...]
    with_labels: dict[str, ScoreMap]  # by name of `SCORES`; empty without labels
    # "cross_view_information" (nats), "adjusted_modularity", "n_connected_components"
    label_free: dict[str, ScoreMap]
    # position of the largest value, by label-free score; MSCAM selects by "cross_view_information"
    best: dict[str, tuple[int, int]]
    fixed: dict[str, Any]  # the other parameters, the same in every trial

    @property
    def maps(self) -> dict[str, ScoreMap]:
        """All maps by score name."""
        return {**self.label_free, **self.with_labels}


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of a trial: wall seconds, and bytes above the memory of the process it is forked from."""

    time_s: float | None = None
    memory_bytes: int | None = None


class TrialFields(Struct, frozen=True, kw_only=True):
    """Fields of a trial before and after it has run."""

    dataset: str
    method: str
    seed: int  # of the method, and of the order of the samples if `shuffled`
    shuffled: bool
    parameters: dict[str, Any]  # those that are not at the defaults of the method
    limits: Limits = Limits()


class TrialEntry(TrialFields, frozen=True, kw_only=True):
    """A trial that has ended, as in trials/<key>.json."""

    key: str  # digest of everything that determines the result
    outcome: Outcome
    reason: str = ""  # message of a failure
    scores: dict[str, float | None] = {}  # `SCORES`; in a sweep also the label-free scores
    seconds: float | None = None  # wall time of the fit
    peak_memory_bytes: int | None = None  # resident, above that of the process before the fit
    ended: str = ""


class ExperimentRecord(Struct, frozen=True, kw_only=True):
    """The record of an experiment; see the module."""

    format: Literal["mscam_dask.experiment"] = "mscam_dask.experiment"
    format_version: Literal[1] = 1
    kind: Kind
    name: str
    state: Literal["running", "finished", "failed", "interrupted"]
    command: str  # repeats the experiment
    started: str
    ended: str | None = None
    seconds: float | None = None
    seeds: tuple[int, ...] = ()
    varies: str = ""  # sentence on the difference between runs
    protocols: dict[str, str] = {}  # sentence on each protocol of the rows
    executor: str | None = None
    versions: dict[str, str] = {}
    blas: tuple[dict[str, Any], ...] = ()
    n_reused: int = 0  # trials that an earlier run had finished
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


def read_record(directory: Path) -> ExperimentRecord:
    """Return the record of the experiment in a directory; a `DataError` if there is none."""
    file = directory / RECORD
    try:
        return msgspec.json.decode(read_regular(file), type=ExperimentRecord)
    except OSError as error:
        raise DataError(f"{file} cannot be read ({error.strerror}).") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(
            f"{file} is not the record of an experiment of this version: {error}. Use the version of "
            "mscam_dask that wrote it, or run the experiment again."
        ) from error
