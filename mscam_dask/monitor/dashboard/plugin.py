"""Dashboard of runs: a scheduler plugin keeps their state, and the driver sends it the events of a fit."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from distributed import SchedulerPlugin
from distributed.comm.core import CommClosedError

from mscam_dask.monitor.dashboard.run_state import SOURCES, Run, Runs, register_metrics
from mscam_dask.monitor.events import Event, RunAnnounced, encode
from mscam_dask.types.events import FitFailed, FitFinished

if TYPE_CHECKING:
    from bokeh.document import Document
    from distributed import Client, Scheduler

PLUGIN = "mscam"
NO_BOKEH = "bokeh is not installed on the scheduler (pip install 'mscam-dask[dashboard]')"
NO_DASHBOARD = "the scheduler runs without a dashboard"
_PATH = "/mscam"


def install(dask_scheduler: Scheduler) -> str | None:
    """Install the plugin on a scheduler, unless it is installed, and return why there is no page, or None."""
    plugin = dask_scheduler.plugins.get(PLUGIN)
    if not isinstance(plugin, MonitorPlugin):
        plugin = MonitorPlugin(dask_scheduler)
        dask_scheduler.add_plugin(plugin, name=PLUGIN)
    return plugin.problem


def page_address(dashboard_link: str) -> str:
    """Return the address of the page, from that of the dashboard (".../status")."""
    return dashboard_link.rpartition("/")[0] + _PATH


class MonitorPlugin(SchedulerPlugin):
    """Scheduler plugin that keeps the state of the latest runs; `problem` is why there is no page, or None."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.runs = Runs()
        self._page: Any = None
        self.problem = self._serve_page()
        if find_spec("prometheus_client") is not None:
            register_metrics()
        SOURCES.append(self.runs)

    def log_event(self, topic: str, msg: Any) -> None:
        if topic == PLUGIN:
            self.runs.message(msg, now=time.time())

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        self.runs.client_left(client)

    def transition(
        self, key: Any, start: str, finish: str, *args: Any, stimulus_id: str, **kwargs: Any
    ) -> None:
        """Track the tasks of the runs; other tasks are recognized by their key."""
        if start != "processing" and finish != "processing":
            return
        stage, run, name = self._parse_key(key)
        if run is None:
            return
        if finish == "erred":
            self.runs.task_failed(run, stage)
        view = run.view_of(name)
        if view is None:
            return
        task = self._scheduler.tasks[key]
        if finish == "processing":
            if task.processing_on is not None:
                run.task_began(key, view, task.processing_on.address)
            return
        run.task_left(key)
        if finish == "memory":
            read = sum(dependency.get_nbytes() for dependency in task.dependencies)
            phases = kwargs.get("startstops") or ()
            seconds = sum(p["stop"] - p["start"] for p in phases if p["action"] == "compute")
            n_bytes = read + int(kwargs.get("nbytes") or 0)
            run.task_done(view, str(kwargs.get("worker", "")), seconds, n_bytes)

    def _parse_key(self, key: Any) -> tuple[str, Run | None, str]:
        """Stage, run and name in a key of `DaskExecutor`."""
        if type(key) is not tuple or len(key) != 2:
            return "", None, ""
        stage, _, rest = str(key[0]).partition("-")
        return stage, self.runs.by_id.get(rest.partition("-")[0]), str(key[1])

    async def close(self) -> None:
        """Remove the page and the metrics."""
        SOURCES.remove(self.runs)
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


_logger = logging.getLogger(__name__)

_TIMEOUT_S = 2.0  # for one event

_problems: weakref.WeakKeyDictionary[Client, str | None] = weakref.WeakKeyDictionary()


def ensure_page(client: Client, *, log: bool = True) -> str | None:
    """Install the page and metrics, and return why there is no page; log that once for each client, without raising."""
    if client in _problems:
        return _problems[client]
    problem: str | None
    try:
        problem = client.run_on_scheduler(install)
    except ImportError as error:
        problem = f"mscam_dask is not installed on the scheduler ({error})"
    except Exception as error:  # noqa: BLE001 - any exception of the scheduler
        problem = f"the scheduler cannot serve the page: {type(error).__name__}: {error}"
    _problems[client] = problem
    if problem is not None and log:
        level = logging.INFO if problem == NO_DASHBOARD else logging.WARNING
        _logger.log(level, "No page 'mscam' on the Dask dashboard: %s", problem)
    return problem


def page_link(client: Client) -> str | None:
    """Install the page if possible; return its address, or that of the Dask dashboard, or None without one."""
    problem = ensure_page(client, log=False)
    served = client.scheduler_info(n_workers=0).get("services", {})
    if problem in (NO_BOKEH, NO_DASHBOARD) or "dashboard" not in served:
        return None
    link = str(client.dashboard_link)
    return page_address(link) if problem is None else link


class ClusterEvents:
    """Observer that sends events to the scheduler, for the dashboard and the metrics.

    Parameters
    ----------
    client : distributed.Client
    name : str, optional
        Name of the runs; by default the numbers of samples and views.

    Notes
    -----
    Estimators with a client create one; add one to their callbacks to name the run. An event that the scheduler
    does not accept within two seconds is dropped, and the number of these is sent.
    """

    def __init__(self, client: Client, *, name: str | None = None) -> None:
        self._client: Any = client
        self._name = name
        self._run_id: str | None = None
        self._n_dropped = 0

    def serves(self, client: object) -> bool:
        return self._client is client

    def new_run(
        self, run_id: str, *, views: Sequence[str], n_samples: int, n_clusters: int
    ) -> None:
        """Announce a fit before its first task; `run_id` is that of its task keys."""
        ensure_page(self._client)
        self._run_id = run_id
        name, numbers = f"{n_samples} samples, {len(views)} views", (n_samples, n_clusters)
        self._send(RunAnnounced(self._name or name, str(self._client.id), tuple(views), *numbers))

    def __deepcopy__(self, memo: object) -> ClusterEvents:
        # clones of an estimator report to the same cluster
        return self

    def __call__(self, event: Event) -> None:
        if self._run_id is None:
            return
        self._send(event)
        if isinstance(event, FitFinished | FitFailed):
            self._run_id = None

    def _send(self, event: Event | RunAnnounced) -> None:
        """Send an event; one that cannot be sent is dropped and counted."""
        payload = encode(event)
        if payload is None:
            return
        message = {"dropped": self._n_dropped, "events": [{**payload, "run": self._run_id}]}
        try:
            send = self._client.scheduler.log_event
            self._client.sync(send, topic=PLUGIN, msg=message, callback_timeout=_TIMEOUT_S)
            self._n_dropped = 0
        except (OSError, CommClosedError, TimeoutError, AttributeError, RuntimeError) as error:
            # a closed client has no scheduler and no running loop
            _logger.debug("an event was not sent: %s", error)
            self._n_dropped += 1
