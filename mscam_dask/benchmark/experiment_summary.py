"""What came out of an experiment, in a sentence and in one table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mscam_dask.monitor.report.formatting import number, plural

__all__ = ["BEST", "SummaryTable", "headlines", "mean_of", "summary_table"]

BEST = 5e-4
"""Means that differ by less are equal in three decimals: all of them are the best."""

_GLANCE_LIMIT = 12
_HEADLINE_LIMIT = 6


@dataclass(frozen=True)
class SummaryTable:
    """Mean accuracies: data sets, and (method, protocol, cells of (text, is best))."""

    datasets: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[tuple[str, bool], ...]], ...]


def mean_of(row: Mapping[str, Any], score: str) -> float | None:
    """A row's mean of a score; None where there is none."""
    value = row["scores"].get(score, {}).get("mean")
    return None if value is None else float(value)


def summary_table(
    rows: Sequence[Mapping[str, Any]], datasets: Sequence[str], titles: Mapping[str, str]
) -> SummaryTable | None:
    """All data sets side by side; None where there is nothing to compare.

    Parameters
    ----------
    rows
        Of experiment.json.
    datasets
        In their order.
    titles
        Of the methods.
    """
    shown = tuple(datasets[:_GLANCE_LIMIT])
    keys = list(dict.fromkeys((row["method"], row["protocol"]) for row in rows))
    if len(shown) < 2 or len(keys) < 2:
        return None
    means = {
        (row["dataset"], row["method"], row["protocol"]): mean_of(row, "accuracy") for row in rows
    }
    best: dict[tuple[str, str], float] = {}
    for (dataset, _, protocol), mean in means.items():
        if mean is not None:
            best[dataset, protocol] = max(best.get((dataset, protocol), -math.inf), mean)
    lines = []
    for method, protocol in keys:
        trials = []
        for name in shown:
            mean = means.get((name, method, protocol))
            text = "\u2013" if mean is None else f"{mean:.3f}"
            trials.append((text, mean is not None and mean >= best[name, protocol] - BEST))
        lines.append((titles.get(method, method), protocol, tuple(trials)))
    return SummaryTable(shown, tuple(lines))


def headlines(record: Mapping[str, Any], titles: Mapping[str, str]) -> list[str]:
    """Say what came out: a sentence for each map, or else for each protocol.

    Parameters
    ----------
    record
        experiment.json.
    titles
        Of the methods.
    """
    if record["heat_maps"]:
        said = [_choice_line(entry) for entry in record["heat_maps"][:_HEADLINE_LIMIT]]
        return [line for line in said if line]
    if len(record["methods"]) < 2:
        return []
    protocols = dict.fromkeys(row["protocol"] for row in record["rows"])
    said = [_wins_line(protocol, record["rows"], titles) for protocol in protocols]
    return [line for line in said if line]


def _choice_line(entry: Mapping[str, Any]) -> str:
    """The label-free choice of a map against all its settings; nothing without labels."""
    choice = entry["best"].get("cross_view_information")
    table = entry["with_labels"].get("accuracy")
    known = [value for row in table or () for value in row if value is not None]
    if choice is None or not known:
        return ""
    i, j = choice
    return (
        f"{entry['dataset']}: without labels \u03b1 = {number(entry['alpha'][i])} and "
        f"\u03bb = {number(entry['graph_weight'][j])} are chosen, with an accuracy of "
        f"{number(table[i][j], 3)}; over all settings it goes from {number(min(known), 3)} to "
        f"{number(max(known), 3)}."
    )


def _wins_line(protocol: str, rows: Sequence[Mapping[str, Any]], titles: Mapping[str, str]) -> str:
    """Number of data sets on which each method, or a tie of methods, has the best mean accuracy.

    Every data set counts once. Nothing where all rows are of single views chosen with labels.
    """
    rows = [row for row in rows if row["protocol"] == protocol]
    if all(row["note"] for row in rows):
        return ""
    by_dataset: dict[str, dict[str, float]] = {}
    for row in rows:
        mean = mean_of(row, "accuracy")
        if mean is not None:
            by_dataset.setdefault(row["dataset"], {})[row["method"]] = mean
    wins = Counter(
        tuple(method for method, mean in means.items() if mean >= max(means.values()) - BEST)
        for means in by_dataset.values()
    )
    said = ", ".join(
        " and ".join(titles.get(method, method) for method in methods)
        + (" tied" if len(methods) > 1 else "")
        + f" on {count}"
        for methods, count in wins.most_common()
    )
    whole = plural(len(by_dataset), "data set")
    return f"Highest mean accuracy ({protocol}): {said} of {whole}." if said else ""
