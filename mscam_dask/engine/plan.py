"""How much memory a fit needs, worked out before it starts.

Pure arithmetic on shapes: upper bounds, since ranks are not known before the views are read.
"""

from __future__ import annotations

import dataclasses

from mscam_dask.data.sources import ArrayRows
from mscam_dask.data.views import MultiViewData
from mscam_dask.engine.agreement import COMPARED
from mscam_dask.engine.allocator import KEPT_BYTES
from mscam_dask.engine.anchor_blocks import row_ranges
from mscam_dask.engine.executor import Executor
from mscam_dask.engine.setup import LARGE_RANK, SAMPLE
from mscam_dask.engine.sizes import n_bytes
from mscam_dask.engine.view_graphs import have_view_graphs
from mscam_dask.errors import MemoryPlanError
from mscam_dask.model.candidates import wider_neighborhoods
from mscam_dask.model.parameters import Parameters
from mscam_dask.solvers.graph import MOST_TIES

__all__ = ["MemoryPlan", "TaskMemory", "check_memory", "plan_memory"]

_GIB = 2.0**30

# Interpreter and libraries of a worker before it holds any data, and freed memory that it keeps
# (see engine.allocator).
_BASE_BYTES = 225 * 2**20 + KEPT_BYTES

# Rows are streamed in blocks of 8 MiB (see solvers.view_basis): as read, scaled, centred, projected.
_STREAM_BYTES = 4 * 8 * 2**20

# Products of a block of rows with all samples or a pool, their order, and differences.
_SEARCH_BYTES = 32 * 2**20


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
        Results that stay on the workers for the length of the fit, over all workers, and what views
        that travel inside tasks take there.
    shared_bytes : int
        Of these, what every worker may come to hold: the bases of all views.
    driver_bytes : int
        What comes back to the driver at the end: graph, labels, embeddings.
    """

    tasks: tuple[TaskMemory, ...]
    held_bytes: int
    shared_bytes: int
    driver_bytes: int

    def worker_bytes(self, n_workers: int) -> int:
        """Need of one worker with one thread: bases, its share of the rest, the largest task."""
        own = -(-(self.held_bytes - self.shared_bytes) // max(1, n_workers))
        return _BASE_BYTES + self.tasks[0].peak_bytes + self.shared_bytes + own


def plan_memory(
    data: MultiViewData,
    parameters: Parameters,
    *,
    more_neighbors: bool = False,
    carried: bool = False,
) -> MemoryPlan:
    """Bound the memory of every kind of task.

    Parameters
    ----------
    data : MultiViewData
        Only shapes and metrics are looked at, and what views in memory take where these travel.
    parameters : Parameters
    more_neighbors : bool
        Whether the fit may take more neighbours than the parameters say.
    carried : bool
        Whether views that are in memory travel inside the tasks that read them. A worker keeps these
        for as long as it keeps the task's result.

    Returns
    -------
    MemoryPlan
    """
    n, c = data.n_samples, parameters.n_clusters
    large = parameters.is_large(n)
    if more_neighbors:
        # as with two clusters: a bound that does not fall where there are more
        wider = wider_neighborhoods(dataclasses.replace(parameters, n_clusters=2), n)
        most = max(wider, default=parameters.n_neighbors)
        parameters = dataclasses.replace(parameters, n_neighbors=most)
    n_candidates = parameters.candidates(n)
    ranks = {
        source.name: min(*source.shape, LARGE_RANK) if large else min(source.shape)
        for source in data.views
    }
    rank = sum(ranks.values())
    tasks = []
    for source in data.views:
        tasks += _view_tasks(source.shape, source.metric, ranks[source.name], parameters, n)
        tasks = [dataclasses.replace(t, task=t.task.format(view=source.name)) for t in tasks]
    edges = n * n_candidates
    rows = max(stop - start for start, stop in row_ranges(n))
    found = 12 * edges if large else 0
    search = _SEARCH_BYTES + (4 * 8000 * rank + n * rank // 4 if large else 0)
    graph = 12 * n * _degree(parameters)
    widest = graph
    if have_view_graphs(len(data.views), n, parameters):
        widest *= len(data.views)
        ties = min(MOST_TIES * parameters.n_neighbors, n - 1)
        whole = (4 + 8) * n * max(ranks.values())  # ties are searched again in double precision
        tasks.append(TaskMemory("graph of one view", whole + _SEARCH_BYTES + 60 * n * ties))
    # measured where no two samples are each other's neighbours, so that graphs have the most entries:
    # the graph, its Laplacian, that in another order and its filter; and six blocks of 3c columns
    spectrum = 13 * widest // 4 + 8 * 6 * n * 3 * c
    tasks += [
        TaskMemory("candidates", search + found + 60 * rows * n_candidates),
        TaskMemory("graph spectrum", spectrum),
        TaskMemory("graph", 88 * n * parameters.n_neighbors),
        TaskMemory("limit step", 4 * n * rank + 17 * graph // 4 + _SEARCH_BYTES),
        TaskMemory("cuts", 8 * n * (4 * c + 8)),
    ]
    judged = SAMPLE if large else n
    shared = 4 * n * rank * (1 if large else 2)  # two scalings are tried at most on all samples
    # the last graph, its Laplacian and the one before; where several settings are tried, one more
    graphs = (3 if large else 4) * graph + 8 * n * 5 * c
    held = shared + (12 if large else 16) * edges + max(found, 8 * edges + graphs)
    held += len(data.views) * (4 * n * c + 320 * judged)
    if carried:
        # read for two scalings and for the judge; of large data once whole, the rest is a sample
        in_memory = sum(n_bytes(view) for view in data.views if isinstance(view, ArrayRows))
        held += (1 if large else 3) * in_memory
    driver = graph + 8 * n * c * len(data.views) + 24 * n
    ordered = tuple(sorted(tasks, key=lambda task: -task.peak_bytes))
    return MemoryPlan(ordered, held, shared, driver)


def _view_tasks(
    shape: tuple[int, int], metric: str, rank: int, parameters: Parameters, n: int
) -> list[TaskMemory]:
    """Factoring, judging and solving one view."""
    d = shape[1]
    c = parameters.n_clusters
    judged = SAMPLE if parameters.is_large(n) else n
    stream = min(_STREAM_BYTES, 4 * 8 * n * d)
    basis = 4 * n * rank
    # on large data the sample of the rows is factored and judged as well, each begins with drawing it
    drawn = 8 * judged * (d if metric == "features" else judged) if parameters.is_large(n) else 0
    factor = max(basis, drawn) + stream
    if metric == "features" and d <= n:
        factor += 4 * 8 * d * d
    else:
        factor += 3 * 8 * n * n + 8 * n * min(shape)
    rows = 4 * judged * d if metric == "features" else 3 * 8 * judged * judged
    neutral = drawn + rows + 600 * judged + stream + _SEARCH_BYTES
    subspace = 4 * n * (rank + 2 * c)
    solve = subspace + 2 * 4 * n * 64 + 3 * 8 * n * 2 * c + 6 * 8 * (rank + 2 * c) ** 2
    return [
        TaskMemory("prepare {view}", factor),
        TaskMemory("comparing preparations of {view}", _comparison(shape, metric)),
        TaskMemory("neutral graphs of {view}", neutral),
        TaskMemory("sub-solve {view}", solve),
    ]


def _comparison(shape: tuple[int, int], metric: str) -> int:
    """Trying preparations on some rows: these, a whole basis, its making or a search in it."""
    m = min(shape[0], COMPARED)
    d = shape[1] if metric == "features" else m
    rank = min(m, d)
    rows = 8 * m * d * (1 if metric == "features" else 2)
    basis = 8 * rank * (m + d)
    decomposed = 5 * 8 * rank * rank
    search = 12 * m * rank + _SEARCH_BYTES
    return rows + basis + max(decomposed, search)


def _degree(parameters: Parameters) -> int:
    """Stored entries of a row of the symmetrised graph, on average at most."""
    return 2 * parameters.n_neighbors + 1


def check_memory(
    data: MultiViewData, parameters: Parameters, executor: Executor, *, more_neighbors: bool = False
) -> MemoryPlan:
    """Refuse, with the numbers, what cannot fit; arguments as for `plan_memory`.

    Raises
    ------
    MemoryPlanError
        When the smallest worker has less memory than its largest task needs.
    """
    plan = plan_memory(
        data, parameters, more_neighbors=more_neighbors, carried=not executor.shares_memory
    )
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
            f"({plan.held_bytes / _GIB:.2f} GiB). Give workers more memory, use more workers, "
            "cluster from a store instead of arrays in memory, or leave out the largest view"
        )
    return plan
