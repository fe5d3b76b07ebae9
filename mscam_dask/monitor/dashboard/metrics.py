"""The runs on a scheduler as Prometheus metrics, read when Prometheus asks."""

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

__all__ = ["RunMetrics", "attach"]

_RUN = ["run", "name"]
_VIEW = ["run", "name", "view"]
_STATES = ("preparing", "running", "ended", "failed", "lost")

_OF_RUN: tuple[tuple[str, str, Callable[[Run], float | None]], ...] = (
    (
        "connected_components",
        "Connected components of the consensus graph, at the end of the one returned",
        lambda run: run.n_connected_components,
    ),
    (
        "score",
        "Cross-view information of the clusters in nats, at the end of those returned",
        lambda run: run.score,
    ),
    (
        "graph_weight",
        "Weight of the graph (lambda) in the latest outer iteration",
        lambda run: run.outer[-1].graph_weight if run.outer else None,
    ),
    (
        "iteration_seconds",
        "Seconds of the latest outer iteration",
        lambda run: run.outer[-1].seconds if run.outer else None,
    ),
)

_OF_VIEW: tuple[tuple[str, str, Callable[[ViewIteration], float]], ...] = (
    ("primal_residual", "Primal residual of the sub-solve", lambda view: view.primal_residual),
    ("dual_residual", "Dual residual of the sub-solve", lambda view: view.dual_residual),
    ("objective", "The view's terms of the objective", lambda view: view.objective),
    (
        "inner_iterations",
        "Inner iterations of the latest sub-solve",
        lambda view: view.inner_iterations,
    ),
)


class RunMetrics(Collector):
    """Metrics of the runs that are still kept; the labels are bounded as they are.

    Parameters
    ----------
    sources : list of Runs
        One for each scheduler of this process, of which there is one outside of tests.
    """

    def __init__(self, sources: list[Runs]) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, those without a value yet included."""
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
            ("runs_started", "Runs ever announced", sum(s.n_announced for s in totals)),
            ("events_dropped", "Events not sent in time", sum(s.n_dropped for s in totals)),
            ("events_refused", "Messages not understood", sum(s.n_refused for s in totals)),
        ):
            yield CounterMetricFamily(f"mscam_{name}", text, value=total)
        failures: Counter[str] = sum((source.failures for source in totals), Counter())
        tasks: Counter[str] = sum((source.task_failures for source in totals), Counter())
        yield _counted("run_failures", "Runs that failed, by error", "error", failures)
        yield _counted("task_failures", "Tasks that failed, by stage", "stage", tasks)


_sources: list[Runs] = []
_collector = RunMetrics(_sources)


def attach(runs: Runs) -> Callable[[], None]:
    """Show `runs` in this process's metrics; returns what takes them away again."""
    if not _sources:
        REGISTRY.register(_collector)
    _sources.append(runs)

    def detach() -> None:
        _sources.remove(runs)
        if not _sources:
            REGISTRY.unregister(_collector)

    return detach


def _counted(name: str, text: str, label: str, counter: Counter[str]) -> Metric:
    """One series for each kind, and "any" for all, which is there from the start."""
    family = CounterMetricFamily(f"mscam_{name}", text, labels=[label])
    family.add_metric(["any"], counter.total())
    for kind, total in counter.items():
        family.add_metric([kind], total)
    return family


def _run_metrics(runs: list[Run]) -> Iterator[Metric]:
    now = time.time()
    iterations = CounterMetricFamily("mscam_outer_iterations", "Outer iterations", labels=_RUN)
    seconds = GaugeMetricFamily("mscam_run_seconds", "Seconds since the run began", labels=_RUN)
    asked = GaugeMetricFamily("mscam_clusters", "Clusters asked for", labels=_RUN)
    left = GaugeMetricFamily(
        "mscam_remaining_seconds", "Seconds left if every iteration is needed", labels=_RUN
    )
    failed = CounterMetricFamily(
        "mscam_run_task_failures", "Tasks of the run that failed", labels=_RUN
    )
    families = [
        (GaugeMetricFamily(f"mscam_{name}", text, labels=_RUN), value)
        for name, text, value in _OF_RUN
    ]
    for run in runs:
        labels = [run.run_id, run.name]
        iterations.add_metric(labels, run.pace.n_done)
        seconds.add_metric(labels, run.seconds(now))
        asked.add_metric(labels, run.announced.n_clusters)
        failed.add_metric(labels, run.n_failed_tasks)
        remaining = run.pace.eta_s
        if remaining is not None:
            left.add_metric(labels, remaining if run.going else 0.0)
        for family, value in families:
            number = value(run)
            if number is not None:
                family.add_metric(labels, number)
    yield from (iterations, seconds, asked, left, failed, *(family for family, _ in families))


def _view_metrics(runs: list[Run]) -> Iterator[Metric]:
    families = [
        (GaugeMetricFamily(f"mscam_{name}", text, labels=_VIEW), value)
        for name, text, value in _OF_VIEW
    ]
    share = GaugeMetricFamily("mscam_view_share", "Share of the view in the score", labels=_VIEW)
    seconds = CounterMetricFamily(
        "mscam_view_task_seconds", "Seconds that workers computed for the view", labels=_VIEW
    )
    n_bytes = CounterMetricFamily(
        "mscam_view_task_bytes", "Bytes that the view's tasks read and returned", labels=_VIEW
    )
    busy = GaugeMetricFamily("mscam_view_tasks_running", "Tasks now with workers", labels=_VIEW)
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
    """Names cut short stay different from each other by the view's number."""
    short = shortened(view)
    return [run.run_id, run.name, view if short == view else f"{short}#{index}"]
