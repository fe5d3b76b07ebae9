"""Bokeh document of one browser window: the selected run, its tiles and its plots."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any
from weakref import ref

from bokeh.layouts import column
from bokeh.models import Column, InlineStyleSheet
from bokeh.models.widgets import Div, Select

from mscam_dask.monitor.dashboard.plots import (
    ACCENT,
    GRID_CSS,
    INK,
    HeatmapCell,
    Line,
    LinePlot,
    Mark,
    WorkPlot,
    legend_html,
    mark_of,
    page_css,
)
from mscam_dask.monitor.dashboard.run_state import Run, Runs, Work, shortened, view_shares
from mscam_dask.monitor.messages import duration, format_event, format_started, printable
from mscam_dask.plot.palette import LEAST_P_VALUE
from mscam_dask.types.events import FitFailed, FitFinished, IterationFinished, ViewIteration
from mscam_dask.types.rules import RULES

if TYPE_CHECKING:
    from bokeh.document import Document
    from bokeh.plotting import figure

__all__ = ["Page", "serve"]

_EVERY_MS = 1000
_DRAWING_SHARE = 0.003  # of the scheduler's time for one window; sending takes as long again
_MAX_PAUSE_S = 10.0
_NEWEST = "newest"

_EMPTY = """<div class="head empty"><h1>No run yet</h1>
<p>Fits on this Dask cluster appear here when they start:</p>
<p><code>MSCAM(n_clusters=10, client=client).fit(views)</code><br>
<code>mscam-dask run pipeline.toml --scheduler tcp://...</code></p></div>"""

_PLAIN = Mark(INK, (), "circle")


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
    """Widgets and plots of one browser window.

    Parameters
    ----------
    runs : Runs
        Read at every update; never changed.
    run_id : str
        The run to show; the newest one if it is unknown.
    """

    def __init__(self, runs: Runs, *, run_id: str = "") -> None:
        self._runs = runs
        self._wanted = run_id if run_id in runs.by_id else _NEWEST
        self._drawn: tuple[str, int, int] | None = None
        self._drawn_events: tuple[str, int] | None = None
        self._shown: list[figure] = []
        self._not_before = 0.0  # of time.monotonic
        self._listed = -1
        sheet = InlineStyleSheet(css=page_css)
        # no TeX: text between dollar signs in a name is not a formula
        wide: dict[str, Any] = {"sizing_mode": "stretch_width", "disable_math": True}
        self._head = Div(name="head", stylesheets=[sheet], **wide)
        self._legend = Div(name="legend", stylesheets=[sheet], **wide)
        self._select = Select(title="Run", name="run", width=420, value=self._wanted)
        self._select.on_change("value", self._choose)
        self._plots: tuple[tuple[LinePlot, Callable[[Run], list[Line]]], ...] = _line_plots()
        self._work = WorkPlot("Views on workers", name="work")
        # one box for each plot: in a common box Bokeh would align the frames of all plots
        self._boxes = {
            figure: column(figure, sizing_mode="stretch_width")
            for figure in (*(plot.figure for plot, _ in self._plots), self._work.figure)
        }
        self._sent: set[figure] = set()
        self._grid = Column(
            sizing_mode="stretch_width", stylesheets=[InlineStyleSheet(css=GRID_CSS)]
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
            self._head.text = _EMPTY
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
            self._not_before = 0.0 if other else _pause(time.monotonic() - started) + started

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
        hidden = len(run.announced.views) - len(run.views)
        self._legend.text = legend_html([printable(v) for v in run.views], n_hidden=hidden)
        events = (run.run_id, run.version)
        if self._drawn_events != events:
            self._drawn_events = events
            self._shown = [plot.figure for plot, lines in self._plots if plot.draw(lines(run))]
        shown = set(self._shown)
        if self._draw_work(run):
            shown.add(self._work.figure)
        for drawn, box in self._boxes.items():
            box.visible = drawn in shown  # no empty axes
        if not shown <= self._sent:  # sending a plot costs a hundred times as much as its points
            self._sent |= shown
            self._grid.children = [box for drawn, box in self._boxes.items() if drawn in self._sent]

    def _draw_work(self, run: Run) -> bool:
        busy = set(run.busy.values())
        pairs = sorted({*run.work, *busy})
        workers = sorted({worker for worker, _ in pairs})
        views = _distinct(run.views)
        names = _short_addresses(workers)
        cells = [
            HeatmapCell(names[pair[0]], views[pair[1]], run.work.get(pair, Work()), pair in busy)
            for pair in pairs
        ]
        return self._work.draw(cells, workers=list(names.values()), views=list(views.values()))


def _pause(seconds: float) -> float:
    """Seconds without another drawing, after one that took `seconds`."""
    return min(seconds / _DRAWING_SHARE, _MAX_PAUSE_S)


def head_html(run: Run, *, now: float) -> str:
    """Return the summary of a run as lines and tiles of HTML; data in it is escaped."""
    started = run.started
    size = [format_started(started)] if started is not None else []
    events = (run.n_clusters_selection, run.selection, run.learned, run.end)
    lines = [
        line
        for event in events
        if event is not None and not isinstance(event, FitFailed)
        for line in format_event(event, run.pace)
    ]
    if run.state == "preparing":
        size.append("precomputing views and selecting settings")
    if run.state == "lost":
        size.append("driver disconnected; final state unknown")
    last = run.outer[-1] if run.outer else None
    tiles = [
        (run.state, "state"),
        (run.pace.n_done_of_max, "iterations"),
        _components_tile(run),
        (f"{last.graph_weight:.4g}" if last else "-", "graph weight \u03bb"),
        _score_tile(run),
        (duration(run.seconds(now)), "elapsed"),
    ]
    if run.going:
        tiles.append((run.pace.eta, "ETA (upper bound)"))
    if run.n_failed_tasks:
        tiles.append((str(run.n_failed_tasks), "failed tasks"))
    boxes = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(label)}</span></div>'
        for value, label in tiles
    )
    end = ""
    if isinstance(run.end, FitFailed):
        message = shortened(run.end.message) if len(run.end.message) > 2000 else run.end.message
        end = f'<p class="bad"><b>{escape(run.end.error)}</b>: {escape(printable(message))}</p>'
    return (
        f'<div class="head"><h1>{escape(printable(run.name))}</h1>'
        f"<p>{escape('; '.join(size) or 'starting')}, run {escape(run.run_id)}</p>"
        f"{''.join(f'<p>{escape(printable(line))}</p>' for line in lines)}"
        f'<div class="tiles">{boxes}</div>{end}</div>'
    )


def _components_tile(run: Run) -> tuple[str, str]:
    components = "-" if run.n_connected_components is None else run.n_connected_components
    label = "components of the result" if isinstance(run.end, FitFinished) else "components"
    return f"{components} of {run.announced.n_clusters}", label


def _score_tile(run: Run) -> tuple[str, str]:
    is_final = isinstance(run.end, FitFinished)
    score = "-" if run.score is None else f"{run.score:.4f}"
    return score, "score of the result (nats)" if is_final else "score (nats)"


def _distinct(views: Sequence[str]) -> dict[str, str]:
    """Short, printable and distinct names for an axis."""
    names: dict[str, str] = {}
    for index, view in enumerate(views):
        text = printable(view)
        short = text if len(text) <= 28 else f"{text[:27]}…"
        names[view] = short if short not in names.values() else f"{short} #{index + 1}"
    return names


def _short_addresses(workers: Sequence[str]) -> dict[str, str]:
    """Addresses without the protocol, and without the host when it is the same for all."""
    bare = {worker: worker.partition("://")[2] or worker for worker in workers}
    hosts = {address.rpartition(":")[0] for address in bare.values()}
    if len(hosts) != 1:
        return bare
    return {worker: address[len(next(iter(hosts))) :] for worker, address in bare.items()}


def _line_plots() -> tuple[tuple[LinePlot, Callable[[Run], list[Line]]], ...]:
    """Return the plots of lines, each with the function that returns its lines for a run."""
    return (
        (
            LinePlot(
                "Selection of n_clusters",
                "largest p-value of the borders",
                name="counts",
                log=True,
                over="n_clusters",
            ),
            _n_clusters_curves,
        ),
        (
            LinePlot(
                "Connected components (dashed: target)", "components", name="components", number="0"
            ),
            _components,
        ),
        (
            LinePlot("Graph weight \u03bb", "λ", name="weight", log=True, number="0.[000]"),
            lambda run: _of_run("λ", run, lambda record: record.graph_weight),
        ),
        (
            LinePlot("Score (cross-view information)", "nats", name="score"),
            lambda run: _of_run("score", run, lambda record: record.score),
        ),
        (
            LinePlot("Primal residual by view", "‖F - W‖ / √c", name="primal", log=True),
            lambda run: _of_views(run, _each(lambda view: view.primal_residual)),
        ),
        (
            LinePlot("Dual residual by view", "‖ΔF‖ / √c", name="dual", log=True),
            lambda run: _of_views(run, _each(lambda view: view.dual_residual)),
        ),
        (
            LinePlot("Objective by view", "objective", name="objective"),
            lambda run: _of_views(run, _each(lambda view: view.objective)),
        ),
        (
            LinePlot(
                "View contributions",
                "share of the score",
                name="shares",
                number="0%",
                from_zero=True,
            ),
            lambda run: _of_views(run, view_shares),
        ),
        (
            LinePlot("ADMM of each view: time", "seconds", name="seconds", from_zero=True),
            lambda run: _of_tasks(run, lambda seconds, _: seconds),
        ),
        (
            LinePlot(
                "ADMM of each view: data",
                "MiB in and out",
                name="bytes",
                from_zero=True,
            ),
            lambda run: _of_tasks(run, lambda _, n_bytes: n_bytes / 2**20),
        ),
    )


def _n_clusters_curves(run: Run) -> list[Line]:
    """p-values from which n_clusters was selected, their level, and a vertical line at the selected number."""
    counted = run.n_clusters_selection
    if counted is None:
        return []
    level, chosen = Mark(INK, (7, 3), "circle"), Mark(ACCENT, (8, 4), "circle")
    p_values = [max(value, LEAST_P_VALUE) for value in counted.p_values]
    ends, at = [counted.counts[0], counted.counts[-1]], counted.n_clusters
    return [
        Line(f"{at} (selected)", chosen, [at] * 2, [min(p_values), 1.0], dotted=False),
        Line(f"level {RULES.level:g}", level, ends, [RULES.level] * 2, dotted=False),
        Line("p-value", _PLAIN, counted.counts, p_values),
    ]


def _components(run: Run) -> list[Line]:
    """Connected components by iteration, and a horizontal line at n_clusters."""
    (curve,) = _of_run("components", run, lambda record: record.n_connected_components)
    values = [run.announced.n_clusters] * len(curve.iterations)
    target = Line("target", Mark(ACCENT, (8, 4), "circle"), curve.iterations, values, dotted=False)
    return [target, curve]


def _of_run(name: str, run: Run, value: Callable[[IterationFinished], float]) -> list[Line]:
    return [
        Line(
            name,
            _PLAIN,
            [record.iteration + 1 for record in run.outer],
            [value(record) for record in run.outer],
        )
    ]


def _each(
    value: Callable[[ViewIteration], float],
) -> Callable[[IterationFinished], dict[str, float]]:
    return lambda record: {view.view: value(view) for view in record.views}


def _of_views(run: Run, values: Callable[[IterationFinished], dict[str, float]]) -> list[Line]:
    points = [(record.iteration + 1, values(record)) for record in run.outer]
    return [
        Line(
            printable(name),
            mark_of(index),
            [iteration for iteration, by_view in points if name in by_view],
            [by_view[name] for _, by_view in points if name in by_view],
        )
        for index, name in enumerate(run.views)
    ]


def _of_tasks(run: Run, value: Callable[[float, int], float]) -> list[Line]:
    return [
        Line(
            printable(name),
            mark_of(index),
            [task.iteration + 1 for task in tasks],
            [value(task.seconds, task.n_bytes) for task in tasks],
        )
        for index, (name, tasks) in enumerate(run.view_tasks.items())
    ]
