"""Bokeh document of one browser window: the selected run, its tiles, lines over iterations, and views by workers."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from bokeh.core.properties import field
from bokeh.layouts import column
from bokeh.models import (
    BasicTicker,
    BasicTickFormatter,
    Column,
    ColumnDataSource,
    DataRange1d,
    FactorRange,
    HoverTool,
    InlineStyleSheet,
    LinearColorMapper,
    NumeralTickFormatter,
)
from bokeh.models.annotations import ColorBar, Legend, LegendItem
from bokeh.models.widgets import Div, Select
from bokeh.palettes import Cividis256
from bokeh.plotting import figure

from mscam_dask.monitor.dashboard.run_state import Run, Runs, view_shares
from mscam_dask.monitor.messages import format_event, format_started, printable, shortened, template
from mscam_dask.plot.pictures import CLUSTER_COLORS, LEAST_P_VALUE, QUANTITIES, cluster_color
from mscam_dask.types.events import FitFailed, FitFinished
from mscam_dask.types.rules import RULES

if TYPE_CHECKING:
    from bokeh.document import Document
    from bokeh.plotting import figure

_EVERY_MS = 1000
_DRAWING_SHARE = 0.003  # of the scheduler's time for one window; sending takes as long again
_MAX_PAUSE_S = 10.0
_NEWEST = "newest"
_OF_RUN = ("n_connected_components", "graph_weight", "score")  # the other quantities have views
_PLOTS = {
    **{name: about for name, about in QUANTITIES.items() if name != "view_score"},
    "n_connected_components": ("Connected components (dashed: target)", "components", False),
    "shares": ("View contributions", "share of the score", False),
    "seconds": ("ADMM of each view", "seconds", False),
}
_GRID_CSS = """:host { display: grid; width: 100%; gap: 14px;
    grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); }"""


def _html() -> Any:
    """Macros of page.html.j2, which escape what came from data."""
    return template("monitor/dashboard/assets/page.html.j2").module


def serve(runs: Runs, extra: dict[str, Any], doc: Document) -> None:
    """Draw the page into a new document, and update it until it is closed."""
    from distributed.dashboard.components.scheduler import BOKEH_THEME, env

    request: Any = getattr(doc.session_context, "request", None)
    arguments = {} if request is None else request.arguments
    page = Page(runs, run_id=b"".join(arguments.get("run", [b""])[:1]).decode("utf-8", "replace"))
    doc.title = "Dask: mscam"
    doc.template = env.get_template("simple.html")
    doc.template_variables.update(extra)
    doc.theme = BOKEH_THEME
    doc.add_root(page.root)
    page.update()
    weak = ref(page)

    def update() -> None:
        living = weak()
        if living is not None:
            living.update()

    doc.add_periodic_callback(update, _EVERY_MS)
    doc.on_session_destroyed(lambda _: page.close())


class Page:
    """Widgets and plots of one browser window, which reads `runs` at every update."""

    def __init__(self, runs: Runs, *, run_id: str = "") -> None:
        self._runs = runs
        self._wanted = run_id if run_id in runs.by_id else _NEWEST
        self._drawn: tuple[str, int, int] | None = None
        self._not_before = 0.0  # of time.monotonic
        self._listed = -1
        css = files(__package__).joinpath("assets", "page.css").read_text(encoding="utf-8")
        sheet = InlineStyleSheet(css=css)
        # no TeX: text between dollar signs in a name is not a formula
        wide: dict[str, Any] = {"sizing_mode": "stretch_width", "disable_math": True}
        self._head = Div(name="head", stylesheets=[sheet], **wide)
        self._legend = Div(name="legend", stylesheets=[sheet], **wide)
        self._select = Select(title="Run", name="run", width=420, value=self._wanted)
        self._select.on_change("value", self._choose)
        self._plots = _line_plots()
        self._work = WorkPlot("Views on workers", name="work")
        # one box for each plot: in a common box Bokeh would align the frames of all plots
        self._boxes = {
            figure: column(figure, sizing_mode="stretch_width")
            for figure in (*(plot.figure for plot in self._plots), self._work.figure)
        }
        for drawn in self._boxes:
            drawn.toolbar.autohide = True
            drawn.axis.minor_tick_line_color = None
        self._sent: set[figure] = set()
        self._grid = Column(
            sizing_mode="stretch_width", stylesheets=[InlineStyleSheet(css=_GRID_CSS)]
        )
        self.root = Column(
            children=[self._select, self._head, self._legend, self._grid],
            sizing_mode="stretch_width",
            styles={"padding": "8px 14px 30px", "gap": "10px", "box-sizing": "border-box"},
            name="mscam",
        )

    def close(self) -> None:
        """Release the runs; called when the window is closed."""
        self._runs = Runs()

    def _choose(self, attribute: str, old: str, new: str) -> None:
        self._wanted = new
        self.update()

    @property
    def run(self) -> Run | None:
        """The selected run; the newest one by default."""
        runs = self._runs.by_id
        if self._wanted in runs:
            return runs[self._wanted]
        return next(reversed(runs.values())) if runs else None

    def update(self) -> None:
        """Show changes since the last update; cheap when there are none."""
        if self._listed != self._runs.version:
            self._listed = self._runs.version
            self._list_runs()
        run = self.run
        self._select.visible = self._legend.visible = run is not None
        if run is None:
            self._head.text = str(_html().empty())
            return
        self._head.text = head_html(run, now=time.time())
        state = (run.run_id, run.version, run.work_version)
        if state == self._drawn:
            return
        other = self._drawn is None or self._drawn[0] != run.run_id
        started = time.monotonic()
        if other or not run.going or started >= self._not_before:
            self._drawn = state
            self._draw(run)
            pause = min((time.monotonic() - started) / _DRAWING_SHARE, _MAX_PAUSE_S)
            self._not_before = 0.0 if other else started + pause

    def _list_runs(self) -> None:
        entries: list[str | tuple[Any, str]] = [(_NEWEST, "newest run")]
        for run in reversed(self._runs.by_id.values()):
            clock = time.strftime("%H:%M:%S", time.localtime(run.arrived))
            entries.append((run.run_id, f"{printable(run.name)}, {clock}, {run.state}"))
        self._select.options = entries
        if self._wanted not in self._runs.by_id:
            self._wanted = _NEWEST
        self._select.value = self._wanted

    def _draw(self, run: Run) -> None:
        views = [(printable(view), mark_of(index)) for index, view in enumerate(run.views)]
        n_more = len(run.announced.views) - len(views[:N_MARKS])
        self._legend.text = str(_html().legend(views[:N_MARKS], n_more))
        plots: tuple[LinePlot | WorkPlot, ...] = (*self._plots, self._work)
        shown = {plot.figure for plot in plots if plot.draw(run)}
        for drawn, box in self._boxes.items():
            box.visible = drawn in shown  # no empty axes
        if not shown <= self._sent:  # sending a plot costs a hundred times as much as its points
            self._sent |= shown
            self._grid.children = [box for drawn, box in self._boxes.items() if drawn in self._sent]


def head_html(run: Run, *, now: float) -> str:
    """Summary of a run as lines and tiles of HTML; data in it is escaped."""
    ended = run.end if isinstance(run.end, FitFinished) else None
    told = (run.n_clusters_selected, run.settings_selected, run.refined, ended)
    lines = [line for event in told if event is not None for line in format_event(event, run)]
    size = "starting" if run.started is None else format_started(run.started)
    kinds = isinstance(run.end, FitFailed), isinstance(run.end, FitFinished)
    return str(_html().head(run, lines, size, now, *kinds))


def _line_plots() -> list[LinePlot]:
    title, unit = "Selection of n_clusters", "largest p-value of the borders"
    plots = [LinePlot("counts", title, unit, _n_clusters_curves, log=True, over="n_clusters")]
    formats = {"n_connected_components": "0", "graph_weight": "0.[000]", "shares": "0%"}
    for name, (title, unit, log) in _PLOTS.items():
        lines = partial(_iterations, name=name)
        plots.append(LinePlot(name, title, unit, lines, log=log, number=formats.get(name)))
    return plots


def _n_clusters_curves(run: Run) -> list[Line]:
    """p-values from which n_clusters was selected, their level, and a vertical line at the selected number."""
    counted = run.n_clusters_selected
    if counted is None:
        return []
    p_values = [max(value, LEAST_P_VALUE) for value in counted.p_values]
    ends, at, level = [counted.counts[0], counted.counts[-1]], counted.n_clusters, RULES.level
    chosen = [min(p_values), 1.0]
    return [
        Line(f"{at} (selected)", Mark(ACCENT, (8, 4)), [at] * 2, chosen, dotted=False),
        Line(f"level {level:g}", Mark(INK, (7, 3)), ends, [level] * 2, dotted=False),
        Line("p-value", Mark(INK), counted.counts, p_values),
    ]


def _iterations(run: Run, name: str) -> list[Line]:
    """Curve of a quantity over iterations, or one for each view; excluded views have no values."""
    curves: dict[str, dict[int, float]] = {
        view: {} for view in ([""] if name in _OF_RUN else run.views)
    }
    for record in run.iterations:
        values = {view.view: getattr(view, name, 0.0) for view in record.views}
        if name in _OF_RUN:
            values = {"": getattr(record, name)}
        elif name == "shares":
            values = view_shares(record)
        for view in curves.keys() & values.keys():
            curves[view][record.iteration + 1] = values[view]
    lines = [
        Line(
            printable(view) or name, mark_of(index) if view else Mark(INK), [*own], [*own.values()]
        )
        for index, (view, own) in enumerate(curves.items())
    ]
    if name == "n_connected_components":
        target = [run.announced.n_clusters] * len(lines[0].at)
        lines.insert(0, Line("target", Mark(ACCENT, (8, 4)), lines[0].at, target, dotted=False))
    return lines


# plots -------------------------------------------------------------------------------------------


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
