"""Nearest neighbors of every sample by exhaustive search, and the smallest entries of rows."""

from __future__ import annotations

import operator
from collections.abc import Callable
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


def nearest_neighbors(
    embedding: NDArray[np.float64] | WeightedBlocks,
    n_candidates: int,
    *,
    row_start: int = 0,
    row_stop: int | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """K nearest other samples of each row by exhaustive search, and squared distances (m, K).

    Matrix products in float32 propose K + K/4 + 9 neighbors. The distances of those that the error bound of
    the products leaves among the K nearest are computed again by differences. A row for which the error bound of the products cannot exclude other neighbors is searched
    again in float64. Ties (duplicates) go to the lower index. The result depends neither on the block of
    rows nor on the threads.
    """
    points = as_weighted_blocks(embedding)
    n = len(points)
    stop = n if row_stop is None else row_stop
    if row_start == stop:
        return np.empty((0, n_candidates), dtype=np.int64), np.empty((0, n_candidates))
    n_asked = min(n, n_candidates + n_candidates // 4 + 1 + _PADDING)
    found, squared, error = _propose(points, n_asked, row_start, stop)
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


def _propose(
    points: WeightedBlocks, n_asked: int, start: int, stop: int
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Nearest samples (m, n_asked) by float32 products, including the sample itself, and the error bound (m,)."""
    n, norms = len(points), np.zeros(len(points))
    blocks, exponent = _in_one_unit(points)
    for columns, factors in blocks:
        norms += np.einsum("ij,ij->i", columns, columns * factors)
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


def _in_one_unit(
    points: WeightedBlocks,
) -> tuple[list[tuple[NDArray[np.float32], NDArray[np.float32]]], int]:
    """Centered columns of each block with their weights, and the exponent of the unit of length.

    Powers of two are exact, and nothing over- or underflows. Columns are copied only to center them.
    """
    largest = [
        max(float(one.max(initial=0.0)), -float(one.min(initial=0.0))) for one in points.blocks
    ]
    roots = [float(np.sqrt(weights.max(initial=0.0))) for weights in points.weights]
    exponent = int(np.frexp(max(map(operator.mul, largest, roots)))[1])
    blocks = []
    for (columns, weights), most in zip(points.pairs(), largest, strict=True):
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.abs(columns.sum(axis=0)).max(initial=0.0)
        if columns.dtype == np.float32 and total <= _CENTERED * most * len(columns):
            blocks.append((columns, np.ldexp(weights, -2 * exponent).astype(np.float32)))
            continue
        mean = columns.mean(axis=0, dtype=np.float64)
        centered = np.empty(columns.shape, dtype=np.float32)
        step = max(1, _CENTERED_ENTRIES // max(1, columns.shape[1]))
        for first in range(0, len(columns), step):  # differences in double precision
            rows = slice(first, first + step)
            centered[rows] = np.ldexp(columns[rows] - mean, -exponent)
        blocks.append((centered, weights.astype(np.float32)))
    return blocks, exponent


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
