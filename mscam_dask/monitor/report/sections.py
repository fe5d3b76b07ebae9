"""Sections of the report of a run: the selection of n_clusters, the drift since the previous run, and incomplete views."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.monitor.report.charts import Axes, LineChart, line_chart
from mscam_dask.monitor.report.formatting import (
    LEAST_P_VALUE,
    count,
    number,
    p_value_text,
    percent,
    plural,
)
from mscam_dask.monitor.run_record import DriftRecord
from mscam_dask.types.rules import RULES

if TYPE_CHECKING:
    from mscam_dask.monitor.report.page import FileLink

__all__ = [
    "DriftSection",
    "MovedSample",
    "NClustersSection",
    "Pattern",
    "PresenceSection",
    "SizeRow",
    "drift_section",
    "n_clusters_section",
    "presence_section",
]


@dataclass(frozen=True)
class NClustersSection:
    """Content of the section.

    Attributes
    ----------
    highest
        Largest candidate.
    why
        Rule of the selection.
    chart
        Curve of the p-values; None in runs of earlier versions.
    rows
        Number of clusters, p-value, and a mark: "selected", "all borders hold", or empty.
    """

    highest: int
    why: str
    chart: LineChart | None = None
    rows: tuple[tuple[int, str, str], ...] = ()


def n_clusters_section(curves: Mapping[str, Any] | None) -> NClustersSection | None:
    """Return the section, or None if the number of clusters was given.

    Parameters
    ----------
    curves
        `n_clusters_curves` of run.json: fields of `mscam_dask.types.events.NClustersSelected`.
    """
    if curves is None:
        return None
    counts, selected = [int(value) for value in curves["counts"]], int(curves["n_clusters"])
    found = f"n_clusters={selected} was selected without labels from 1 to {counts[-1]}"
    if "p_values" not in curves:
        return NClustersSection(counts[-1], f"{found}, by the criteria of an earlier version.")
    p_values = dict(zip(counts, curves["p_values"], strict=True))
    level = f"{RULES.level:g}"
    why = (
        f"{found}: it is the largest number of clusters whose borders all have p-values up to {level}; "
        f"here the largest is {p_value_text(p_values[selected])}. Overlapping clusters count as one: set "
        "n_clusters if it is known."
        if selected > 1
        else f"{found}: with 2 clusters or more, some border always has a p-value above {level}. Set "
        "n_clusters to look at a number."
    )
    return NClustersSection(
        highest=counts[-1],
        why=why,
        chart=line_chart(
            "count-p-values",
            [("", 0, list(p_values.values()))],
            Axes(
                x="n_clusters",
                y="p-value",
                log=True,
                least=LEAST_P_VALUE,
                at=tuple(map(float, counts)),
                level=(level, RULES.level),
                chosen=(f"{selected} selected", float(selected)) if selected > 1 else None,
                shared=(LEAST_P_VALUE, 1.0),
            ),
            title="Largest p-value of the borders",
            caption="That of the best of some partitions into so many clusters. Up to the dashed line, all "
            f"borders hold. Values below {number(LEAST_P_VALUE)} are drawn there.",
        ),
        rows=tuple(
            (
                count,
                p_value_text(value),
                "selected"
                if count == selected
                else "all borders hold"
                if value <= RULES.level
                else "",
            )
            for count, value in p_values.items()
        ),
    )


_MAX_SIZES = 60
_MAX_SAMPLES = 40
_MAX_MOVES = 20

MovedSample = tuple[str, int, int]
"""Name of a sample, its cluster in the previous run, and its cluster."""


@dataclass(frozen=True)
class SizeRow:
    """Sizes of a cluster in the previous run and in this one; a dash if it does not exist."""

    cluster: int
    before: str
    after: str
    change: str


@dataclass(frozen=True, kw_only=True)
class DriftSection:
    """Content of the section.

    Attributes
    ----------
    previous
        Name of the directory of the previous run.
    how
        Sentence on how this run started from it.
    facts
        Titles and numbers of the tiles.
    sizes, sizes_cut
        Rows of the table, and a sentence if only the largest changes are shown.
    moves
        Previous cluster, cluster and number of samples, the most frequent first.
    moved
        The first samples that moved.
    n_moved
        Number of samples that moved.
    link
        Link to the file with all of them, or None.
    """

    previous: str
    how: str
    facts: tuple[tuple[str, str], ...]
    sizes: tuple[SizeRow, ...]
    sizes_cut: str
    moves: tuple[tuple[int, int, str], ...]
    moved: tuple[MovedSample, ...]
    n_moved: int
    link: FileLink | None


def drift_section(
    drift: DriftRecord | None, moved: Sequence[MovedSample], files: Sequence[FileLink]
) -> DriftSection | None:
    """Return the section, or None if there is no previous run.

    Parameters
    ----------
    drift
        `drift` of run.json.
    moved
        Lines of moved.csv.
    files
        Files of the run.
    """
    if drift is None:
        return None
    n_common, n_moved = drift.n_common, drift.n_moved
    sizes, cut = _sizes(drift)
    moves = Counter((old, new) for _, old, new in moved).most_common(_MAX_MOVES)
    return DriftSection(
        previous=drift.earlier,
        how=_how(drift),
        facts=(
            ("In both runs", count(n_common)),
            ("New", count(drift.n_new)),
            ("Removed", count(drift.n_gone)),
            ("Moved", f"{count(n_moved)} ({percent(n_moved / n_common if n_common else 0.0)})"),
        ),
        sizes=sizes,
        sizes_cut=cut,
        moves=tuple((old, new, count(number)) for (old, new), number in moves),
        moved=tuple(moved[:_MAX_SAMPLES]),
        n_moved=n_moved,
        link=next((file for file in files if file.name == "moved.csv"), None),
    )


def _how(drift: DriftRecord) -> str:
    if drift.start == "warm":
        runs = plural(drift.warm_runs, "warm start")
        return f"The fit started from its clusters and settings ({runs} in a row)."
    if drift.start == "cold":
        return f"The fit did not start from it: {drift.reason.rstrip('.')}."
    return "Views and settings are the same, so its clusters were reused."


def _sizes(drift: DriftRecord) -> tuple[tuple[SizeRow, ...], str]:
    pairs = list(zip_longest(drift.sizes_before, drift.sizes_after, fillvalue=0))
    names = drift.cluster_names
    rows = list(zip(names, pairs, strict=True))
    cut = ""
    if len(rows) > _MAX_SIZES:
        cut = f"The {_MAX_SIZES} of {count(len(rows))} clusters with the largest changes."
        rows.sort(key=lambda row: -abs(row[1][1] - row[1][0]))
    return tuple(SizeRow(name, *_texts(*sizes)) for name, sizes in rows[:_MAX_SIZES]), cut


def _texts(before: int, after: int) -> tuple[str, str, str]:
    change = after - before
    sign = "+" if change > 0 else "\u2212" if change < 0 else "\u00b1"
    return (
        count(before) if before else "\u2013",
        count(after) if after else "\u2013",
        f"{sign}{count(abs(change))}",
    )


_MAX_PATTERNS = 20


@dataclass(frozen=True)
class Pattern:
    """Samples that are in the same views: their number, and whether each view has them."""

    n_samples: int
    has: tuple[bool, ...]


@dataclass(frozen=True)
class PresenceSection:
    """Presence of the samples in the views that are not excluded.

    Attributes
    ----------
    views
        Name of each view and the number of its samples.
    patterns
        The most frequent sets of views first.
    cut
        Sentence about sets that are not shown; empty if all are.
    """

    views: tuple[tuple[str, int], ...]
    patterns: tuple[Pattern, ...]
    cut: str


def presence_section(by_view: Mapping[str, NDArray[Any]]) -> PresenceSection | None:
    """Return the table, None if every view has all samples.

    Parameters
    ----------
    by_view : mapping of str to (n, m)
        Coordinates of the samples in each view, NaN for those that it does not have.
    """
    if not by_view:
        return None
    table = np.stack([~np.isnan(values).all(axis=1) for values in by_view.values()], axis=1)
    if table.all():
        return None
    found, counts = np.unique(table, axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    shown = order[:_MAX_PATTERNS]
    n_others = int(counts[order[_MAX_PATTERNS:]].sum())
    return PresenceSection(
        views=tuple(zip(by_view, table.sum(axis=0).tolist(), strict=True)),
        patterns=tuple(
            Pattern(int(counts[row]), tuple(bool(value) for value in found[row])) for row in shown
        ),
        cut=""
        if not n_others
        else f"{len(order) - len(shown)} more sets of views have {n_others} samples.",
    )
