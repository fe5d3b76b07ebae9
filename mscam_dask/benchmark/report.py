"""The report of an experiment: one HTML page, made from its record."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files as files_of_package
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mscam_dask.errors import DataError
from mscam_dask.monitor.report.charts import Axes, LineChart, line_chart
from mscam_dask.monitor.report.formatting import number, plural
from mscam_dask.monitor.report.page import FileLink, render
from mscam_dask.pipeline.run.run_directory import RunDirectory

__all__ = ["experiment_page", "write_experiment_report"]

_TIE = 5e-4
"""Means that differ by less are equal to three decimals, so all of them are the best."""

_MAX_SUMMARY_DATASETS = 12
_MAX_HEADLINES = 6
_MAX_DATASETS = 40
_MAX_FAILED = 100
_MAX_MAPS = 40
_MAX_MAP_SIDE = 30
_TITLES = {
    "accuracy": "ACC",
    "normalized_mutual_information": "NMI",
    "adjusted_rand_index": "ARI",
    "purity": "Purity",
    "adjusted_modularity": "Adjusted modularity, label-free",
    "cross_view_information": "Cross-view information (nats), label-free",
    "eigengap": "Eigengap, label-free",
    "modularity": "Modularity, label-free",
    "n_connected_components": "Connected components",
}
_COLUMNS = ("accuracy", "normalized_mutual_information", "adjusted_rand_index", "purity")
_LABEL_FREE = ("adjusted_modularity", "cross_view_information")
_FILES = (
    ("results.md", "tables as Markdown"),
    ("results.csv", "rows as CSV"),
    ("experiment.json", "all results, for programs"),
    ("pipeline.toml", "settings, defaults included"),
    ("trials", "one record for each fit"),
)


@dataclass(frozen=True)
class SummaryTable:
    """Mean accuracies: data sets, and (method, protocol, entries of (text, is best))."""

    datasets: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[tuple[str, bool], ...]], ...]


def _mean_of(row: Mapping[str, Any], score: str) -> float | None:
    """Mean of a score in a row; None without."""
    value = row["scores"].get(score, {}).get("mean")
    return None if value is None else float(value)


def _summary_table(
    rows: Sequence[Mapping[str, Any]], datasets: Sequence[str], titles: Mapping[str, str]
) -> SummaryTable | None:
    """Accuracies of all data sets in one table; None if there is nothing to compare.

    Parameters
    ----------
    rows
        Rows of experiment.json.
    datasets
        Names, in order.
    titles
        Title by name of each method.
    """
    rows = [row for row in rows if "accuracy" in row["scores"]]
    labeled = {row["dataset"] for row in rows}
    shown = tuple(name for name in datasets if name in labeled)[:_MAX_SUMMARY_DATASETS]
    keys = list(dict.fromkeys((row["method"], row["protocol"]) for row in rows))
    if len(shown) < 2 or len(keys) < 2:
        return None
    means = {
        (row["dataset"], row["method"], row["protocol"]): _mean_of(row, "accuracy") for row in rows
    }
    best: dict[tuple[str, str], float] = {}
    for (dataset, _, protocol), mean in means.items():
        if mean is not None:
            best[dataset, protocol] = max(best.get((dataset, protocol), -math.inf), mean)
    lines = []
    for method, protocol in keys:
        entries = []
        for name in shown:
            mean = means.get((name, method, protocol))
            text = "\u2013" if mean is None else f"{mean:.3f}"
            entries.append((text, mean is not None and mean >= best[name, protocol] - _TIE))
        lines.append((titles.get(method, method), protocol, tuple(entries)))
    return SummaryTable(shown, tuple(lines))


def _headlines(record: Mapping[str, Any], titles: Mapping[str, str]) -> list[str]:
    """Summarize the results: one sentence for each heat map, or for each protocol.

    Parameters
    ----------
    record
        Content of experiment.json.
    titles
        Title by name of each method.
    """
    if record["heat_maps"]:
        sentences = [_choice_line(entry) for entry in record["heat_maps"][:_MAX_HEADLINES]]
        return [sentence for sentence in sentences if sentence]
    if len(record["methods"]) < 2:
        return []
    protocols = dict.fromkeys(row["protocol"] for row in record["rows"])
    sentences = [
        _wins_line(protocol, record["rows"], titles, score)
        for protocol in protocols
        for score in ("accuracy", "adjusted_modularity")
    ]
    return [sentence for sentence in sentences if sentence]


def _choice_line(entry: Mapping[str, Any]) -> str:
    """Accuracy of the label-free choice among all settings; "" without labels."""
    choice = entry["best"].get("cross_view_information")
    table = entry["with_labels"].get("accuracy")
    known = [value for row in table or () for value in row if value is not None]
    if choice is None or not known:
        return ""
    i, j = choice
    return (
        f"{entry['dataset']}: without labels, \u03b1 = {number(entry['alpha'][i])} and "
        f"\u03bb = {number(entry['graph_weight'][j])} are selected, with accuracy "
        f"{number(table[i][j], 3)}; over all settings accuracy ranges from {number(min(known), 3)} "
        f"to {number(max(known), 3)}."
    )


def _wins_line(
    protocol: str, rows: Sequence[Mapping[str, Any]], titles: Mapping[str, str], score: str
) -> str:
    """Number of data sets on which each method, or a tie of methods, has the best mean score.

    Every data set counts once. "" if every row is of a single view chosen with labels.
    """
    rows = [row for row in rows if row["protocol"] == protocol]
    if all(row["note"] for row in rows):
        return ""
    by_dataset: dict[str, dict[str, float]] = {}
    for row in rows:
        mean = _mean_of(row, score)
        if mean is not None:
            by_dataset.setdefault(row["dataset"], {})[row["method"]] = mean
    wins = Counter(
        tuple(method for method, mean in means.items() if mean >= max(means.values()) - _TIE)
        for means in by_dataset.values()
    )
    winners = ", ".join(
        " and ".join(titles.get(method, method) for method in methods)
        + (" tied" if len(methods) > 1 else "")
        + f" on {count}"
        for methods, count in wins.most_common()
    )
    total = plural(len(by_dataset), "data set")
    name = score.replace("_", " ")
    return f"Highest mean {name} ({protocol}): {winners} of {total}." if winners else ""


@dataclass(frozen=True)
class Interval:
    """Accuracy of a row from 0 to 1: mean, mean ± standard deviation, and the paper's value."""

    mean: float | None
    low: float | None
    high: float | None
    paper: float | None


@dataclass(frozen=True)
class ResultRow:
    """A row of the table of results, formatted.

    Attributes
    ----------
    title
        Title of the method.
    protocol
        "defaults" or "grid".
    scores
        Mean ± standard deviation and the paper's value, or "", for each column.
    is_best
        Whether each column holds the best mean of the data set and protocol.
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
    accuracy: Interval


def experiment_page(record: Mapping[str, Any], files: Sequence[FileLink]) -> str:
    """Return the HTML page of an experiment.

    Parameters
    ----------
    record
        Content of experiment.json as plain dicts and lists; see docs/experiments.md.
    files
        Links to its files.

    Returns
    -------
    str
        Page without external resources, as of `mscam_dask.monitor.report.page.run_page`.
    """
    titles = {method["name"]: method["title"] for method in record["methods"]}
    names = list(dict.fromkeys(row["dataset"] for row in record["rows"]))
    tables = []
    for name in names[:_MAX_DATASETS]:
        rows = [row for row in record["rows"] if row["dataset"] == name]
        columns = _COLUMNS if "accuracy" in rows[0]["scores"] else _LABEL_FREE
        heads = [_TITLES[column] for column in columns]
        tables.append((name, heads, _rows(rows, titles, columns)))
    failed = [trial for trial in record["trials"] if trial["outcome"] != "ok"]
    return render(
        files_of_package("mscam_dask.benchmark").joinpath("experiment.html.j2").read_text("utf-8"),
        {
            "record": record,
            "titles": titles,
            "headlines": _headlines(record, titles),
            "summary": _summary_table(record["rows"], names, titles),
            "tables": tables,
            "n_tables": len(names),
            "n_labeled": len(
                {row["dataset"] for row in record["rows"] if "accuracy" in row["scores"]}
            ),
            "curves": _curves(record["curves"], titles),
            "maps": [_map_group(entry, titles) for entry in record["heat_maps"][:_MAX_MAPS]],
            "n_maps": len(record["heat_maps"]),
            "failed": failed[:_MAX_FAILED],
            "n_failed": len(failed),
            "n_trials": len(record["trials"]),
            "files": files,
        },
    )


def _rows(
    rows: Sequence[Mapping[str, Any]], titles: Mapping[str, str], columns: Sequence[str]
) -> tuple[ResultRow, ...]:
    best: dict[tuple[str, str], float] = {}
    for row in rows:
        for name in columns:
            mean = _mean_of(row, name)
            if mean is not None:
                key = (row["protocol"], name)
                best[key] = max(best.get(key, -math.inf), mean)
    return tuple(_row(row, titles, best, columns) for row in rows)


def _std(row: Mapping[str, Any], name: str) -> float | None:
    value = row["scores"].get(name, {}).get("std")
    return None if value is None else float(value)


def _row(
    row: Mapping[str, Any],
    titles: Mapping[str, str],
    best: Mapping[tuple[str, str], float],
    columns: Sequence[str],
) -> ResultRow:
    scores, marks = [], []
    for name in columns:
        mean, std = _mean_of(row, name), _std(row, name)
        text = "\u2013" if mean is None else f"{mean:.3f}"
        text += "" if std is None else f"\u202f±\u202f{std:.3f}"
        paper = row.get("paper", {}).get(name)
        scores.append((text, "" if paper is None else f"{paper:.3f}"))
        marks.append(mean is not None and mean >= best[row["protocol"], name] - _TIE)
    seconds, memory = _mean_of(row, "seconds"), _mean_of(row, "peak_memory_bytes")
    accuracy, deviation = _mean_of(row, "accuracy"), _std(row, "accuracy") or 0.0
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
        accuracy=Interval(
            accuracy,
            None if accuracy is None else max(0.0, accuracy - deviation),
            None if accuracy is None else min(1.0, accuracy + deviation),
            row.get("paper", {}).get("accuracy"),
        ),
    )


def _curves(
    curves: Sequence[Mapping[str, Any]], titles: Mapping[str, str]
) -> tuple[LineChart, ...]:
    """A chart for each method: its accuracies, and those of the paper."""
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
            at=tuple(map(float, curve["corruption_rate"])),
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
    """One score over two parameters: rows of (alpha, entries of (text, shade, is_choice, tip))."""

    title: str
    rows: tuple[tuple[str, tuple[tuple[str, int, bool, str], ...]], ...]


@dataclass(frozen=True)
class MapGroup:
    """All heat maps of a data set, its fixed parameters, and a note if values are left out."""

    dataset: str
    method: str
    columns: tuple[str, ...]
    fixed: str
    maps: tuple[HeatMap, ...]
    note: str


def _map_group(entry: Mapping[str, Any], titles: Mapping[str, str]) -> MapGroup:
    alphas, weights = entry["alpha"][:_MAX_MAP_SIDE], entry["graph_weight"][:_MAX_MAP_SIDE]
    choice = entry["best"].get("cross_view_information")
    scores = {**entry["with_labels"], **entry["label_free"]}
    is_cut = len(entry["alpha"]) > _MAX_MAP_SIDE or len(entry["graph_weight"]) > _MAX_MAP_SIDE
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
        note=f"The first {_MAX_MAP_SIDE} values of each parameter are shown." if is_cut else "",
    )


def _short(value: float | None) -> str:
    """Text with three decimals; whole numbers above 1 without."""
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
        entries = []
        for j, weight in enumerate(weights):
            value = table[i][j]
            shade = 0
            if value is not None:
                shade = 1 + round(8 * (value - low) / (high - low)) if high > low else 5
            tip = f"\u03b1 = {number(alpha)}, λ = {number(weight)}: {title} {number(value)}"
            is_choice = choice is not None and list(choice) == [i, j]
            entries.append((_short(value), shade, is_choice, tip))
        rows.append((number(alpha), tuple(entries)))
    return HeatMap(title, tuple(rows))


def write_experiment_report(
    directory: Path, record: Mapping[str, Any], output: Path | None = None
) -> Path:
    """Write the report of a finished or running experiment.

    Parameters
    ----------
    directory
        Directory of the experiment; the report links to its files.
    record
        Content of its experiment.json, see docs/experiments.md.
    output
        File to write; report.html in the directory by default.

    Returns
    -------
    Path
        Absolute path of the file.

    Raises
    ------
    DataError
        If the output is a directory.
    """
    root = directory.absolute()
    target = root / "report.html" if output is None else output.absolute()
    if target.is_dir():
        raise DataError(
            f"{target} is a directory, but the report is one file. Give the name of a file."
        )
    links = [
        FileLink(
            name=name,
            href=quote(Path(os.path.relpath(root / name, target.parent)).as_posix()),
            what=what,
        )
        for name, what in _FILES
        if (root / name).exists()
    ]
    page = experiment_page(record, links)
    target.parent.mkdir(parents=True, exist_ok=True)
    RunDirectory(root).write(target, page.encode())
    return target
