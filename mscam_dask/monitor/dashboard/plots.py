"""Plots of the page: lines over iterations, and views by workers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from html import escape
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
)
from bokeh.models.annotations import ColorBar, Legend, LegendItem, Title
from bokeh.palettes import Cividis256
from bokeh.plotting import figure

from mscam_dask.monitor.dashboard.run_state import Work

__all__ = [
    "ACCENT",
    "GRID_CSS",
    "INK",
    "MUTED",
    "HeatmapCell",
    "Line",
    "LinePlot",
    "Mark",
    "WorkPlot",
    "legend_html",
    "mark_of",
    "page_css",
]

if TYPE_CHECKING:
    from bokeh.models.renderers import GlyphRenderer


_HEIGHT = 250
_SPAN = 0.2  # of an axis with a single value
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
            y_range=DataRange1d(start=0.0) if from_zero else DataRange1d(default_span=_SPAN),
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
        if self._levels is not None:
            self._levels.ticks = _log_levels([y for _, pairs in drawn for _, y in pairs])
        points = [(line, x, y) for line, pairs in drawn if line.dotted for x, y in pairs]
        self._points.data = {
            "x": [x for _, x, _ in points],
            "y": [y for _, _, y in points],
            "color": [line.mark.color for line, _, _ in points],
            "marker": [line.mark.marker for line, _, _ in points],
            "line": [line.name for line, _, _ in points],
        }
        return True

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


def _log_levels(values: Sequence[float]) -> list[float]:
    """Ticks around positive values: Bokeh has too few within two decades."""
    low, high = min(values), max(values)
    if high < 3 * low:
        step = 10.0 ** math.floor(math.log10(high - low or high))
        step /= 2 if high - low < 3 * step else 1
        return [at * step for at in range(math.floor(low / step), math.ceil(high / step) + 1)]
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    mantissas = (1, 2, 5) if len(powers) <= 3 else (1,)
    shown = powers[:: 1 + len(powers) // 8]
    return [mantissa * 10.0**power for power in shown for mantissa in mantissas]


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


INK = "#1f2933"
MUTED = "#5f6b7a"
ACCENT = "#d55e00"

# Palette of Okabe and Ito without yellow, which has little contrast on white, and with black last.
_COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7a5195", "#000000")
_DASHES: tuple[tuple[int, ...], ...] = ((), (7, 3), (2, 3), (9, 3, 2, 3))
_MARKERS = ("circle", "square", "triangle", "diamond")
_MAX_LEGEND = 32  # views in the legend


@dataclasses.dataclass(frozen=True, slots=True)
class Mark:
    """Line style of a view, different for each of the first 32.

    Attributes
    ----------
    color : str
    dash : tuple of int
        Pixels on and off; empty for a solid line.
    marker : str
        Name of a marker of Bokeh.
    """

    color: str
    dash: tuple[int, ...]
    marker: str


def mark_of(index: int) -> Mark:
    """Return the line style of view `index`, for every plot."""
    style = index // len(_COLORS) % len(_DASHES)
    return Mark(_COLORS[index % len(_COLORS)], _DASHES[style], _MARKERS[style])


def legend_html(views: Sequence[str], *, n_hidden: int = 0) -> str:
    """Return the legend of all plots with a line for each view; names are escaped."""
    items = []
    for index, view in enumerate(views[:_MAX_LEGEND]):
        mark = mark_of(index)
        dash = " ".join(map(str, mark.dash))
        items.append(
            '<span class="item"><svg width="30" height="10" aria-hidden="true">'
            f'<line x1="0" y1="5" x2="30" y2="5" stroke="{mark.color}" stroke-width="3" '
            f'stroke-dasharray="{dash}"/></svg>{escape(view)}</span>'
        )
    more = max(0, len(views) - _MAX_LEGEND) + n_hidden
    if more:
        items.append(f'<span class="item">and {more} more (hover over a line for its name)</span>')
    return f'<div class="legend" role="list" aria-label="views">{"".join(items)}</div>'


GRID_CSS = """
:host { display: grid; width: 100%; gap: 14px;
        grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); }
"""

page_css = f"""
:host {{ width: 100%; }}
.head, .legend, .note {{ font: 14px/1.45 system-ui, "Segoe UI", "DejaVu Sans", sans-serif;
                         color: {INK}; overflow-wrap: anywhere; }}
.head h1 {{ font-size: 20px; margin: 0 0 2px; font-weight: 600; }}
.head p {{ margin: 0 0 4px; color: {MUTED}; }}
.tiles {{ display: flex; flex-wrap: wrap; gap: 10px; margin-top: 10px; }}
.tile {{ border: 1px solid #d3d9e0; border-radius: 6px; padding: 8px 14px; min-width: 118px; }}
.tile b {{ display: block; font-size: 20px; font-weight: 600; font-variant-numeric: tabular-nums; }}
.tile span {{ color: {MUTED}; font-size: 12.5px; }}
.bad {{ border-left: 5px solid {ACCENT}; padding: 6px 12px; margin: 10px 0 0; }}
.legend {{ display: flex; flex-wrap: wrap; gap: 4px 20px; align-items: center; }}
.item {{ display: inline-flex; gap: 7px; align-items: center; }}
.empty {{ max-width: 46em; padding: 24px 4px; }}
code {{ background: #eef1f4; border-radius: 3px; padding: 1px 5px; }}
"""
