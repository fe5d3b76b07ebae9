"""Row blocks of a view, which depend only on its shape, and sums over them: the same bits wherever rows are stored."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mscam_dask.linalg.scaling import ColumnMoments, RowTransform

RowReader = Callable[[int, int], NDArray[np.float64]]
"""read(start, stop) -> rows start up to, not including, stop of a view, (m, d) float64."""

ViewType = Literal["features", "distance", "kernel"]

Blocks = Callable[[], Iterator[tuple[int, int, NDArray[np.float64]]]]
"""Start, stop and scaled rows of each block; called once for each pass over the view."""

# Rows are streamed in blocks of at most this many bytes, the size of a chunk of a store, and of at
# most a quarter of a small view.
BLOCK_BYTES = 8 * 2**20
_MIN_BLOCK_BYTES = 2**20


@dataclasses.dataclass(frozen=True, slots=True)
class ViewShape:
    """Shape and type of a view, known before it is read."""

    n_samples: int
    n_features: int
    view_type: ViewType


def row_blocks(
    n_samples: int, n_columns: int, *, block_bytes: int | None = None
) -> Iterator[tuple[int, int]]:
    """Row ranges of at most `block_bytes` (8 MiB), which depend only on the shape."""
    quarter = 8 * n_samples * n_columns // 4
    most = min(block_bytes or BLOCK_BYTES, max(_MIN_BLOCK_BYTES, quarter))
    size = max(1, most // (8 * max(1, n_columns)))
    for start in range(0, n_samples, size):
        yield start, min(start + size, n_samples)


def mean_row(blocks: Blocks, shape: ViewShape) -> NDArray[np.float64]:
    """Mean row (d,), summed block by block in order."""
    total = np.zeros(shape.n_features)
    for _, _, rows in blocks():
        total += rows.sum(axis=0)
    return total / shape.n_samples


def moments_of_rows(read: RowReader, start: int, stop: int, n_features: int) -> ColumnMoments:
    """Moments of the columns over rows start … stop − 1, merged block by block in order."""
    return functools.reduce(
        ColumnMoments.merge,
        (
            ColumnMoments.from_rows(read(start + first, start + last))
            for first, last in row_blocks(stop - start, n_features)
        ),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class GramSum:
    """Number, mean (d,) and Gram matrix Σ (x − mean)(x − mean)ᵀ (d, d) of some scaled rows."""

    count: int
    mean: NDArray[np.float64]
    gram: NDArray[np.float64]

    def merge(self, other: GramSum) -> GramSum:
        """Sum over both sets of rows."""
        count = self.count + other.count
        gap = other.mean - self.mean
        mean = self.mean + gap * (other.count / count)
        with np.errstate(over="ignore", invalid="ignore"):  # the decomposition raises DataError
            between = np.outer(gap, gap) * (self.count / count * other.count)
            return GramSum(count, mean, self.gram + other.gram + between)


def gram_of_rows(read: RowReader, start: int, stop: int, transform: RowTransform) -> GramSum:
    """Centered Gram matrix of the scaled rows start … stop − 1."""

    def of_block(first: int, last: int) -> GramSum:
        rows = transform.apply(read(start + first, start + last))
        mean = rows.mean(axis=0)
        rows -= mean
        with np.errstate(over="ignore", invalid="ignore"):
            return GramSum(len(rows), mean, rows.T @ rows)

    blocks = row_blocks(stop - start, len(transform.offset))
    return functools.reduce(GramSum.merge, itertools.starmap(of_block, blocks))


def added(terms: Iterable[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Sum of arrays by a binary tree in their order: sums of 2^m consecutive arrays that are added again give identical bits."""
    partial: list[tuple[int, NDArray[np.float64]]] = []
    for term in terms:
        size, total = 1, term
        while partial and partial[-1][0] == size:
            total = partial.pop()[1] + total
            size *= 2
        partial.append((size, total))
    _, total = partial.pop()
    while partial:
        total = partial.pop()[1] + total
    return total
