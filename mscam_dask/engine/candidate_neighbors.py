"""Candidate neighbors by blocks of rows: only they can have an edge in the consensus graph."""

from __future__ import annotations

from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.row_blocks.candidates import candidates_in_order
from mscam_dask.engine.row_blocks.handles import BlockedCandidates, RowOrder
from mscam_dask.engine.tasks import neighbors as neighbor_tasks
from mscam_dask.types.parameters import Parameters

__all__ = ["candidate_blocks", "release_candidates", "row_ranges"]

_MIN_BLOCK = 512
_MAX_BLOCK = 8192
_BLOCKS = 8

# Number of views of which one task searches a whole block of rows, and most tasks of a block.
_VIEWS_TOGETHER = 8
_MAX_PARTS = 16


def row_ranges(n_samples: int) -> list[tuple[int, int]]:
    """Blocks of rows for the A-step, which depend on n only, never on the number of workers."""
    size = min(_MAX_BLOCK, max(_MIN_BLOCK, -(-n_samples // _BLOCKS)))
    return [(start, min(start + size, n_samples)) for start in range(0, n_samples, size)]


def candidate_blocks(
    views: list[Handle],
    n_samples: int,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
    order: RowOrder | None = None,
) -> tuple[Handle, ...] | BlockedCandidates:
    """Candidate neighbors of every sample in the joint ridge embedding, one handle per block of rows.

    With an `order` of the rows, that of large data, they are approximate: the search is limited to cells
    of the embedding. The rows stay in this order.
    """
    n_candidates = parameters.candidates(n_samples)
    if order is not None:
        return candidates_in_order(views, order, n_candidates, parameters.seed, executor, key=key)
    return tuple(
        _exact_block(views, n_candidates, start, stop, executor, key=key)
        for start, stop in row_ranges(n_samples)
    )


def release_candidates(blocks: tuple[Handle, ...] | BlockedCandidates, executor: Executor) -> None:
    """Release candidate neighbors by other distances; the order of the rows stays."""
    executor.release(blocks.rows if isinstance(blocks, BlockedCandidates) else blocks)


def _exact_block(
    views: list[Handle],
    n_candidates: int,
    start: int,
    stop: int,
    executor: Executor,
    *,
    key: str,
) -> Handle:
    """Candidate neighbors of one block of rows, by a task for every eight views, up to sixteen tasks."""
    size = -(-(stop - start) // min(_MAX_PARTS, -(-len(views) // _VIEWS_TOGETHER)))
    parts = [
        executor.submit(
            neighbor_tasks.candidates,
            views,
            n_candidates,
            first,
            min(first + size, stop),
            key=f"candidate_neighbors/{key}/{first}",
        )
        for first in range(start, stop, size)
    ]
    if len(parts) == 1:
        return parts[0]
    block = executor.submit(
        neighbor_tasks.joined_candidates, parts, key=f"join_candidates/{key}/{start}"
    )
    executor.release(parts)
    return block
