"""How much memory a fit needs, worked out before it starts.

Pure arithmetic on shapes: upper bounds, since ranks are not known before the views are read.
"""

from __future__ import annotations

import dataclasses

from mscam_dask.data.views import MultiViewData
from mscam_dask.engine.executor import Executor
from mscam_dask.engine.setup import row_ranges
from mscam_dask.errors import MemoryPlanError
from mscam_dask.model.parameters import Parameters

__all__ = ["MemoryPlan", "TaskMemory", "check_memory", "plan_memory"]

_FLOAT = 8
_INDEX = 8
_GIB = 2.0**30

# Interpreter and libraries of a worker before it holds any data.
_BASE_BYTES = 200 * 2**20

# Rows are streamed in blocks of this size (see solvers.view_basis), and transformed once.
_STREAM_BYTES = 2 * 64 * 2**20


@dataclasses.dataclass(frozen=True, slots=True)
class TaskMemory:
    """Peak memory of one kind of task.

    Attributes
    ----------
    task : str
        What it is, with the view where there is one.
    peak_bytes : int
        Arguments, result and intermediates together.
    """

    task: str
    peak_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Upper bounds for one fit.

    Attributes
    ----------
    tasks : tuple of TaskMemory
        Largest first.
    held_bytes : int
        Results that stay on the workers for the length of the fit, over all workers.
    driver_bytes : int
        What comes back to the driver at the end: graph, labels, embeddings.
    """

    tasks: tuple[TaskMemory, ...]
    held_bytes: int
    driver_bytes: int

    def worker_bytes(self, n_workers: int) -> int:
        """Need of one worker with one thread: its share of what is held, and the largest task.

        Every worker may come to hold the anchor space, so the share is taken of the rest.
        """
        return _BASE_BYTES + self.tasks[0].peak_bytes + -(-self.held_bytes // max(1, n_workers))


def plan_memory(data: MultiViewData, parameters: Parameters) -> MemoryPlan:
    """Bound the memory of every kind of task.

    Parameters
    ----------
    data : MultiViewData
        Only shapes and metrics are looked at.
    parameters : Parameters

    Returns
    -------
    MemoryPlan
    """
    n, c = data.n_samples, parameters.n_clusters
    n_pairs = min(2 * c, n)
    n_candidates = parameters.candidates(n)
    rows = max(stop - start for start, stop in row_ranges(n))
    ranks = {source.name: min(source.shape) for source in data.views}
    total_rank = sum(ranks.values())
    tasks = []
    for source in data.views:
        d, r = source.shape[1], ranks[source.name]
        stream = min(_STREAM_BYTES, 2 * _FLOAT * n * d)
        square = 0 if source.metric == "features" and d <= n else 3 * n * n
        factor = square + d * d * (d <= n) * 3 + 3 * n * r
        tasks += [
            TaskMemory(f"prepare {source.name}", _FLOAT * factor + stream),
            TaskMemory(f"neutral graphs of {source.name}", _FLOAT * 3 * n * d + stream),
            TaskMemory(
                f"sub-solve {source.name}",
                _FLOAT * (n * r + 3 * n * (r + n_pairs) + 4 * n * n_pairs + 4 * (r + n_pairs) ** 2),
            ),
        ]
    edges = _FLOAT * rows * n_candidates
    tasks += [
        TaskMemory("stack anchors", _FLOAT * 2 * n * total_rank),
        TaskMemory(
            "anchor candidates",
            _FLOAT * 2 * n * total_rank + 6 * edges + min(_STREAM_BYTES, 2 * _FLOAT * n * rows),
        ),
        TaskMemory(
            "graph spectrum", _FLOAT * 8 * n * n_pairs + 6 * _INDEX * n * _degree(parameters)
        ),
    ]
    held = _FLOAT * n * total_rank * 2 + (_FLOAT + _INDEX) * n * n_candidates
    held += sum(2 * _INDEX * 2 * n * _degree(parameters) for _ in data.views)
    driver = (_FLOAT + _INDEX) * n * _degree(parameters) + _FLOAT * n * c * len(data.views)
    ordered = tuple(sorted(tasks, key=lambda task: -task.peak_bytes))
    return MemoryPlan(ordered, held, driver)


def _degree(parameters: Parameters) -> int:
    """Stored entries of a row of the symmetrised graph, on average at most."""
    return 2 * parameters.n_neighbors + 1


def check_memory(data: MultiViewData, parameters: Parameters, executor: Executor) -> MemoryPlan:
    """Refuse, with the numbers, what cannot fit.

    Raises
    ------
    MemoryPlanError
        When the smallest worker has less memory than its largest task needs.
    """
    plan = plan_memory(data, parameters)
    limit = executor.memory_limit_bytes
    if limit is None:
        return plan
    need = plan.worker_bytes(executor.n_workers)
    if need > limit:
        largest = plan.tasks[0]
        raise MemoryPlanError(
            f"this fit needs up to {need / _GIB:.2f} GiB for a worker thread and the smallest has "
            f"{limit / _GIB:.2f} GiB: {largest.peak_bytes / _GIB:.2f} GiB for {largest.task!r}, "
            f"the rest for what {executor.n_workers} worker(s) hold together "
            f"({plan.held_bytes / _GIB:.2f} GiB). Give workers more memory, use more workers, or "
            "leave out the largest view"
        )
    return plan
