"""Tables and the report of an experiment, made from its record alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
from rich.table import Table

from mscam_dask.benchmark.results import (
    PROTOCOLS,
    SCORES,
    TIE,
    TITLES,
    ExperimentRecord,
    HeatMapEntry,
    TrialEntry,
)
from mscam_dask.cli.console import relative, results_console, show, table
from mscam_dask.data.views.sample_ids import encoded_id
from mscam_dask.monitor.messages import number, template
from mscam_dask.monitor.report.figures import LineChart, chart_axes, line_chart
from mscam_dask.monitor.report.page import FileLink, render
from mscam_dask.pipeline.run_directory import relative_url, write_whole
from mscam_dask.plot.pictures import Curve, draw_curves

_MAX_FAILED = 100
_MAP_TITLES = {
    "cross_view_information": "Cross-view information (nats), label-free",
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


def trial_text(entry: TrialEntry) -> str:
    """Trial and its result in one line, without the seconds."""
    name = f"{entry.method} {entry.dataset} seed {entry.seed}"
    is_swept = {"alpha", "graph_weight", "auto_settings"} <= entry.parameters.keys()
    if is_swept:  # all trials have the same method and seed
        weight = entry.parameters["graph_weight"]
        name = f"{entry.dataset} alpha {entry.parameters['alpha']:g} weight {weight:g}"
    if entry.outcome != "ok":
        return f"{name} {entry.outcome}: {entry.reason}"
    accuracy, memory = entry.scores.get("accuracy"), entry.peak_memory_bytes
    name += "" if accuracy is None else f" ACC {accuracy:.4f}"
    return name + ("" if memory is None else f" {memory / 2**20:.0f} MiB")


def frame(record: ExperimentRecord) -> pd.DataFrame:
    """Return the rows as a table, with columns of means and standard deviations, or the points of the grids."""
    if record.heat_maps:
        return pd.concat(map(_points, record.heat_maps), ignore_index=True)
    rows = msgspec.to_builtins(record.rows)
    for row in rows:
        row["parameters"] = "; ".join(f"{key}={value}" for key, value in row["parameters"].items())
    flat = pd.json_normalize(rows, sep="_").rename(
        columns=lambda name: name.removeprefix("scores_")
    )
    names = (*TITLES, "seconds", "peak_memory_bytes")
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


def show_results(record: ExperimentRecord, directory: Path) -> None:
    """Print the rows of a comparison or the best points of a sweep, and the place of the results."""
    console, reused = results_console(), ""
    show(console, _best_points(record) if record.heat_maps else _rows(record))
    for name, sentence in record.protocols.items():
        console.file.write(f"{name}: {sentence}.\n")
    if record.n_reused:
        reused = f", {record.n_reused} reused from an earlier run"
    console.file.write(
        f"{len(record.trials)} fits{reused}. Results: {relative(directory)} (report.html, results.md, "
        "results.csv, experiment.json)\n"
    )


def _rows(record: ExperimentRecord) -> Table:
    known = [name for name in TITLES if any(name in row.scores for row in record.rows)]
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
    return table(("Data", "Method", "Protocol", *numbers), rows, numbers=numbers)


def _best_points(record: ExperimentRecord) -> Table:
    rows = [
        [entry.dataset, *place, f"{known['accuracy']:.4f}" if "accuracy" in known else "-"]
        for entry in record.heat_maps
        for *place, known in _best(entry)
    ]
    titles = ("Data", "Best by (label-free)", "alpha", "graph weight", "ACC")
    return table(titles, rows, numbers=titles[2:])


def _best(entry: HeatMapEntry) -> Iterable[tuple[str, str, str, dict[str, float]]]:
    """Each label-free score, α and λ of its best point, and the scores with labels there."""
    for name, (i, j) in entry.best.items():
        values = {score: table[i][j] for score, table in entry.with_labels.items()}
        known = {score: value for score, value in values.items() if value is not None}
        yield name.replace("_", " "), f"{entry.alpha[i]:g}", f"{entry.graph_weight[j]:g}", known


def markdown_text(record: ExperimentRecord) -> str:
    """Return the tables as Markdown, with the command, versions and seeds."""
    versions = {name: text for name, text in record.versions.items() if name != "platform"}
    ends = [f"{seed}" for seed in dict.fromkeys((*record.seeds[:1], *record.seeds[-1:]))]
    return template("benchmark/results.md.j2").render(
        record=record,
        versions=", ".join(f"{name} {text}" for name, text in versions.items()),
        seeds=f"{'Seed' if len(ends) == 1 else 'Seeds'} {' to '.join(ends)}"
        if ends
        else "No seeds",
        protocols=PROTOCOLS,
        best=_best,
        titles=TITLES,
    )


def experiment_page(record: ExperimentRecord, files: Sequence[FileLink]) -> str:
    """Return the HTML page of an experiment from its record, with links to its files."""
    names = list(dict.fromkeys(row.dataset for row in record.rows))
    labeled = list(dict.fromkeys(row.dataset for row in record.rows if "accuracy" in row.scores))
    failed = [trial for trial in record.trials if trial.outcome != "ok"]
    rows = frame(msgspec.structs.replace(record, heat_maps=()))
    best = {score: rows[_is_best(rows, score)] for score in TITLES if f"{score}_mean" in rows}
    return render(
        "benchmark/experiment.html.j2",
        {
            "record": record,
            "headlines": [line for entry in record.heat_maps for line in _choice_line(entry)],
            "summary": _summary(rows, labeled),
            "labeled": labeled,
            "tables": {name: [row for row in record.rows if row.dataset == name] for name in names},
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
    """A chart for each method, all with the same y: its accuracies, and those of the paper."""
    known = pd.Series([x for each in record.curves for x in (*each.mean, *each.paper)], dtype=float)
    for index, curve in enumerate(record.curves if known.any() else ()):
        lines: list[Curve] = [
            (name, style, np.array(values, float).tolist())
            for name, style, values in (
                ("measured here", 0, curve.mean),
                ("the paper", 2, curve.paper),
            )
        ]
        ax = chart_axes()
        draw_curves(ax, curve.corruption_rate, lines)
        ax.set(xlabel="corrupted share", ylabel="ACC")
        ax.set_ylim(known.min() - 0.02, known.max() + 0.02)
        title = record.titles.get(curve.method, curve.method)
        caption = f"Protocol: {curve.protocol}."
        chart = line_chart(f"curve{index}", ax, lines, title=title, caption=caption)
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
