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
    beside_bytes : int
        Results that the workers hold together meanwhile, beside the bases of all views.
    """

    task: str
    peak_bytes: int
    beside_bytes: int = 0


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
        What comes back to the driver at the end: graph, labels, embeddings.
    """

    tasks: tuple[TaskMemory, ...]
    held_bytes: int
    shared_bytes: int
    driver_bytes: int

    def worker_bytes(self, n_workers: int) -> int:
        """Need of one worker with one thread: bases, the deciding task, its share of the rest."""
        return _BASE_BYTES + self.shared_bytes + _need(self.deciding_task(n_workers), n_workers)

    def deciding_task(self, n_workers: int) -> TaskMemory:
        """The task during which a worker needs most."""
        return max(self.tasks, key=lambda task: _need(task, n_workers))


def _need(task: TaskMemory, n_workers: int) -> int:
    return task.peak_bytes - (-task.beside_bytes // max(1, n_workers))


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
    ranks = {
        source.name: min(*source.shape, LARGE_RANK) if large else min(source.shape)
        for source in data.views
    }
    rank = sum(ranks.values())
    held = _held(data, parameters, more_neighbors=more_neighbors, carried=carried)
    tasks = []
    for source in data.views:
        of_view = _view_tasks(source.shape, source.metric, ranks[source.name], parameters, held)
        tasks += [dataclasses.replace(t, task=t.task.format(view=source.name)) for t in of_view]
    if have_view_graphs(len(data.views), n, parameters):
        ties = min(MOST_TIES * parameters.n_neighbors, n - 1)
        whole = (4 + 8) * n * max(ranks.values())  # ties are searched again in double precision
        peak = whole + _SEARCH_BYTES + 60 * n * ties
        tasks.append(TaskMemory("graph of one view", peak, held.choosing + held.start))
    tasks += _graph_tasks(n, rank, parameters, held)
    ordered = tuple(sorted(tasks, key=lambda task: -task.peak_bytes))
    shared = 4 * n * rank * (1 if large else 2)  # two scalings are tried at most on all samples
    driver = 12 * n * (2 * parameters.n_neighbors + 1) + 8 * n * c * len(data.views) + 24 * n
    # the rows of a graph are held as well until it is put together
    most = max(task.beside_bytes for task in tasks) + 16 * n * parameters.n_neighbors
    return MemoryPlan(ordered, shared + most, shared, driver)


@dataclasses.dataclass(frozen=True, slots=True)
class _Held:
    """Bytes of results, over all workers.

    Attributes
    ----------
    blocks : int
        Candidate edges of all rows.
    graph, laplacian, vectors : int
        Of the consensus graph, with twice the entries of its rows where no two samples are each
        other's neighbours; single precision on large data.
    sums : int
        Projected distances on the candidate edges.
    embeddings : int
    always : int
        Neutral graphs, partitions, and views that travel inside tasks.
    several : bool
        Whether another start is tried while the best is held.
    """

    blocks: int
    graph: int
    laplacian: int
    vectors: int
    sums: int
    embeddings: int
    always: int
    several: bool

    @property
    def start(self) -> int:
        """A graph with its spectrum."""
        return self.graph + self.laplacian + self.vectors

    @property
    def choosing(self) -> int:
        """Beside a start that is being made: the best so far, with half the neighbours or more."""
        others = self.blocks // 2 + self.start if self.several else 0
        return self.always + self.blocks + others

    @property
    def walking(self) -> int:
        """In the course of an iteration, beside the graph's spectrum."""
        return self.always + self.blocks + self.graph + self.embeddings


def _held(
    data: MultiViewData, parameters: Parameters, *, more_neighbors: bool, carried: bool
) -> _Held:
    n, c, k = data.n_samples, parameters.n_clusters, parameters.n_neighbors
    large = parameters.is_large(n)
    value = 4 if large else 8
    graphs = len(data.views) if have_view_graphs(len(data.views), n, parameters) else 1
    entries = n * (2 * k + 1) * graphs
    edges = n * parameters.candidates(n)
    always = len(data.views) * 320 * (SAMPLE if large else n) + 20 * 8 * n
    if carried:
        # read for two scalings and for the judge; of large data once whole, the rest is a sample
        in_memory = sum(n_bytes(view) for view in data.views if isinstance(view, ArrayRows))
        always += (1 if large else 3) * in_memory
    return _Held(
        blocks=(12 if large else 16) * edges,
        graph=12 * (n * k if graphs == 1 else entries),
        laplacian=(4 + value) * entries,
        vectors=value * n * 2 * c,
        sums=8 * edges,
        embeddings=len(data.views) * 4 * n * c,
        always=always,
        several=more_neighbors or not large,
    )


def _graph_tasks(n: int, rank: int, parameters: Parameters, held: _Held) -> list[TaskMemory]:
    """From the candidate edges to a graph, its spectrum and its cuts."""
    c, k = parameters.n_clusters, parameters.n_neighbors
    large = parameters.is_large(n)
    n_candidates = parameters.candidates(n)
    rows = max(stop - start for start, stop in row_ranges(n))
    search = _SEARCH_BYTES + 60 * rows * n_candidates
    if large:  # what was found in all cells, their centres, and a share of the points
        search += 12 * n * n_candidates + 4 * 8000 * rank + n * rank // 4
    # the Laplacian, the same in another order and its filter, and five blocks of 3c columns
    spectrum = held.graph + held.vectors + 5 * held.laplacian // 2 + 15 * held.vectors // 2
    # every row's neighbours, those of a large cluster on their way into a graph, and its transpose
    limit = held.blocks + 48 * n * k + (0 if large else 4 * n * rank) + _SEARCH_BYTES
    ended = held.always + held.graph + held.vectors
    return [
        TaskMemory("candidates", search, held.choosing),
        TaskMemory("graph spectrum", spectrum, held.choosing),
        TaskMemory(
            "graph", 40 * n * k + 32 * n, held.walking + held.laplacian + held.vectors + held.sums
        ),
        TaskMemory("limit step", limit, ended),
        TaskMemory("cuts", 8 * n * (4 * c + 8), held.choosing + held.start),
    ]


def _view_tasks(
    shape: tuple[int, int], metric: str, rank: int, parameters: Parameters, held: _Held
) -> list[TaskMemory]:
    """Factoring, judging and solving one view."""
    n, d = shape
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
        TaskMemory("prepare {view}", factor, held.always),
        TaskMemory("comparing preparations of {view}", _comparison(shape, metric), held.always),
        TaskMemory("neutral graphs of {view}", neutral, held.always),
        TaskMemory("sub-solve {view}", held.laplacian + held.vectors + solve, held.walking),
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
        task = plan.deciding_task(executor.n_workers)
        raise MemoryPlanError(
            f"this fit needs up to {need / _GIB:.2f} GiB for a worker thread and the smallest has "
            f"{limit / _GIB:.2f} GiB: {task.peak_bytes / _GIB:.2f} GiB for {task.task!r}, "
            f"the rest for what {executor.n_workers} worker(s) hold together meanwhile "
            f"({(task.beside_bytes + plan.shared_bytes) / _GIB:.2f} GiB). Give workers more memory, use more workers, "
            "cluster from a store instead of arrays in memory, or leave out the largest view"
        )
    return plan
