"""What a scheduler knows of the runs on its cluster: bounded, and read by page and metrics.

Nothing here knows Dask, Bokeh or Prometheus: messages and finished tasks come in, numbers are
there to be read. Whatever is sent, the memory held stays within the limits below.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any, Literal

from mscam_dask.monitor.dashboard.codec import RunAnnounced, decode
from mscam_dask.monitor.events import Event
from mscam_dask.monitor.messages import ProgressTracker
from mscam_dask.types.events import (
    FitFailed,
    FitFinished,
    FitStarted,
    IterationFinished,
    NClustersSelected,
    RefinementFinished,
    SettingsSelected,
)
from mscam_dask.types.shares import shares_of_views

__all__ = ["Run", "Runs", "ViewTask", "Work", "view_shares"]

MAX_RUNS = 16
MAX_ITERATIONS = 400
MAX_VIEWS = 64
MAX_WORKERS = 64
MAX_KINDS = 32  # of errors and stages that are counted apart
MAX_NAME = 120

State = Literal["preparing", "running", "ended", "failed", "lost"]


@dataclasses.dataclass(frozen=True, slots=True)
class ViewTask:
    """Sub-solves of one view in one outer iteration, as the scheduler saw them.

    Attributes
    ----------
    iteration : int
        From 0.
    worker : str
        Of the last one.
    seconds : float
        Computing, summed when the solve was repeated with another graph weight.
    n_bytes : int
        Of what the task read and returned.
    """

    iteration: int
    worker: str
    seconds: float
    n_bytes: int


@dataclasses.dataclass(slots=True)
class Work:
    """What one worker did for one view."""

    n_tasks: int = 0
    seconds: float = 0.0
    n_bytes: int = 0


class Run:
    """One fit.

    Attributes
    ----------
    run_id : str
        Also part of the keys of its tasks.
    announced : RunAnnounced
    arrived : float
        When the announcement came, seconds of the scheduler's clock.
    outer : deque of IterationFinished
        The latest `MAX_ITERATIONS`.
    work : dict
        (worker, view) to `Work`, over the whole run.
    busy : dict
        Task key to (worker, view), of what is with a worker now.
    version, work_version : int
        Grow with every event, and with every task given or done, so that a viewer redraws what
        has changed only: tasks come by the hundred, events once an iteration.
    """

    def __init__(self, run_id: str, announced: RunAnnounced, arrived: float) -> None:
        self.run_id = run_id
        self.announced = announced
        self.arrived = arrived
        self.started: FitStarted | None = None
        self.counted: NClustersSelected | None = None
        self.selection: SettingsSelected | None = None
        self.learned: RefinementFinished | None = None
        self.outer: deque[IterationFinished] = deque(maxlen=MAX_ITERATIONS)
        self.end: FitFinished | FitFailed | None = None
        self.lost = False
        self.pace = ProgressTracker()
        self.view_tasks: dict[str, deque[ViewTask]] = {
            view: deque(maxlen=MAX_ITERATIONS) for view in announced.views[:MAX_VIEWS]
        }
        self.work: dict[tuple[str, str], Work] = {}
        self.busy: dict[Any, tuple[str, str]] = {}
        self.n_failed_tasks = 0
        self.version = 0
        self.work_version = 0
        self._workers: set[str] = set()

    @property
    def name(self) -> str:
        """Its name, cut to what can be shown."""
        return shortened(self.announced.name) or "unnamed"

    @property
    def views(self) -> tuple[str, ...]:
        """Views that are shown; the rest of more than `MAX_VIEWS` is not."""
        return tuple(self.view_tasks)

    @property
    def state(self) -> State:
        """Where the run is."""
        if isinstance(self.end, FitFailed):
            return "failed"
        if self.end is not None:
            return "ended"
        if self.lost:
            return "lost"
        return "running" if self.outer else "preparing"

    @property
    def going(self) -> bool:
        """Whether more is to be expected."""
        return self.state in ("preparing", "running")

    @property
    def n_connected_components(self) -> int | None:
        """Of the result, before that of the latest outer iteration."""
        if isinstance(self.end, FitFinished):
            return self.end.n_connected_components
        return self.outer[-1].n_connected_components if self.outer else None

    @property
    def score(self) -> float | None:
        """Of the result, in nats; before that of the latest outer iteration."""
        if isinstance(self.end, FitFinished) and self.end.score is not None:
            return self.end.score
        return self.outer[-1].score if self.outer else None

    @property
    def shares(self) -> dict[str, float]:
        """Each view's share in that score; empty before there is one."""
        if isinstance(self.end, FitFinished) and self.end.view_contributions:
            return self.end.view_contributions
        return view_shares(self.outer[-1]) if self.outer else {}

    def seconds(self, now: float) -> float:
        """Seconds from the announcement to the end, or to now."""
        return self.end.seconds if self.end is not None else max(0.0, now - self.arrived)

    def add(self, event: Event) -> None:
        """Take in an event of the fit."""
        self.version += 1
        self.pace.add(event)
        match event:
            case FitStarted():
                self.started = event
                self.announced = dataclasses.replace(self.announced, n_clusters=event.n_clusters)
                self.outer.clear()  # after a restart the earlier ones come once more
            case NClustersSelected():
                self.counted = event
            case SettingsSelected():
                self.selection = event
            case IterationFinished():
                self.outer.append(event)
            case RefinementFinished():
                self.learned = event
            case FitFinished() | FitFailed():
                self.end = event
                self.busy.clear()
                self.work_version += 1

    def view_of(self, name: str) -> str | None:
        """Return the view that the last parts of a task's name are, None when it is of none."""
        while name not in self.view_tasks:
            _, slash, name = name.partition("/")
            if not slash:
                return None
        return name

    def task_began(self, key: Any, view: str, worker: str) -> None:
        """A task was given to a worker."""
        if self._known(worker) and len(self.busy) < MAX_VIEWS * MAX_WORKERS:
            self.busy[key] = (worker, view)
            self.work_version += 1

    def task_left(self, key: Any) -> None:
        """A task is not with its worker any more: done, failed, or the worker is gone."""
        if self.busy.pop(key, None) is not None:
            self.work_version += 1

    def task_done(self, view: str, done: ViewTask, *, is_solve: bool) -> None:
        """A task of a view is done; the sub-solves are kept by outer iteration."""
        self.work_version += 1
        if self._known(done.worker):
            work = self.work.setdefault((done.worker, view), Work())
            work.n_tasks += 1
            work.seconds += done.seconds
            work.n_bytes += done.n_bytes
        if not is_solve:
            return
        kept = self.view_tasks[view]
        if kept and kept[-1].iteration == done.iteration:
            before = kept.pop()
            done = dataclasses.replace(
                done,
                seconds=before.seconds + done.seconds,
                n_bytes=max(before.n_bytes, done.n_bytes),
            )
        kept.append(done)

    def _known(self, worker: str) -> bool:
        if worker not in self._workers and len(self._workers) < MAX_WORKERS:
            self._workers.add(worker)
        return worker in self._workers


class Runs:
    """The latest runs on a cluster, oldest first, and what is counted over all of them.

    Parameters
    ----------
    max_runs : int
        Runs kept.

    Attributes
    ----------
    by_id : dict
        Run id to `Run`; at most `max_runs`, ended ones leave first.
    n_announced : int
        Ever.
    failures, task_failures : Counter
        Fits by the name of their error, tasks by their stage.
    n_refused : int
        Messages that are none of ours.
    n_dropped : int
        Messages that drivers could not send in time.
    version : int
        Grows when a run comes, goes or changes its state.
    """

    def __init__(self, *, max_runs: int = MAX_RUNS) -> None:
        self._max_runs = max_runs
        self.by_id: dict[str, Run] = {}
        self.n_announced = 0
        self.failures: Counter[str] = Counter()
        self.task_failures: Counter[str] = Counter()
        self.n_refused = 0
        self.n_dropped = 0
        self.version = 0

    def message(self, message: object, *, now: float) -> None:
        """Take in what a driver sent: {"dropped": count, "events": [{"run": id, ...}, ...]}."""
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
            count(self.failures, event.error)
        if run.state != before:
            self.version += 1

    def client_left(self, client: str) -> None:
        """A driver is gone: its runs will not say themselves how they ended."""
        for run in self.by_id.values():
            if run.announced.client == client and run.going:
                run.lost = True
                run.busy.clear()
                run.version += 1
                run.work_version += 1
                self.version += 1
                count(self.failures, "DriverLost")

    def task_failed(self, run: Run, stage: str) -> None:
        """A task of a run ended with an error or took its workers with it."""
        run.n_failed_tasks += 1
        run.version += 1
        count(self.task_failures, stage)


def count(counter: Counter[str], kind: str) -> None:
    """Add one; kinds beyond `MAX_KINDS` share one count."""
    known = kind in counter or len(counter) < MAX_KINDS
    counter[shortened(kind) if known else "other"] += 1


def shortened(text: str) -> str:
    """Cut a name to `MAX_NAME` characters."""
    return text if len(text) <= MAX_NAME else text[: MAX_NAME - 1] + "…"


def view_shares(record: IterationFinished) -> dict[str, float]:
    """Return each view's share in the score of an outer iteration; the shares sum to one."""
    return shares_of_views([view.view for view in record.views], record.view_scores)
