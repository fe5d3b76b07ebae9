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

import csv
import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec
from msgspec import Struct

from mscam_dask.errors import DataError
from mscam_dask.monitor.messages import plural
from mscam_dask.monitor.run_record import ViewEntry

if TYPE_CHECKING:
    from mscam_dask.benchmark.methods import Method

__all__ = [
    "EXPERIMENT_FORMAT",
    "EXPERIMENT_FORMAT_VERSION",
    "LABEL_FREE_SCORES",
    "PROTOCOLS",
    "SCORES",
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

_SHORT = {
    "adjusted_modularity": "adjusted modularity",
    "cross_view_information": "information (nats)",
    "accuracy": "ACC",
    "normalized_mutual_information": "NMI",
    "adjusted_rand_index": "ARI",
    "purity": "purity",
}
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
        Position (i, j) of the largest value, by label-free score name. `auto_settings=True` selects
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
    notes: tuple[str, ...] = ()
    datasets: tuple[DatasetEntry, ...] = ()
    methods: tuple[MethodEntry, ...] = ()
    rows: tuple[RowEntry, ...] = ()
    curves: tuple[CurveEntry, ...] = ()
    heat_maps: tuple[HeatMapEntry, ...] = ()
    trials: tuple[TrialEntry, ...] = ()


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


def markdown_text(record: ExperimentRecord) -> str:
    """Return the tables as Markdown, with the command, versions and seeds."""
    titles = {method.name: method.title for method in record.methods}
    parts = [f"# {record.name}", _provenance(record)]
    if record.curves:
        parts.append(_curves(record.curves, titles))
    for dataset in record.datasets:
        rows = [row for row in record.rows if row.dataset == dataset.name]
        if rows and not record.curves:
            note = f"\n\n*{dataset.note}*" if dataset.note else ""
            parts.append(
                f"## {dataset.name}\n\nn = {dataset.n_samples}, {plural(len(dataset.views), 'view')}, "
                f"{plural(dataset.n_clusters, 'cluster')}.{note}"
            )
            parts.extend(_protocol_tables(rows, titles))
    parts.extend(_heat_map(heat_map) for heat_map in record.heat_maps)
    if any(row.note for row in record.rows):
        parts.append("† the view was chosen with labels.")
    failures = list(_failures(record, titles))
    if failures:
        parts.append("## Trials without a result\n\n" + "\n".join(failures))
    parts.extend(record.notes)
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


def _protocol_tables(rows: Sequence[RowEntry], titles: dict[str, str]) -> Iterable[str]:
    for protocol, sentence in PROTOCOLS.items():
        protocol_rows = [row for row in rows if row.protocol == protocol]
        if protocol_rows:
            shown = [_SHORT[name] for name in scores_of(protocol_rows[0])]
            yield f"**{sentence[:1].upper()}{sentence[1:]}**\n\n" + _table(
                [
                    *("method", *shown, "seconds", "MiB", "runs", "setting"),
                    "paper ACC / NMI",
                ],
                [_row(row, titles) for row in protocol_rows],
            )


def scores_of(row: RowEntry) -> tuple[str, ...]:
    """Return the names of the scores of a row: label-free ones on data without labels."""
    return tuple(name for name in (*SCORES, *LABEL_FREE_SCORES) if name in row.scores)


def _row(row: RowEntry, titles: dict[str, str]) -> list[str]:
    paper = [row.paper.get(name) for name in SCORES[:2]]
    memory = row.scores["peak_memory_bytes"]
    return [
        titles.get(row.method, row.method) + (" †" if row.note else ""),
        *(_pair(row.scores[name], 4) for name in scores_of(row)),
        _pair(row.scores["seconds"], 2),
        "" if memory.mean is None else f"{memory.mean / _MIB:.0f}",
        f"{row.n_runs - row.n_failed} of {row.n_runs}",
        ", ".join(f"{name} {value}" for name, value in row.parameters.items()) or "defaults",
        " / ".join("" if value is None else f"{value:.3f}" for value in paper).strip(" /"),
    ]


def _pair(value: MeanStd, digits: int) -> str:
    if value.mean is None:
        return "-"
    if value.std is None:
        return f"{value.mean:.{digits}f}"
    return f"{value.mean:.{digits}f} ± {value.std:.{digits}f}"


def _curves(curves: Sequence[CurveEntry], titles: dict[str, str]) -> str:
    shares = curves[0].corruption_rate
    rows = []
    for curve in curves:
        name = titles.get(curve.method, curve.method)
        label = "" if curve.protocol == "defaults" else ", best over the grid"
        rows.append(
            [
                name + label,
                *(
                    _pair(MeanStd(mean=mean, std=std), 3)
                    for mean, std in zip(curve.mean, curve.std, strict=True)
                ),
            ]
        )
        if any(value is not None for value in curve.paper):
            rows.append(
                [
                    f"{name}, paper",
                    *("" if value is None else f"{value:.3f}" for value in curve.paper),
                ]
            )
    return "## Accuracy by corrupted share of the samples\n\n" + _table(
        ["method", *(f"{100 * share:g} %" for share in shares)], rows
    )


def _heat_map(heat_map: HeatMapEntry) -> str:
    parts = [f"## {heat_map.dataset}, {heat_map.method}"]
    for name, values in {**heat_map.label_free, **heat_map.with_labels}.items():
        kind = "label-free" if name in heat_map.label_free else "with labels"
        rows = [
            [f"**{alpha:g}**", *("-" if value is None else f"{value:.4g}" for value in line)]
            for alpha, line in zip(heat_map.alpha, values, strict=True)
        ]
        parts.append(
            f"**{_SHORT.get(name, name.replace('_', ' '))}** ({kind}); rows alpha, columns lambda\n\n"
            + _table(["alpha \\ lambda", *(f"{value:g}" for value in heat_map.graph_weight)], rows)
        )
    lines = []
    for name, (row, column) in heat_map.best.items():
        scores = ", ".join(
            f"{_SHORT[score]} {value:.4f}"
            for score, values in heat_map.with_labels.items()
            if (value := values[row][column]) is not None
        )
        lines.append(
            f"* best by {name.replace('_', ' ')} (label-free): alpha = {heat_map.alpha[row]:g}, "
            f"lambda = {heat_map.graph_weight[column]:g}{f': {scores}' if scores else ''}"
        )
    return "\n\n".join([*parts, "\n".join(lines)])


def _failures(record: ExperimentRecord, titles: dict[str, str]) -> Iterable[str]:
    for row in record.rows:
        if row.reasons:
            yield (
                f"* {row.dataset}, {titles.get(row.method, row.method)}, {row.protocol}: "
                f"{row.n_failed} of {row.n_runs} runs. {'; '.join(row.reasons)}"
            )


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(map(_escape, line)) + " |" for line in lines)


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def csv_text(record: ExperimentRecord) -> str:
    """Return the rows as CSV; for a sensitivity experiment one line for each trial."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    if record.heat_maps:
        _write_heat_maps(writer, record)
    else:
        label_free = [
            name for name in LABEL_FREE_SCORES if any(name in row.scores for row in record.rows)
        ]
        names = (*SCORES, *label_free, "seconds", "peak_memory_bytes")
        unknown = MeanStd(mean=None, std=None)
        writer.writerow(
            ["dataset", "method", "protocol", "n_runs", "n_failed", "parameters"]
            + [f"{name}_{part}" for name in names for part in ("mean", "std")]
            + ["paper_accuracy", "paper_nmi", "note"]
        )
        for row in record.rows:
            parameters = "; ".join(f"{key}={value}" for key, value in row.parameters.items())
            writer.writerow(
                [row.dataset, row.method, row.protocol, row.n_runs, row.n_failed, parameters]
                + [
                    part
                    for value in (row.scores.get(name, unknown) for name in names)
                    for part in (value.mean, value.std)
                ]
                + [row.paper.get(name) for name in SCORES[:2]]
                + [row.note]
            )
    return stream.getvalue()


def _write_heat_maps(writer: Any, record: ExperimentRecord) -> None:
    first = record.heat_maps[0]
    names = [*first.label_free, *first.with_labels]
    writer.writerow(["dataset", "method", "alpha", "graph_weight", *names])
    for heat_map in record.heat_maps:
        maps = {**heat_map.label_free, **heat_map.with_labels}
        for row, alpha in enumerate(heat_map.alpha):
            for column, weight in enumerate(heat_map.graph_weight):
                values = [maps[name][row][column] if name in maps else None for name in names]
                writer.writerow([heat_map.dataset, heat_map.method, alpha, weight, *values])
