"""How much memory a fit needs, worked out before it starts.

Pure arithmetic on shapes: upper bounds, since ranks are not known before the views are read.
"""

from __future__ import annotations

import dataclasses

from mscam_dask.data.views.as_multi_view import MultiViewData
from mscam_dask.engine.executors._malloc import KEPT_BYTES
from mscam_dask.engine.executors.base import Executor
from mscam_dask.engine.precompute import LARGE_RANK
from mscam_dask.engine.task_memory import (
    TaskMemory,
    encoders,
    graph_tasks,
    held_during,
    view_tasks,
)
from mscam_dask.errors import MemoryPlanError
from mscam_dask.types.parameters import Parameters

__all__ = ["MemoryPlan", "TaskMemory", "check_memory", "plan_memory"]

_GIB = 2.0**30

# Interpreter and libraries of a worker before it holds any data, and freed memory that it keeps
# (see engine.allocator).
_BASE_BYTES = 257 * 2**20 + KEPT_BYTES

# Bases on their way from worker to worker: Dask puts up to 50 MB into a message, which is there as
# it is sent, as it comes and unpacked; the messages of smaller data are smaller.
_TRANSFER_BYTES = 3 * 50 * 10**6


@dataclasses.dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Upper bounds for one fit.

    Attributes
    ----------
    tasks : tuple of TaskMemory
        Largest first.
    held_bytes : int
        Results on all workers together when they hold most, and what views that travel inside
        tasks take there.
    shared_bytes : int
        Of these, what every worker may come to hold: the bases of all views.
    driver_bytes : int
        What comes back to the driver at the end: graph, labels, embeddings, encoders.
    """

    tasks: tuple[TaskMemory, ...]
    held_bytes: int
    shared_bytes: int
    driver_bytes: int

    def worker_bytes(self, n_workers: int) -> int:
        """Need of one worker with one thread: bases, the deciding task, its share of the rest."""
        shared = self.shared_bytes + min(self.shared_bytes, _TRANSFER_BYTES)
        return _BASE_BYTES + shared + _need(self.deciding_task(n_workers), n_workers)

    def deciding_task(self, n_workers: int) -> TaskMemory:
        """The task during which a worker needs most."""
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
        Only shapes and metrics are looked at, and what views in memory take where these travel.
    parameters : Parameters
    view_graphs : bool
        Whether the views' own graphs may be tried.
    carried : bool
        Whether views that are in memory travel inside the tasks that read them. A worker keeps these
        for as long as it keeps the task's result.

    Returns
    -------
    MemoryPlan
    """
    n, c = data.n_samples, parameters.n_clusters
    large = parameters.is_large(n)
    ranks = {
        source.name: min(*source.shape, LARGE_RANK) if large else min(source.shape)
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
    shared = 4 * n * rank * (1 if large else 2)  # two scalings are tried at most on all samples
    driver = 12 * n * (2 * parameters.n_neighbors + 1) + 8 * n * c * len(data.views) + 24 * n
    driver += encoders(data, ranks)
    # the rows of a graph are held as well until it is put together
    most = max(task.beside_bytes for task in tasks) + 16 * n * parameters.n_neighbors
    return MemoryPlan(ordered, shared + most, shared, driver)


def check_memory(
    data: MultiViewData,
    parameters: Parameters,
    executor: Executor,
    *,
    view_graphs: bool = False,
    whole_fits: bool = False,
) -> MemoryPlan:
    """Refuse, with the numbers, what cannot fit; other arguments as for `plan_memory`.

    With `whole_fits`, every task is a fit by itself, as in a sweep: a worker holds all of what the
    workers of one fit hold together.

    Raises
    ------
    MemoryPlanError
        When the smallest worker has less memory than its largest task needs.
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
            f"this fit needs up to {need / _GIB:.2f} GiB for a worker thread and the smallest has "
            f"{limit / _GIB:.2f} GiB: {task.peak_bytes / _GIB:.2f} GiB for {task.task!r}, "
            f"the rest for what {n_workers} worker(s) hold together meanwhile "
            f"({(task.beside_bytes + plan.shared_bytes) / _GIB:.2f} GiB). Give workers more memory, {remedy}, "
            "cluster from a store instead of arrays in memory, or leave out the largest view"
        )
    return plan
