"""Line charts: pictures of matplotlib, and the points that a page marks on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mscam_dask.monitor.report.formatting import count, number
from mscam_dask.plot.pictures import draw_curves, empty_axes, svg, tag

_WIDTH, _HEIGHT = 360, 220
_MARGINS = (64, 14, 14, 40)
_GRID = "#dde2e8"  # as in report.css
_MAX_DECADES = 2.5  # with ticks at 1, 2 and 5


@dataclass(frozen=True)
class Mark:
    """Point of a line: its place, a tooltip, and its values on the two axes."""

    x: float
    y: float
    tip: str
    at: float
    value: float


@dataclass(frozen=True)
class LineChart:
    """Picture, and the name, the style (0, 1, ...) and the points of each line; `key` is unique on the page."""

    key: str
    title: str
    caption: str
    x_title: str
    svg: str
    lines: tuple[tuple[str, int, tuple[Mark, ...]], ...]


@dataclass(frozen=True, kw_only=True)
class Axes:
    """Axes of a chart: `level` and `chosen` are name and value of a horizontal and a vertical line.

    A logarithmic y has smaller values drawn at `least`; `at` are the x, 0, 1, ... by default; `shared` are y of other charts.
    """

    x: str
    y: str
    log: bool = False
    least: float = 0.0
    whole: bool = False
    level: tuple[str, float] | None = None
    chosen: tuple[str, float] | None = None
    at: tuple[float, ...] | None = None
    shared: tuple[float, ...] = ()


def line_chart(
    key: str,
    lines: Sequence[tuple[str, int, Sequence[float]]],
    axes: Axes,
    *,
    title: str,
    caption: str = "",
) -> LineChart | None:
    """Chart of lines with name, style and values; None without a value to show."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    values = np.array([own for _, _, own in lines], dtype=np.float64)
    drawn = np.maximum(values, axes.least) if axes.log else values
    drawn = np.where(np.isfinite(values) & ((drawn > 0) | (not axes.log)), drawn, np.nan)
    if np.isnan(drawn).all():
        return None
    at = list(range(values.shape[1])) if axes.at is None else axes.at
    ax = empty_axes(_WIDTH, _HEIGHT, _MARGINS)
    if axes.log:
        ax.set_yscale("log")
    styles = [
        (name, style, own.tolist()) for (name, style, _), own in zip(lines, drawn, strict=True)
    ]
    draw_curves(ax, at, styles, marker="")
    ax.set_xlabel(axes.x, fontsize=11.5)
    ax.update_datalim([(at[0], value) for value in axes.shared])
    ax.grid(axis="y", color=_GRID)
    if axes.level is not None:
        tag(ax.axhline(axes.level[1]), "level")
        left = (0.01, axes.level[1])
        text = ax.annotate(axes.level[0], left, (0, 4), ("axes fraction", "data"), "offset points")
        tag(text, "level-name")
    if axes.chosen is not None:
        tag(ax.axvline(axes.chosen[1]), "level")
        is_late = axes.chosen[1] > (at[0] + at[-1]) / 2
        top, shift = (axes.chosen[1], 0.97), (-5 if is_late else 5, 0)
        text = ax.annotate(axes.chosen[0], top, shift, ("data", "axes fraction"), "offset points")
        text.set(horizontalalignment="right" if is_late else "left", verticalalignment="top")
        tag(text, "level-name")
    ax.autoscale_view()
    beyond = 0.04 * (at[-1] - at[0] or 1.0)
    ax.set_xlim(at[0] - beyond, at[-1] + beyond)
    low, high = ax.get_ylim()
    if axes.log:
        steps = (1.0, 2.0, 5.0) if high < low * 10**_MAX_DECADES else (1.0,)
        is_narrow = high < 3 * low
        ticks = MaxNLocator(4) if is_narrow else LogLocator(subs=steps, numticks=7)
        ax.yaxis.set_major_locator(ticks)
        plain = 0.0 if low > 1e-4 else math.inf
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value, plain=plain)))
        ax.yaxis.set_minor_formatter(NullFormatter())
    else:
        ax.yaxis.set_major_locator(MaxNLocator(5, integer=axes.whole))
        ax.ticklabel_format(axis="y", style="plain", useOffset=False)
    marks = []
    for (name, style, own), shown in zip(lines, drawn, strict=True):
        spots = ax.transData.transform(np.column_stack((at, shown)))
        points = []
        for where, value, (x, y) in zip(at, own, spots, strict=True):
            if np.isfinite(y):
                text = count(int(value)) if axes.whole else number(value)
                tip = f"{f'{name}, ' if name else ''}{axes.x} {number(where)}: {axes.y} {text}"
                points.append(Mark(round(x, 1), round(_HEIGHT - y, 1), tip, where, value))
        marks.append((name, style, tuple(points)))
    return LineChart(key, title, caption, axes.x, svg(ax.figure), tuple(marks))
