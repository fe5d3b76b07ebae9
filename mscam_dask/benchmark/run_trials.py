"""Cells as Dask tasks, each result as soon as it is there."""

from __future__ import annotations

import atexit
import contextlib
import datetime as dt
import queue
import threading
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mscam_dask.benchmark.results import TrialEntry
from mscam_dask.benchmark.trial import Limits, Trial, TrialFit, entry_of
from mscam_dask.benchmark.trial_process import TrialProcess
from mscam_dask.errors import SchedulerLostError
from mscam_dask.pipeline.run.cluster import OpenCluster

if TYPE_CHECKING:
    from distributed import Client

    from mscam_dask.engine.executors.dask import DaskExecutor, WorkerWatchdog

__all__ = ["run_trial", "run_trials"]

_threads = threading.local()


def run_trial(trial: Trial, limits: Limits) -> TrialFit:
    """Run one cell in the process that belongs to this thread; the task that workers get.

    That process is started with the thread's first cell and ends with this process.
    """
    if not hasattr(_threads, "process"):
        _threads.process = TrialProcess()
        atexit.register(_threads.process.close)
    process: TrialProcess = _threads.process
    return process.run(trial, limits)


def run_trials(
    trials: Sequence[Trial],
    limits: Limits,
    cluster: OpenCluster,
    *,
    timeout_s: float | None = None,
) -> Iterator[tuple[Trial, TrialEntry]]:
    """Run cells, yielding each when it has ended.

    Parameters
    ----------
    cells
        Each key once.
    limits
        Of every cell.
    cluster
        With a client: as many at a time as its workers have threads. Without: one at a time.
    timeout_s
        Seconds without a worker that end the run; by default the cluster's setting.

    Yields
    ------
    trial : Cell
    entry : TrialEntry
        Also for a cell that failed; the others go on.

    Raises
    ------
    SchedulerLostError
        When the connection to the cluster is gone; what was yielded is finished.
    NoWorkersError
        When all workers are gone and none comes back in time; likewise.
    """
    if cluster.client is None:
        for trial in trials:
            yield trial, entry_of(trial, run_trial(trial, limits), limits, _now())
        return
    from mscam_dask.engine.executors.dask import DaskExecutor

    executor = DaskExecutor(cluster.client, timeout_s=timeout_s)
    yield from _on_cluster(trials, limits, cluster.client, executor)


def _on_cluster(
    trials: Sequence[Trial], limits: Limits, client: Client, executor: DaskExecutor
) -> Iterator[tuple[Trial, TrialEntry]]:
    run = uuid.uuid4().hex[:8]
    ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
    by_key = {
        f"{trial.method}-{run}-{trial.dataset}-{trial.seed}-{trial.key[:12]}": trial
        for trial in trials
    }
    futures = {}
    try:
        for key, trial in by_key.items():
            future: Any = client.submit(run_trial, trial, limits, key=key, pure=False)
            future.add_done_callback(ended.put)
            futures[key] = future
        for _ in by_key:
            future = _next(ended, executor.watchdog())
            trial = by_key[future.key]
            fit = _fit_of(future)
            futures.pop(future.key).release()
            yield trial, entry_of(trial, fit, limits, _now())
    finally:
        for future in futures.values():
            future.cancel()


def _next(ended: queue.SimpleQueue[Any], watchdog: WorkerWatchdog) -> Any:
    """The next task that has ended, as long as there are workers."""
    from mscam_dask.engine.executors.dask import POLL_S

    while True:
        with contextlib.suppress(queue.Empty):
            return ended.get(timeout=POLL_S)
        watchdog.check()


def _fit_of(future: Any) -> TrialFit:
    """The result of a task that has ended, or what its end means for the cell."""
    if future.status in ("cancelled", "lost"):
        raise SchedulerLostError(
            "the connection to the Dask scheduler was lost; the cells that had ended are kept. "
            "Start the cluster again and repeat the command with the same output directory."
        )
    if future.status == "error":
        error = future.exception()
        if type(error).__name__ == "KilledWorker":
            return TrialFit(
                outcome="worker lost",
                reason="the workers that ran it died, one after the other; most often they had "
                "no memory left. Give workers more memory, or set memory_limit",
            )
        return TrialFit(outcome="failed", reason=f"{type(error).__name__}: {error}")
    fit: TrialFit = future.result()
    return fit


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
