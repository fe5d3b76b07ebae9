"""Plots of the page: lines over iterations, and views by workers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bokeh.core.properties import field
from bokeh.models import (
    BasicTicker,
    BasicTickFormatter,
    ColumnDataSource,
    DataRange1d,
    FactorRange,
    HoverTool,
    LinearColorMapper,
    NumeralTickFormatter,
)
from bokeh.models.annotations import ColorBar, Legend, LegendItem
from bokeh.palettes import Cividis256
from bokeh.plotting import figure

from mscam_dask.monitor.dashboard.run_state import Run
from mscam_dask.monitor.messages import printable, shortened
from mscam_dask.plot.pictures import CLUSTER_COLORS, cluster_color

_HEIGHT = 250
_SPAN = 0.2  # of an axis with a single value
_LEGEND_HEIGHT = 36
_ITERATIONS = "outer iteration"

INK = "#1f2933"
ACCENT = "#d55e00"
_DASHES: tuple[tuple[int, ...], ...] = ((), (7, 3), (2, 3), (9, 3, 2, 3))
_MARKERS = ("circle", "square", "triangle", "diamond")
N_MARKS = len(CLUSTER_COLORS) * len(_DASHES)


class Mark(NamedTuple):
    """Color, dashes (pixels on and off) and marker of a line."""

    color: str
    dash: tuple[int, ...] = ()
    marker: str = "circle"


class Line(NamedTuple):
    """Curve over outer iterations from 1, or over other integers, with or without markers."""

    name: str
    mark: Mark
    at: Sequence[int]
    values: Sequence[float]
    dotted: bool = True


def mark_of(index: int) -> Mark:
    """Line style of view `index` in every plot, in the color that it has in reports."""
    style = index // len(CLUSTER_COLORS) % len(_DASHES)
    return Mark(cluster_color(index), _DASHES[style], _MARKERS[style])


class LinePlot:
    """Plot of lines of a run; one `over` another quantity than iterations has its own legend."""

    def __init__(
        self,
        name: str,
        title: str,
        unit: str,
        lines: Callable[[Run], list[Line]],
        *,
        log: bool = False,
        number: str | None = None,
        over: str = _ITERATIONS,
    ) -> None:
        self._lines_of = lines
        self._log = log
        self._lines = ColumnDataSource(name=f"{name}-lines")
        self._points = ColumnDataSource(name=f"{name}-points")
        self._show([])
        from_zero = unit == "seconds" or number == "0%"
        self.figure = figure(
            title=title,
            name=name,
            height=_HEIGHT + (0 if over == _ITERATIONS else _LEGEND_HEIGHT),
            sizing_mode="stretch_width",
            y_axis_type="log" if log else "linear",
            y_range=DataRange1d(start=0.0) if from_zero else DataRange1d(default_span=_SPAN),
            x_axis_label=over,
            y_axis_label=unit,
            tools="xpan,xwheel_zoom,box_zoom,reset,save",
            output_backend="canvas",
        )
        curves = self.figure.multi_line(
            "xs", "ys", source=self._lines, line_color="color", line_dash="dash", line_width=2
        )
        points = self.figure.scatter(
            "x", "y", source=self._points, color="color", marker="marker", size=6
        )
        what = "iteration" if over == _ITERATIONS else over
        shown = "@y" if number is None else f"@y{{{number}}}"
        tips = [("", "@line"), (what, "@x"), (unit, shown)]
        self.figure.add_tools(HoverTool(renderers=[points], tooltips=tips))
        self.figure.xaxis.ticker = BasicTicker(min_interval=1)
        self.figure.xaxis.formatter = BasicTickFormatter(use_scientific=False)
        if log:
            self.figure.yaxis.formatter = BasicTickFormatter(precision=2, power_limit_low=-2)
        if number is not None:
            self.figure.yaxis.formatter = NumeralTickFormatter(format=number)
        if number == "0":
            self.figure.yaxis.ticker = BasicTicker(min_interval=1)
        if over != _ITERATIONS:  # below, so that it hides no curve, with two names in a row
            drawn: list[Any] = [curves]
            items = [LegendItem(label=field("line"), renderers=drawn)]
            self.figure.add_layout(Legend(items=items, orientation="horizontal", ncols=2), "below")

    def draw(self, run: Run) -> bool:
        """Replace the curves, and return whether there are points to show."""
        drawn = []
        for line in self._lines_of(run):
            pairs = [
                (x, float(y))
                for x, y in zip(line.at, line.values, strict=True)
                if math.isfinite(y) and (y > 0.0 or not self._log)
            ]
            drawn.append((line, pairs))
        if not any(pairs for _, pairs in drawn):
            return False
        self._show(drawn)
        return True

    def _show(self, drawn: list[tuple[Line, list[tuple[int, float]]]]) -> None:
        self._lines.data = {
            "xs": [[x for x, _ in pairs] for _, pairs in drawn],
            "ys": [[y for _, y in pairs] for _, pairs in drawn],
            "color": [line.mark.color for line, _ in drawn],
            "dash": [list(line.mark.dash) for line, _ in drawn],
            "line": [line.name for line, _ in drawn],
        }
        points = [(line, x, y) for line, pairs in drawn if line.dotted for x, y in pairs]
        self._points.data = {
            "x": [x for _, x, _ in points],
            "y": [y for _, _, y in points],
            "color": [line.mark.color for line, _, _ in points],
            "marker": [line.mark.marker for line, _, _ in points],
            "line": [line.name for line, _, _ in points],
        }


class WorkPlot:
    """Heat map of views by workers: seconds of computing, with a frame around running tasks."""

    def __init__(self, title: str, *, name: str) -> None:
        self._cells = ColumnDataSource(name=f"{name}-cells")
        self._mapper = LinearColorMapper(palette=Cividis256[::-1], low=0.0, high=1.0)
        self._workers, self._views = FactorRange(), FactorRange()
        self.figure = figure(
            title=title,
            name=name,
            height=_HEIGHT,
            sizing_mode="stretch_width",
            x_range=self._workers,
            y_range=self._views,
            x_axis_label="worker (framed: running)",
            y_axis_label="view",
            tools="save",
        )
        style: dict[str, Any] = {
            "fill_color": {"field": "seconds", "transform": self._mapper},
            "line_color": ACCENT,
            "line_width": "frame",
        }
        cells = self.figure.rect(
            "worker", "view", width=0.94, height=0.9, source=self._cells, **style
        )
        scale: dict[str, Any] = {"color_mapper": self._mapper, "title": "seconds", "width": 10}
        self.figure.add_layout(ColorBar(padding=4, background_fill_color=None, **scale), "right")
        tips = [
            ("view", "@view"),
            ("worker", "@worker"),
            ("tasks", "@tasks"),
            ("computed", "@seconds{0.00} s"),
            ("read and returned", "@mib{0,0.0} MiB"),
            ("now", "@now"),
        ]
        self.figure.add_tools(HoverTool(renderers=[cells], tooltips=tips))
        self.figure.grid.visible = False

    def draw(self, run: Run) -> bool:
        """Replace the cells, the first view on top, and return whether there are any."""
        busy = set(run.busy.values())
        pairs = sorted({*run.work, *busy})
        if not pairs:
            return False
        workers = {worker: worker.partition("://")[2] for worker in sorted({at for at, _ in pairs})}
        views = _distinct(run.views)
        work = [run.work.get(pair, Counter[str]()) for pair in pairs]
        self._workers.factors = list(workers.values())
        self._views.factors = list(views.values())[::-1]
        self.figure.height = max(_HEIGHT, 90 + 22 * len(views))
        self.figure.xaxis.major_label_orientation = 0.35 if len(workers) > 3 else 0.0
        self._mapper.high = max([1e-3, *(one["seconds"] for one in work)])
        self._cells.data = {
            "worker": [workers[worker] for worker, _ in pairs],
            "view": [views[view] for _, view in pairs],
            "seconds": [one["seconds"] for one in work],
            "tasks": [one["tasks"] for one in work],
            "mib": [one["bytes"] / 2**20 for one in work],
            "now": ["running" if pair in busy else "idle" for pair in pairs],
            "frame": [4 * (pair in busy) for pair in pairs],
        }
        return True


def _distinct(views: Sequence[str]) -> dict[str, str]:
    """Short, printable and distinct names for an axis."""
    names: dict[str, str] = {}
    for index, view in enumerate(views):
        short = shortened(printable(view), 28)
        names[view] = short if short not in names.values() else f"{short} #{index + 1}"
    return names
