"""The tables of an experiment as Markdown and CSV, made of its document alone."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from mscam_dask.benchmark.results import (
    PROTOCOLS,
    SCORES,
    CurveEntry,
    ExperimentRecord,
    HeatMapEntry,
    MeanStd,
    RowEntry,
)
from mscam_dask.monitor.messages import plural

__all__ = ["csv_text", "markdown_text"]

_SHORT = {
    "accuracy": "ACC",
    "normalized_mutual_information": "NMI",
    "adjusted_rand_index": "ARI",
    "purity": "purity",
}
_MIB = 2**20


def markdown_text(record: ExperimentRecord) -> str:
    """Return the tables for people, with what made them."""
    titles = {method.name: method.title for method in record.methods}
    parts = [f"# {record.name}", _made_by(record)]
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
        parts.append("## Without a result\n\n" + "\n".join(failures))
    parts.extend(record.notes)
    return "\n\n".join(parts) + "\n"


def _made_by(record: ExperimentRecord) -> str:
    versions = ", ".join(
        f"{name} {version}" for name, version in record.versions.items() if name != "platform"
    )
    where = record.executor or "every fit kept from an earlier start"
    seeds = f"Seeds {record.seeds[0]} to {record.seeds[-1]}" if record.seeds else "No seeds"
    if len(record.seeds) == 1:
        seeds = f"Seed {record.seeds[0]}"
    return (
        f"Made by\n\n    {record.command}\n\n{versions}; {where}. "
        f"{seeds}. {record.varies} Mean ± standard deviation over runs. Seconds are of one "
        "fit on one thread, MiB its peak resident memory above that of the process it was forked from."
    )


def _protocol_tables(rows: Sequence[RowEntry], titles: dict[str, str]) -> Iterable[str]:
    for protocol, sentence in PROTOCOLS.items():
        mine = [row for row in rows if row.protocol == protocol]
        if mine:
            yield f"**{sentence[:1].upper()}{sentence[1:]}**\n\n" + _table(
                [
                    *("method", *_SHORT.values(), "seconds", "MiB", "runs", "setting"),
                    "paper ACC / NMI",
                ],
                [_row(row, titles) for row in mine],
            )


def _row(row: RowEntry, titles: dict[str, str]) -> list[str]:
    paper = [row.paper.get(name) for name in SCORES[:2]]
    memory = row.scores["peak_memory_bytes"]
    return [
        titles.get(row.method, row.method) + (" †" if row.note else ""),
        *(_pair(row.scores[name], 4) for name in SCORES),
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
    shares = curves[0].corrupted
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
            f"* best by {name.replace('_', ' ')} (no label seen): alpha = {heat_map.alpha[row]:g}, "
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
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def csv_text(record: ExperimentRecord) -> str:
    """Return the rows, one a line; for a sensitivity experiment one line for each cell."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    if record.heat_maps:
        _write_heat_maps(writer, record)
    else:
        names = (*SCORES, "seconds", "peak_memory_bytes")
        writer.writerow(
            ["dataset", "method", "protocol", "n_runs", "n_failed", "parameters"]
            + [f"{name}_{part}" for name in names for part in ("mean", "std")]
            + ["paper_accuracy", "paper_nmi", "note"]
        )
        for row in record.rows:
            parameters = "; ".join(f"{key}={value}" for key, value in row.parameters.items())
            writer.writerow(
                [row.dataset, row.method, row.protocol, row.n_runs, row.n_failed, parameters]
                + [part for name in names for part in (row.scores[name].mean, row.scores[name].std)]
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
