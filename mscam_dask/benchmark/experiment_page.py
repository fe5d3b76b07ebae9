"""Pages of comparisons, robustness and sensitivity experiments, from their document."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mscam_dask.benchmark.experiment_summary import BEST, headlines, mean_of, summary_table
from mscam_dask.monitor.report.charts import Axes, LineChart, line_chart
from mscam_dask.monitor.report.formatting import number
from mscam_dask.monitor.report.page import FileLink, render

__all__ = ["experiment_page"]

_DATASET_LIMIT = 40
_FAILED_LIMIT = 100
_MAP_LIMIT = 40
_MAP_SIDE = 30

_TITLES = {
    "accuracy": "ACC",
    "normalized_mutual_information": "NMI",
    "adjusted_rand_index": "ARI",
    "purity": "Purity",
    "cross_view_information": "Cross-view information (nats), label-free",
    "eigengap": "Eigengap, label-free",
    "modularity": "Modularity, label-free",
    "n_connected_components": "Connected components",
}
_COLUMNS = ("accuracy", "normalized_mutual_information", "adjusted_rand_index", "purity")


@dataclass(frozen=True)
class Interval:
    """Where a row's accuracy stands, from 0 to 1: ours, its deviation, the paper's."""

    mean: float | None
    low: float | None
    high: float | None
    paper: float | None


@dataclass(frozen=True)
class ResultRow:
    """One method on one data set under one protocol, in words.

    Attributes
    ----------
    title
        Of the method.
    protocol
        "defaults" or "grid".
    scores
        Mean ± deviation and the paper's value, or nothing, for each column.
    is_best
        Which columns hold the best mean of the data set and protocol.
    """

    title: str
    protocol: str
    scores: tuple[tuple[str, str], ...]
    is_best: tuple[bool, ...]
    seconds: str
    memory: str
    runs: str
    reasons: tuple[str, ...]
    parameters: str
    spot: Interval


def experiment_page(record: Mapping[str, Any], files: Sequence[FileLink]) -> str:
    """Return the page of an experiment.

    Parameters
    ----------
    record
        experiment.json, version 1, as plain dicts and lists; see docs/experiments.md.
    files
        Links to the files beside it.

    Returns
    -------
    str
        Complete in itself, like `mscam_dask.monitor.report.page.run_page`'s.
    """
    titles = {method["name"]: method["title"] for method in record["methods"]}
    names = list(dict.fromkeys(row["dataset"] for row in record["rows"]))
    tables = [
        (name, _rows([row for row in record["rows"] if row["dataset"] == name], titles))
        for name in names[:_DATASET_LIMIT]
    ]
    failed = [trial for trial in record["cells"] if trial["outcome"] != "ok"]
    return render(
        "experiment.html.j2",
        {
            "record": record,
            "titles": titles,
            "columns": [_TITLES[name] for name in _COLUMNS],
            "headlines": headlines(record, titles),
            "glance": summary_table(record["rows"], names, titles),
            "tables": tables,
            "n_tables": len(names),
            "curves": _curves(record["curves"], titles),
            "maps": [_map_group(entry, titles) for entry in record["heat_maps"][:_MAP_LIMIT]],
            "n_maps": len(record["heat_maps"]),
            "failed": failed[:_FAILED_LIMIT],
            "n_failed": len(failed),
            "n_cells": len(record["cells"]),
            "files": files,
        },
    )


def _rows(rows: Sequence[Mapping[str, Any]], titles: Mapping[str, str]) -> tuple[ResultRow, ...]:
    best: dict[tuple[str, str], float] = {}
    for row in rows:
        for name in _COLUMNS:
            mean = mean_of(row, name)
            if mean is not None:
                key = (row["protocol"], name)
                best[key] = max(best.get(key, -math.inf), mean)
    return tuple(_row(row, titles, best) for row in rows)


def _std(row: Mapping[str, Any], name: str) -> float | None:
    value = row["scores"].get(name, {}).get("std")
    return None if value is None else float(value)


def _row(
    row: Mapping[str, Any], titles: Mapping[str, str], best: Mapping[tuple[str, str], float]
) -> ResultRow:
    scores, marks = [], []
    for name in _COLUMNS:
        mean, std = mean_of(row, name), _std(row, name)
        said = "\u2013" if mean is None else f"{mean:.3f}"
        said += "" if std is None else f"\u202f±\u202f{std:.3f}"
        paper = row.get("paper", {}).get(name)
        scores.append((said, "" if paper is None else f"{paper:.3f}"))
        marks.append(mean is not None and mean >= best[row["protocol"], name] - BEST)
    seconds, memory = mean_of(row, "seconds"), mean_of(row, "peak_memory_bytes")
    accuracy, deviation = mean_of(row, "accuracy"), _std(row, "accuracy") or 0.0
    done = row["n_runs"] - row["n_failed"]
    return ResultRow(
        title=titles.get(row["method"], row["method"]),
        protocol=row["protocol"],
        scores=tuple(scores),
        is_best=tuple(marks),
        seconds=number(seconds, 3),
        memory="\u2013" if memory is None else f"{memory / 2**20:.0f}",
        runs=str(done) if not row["n_failed"] else f"{done} of {row['n_runs']}",
        reasons=tuple(row.get("reasons", ())),
        parameters=", ".join(f"{key} = {value}" for key, value in row["parameters"].items()),
        spot=Interval(
            accuracy,
            None if accuracy is None else max(0.0, accuracy - deviation),
            None if accuracy is None else min(1.0, accuracy + deviation),
            row.get("paper", {}).get("accuracy"),
        ),
    )


def _curves(
    curves: Sequence[Mapping[str, Any]], titles: Mapping[str, str]
) -> tuple[LineChart, ...]:
    """A chart for each method: ours, and the paper's values beside them."""
    known = [
        float(value) for c in curves for value in (*c["mean"], *c["paper"]) if value is not None
    ]
    charts = []
    for index, curve in enumerate(curves):
        title = titles.get(curve["method"], curve["method"])
        lines = [("measured here", 0, _numbers(curve["mean"]))]
        if any(value is not None for value in curve["paper"]):
            lines.append(("the paper", 2, _numbers(curve["paper"])))
        axes = Axes(
            x="corrupted share",
            y="ACC",
            at=tuple(map(float, curve["corrupted"])),
            shared=tuple(known),
        )
        charts.append(
            line_chart(
                f"curve{index}", lines, axes, title=title, caption=f"Protocol: {curve['protocol']}."
            )
        )
    return tuple(chart for chart in charts if chart is not None)


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else float(value) for value in values]


@dataclass(frozen=True)
class HeatMap:
    """One score over two parameters: title, and rows of (text, shade, is_choice, tip)."""

    title: str
    rows: tuple[tuple[str, tuple[tuple[str, int, bool, str], ...]], ...]


@dataclass(frozen=True)
class MapGroup:
    """All maps of a data set, what was fixed, and what was cut."""

    dataset: str
    method: str
    columns: tuple[str, ...]
    fixed: str
    maps: tuple[HeatMap, ...]
    cut: str


def _map_group(entry: Mapping[str, Any], titles: Mapping[str, str]) -> MapGroup:
    alphas, weights = entry["alpha"][:_MAP_SIDE], entry["graph_weight"][:_MAP_SIDE]
    choice = entry["best"].get("cross_view_information")
    scores = {**entry["with_labels"], **entry["label_free"]}
    cut = len(entry["alpha"]) > _MAP_SIDE or len(entry["graph_weight"]) > _MAP_SIDE
    return MapGroup(
        dataset=entry["dataset"],
        method=titles.get(entry["method"], entry["method"]),
        columns=tuple(number(weight) for weight in weights),
        fixed=", ".join(f"{key} = {value}" for key, value in entry["fixed"].items()),
        maps=tuple(
            _heat_map(_TITLES.get(name, name), table, (alphas, weights), choice)
            for name, table in scores.items()
            if table
        ),
        cut=f"The first {_MAP_SIDE} values of each parameter are shown." if cut else "",
    )


def _short(value: float | None) -> str:
    """Three decimals, as far as they say something; whole numbers as they are."""
    if value is None:
        return ""
    return f"{value:.0f}" if value == round(value) and abs(value) > 1 else f"{value:.3f}"


def _heat_map(
    title: str,
    table: Sequence[Sequence[float | None]],
    axes: tuple[Sequence[float], Sequence[float]],
    choice: Sequence[int] | None,
) -> HeatMap:
    alphas, weights = axes
    known = [value for line in table for value in line if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    rows = []
    for i, alpha in enumerate(alphas):
        trials = []
        for j, weight in enumerate(weights):
            value = table[i][j]
            shade = 0
            if value is not None:
                shade = 1 + round(8 * (value - low) / (high - low)) if high > low else 5
            tip = f"\u03b1 = {number(alpha)}, λ = {number(weight)}: {title} {number(value)}"
            is_choice = choice is not None and list(choice) == [i, j]
            trials.append((_short(value), shade, is_choice, tip))
        rows.append((number(alpha), tuple(trials)))
    return HeatMap(title, tuple(rows))
