"""Candidate neighbors by blocks of rows: only they can have an edge in the consensus graph."""

from __future__ import annotations

from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.tasks import neighbors as neighbor_tasks
from mscam_dask.types.parameters import Parameters

__all__ = ["candidate_blocks", "row_ranges"]

# Number of tasks that search the cells of large data.
_SEARCHES = 16

_MIN_BLOCK = 512
_MAX_BLOCK = 8192
_BLOCKS = 8

# Number of views of which one task searches a whole block of rows.
_VIEWS_TOGETHER = 16


def row_ranges(n_samples: int) -> list[tuple[int, int]]:
    """Blocks of rows for the A-step, which depend on n only, never on the number of workers."""
    size = min(_MAX_BLOCK, max(_MIN_BLOCK, -(-n_samples // _BLOCKS)))
    return [(start, min(start + size, n_samples)) for start in range(0, n_samples, size)]


def candidate_blocks(
    views: list[Handle], n_samples: int, parameters: Parameters, executor: Executor, *, key: str
) -> tuple[Handle, ...]:
    """Candidate neighbors of every sample in the joint ridge embedding, one handle per block of rows.

    For large data they are approximate: the search is limited to cells of the embedding.
    """
    n_candidates = parameters.candidates(n_samples)
    if not parameters.is_large(n_samples):
        return tuple(
            _exact_block(views, n_candidates, start, stop, executor, key=key)
            for start, stop in row_ranges(n_samples)
        )
    cells = executor.submit(
        neighbor_tasks.cells, views, n_candidates, parameters.seed, key=f"cells/{key}"
    )
    searches = [
        executor.submit(
            neighbor_tasks.ivf_neighbors,
            views,
            cells,
            n_candidates,
            (part, _SEARCHES),
            key=f"ivf_neighbors/{key}/{part}",
        )
        for part in range(_SEARCHES)
    ]
    blocks = tuple(
        executor.submit(
            neighbor_tasks.candidates_of_rows,
            searches,
            start,
            stop,
            key=f"candidate_neighbors/{key}/{start}",
        )
        for start, stop in row_ranges(n_samples)
    )
    executor.release([cells, *searches])
    return blocks


def _exact_block(
    views: list[Handle],
    n_candidates: int,
    start: int,
    stop: int,
    executor: Executor,
    *,
    key: str,
) -> Handle:
    """Candidate neighbors of one block of rows, by a task for every sixteen views, up to eight tasks."""
    size = -(-(stop - start) // min(_BLOCKS, -(-len(views) // _VIEWS_TOGETHER)))
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
