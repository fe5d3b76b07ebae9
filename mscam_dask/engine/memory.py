"""Memory estimate of a fit, computed before it starts.

The estimate is arithmetic on shapes. It is an upper bound, since ranks are unknown before the views
are read.
"""

from __future__ import annotations

import dataclasses

from mscam_dask.data.views.as_multi_view import MultiViewData
from mscam_dask.engine.executors._malloc import KEPT_BYTES
from mscam_dask.engine.executors.base import Executor
from mscam_dask.engine.task_memory import (
    TaskMemory,
    encoders,
    graph_tasks,
    held_during,
    view_tasks,
)
from mscam_dask.errors import MemoryPlanError
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.rules import SIZES

__all__ = ["MemoryPlan", "TaskMemory", "check_memory", "plan_memory"]

_GIB = 2.0**30

# Interpreter and libraries of a worker before it holds any data, and freed memory that it keeps
# (see engine.executors._malloc).
_BASE_BYTES = 257 * 2**20 + KEPT_BYTES

# Bases in transfer between workers: a message of Dask has up to 50 MB and is held three times, as
# sent, as received and as unpacked; messages of smaller data are smaller.
_TRANSFER_BYTES = 3 * 50 * 10**6


@dataclasses.dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Upper bounds of the memory of one fit.

    Attributes
    ----------
    tasks : tuple of TaskMemory
        Largest first.
    held_bytes : int
        Peak of the results on all workers together, including views that are sent inside tasks.
    shared_bytes : int
        Part of these that every worker may hold: the bases of all views; 0 for large data.
    moved_bytes : int
        Bases of all views, which workers send to each other.
    driver_bytes : int
        Result at the driver: graph, labels, embeddings, encoders.
    """

    tasks: tuple[TaskMemory, ...]
    held_bytes: int
    shared_bytes: int
    moved_bytes: int
    driver_bytes: int

    def worker_bytes(self, n_workers: int) -> int:
        """Memory of one worker with one thread: bases, the largest task, its share of other results."""
        shared = self.shared_bytes + min(self.moved_bytes, _TRANSFER_BYTES)
        return _BASE_BYTES + shared + _need(self.deciding_task(n_workers), n_workers)

    def deciding_task(self, n_workers: int) -> TaskMemory:
        """Task during which a worker needs the most memory."""
        return max(self.tasks, key=lambda task: _need(task, n_workers))


def _need(task: TaskMemory, n_workers: int) -> int:
    return task.peak_bytes - (-task.beside_bytes // max(1, n_workers))


def plan_memory(
    data: MultiViewData,
    parameters: Parameters,
    *,
    view_graphs: bool = False,
    carried: bool = False,
) -> MemoryPlan:
    """Bound the memory of every kind of task.

    Parameters
    ----------
    data : MultiViewData
        Only shapes and metrics are used, and the size of views that are sent inside tasks.
    parameters : Parameters
    view_graphs : bool
        Whether the mixed initial graph may be tried.
    carried : bool
        Whether views in memory are sent inside the tasks that read them. A worker keeps these as
        long as it keeps the result of the task.

    Returns
    -------
    MemoryPlan
    """
    n, c = data.n_samples, parameters.n_clusters
    large = parameters.is_large(n)
    ranks = {
        source.name: min(*source.shape, SIZES.max_rank) if large else min(source.shape)
        for source in data.views
    }
    rank = sum(ranks.values())
    held = held_during(data, ranks, parameters, view_graphs=view_graphs, carried=carried)
    tasks = []
    for source in data.views:
        of_view = view_tasks(source.shape, source.view_type, ranks[source.name], parameters, held)
        tasks += [dataclasses.replace(t, task=t.task.format(view=source.name)) for t in of_view]
    tasks += graph_tasks(data, ranks, parameters, held)
    ordered = tuple(sorted(tasks, key=lambda task: -task.peak_bytes))
    shared = 0 if large else 4 * n * rank  # rows of large data are on one worker each
    driver = 12 * n * (2 * parameters.n_neighbors + 1) + 8 * n * c * len(data.views) + 24 * n
    driver += encoders(data, ranks)
    # the rows of a graph are also held until it is assembled
    most = max(task.beside_bytes for task in tasks) + 16 * n * parameters.n_neighbors
    return MemoryPlan(ordered, shared + most, shared, 4 * n * rank, driver)


def check_memory(
    data: MultiViewData,
    parameters: Parameters,
    executor: Executor,
    *,
    view_graphs: bool = False,
    whole_fits: bool = False,
) -> MemoryPlan:
    """Refuse a fit that does not fit in memory; other arguments are as for `plan_memory`.

    With `whole_fits`, every task is a fit by itself, as in a sweep: one worker holds everything that
    the workers of one fit hold together.

    Raises
    ------
    MemoryPlanError
        If the smallest worker has less memory than it needs.
    """
    carried = not executor.shares_memory
    plan = plan_memory(data, parameters, view_graphs=view_graphs, carried=carried)
    limit = executor.memory_limit_bytes
    if limit is None:
        return plan
    n_workers = 1 if whole_fits else executor.n_workers
    need = plan.worker_bytes(n_workers)
    if need > limit:
        task = plan.deciding_task(n_workers)
        remedy = "run fewer fits at a time" if whole_fits else "use more workers"
        raise MemoryPlanError(
            f"not enough memory: a worker thread needs up to {need / _GIB:.2f} GiB, but the smallest "
            f"worker has {limit / _GIB:.2f} GiB per thread (largest task: {task.task!r}, "
            f"{task.peak_bytes / _GIB:.2f} GiB; other results on {n_workers} worker(s): "
            f"{(task.beside_bytes + plan.shared_bytes) / _GIB:.2f} GiB). Give workers more memory, {remedy}, "
            "cluster from a store instead of arrays in memory, or exclude the largest view"
        )
    return plan
