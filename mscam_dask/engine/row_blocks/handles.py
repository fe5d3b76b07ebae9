"""Ranges of blocks of rows, and groups of handles of data in such blocks."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mscam_dask.engine.executors.base import Handle, HandleGroup
from mscam_dask.linalg.block_eigensolver import Ranges

__all__ = [
    "BlockedCandidates",
    "BlockedEmbedding",
    "BlockedGraph",
    "BlockedSpectrum",
    "BlockedView",
    "RowOrder",
    "block_ranges",
    "most_rows",
]

# Rows of a block; with more blocks than enough for most clusters, up to ten times as many.
_BLOCK_ROWS = 6144

_ENOUGH_BLOCKS = 96

_MAX_ROWS = 65_536


def block_ranges(n_samples: int) -> Ranges:
    """Blocks of rows of large data, of equal size; they depend on n only."""
    wanted = max(1, min(_ENOUGH_BLOCKS, n_samples // _BLOCK_ROWS))
    n_blocks = max(wanted, -(-n_samples // _MAX_ROWS))
    edges = [n_samples * block // n_blocks for block in range(n_blocks + 1)]
    return tuple(itertools.pairwise(edges))


def most_rows(n_samples: int) -> int:
    """Upper bound of the rows of a block, which does not fall where there are more samples."""
    return min(n_samples, max(2 * _BLOCK_ROWS, min(_MAX_ROWS, -(-n_samples // _ENOUGH_BLOCKS))))


@dataclasses.dataclass(frozen=True)
class BlockedView(HandleGroup):
    """Ridge view, or discriminants, by blocks of rows; `empty` is the same without rows."""

    rows: tuple[Handle, ...]
    empty: Handle

    def handles(self) -> Sequence[Handle]:
        """Return all handles."""
        return (*self.rows, self.empty)


@dataclasses.dataclass(frozen=True)
class RowOrder(HandleGroup):
    """Order of the rows by cells: sample at each position, and position of each sample."""

    ranges: Ranges
    order: Handle
    positions: Handle

    def handles(self) -> Sequence[Handle]:
        """Return all handles."""
        return (self.order, self.positions)


@dataclasses.dataclass(frozen=True)
class BlockedCandidates(HandleGroup):
    """Candidate neighbors by blocks of rows, and the blocks in which those of each block are."""

    order: RowOrder
    rows: tuple[Handle, ...]
    links: tuple[tuple[int, ...], ...]

    def __iter__(self) -> Iterator[Handle]:
        return iter(self.handles())

    def handles(self) -> Sequence[Handle]:
        """Return all handles."""
        return (*self.rows, *self.order.handles())


@dataclasses.dataclass(frozen=True)
class BlockedGraph(HandleGroup):
    """Consensus graph by blocks of rows, and the blocks with neighbors of each block."""

    ranges: Ranges
    rows: tuple[Handle, ...]
    links: tuple[tuple[int, ...], ...]
    components: Handle
    n_components: int

    def handles(self) -> Sequence[Handle]:
        """Return all handles."""
        return (*self.rows, self.components)

    @property
    def sources(self) -> list[list[int]]:
        """For each block, the blocks with edges into it."""
        return [
            [other for other, links in enumerate(self.links) if block in links]
            for block in range(len(self.links))
        ]

    @property
    def halos(self) -> list[list[int]]:
        """For each block, the blocks with columns of its rows of the Laplacian."""
        both = zip(self.links, self.sources, strict=True)
        return [sorted({block, *links, *into}) for block, (links, into) in enumerate(both)]


@dataclasses.dataclass(frozen=True)
class BlockedSpectrum(HandleGroup):
    """Laplacian and bottom eigenvectors by blocks of rows; without `laplacian` only start vectors."""

    laplacian: tuple[Handle, ...]
    vectors: tuple[Handle, ...]
    halos: tuple[tuple[int, ...], ...]
    values: NDArray[np.float64]
    converged: bool

    def handles(self) -> Sequence[Handle]:
        """Return all handles."""
        return (*self.laplacian, *self.vectors)


@dataclasses.dataclass(frozen=True)
class BlockedEmbedding(HandleGroup):
    """Embedding of a view by blocks of rows, its record, and scaled rows if the A-step uses others."""

    rows: tuple[Handle, ...]
    record: Handle
    scaled: tuple[Handle, ...] = ()

    def handles(self) -> Sequence[Handle]:
        """Return all handles."""
        return (*self.rows, self.record, *self.scaled)


def taken_handles(handles: Sequence[Handle], numbers: Sequence[int]) -> list[Handle]:
    return [handles[number] for number in numbers]
