"""Prometheus metrics of the runs on a scheduler, computed at each scrape."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from mscam_dask.monitor.dashboard.run_state import Run, Runs, shortened
from mscam_dask.types.events import ViewIteration

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_RUN = ["run", "name"]
_VIEW = ["run", "name", "view"]
_STATES = ("preparing", "running", "ended", "failed", "lost")

_RUN_METRICS: tuple[tuple[str, str, Callable[[Run], float | None]], ...] = (
    (
        "connected_components",
        "Connected components of the consensus graph (of the returned graph at the end)",
        lambda run: run.n_connected_components,
    ),
    (
        "score",
        "Cross-view information of the partition in nats (of the result at the end)",
        lambda run: run.score,
    ),
    (
        "graph_weight",
        "Graph weight (lambda) in the latest outer iteration",
        lambda run: run.outer[-1].graph_weight if run.outer else None,
    ),
    (
        "iteration_seconds",
        "Seconds of the latest outer iteration",
        lambda run: run.outer[-1].seconds if run.outer else None,
    ),
)

_VIEW_METRICS: tuple[tuple[str, str, Callable[[ViewIteration], float]], ...] = (
    (
        "primal_residual",
        "Primal residual of the ADMM of the view",
        lambda view: view.primal_residual,
    ),
    ("dual_residual", "Dual residual of the ADMM of the view", lambda view: view.dual_residual),
    ("objective", "Terms of the view in the objective", lambda view: view.objective),
    (
        "inner_iterations",
        "Inner iterations of the latest ADMM of the view",
        lambda view: view.inner_iterations,
    ),
)


class RunMetrics(Collector):
    """Collector for the runs that are kept of each scheduler in this process; the number of labels is bounded."""

    def __init__(self, sources: list[Runs]) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, including those without a value."""
        runs = [run for source in self._sources for run in source.by_id.values()]
        yield from self._totals(runs)
        yield from _run_metrics(runs)
        yield from _view_metrics(runs)

    def _totals(self, runs: list[Run]) -> Iterator[Metric]:
        states = GaugeMetricFamily("mscam_runs", "Runs by state", labels=["state"])
        for state in _STATES:
            states.add_metric([state], sum(run.state == state for run in runs))
        yield states
        totals = self._sources
        for name, text, total in (
            ("runs_started", "Runs that were announced", sum(s.n_announced for s in totals)),
            ("events_dropped", "Events that were dropped", sum(s.n_dropped for s in totals)),
            (
                "events_refused",
                "Messages that were not understood",
                sum(s.n_refused for s in totals),
            ),
        ):
            yield CounterMetricFamily(f"mscam_{name}", text, value=total)
        failures: Counter[str] = sum((source.failures for source in totals), Counter())
        tasks: Counter[str] = sum((source.task_failures for source in totals), Counter())
        yield _counted("run_failures", "Runs that failed, by error", "error", failures)
        yield _counted("task_failures", "Tasks that failed, by stage", "stage", tasks)


_sources: list[Runs] = []
_collector = RunMetrics(_sources)


def attach(runs: Runs) -> Callable[[], None]:
    """Add `runs` to the metrics of this process, and return a function that removes them."""
    if not _sources:
        REGISTRY.register(_collector)
    _sources.append(runs)

    def detach() -> None:
        _sources.remove(runs)
        if not _sources:
            REGISTRY.unregister(_collector)

    return detach


def _counted(name: str, text: str, label: str, counter: Counter[str]) -> Metric:
    """Counter with one series for each kind, and "any" for their sum."""
    family = CounterMetricFamily(f"mscam_{name}", text, labels=[label])
    family.add_metric(["any"], counter.total())
    for kind, total in counter.items():
        family.add_metric([kind], total)
    return family


def _run_metrics(runs: list[Run]) -> Iterator[Metric]:
    now = time.time()
    iterations = CounterMetricFamily("mscam_outer_iterations", "Outer iterations", labels=_RUN)
    seconds = GaugeMetricFamily(
        "mscam_run_seconds", "Seconds since the start of the run", labels=_RUN
    )
    requested = GaugeMetricFamily("mscam_clusters", "Requested number of clusters", labels=_RUN)
    left = GaugeMetricFamily(
        "mscam_remaining_seconds", "Upper bound of the seconds left", labels=_RUN
    )
    failed = CounterMetricFamily(
        "mscam_run_task_failures", "Tasks of the run that failed", labels=_RUN
    )
    families = [
        (GaugeMetricFamily(f"mscam_{name}", text, labels=_RUN), value)
        for name, text, value in _RUN_METRICS
    ]
    for run in runs:
        labels = [run.run_id, run.name]
        iterations.add_metric(labels, run.pace.n_done)
        seconds.add_metric(labels, run.seconds(now))
        requested.add_metric(labels, run.announced.n_clusters)
        failed.add_metric(labels, run.n_failed_tasks)
        remaining = run.pace.eta_s
        if remaining is not None:
            left.add_metric(labels, remaining if run.going else 0.0)
        for family, value in families:
            number = value(run)
            if number is not None:
                family.add_metric(labels, number)
    yield from (iterations, seconds, requested, left, failed, *(family for family, _ in families))


def _view_metrics(runs: list[Run]) -> Iterator[Metric]:
    families = [
        (GaugeMetricFamily(f"mscam_{name}", text, labels=_VIEW), value)
        for name, text, value in _VIEW_METRICS
    ]
    share = GaugeMetricFamily(
        "mscam_view_share", "Contribution of the view to the score", labels=_VIEW
    )
    seconds = CounterMetricFamily(
        "mscam_view_task_seconds", "Seconds of computing for the view", labels=_VIEW
    )
    n_bytes = CounterMetricFamily(
        "mscam_view_task_bytes", "Bytes read and returned by the tasks of the view", labels=_VIEW
    )
    busy = GaugeMetricFamily("mscam_view_tasks_running", "Tasks that are running", labels=_VIEW)
    for run in runs:
        labels = {view: _labels(run, index, view) for index, view in enumerate(run.views)}
        for view, label in labels.items():
            work = [work for (_, name), work in run.work.items() if name == view]
            seconds.add_metric(label, sum(part.seconds for part in work))
            n_bytes.add_metric(label, sum(part.n_bytes for part in work))
            busy.add_metric(label, sum(name == view for _, name in run.busy.values()))
        for view, part in run.shares.items():
            if view in labels:
                share.add_metric(labels[view], part)
        if run.outer:
            for record in run.outer[-1].views:
                if record.view in labels:
                    for family, value in families:
                        family.add_metric(labels[record.view], value(record))
    yield from (share, seconds, n_bytes, busy, *(family for family, _ in families))


def _labels(run: Run, index: int, view: str) -> list[str]:
    """Label values of a view; truncated names are made distinct by the position of the view."""
    short = shortened(view)
    return [run.run_id, run.name, view if short == view else f"{short}#{index}"]
