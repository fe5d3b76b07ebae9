"""Sections of the report of a run on the selection of n_clusters and the drift since the previous run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from mscam_dask.monitor.report.charts import Axes, line_chart
from mscam_dask.monitor.report.formatting import number, p_value_text
from mscam_dask.monitor.run_record import DriftRecord
from mscam_dask.plot.palette import LEAST_P_VALUE
from mscam_dask.types.rules import RULES

_MAX_SIZES = 60
_MAX_SAMPLES = 40
_MAX_MOVES = 20


def n_clusters_section(curves: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Why this number was selected, a chart and rows of the p-values; None if it was given."""
    if curves is None:
        return None
    counts, selected = [int(value) for value in curves["counts"]], int(curves["n_clusters"])
    found = f"n_clusters={selected} was selected without labels from 1 to {counts[-1]}"
    if "p_values" not in curves:
        why = f"{found}, by the criteria of an earlier version."
        return {"highest": counts[-1], "why": why, "chart": None, "rows": []}
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
    axes = Axes(
        x="n_clusters",
        y="p-value",
        log=True,
        least=LEAST_P_VALUE,
        at=tuple(map(float, counts)),
        level=(level, RULES.level),
        chosen=(f"{selected} selected", float(selected)) if selected > 1 else None,
        shared=(LEAST_P_VALUE, 1.0),
    )
    chart = line_chart(
        "count-p-values",
        [("", 0, list(p_values.values()))],
        axes,
        title="Largest p-value of the borders",
        caption="That of the best of some partitions into so many clusters. Up to the dashed line, all "
        f"borders hold. Values below {number(LEAST_P_VALUE)} are drawn there.",
    )
    marks = {n: "all borders hold" for n, value in p_values.items() if value <= RULES.level}
    marks[selected] = "selected"
    rows = [(n, p_value_text(value), marks.get(n, "")) for n, value in p_values.items()]
    return {"highest": counts[-1], "why": why, "chart": chart, "rows": rows}


def drift_section(
    drift: DriftRecord | None, moved: Sequence[tuple[str, int, int]]
) -> dict[str, Any] | None:
    """Start of the run, sizes of clusters before and after, and lines of moved.csv; None for a first run."""
    if drift is None:
        return None
    how = "Views and settings are the same, so its clusters were reused."
    if drift.start == "cold":
        how = f"The fit did not start from it: {drift.reason.rstrip('.')}."
    pairs = zip_longest(drift.sizes_before, drift.sizes_after, fillvalue=0)
    sizes = [(name, *pair) for name, pair in zip(drift.cluster_names, pairs, strict=True)]
    if len(sizes) > _MAX_SIZES:
        sizes.sort(key=lambda row: -abs(row[2] - row[1]))
    return {
        "how": how,
        "n_sizes": len(sizes),
        "sizes": sizes[:_MAX_SIZES],
        "moves": Counter((old, new) for _, old, new in moved).most_common(_MAX_MOVES),
        "moved": moved[:_MAX_SAMPLES],
    }
