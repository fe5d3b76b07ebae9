"""The report of an experiment: one HTML page, made from its record."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.resources import files as files_of_package
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd

from mscam_dask.benchmark.results import TIE, TITLES, ExperimentRecord, HeatMapEntry
from mscam_dask.benchmark.tables import frame, scores_of
from mscam_dask.monitor.report.charts import Axes, LineChart, line_chart
from mscam_dask.monitor.report.formatting import number, plural
from mscam_dask.monitor.report.page import FileLink, render
from mscam_dask.pipeline.run.run_directory import relative_url, write_whole

_MAX_FAILED = 100
_MAP_TITLES = {
    "cross_view_information": "Cross-view information (nats), label-free",
    "eigengap": "Eigengap, label-free",
    "adjusted_modularity": "Adjusted modularity, label-free",
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
    """Return the HTML page of an experiment from its record, with links to its files."""
    names = list(dict.fromkeys(row.dataset for row in record.rows))
    labeled = list(dict.fromkeys(row.dataset for row in record.rows if "accuracy" in row.scores))
    failed = [trial for trial in record.trials if trial.outcome != "ok"]
    rows = frame(msgspec.structs.replace(record, heat_maps=()))
    best = {score: rows[_is_best(rows, score)] for score in TITLES if f"{score}_mean" in rows}
    return render(
        files_of_package("mscam_dask.benchmark").joinpath("experiment.html.j2").read_text("utf-8"),
        {
            "record": record,
            "headlines": list(_headlines(record, best)),
            "summary": _summary(rows, labeled),
            "labeled": labeled,
            "tables": {name: [row for row in record.rows if row.dataset == name] for name in names},
            "scores_of": scores_of,
            "score_titles": TITLES,
            "best": {
                (row.dataset, row.method, row.protocol, score)
                for score, winners in best.items()
                for row in winners.itertuples()
            },
            "curves": list(_curves(record)),
            "maps_of": _maps_of,
            "failed": failed[:_MAX_FAILED],
            "n_failed": len(failed),
            "files": files,
        },
    )


def _is_best(rows: pd.DataFrame, score: str) -> pd.Series:
    """Whether each row has the best mean of its data set and protocol, ties included."""
    means = rows[f"{score}_mean"].astype(float)
    return means >= means.groupby([rows.dataset, rows.protocol]).transform("max") - TIE


def _headlines(record: ExperimentRecord, best: dict[str, pd.DataFrame]) -> Iterator[str]:
    """Summarize the results: a sentence for each heat map, or for each protocol and score."""
    for entry in record.heat_maps:
        yield from _choice_line(entry)
    if record.heat_maps or len(record.methods) < 2:
        return
    # A row with a note is of a single view that was chosen with labels.
    for protocol in dict.fromkeys(row.protocol for row in record.rows if not row.note):
        for score in ("accuracy", "adjusted_modularity"):
            if score in best:
                winners = best[score][best[score].protocol == protocol]
                yield from _wins_line(f"{score.replace('_', ' ')} ({protocol})", winners, record)


def _choice_line(entry: HeatMapEntry) -> Iterator[str]:
    """Accuracy of the label-free choice among all settings; nothing without labels."""
    choice = entry.best.get("cross_view_information")
    table = np.array(entry.with_labels.get("accuracy", ()), dtype=float)
    if choice is not None and np.isfinite(table).any():
        alpha, weight = number(entry.alpha[choice[0]]), number(entry.graph_weight[choice[1]])
        yield (
            f"{entry.dataset}: without labels, \u03b1 = {alpha} and λ = {weight} are selected, with accuracy "
            f"{number(table[choice], 3)}; over all settings accuracy ranges from "
            f"{number(np.nanmin(table), 3)} to {number(np.nanmax(table), 3)}."
        )


def _wins_line(measure: str, winners: pd.DataFrame, record: ExperimentRecord) -> Iterator[str]:
    """Number of data sets on which each method, or a tie of methods, has the best mean score."""
    wins = Counter(
        tuple(record.titles.get(name, name) for name in methods)
        for _, methods in winners.groupby("dataset", sort=False).method
    )
    counts = ", ".join(
        " and ".join(names) + (" tied" if len(names) > 1 else "") + f" on {count}"
        for names, count in wins.most_common()
    )
    if counts:
        yield f"Highest mean {measure}: {counts} of {plural(wins.total(), 'data set')}."


def _summary(
    rows: pd.DataFrame, datasets: Sequence[str]
) -> list[tuple[str, str, list[float | None]]]:
    """Method, protocol and mean accuracy on each data set; empty if there is nothing to compare."""
    if len(datasets) < 2:
        return []
    means = rows.set_index(["method", "protocol", "dataset"]).accuracy_mean.astype(object)
    means = means.where(means.notna(), None)
    methods = dict.fromkeys(key[:2] for key in means.index if key[2] in datasets)
    lines = [(*key, [means.get((*key, name)) for name in datasets]) for key in methods]
    return lines if len(lines) > 1 else []


def _curves(record: ExperimentRecord) -> Iterator[LineChart]:
    """A chart for each method: its accuracies, and those of the paper."""
    drawn = [(np.array(each.mean, float), np.array(each.paper, float)) for each in record.curves]
    known = np.concatenate([[], *(values for pair in drawn for values in pair)])
    for index, (curve, (mean, paper)) in enumerate(zip(record.curves, drawn, strict=True)):
        lines = [("measured here", 0, mean.tolist())]
        if np.isfinite(paper).any():
            lines.append(("the paper", 2, paper.tolist()))
        at, shared = curve.corruption_rate, tuple(known[np.isfinite(known)].tolist())
        chart = line_chart(
            f"curve{index}",
            lines,
            Axes(x="corrupted share", y="ACC", at=at, shared=shared),
            title=record.titles.get(curve.method, curve.method),
            caption=f"Protocol: {curve.protocol}.",
        )
        if chart is not None:
            yield chart


def _maps_of(entry: HeatMapEntry) -> Iterator[tuple[str, list[list[tuple[str, int, str]]]]]:
    """Title and lines of (text, shade, tip) of the maps; shades from 1 (lowest) to 9, 0 for unknown."""
    for name, values in {**entry.with_labels, **entry.label_free}.items():
        if not values:
            continue
        title, table = _MAP_TITLES.get(name) or TITLES.get(name, name), np.array(values, float)
        least, most = np.nanmin([*table.flat, math.inf]), np.nanmax([*table.flat, -math.inf])
        shares = (table - least) / (most - least) if most > least else 0.5 + 0 * table
        shades = np.nan_to_num(1 + np.round(8 * shares)).astype(int)
        lines = []
        for i, alpha in enumerate(entry.alpha):
            cells = []
            for j, weight in enumerate(entry.graph_weight):
                place = f"\u03b1 = {number(alpha)}, λ = {number(weight)}"
                tip = f"{place}: {title} {number(table[i, j])}"
                cells.append((_short(table[i, j]), int(shades[i, j]), tip))
            lines.append(cells)
        yield title, lines


def _short(value: float) -> str:
    """Text with three decimals; whole numbers above 1 without."""
    if math.isnan(value):
        return ""
    return f"{value:.0f}" if value == round(value) and abs(value) > 1 else f"{value:.3f}"


def write_experiment_report(
    directory: Path, record: ExperimentRecord, output: Path | None = None
) -> Path:
    """Write the report, by default report.html in the directory, and return its absolute path."""
    root = directory.absolute()
    target = root / "report.html" if output is None else output.absolute()
    links = [
        FileLink(name=name, href=relative_url(root / name, target), what=what)
        for name, what in _FILES
        if (root / name).exists()
    ]
    write_whole(target, experiment_page(record, links).encode())
    return target
