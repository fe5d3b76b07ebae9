"""Memory estimate of a fit, computed before it starts.

`view_tasks` and `graph_tasks` estimate the peak of each kind of task (`TaskMemory`), and
`estimate_held` the results that workers hold between tasks. The estimates are arithmetic on shapes,
and upper bounds, because ranks are unknown before the views are read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from mscam_dask.data.views.as_multi_view import MultiViewData
from mscam_dask.data.views.presence import PresentRows
from mscam_dask.data.views.sampling import KEPT_CHUNK_BYTES
from mscam_dask.data.views.sources import BLOCK_BYTES, ArrayRows
from mscam_dask.engine.candidate_neighbors import row_ranges
from mscam_dask.engine.executors._arrays import n_bytes
from mscam_dask.engine.executors._process import KEPT_BYTES
from mscam_dask.engine.executors.base import Executor
from mscam_dask.engine.initialize import have_view_graphs
from mscam_dask.engine.iteration_steps import MAX_SCORE_TASKS
from mscam_dask.engine.precompute import uses_sample
from mscam_dask.engine.row_blocks.candidates import most_rows
from mscam_dask.engine.row_blocks.embedding import FAN_IN
from mscam_dask.engine.tasks import MAX_EVIDENCE_ENTRIES
from mscam_dask.errors import MemoryPlanError
from mscam_dask.linalg.block_eigensolver import MOST_AGGREGATES
from mscam_dask.linalg.incomplete import MIN_ROWS
from mscam_dask.solvers.view_svd import MAX_EXACT_GRAM, N_OVERSAMPLES, RANK_SAMPLE
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.rules import SIZES

__all__ = [
    "HeldBytes",
    "MemoryPlan",
    "TaskMemory",
    "check_memory",
    "encoder_bytes",
    "estimate_held",
    "graph_tasks",
    "plan_memory",
    "view_tasks",
]

_GIB = 2.0**30

# Interpreter and libraries of a worker before it holds any data, and freed memory that it keeps
# (see engine.executors._process).
_BASE_BYTES = 257 * 2**20 + KEPT_BYTES

# Bases in transfer between workers: a message of Dask has up to 50 MB and is held three times, as
# sent, as received and as unpacked; messages of smaller data are smaller.
_TRANSFER_BYTES = 3 * 50 * 10**6

# Sums of distances and of units of a block of rows to all samples, by kind, and their masks.
_INCOMPLETE_BYTES = 64 * 2**20

# Rows are streamed in blocks of 8 MiB (see solvers.row_blocks): as read, scaled, centered, projected;
# and the chunk that they come from.
_STREAM_BYTES = 4 * 8 * 2**20

# A neighbor search: products of a block of rows with the samples, their order, and exact differences.
_SEARCH_BYTES = 32 * 2**20

# Share of the rows on which the centers of the IVF cells are trained.
_TRAINING_SHARE = 32 / 500

# Blocks of rows that one block of rows searches: eight IVF cells for each cell of its own.
_SEARCHED_BLOCKS = 8

# Blocks whose sums are added in one task; the sums of a block take a third of the reduced problem.
_BLOCKS_OF_SUMS = 22

# Partitions that are scored together: ten k-means minima and two more cuts, in each of two embeddings.
_CUTS = 24


@dataclasses.dataclass(frozen=True, slots=True)
class TaskMemory:
    """Peak memory of one kind of task, and of the results that workers hold meanwhile.

    Attributes
    ----------
    task : str
        Name of the task, with the view if it has one.
    peak_bytes : int
        Arguments, result and intermediates together.
    other_bytes : int
        Results on all workers during the task, without the bases of all views.
    """

    task: str
    peak_bytes: int
    other_bytes: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class HeldBytes:
    """Bytes of the results on all workers, by kind.

    Attributes
    ----------
    blocks : int
        Candidate edges of all rows.
    graph, laplacian, vectors : int
        Consensus graph, its Laplacian and its eigenvectors. The Laplacian has twice the entries of
        the graph if no two samples are neighbors of each other. Single precision for large data.
    sums : int
        Projected distances on the candidate edges.
    embeddings : int
    always : int
        Held during the whole fit: reference graphs, partitions, encoders, views that are sent inside
        tasks, and bases of large data.
    other : int
        Best initialization so far, or the last graph, while another graph is computed.
    has_mixed_graph : bool
        Whether the initial graph may be mixed with the graphs of the single views.
    """

    blocks: int
    graph: int
    laplacian: int
    vectors: int
    sums: int
    embeddings: int
    always: int
    other: int
    has_mixed_graph: bool

    @property
    def graph_and_spectrum(self) -> int:
        """Bytes of a graph with its Laplacian and eigenvectors."""
        return self.graph + self.laplacian + self.vectors

    @property
    def during_initialization(self) -> int:
        """Bytes held while an initialization is computed, including the best one so far."""
        return self.always + self.blocks + self.other

    @property
    def during_iteration(self) -> int:
        """Bytes held during an outer iteration, without the Laplacian and the eigenvectors."""
        return self.always + self.blocks + self.graph + self.embeddings


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
        return _BASE_BYTES + shared + _bytes_needed(self.deciding_task(n_workers), n_workers)

    def deciding_task(self, n_workers: int) -> TaskMemory:
        """Task during which a worker needs the most memory."""
        return max(self.tasks, key=lambda task: _bytes_needed(task, n_workers))


def _bytes_needed(task: TaskMemory, n_workers: int) -> int:
    return task.peak_bytes - (-task.other_bytes // max(1, n_workers))


def plan_memory(
    data: MultiViewData,
    parameters: Parameters,
    *,
    view_graphs: bool = False,
    views_in_tasks: bool = False,
) -> MemoryPlan:
    """Bound the memory of every kind of task.

    Parameters
    ----------
    data : MultiViewData
        Only shapes and metrics are used, and the size of views that are sent inside tasks.
    parameters : Parameters
    view_graphs : bool
        Whether the mixed initial graph may be tried.
    views_in_tasks : bool
        Whether views in memory are sent inside the tasks that read them. A worker keeps these as
        long as it keeps the result of the task.
    """
    n, c = data.n_samples, parameters.n_clusters
    large = parameters.is_large(n)
    truncated = large or uses_sample(data)
    ranks = {
        source.name: min(*source.shape, SIZES.max_rank) if truncated else min(source.shape)
        for source in data.views
    }
    rank = sum(ranks.values())
    held = estimate_held(
        data, ranks, parameters, view_graphs=view_graphs, views_in_tasks=views_in_tasks
    )
    tasks = []
    for source in data.views:
        of_view = view_tasks(source.shape, source.view_type, ranks[source.name], parameters, held)
        tasks += [dataclasses.replace(t, task=t.task.format(view=source.name)) for t in of_view]
    tasks += graph_tasks(data, ranks, parameters, held)
    ordered = tuple(sorted(tasks, key=lambda task: -task.peak_bytes))
    # at most two scalings are tried on all samples; rows of large data are on one worker each
    shared = 0 if large else 2 * 4 * n * rank
    driver = 12 * n * (2 * parameters.n_neighbors + 1) + 8 * n * c * len(data.views) + 24 * n
    driver += encoder_bytes(data, ranks)
    # the rows of a graph are also held until it is assembled
    most = max(task.other_bytes for task in tasks) + 16 * n * parameters.n_neighbors
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
    views_in_tasks = not executor.shares_memory
    plan = plan_memory(data, parameters, view_graphs=view_graphs, views_in_tasks=views_in_tasks)
    limit = executor.memory_limit_bytes
    if limit is None:
        return plan
    n_workers = 1 if whole_fits else executor.n_workers
    need = plan.worker_bytes(n_workers)
    if need > limit:
        task = plan.deciding_task(n_workers)
        remedy = "run fewer fits at a time" if whole_fits else "use more workers"
        raise MemoryPlanError(
            f"Not enough memory: a worker thread needs up to {need / _GIB:.2f} GiB, but the smallest "
            f"worker has {limit / _GIB:.2f} GiB per thread (largest task: {task.task!r}, "
            f"{task.peak_bytes / _GIB:.2f} GiB; other results on {n_workers} worker(s): "
            f"{(task.other_bytes + plan.shared_bytes) / _GIB:.2f} GiB). Give workers more memory, {remedy}, "
            "cluster from a store instead of arrays in memory, or exclude the largest view."
        )
    return plan


def encoder_bytes(data: MultiViewData, ranks: Mapping[str, int]) -> int:
    """Bytes of the encoders of all views: a row for each column, a column for each direction."""
    return sum(8 * view.shape[1] * ranks[view.name] for view in data.views)


def estimate_held(
    data: MultiViewData,
    ranks: Mapping[str, int],
    parameters: Parameters,
    *,
    view_graphs: bool,
    views_in_tasks: bool,
) -> HeldBytes:
    """Bytes of the results of a fit; arguments as for `mscam_dask.engine.memory.plan_memory`."""
    n, c, k = data.n_samples, parameters.n_clusters, parameters.n_neighbors
    large = parameters.is_large(n)
    value = 4 if large else 8
    has_mixed_graph = view_graphs and have_view_graphs(len(data.views), n)
    # the graph of the mean distance and the graphs of the views in one
    graphs = 1 + (len(data.views) if has_mixed_graph else 0)
    symmetric_entries = 2 * k + 1
    # neighbors at tied distances in a view are kept, except for large data
    row_entries = symmetric_entries if has_mixed_graph and not large else k
    graph = 12 * n * row_entries * graphs
    laplacian = ((4 + value) * symmetric_entries * graphs + (8 if large else 0)) * n
    pairs = parameters.n_pairs(n)
    vectors = value * n * (pairs + max(5, pairs // 2) if large else pairs)
    edges = n * parameters.candidates(n)
    always = len(data.views) * 320 * (SIZES.n_scored if large else n) + 20 * 8 * n
    if large:  # partitions in single precision, and the order of the rows
        always -= (20 * 8 - (_CUTS // 2 + 4) * 4) * n
    always += 2 * encoder_bytes(data, ranks)  # in the SVD and in the ridge view
    if views_in_tasks:
        # read for two scalings and the reference graphs; large data are read whole only once
        arrays = (view.source if isinstance(view, PresentRows) else view for view in data.views)
        in_memory = sum(n_bytes(view) for view in arrays if isinstance(view, ArrayRows))
        always += (1 if large else 3) * in_memory
    blocks = (12 if large else 24 if data.is_incomplete else 16) * edges
    other = 0
    if large:  # rows of the bases; those of other data are beside what is held
        always += 4 * n * sum(ranks.values())
    if has_mixed_graph:  # the last graph, and the graphs of the views once more
        other = graph + vectors + graph * (graphs - 1) // graphs
    if not large:  # the best initialization of another setting
        other = max(other, blocks // 2 + graph + laplacian + vectors)
    return HeldBytes(
        blocks=blocks,
        graph=graph,
        laplacian=laplacian,
        vectors=vectors,
        sums=8 * edges,
        embeddings=len(data.views) * 4 * n * c,
        always=always,
        other=other,
        has_mixed_graph=has_mixed_graph,
    )


def graph_tasks(
    data: MultiViewData, ranks: Mapping[str, int], parameters: Parameters, held: HeldBytes
) -> list[TaskMemory]:
    """Peak memory of the tasks on graphs: candidate neighbors, graph, eigenvectors, spectral cuts."""
    if parameters.is_large(data.n_samples):
        return _blocked_graph_tasks(data, ranks, parameters, held)
    n, c, k = data.n_samples, parameters.n_clusters, parameters.n_neighbors
    rank = sum(ranks.values())
    n_candidates = parameters.candidates(n)
    rows = max(stop - start for start, stop in row_ranges(n))
    search = _SEARCH_BYTES + 60 * rows * n_candidates
    # the Laplacian, a reordered copy and its filter, and five blocks of 3c columns
    spectrum = held.graph + held.vectors + 5 * held.laplacian // 2 + 15 * held.vectors // 2
    # neighbors of every row, those of a large cluster during assembly, and the transpose of the graph
    limit = held.blocks + 48 * n * k + 4 * n * rank + _SEARCH_BYTES
    if data.is_incomplete:
        # the joint embedding with its weights, its factors in double precision, and distances
        own = 4 * n * rank + 2 * 8 * n * (rank + 2 * len(ranks))
        search += own + max(_INCOMPLETE_BYTES, 6 * 8 * MIN_ROWS * n)
        limit += own + min(8 * _INCOMPLETE_BYTES, 5 * 8 * n * n)
    other_at_end = held.always + held.graph + held.vectors
    of_view = []
    if held.has_mixed_graph:
        ties = min(SIZES.max_ties * k, n - 1)
        whole = (4 + 8) * n * max(ranks.values())  # ties are searched again in double precision
        peak = whole + _SEARCH_BYTES + 60 * n * ties
        of_view = [
            TaskMemory(
                "graph of one view", peak, held.during_initialization + held.graph_and_spectrum
            )
        ]
        # only the neighbors; every worker has the discriminants of all views
        columns = sum(min(c - 1, own) for own in ranks.values())
        neighbors = held.blocks * (k + 1) // n_candidates
        peak = _SEARCH_BYTES + 60 * rows * (k + 1) + 4 * n * columns
        of_view.append(
            TaskMemory("neighbors by learned metrics", peak, held.during_initialization + neighbors)
        )
    return [
        *of_view,
        TaskMemory("candidates", search, held.during_initialization),
        TaskMemory("graph spectrum", spectrum, held.during_initialization),
        TaskMemory(
            "graph",
            40 * n * k + 32 * n,
            held.during_iteration + held.laplacian + held.vectors + held.sums,
        ),
        TaskMemory("partition graph", limit, other_at_end),
        _scoring_task(n, data, parameters, held),
        TaskMemory(
            "cuts",
            3 * held.vectors + 8 * n * (2 * c + 28),
            held.during_initialization + held.graph_and_spectrum,
        ),
    ]


def _scoring_task(
    n_scored: int, data: MultiViewData, parameters: Parameters, held: HeldBytes
) -> TaskMemory:
    """Memory of scoring: log-likelihoods of each cut by groups of views, and one sum."""
    evidence = 4 * min(parameters.n_clusters * n_scored, MAX_EVIDENCE_ENTRIES)
    peak = (_CUTS * min(len(data.views), MAX_SCORE_TASKS) + 3) * evidence
    if n_scored < data.n_samples:
        peak += 4 * _CUTS * data.n_samples
    return TaskMemory("scoring cuts", peak, held.during_initialization + held.graph_and_spectrum)


def _blocked_graph_tasks(
    data: MultiViewData, ranks: Mapping[str, int], parameters: Parameters, held: HeldBytes
) -> list[TaskMemory]:
    """Peak memory of the tasks on blocks of rows of large data.

    A task may read rows of every other block, of one view at a time: the order of the rows makes them
    few, but nothing is known before the data are read.
    """
    n, c, k = data.n_samples, parameters.n_clusters, parameters.n_neighbors
    rows, widest = most_rows(n), max(ranks.values())
    columns = sum(ranks.values())
    if held.has_mixed_graph:  # and the discriminants
        columns += sum(min(c - 1, own) for own in ranks.values())
    n_candidates = parameters.candidates(n)
    own_laplacian = held.laplacian // n * rows
    sampled = 4 * columns * (_TRAINING_SHARE * n + rows)
    # points of the searched cells as sent and together; the order of all rows
    search = 2 * 4 * columns * min(n, _SEARCHED_BLOCKS * rows) + 8 * n
    search += _SEARCH_BYTES + 60 * rows * n_candidates
    read = min(n, (2 * k + 1) * rows)
    spectrum = held.vectors // n * (n + read + 5 * rows) + own_laplacian
    coarse = 6 * 8 * MOST_AGGREGATES**2 + 4 * n
    pool = 2 * 4 * columns * min(n, c * 4096, 2**24 // columns + c * (k + 2))
    held_for_graph = held.during_iteration + held.vectors + held.sums
    held_for_sums = held_for_graph + held.laplacian
    if parameters.model == "mscan":  # which solves again for another λ
        held_for_graph = held_for_sums
    return [
        TaskMemory("IVF cells", int(3 * sampled), held.during_initialization),
        # bases before, in pieces and after
        TaskMemory(
            "order of rows",
            3 * 4 * rows * widest + 16 * n,
            held.always + 2 * 4 * n * sum(ranks.values()),
        ),
        TaskMemory("candidates", search, held.during_initialization),
        TaskMemory("graph", 60 * n + 80 * rows * k, held_for_graph),
        TaskMemory(
            "graph spectrum",
            max(spectrum, coarse),
            held.during_initialization + held.graph_and_spectrum,
        ),
        TaskMemory(
            "projected distances",
            (FAN_IN + 1) * held.embeddings // max(FAN_IN, len(data.views))
            + 24 * rows * n_candidates,
            held_for_sums,
        ),
        TaskMemory(
            "partition graph",
            pool + _SEARCH_BYTES + 16 * n + 60 * rows * n_candidates,
            held.always + held.blocks + 2 * held.graph,
        ),
        _scoring_task(SIZES.n_scored, data, parameters, held),
        TaskMemory(
            "cuts",
            8 * 8 * min(n, SIZES.n_cut + 4 * c) * 2 * c + 8 * n * (_CUTS // 2 + 3),
            held.during_initialization + held.graph_and_spectrum,
        ),
    ]


def view_tasks(
    shape: tuple[int, int], view_type: str, rank: int, parameters: Parameters, held: HeldBytes
) -> list[TaskMemory]:
    """Peak memory of the tasks on one view: SVD, reference graphs, ADMM."""
    n, d = shape
    c = parameters.n_clusters
    n_scored = SIZES.n_scored if parameters.is_large(n) else n
    stream = min(_STREAM_BYTES, 4 * 8 * n * d) + min(KEPT_CHUNK_BYTES, 8 * n * d)
    large = parameters.is_large(n)
    rows = most_rows(n) if large else n
    at_once = view_type != "features" or d > MAX_EXACT_GRAM  # not by blocks of rows
    basis = 4 * (n if at_once else rows) * rank
    # for large data, SVD and reference graphs of the sample each begin with drawing it
    drawn = 8 * n_scored * (d if view_type == "features" else n_scored) if large else 0
    factor = max(basis, drawn) + stream
    if view_type == "features" and large and min(shape) > MAX_EXACT_GRAM:
        factor += 4 * 8 * d * (rank + N_OVERSAMPLES)
    elif view_type == "features" and d <= n:
        factor += (FAN_IN + 4 if large else 4) * 8 * d * d
    elif view_type != "features" and large and n > MAX_EXACT_GRAM:
        directions = max(5 * 8 * n * rank, 3 * 8 * RANK_SAMPLE**2)
        factor = 8 * n * n + max(basis + directions, drawn) + stream
    else:
        factor += 3 * 8 * n * n + 8 * n * min(shape)
        if view_type == "features":
            # loadings, once more times gains; of the above the Gram matrix and its vectors remain
            factor += 2 * 8 * n * (d - n)
    scored = 4 * n_scored * d if view_type == "features" else 3 * 8 * n_scored * n_scored
    reference_graphs = drawn + scored + 600 * n_scored + stream + _SEARCH_BYTES
    subspace = 4 * n * (rank + 2 * c)
    reduced = 6 * 8 * (rank + 2 * c) ** 2
    solve = held.laplacian + held.vectors + subspace + 2 * 4 * n * 64 + 3 * 8 * n * 2 * c + reduced
    if (
        large and parameters.model == "mscam"
    ):  # some blocks in which neighbors are, and their rows again
        read = min(n, (FAN_IN + 1) * rows)
        own = held.laplacian // n * rows + 4 * 8 * rows * (rank + 2 * c)
        solve = (2 * subspace + held.vectors) // n * read + own + reduced * _BLOCKS_OF_SUMS
    blocks = 2 if view_type == "features" else 4  # as read and as checked; another one, transposed
    return [
        TaskMemory("validate {view}", blocks * min(BLOCK_BYTES, 8 * n * d)),
        TaskMemory("prepare {view}", factor, held.always),
        TaskMemory("compare settings of {view}", _comparison_bytes(shape, view_type), held.always),
        TaskMemory(
            "reference graphs of {view}",
            reference_graphs,
            held.during_initialization + held.graph_and_spectrum,
        ),
        TaskMemory("ADMM of view {view}", solve, held.during_iteration),
    ]


def _comparison_bytes(shape: tuple[int, int], view_type: str) -> int:
    """Peak memory of comparing view settings on a sample: rows, basis, and its SVD or a search.

    A dense neighbor graph of the sample takes more if there are few columns; with many views several
    and their sum, of fewer rows.
    """
    m = min(shape[0], SIZES.n_compared)
    d = shape[1] if view_type == "features" else m
    rank = min(m, d)
    rows = 8 * m * d * (1 if view_type == "features" else 2)
    basis = 8 * rank * (m + d)
    decomposed = 5 * 8 * rank * rank
    search = 12 * m * rank + _SEARCH_BYTES
    graphs = 4 * max(3 * m * m // 2, 9 * min(m, SIZES.n_coarsely_compared) ** 2)
    return max(rows + basis + max(decomposed, search), graphs)
