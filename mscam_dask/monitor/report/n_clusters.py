"""How the number of clusters was chosen: its curves, and the same as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mscam_dask.monitor.report.charts import Axes, LineChart, line_chart
from mscam_dask.monitor.report.formatting import number
from mscam_dask.solvers.n_clusters import least_near_peak

__all__ = ["CountRow", "CountSection", "count_section"]

_CURVES = (
    (
        "eigengap",
        "Eigengap",
        "relative gap",
        "Gap between the eigenvalues c and c + 1 of the graph's Laplacian, over the upper one.",
    ),
    (
        "modularity",
        "Modularity",
        "modularity",
        "Of the cut, on the views' own neighbour graphs.",
    ),
    (
        "adjusted_modularity",
        "Reliable modularity",
        "modularity",
        "The same times the share of the clusters that neighbours in all views together tell.",
    ),
    (
        "information",
        "Cross-view information",
        "nats",
        "Of the same cut; it grows with the number, so it cannot choose.",
    ),
    (
        "stability",
        "Stability",
        "adjusted Rand index",
        "Of the cuts of two graphs, each with a random half of the edges; 1 is the same cut.",
    ),
)

_ACROSS = "Dashed across: 8\u00a0% below the highest."


@dataclass(frozen=True)
class CountRow:
    """One number of clusters: values in words, in the order of the curves."""

    n_clusters: int
    values: tuple[str, ...]
    is_near: bool
    is_chosen: bool


@dataclass(frozen=True)
class CountSection:
    """What is shown of a number that was chosen.

    Attributes
    ----------
    lowest, highest
        Numbers looked at.
    why
        The rule and its figures, in sentences.
    charts
    titles
        Of the curves, as the columns of the rows have them.
    rows
    """

    lowest: int
    highest: int
    why: str
    charts: tuple[LineChart, ...]
    titles: tuple[str, ...]
    rows: tuple[CountRow, ...]


def count_section(counted: Mapping[str, Any] | None) -> CountSection | None:
    """Lay out `n_clusters_curves` of run.json; None where the number was given.

    Parameters
    ----------
    counted
        Fields of a `mscam_dask.types.events.NClustersSelected`.
    """
    if counted is None:
        return None
    counts, taken = [int(value) for value in counted["counts"]], int(counted["n_clusters"])
    curves = {name: _numbers(counted[name]) for name, *_ in _CURVES if name in counted}
    # runs of versions that did not tell how reliable it is went by modularity alone
    decides = "adjusted_modularity" if "adjusted_modularity" in curves else "modularity"
    least = least_near_peak(curves[decides])
    near = [value >= least for value in curves[decides]]
    return CountSection(
        lowest=counts[0],
        highest=counts[-1],
        why=_why(counts, near, taken, decides.replace("_", " ")),
        charts=_charts(counts, curves, taken, (decides, least)),
        titles=tuple(title for name, title, *_ in _CURVES if name in curves),
        rows=tuple(
            CountRow(
                count,
                tuple(_three(curve[index]) for curve in curves.values()),
                near[index],
                count == taken,
            )
            for index, count in enumerate(counts)
        ),
    )


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else float(value) for value in values]


def _three(value: float) -> str:
    """Three decimals, so that columns can be compared."""
    return f"{value:.3f}".replace("-", "\u2212") if math.isfinite(value) else number(value)


def _why(counts: Sequence[int], near: Sequence[bool], taken: int, decides: str) -> str:
    others = [count for count, is_near in zip(counts, near, strict=True) if is_near]
    rule = (
        f"the only one whose {decides} is within 8\u00a0% of the highest"
        if len(others) == 1
        else f"of the {len(others)} whose {decides} is within 8\u00a0% of the highest, the "
        "one with the widest eigengap"
    )
    return (
        f"Each number from {counts[0]} to {counts[-1]} was tried on the graph of the data, before "
        f"the first iteration and without labels. {taken} was taken: {rule}. Groups that overlap "
        "are seen as one; where the number is known, give it."
    )


def _charts(
    counts: Sequence[int],
    curves: Mapping[str, Sequence[float]],
    taken: int,
    least: tuple[str, float],
) -> tuple[LineChart, ...]:
    """One chart a curve; across one of them, its name and height, a dashed line."""
    charts = []
    for name, title, unit, caption in _CURVES:
        if name not in curves:
            continue
        crossed = name == least[0]
        axes = Axes(
            x="clusters",
            y=unit,
            at=tuple(map(float, counts)),
            chosen=(f"{taken} chosen", float(taken)),
            level=("", least[1]) if crossed else None,
        )
        key = f"count-{name}"
        said = f"{caption} {_ACROSS}" if crossed else caption
        charts.append(line_chart(key, [("", 0, curves[name])], axes, title=title, caption=said))
    return tuple(chart for chart in charts if chart is not None)
