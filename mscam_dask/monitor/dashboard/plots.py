"""Plots of the page: lines over iterations, and views by workers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bokeh.core.properties import field
from bokeh.models import (
    BasicTicker,
    BasicTickFormatter,
    ColumnDataSource,
    DataRange1d,
    FactorRange,
    FixedTicker,
    HoverTool,
    LinearColorMapper,
    NumeralTickFormatter,
    Range1d,
)
from bokeh.models.annotations import ColorBar, Legend, LegendItem, Title
from bokeh.palettes import Cividis256
from bokeh.plotting import figure

from mscam_dask.monitor.dashboard.run_state import Work
from mscam_dask.monitor.dashboard.style import ACCENT, INK, MUTED, Mark
from mscam_dask.monitor.report.charts import log_ticks

if TYPE_CHECKING:
    from bokeh.models.renderers import GlyphRenderer

__all__ = ["HeatmapCell", "Line", "LinePlot", "WorkPlot"]

_HEIGHT = 250
_SPAN = 0.2  # of an axis with a single value
_MARGIN = 0.03  # of a logarithmic axis beyond its outer ticks, as a share
_LEGEND_HEIGHT = 36
_ITERATIONS = "outer iteration"
_FONT = "system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif"


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """Curve over outer iterations from 1, or over other integers, with or without markers."""

    name: str
    mark: Mark
    iterations: Sequence[int]
    values: Sequence[float]
    dotted: bool = True


class LinePlot:
    """Plot of curves over outer iterations, or over other integers.

    Parameters
    ----------
    title, unit
        Title of the plot and of its vertical axis.
    name
        Name of the Bokeh model.
    log
        Use a logarithmic vertical axis, without values that are not positive.
    number
        Format of the values for NumeralTickFormatter of Bokeh; by default short numbers.
    from_zero
        Start the vertical axis at zero.
    over
        Title of the horizontal axis. Plots over another quantity than iterations have their own
        legend, since that of the page names the views.
    """

    def __init__(
        self,
        title: str,
        unit: str,
        *,
        name: str,
        log: bool = False,
        number: str | None = None,
        from_zero: bool = False,
        over: str = _ITERATIONS,
    ) -> None:
        # within two decades, the ticks of Bokeh are too few
        self._levels = FixedTicker(ticks=[]) if log else None
        self._lines = ColumnDataSource(
            {"xs": [], "ys": [], "color": [], "dash": [], "line": []}, name=f"{name}-lines"
        )
        self._points = ColumnDataSource(
            {"x": [], "y": [], "color": [], "marker": [], "line": []}, name=f"{name}-points"
        )
        self.figure = figure(
            title=title,
            name=name,
            height=_HEIGHT + (0 if over == _ITERATIONS else _LEGEND_HEIGHT),
            sizing_mode="stretch_width",
            y_axis_type="log" if log else "linear",
            y_range=_range(log=log, from_zero=from_zero),
            x_axis_label=over,
            y_axis_label=unit,
            tools="xpan,xwheel_zoom,box_zoom,reset,save",
            toolbar_location="right",
            output_backend="canvas",
        )
        curves = self.figure.multi_line(
            "xs", "ys", source=self._lines, line_color="color", line_dash="dash", line_width=2
        )
        points = self.figure.scatter(
            "x", "y", source=self._points, color="color", marker="marker", size=6
        )
        shown = "@y" if number is None else f"@y{{{number}}}"
        self.figure.add_tools(
            HoverTool(
                renderers=[points],
                tooltips=[
                    ("", "@line"),
                    ("iteration" if over == _ITERATIONS else over, "@x"),
                    (unit, shown),
                ],
            )
        )
        self.figure.xaxis.ticker = BasicTicker(min_interval=1)
        self.figure.xaxis.formatter = BasicTickFormatter(use_scientific=False)
        if self._levels is not None:
            self.figure.yaxis.ticker = self._levels
            self.figure.yaxis.formatter = BasicTickFormatter(precision=1, power_limit_low=-2)
        if number is not None:
            self.figure.yaxis.formatter = NumeralTickFormatter(format=number)
        if number == "0":
            self.figure.yaxis.ticker = BasicTicker(min_interval=1)
        _plain(self.figure)
        if over != _ITERATIONS:
            self.figure.add_layout(_legend(curves), "below")  # so that it hides no curve

    def draw(self, lines: Sequence[Line]) -> bool:
        """Replace the curves, and return whether there are points to show."""
        drawn = [(line, self._pairs(line)) for line in lines]
        if not any(pairs for _, pairs in drawn):
            return False
        self._lines.data = {
            "xs": [[x for x, _ in pairs] for _, pairs in drawn],
            "ys": [[y for _, y in pairs] for _, pairs in drawn],
            "color": [line.mark.color for line in lines],
            "dash": [list(line.mark.dash) for line in lines],
            "line": [line.name for line in lines],
        }
        self._enclose([y for _, pairs in drawn for _, y in pairs])
        points = [(line, x, y) for line, pairs in drawn if line.dotted for x, y in pairs]
        self._points.data = {
            "x": [x for _, x, _ in points],
            "y": [y for _, _, y in points],
            "color": [line.mark.color for line, _, _ in points],
            "marker": [line.mark.marker for line, _, _ in points],
            "line": [line.name for line, _, _ in points],
        }
        return True

    def _enclose(self, values: Sequence[float]) -> None:
        """Extend a logarithmic axis from the tick below the values to the tick above."""
        if self._levels is None:
            return
        levels = log_ticks(min(values), max(values))
        if levels != list(self._levels.ticks):  # otherwise the user's zoom is kept
            self._levels.ticks = levels
            beyond = (levels[-1] / levels[0]) ** _MARGIN
            start, end = levels[0] / beyond, levels[-1] * beyond
            self.figure.y_range.update(start=start, end=end, reset_start=start, reset_end=end)

    def _pairs(self, line: Line) -> list[tuple[int, float]]:
        """Points that the axis can show."""
        return [
            (x, float(y))
            for x, y in zip(line.iterations, line.values, strict=True)
            if math.isfinite(y) and (y > 0.0 or self._levels is None)
        ]


@dataclasses.dataclass(frozen=True, slots=True)
class HeatmapCell:
    """Cell of the heat map: one view on one worker."""

    worker: str
    view: str
    work: Work
    busy: bool


class WorkPlot:
    """Heat map of views by workers: seconds of computing, with a frame around running tasks."""

    def __init__(self, title: str, *, name: str) -> None:
        self._cells = ColumnDataSource(
            {"worker": [], "view": [], "seconds": [], "tasks": [], "mib": [], "now": []},
            name=f"{name}-cells",
        )
        self._busy = ColumnDataSource({"worker": [], "view": []}, name=f"{name}-busy")
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
            toolbar_location="right",
        )
        cells = self.figure.rect(
            "worker",
            "view",
            width=0.94,
            height=0.9,
            source=self._cells,
            line_color=None,
            fill_color={"field": "seconds", "transform": self._mapper},
        )
        self.figure.rect(
            "worker",
            "view",
            width=0.94,
            height=0.9,
            source=self._busy,
            fill_color=None,
            line_color=ACCENT,
            line_width=4,
        )
        self.figure.add_layout(
            ColorBar(
                color_mapper=self._mapper,
                title="seconds",
                width=10,
                padding=4,
                background_fill_color=None,
            ),
            "right",
        )
        self.figure.add_tools(
            HoverTool(
                renderers=[cells],
                tooltips=[
                    ("view", "@view"),
                    ("worker", "@worker"),
                    ("tasks", "@tasks"),
                    ("computed", "@seconds{0.00} s"),
                    ("read and returned", "@mib{0,0.0} MiB"),
                    ("now", "@now"),
                ],
            )
        )
        _plain(self.figure)
        self.figure.grid.visible = False

    def draw(
        self, cells: Sequence[HeatmapCell], *, workers: Sequence[str], views: Sequence[str]
    ) -> bool:
        """Replace the cells, the first view on top, and return whether there are any."""
        if not cells:
            return False
        self._workers.factors = list(workers)
        self._views.factors = list(views)[::-1]
        self.figure.height = max(_HEIGHT, 90 + 22 * len(views))
        self.figure.xaxis.major_label_orientation = 0.35 if len(workers) > 3 else 0.0
        self._mapper.high = max([1e-3, *(cell.work.seconds for cell in cells)])
        self._cells.data = {
            "worker": [cell.worker for cell in cells],
            "view": [cell.view for cell in cells],
            "seconds": [cell.work.seconds for cell in cells],
            "tasks": [cell.work.n_tasks for cell in cells],
            "mib": [cell.work.n_bytes / 2**20 for cell in cells],
            "now": ["running" if cell.busy else "idle" for cell in cells],
        }
        self._busy.data = {
            "worker": [cell.worker for cell in cells if cell.busy],
            "view": [cell.view for cell in cells if cell.busy],
        }
        return True


def _range(*, log: bool, from_zero: bool) -> Range1d | DataRange1d:
    if log:
        return Range1d(start=1.0, end=10.0)
    return DataRange1d(start=0.0) if from_zero else DataRange1d(default_span=_SPAN)


def _legend(curves: GlyphRenderer[Any]) -> Legend:
    """Legend with two names in a row, for narrow screens."""
    return Legend(
        items=[LegendItem(label=field("line"), renderers=[curves])],
        orientation="horizontal",
        ncols=2,
        spacing=12,
        label_text_font=_FONT,
        label_text_font_size="12px",
        label_text_color=INK,
        border_line_color=None,
        background_fill_color=None,
    )


def _plain(plot: figure) -> None:
    """Set fonts and colors of a plot."""
    assert isinstance(plot.title, Title)
    plot.title.text_font = plot.axis.axis_label_text_font = _FONT
    plot.axis.major_label_text_font = _FONT
    plot.title.text_font_size = "14px"
    plot.title.text_color = plot.axis.axis_label_text_color = INK
    plot.axis.axis_label_text_font_size = plot.axis.major_label_text_font_size = "12px"
    plot.axis.axis_label_text_font_style = "normal"
    plot.axis.major_label_text_color = INK
    plot.axis.axis_line_color = plot.axis.minor_tick_line_color = None
    plot.axis.major_tick_line_color = MUTED
    plot.outline_line_color = "#c3cad3"
    plot.grid.grid_line_color = "#e6e9ed"
    plot.toolbar.logo = None
    plot.toolbar.autohide = True
