"""Memory estimate of a fit, computed before it starts.

The peak memory of a task is declared beside its function, as `<function>_bytes` of shapes. This module
adds them up with the results that workers hold between tasks (`_Held`). The estimates are upper
bounds, because ranks are unknown before the views are read.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.presence import PresentRows
from mscam_dask.data.views.sampling import cache_chunks_bytes
from mscam_dask.data.views.sources import ArrayRows, RowSource
from mscam_dask.data.views.validation import validate_bytes
from mscam_dask.engine.candidate_neighbors import candidates_bytes
from mscam_dask.engine.executors._process import BASE_BYTES, n_bytes
from mscam_dask.engine.executors.base import Executor
from mscam_dask.engine.initialize import have_view_graphs
from mscam_dask.engine.iteration_steps import score_partitions_by_views_bytes
from mscam_dask.engine.precompute import uses_sample
from mscam_dask.engine.row_blocks import tasks as block_tasks
from mscam_dask.engine.row_blocks.candidates import most_rows
from mscam_dask.engine.tasks import graph_spectrum_bytes, view_shape
from mscam_dask.errors import MemoryPlanError, MemoryPlanWarning
from mscam_dask.linalg.block_eigensolver import coarse_vectors_bytes, filter_next_bytes
from mscam_dask.linalg.incomplete import as_incomplete_blocks_bytes, nearest_sharing_bytes
from mscam_dask.linalg.ivf import ivf_search_bytes, train_centers_bytes
from mscam_dask.solvers.admm import reduced_problem_bytes
from mscam_dask.solvers.graph_update import assemble_graph_bytes, neighbor_graph_bytes
from mscam_dask.solvers.partition_graph import cluster_rows_bytes, partition_graph_bytes
from mscam_dask.solvers.partition_score import reference_graphs_bytes
from mscam_dask.solvers.preprocessing import embedding_neighbors_bytes, neighbor_votes_bytes
from mscam_dask.solvers.row_blocks import row_blocks_bytes
from mscam_dask.solvers.row_graph import graph_block_bytes, join_partitions_bytes
from mscam_dask.solvers.row_view import solve_reduced_bytes
from mscam_dask.solvers.spectral_cut import spectral_cut_bytes
from mscam_dask.solvers.view_svd import MAX_EXACT_GRAM, view_svd_bytes
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.rules import SIZES

__all__ = ["MemoryPlan", "TaskMemory", "check_memory", "plan_memory"]

_GIB = 2.0**30

# Bases in transfer between workers: a message of Dask has up to 50 MB and is held three times, as
# sent, as received and as unpacked; messages of smaller data are smaller.
_TRANSFER_BYTES = 3 * 50 * 10**6

# Partitions that are scored together: ten k-means minima and two more cuts, in each of two embeddings.
_N_CUTS = 2 * (SIZES.max_cuts + 2)


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
class _Held:
    """Bytes of the results on all workers, by kind; numbers of large data are in single precision."""

    blocks: int  # candidate edges of all rows
    graph: int  # the consensus graph
    laplacian: int  # twice the entries of the graph if no two samples are neighbors of each other
    vectors: int  # eigenvectors
    embeddings: int
    always: int  # reference graphs, partitions, encoders, views inside tasks, bases of large data
    other: int  # best initialization so far, or the last graph, while another graph is computed
    has_mixed_graph: bool  # the initial graph may be mixed with the graphs of the single views

    @property
    def during_initialization(self) -> int:
        """Bytes held while an initialization is computed, including the best one so far."""
        return self.always + self.blocks + self.other

    @property
    def with_spectrum(self) -> int:
        """Bytes held then while the spectrum of a graph is in use."""
        return self.during_initialization + self.graph + self.laplacian + self.vectors

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
        Rows that workers send to each other: bases of all views, for large data also eigenvectors
        and embeddings.
    """

    tasks: tuple[TaskMemory, ...]
    held_bytes: int
    shared_bytes: int
    moved_bytes: int

    def worker_bytes(self, n_workers: int) -> int:
        """Memory of one worker with one thread that keeps its share of all results in memory."""
        copied = self._sent_bytes
        if not self.shared_bytes and n_workers > 1:  # rows of others, as many as its own
            copied = max(copied, self.moved_bytes // n_workers)
        needed = _bytes_needed(self.deciding_task(n_workers), n_workers)
        return BASE_BYTES + self.shared_bytes + copied + needed

    @property
    def spilling_worker_bytes(self) -> int:
        """Memory of one worker with one thread that spills all results to its disk, beside its largest task."""
        largest = max(task.peak_bytes for task in self.tasks)
        return BASE_BYTES + self.shared_bytes + self._sent_bytes + largest

    def may_spill(self, limit_bytes: int, kept_bytes: int | None) -> bool:
        """Whether a worker thread has room for its largest task beside the results that it does not spill.

        Parameters
        ----------
        limit_bytes : int
            Memory of the thread.
        kept_bytes : int or None
            Results that are not spilled; None if the worker spills nothing.
        """
        return kept_bytes is not None and kept_bytes + self.spilling_worker_bytes <= limit_bytes

    @property
    def _sent_bytes(self) -> int:
        return min(self.moved_bytes, _TRANSFER_BYTES)

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
    n = data.n_samples
    large = parameters.is_large(n)
    truncated = large or uses_sample(data)
    ranks = {
        source.name: min(*source.shape, SIZES.max_rank) if truncated else min(source.shape)
        for source in data.views
    }
    rank = sum(ranks.values())
    held = _estimate_held(
        data, ranks, parameters, view_graphs=view_graphs, views_in_tasks=views_in_tasks
    )
    tasks = []
    for source in data.views:
        tasks += _view_tasks(source, ranks[source.name], parameters, held)
    tasks += _graph_tasks(data, ranks, parameters, held)
    ordered = tuple(sorted(tasks, key=lambda task: -task.peak_bytes))
    # at most two scalings are tried on all samples; rows of large data are on one worker each
    shared = 0 if large else 2 * 4 * n * rank
    # the rows of a graph are also held until it is assembled
    most = max(task.other_bytes for task in tasks) + 16 * n * parameters.n_neighbors
    moved = 4 * n * rank + (held.vectors + held.embeddings if large else 0)
    return MemoryPlan(ordered, shared + most, shared, moved)


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

    Results of large data that do not fit are spilled to the disks of the workers, if Dask's settings
    allow it, with a `MemoryPlanWarning`.

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
    if need <= limit:
        return plan
    is_one_large_fit = parameters.is_large(data.n_samples) and not whole_fits
    kept = executor.spill_threshold_bytes if is_one_large_fit else None
    if kept is not None and plan.may_spill(limit, kept):
        warnings.warn(
            f"A worker thread needs up to {need / _GIB:.2f} GiB and has {limit / _GIB:.2f} GiB, so Dask spills "
            f"results above {kept / _GIB:.2f} GiB to the disk of the worker, and the fit takes longer. Give "
            "workers more memory, or use more workers.",
            MemoryPlanWarning,
            stacklevel=3,
        )
        return plan
    task = plan.deciding_task(n_workers)
    remedy = "run fewer fits at a time" if whole_fits else "use more workers"
    raise MemoryPlanError(
        f"Not enough memory: a worker thread needs up to {need / _GIB:.2f} GiB, but the smallest "
        f"worker has {limit / _GIB:.2f} GiB per thread (largest task: {task.task!r}, "
        f"{task.peak_bytes / _GIB:.2f} GiB; other results on {n_workers} worker(s): "
        f"{(task.other_bytes + plan.shared_bytes) / _GIB:.2f} GiB). Give workers more memory, {remedy}, "
        "cluster from a store instead of arrays in memory, or exclude the largest view."
    )


def _estimate_held(
    data: MultiViewData,
    ranks: Mapping[str, int],
    parameters: Parameters,
    *,
    view_graphs: bool,
    views_in_tasks: bool,
) -> _Held:
    """Bytes of the results of a fit; arguments as for `plan_memory`."""
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
        always -= (20 * 8 - (_N_CUTS // 2 + 4) * 4) * n
    # encoders: a row for each column, a column for each direction, in the SVD and in the ridge view
    always += 2 * sum(8 * view.shape[1] * ranks[view.name] for view in data.views)
    if views_in_tasks:
        # read for two scalings and the reference graphs; large data are read whole only once
        arrays = (view.source if isinstance(view, PresentRows) else view for view in data.views)
        in_memory = sum(n_bytes(view) for view in arrays if isinstance(view, ArrayRows))
        always += (1 if large else 3) * in_memory
    blocks = (8 if large else 24 if data.is_incomplete else 16) * edges
    if large:  # rows of the bases; those of other data are beside what is held
        always += 4 * n * sum(ranks.values())
    other = 0
    if has_mixed_graph:  # the last graph, and the graphs of the views once more
        other = graph + vectors + graph * (graphs - 1) // graphs
    if not large:  # the best initialization of another setting
        other = max(other, blocks // 2 + graph + laplacian + vectors)
    return _Held(
        blocks=blocks,
        graph=graph,
        laplacian=laplacian,
        vectors=vectors,
        embeddings=len(data.views) * 4 * n * c,
        always=always,
        other=other,
        has_mixed_graph=has_mixed_graph,
    )


def _graph_tasks(
    data: MultiViewData, ranks: Mapping[str, int], parameters: Parameters, held: _Held
) -> list[TaskMemory]:
    """Peak memory of the tasks on graphs: candidate neighbors, graph, eigenvectors, spectral cuts."""
    if parameters.is_large(data.n_samples):
        return _blocked_graph_tasks(data, ranks, parameters, held)
    n, c, k = data.n_samples, parameters.n_clusters, parameters.n_neighbors
    rank = sum(ranks.values())
    n_candidates = parameters.candidates(n)
    search = candidates_bytes(n, n_candidates)
    limit = held.blocks + 4 * n * rank
    limit += partition_graph_bytes(n, k, incomplete=data.is_incomplete)
    if data.is_incomplete:
        own = as_incomplete_blocks_bytes(n, rank, len(ranks))
        search += own + nearest_sharing_bytes(n)
        limit += own
    initializing = held.during_initialization
    of_view = []
    if held.has_mixed_graph:
        peak = neighbor_graph_bytes(n, k, max(ranks.values()))
        of_view = [TaskMemory("graph of one view", peak, held.with_spectrum)]
        # only the neighbors; every worker has the discriminants of all views
        columns = sum(min(c - 1, own) for own in ranks.values())
        neighbors = held.blocks * (k + 1) // n_candidates
        peak = candidates_bytes(n, k + 1) + 4 * n * columns
        of_view.append(TaskMemory("neighbors by learned metrics", peak, initializing + neighbors))
    spectrum = graph_spectrum_bytes(held.graph, held.laplacian, held.vectors)
    iterating = held.during_iteration + held.laplacian + held.vectors + 8 * n * n_candidates
    return [
        *of_view,
        TaskMemory("candidates", search, initializing),
        TaskMemory("graph spectrum", spectrum, initializing),
        TaskMemory("graph", assemble_graph_bytes(n, k), iterating),
        TaskMemory("partition graph", limit, held.always + held.graph + held.vectors),
        _scoring_task(n, data, parameters, held),
        TaskMemory("cuts", spectral_cut_bytes(n, c, held.vectors), held.with_spectrum),
    ]


def _scoring_task(
    n_scored: int, data: MultiViewData, parameters: Parameters, held: _Held
) -> TaskMemory:
    peak = score_partitions_by_views_bytes(
        data.n_samples, n_scored, parameters.n_clusters, _N_CUTS, len(data.views)
    )
    return TaskMemory("scoring cuts", peak, held.with_spectrum)


def _blocked_graph_tasks(
    data: MultiViewData, ranks: Mapping[str, int], parameters: Parameters, held: _Held
) -> list[TaskMemory]:
    """Peak memory of the tasks on blocks of rows of large data.

    A task may read rows of every other block, of one view at a time: the order of the rows makes them
    few, but nothing is known before the data are read.
    """
    n, c, k = data.n_samples, parameters.n_clusters, parameters.n_neighbors
    rows = most_rows(n)
    rank = columns = sum(ranks.values())
    if held.has_mixed_graph:  # and the discriminants
        columns += sum(min(c - 1, own) for own in ranks.values())
    n_candidates = parameters.candidates(n)
    of_row = {"vector_bytes": held.vectors // n, "laplacian_bytes": held.laplacian // n}
    spectrum = filter_next_bytes(n, rows, min(n, (2 * k + 1) * rows), **of_row)
    initializing = held.during_initialization
    held_for_graph = held.during_iteration + held.vectors + 8 * n * n_candidates
    held_for_sums = held_for_graph + held.laplacian
    if parameters.model == "mscan":  # which solves again for another λ
        held_for_graph = held_for_sums
    return [
        TaskMemory("IVF cells", train_centers_bytes(n, rows, columns), initializing),
        TaskMemory(
            "order of rows",
            block_tasks.join_view_bytes(n, rows, max(ranks.values())),
            held.always + 2 * 4 * n * rank,
        ),
        TaskMemory("candidates", ivf_search_bytes(n, rows, columns, n_candidates), initializing),
        TaskMemory("graph", graph_block_bytes(n, rows, k), held_for_graph),
        TaskMemory("graph spectrum", max(spectrum, coarse_vectors_bytes(n)), held.with_spectrum),
        TaskMemory(
            "projected distances",
            block_tasks.projected_bytes(rows, n_candidates, len(data.views), held.embeddings),
            held_for_sums,
        ),
        TaskMemory(
            "partition graph",
            cluster_rows_bytes(n, parameters, n_rows=rows, n_columns=columns),
            held.always + held.blocks + 2 * held.graph,
        ),
        _scoring_task(SIZES.n_scored, data, parameters, held),
        TaskMemory(
            "cuts",
            join_partitions_bytes(n, min(n, SIZES.n_cut + 4 * c), c, _N_CUTS // 2),
            held.with_spectrum,
        ),
    ]


def _view_tasks(
    source: RowSource, rank: int, parameters: Parameters, held: _Held
) -> list[TaskMemory]:
    """Peak memory of the tasks on one view: SVD, reference graphs, ADMM."""
    name, shape, (n, d) = source.name, view_shape(source), source.shape
    c = parameters.n_clusters
    is_features, large = shape.view_type == "features", parameters.is_large(n)
    stream = row_blocks_bytes(n, d) + cache_chunks_bytes((n, d))
    # for large data, SVD and reference graphs of the sample each begin with drawing it
    n_scored = SIZES.n_scored if large else n
    sample = dataclasses.replace(shape, n_samples=n_scored)
    drawn = 8 * n_scored * (d if is_features else n_scored) if large else 0
    rows = most_rows(n)
    if large and is_features and d <= min(n, MAX_EXACT_GRAM):
        svd = block_tasks.factor_bytes(rows, d, rank, before_bytes=drawn)
    else:
        svd = view_svd_bytes(shape, rank, truncated=large, before_bytes=drawn)
    if large and parameters.model == "mscam":
        of_row = {"vector_bytes": held.vectors // n, "laplacian_bytes": held.laplacian // n}
        n_read = min(n, (block_tasks.FAN_IN + 1) * rows)
        solve = solve_reduced_bytes(rows, n_read, rank + 2 * c, **of_row)
    else:
        solve = held.laplacian + held.vectors + reduced_problem_bytes(n, rank, c)
    m = min(n, SIZES.n_compared)
    compared = max(
        embedding_neighbors_bytes(m, d if is_features else m),
        neighbor_votes_bytes(m, SIZES.n_coarsely_compared),
    )
    return [
        TaskMemory(f"validate {name}", validate_bytes((n, d), shape.view_type)),
        TaskMemory(f"prepare {name}", svd + stream, held.always),
        TaskMemory(f"compare settings of {name}", compared, held.always),
        TaskMemory(
            f"reference graphs of {name}",
            drawn + stream + reference_graphs_bytes(sample),
            held.with_spectrum,
        ),
        TaskMemory(f"ADMM of view {name}", solve, held.during_iteration),
    ]
