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

from mscam_dask.engine.attendance import POLL_S, Attendance
from mscam_dask.errors import SchedulerLostError
from mscam_dask.pipeline.cluster import OpenCluster
from mscam_dask.pipeline.experiments.cell_process import CellProcess
from mscam_dask.pipeline.experiments.cells import Cell, CellFit, Limits, entry_of
from mscam_dask.pipeline.experiments.results import CellEntry

if TYPE_CHECKING:
    from distributed import Client

    from mscam_dask.engine.dask import DaskExecutor

__all__ = ["run_cell", "run_cells"]

_threads = threading.local()


def run_cell(cell: Cell, limits: Limits) -> CellFit:
    """Run one cell in the process that belongs to this thread; the task that workers get.

    That process is started with the thread's first cell and ends with this process.
    """
    if not hasattr(_threads, "process"):
        _threads.process = CellProcess()
        atexit.register(_threads.process.close)
    process: CellProcess = _threads.process
    return process.run(cell, limits)


def run_cells(
    cells: Sequence[Cell],
    limits: Limits,
    cluster: OpenCluster,
    *,
    workers_timeout_s: float = 60.0,
) -> Iterator[tuple[Cell, CellEntry]]:
    """Run cells, yielding each when it has ended.

    Parameters
    ----------
    cells
        Each key once.
    limits
        Of every cell.
    cluster
        With a client: as many at a time as its workers have threads. Without: one at a time.
    workers_timeout_s
        How long to wait for a worker when all are gone.

    Yields
    ------
    cell : Cell
    entry : CellEntry
        Also for a cell that failed; the others go on.

    Raises
    ------
    SchedulerLostError
        When the connection to the cluster is gone; what was yielded is finished.
    NoWorkersError
        When all workers are gone and none comes back in time; likewise.
    """
    if cluster.client is None:
        for cell in cells:
            yield cell, entry_of(cell, run_cell(cell, limits), limits, _now())
        return
    from mscam_dask.engine.dask import DaskExecutor

    executor = DaskExecutor(cluster.client, workers_timeout_s=workers_timeout_s)
    yield from _on_cluster(cells, limits, cluster.client, executor)


def _on_cluster(
    cells: Sequence[Cell], limits: Limits, client: Client, executor: DaskExecutor
) -> Iterator[tuple[Cell, CellEntry]]:
    run = uuid.uuid4().hex[:8]
    ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
    by_key = {
        f"{cell.method}-{run}-{cell.dataset}-{cell.seed}-{cell.key[:12]}": cell for cell in cells
    }
    futures = {}
    try:
        for key, cell in by_key.items():
            future: Any = client.submit(run_cell, cell, limits, key=key, pure=False)
            future.add_done_callback(ended.put)
            futures[key] = future
        for _ in by_key:
            future = _next(ended, executor.attendance())
            cell = by_key[future.key]
            fit = _fit_of(future)
            futures.pop(future.key).release()
            yield cell, entry_of(cell, fit, limits, _now())
    finally:
        for future in futures.values():
            future.cancel()


def _next(ended: queue.SimpleQueue[Any], attendance: Attendance) -> Any:
    """The next task that has ended, as long as somebody is there to do them."""
    while True:
        with contextlib.suppress(queue.Empty):
            return ended.get(timeout=POLL_S)
        attendance.check()


def _fit_of(future: Any) -> CellFit:
    """The result of a task that has ended, or what its end means for the cell."""
    if future.status in ("cancelled", "lost"):
        raise SchedulerLostError(
            "the connection to the Dask scheduler was lost; the cells that had ended are kept. "
            "Start the cluster again and repeat the command with the same output directory."
        )
    if future.status == "error":
        error = future.exception()
        if type(error).__name__ == "KilledWorker":
            return CellFit(
                outcome="worker lost",
                reason="the workers that ran it died, one after the other; most often they had "
                "no memory left. Give workers more memory, or set memory_limit",
            )
        return CellFit(outcome="failed", reason=f"{type(error).__name__}: {error}")
    fit: CellFit = future.result()
    return fit


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
