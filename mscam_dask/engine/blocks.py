"""Blocks of rows: what a fit keeps on the workers.

The rows of all views, graphs and eigenvectors are in the same blocks. Data with exhaustive neighbor
search are one block in the order of the data. Larger data are several blocks, in the order of the
cells of the joint embedding, in which neighbors are in few other blocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mscam_dask.engine.executors.base import Handle
from mscam_dask.engine.stage import Stage
from mscam_dask.linalg.block_eigensolver import Ranges

# Rows of a block; with more blocks than enough for most clusters, up to ten times as many.
_BLOCK_ROWS = 6144
_ENOUGH_BLOCKS = 96
_MAX_ROWS = 65_536

# Groups of blocks between which rows are exchanged: as many pieces of each block.
_MAX_PIECES = 16


def block_ranges(n_samples: int, *, is_large: bool) -> Ranges:
    """Start and stop of each block of rows, several of large data; they depend on n only."""
    n_blocks = 1
    if is_large:
        wanted = max(2, min(_ENOUGH_BLOCKS, n_samples // _BLOCK_ROWS))
        n_blocks = max(wanted, -(-n_samples // _MAX_ROWS))
    edges = [n_samples * block // n_blocks for block in range(n_blocks + 1)]
    return tuple(itertools.pairwise(edges))


@dataclass(frozen=True)
class View:
    """Ridge view, or linear discriminants, by blocks of rows; `empty` needs no rows."""

    rows: tuple[Handle, ...]
    empty: Handle


@dataclass(frozen=True)
class RowOrder:
    """Order of the rows: sample at each position, and position of each sample, both (n,)."""

    ranges: Ranges
    order: Handle
    positions: Handle
    known: Handle | None = None

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return self.ranges[-1][1]

    @property
    def is_whole(self) -> bool:
        """Whether all rows are in one block."""
        return len(self.ranges) == 1


@dataclass(frozen=True)
class Candidates:
    """Candidate edges of consecutive parts of the rows, and the blocks with the rows of each part."""

    order: RowOrder
    parts: tuple[Handle, ...]
    links: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Graph:
    """Consensus graph: rows of each block, the blocks with their neighbors, connected components."""

    ranges: Ranges
    rows: tuple[Handle, ...]
    links: tuple[tuple[int, ...], ...]
    components: Handle
    n_components: int

    @property
    def sources(self) -> list[list[int]]:
        """For each block, the blocks with edges into it."""
        return [
            [other for other, links in enumerate(self.links) if block in links]
            for block in range(len(self.links))
        ]

    @property
    def halos(self) -> tuple[tuple[int, ...], ...]:
        """For each block, the blocks with columns of its rows of the Laplacian."""
        both = zip(self.links, self.sources, strict=True)
        return tuple(
            tuple(sorted({block, *links, *into})) for block, (links, into) in enumerate(both)
        )


@dataclass(frozen=True)
class Spectrum:
    """Rows of the Laplacian and of its bottom eigenvectors, and the eigenvalues."""

    laplacian: tuple[Handle, ...]
    vectors: tuple[Handle, ...]
    halos: tuple[tuple[int, ...], ...]
    values: Any
    converged: Any


def taken(handles: Sequence[Handle], numbers: Sequence[int]) -> list[Handle]:
    """Return the handles with these numbers."""
    return [handles[number] for number in numbers]


def group_edges(ranges: Ranges) -> tuple[int, ...]:
    """First rows of groups of blocks, and the end."""
    together = -(-len(ranges) // _MAX_PIECES)
    return (*(start for start, _ in ranges[::together]), ranges[-1][1])


def exchanged(
    stage: Stage,
    pieces: Sequence[Handle],
    join: Callable[..., Any],
    arguments: tuple[Handle, ...],
    ranges: Ranges,
) -> list[Handle]:
    """Submit the blocks of rows in a new order from the pieces of each block."""
    together = -(-len(ranges) // _MAX_PIECES)
    joined: list[Handle] = []
    for group in range(-(-len(ranges) // together)):
        sent = [stage.item(piece, group) for piece in pieces]
        joined += [
            stage.submit(join, sent, *arguments, start, stop)
            for start, stop in ranges[group * together : (group + 1) * together]
        ]
    return joined
