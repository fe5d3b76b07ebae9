"""Nearest neighbours of every sample, exhaustively."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.linalg.distances import subtract_twice_products
from mscam_dask.linalg.neighbors_in_float64 import nearest_of, search_in_float64
from mscam_dask.linalg.top_k import top_k_columns
from mscam_dask.linalg.weighted_blocks import WeightedBlocks, as_weighted_blocks

__all__ = ["nearest_neighbors"]

# Neighbours asked for beyond K + K/4 + self, so that rounding and ties at the boundary can
# be seen; rows where they still decide are searched again without approximation.
_PADDING = 8

# Products of a block of rows with all samples: in the second-level cache where it can be.
_BLOCK_BYTES = 1 << 20
_FEWEST_ROWS = 64

# A mean this small beside the largest coordinate costs no digit.
_CENTERED = 1e-3


def nearest_neighbors(
    embedding: NDArray[np.float64] | WeightedBlocks,
    n_candidates: int,
    *,
    row_start: int = 0,
    row_stop: int | None = None,
    block_bytes: int = _BLOCK_BYTES,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The K nearest other samples of each row, ordered by (distance, index), and how far.

    Parameters
    ----------
    embedding : array of shape (n, r), r >= 1, or Coordinates
        Coordinates of all samples, finite.
    n_candidates : int
        K, between 1 and n - 1.
    row_start, row_stop : int, optional
        Only these rows; all by default.
    block_bytes : int
        Size of the products that are held at a time; of 64 rows at least.

    Returns
    -------
    indices : array of shape (row_stop - row_start, K), int64
        Never holds the row itself, even among duplicates. Ties go to the lower index.
        The result depends neither on the block of rows asked for nor on the threads.
    squared_distances : array of shape (row_stop - row_start, K)
        By exact differences, ascending.

    Raises
    ------
    ConfigurationError
        `n_candidates` is outside 1 .. n - 1, or the rows outside 0 .. n.
    DataError
        The embedding is not finite or has no column.

    Notes
    -----
    Matrix products in float32, block of rows by block of rows (2 m n r flops), propose
    K + K/4 + 9 neighbours; their distances are recomputed by exact differences. A row for
    which the error bound of the product cannot exclude a sample beyond them (ties,
    duplicates) is searched again over all samples in float64. Squared distances that differ
    by less than 1e-9 of themselves count as tied there; where the bound is coarser than that,
    exact differences decide.
    """
    points = as_weighted_blocks(embedding)
    n = len(points)
    stop = n if row_stop is None else row_stop
    _check_search(points, n_candidates, row_start, stop)
    if row_start == stop:
        return np.empty((0, n_candidates), dtype=np.int64), np.empty((0, n_candidates))
    n_asked = min(n, n_candidates + n_candidates // 4 + 1 + _PADDING)
    found, reach = _propose(points, n_asked, row_start, stop, block_bytes)
    own = np.arange(row_start, stop, dtype=np.int64)
    result, distances = nearest_of(points, own, found, n_candidates)
    if n_asked < n:
        # every sample not proposed is at least `reach` away
        doubtful = np.flatnonzero(~(distances[:, -1] < reach))
        if doubtful.size:
            again = search_in_float64(points, own[doubtful], n_candidates, n_asked)
            result[doubtful], distances[doubtful] = again
    return result, distances


def _propose(
    points: WeightedBlocks, n_asked: int, start: int, stop: int, block_bytes: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The nearest (m, n_asked) samples by float32 products, itself among them, and a radius.

    No sample that is missing is nearer than the radius (m,), whatever the rounding.
    """
    n = len(points)
    blocks, norms, unit = _products_in_float32(points)
    found = np.empty((stop - start, n_asked), dtype=np.int64)
    reach = np.empty(stop - start)
    step = max(_FEWEST_ROWS, block_bytes // (4 * n))
    norms32 = norms.astype(np.float32)
    for first in range(start, stop, step):
        rows = slice(first, min(first + step, stop))
        half = np.empty((rows.stop - first, n), dtype=np.float32)
        half[...] = norms32
        for slab, factors in blocks:
            subtract_twice_products(half, slab[rows] * factors, slab)
        here = slice(first - start, rows.stop - start)
        if n_asked < n:
            found[here] = top_k_columns(half, n_asked)
        else:
            found[here] = np.arange(n)
        farthest = np.take_along_axis(half, found[here], axis=1).max(axis=1)
        reach[here] = farthest + norms[rows]
    epsilon = (points.rank + 8) * float(np.finfo(np.float32).eps)
    reach -= 2.0 * epsilon * (norms[start:stop] + norms.max())
    return found, reach * unit


def _products_in_float32(
    points: WeightedBlocks,
) -> tuple[list[tuple[NDArray[np.float32], NDArray[np.float32]]], NDArray[np.float64], float]:
    """Slabs around their mean, squared norms, and the unit of both; no copy where none is due."""
    blocks = []
    norms = np.zeros(len(points))
    largest = max(
        float(np.abs(slab).max(initial=0.0)) * float(np.sqrt(weights.max(initial=0.0)))
        for slab, weights in points.pairs()
    )
    # a power of two: scaling by it is exact, and nothing over- or underflows
    exponent = int(np.frexp(largest)[1])
    for slab, weights in points.pairs():
        mean = slab.mean(axis=0, dtype=np.float64)
        magnitude = float(np.abs(slab).max(initial=0.0))
        if slab.dtype == np.float32 and np.abs(mean).max(initial=0.0) <= _CENTERED * magnitude:
            centered = slab
        else:
            centered = np.ldexp(slab - mean, -exponent).astype(np.float32)
        shift = -2 * exponent if centered is slab else 0
        factors = np.ldexp(weights, shift).astype(np.float32)
        blocks.append((centered, factors))
        norms += np.einsum(
            "ij,ij,j->i", centered, centered, factors.astype(np.float64), dtype=np.float64
        )
    return blocks, norms, float(np.ldexp(1.0, 2 * exponent))


def _check_search(points: WeightedBlocks, n_candidates: int, start: int, stop: int) -> None:
    n = len(points)
    if not 1 <= n_candidates <= n - 1:
        raise ConfigurationError(
            f"{n_candidates} neighbours were asked for among {n} samples; allowed is 1 to "
            f"{n - 1}. Lower n_neighbors."
        )
    if not 0 <= start <= stop <= n:
        raise ConfigurationError(
            f"rows {start} to {stop} were asked for; allowed is within 0 to {n}. Check the "
            "row blocks."
        )
    if points.rank == 0:
        raise DataError(
            f"the embedding has shape ({n}, 0); allowed is (n, r) with r >= 1. "
            "A view without any usable direction has no neighbours: drop it."
        )
    for slab in points.blocks:
        # sums are finite where every value is, and cheaper to look at
        if np.isfinite(slab.sum(dtype=np.float64)):
            continue
        bad = np.flatnonzero(~np.isfinite(slab).all(axis=1))
        if bad.size:
            raise DataError(
                f"{bad.size} of {n} rows of the embedding hold NaN or infinity (first rows: "
                f"{bad[:5].tolist()}). Clean or rescale the view."
            )
