"""Tasks of a fit and what they keep on the workers: a stage submits and names tasks, data are in blocks of rows.

A result lives as long as something refers to its handle. A function that submits tasks therefore keeps
the handles that it returns, and the results of the others are freed when it ends.

The rows of all views, graphs and eigenvectors are in the same blocks. Data with exhaustive neighbor
search are one block in the order of the data. Larger data are several blocks, in the order of the
cells of the joint embedding, in which neighbors are in few other blocks.
"""

from __future__ import annotations

import itertools
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.linalg.halos import Ranges

FAN_IN = 16
"""Results that one task adds up."""


class Stage:
    """Tasks with one name: their keys are "function/name/part"."""

    def __init__(self, executor: Executor, name: str) -> None:
        self.executor = executor
        self.name = name
        self._counts: Counter[str] = Counter()

    def sub(self, name: object) -> Stage:
        """Return a stage within this one."""
        return Stage(self.executor, f"{self.name}/{name}")

    def submit(
        self, function: Callable[..., Any], *args: Any, part: str = "", kind: str = ""
    ) -> Handle:
        """Submit a task. `kind` replaces the name of the function, and `part` its number, in the key."""
        kind = kind or function.__name__
        if not part:
            part = str(self._counts[kind])
            self._counts[kind] += 1
        return self.executor.submit(function, *args, key=f"{kind}/{self.name}/{part}")

    def map(self, function: Callable[..., Any], *columns: Iterable[Any]) -> tuple[Handle, ...]:
        """Submit a task for each row of some columns of arguments."""
        return tuple(self.submit(function, *row) for row in zip(*columns, strict=True))

    def item(self, handle: Handle, index: Any) -> Handle:
        """Submit the selection of an item of a result."""
        return self.submit(operator.getitem, handle, index, kind="item")

    def attribute(self, handle: Handle, name: str) -> Handle:
        """Submit the selection of an attribute of a result."""
        return self.submit(getattr, handle, name, kind=name)

    def gather(self, *groups: Sequence[Handle]) -> list[list[Any]]:
        """Return the results of several groups of handles, for which the driver waits once."""
        gathered = iter(self.executor.gather([handle for group in groups for handle in group]))
        return [list(itertools.islice(gathered, len(group))) for group in groups]

    def value(self, handle: Handle) -> Any:
        """Return the result of a task."""
        return self.executor.gather([handle])[0]

    def tree(
        self, function: Callable[[list[Any]], Any], handles: Sequence[Handle], *, n_left: int = 1
    ) -> list[Handle]:
        """Submit merges of consecutive results, in their order, until at most `n_left` are left."""
        handles = list(handles)
        while len(handles) > n_left:
            handles = [
                self.submit(function, handles[first : first + FAN_IN])
                for first in range(0, len(handles), FAN_IN)
            ]
        return handles


# blocks of rows -------------------------------------------------------------------------------

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
class GraphSpectrum:
    """Rows of the Laplacian and of its bottom eigenvectors, and the eigenvalues."""

    laplacian: tuple[Handle, ...]
    vectors: tuple[Handle, ...]
    halos: tuple[tuple[int, ...], ...]
    values: Any
    converged: Any

    def without_laplacian(self) -> GraphSpectrum:
        """Return the eigenvectors, from which the eigensolver starts."""
        return replace(self, laplacian=())


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
