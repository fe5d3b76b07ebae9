"""Bokeh document of one browser window: the selected run, its tiles and its plots."""

from __future__ import annotations

import time
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from weakref import ref

from bokeh.layouts import column
from bokeh.models import Column, InlineStyleSheet
from bokeh.models.widgets import Div, Select

from mscam_dask.monitor.dashboard.plots import (
    ACCENT,
    INK,
    N_MARKS,
    Line,
    LinePlot,
    Mark,
    WorkPlot,
    mark_of,
)
from mscam_dask.monitor.dashboard.run_state import Run, Runs, view_shares
from mscam_dask.monitor.messages import format_event, format_started, printable
from mscam_dask.monitor.templates import template
from mscam_dask.plot.pictures import LEAST_P_VALUE, QUANTITIES
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
        self._drawn_events: tuple[str, int] | None = None
        self._shown: list[figure] = []
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
        events = (run.run_id, run.version)
        if self._drawn_events != events:
            self._drawn_events = events
            self._shown = [plot.figure for plot in self._plots if plot.draw(run)]
        shown = set(self._shown)
        if self._work.draw(run):
            shown.add(self._work.figure)
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
