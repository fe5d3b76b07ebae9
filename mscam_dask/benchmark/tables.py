"""Tables of an experiment: results.csv, results.md and those in the terminal, from its record alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import pandas as pd

from mscam_dask.benchmark.results import (
    LABEL_FREE_SCORES,
    PROTOCOLS,
    SCORES,
    TITLES,
    ExperimentRecord,
    HeatMapEntry,
    MeanStd,
    RowEntry,
)
from mscam_dask.cli.console import relative, results_console, show, table
from mscam_dask.monitor.messages import plural
from mscam_dask.pipeline.run.run_directory import encoded_id

_MIB = 2**20
_ALL_SCORES = (*SCORES, *LABEL_FREE_SCORES)


def scores_of(row: RowEntry) -> tuple[str, ...]:
    """Return the names of the scores of a row: label-free ones on data without labels."""
    return tuple(name for name in _ALL_SCORES if name in row.scores)


def frame(record: ExperimentRecord) -> pd.DataFrame:
    """Return the rows as a table, with a column for each mean and standard deviation.

    For a sensitivity experiment it has one line for each point of the grid.
    """
    if record.heat_maps:
        return pd.concat(map(_points, record.heat_maps), ignore_index=True)
    rows = msgspec.to_builtins(record.rows)
    for row in rows:
        row["parameters"] = "; ".join(f"{key}={value}" for key, value in row["parameters"].items())
    flat = pd.json_normalize(rows, sep="_").rename(
        columns=lambda name: name.removeprefix("scores_")
    )
    names = (*_ALL_SCORES, "seconds", "peak_memory_bytes")
    shown = [name for name in names if name in SCORES or f"{name}_mean" in flat]
    columns = (
        *("dataset", "method", "protocol", "n_runs", "n_failed", "parameters"),
        *(f"{name}_{part}" for name in shown for part in ("mean", "std")),
        *("paper_accuracy", "paper_normalized_mutual_information", "note"),
    )
    short = {"paper_normalized_mutual_information": "paper_nmi"}
    return flat.reindex(columns=list(columns)).rename(columns=short)


def _points(entry: HeatMapEntry) -> pd.DataFrame:
    """Every point of a heat map with its scores."""
    axes = [entry.alpha, entry.graph_weight]
    points = pd.MultiIndex.from_product(axes, names=["alpha", "graph_weight"]).to_frame(index=False)
    points.insert(0, "dataset", entry.dataset)
    points.insert(1, "method", entry.method)
    return points.assign(
        **{name: [*itertools.chain(*values)] for name, values in entry.maps.items()}
    )


def csv_text(record: ExperimentRecord) -> str:
    """Return `frame` as CSV, with texts that are harmless to spreadsheets."""
    safe = frame(record).map(lambda cell: encoded_id(cell) if isinstance(cell, str) else cell)
    return str(safe.to_csv(index=False, lineterminator="\n"))


def show_rows(record: ExperimentRecord, directory: Path) -> None:
    """Print the rows of a comparison and the place of its results."""
    known = [name for name in _ALL_SCORES if any(name in row.scores for row in record.rows)]
    scores = [name for name in known if name != "purity"]
    rows = [
        [
            row.dataset,
            row.method + (" (view chosen with labels)" if row.note else ""),
            row.protocol,
            *(row.scores[name].text() if name in row.scores else "-" for name in scores),
            row.scores["seconds"].text(1),
            row.runs,
        ]
        for row in record.rows
    ]
    numbers = (*(TITLES[name] for name in scores), "Seconds", "Runs")
    console = results_console()
    show(console, table(("Data", "Method", "Protocol", *numbers), rows, numbers=numbers))
    for name, sentence in record.protocols.items():
        console.file.write(f"{name}: {sentence}.\n")
    _show_where(record, directory)


def show_best(record: ExperimentRecord, directory: Path) -> None:
    """Print the best points of a sweep and the place of its results."""
    rows = [
        [
            entry.dataset,
            name,
            *point,
            "-" if (acc := scores.get("accuracy")) is None else f"{acc:.4f}",
        ]
        for entry in record.heat_maps
        for name, point, scores in _best(entry)
    ]
    titles = ("Data", "Best by (label-free)", "alpha", "graph weight", "ACC")
    show(results_console(), table(titles, rows, numbers=titles[2:]))
    _show_where(record, directory)


def _best(entry: HeatMapEntry) -> Iterable[tuple[str, tuple[str, str], dict[str, float]]]:
    """Each label-free score, its best point, and the scores with labels there."""
    for name, (i, j) in entry.best.items():
        values = {score: table[i][j] for score, table in entry.with_labels.items()}
        known = {score: value for score, value in values.items() if value is not None}
        yield name.replace("_", " "), (f"{entry.alpha[i]:g}", f"{entry.graph_weight[j]:g}"), known


def _show_where(record: ExperimentRecord, directory: Path) -> None:
    reused = f", {record.n_reused} reused from an earlier run" if record.n_reused else ""
    results_console().file.write(
        f"{len(record.trials)} fits{reused}. Results: {relative(directory)} (report.html, results.md, "
        "results.csv, experiment.json)\n"
    )


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
            parts.extend(_protocol_tables(rows, record))
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


def _protocol_tables(rows: Sequence[RowEntry], record: ExperimentRecord) -> Iterable[str]:
    for protocol, sentence in PROTOCOLS.items():
        lines = [row for row in rows if row.protocol == protocol]
        if lines:
            scores = [TITLES[name] for name in scores_of(lines[0])]
            columns = ("method", *scores, "seconds", "MiB", "runs", "setting", "paper ACC / NMI")
            yield f"**{sentence[:1].upper()}{sentence[1:]}**"
            yield _table(columns, [_cells(row, record) for row in lines])


def _cells(row: RowEntry, record: ExperimentRecord) -> list[str]:
    paper = [row.paper.get(name) for name in SCORES[:2]]
    memory = row.scores["peak_memory_bytes"].mean
    return [
        record.titles.get(row.method, row.method) + (" †" if row.note else ""),
        *(row.scores[name].text() for name in scores_of(row)),
        row.scores["seconds"].text(2),
        "" if memory is None else f"{memory / _MIB:.0f}",
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


def _heat_map(entry: HeatMapEntry) -> Iterable[str]:
    yield f"## {entry.dataset}, {entry.method}"
    for name, values in entry.maps.items():
        kind = "label-free" if name in entry.label_free else "with labels"
        yield f"**{TITLES.get(name, name.replace('_', ' '))}** ({kind}); rows alpha, columns lambda"
        rows = [
            [f"**{alpha:g}**", *("-" if value is None else f"{value:.4g}" for value in line)]
            for alpha, line in zip(entry.alpha, values, strict=True)
        ]
        yield _table(["alpha \\ lambda", *(f"{value:g}" for value in entry.graph_weight)], rows)
    lines = []
    for name, (alpha, weight), known in _best(entry):
        scores = ", ".join(f"{TITLES[score]} {value:.4f}" for score, value in known.items())
        point = f"alpha = {alpha}, lambda = {weight}"
        lines.append(f"* best by {name} (label-free): {point}{f': {scores}' if scores else ''}")
    yield "\n".join(lines)


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    escaped = ([text.replace("|", "\\|").replace("\n", " ") for text in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)
