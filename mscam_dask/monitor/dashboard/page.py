"""Bokeh document of one browser window: the selected run, its tiles and its plots."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
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
    THEME,
    Line,
    LinePlot,
    Mark,
    WorkPlot,
    mark_of,
)
from mscam_dask.monitor.dashboard.run_state import Run, Runs, view_shares
from mscam_dask.monitor.messages import duration, format_event, format_started, printable
from mscam_dask.plot.pictures import LEAST_P_VALUE
from mscam_dask.types.events import FitFailed, FitFinished, IterationFinished
from mscam_dask.types.rules import RULES

if TYPE_CHECKING:
    from bokeh.document import Document
    from bokeh.plotting import figure

_EVERY_MS = 1000
_DRAWING_SHARE = 0.003  # of the scheduler's time for one window; sending takes as long again
_MAX_PAUSE_S = 10.0
_NEWEST = "newest"
_GRID_CSS = """:host { display: grid; width: 100%; gap: 14px;
    grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); }"""


def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _html() -> Any:
    """Macros of page.html.j2, which escape what came from data."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(printable=printable, duration=duration)
    return environment.from_string(_asset("page.html.j2")).module


def serve(runs: Runs, extra: dict[str, Any], doc: Document) -> None:
    """Draw the page into a new document, and update it until it is closed."""
    from distributed.dashboard.components.scheduler import env

    request: Any = getattr(doc.session_context, "request", None)
    arguments = {} if request is None else request.arguments
    page = Page(runs, run_id=b"".join(arguments.get("run", [b""])[:1]).decode("utf-8", "replace"))
    doc.title = "Dask: mscam"
    doc.template = env.get_template("simple.html")
    doc.template_variables.update(extra)
    doc.theme = THEME
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
        sheet = InlineStyleSheet(css=_asset("page.css"))
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


def _line_plots() -> tuple[LinePlot, ...]:
    title, unit = "Selection of n_clusters", "largest p-value of the borders"
    squared = "\u2016F - W\u2016 / \u221ac", "\u2016\u0394F\u2016 / \u221ac"
    primal = _of_views(lambda record: [view.primal_residual for view in record.views])
    dual = _of_views(lambda record: [view.dual_residual for view in record.views])
    objective = _of_views(lambda record: [view.objective for view in record.views])
    shares = _of_views(lambda record: [*view_shares(record).values()])
    weight = _of_run("\u03bb", lambda record: record.graph_weight)
    score = _of_run("score", lambda record: record.score)
    seconds = _of_views(lambda record: [view.seconds for view in record.views])
    target = "Connected components (dashed: target)"
    return (
        LinePlot("counts", title, unit, _n_clusters_curves, log=True, over="n_clusters"),
        LinePlot("components", target, "components", _components, number="0"),
        LinePlot("weight", "Graph weight \u03bb", "\u03bb", weight, log=True, number="0.[000]"),
        LinePlot("score", "Score (cross-view information)", "nats", score),
        LinePlot("primal", "Primal residual by view", squared[0], primal, log=True),
        LinePlot("dual", "Dual residual by view", squared[1], dual, log=True),
        LinePlot("objective", "Objective by view", "objective", objective),
        LinePlot("shares", "View contributions", "share of the score", shares, number="0%"),
        LinePlot("seconds", "ADMM of each view", "seconds", seconds),
    )


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


def _components(run: Run) -> list[Line]:
    """Connected components by iteration, and a horizontal line at n_clusters."""
    (curve,) = _of_run("components", lambda record: record.n_connected_components)(run)
    values = [run.announced.n_clusters] * len(curve.at)
    return [Line("target", Mark(ACCENT, (8, 4)), curve.at, values, dotted=False), curve]


def _of_run(name: str, value: Callable[[IterationFinished], float]) -> Callable[[Run], list[Line]]:
    def lines(run: Run) -> list[Line]:
        at = [record.iteration + 1 for record in run.iterations]
        return [Line(name, Mark(INK), at, [value(record) for record in run.iterations])]

    return lines


def _of_views(values: Callable[[IterationFinished], list[float]]) -> Callable[[Run], list[Line]]:
    """Curves of the values of the views in a record, which has no excluded views."""

    def lines(run: Run) -> list[Line]:
        curves: dict[str, dict[int, float]] = {name: {} for name in run.views}
        for record in run.iterations:
            for view, value in zip(record.views, values(record), strict=True):
                if view.view in curves:
                    curves[view.view][record.iteration + 1] = value
        return [
            Line(printable(name), mark_of(index), [*curve], [*curve.values()])
            for index, (name, curve) in enumerate(curves.items())
        ]

    return lines
