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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec
from msgspec import Struct

from mscam_dask.errors import DataError
from mscam_dask.monitor.messages import plural
from mscam_dask.monitor.run_record import ViewEntry
from mscam_dask.pipeline.run.sample_tables import encoded_id

if TYPE_CHECKING:
    import pandas as pd

    from mscam_dask.benchmark.methods import Method

__all__ = [
    "EXPERIMENT_FORMAT",
    "EXPERIMENT_FORMAT_VERSION",
    "LABEL_FREE_SCORES",
    "PROTOCOLS",
    "SCORES",
    "TIE",
    "TITLES",
    "CurveEntry",
    "DatasetEntry",
    "ExperimentRecord",
    "HeatMapEntry",
    "Kind",
    "MeanStd",
    "MethodEntry",
    "Outcome",
    "Protocol",
    "RowEntry",
    "TrialEntry",
    "csv_text",
    "decode_experiment",
    "encode_experiment",
    "frame",
    "markdown_text",
    "scores_of",
]

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

_MIB = 2**20


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
        return cls(
            name=method.name,
            title=method.title,
            reference=method.reference,
            grid={key: tuple(values) for key, values in method.grid.items()},
            dense=method.dense,
        )


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
    limits: dict[str, float | None] = {}
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


def scores_of(row: RowEntry) -> tuple[str, ...]:
    """Return the names of the scores of a row: label-free ones on data without labels."""
    return tuple(name for name in (*SCORES, *LABEL_FREE_SCORES) if name in row.scores)


def frame(record: ExperimentRecord) -> pd.DataFrame:
    """Return the rows as a table, with a column for each mean and standard deviation.

    For a sensitivity experiment it has one line for each point of the grid.
    """
    import pandas as pd

    lines = map(_points, record.heat_maps) if record.heat_maps else [map(_line, record.rows)]
    table = pd.DataFrame([line for group in lines for line in group])
    if record.heat_maps:
        return table
    scores = (*SCORES, *LABEL_FREE_SCORES, "seconds", "peak_memory_bytes")
    names = [name for name in scores if name in SCORES or f"{name}_mean" in table]
    columns = (
        *("dataset", "method", "protocol", "n_runs", "n_failed", "parameters"),
        *(f"{name}_{part}" for name in names for part in ("mean", "std")),
        *("paper_accuracy", "paper_nmi", "note"),
    )
    return table.reindex(columns=list(columns))


def _line(row: RowEntry) -> dict[str, Any]:
    """One row of a comparison, flat."""
    return {
        **{name: getattr(row, name) for name in ("dataset", "method", "protocol")},
        **{name: getattr(row, name) for name in ("n_runs", "n_failed", "note")},
        "parameters": "; ".join(f"{key}={value}" for key, value in row.parameters.items()),
        **{f"{name}_mean": value.mean for name, value in row.scores.items()},
        **{f"{name}_std": value.std for name, value in row.scores.items()},
        "paper_accuracy": row.paper.get(SCORES[0]),
        "paper_nmi": row.paper.get(SCORES[1]),
    }


def _points(heat_map: HeatMapEntry) -> Iterator[dict[str, Any]]:
    """Every point of a heat map with its scores."""
    for i, alpha in enumerate(heat_map.alpha):
        for j, weight in enumerate(heat_map.graph_weight):
            yield {
                "dataset": heat_map.dataset,
                "method": heat_map.method,
                "alpha": alpha,
                "graph_weight": weight,
                **{name: values[i][j] for name, values in heat_map.maps.items()},
            }


def csv_text(record: ExperimentRecord) -> str:
    """Return `frame` as CSV, with texts that are harmless to spreadsheets."""
    table = frame(record).map(lambda cell: encoded_id(cell) if isinstance(cell, str) else cell)
    return str(table.to_csv(index=False, lineterminator="\n"))


def markdown_text(record: ExperimentRecord) -> str:
    """Return the tables as Markdown, with the command, versions and seeds."""
    parts = [f"# {record.name}", _provenance(record)]
    if record.curves:
        parts.append(_curves(record))
    for dataset in record.datasets:
        rows = [row for row in record.rows if row.dataset == dataset.name]
        if rows and not record.curves:
            note = f"\n\n*{dataset.note}*" if dataset.note else ""
            parts.append(
                f"## {dataset.name}\n\nn = {dataset.n_samples}, {plural(len(dataset.views), 'view')}, "
                f"{plural(dataset.n_clusters, 'cluster')}.{note}"
            )
            parts.extend(_protocol_tables(rows, record.titles))
    for heat_map in record.heat_maps:
        parts.extend(_heat_map(heat_map))
    if any(row.note for row in record.rows):
        parts.append("† the view was chosen with labels.")
    failures = [
        f"* {row.dataset}, {record.titles.get(row.method, row.method)}, {row.protocol}: "
        f"{row.n_failed} of {row.n_runs} runs. {'; '.join(row.reasons)}"
        for row in record.rows
        if row.reasons
    ]
    if failures:
        parts.append("## Trials without a result\n\n" + "\n".join(failures))
    return "\n\n".join(parts) + "\n"


def _provenance(record: ExperimentRecord) -> str:
    versions = ", ".join(
        f"{name} {version}" for name, version in record.versions.items() if name != "platform"
    )
    where = record.executor or "every trial reused from an earlier run"
    seeds = f"Seeds {record.seeds[0]} to {record.seeds[-1]}" if record.seeds else "No seeds"
    if len(record.seeds) == 1:
        seeds = f"Seed {record.seeds[0]}"
    return (
        f"Command:\n\n    {record.command}\n\n{versions}; {where}. "
        f"{seeds}. {record.varies} Scores are the mean ± standard deviation over runs. Seconds and MiB "
        "are the time of one fit on one thread and its peak memory above that of the idle process."
    )


def _protocol_tables(rows: Sequence[RowEntry], titles: Mapping[str, str]) -> Iterable[str]:
    for protocol, sentence in PROTOCOLS.items():
        lines = [row for row in rows if row.protocol == protocol]
        if lines:
            scores = [TITLES[name] for name in scores_of(lines[0])]
            columns = ("method", *scores, "seconds", "MiB", "runs", "setting", "paper ACC / NMI")
            yield f"**{sentence[:1].upper()}{sentence[1:]}**"
            yield _table(columns, [_cells(row, titles) for row in lines])


def _cells(row: RowEntry, titles: Mapping[str, str]) -> list[str]:
    paper = [row.paper.get(name) for name in SCORES[:2]]
    memory = row.scores["peak_memory_bytes"].mean
    return [
        titles.get(row.method, row.method) + (" †" if row.note else ""),
        *(row.scores[name].text() for name in scores_of(row)),
        row.scores["seconds"].text(2),
        "" if memory is None else f"{memory / 2**20:.0f}",
        row.runs,
        ", ".join(f"{name} {value}" for name, value in row.parameters.items()) or "defaults",
        " / ".join("" if value is None else f"{value:.3f}" for value in paper).strip(" /"),
    ]


def _curves(record: ExperimentRecord) -> str:
    rows = []
    for curve in record.curves:
        name = record.titles.get(curve.method, curve.method)
        label = "" if curve.protocol == "defaults" else ", best over the grid"
        points = zip(curve.mean, curve.std, strict=True)
        rows.append([name + label, *(MeanStd(mean=m, std=s).text(3) for m, s in points)])
        if any(value is not None for value in curve.paper):
            paper = ("" if value is None else f"{value:.3f}" for value in curve.paper)
            rows.append([f"{name}, paper", *paper])
    shares = [f"{100 * share:g} %" for share in record.curves[0].corruption_rate]
    return "## Accuracy by corrupted share of the samples\n\n" + _table(["method", *shares], rows)


def _heat_map(heat_map: HeatMapEntry) -> Iterable[str]:
    yield f"## {heat_map.dataset}, {heat_map.method}"
    for name, values in heat_map.maps.items():
        kind = "label-free" if name in heat_map.label_free else "with labels"
        title = TITLES.get(name, name.replace("_", " "))
        yield f"**{title}** ({kind}); rows alpha, columns lambda"
        rows = [
            [f"**{alpha:g}**", *("-" if value is None else f"{value:.4g}" for value in line)]
            for alpha, line in zip(heat_map.alpha, values, strict=True)
        ]
        yield _table(["alpha \\ lambda", *(f"{value:g}" for value in heat_map.graph_weight)], rows)
    lines = []
    for name, (i, j) in heat_map.best.items():
        scores = ", ".join(
            f"{TITLES[score]} {value:.4f}"
            for score, values in heat_map.with_labels.items()
            if (value := values[i][j]) is not None
        )
        lines.append(
            f"* best by {name.replace('_', ' ')} (label-free): alpha = {heat_map.alpha[i]:g}, "
            f"lambda = {heat_map.graph_weight[j]:g}{f': {scores}' if scores else ''}"
        )
    yield "\n".join(lines)


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    escaped = ([text.replace("|", "\\|").replace("\n", " ") for text in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)
