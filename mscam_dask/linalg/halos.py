"""Rows in blocks: the rows of other blocks that a block reads, and the exchange of rows between blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ranges = tuple[tuple[int, int], ...]
"""Start and stop of each block of rows."""


def blocks_of(rows: NDArray[Any], ranges: Ranges) -> tuple[int, ...]:
    """Blocks in which some rows are, ascending; rows −1 are absent."""
    starts = np.array([start for start, _ in ranges])
    found = np.zeros(len(ranges) + 1, dtype=np.bool_)
    found[np.searchsorted(starts, rows.ravel(), side="right")] = True
    return tuple(np.flatnonzero(found[1:]).tolist())


@dataclasses.dataclass(frozen=True, slots=True)
class Halo:
    """Rows of several blocks that one block reads."""

    blocks: tuple[int, ...]  # blocks with such rows, ascending
    rows: tuple[NDArray[np.int32], ...]  # rows of each of these, from its start, ascending

    def gather(self, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Rows of arrays, one array for each of `blocks`, below each other."""
        # each part is copied to its place: np.concatenate would hold all rows twice
        ends = np.cumsum([0, *map(len, self.rows)])
        gathered = np.empty((ends[-1], *parts[0].shape[1:]), dtype=parts[0].dtype)
        for part, rows, first in zip(parts, self.rows, ends[:-1], strict=True):
            gathered[first : first + len(rows)] = part[rows]
        return gathered


def halo_of(columns: NDArray[Any], ranges: Ranges) -> tuple[Halo, NDArray[np.int32]]:
    """Halo of the rows `columns` (−1 is absent), and their positions in the gathered rows."""
    n = ranges[-1][1]
    wanted = np.zeros(n + 1, dtype=np.bool_)  # the last entry: absent
    wanted[columns] = True
    wanted[n] = False
    rows = np.flatnonzero(wanted).astype(np.int32)
    place = np.full(n + 1, -1, dtype=np.int32)
    place[rows] = np.arange(len(rows), dtype=np.int32)
    edges = np.searchsorted(rows, [start for start, _ in ranges] + [n])
    blocks = tuple(np.flatnonzero(np.diff(edges)).tolist())
    parts = tuple(rows[edges[b] : edges[b + 1]] - np.int32(ranges[b][0]) for b in blocks)
    return Halo(blocks, parts), place[columns]


@dataclasses.dataclass(frozen=True, slots=True)
class RowPieces:
    """Some rows of several arrays, dense or sparse, on their way to another block."""

    destinations: NDArray[np.int32]  # (m,) row of each among all rows of the new order
    arrays: tuple[Any, ...]  # (m, …) each


def split_rows(
    arrays: Sequence[Any], destinations: NDArray[np.int32], edges: Sequence[int]
) -> list[RowPieces]:
    """Rows of arrays by destination: piece g has those from ``edges[g]`` up to ``edges[g + 1]``."""
    group = np.searchsorted(edges, destinations, side="right") - 1
    pieces = []
    for number in range(len(edges) - 1):
        mine = np.flatnonzero(group == number)
        pieces.append(RowPieces(destinations[mine], tuple(array[mine] for array in arrays)))
    return pieces


def join_rows(pieces: Sequence[RowPieces], start: int, stop: int) -> tuple[NDArray[Any], ...]:
    """Rows start … stop − 1 of the new order, put together from pieces that have all of them."""
    first = pieces[0].arrays
    joined = tuple(np.empty((stop - start, *one.shape[1:]), dtype=one.dtype) for one in first)
    for piece in pieces:
        mine = (piece.destinations >= start) & (piece.destinations < stop)
        here = piece.destinations[mine] - start
        for target, array in zip(joined, piece.arrays, strict=True):
            target[here] = array[mine]
    return joined
