"""The document behind one browser window: what is drawn of which run, and when."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any
from weakref import ref

from bokeh.layouts import column
from bokeh.models import Column, InlineStyleSheet
from bokeh.models.widgets import Div, Select

from mscam_dask.monitor.dashboard.curves import curve_plots
from mscam_dask.monitor.dashboard.plots import HeatmapCell, Line, LinePlot, WorkPlot
from mscam_dask.monitor.dashboard.run_state import Run, Runs, Work, shortened
from mscam_dask.monitor.dashboard.style import GRID_CSS, legend_html, page_css
from mscam_dask.monitor.messages import (
    count_sentence,
    duration,
    end_sentence,
    fit_sentence,
    learning_sentence,
    printable,
    setting_sentence,
)
from mscam_dask.types.events import FitFailed, FitFinished

if TYPE_CHECKING:
    from bokeh.document import Document
    from bokeh.plotting import figure

__all__ = ["Page", "serve"]

_EVERY_MS = 1000
_DRAWING_SHARE = 0.003  # of the scheduler's time for one window; sending costs as much again
_LONGEST_REST_S = 10.0
_NEWEST = "newest"

_EMPTY = """<div class="head empty"><h1>No run yet</h1>
<p>Clusterings on this Dask cluster appear here by themselves as soon as they begin:</p>
<p><code>MSCAM(n_clusters=10, client=client).fit(views)</code><br>
<code>mscam-dask run pipeline.toml --scheduler tcp://...</code></p></div>"""

_WORDS = {
    "preparing": "preparing",
    "running": "running",
    "ended": "ended",
    "failed": "failed",
    "lost": "lost",
}


def serve(runs: Runs, extra: dict[str, Any], doc: Document) -> None:
    """Draw the page into a new document and keep it up to date as long as it is open."""
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
        # no TeX: what stands between dollar signs in a name is not a formula
        wide: dict[str, Any] = {"sizing_mode": "stretch_width", "disable_math": True}
        self._head = Div(name="head", stylesheets=[sheet], **wide)
        self._legend = Div(name="legend", stylesheets=[sheet], **wide)
        self._select = Select(title="Run", name="run", width=420, value=self._wanted)
        self._select.on_change("value", self._choose)
        self._plots: tuple[tuple[LinePlot, Callable[[Run], list[Line]]], ...] = curve_plots()
        self._work = WorkPlot("Views on workers", name="work")
        # each in a box of its own: in one box Bokeh would align the frames of all
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
        """Forget the runs: the window is closed."""
        self._runs = Runs()

    def _choose(self, attribute: str, old: str, new: str) -> None:
        self._wanted = new
        self.update()

    @property
    def run(self) -> Run | None:
        """The run that is shown."""
        runs = self._runs.by_id
        if self._wanted in runs:
            return runs[self._wanted]
        return next(reversed(runs.values())) if runs else None

    def update(self) -> None:
        """Show what has changed since the last time; cheap when nothing has."""
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
            self._not_before = 0.0 if other else _rest(time.monotonic() - started) + started

    def _list_runs(self) -> None:
        entries: list[str | tuple[Any, str]] = [(_NEWEST, "the newest run, as they come")]
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
            box.visible = drawn in shown  # axes without a point on them say nothing
        if not shown <= self._sent:  # to send a plot costs a hundred times as much as its points
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


def _rest(seconds: float) -> float:
    """How long a window stays as it is after a drawing that took so long."""
    return min(seconds / _DRAWING_SHARE, _LONGEST_REST_S)


def head_html(run: Run, *, now: float) -> str:
    """Return what is said of a run in words and large numbers; everything in it is escaped."""
    started, selection = run.started, run.selection
    said = [fit_sentence(started)] if started is not None else []
    chosen = [] if run.counted is None else [count_sentence(run.counted)]
    if selection is not None and selection.settings:
        chosen.append(setting_sentence(selection))
    if run.learned is not None:
        chosen.append(learning_sentence(run.learned.scores, run.learned.taken))
    if isinstance(run.end, FitFinished):
        said.append(end_sentence(run.end))
    if run.state == "preparing":
        said.append("preparing views and choosing a setting")
    if run.state == "lost":
        said.append("the program that drove it is gone, how it ended is not known here")
    last = run.outer[-1] if run.outer else None
    most = f" of at most {started.max_iter}" if started is not None else ""
    tiles = [
        (_WORDS[run.state], "state"),
        (f"{last.iteration + 1 if last else 0}{most}", "outer iterations"),
        _components_tile(run),
        (f"{last.graph_weight:.4g}" if last else "-", "graph weight λ"),
        _score_tile(run),
        (duration(run.seconds(now)), "elapsed (h:mm:ss)"),
    ]
    if run.going:
        tiles.append((run.pace.at_most, "to go, at most"))
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
        f"<p>{escape('; '.join(said) or 'just begun')}, run {escape(run.run_id)}</p>"
        f"{''.join(f'<p>{escape(printable(line))}</p>' for line in chosen)}"
        f'<div class="tiles">{boxes}</div>{end}</div>'
    )


def _components_tile(run: Run) -> tuple[str, str]:
    found = "-" if run.n_connected_components is None else run.n_connected_components
    what = "components of the result" if isinstance(run.end, FitFinished) else "components found"
    return f"{found} of {run.announced.n_clusters}", what


def _score_tile(run: Run) -> tuple[str, str]:
    told = isinstance(run.end, FitFinished) and run.end.score is not None
    score = "-" if run.score is None else f"{run.score:.4f}"
    return score, "score of the result (nats)" if told else "score (nats)"


def _distinct(views: Sequence[str]) -> dict[str, str]:
    """Names for an axis: short, printable, and no two alike."""
    names: dict[str, str] = {}
    for index, view in enumerate(views):
        text = printable(view)
        short = text if len(text) <= 28 else f"{text[:27]}…"
        names[view] = short if short not in names.values() else f"{short} #{index + 1}"
    return names


def _short_addresses(workers: Sequence[str]) -> dict[str, str]:
    """Addresses without the protocol, and without the host when all have the same."""
    bare = {worker: worker.partition("://")[2] or worker for worker in workers}
    hosts = {address.rpartition(":")[0] for address in bare.values()}
    if len(hosts) != 1:
        return bare
    return {worker: address[len(next(iter(hosts))) :] for worker, address in bare.items()}
