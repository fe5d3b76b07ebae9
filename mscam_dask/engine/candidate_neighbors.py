"""Candidate neighbors by blocks of rows: only they can have an edge in the consensus graph."""

from __future__ import annotations

from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.row_blocks import BlockedCandidates, candidates_in_order
from mscam_dask.engine.tasks import neighbors as neighbor_tasks
from mscam_dask.types.parameters import Parameters

__all__ = ["candidate_blocks", "release_candidates", "row_ranges"]

_SMALLEST_BLOCK = 512
_LARGEST_BLOCK = 8192
_BLOCKS = 8


def row_ranges(n_samples: int) -> list[tuple[int, int]]:
    """Blocks of rows for the A-step, which depend on n only, never on the number of workers."""
    size = min(_LARGEST_BLOCK, max(_SMALLEST_BLOCK, -(-n_samples // _BLOCKS)))
    return [(start, min(start + size, n_samples)) for start in range(0, n_samples, size)]


def candidate_blocks(
    views: list[Handle],
    prepared_blocks: tuple[Handle, ...] | BlockedCandidates,
    n_samples: int,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
) -> tuple[Handle, ...] | BlockedCandidates:
    """Candidate neighbors of every sample in the joint ridge embedding, one handle per block of rows.

    For large data they are approximate: the search is limited to cells of the embedding. The rows stay
    in the order of `prepared_blocks`, the candidate neighbors of the setting (empty before there are any).
    """
    n_candidates = parameters.candidates(n_samples)
    if isinstance(prepared_blocks, BlockedCandidates):
        return candidates_in_order(
            views, prepared_blocks.order, n_candidates, parameters.seed, executor, key=key
        )
    return tuple(
        executor.submit(
            neighbor_tasks.candidates,
            views,
            n_candidates,
            start,
            stop,
            key=f"candidate_neighbors/{key}/{start}",
        )
        for start, stop in row_ranges(n_samples)
    )


def release_candidates(blocks: tuple[Handle, ...] | BlockedCandidates, executor: Executor) -> None:
    """Release candidate neighbors by other distances; the order of the rows stays."""
    executor.release(blocks.rows if isinstance(blocks, BlockedCandidates) else blocks)
