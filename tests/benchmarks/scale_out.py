"""Speed-up of a fit over workers: ``python -m tests.benchmarks.scale_out``.

One worker in this process runs a fit. A client and a scheduler plugin record the CPU seconds, result bytes
and dependencies of each task, and the results for which the driver waits. The recorded tasks are then
scheduled on simulated workers in the order of submission, with a fixed overhead for each task and each wait
and without transfer costs: an upper bound on the speed-up. ``--quick`` takes small data.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import heapq
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from distributed import Client, LocalCluster, get_worker
from distributed.diagnostics.plugin import SchedulerPlugin

from mscam_dask import MSCAM
from tests.benchmarks.measured import subspace_views

__all__ = ["Recording", "Simulation", "Task", "main", "record_fit", "simulate"]

_MIB = 2**20
_N_CLUSTERS = 10
_WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256)

# Seconds that a scheduler needs for a task, and a driver for a result and the tasks that follow.
_OVERHEAD = 0.001
_ROUND_TRIP = 0.003

_seconds: dict[Any, float] = {}


@dataclasses.dataclass(frozen=True)
class Task:
    """One task of a fit."""

    stage: str
    seconds: float  # CPU seconds
    n_bytes: int  # size of the result
    dependencies: tuple[int, ...]  # positions of the tasks whose results it takes
    n_waits: int  # number of waits of the driver before it was submitted


@dataclasses.dataclass(frozen=True)
class Recording:
    """Tasks of a fit in the order of submission, and the tasks for which the driver waited, in turn."""

    tasks: tuple[Task, ...]
    waits: tuple[frozenset[int], ...]

    @property
    def seconds(self) -> float:
        """CPU seconds of all tasks."""
        return sum(task.seconds for task in self.tasks)


@dataclasses.dataclass(frozen=True)
class Simulation:
    """Recorded tasks on simulated workers."""

    seconds: float  # from the first submission to the end of the last task
    # Tasks each of which could run when the one before it had ended, to the last one
    path: tuple[int, ...]


class _Recorder(SchedulerPlugin):
    """Order, sizes and dependencies of the tasks."""

    name = "record-tasks"

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self.waits: list[set[Any]] = []
        self.submitted: dict[Any, int] = {}
        self.dependencies: dict[Any, list[Any]] = {}
        self.n_bytes: dict[Any, int] = {}

    def transition(self, key: Any, start: str, finish: str, *_: Any, **facts: Any) -> None:
        """Record a task that is new, or has ended."""
        if start == "released" and finish != "forgotten" and key not in self.submitted:
            self.submitted[key] = len(self.waits)
            self.dependencies[key] = [
                other.key for other in self._scheduler.tasks[key].dependencies
            ]
        if finish == "memory":
            self.n_bytes[key] = facts.get("nbytes") or 0


class _RecordingClient(Client):
    """Client whose tasks are timed and whose waits are recorded."""

    recorder: _Recorder

    def submit(self, func: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Submit a task that is timed."""
        return super().submit(_timed, func, *args, **options)

    def gather(self, futures: Any, *args: Any, **options: Any) -> Any:
        """Gather results, and record for which ones the driver waits."""
        self.recorder.waits.append({future.key for future in futures})
        gather: Any = super().gather
        return gather(futures, *args, **options)


def _client_of(cluster: Any) -> _RecordingClient:
    client_type: Any = _RecordingClient
    client: _RecordingClient = client_type(cluster)
    return client


def _timed(function: Callable[..., Any], *args: Any) -> Any:
    started = time.thread_time()
    try:
        return function(*args)
    finally:
        _seconds[get_worker().get_current_task()] = time.thread_time() - started


def record_fit(views: Sequence[Any]) -> Recording:
    """Fit some views on one worker, and record the tasks."""
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        _client_of(cluster) as client,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        client.recorder = _Recorder(cluster.scheduler)
        cluster.scheduler.add_plugin(client.recorder)
        model = MSCAM(_N_CLUSTERS, client=client).fit(list(views))
        assert len(model.labels_) == len(views[0])
    return _recording(client.recorder)


def _recording(recorder: _Recorder) -> Recording:
    keys = [key for key in recorder.submitted if key in _seconds]
    position = {key: index for index, key in enumerate(keys)}

    def positions(several: Iterable[Any]) -> list[int]:
        return [position[key] for key in several if key in position]

    tasks = tuple(
        Task(
            stage=str(key[0] if isinstance(key, tuple) else key).partition("-")[0],
            seconds=_seconds.pop(key),
            n_bytes=recorder.n_bytes.get(key, 0),
            dependencies=tuple(positions(recorder.dependencies[key])),
            n_waits=recorder.submitted[key],
        )
        for key in keys
    )
    return Recording(tasks, tuple(frozenset(positions(wait)) for wait in recorder.waits))


def simulate(
    recording: Recording,
    n_workers: int,
    *,
    overhead: float = _OVERHEAD,
    round_trip: float = _ROUND_TRIP,
) -> Simulation:
    """Schedule the recorded tasks on some workers: each free one takes the first task that can run."""
    schedule = _Schedule(recording)
    n_idle, now = n_workers, 0.0
    # ends of tasks, and submissions after a wait: (seconds, task or -1)
    events: list[tuple[float, int]] = [(0.0, -1)]
    while events:
        now, ended = heapq.heappop(events)
        if ended < 0:
            schedule.submit()
        else:
            n_idle += 1
            schedule.end(ended)
        if schedule.goes_on():
            heapq.heappush(events, (now + round_trip, -1))
        while n_idle and schedule.ready:
            index = heapq.heappop(schedule.ready)
            n_idle -= 1
            heapq.heappush(events, (now + recording.tasks[index].seconds + overhead, index))
    return Simulation(now, schedule.path())


class _Schedule:
    """Tasks that can run, have ended, or wait for others or for the driver."""

    def __init__(self, recording: Recording) -> None:
        self._tasks, self._waits = recording.tasks, recording.waits
        self._left = [set(task.dependencies) for task in self._tasks]
        self._followers: list[list[int]] = [[] for _ in self._tasks]
        self._by_waits: dict[int, list[int]] = collections.defaultdict(list)
        for index, task in enumerate(self._tasks):
            self._by_waits[task.n_waits].append(index)
            for other in task.dependencies:
                self._followers[other].append(index)
        self._cause: dict[int, int] = {}
        self._done: set[int] = set()
        self._n_waits, self._is_waiting, self._last = -1, False, -1
        self.ready: list[int] = []

    def submit(self) -> None:
        """Submit the tasks after the next wait."""
        self._n_waits, self._is_waiting = self._n_waits + 1, True
        for index in self._by_waits[self._n_waits]:
            self._offer(index)

    def end(self, ended: int) -> None:
        """End a task."""
        self._done.add(ended)
        self._last = ended
        for index in self._followers[ended]:
            self._left[index].discard(ended)
            if self._tasks[index].n_waits <= self._n_waits:
                self._offer(index)

    def goes_on(self) -> bool:
        """Whether the driver now has all results for which it waited."""
        if not self._is_waiting or self._n_waits == len(self._waits):
            return False
        self._is_waiting = not self._waits[self._n_waits] <= self._done
        return not self._is_waiting

    def path(self) -> tuple[int, ...]:
        """Tasks before the last one, each of which let the next one start."""
        path = [self._last]
        while self._cause[path[-1]] >= 0:
            path.append(self._cause[path[-1]])
        return tuple(reversed(path))

    def _offer(self, index: int) -> None:
        if not self._left[index]:
            self._cause[index] = self._last
            heapq.heappush(self.ready, index)


def print_tables(recording: Recording, workers: Sequence[int]) -> list[float]:
    """Print the speed-up over workers and the seconds of each stage, and return the speed-ups."""
    tasks = recording.tasks
    largest = max(task.n_bytes for task in tasks) / _MIB
    write = sys.stdout.write
    write(
        f"{len(tasks)} tasks of {recording.seconds:.1f} CPU s, {len(recording.waits)} waits, "
        f"largest result {largest:.1f} MiB\n\n"
        "| workers | seconds | speed-up | efficiency |\n|---|---|---|---|\n"
    )
    alone = simulate(recording, 1).seconds
    speed_ups = []
    for n_workers in workers:
        seconds = simulate(recording, n_workers).seconds
        speed_ups.append(alone / seconds)
        write(
            f"| {n_workers} | {seconds:.2f} | {speed_ups[-1]:.1f} | "
            f"{speed_ups[-1] / n_workers:.2f} |\n"
        )
    path = simulate(recording, len(tasks)).path
    of_stage: dict[str, list[int]] = collections.defaultdict(list)
    for index, task in enumerate(tasks):
        of_stage[task.stage].append(index)
    rows = [
        (
            sum(tasks[i].seconds for i in of_this),
            len(of_this),
            max(tasks[i].seconds for i in of_this),
            sum(tasks[i].seconds for i in of_this if i in path),
            stage,
        )
        for stage, of_this in of_stage.items()
    ]
    write("\n| stage | CPU s | tasks | longest | on the longest path |\n|---|---|---|---|---|\n")
    for seconds, count, longest, on_path, stage in sorted(rows, reverse=True):
        write(f"| {stage} | {seconds:.2f} | {count} | {longest:.3f} | {on_path:.3f} |\n")
    return speed_ups


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Record, simulate, print, and return the speed-ups."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=5000)
    parser.add_argument("--dims", type=int, nargs="+", help="one number of columns for each view")
    parser.add_argument("--views", type=int, default=64, help="that many views of 40 columns")
    parser.add_argument("--workers", type=int, nargs="+", default=_WORKERS)
    parser.add_argument("--quick", action="store_true", help="12 views of 10 columns, 300 samples")
    options = parser.parse_args(arguments)
    n_samples = 300 if options.quick else options.samples
    dims = [10] * 12 if options.quick else options.dims or [40] * options.views
    views, _ = subspace_views(n_samples, dims, n_clusters=_N_CLUSTERS)
    return print_tables(record_fit(views), options.workers)


if __name__ == "__main__":
    # tasks of `__main__` would be sent by value, and their seconds kept in a copy of this module
    from tests.benchmarks import scale_out

    scale_out.main()
