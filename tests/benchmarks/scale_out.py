"""Speed-up of a fit over workers: ``python -m tests.benchmarks.scale_out``.

A fit in this process records the CPU seconds, result bytes and dependencies of each task, and the results
for which the driver waits. The recorded tasks are then scheduled on simulated workers in the order of submission, with a fixed overhead for each task and each wait
and without transfer costs: an upper bound on the speed-up.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import heapq
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any
from unittest.mock import patch

from dask.sizeof import sizeof

from mscam_dask import MSCAM
from mscam_dask.engine.executors.base import SerialExecutor
from tests.benchmarks.measured import subspace_views
from tests.benchmarks.tables import write_head, write_row

_N_CLUSTERS = 10
_WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256)

# Seconds that a scheduler needs for a task, and a driver for a result and the tasks that follow.
_OVERHEAD = 0.001
_ROUND_TRIP = 0.003


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


def record_fit(views: Sequence[Any]) -> Recording:
    """Fit some views in this process, one task at a time, and record the tasks."""
    tasks: list[Task] = []
    waits: list[frozenset[int]] = []
    run, collect = SerialExecutor.submit, SerialExecutor.gather

    def submit(
        executor: SerialExecutor, function: Callable[..., Any], /, *args: Any, key: str
    ) -> Any:
        started = time.thread_time()
        handle = run(executor, function, *args, key=key)
        seconds = time.thread_time() - started
        size, needed = sizeof(handle.result()), tuple(sorted(set(_positions(args))))
        tasks.append(Task(key.partition("/")[0], seconds, size, needed, len(waits)))
        handle.position = len(tasks) - 1
        return handle

    def gather(executor: SerialExecutor, handles: Sequence[Any]) -> list[Any]:
        waits.append(frozenset(_positions(handles)))
        return collect(executor, handles)

    with patch.multiple(SerialExecutor, submit=submit, gather=gather), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        MSCAM(_N_CLUSTERS, n_jobs=1).fit(list(views))
    return Recording(tuple(tasks), tuple(waits))


def _positions(several: Iterable[Any]) -> Iterator[int]:
    """Positions of the tasks among arguments, alone and in lists."""
    for one in several:
        if isinstance(one, Future):
            yield one.position  # type: ignore[attr-defined]
        elif isinstance(one, list):
            yield from _positions(one)


def simulate(recording: Recording, n_workers: int) -> float:
    """Seconds until the recorded tasks have ended on some workers: each free one takes the first task that can run."""
    tasks, waits = recording.tasks, recording.waits
    left = [set(task.dependencies) for task in tasks]
    followers: dict[int, list[int]] = collections.defaultdict(list)
    after_wait: dict[int, list[int]] = collections.defaultdict(list)
    for index, task in enumerate(tasks):
        after_wait[task.n_waits].append(index)
        for other in task.dependencies:
            followers[other].append(index)
    done: set[int] = set()
    ready: list[int] = []
    n_idle, n_waits, is_waiting, now = n_workers, -1, False, 0.0
    # ends of tasks, and submissions after a wait: (seconds, task or -1)
    events: list[tuple[float, int]] = [(0.0, -1)]
    while events:
        now, ended = heapq.heappop(events)
        if ended < 0:
            n_waits, is_waiting = n_waits + 1, True
            offered = after_wait[n_waits]
        else:
            n_idle += 1
            done.add(ended)
            for index in followers[ended]:
                left[index].discard(ended)
            offered = [index for index in followers[ended] if tasks[index].n_waits <= n_waits]
        for index in offered:
            if not left[index]:
                heapq.heappush(ready, index)
        if is_waiting and n_waits < len(waits) and waits[n_waits] <= done:
            is_waiting = False
            heapq.heappush(events, (now + _ROUND_TRIP, -1))
        while n_idle and ready:
            index = heapq.heappop(ready)
            n_idle -= 1
            heapq.heappush(events, (now + tasks[index].seconds + _OVERHEAD, index))
    return now


def print_tables(recording: Recording, workers: Sequence[int]) -> None:
    """Print the speed-up over workers and the seconds of each stage."""
    tasks = recording.tasks
    largest = max(task.n_bytes for task in tasks) / 2**20
    sys.stdout.write(
        f"{len(tasks)} tasks of {sum(task.seconds for task in tasks):.1f} CPU s, "
        f"{len(recording.waits)} waits, largest result {largest:.1f} MiB\n\n"
    )
    write_head("workers", "seconds", "speed-up", "efficiency")
    alone = simulate(recording, 1)
    for n_workers in workers:
        seconds = simulate(recording, n_workers)
        write_row(n_workers, seconds, alone / seconds, alone / seconds / n_workers)
    of_stage: dict[str, list[float]] = collections.defaultdict(list)
    for task in tasks:
        of_stage[task.stage].append(task.seconds)
    sys.stdout.write("\n")
    write_head("stage", "CPU s", "tasks", "longest")
    for stage, times in sorted(of_stage.items(), key=lambda item: -sum(item[1])):
        write_row(stage, sum(times), len(times), max(times))


def main(arguments: Sequence[str] | None = None) -> None:
    """Record, simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=5000)
    parser.add_argument("--dims", type=int, nargs="+", help="one number of columns for each view")
    parser.add_argument("--views", type=int, default=64, help="that many views of 40 columns")
    parser.add_argument("--workers", type=int, nargs="+", default=_WORKERS)
    options = parser.parse_args(arguments)
    dims = options.dims or [40] * options.views
    views, _ = subspace_views(options.samples, dims, n_clusters=_N_CLUSTERS)
    print_tables(record_fit(views), options.workers)


if __name__ == "__main__":
    main()
