"""Section on the selection of n_clusters: curves, and the same values as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mscam_dask.monitor.report.charts import Axes, LineChart, line_chart
from mscam_dask.monitor.report.formatting import number
from mscam_dask.solvers.n_clusters import least_near_peak, widest_gap_near_peak

__all__ = ["NClustersRow", "NClustersSection", "n_clusters_section"]

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
