"""Tables of an experiment: results.csv, results.md and those in the terminal, from its record alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

import msgspec
import pandas as pd
from jinja2 import Environment, StrictUndefined
from rich.table import Table

from mscam_dask.benchmark.results import (
    LABEL_FREE_SCORES,
    PROTOCOLS,
    SCORES,
    TITLES,
    ExperimentRecord,
    HeatMapEntry,
    RowEntry,
)
from mscam_dask.cli.console import relative, results_console, show, table
from mscam_dask.data.views.sample_ids import encoded_id
from mscam_dask.monitor.messages import plural

_ALL_SCORES = (*SCORES, *LABEL_FREE_SCORES)


def scores_of(row: RowEntry) -> tuple[str, ...]:
    """Return the names of the scores of a row: label-free ones on data without labels."""
    return tuple(name for name in _ALL_SCORES if name in row.scores)


def title_of(name: str) -> str:
    """Return the title of a score."""
    return TITLES.get(name, name.replace("_", " "))


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
    environment = Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        autoescape=False,
    )
    environment.filters |= {
        "number": lambda value, form, none="-": none if value is None else form % value,
        "percent": lambda share: f"{100 * share:g} %",
        "score_text": lambda name, row: row.scores[name].text(),
        "title_of": title_of,
    }
    template = files("mscam_dask.benchmark").joinpath("results.md.j2").read_text("utf-8")
    return environment.from_string(template).render(
        record=record,
        versions=", ".join(f"{name} {text}" for name, text in versions.items()),
        seeds=f"{'Seed' if len(ends) == 1 else 'Seeds'} {' to '.join(ends)}"
        if ends
        else "No seeds",
        protocols=PROTOCOLS,
        scores_of=scores_of,
        best=_best,
        plural=plural,
    )
