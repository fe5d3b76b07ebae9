"""Scheduler plugin: keeps the state of the runs, and serves the page and the metrics."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from distributed import SchedulerPlugin

from mscam_dask.monitor.dashboard.run_state import Run, Runs, ViewTask

if TYPE_CHECKING:
    from bokeh.document import Document
    from distributed import Scheduler

__all__ = [
    "NO_BOKEH",
    "NO_DASHBOARD",
    "PLUGIN",
    "TOPIC",
    "MonitorPlugin",
    "install",
    "page_address",
]

PLUGIN = "mscam"
TOPIC = "mscam"
NO_BOKEH = "bokeh is not installed on the scheduler (pip install 'mscam-dask[dashboard]')"
NO_DASHBOARD = "the scheduler runs without a dashboard"
_PATH = "/mscam"
_SOLVE = "admm_view"


def install(dask_scheduler: Scheduler) -> str | None:
    """Install the plugin on a scheduler, unless it is installed.

    Returns
    -------
    str or None
        Reason why there is no page; None if there is one.
    """
    plugin = dask_scheduler.plugins.get(PLUGIN)
    if not isinstance(plugin, MonitorPlugin):
        plugin = MonitorPlugin(dask_scheduler)
        dask_scheduler.add_plugin(plugin, name=PLUGIN)
    return plugin.problem


def page_address(dashboard_link: str) -> str:
    """Return the address of the page, from that of the dashboard (".../status")."""
    return dashboard_link.rpartition("/")[0] + _PATH


class MonitorPlugin(SchedulerPlugin):
    """Scheduler plugin that keeps the state of the latest runs.

    Parameters
    ----------
    scheduler : distributed.Scheduler

    Attributes
    ----------
    runs : Runs
    problem : str or None
        Reason why there is no page, or None.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.runs = Runs()
        self._page: Any = None
        self.problem = self._serve_page()
        self._unregister = self._register_metrics()

    def log_event(self, topic: str, msg: Any) -> None:
        """Process an event of a driver."""
        if topic == TOPIC:
            self.runs.message(msg, now=time.time())

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """Mark the runs of a disconnected driver as lost."""
        self.runs.client_left(client)

    def transition(
        self, key: Any, start: str, finish: str, *args: Any, stimulus_id: str, **kwargs: Any
    ) -> None:
        """Track the tasks of the runs; other tasks are recognized by their key."""
        if start != "processing" and finish != "processing":
            return
        stage, run, phase, name = self._parse_key(key)
        if run is None:
            return
        if finish == "erred":
            self.runs.task_failed(run, stage)
        view = run.view_of(name)
        if view is None:
            return
        if finish == "processing":
            worker = self._scheduler.tasks[key].processing_on
            if worker is not None:
                run.task_began(key, view, worker.address)
            return
        run.task_left(key)
        if finish == "memory":
            done = self._done(key, kwargs, int(phase) if phase.isdigit() else -1)
            run.task_done(view, done, is_solve=stage == _SOLVE and phase.isdigit())

    def _parse_key(self, key: Any) -> tuple[str, Run | None, str, str]:
        """Stage, run, phase (the number of an iteration) and name in a key of `DaskExecutor`."""
        if type(key) is not tuple or len(key) != 2:
            return "", None, "", ""
        stage, _, rest = str(key[0]).partition("-")
        run_id, _, phase = rest.partition("-")
        return stage, self.runs.by_id.get(run_id), phase, str(key[1])

    def _done(self, key: Any, reported: dict[str, Any], iteration: int) -> ViewTask:
        task = self._scheduler.tasks[key]
        read = sum(dependency.get_nbytes() for dependency in task.dependencies)
        computing = [
            phase["stop"] - phase["start"]
            for phase in reported.get("startstops") or ()
            if phase["action"] == "compute"
        ]
        return ViewTask(
            iteration=iteration,
            worker=str(reported.get("worker", "")),
            seconds=sum(computing),
            n_bytes=read + int(reported.get("nbytes") or 0),
        )

    async def close(self) -> None:
        """Remove the page and the metrics."""
        self._unregister()
        if self._page is not None:
            self._scheduler.http_application.applications.remove(self._page)
            self._page.stop()
            self._page = None

    def _serve_page(self) -> str | None:
        """Add a Bokeh application to the dashboard; return None, or the reason of a failure."""
        if find_spec("bokeh") is None:
            return NO_BOKEH
        applications = self._scheduler.http_application.applications
        prefixes = [app.prefix for app in applications if hasattr(app, "app_paths")]
        if not prefixes:
            return NO_DASHBOARD
        from distributed.dashboard.core import BokehApplication
        from distributed.dashboard.scheduler import template_variables
        from tornado.ioloop import IOLoop

        from mscam_dask.monitor.dashboard.page import serve

        variables = template_variables(self._scheduler)
        if PLUGIN not in variables["pages"]:
            variables["pages"].append(PLUGIN)  # the navigation of every page reads this list

        def document(_: Scheduler, extra: dict[str, Any], doc: Document) -> None:
            serve(self.runs, extra, doc)

        self._page = BokehApplication(
            {_PATH: document}, self._scheduler, prefix=prefixes[0], template_variables=variables
        )
        self._scheduler.http_application.add_application(self._page)
        self._page.initialize(IOLoop.current())
        self._page.start()
        return None

    def _register_metrics(self) -> Callable[[], None]:
        """Add metrics to /metrics of the scheduler, and return a function that removes them."""
        if find_spec("prometheus_client") is None:
            return lambda: None
        from mscam_dask.monitor.dashboard.metrics import attach

        return attach(self.runs)
