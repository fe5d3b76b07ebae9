"""The report of an experiment: one HTML page, made from its record."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files as files_of_package
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from mscam_dask.benchmark.results import (
    TIE,
    TITLES,
    ExperimentRecord,
    HeatMapEntry,
)
from mscam_dask.benchmark.tables import frame, scores_of
from mscam_dask.errors import DataError
from mscam_dask.monitor.report.charts import Axes, LineChart, line_chart
from mscam_dask.monitor.report.formatting import number, plural
from mscam_dask.monitor.report.page import FileLink, render
from mscam_dask.pipeline.run.run_directory import write_whole

if TYPE_CHECKING:
    import pandas as pd

_MAX_SUMMARY_DATASETS = 12
_MAX_HEADLINES = 6
_MAX_DATASETS = 40
_MAX_FAILED = 100
_MAX_MAPS = 40
_MAX_MAP_SIDE = 30
_MAP_TITLES = {
    "cross_view_information": "Cross-view information (nats), label-free",
    "eigengap": "Eigengap, label-free",
    "modularity": "Modularity, label-free",
    "n_connected_components": "Connected components",
}
_FILES = (
    ("results.md", "tables as Markdown"),
    ("results.csv", "rows as CSV"),
    ("experiment.json", "all results, for programs"),
    ("pipeline.toml", "settings, defaults included"),
    ("trials", "one record for each fit"),
)


def experiment_page(record: ExperimentRecord, files: Sequence[FileLink]) -> str:
    """Return the HTML page of an experiment.

    Parameters
    ----------
    record
        experiment.json.
    files
        Links to its files.

    Returns
    -------
    str
        Page without external resources, as of `mscam_dask.monitor.report.page.run_page`.
    """
    names = list(dict.fromkeys(row.dataset for row in record.rows))
    tables = {
        name: [row for row in record.rows if row.dataset == name] for name in names[:_MAX_DATASETS]
    }
    labeled = [
        name
        for name in names
        if any("accuracy" in row.scores for row in record.rows if row.dataset == name)
    ]
    failed = [trial for trial in record.trials if trial.outcome != "ok"]
    return render(
        files_of_package("mscam_dask.benchmark").joinpath("experiment.html.j2").read_text("utf-8"),
        {
            "record": record,
            "headlines": _headlines(record),
            "summary": _summary(record, labeled[:_MAX_SUMMARY_DATASETS]),
            "labeled": labeled[:_MAX_SUMMARY_DATASETS],
            "tables": tables,
            "n_tables": len(names),
            "n_labeled": len(labeled),
            "scores_of": scores_of,
            "score_titles": TITLES,
            "best": _best_means(record),
            "curves": _curves(record),
            "heat_maps": record.heat_maps[:_MAX_MAPS],
            "maps_of": _maps_of,
            "pairs": _pairs,
            "max_side": _MAX_MAP_SIDE,
            "failed": failed[:_MAX_FAILED],
            "n_failed": len(failed),
            "files": files,
        },
    )


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in values.items())


def _is_best(rows: pd.DataFrame, score: str) -> pd.Series:
    """Whether each row has the best mean of its data set and protocol, ties included."""
    means = rows[f"{score}_mean"].astype(float)
    return means >= means.groupby([rows.dataset, rows.protocol]).transform("max") - TIE


def _best_means(record: ExperimentRecord) -> set[tuple[str, str, str, str]]:
    """Data set, method, protocol and score of the best means, which are bold."""
    if not record.rows:
        return set()
    rows = _rows(record)
    return {
        (row.dataset, row.method, row.protocol, score)
        for score in TITLES
        if f"{score}_mean" in rows
        for row in rows[_is_best(rows, score)].itertuples()
    }


def _rows(record: ExperimentRecord) -> pd.DataFrame:
    return frame(msgspec.structs.replace(record, heat_maps=()))


def _headlines(record: ExperimentRecord) -> list[str]:
    """Summarize the results: one sentence for each heat map, or for each protocol and score."""
    if record.heat_maps:
        sentences = [_choice_line(entry) for entry in record.heat_maps[:_MAX_HEADLINES]]
    elif len(record.methods) > 1 and record.rows:
        rows = _rows(record)
        # A row with a note is of a single view that was chosen with labels.
        sentences = [
            _wins_line(str(protocol), group, record, score)
            for protocol, group in rows.groupby("protocol", sort=False)
            if (group.note == "").any()
            for score in ("accuracy", "adjusted_modularity")
            if f"{score}_mean" in rows
        ]
    else:
        sentences = []
    return [sentence for sentence in sentences if sentence]


def _choice_line(entry: HeatMapEntry) -> str:
    """Accuracy of the label-free choice among all settings; "" without labels."""
    choice = entry.best.get("cross_view_information")
    table = entry.with_labels.get("accuracy", ())
    known = [value for row in table for value in row if value is not None]
    if choice is None or not known:
        return ""
    i, j = choice
    return (
        f"{entry.dataset}: without labels, \u03b1 = {number(entry.alpha[i])} and "
        f"\u03bb = {number(entry.graph_weight[j])} are selected, with accuracy "
        f"{number(table[i][j], 3)}; over all settings accuracy ranges from {number(min(known), 3)} "
        f"to {number(max(known), 3)}."
    )


def _wins_line(protocol: str, rows: pd.DataFrame, record: ExperimentRecord, score: str) -> str:
    """Number of data sets on which each method, or a tie of methods, has the best mean score.

    Every data set counts once.
    """
    best = rows[_is_best(rows, score)]
    titles = record.titles
    wins = Counter(
        tuple(titles.get(name, name) for name in methods)
        for _, methods in best.groupby("dataset", sort=False).method
    )
    winners = ", ".join(
        " and ".join(names) + (" tied" if len(names) > 1 else "") + f" on {count}"
        for names, count in wins.most_common()
    )
    total = plural(wins.total(), "data set")
    name = score.replace("_", " ")
    return f"Highest mean {name} ({protocol}): {winners} of {total}." if winners else ""


def _summary(
    record: ExperimentRecord, datasets: Sequence[str]
) -> list[tuple[str, str, list[float | None]]]:
    """Method, protocol and mean accuracy on each data set; empty if there is nothing to compare."""
    means = {
        (row.dataset, row.method, row.protocol): row.scores["accuracy"].mean
        for row in record.rows
        if "accuracy" in row.scores
    }
    keys = list(dict.fromkeys((method, protocol) for _, method, protocol in means))
    if len(datasets) < 2 or len(keys) < 2:
        return []
    return [(*key, [means.get((name, *key)) for name in datasets]) for key in keys]


def _curves(record: ExperimentRecord) -> tuple[LineChart, ...]:
    """A chart for each method: its accuracies, and those of the paper."""
    known = [
        value
        for curve in record.curves
        for value in (*curve.mean, *curve.paper)
        if value is not None
    ]
    charts = []
    for index, curve in enumerate(record.curves):
        lines = [("measured here", 0, _numbers(curve.mean))]
        if any(value is not None for value in curve.paper):
            lines.append(("the paper", 2, _numbers(curve.paper)))
        charts.append(
            line_chart(
                f"curve{index}",
                lines,
                Axes(x="corrupted share", y="ACC", at=curve.corruption_rate, shared=tuple(known)),
                title=record.titles.get(curve.method, curve.method),
                caption=f"Protocol: {curve.protocol}.",
            )
        )
    return tuple(chart for chart in charts if chart is not None)


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


@dataclass(frozen=True)
class HeatMap:
    """One score over two parameters: its lines of (text, shade, tip)."""

    title: str
    lines: tuple[tuple[tuple[str, int, str], ...], ...]


def _maps_of(entry: HeatMapEntry) -> list[HeatMap]:
    """Heat maps of a data set; shades run from 1 for the lowest value to 9, and 0 is unknown."""
    maps = []
    for name, table in {**entry.with_labels, **entry.label_free}.items():
        title = _MAP_TITLES.get(name) or TITLES.get(name, name)
        known = [value for line in table for value in line if value is not None]
        low, high = min(known, default=0.0), max(known, default=0.0)
        lines = []
        for alpha, values in zip(entry.alpha[:_MAX_MAP_SIDE], table, strict=False):
            cells = []
            for weight, value in zip(entry.graph_weight[:_MAX_MAP_SIDE], values, strict=False):
                shade = 0
                if value is not None:
                    shade = 1 + round(8 * (value - low) / (high - low)) if high > low else 5
                tip = f"\u03b1 = {number(alpha)}, λ = {number(weight)}: {title} {number(value)}"
                cells.append((_short(value), shade, tip))
            lines.append(tuple(cells))
        if table:
            maps.append(HeatMap(title, tuple(lines)))
    return maps


def _short(value: float | None) -> str:
    """Text with three decimals; whole numbers above 1 without."""
    if value is None:
        return ""
    return f"{value:.0f}" if value == round(value) and abs(value) > 1 else f"{value:.3f}"


def write_experiment_report(
    directory: Path, record: ExperimentRecord, output: Path | None = None
) -> Path:
    """Write the report of a finished or running experiment.

    Parameters
    ----------
    directory
        Directory of the experiment; the report links to its files.
    record
        Its experiment.json.
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
    write_whole(target, experiment_page(record, links).encode())
    return target
