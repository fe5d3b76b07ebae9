"""Memory estimate of a fit, computed from shapes before it starts: block sizes times numbers of live blocks.

A block is a part of an array that one task holds, for example some rows of the eigenvectors. The
estimate is an upper bound, because ranks are unknown before the views are read.
"""

from __future__ import annotations

import dataclasses
import warnings

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import ArrayRows
from mscam_dask.engine.blocks import FAN_IN, block_ranges
from mscam_dask.engine.executors._process import BASE_BYTES, n_bytes
from mscam_dask.engine.executors.base import Executor
from mscam_dask.engine.prepare import is_large_incomplete
from mscam_dask.engine.select import have_view_graphs
from mscam_dask.errors import MemoryPlanError, MemoryPlanWarning
from mscam_dask.solvers.ridge_view import MAX_EXACT_GRAM
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.rules import SIZES

_MIB, _GIB = 2**20, 2.0**30

# Rows in transfer between workers: a message of Dask has up to 50 MB and is held three times.
_TRANSFER_BYTES = 3 * 50 * 10**6


@dataclasses.dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Upper bounds of the memory of one fit, in bytes."""

    tasks: dict[str, int]  # peak of each kind of task, the largest first
    spread_bytes: int  # results between tasks, which the workers divide among them
    shared_bytes: int  # results that every worker may hold: bases of all views; 0 for large data
    moved_bytes: int  # rows that workers send to each other

    @property
    def held_bytes(self) -> int:
        """Results on all workers together, with views that are sent inside tasks."""
        return self.shared_bytes + self.spread_bytes

    def worker_bytes(self, n_workers: int) -> int:
        """Memory of one worker with one thread that keeps its share of all results in memory."""
        copied = 0
        if not self.shared_bytes and n_workers > 1:  # rows of others, as many as its own
            copied = max(0, self.moved_bytes // n_workers - _TRANSFER_BYTES)
        return self.spilling_worker_bytes + copied - (-self.spread_bytes // n_workers)

    @property
    def spilling_worker_bytes(self) -> int:
        """Memory of one worker with one thread that spills all results to its disk."""
        in_transfer = min(self.moved_bytes, _TRANSFER_BYTES)
        return BASE_BYTES + self.shared_bytes + in_transfer + max(self.tasks.values())

    def may_spill(self, limit_bytes: int, kept_bytes: int | None) -> bool:
        """Whether a task fits into `limit_bytes`, beside `kept_bytes` of results that are not spilled."""
        return kept_bytes is not None and kept_bytes + self.spilling_worker_bytes <= limit_bytes


def plan_memory(
    data: MultiViewData,
    parameters: Parameters,
    *,
    view_graphs: bool = False,
    views_in_tasks: bool = False,
) -> MemoryPlan:
    """Bound the memory of every kind of task."""
    n, c, k, views = data.n_samples, parameters.n_clusters, parameters.n_neighbors, data.views
    large, incomplete, n_views = parameters.is_large(n), data.is_incomplete, len(views)
    truncated = large or is_large_incomplete(data)
    ranks = [min(*view.shape, SIZES.max_rank if truncated else n) for view in views]
    graphs = 1 + (n_views if view_graphs and have_view_graphs(n_views, n) else 0)
    n_scored = min(n, SIZES.n_scored) if large else n
    # blocks that a task merges, rows of a block, and rows of a search
    blocks = block_ranges(n, is_large=large)
    fan, rows = min(FAN_IN, len(blocks)), max(stop - start for start, stop in blocks)
    searched = rows if large else min(n, 512 + n // 8)

    # bytes of a row, by kind of block
    value = 4 if large else 8
    points = 4 * sum(ranks)
    edges = (2 * value + 8 * incomplete) * parameters.candidates(n)
    graph = 12 * graphs * (k if large or graphs == 1 else 2 * k + 1)
    laplacian = (4 + value) * graphs * (2 * k + 1) + 8
    vectors = value * parameters.n_pairs(n) * 3 // 2
    embeddings = 4 * c * n_views

    # results: the best initialization beside two others, or of large data graphs of views beside another
    other = edges + 2 * (graph + laplacian + vectors)
    if large:
        other = 2 * graph + vectors if graphs > 1 else 0
    results = edges + graph + laplacian + vectors + max(other, embeddings + edges) + 20 * value
    if large:  # rows of the bases, which are ordered first
        results = points + max(2 * points, results)
    # loadings in the SVD and in the ridge view (of wide views: at the end); then reference graphs
    encoders = sum(16 * view.shape[1] * rank for view, rank in zip(views, ranks, strict=True))
    n_axes, n_linked = (
        sum(min(rank, SIZES.max_rank) for rank in ranks),
        min(n_scored, SIZES.n_compared),
    )
    n_axes = min(n_axes, SIZES.max_joint_rank)
    spread = n * results + (320 * n_views + 24 * n_axes) * n_scored + encoders
    if views_in_tasks:  # for two scalings and the reference graphs; large data are read whole once
        in_memory = sum(n_bytes(view.whole) for view in views if isinstance(view.whole, ArrayRows))
        spread += (1 if large else 3) * in_memory

    # products of a block of rows with the samples; those of incomplete data are in groups
    products = max(40 * _MIB, 2304 * n) if incomplete else 32 * _MIB
    # points also in double precision, and up to 4k neighbors at tied distances
    neighbors = n * (3 * points + edges + 272 * k)
    if incomplete:  # factors of points, and distances in a cluster
        neighbors += 3 * n * points + 5 * min(64 * _MIB, 2 * n * n)
    if large:  # points of some cells, or of 4096 samples of each cluster: as sent and joined
        pooled = min(n * points, 4096 * (c + 1) * points, 64 * _MIB + c * (k + 2) * points)
        neighbors = 2 * max(min(n, 12 * rows) * points, pooled + 64 * _MIB) + 16 * n
    tasks = {
        # 60 bytes for each neighbor found
        "neighbors": products + 60 * searched * parameters.candidates(n) + neighbors,
        # all vectors, those of the halo, and five blocks of 3c; L as it is made; the aggregates
        "graph spectrum": vectors * (n + min(n, 2 * k * rows) + 6 * rows)
        + rows * (graph + (15 if large else 5) * laplacian // 2)
        + (50 * _MIB if large else 0),
        # starts on the sample, and partitions
        "cuts": 128 * c * min(n, SIZES.n_cut + 4 * c) + 144 * n,
        # all rows of the graph, votes or vectors of the walks
        "labels on the graph": n * (graph + 160),
        # points, their scores and copies, functions of cells, and distances of the linked points
        "borders": 8 * n_scored * (6 * n_axes + 10 * c) + 80 * n_axes**2 + 16 * n_linked**2,
        # embeddings of some views from all blocks
        "projected distances": 4 * c * n * min(n_views + 1, 17) + 3 * searched * edges,
    }
    m = min(n, SIZES.n_compared)
    for view, rank in zip(views, ranks, strict=True):
        name, d, is_pairs = view.name, view.shape[1], view.view_type != "features"
        read, side, h = min(8 * _MIB, 8 * n * d), n if is_pairs or d > n else d, rank + 2 * c
        compared, scored = (8 * some * (some if is_pairs else d) for some in (m, n_scored))
        # basis, Gram matrices and loadings; without a Gram matrix, products with few directions
        factor = 4 * rank * rows + (fan + 5) * 8 * side**2 + 24 * n * max(0, d - n)
        if truncated and min(n, d) > MAX_EXACT_GRAM:
            factor = 4 * rank * n + 48 * d * (rank + 16) + 8 * n * n * is_pairs
        # coordinates of the subspace, V_m and L; for blocks of rows with a halo, sums of some blocks
        solve = n * (4 * h + 48 * c + 512 + vectors + 2 * laplacian) + 56 * h * h
        if large and parameters.model == "mscam":
            solve = (
                min(n, (fan + 1) * rows) * (8 * h + vectors)
                + rows * (laplacian + 32 * h)
                + (fan + 6) * 56 * h * h
            )
        tasks |= {
            # a block of rows as read, scaled, centered and projected, and the kept chunk
            f"prepare {name}": 6 * read + factor + (scored if large else 0),
            # SVDs of the rows; votes of neighbors on all rows, on fewer of several options
            f"compare settings of {name}": max(
                4 * compared + max(40 * min(m, side) ** 2, products),
                6 * m * m,
                10 * min(n_views, 8) * min(m, SIZES.n_coarsely_compared) ** 2,
            ),
            f"reference graphs of {name}": 6 * read
            + scored * (8 if is_pairs else 5 if large else 3) // 2
            + products
            + 600 * n_scored,
            f"ADMM of view {name}": solve,
        }
    return MemoryPlan(
        tasks=dict(sorted(tasks.items(), key=lambda task: -task[1])),
        spread_bytes=spread,
        shared_bytes=0 if large else 2 * n * points,  # at most two scalings
        moved_bytes=n * (points + (vectors + embeddings if large else 0)),
    )


def check_memory(
    data: MultiViewData,
    parameters: Parameters,
    executor: Executor,
    *,
    view_graphs: bool = False,
) -> MemoryPlan:
    """Refuse a fit that does not fit in memory."""
    views_in_tasks = not executor.shares_memory
    plan = plan_memory(data, parameters, view_graphs=view_graphs, views_in_tasks=views_in_tasks)
    limit = executor.memory_limit_bytes
    n_workers = max(1, executor.n_workers)  # none if the cluster is gone
    need = plan.worker_bytes(n_workers)
    if limit is None or need <= limit:
        return plan
    is_large = parameters.is_large(data.n_samples)
    kept = executor.spill_threshold_bytes if is_large else None
    if kept is not None and plan.may_spill(limit, kept):
        warnings.warn(
            f"A worker thread needs up to {need / _GIB:.2f} GiB and has {limit / _GIB:.2f} GiB, so Dask spills "
            f"results above {kept / _GIB:.2f} GiB to the disk of the worker, and the fit takes longer. Give "
            "workers more memory, or use more workers.",
            MemoryPlanWarning,
            stacklevel=3,
        )
        return plan
    task, peak = next(iter(plan.tasks.items()))
    more = "Give workers more memory, use more workers"
    if executor.shares_memory:
        more = "Use a computer or cluster with more memory" + ", fewer threads" * (n_workers > 1)
    raise MemoryPlanError(
        f"Not enough memory: a worker thread needs up to {need / _GIB:.2f} GiB, but the smallest "
        f"worker has {limit / _GIB:.2f} GiB per thread (largest task: {task!r}, "
        f"{peak / _GIB:.2f} GiB; other results on {n_workers} worker(s): "
        f"{(plan.spread_bytes + n_workers * plan.shared_bytes) / _GIB:.2f} GiB). {more}, "
        "cluster from a store instead of arrays in memory, or exclude the largest view."
    )
