"""State of the runs on a cluster, within bounds whatever is sent, for the page, and as Prometheus metrics."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from mscam_dask.monitor.events import Event, FitState, RunAnnounced, decode
from mscam_dask.monitor.messages import shortened, template
from mscam_dask.types.events import (
    FitFailed,
    FitFinished,
    FitStarted,
    IterationFinished,
    ViewIteration,
)
from mscam_dask.types.result import shares_of_views

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

MAX_RUNS = 16
MAX_VIEWS = 64
MAX_WORKERS = 64

State = Literal["preparing", "running", "ended", "failed", "lost"]


class Run(FitState):
    """State of one fit, and the work of its tasks; two versions count events and changes of tasks."""

    def __init__(self, run_id: str, announced: RunAnnounced, arrived: float) -> None:
        super().__init__()
        self.run_id = run_id
        self.announced = announced
        self.arrived = arrived
        self.lost = False
        self.views = announced.views[:MAX_VIEWS]
        # tasks, seconds of computing, and bytes read and returned, by worker and view
        self.work: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self.busy: dict[Any, tuple[str, str]] = {}  # worker and view of the running tasks, by key
        self.n_failed_tasks = 0
        self.version = 0
        self.work_version = 0
        self._workers: set[str] = set()

    @property
    def name(self) -> str:
        """Display name, truncated."""
        return shortened(self.announced.name) or "unnamed"

    @property
    def state(self) -> State:
        if isinstance(self.end, FitFailed):
            return "failed"
        if self.end is not None:
            return "ended"
        if self.lost:
            return "lost"
        return "running" if self.iterations else "preparing"

    @property
    def going(self) -> bool:
        return self.state in ("preparing", "running")

    @property
    def latest(self) -> FitFinished | IterationFinished | None:
        """The result, or else the latest iteration: both have components and a score."""
        if isinstance(self.end, FitFinished):
            return self.end
        return self.iterations[-1] if self.iterations else None

    @property
    def shares(self) -> dict[str, float]:
        """Contribution of each view to that score; empty without one."""
        if isinstance(self.latest, IterationFinished):
            return view_shares(self.latest)
        return {} if self.latest is None else self.latest.view_contributions

    def seconds(self, now: float) -> float:
        """Seconds from the announcement to the end, or to now."""
        return self.end.seconds if self.end is not None else max(0.0, now - self.arrived)

    def add(self, event: Event) -> None:
        super().add(event)
        self.version += 1
        if isinstance(event, FitStarted):
            self.announced = dataclasses.replace(self.announced, n_clusters=event.n_clusters)
        elif self.end is not None:
            self.busy.clear()
            self.work_version += 1

    def view_of(self, name: str) -> str | None:
        """Return the view that a task name ends with, or None."""
        while name not in self.views:
            _, slash, name = name.partition("/")
            if not slash:
                return None
        return name

    def task_began(self, key: Any, view: str, worker: str) -> None:
        if self._known(worker):
            self.busy[key] = (worker, view)
            self.work_version += 1

    def task_left(self, key: Any) -> None:
        if self.busy.pop(key, None) is not None:
            self.work_version += 1

    def task_done(self, view: str, worker: str, seconds: float, n_bytes: int) -> None:
        """Record a finished task of a view."""
        self.work_version += 1
        if self._known(worker):
            done: dict[str, Any] = {"tasks": 1, "seconds": seconds, "bytes": n_bytes}
            self.work[worker, view].update(done)

    def _known(self, worker: str) -> bool:
        if worker not in self._workers and len(self._workers) < MAX_WORKERS:
            self._workers.add(worker)
        return worker in self._workers


class Runs:
    """The latest runs on a cluster, oldest first, and what is counted over all of them."""

    def __init__(self, *, max_runs: int = MAX_RUNS) -> None:
        self._max_runs = max_runs
        self.by_id: dict[str, Run] = {}  # at most max_runs; ended ones leave first
        self.n_announced = 0  # ever
        self.failures: Counter[str] = Counter()  # fits by the name of their error
        self.task_failures: Counter[str] = Counter()  # tasks by their stage
        self.n_refused = 0  # messages that are none of ours
        self.n_dropped = 0  # messages that drivers could not send in time
        self.version = 0  # grows when a run comes, goes or changes its state

    def message(self, message: object, *, now: float) -> None:
        """Process a message of a driver: {"dropped": count, "events": [{"run": id, ...}, ...]}."""
        if not isinstance(message, Mapping) or not isinstance(message.get("events"), list | tuple):
            self.n_refused += 1
            return
        dropped = message.get("dropped", 0)
        self.n_dropped += dropped if isinstance(dropped, int) and dropped > 0 else 0
        for payload in message["events"]:
            run_id, event = decode(payload)
            if event is None:
                self.n_refused += 1
            elif isinstance(event, RunAnnounced):
                self._announce(run_id, event, now)
            elif (run := self.by_id.get(run_id)) is not None:
                self._add(run, event)

    def _announce(self, run_id: str, announced: RunAnnounced, now: float) -> None:
        while len(self.by_id) >= self._max_runs:
            oldest = next((run for run in self.by_id.values() if not run.going), None)
            del self.by_id[oldest.run_id if oldest else next(iter(self.by_id))]
        self.by_id[run_id] = Run(run_id, announced, now)
        self.n_announced += 1
        self.version += 1

    def _add(self, run: Run, event: Event) -> None:
        before = run.state
        run.add(event)
        if isinstance(event, FitFailed):
            self.failures[event.error] += 1
        if run.state != before:
            self.version += 1

    def client_left(self, client: str) -> None:
        """Mark the runs of a disconnected driver as lost."""
        for run in self.by_id.values():
            if run.announced.client == client and run.going:
                run.lost = True
                run.busy.clear()
                run.version += 1
                run.work_version += 1
                self.version += 1
                self.failures["DriverLost"] += 1

    def task_failed(self, run: Run, stage: str) -> None:
        """Count a task that failed or killed its workers."""
        run.n_failed_tasks += 1
        run.version += 1
        self.task_failures[stage] += 1


def view_shares(record: IterationFinished) -> dict[str, float]:
    """Return the contribution of each view in an iteration; they sum to one."""
    return shares_of_views([view.view for view in record.views], record.view_scores)


# metrics -----------------------------------------------------------------------------------------


class RunMetrics:
    """Prometheus collector for the runs that are kept of each scheduler in this process; the number of labels is bounded."""

    def __init__(self, sources: list[Runs]) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, including those without a value, computed at each scrape."""
        from prometheus_client.parser import text_string_to_metric_families

        none: Counter[str] = Counter()
        text = template("monitor/dashboard/assets/metrics.txt.j2").render(
            label=escaped,
            cut=_cut,
            latest=_latest,
            work=_work,
            sources=self._sources,
            runs=[run for source in self._sources for run in source.by_id.values()],
            failures=sum((source.failures for source in self._sources), none),
            task_failures=sum((source.task_failures for source in self._sources), none),
            now=time.time(),
        )
        yield from text_string_to_metric_families(text)


SOURCES: list[Runs] = []
"""Runs of the schedulers in this process, which its metrics show."""


@functools.cache
def register_metrics() -> None:
    """Add the metrics of `SOURCES` to those of this process, once."""
    from prometheus_client import REGISTRY

    REGISTRY.register(RunMetrics(SOURCES))


def escaped(label: str) -> str:
    """Return the label of a metric with backslash, quote and line break escaped, as Prometheus reads it."""
    for char, code in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n")):
        label = label.replace(char, code)
    return label


def _cut(run: Run, view: str) -> str:
    """Label of a view; truncated names are made distinct by the position of the view."""
    short = shortened(view)
    return view if short == view else f"{short}#{run.views.index(view)}"


def _latest(run: Run, view: str) -> ViewIteration | dict[str, Any]:
    """Record of a view in the latest outer iteration; empty without one."""
    records = run.iterations[-1].views if run.iterations else ()
    return next((record for record in records if record.view == view), {})


def _work(run: Run, view: str) -> Counter[str]:
    """Work of all workers for a view."""
    own = (work for (_, name), work in run.work.items() if name == view)
    return sum(own, Counter())
