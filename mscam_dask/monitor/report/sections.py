"""Sections of the report of a run: the selection of n_clusters, the drift since the previous run, and incomplete views."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.monitor.report.charts import Axes, LineChart, line_chart
from mscam_dask.monitor.report.formatting import count, number, percent, plural
from mscam_dask.monitor.run_record import DriftRecord
from mscam_dask.solvers.n_clusters import least_near_peak, widest_gap_near_peak

if TYPE_CHECKING:
    from mscam_dask.monitor.report.page import FileLink

__all__ = [
    "DriftSection",
    "MovedSample",
    "NClustersRow",
    "NClustersSection",
    "Pattern",
    "PresenceSection",
    "SizeRow",
    "drift_section",
    "n_clusters_section",
    "presence_section",
]

_CURVES = (
    (
        "eigengap",
        "Eigengap",
        "relative gap",
        "Relative gap between the c-th and the next eigenvalue of the Laplacian of the graph.",
    ),
    (
        "modularity",
        "Modularity",
        "modularity",
        "Modularity of the spectral cut on the reference graphs, averaged over views.",
    ),
    (
        "adjusted_modularity",
        "Adjusted modularity",
        "modularity",
        "Modularity times the uncertainty coefficient U.",
    ),
    (
        "information",
        "Cross-view information",
        "nats",
        "Cross-view information of the spectral cut. It grows with c, so it does not select c.",
    ),
    (
        "stability",
        "Stability",
        "adjusted Rand index",
        "Adjusted Rand index between the spectral cuts of two random halves of the edges.",
    ),
)

_THRESHOLD = "Dashed: 8\u00a0% below the maximum."


@dataclass(frozen=True)
class NClustersRow:
    """Formatted values of one number of clusters, in the order of the curves.

    Attributes
    ----------
    n_clusters
    values
    mark
        "selected", "preferred" where one cluster was selected, "within 8 %", or empty.
    is_preferred
        By the curves.
    """

    n_clusters: int
    values: tuple[str, ...]
    mark: str
    is_preferred: bool


@dataclass(frozen=True)
class NClustersSection:
    """Content of the section.

    Attributes
    ----------
    highest
        Largest candidate.
    why
        Rule of the selection.
    charts
    titles
        Titles of the columns.
    rows
    """

    highest: int
    why: str
    charts: tuple[LineChart, ...]
    titles: tuple[str, ...]
    rows: tuple[NClustersRow, ...]


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
    values = {name: _numbers(curves[name]) for name, *_ in _CURVES}
    threshold = least_near_peak(values["adjusted_modularity"])
    near = [value >= threshold for value in values["adjusted_modularity"]]
    best = widest_gap_near_peak(counts, values["adjusted_modularity"], values["eigengap"])
    mark = "selected" if best == selected else "preferred"
    return NClustersSection(
        highest=counts[-1],
        why=_why(counts, near, selected, best),
        charts=_charts(counts, values, (f"{best} {mark}", best), threshold),
        titles=tuple(title for _, title, *_ in _CURVES),
        rows=tuple(
            NClustersRow(
                count,
                tuple(_three(curve[index]) for curve in values.values()),
                mark if count == best else "within 8 %" if near[index] else "",
                count == best,
            )
            for index, count in enumerate(counts)
        ),
    )


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else float(value) for value in values]


def _three(value: float) -> str:
    """Number with three decimals, so that columns are comparable."""
    return f"{value:.3f}".replace("-", "\u2212") if math.isfinite(value) else number(value)


def _why(counts: Sequence[int], near: Sequence[bool], selected: int, best: int) -> str:
    n_near = sum(near)
    rule = (
        "It is the only one with an adjusted modularity within 8\u00a0% of the maximum."
        if n_near == 1
        else f"It has the largest eigengap of the {n_near} values whose adjusted modularity is within "
        "8\u00a0% of the maximum."
    )
    if selected == 1:
        return (
            f"n_clusters=1 was selected without labels, because no number of clusters has support. The "
            f"curves would prefer {best}. {rule} Set n_clusters to look at it."
        )
    return (
        f"n_clusters={selected} was selected without labels from 1 to {counts[-1]}, "
        f"before the first iteration. {rule} Overlapping clusters count as one: set n_clusters "
        "if it is known."
    )


def _charts(
    counts: Sequence[int],
    curves: Mapping[str, Sequence[float]],
    preferred: tuple[str, int],
    threshold: float,
) -> tuple[LineChart, ...]:
    """Charts of the curves; that of the adjusted modularity shows the threshold."""
    charts = []
    for name, title, unit, caption in _CURVES:
        is_criterion = name == "adjusted_modularity"
        axes = Axes(
            x="n_clusters",
            y=unit,
            at=tuple(map(float, counts)),
            chosen=(preferred[0], float(preferred[1])),
            level=("", threshold) if is_criterion else None,
        )
        text = f"{caption} {_THRESHOLD}" if is_criterion else caption
        lines = [("", 0, curves[name])]
        charts.append(line_chart(f"count-{name}", lines, axes, title=title, caption=text))
    return tuple(chart for chart in charts if chart is not None)


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
