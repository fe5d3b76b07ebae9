"""Nearest neighbors of every sample by exhaustive search, and the smallest entries of rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.linalg.distances import (
    WeightedBlocks,
    as_weighted_blocks,
    squared_distances,
    squared_distances_by_products,
    squared_distances_to,
    subtract_twice_products,
)

# Neighbors proposed beyond K + K/4 + self, so that rounding and ties at the boundary are detected.
# Rows where they still matter are searched again in float64.
_PADDING = 8

# Bytes of the products of a block of rows with all samples, to stay in the second-level cache.
_BLOCK_BYTES = 1 << 20
_MIN_ROWS = 64

# Bytes of the distances of a block of queries to other points.
_QUERY_BYTES = 16 * 2**20

Distances = Callable[[NDArray[Any], NDArray[Any]], NDArray[np.float64]]
"""Function of m points and n others, or of their numbers, that returns squared distances (m, n)."""

# A mean below this share of the largest coordinate needs no centering.
_CENTERED = 1e-3

# Number of entries that are centered at once, in double precision.
_CENTERED_ENTRIES = 1 << 17

# Relative difference of squared distances below which two samples may be equally far, and such samples
# beyond the K-th that are compared by differences.
_TIE, _MAX_TIES = 1e-9, 512

# Columns of which only the smallest entry is compared first; with more, more entries remain.
_MAX_TOGETHER = 16


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnFacts:
    """Facts of a block of columns, the same for every block of rows that is searched."""

    magnitude: float  # largest absolute coordinate times the root of the largest weight
    mean: NDArray[np.float64] | None  # (r,), None if the columns need no centering
    squared_norms: NDArray[np.float32]  # (n,) weighted, of centered rows, unit 4**exponent

    @property
    def exponent(self) -> int:
        """Exponent of the unit of length."""
        return _exponent([self.magnitude])


def column_facts(points: WeightedBlocks, some: slice = slice(None)) -> list[ColumnFacts]:
    """Facts of some blocks of columns, for `nearest_neighbors`."""
    found = []
    for columns, weights in zip(points.blocks[some], points.weights[some], strict=True):
        with np.errstate(over="ignore", invalid="ignore"):
            total = columns.sum(axis=0)
        largest = max(float(columns.max(initial=0.0)), -float(columns.min(initial=0.0)))
        is_centered = float(np.abs(total).max(initial=0.0)) <= _CENTERED * largest * len(columns)
        mean = None
        if columns.dtype != np.float32 or not is_centered:
            mean = columns.mean(axis=0, dtype=np.float64)
        magnitude = largest * float(np.sqrt(weights.max(initial=0.0)))
        centered, factors = _scaled(columns, weights, mean, _exponent([magnitude]))
        norms = np.einsum("ij,ij->i", centered, centered * factors)
        found.append(ColumnFacts(magnitude, mean, norms))
    return found


def _exponent(magnitudes: Sequence[float]) -> int:
    """Exponent of a unit of length; powers of two are exact, and nothing over- or underflows."""
    return int(np.frexp(max(magnitudes))[1])


def _scaled(
    columns: NDArray[Any],
    weights: NDArray[np.float64],
    mean: NDArray[np.float64] | None,
    exponent: int,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Centered columns and their weights in a unit; copies the columns only to center them."""
    if mean is None:
        return columns, np.ldexp(weights, -2 * exponent).astype(np.float32)
    centered = np.empty(columns.shape, dtype=np.float32)
    step = max(1, _CENTERED_ENTRIES // max(1, columns.shape[1]))
    for first in range(0, len(columns), step):  # differences in double precision
        rows = slice(first, first + step)
        centered[rows] = np.ldexp(columns[rows] - mean, -exponent)
    return centered, weights.astype(np.float32)


def nearest_neighbors(
    embedding: NDArray[np.float64] | WeightedBlocks,
    n_candidates: int,
    *,
    row_start: int = 0,
    row_stop: int | None = None,
    facts: Sequence[ColumnFacts] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """K nearest other samples of each row by exhaustive search, and squared distances (m, K).

    Matrix products in float32 propose K + K/4 + 9 neighbors; the distances of those that the error
    bound of the products leaves among the K nearest are recomputed by exact differences. A row for
    which the bound cannot exclude others is searched again in float64. Ties (duplicates) go to the lower
    index. The result depends neither on the block of rows nor on the threads.
    """
    points = as_weighted_blocks(embedding)
    n = len(points)
    stop = n if row_stop is None else row_stop
    if row_start == stop:
        return np.empty((0, n_candidates), dtype=np.int64), np.empty((0, n_candidates))
    n_asked = min(n, n_candidates + n_candidates // 4 + 1 + _PADDING)
    facts = column_facts(points) if facts is None else facts
    found, squared, error = _propose(points, facts, n_asked, row_start, stop)
    own = np.arange(row_start, stop, dtype=np.int64)
    possible = _possible(found, squared, error, n_candidates)
    result, distances = _nearest_of(points, own, possible, n_candidates)
    if n_asked < n:
        # no sample that was not proposed is nearer than the farthest proposal, but for rounding
        doubtful = np.flatnonzero(~(distances[:, -1] < squared.max(axis=1) - error))
        if doubtful.size:
            again = _search_in_float64(points, own[doubtful], n_candidates)
            result[doubtful], distances[doubtful] = again
    return result, distances


def approximate_neighbors(
    embedding: NDArray[np.float64] | WeightedBlocks, n_candidates: int
) -> NDArray[np.int64]:
    """K nearest other samples (n, K) by float32 products alone, in no particular order."""
    points = as_weighted_blocks(embedding)
    n = len(points)
    found, *_ = _propose(points, column_facts(points), n_candidates + 1, 0, n)
    is_self = found == np.arange(n)[:, None]
    is_self[~is_self.any(axis=1), -1] = True  # a sample hidden behind K + 1 duplicates
    others: NDArray[np.int64] = found[~is_self].reshape(n, n_candidates)
    return others


def _propose(
    points: WeightedBlocks,
    facts: Sequence[ColumnFacts],
    n_asked: int,
    start: int,
    stop: int,
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Nearest samples (m, n_asked) by float32 products, including the sample itself."""
    n = len(points)
    exponent = _exponent([of_block.magnitude for of_block in facts])
    blocks = [
        _scaled(*pair, of_block.mean, exponent)
        for pair, of_block in zip(points.pairs(), facts, strict=True)
    ]
    norms = np.zeros(n)
    for of_block in facts:
        norms += np.ldexp(of_block.squared_norms, 2 * (of_block.exponent - exponent))
    found = np.empty((stop - start, n_asked), dtype=np.int64)
    squared = np.empty(found.shape)
    step = max(_MIN_ROWS, _BLOCK_BYTES // (4 * n))
    norms32 = norms.astype(np.float32)
    for first in range(start, stop, step):
        rows = slice(first, min(first + step, stop))
        half = np.empty((rows.stop - first, n), dtype=np.float32)
        half[...] = norms32
        for columns, factors in blocks:
            subtract_twice_products(half, columns[rows] * factors, columns)
        here = slice(first - start, rows.stop - start)
        if n_asked < n:
            found[here] = top_k_columns(half, n_asked)
        else:
            found[here] = np.arange(n)
        squared[here] = np.take_along_axis(half, found[here], axis=1) + norms[rows, None]
    epsilon = _rounding_depth(points) * float(np.finfo(np.float32).eps)
    error = 2.0 * epsilon * (norms[start:stop] + norms.max())
    return found, np.ldexp(squared, 2 * exponent), np.ldexp(error, 2 * exponent)


def _possible(
    found: NDArray[np.int64],
    squared: NDArray[np.float64],
    error: NDArray[np.float64],
    n_candidates: int,
) -> NDArray[np.int64]:
    """Proposals that may be among the K nearest others of a row, and as many in each row."""
    order = np.argsort(squared, axis=1)
    farthest = squared[np.arange(len(found)), order[:, n_candidates]] + 2.0 * error
    beyond = np.count_nonzero(squared > farthest[:, None], axis=1)
    width = found.shape[1] - int(beyond.min())
    return np.take_along_axis(found, order[:, :width], axis=1)


def _rounding_depth(points: WeightedBlocks) -> int:
    """Roundings in a row through which a term of a float32 product passes.

    The products of a block of columns are summed before the sum is added to that of the blocks
    before it (a BLAS may do so by panels of at least 64 columns), as are the exact differences.
    """
    widest = max(columns.shape[1] for columns in points.blocks)
    by_block = 2 * widest + len(points.blocks) + points.rank // 64
    return int(min(points.rank, by_block)) + 8


def _nearest_of(
    points: WeightedBlocks,
    samples: NDArray[np.int64],
    found: NDArray[np.int64],
    n_candidates: int,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """K nearest of the proposed samples, by exact differences, without the sample itself."""
    exact = squared_distances_to(points, samples, found)
    exact[found == samples[:, None]] = np.inf
    order = np.lexsort((found, exact), axis=-1)[:, :n_candidates]
    return np.take_along_axis(found, order, axis=1), np.take_along_axis(exact, order, axis=1)


def _search_in_float64(
    points: WeightedBlocks, samples: NDArray[np.int64], n_candidates: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Neighbors of some samples by float64 products, then by differences where these do not tell.

    Samples that may be as far as the K-th are compared in the order of their indices, at most
    `_MAX_TIES` of them.
    """
    whole = points.stacked(slice(None))
    whole -= whole.mean(axis=0)
    squared_norms = np.einsum("ij,ij->i", whole, whole)
    # bound on the rounding of ‖x‖² + ‖y‖² − 2 x·y of centered points
    unit = (whole.shape[1] + 8) * np.finfo(np.float64).eps
    errors = 2.0 * unit * (squared_norms[samples] + squared_norms.max())
    n = len(whole)
    result = np.empty((len(samples), n_candidates), dtype=np.int64)
    distances = np.empty(result.shape)
    step = max(1, _BLOCK_BYTES // (8 * n))
    for start in range(0, len(samples), step):
        rows = slice(start, start + step)
        mine = samples[rows]
        squared = squared_distances_by_products(whole[mine], whole, squared_norms)
        squared[np.arange(len(mine)), mine] = np.inf
        kth = np.partition(squared, n_candidates - 1, axis=1)[:, n_candidates - 1, None]
        margin = 2.0 * errors[rows, None] + _TIE * kth
        rank = np.where(squared < kth - margin, -1, np.where(squared <= kth + margin, 0, 1))
        width = int(np.count_nonzero(rank <= 0, axis=1).max())
        found = np.argsort(rank, axis=1, kind="stable")[:, : min(width, n_candidates + _MAX_TIES)]
        result[rows], distances[rows] = _nearest_of(points, mine, found, n_candidates)
    return result, distances


def nearest_among(
    queries: NDArray[Any],
    others: NDArray[Any],
    count: int,
    distances_between: Callable[
        [NDArray[Any], NDArray[Any]], NDArray[np.float64]
    ] = squared_distances,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The `count` nearest of other points for each query, in no order, and squared distances (m, count)."""
    found = np.empty((len(queries), count), dtype=np.int64)
    near = np.empty(found.shape)
    step = max(1, _QUERY_BYTES // (8 * max(1, len(others))))
    for start in range(0, len(queries), step):
        rows = slice(start, start + step)
        squared = distances_between(queries[rows], others)
        found[rows] = top_k_columns(squared, count)
        near[rows] = np.take_along_axis(squared, found[rows], axis=1)
    return found, near


def top_k_columns(values: NDArray[np.floating[Any]], count: int) -> NDArray[np.int64]:
    """Columns (m, count) of the smallest entries of each row (m, n) without NaN, in no order.

    The smallest entries of groups of sixteen columns bound the `count`-th smallest, and little more
    than `count` entries of a row are within: ten times as fast as numpy.argpartition alone.
    """
    m, n = values.shape
    together = min(_MAX_TOGETHER, n // (2 * count))
    if together < 2:
        return np.argpartition(values, count - 1, axis=1)[:, :count]
    n_groups = n // together
    lowest = values[:, :n_groups].copy()
    for start in range(n_groups, n, n_groups):
        others = values[:, start : start + n_groups]
        part = lowest[:, : others.shape[1]]
        np.minimum(part, others, out=part)
    bound = np.partition(lowest, count - 1, axis=1)[:, count - 1]
    rows, columns = np.divmod(np.flatnonzero(values <= bound[:, None]), n)
    per_row = np.bincount(rows, minlength=m)
    width = int(per_row.max(initial=count))
    if width == count:
        return columns.reshape(m, count)
    position = np.arange(len(rows)) - np.repeat(np.cumsum(per_row) - per_row, per_row)
    # NaN goes last, after what is infinite
    left = np.full((m, width), np.nan, dtype=values.dtype)
    left[rows, position] = values[rows, columns]
    where = np.zeros(left.shape, dtype=np.int64)
    where[rows, position] = columns
    chosen = np.argpartition(left, count - 1, axis=1)[:, :count]
    return np.take_along_axis(where, chosen, axis=1)
