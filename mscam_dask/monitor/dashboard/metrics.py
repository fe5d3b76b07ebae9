"""Prometheus metrics of the runs on a scheduler, computed at each scrape."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from mscam_dask.monitor.dashboard.run_state import Run, Runs
from mscam_dask.monitor.messages import shortened, template
from mscam_dask.types.events import ViewIteration

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


class RunMetrics(Collector):
    """Collector for the runs that are kept of each scheduler in this process; the number of labels is bounded."""

    def __init__(self, sources: list[Runs]) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, including those without a value."""
        none: Counter[str] = Counter()
        text = template("monitor/dashboard/assets/metrics.txt.j2").render(
            label=_escaped,
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


def _escaped(label: str) -> str:
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
