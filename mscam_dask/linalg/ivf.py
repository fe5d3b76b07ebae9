"""Approximate nearest neighbors by an inverted-file (IVF) index: cells of points and nearby cells.

Time grows as n (n/500 centers are compared with every point, at the speed of a matrix product),
memory as one pool of points. Everything is a function of the points and the seed: neither the
number of threads nor the grouping of cells into tasks changes a bit.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from mscam_dask.linalg.distances import subtract_twice_products
from mscam_dask.linalg.neighbors import top_k_columns
from mscam_dask.linalg.weighted_blocks import WeightedBlocks

__all__ = ["IVFIndex", "build_ivf", "ivf_search"]

# Points of a cell, and cells in the pool of a cell: a pool has about 4000 points.
_CELL_POINTS = 500
_PROBES = 8

# If cells are small, as those far out, a pool has as many cells as it takes to hold this many times
# the requested neighbors.
_POINTS_PER_NEIGHBOR = 4

# Points on which each center is trained.
_TRAINING_POINTS = 32
_ROUNDS = 6

# Bytes of the products of one block of points with centers or with a pool.
_BLOCK_BYTES = 8 * 2**20


@dataclasses.dataclass(frozen=True, slots=True)
class IVFIndex:
    """A partition of n points into cells of bounded size.

    Attributes
    ----------
    order : (n,) int64
        Points, cell after cell, ascending within a cell.
    bounds : (g + 1,) int64
        Cell j holds ``order[bounds[j] : bounds[j + 1]]``.
    probes : tuple of (p,) int64
        For each cell the nearest cells, itself first: its pool.
    """

    order: NDArray[np.int64]
    bounds: NDArray[np.int64]
    probes: tuple[NDArray[np.int64], ...]

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def members(self, cell: int) -> NDArray[np.int64]:
        """Points of one cell."""
        return self.order[self.bounds[cell] : self.bounds[cell + 1]]


def build_ivf(
    points: WeightedBlocks,
    *,
    n_candidates: int,
    rng: np.random.Generator,
    cell_points: int = _CELL_POINTS,
) -> IVFIndex:
    """Build an IVF index: cells of at most 1000 points around k-means centers of a sample.

    Parameters
    ----------
    points : WeightedBlocks
    n_candidates : int
        Neighbors of later searches; a pool holds at least four times as many, or all points.
    rng : numpy.random.Generator
    cell_points : int
        Average number of points of a cell; the largest is twice as many.

    Returns
    -------
    IVFIndex
        Larger cells (many duplicates) are split in the order of their points; the parts share their
        center, so each is among the nearest cells of the others.
    """
    n = len(points)
    n_cells = max(1, n // cell_points)
    trained = min(n, n_cells * _TRAINING_POINTS)
    sample = points.stacked(np.sort(rng.choice(n, trained, replace=False)), np.float32)
    centers = sample[np.sort(rng.choice(trained, n_cells, replace=False))].copy()
    for _ in range(_ROUNDS):
        nearest = _nearest_center(sample, centers)
        counts = np.bincount(nearest, minlength=n_cells)
        sums = np.zeros_like(centers)
        order = np.argsort(nearest, kind="stable")
        filled = np.flatnonzero(counts)
        starts = np.concatenate(([0], np.cumsum(counts)[:-1]))[filled]
        sums[filled] = np.add.reduceat(sample[order], starts, axis=0)
        centers[filled] = sums[filled] / counts[filled, None]
    assigned = np.empty(n, dtype=np.int64)
    step = max(1, _BLOCK_BYTES // (4 * max(n_cells, points.rank)))
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        assigned[rows] = _nearest_center(points.stacked(rows, np.float32), centers)
    return _cut(assigned, centers, n_candidates, cell_points)


def _nearest_center(points: NDArray[np.float32], centers: NDArray[np.float32]) -> NDArray[np.int64]:
    norms = np.einsum("ij,ij->i", centers, centers)
    nearest = np.empty(len(points), dtype=np.int64)
    step = max(1, _BLOCK_BYTES // (4 * len(centers)))
    for start in range(0, len(points), step):
        rows = points[start : start + step]
        products = np.empty((len(rows), len(centers)), dtype=np.float32)
        products[...] = norms
        subtract_twice_products(products, rows, centers)
        nearest[start : start + step] = np.argmin(products, axis=1)
    return nearest


def _cut(
    assigned: NDArray[np.int64],
    centers: NDArray[np.float32],
    n_candidates: int,
    cell_points: int,
) -> IVFIndex:
    """Split large cells, and find the pool of nearby cells of each."""
    order = np.argsort(assigned, kind="stable").astype(np.int64)
    counts = np.bincount(assigned, minlength=len(centers))
    ends = np.cumsum(counts)
    bounds, owner = [0], []
    for cell in np.flatnonzero(counts):
        pieces = -(-int(counts[cell]) // (2 * cell_points))
        edges = np.linspace(ends[cell] - counts[cell], ends[cell], pieces + 1).astype(np.int64)
        bounds += edges[1:].tolist()
        owner += [cell] * pieces
    near = centers[np.array(owner)]
    norms = np.einsum("ij,ij->i", near, near)
    sizes = np.diff(bounds)
    probes: list[NDArray[np.int64]] = []
    step = max(1, _BLOCK_BYTES // (4 * len(owner)))
    for start in range(0, len(owner), step):
        block = np.arange(start, min(start + step, len(owner)))
        gaps = norms - 2.0 * (near[block] @ near.T)
        gaps[block - start, block] = -np.inf
        nearest = np.argsort(gaps, axis=1, kind="stable")
        short = np.cumsum(sizes[nearest], axis=1) < _POINTS_PER_NEIGHBOR * n_candidates
        wanted = np.maximum(_PROBES, np.count_nonzero(short, axis=1) + 1)
        probes += [row[:count].copy() for row, count in zip(nearest, wanted, strict=True)]
    return IVFIndex(order, np.array(bounds, dtype=np.int64), tuple(probes))


def ivf_search(
    points: WeightedBlocks, cells: IVFIndex, n_candidates: int, *, first: int, last: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]:
    """Nearest neighbors of the points in cells first … last − 1, among the pool of each cell.

    Parameters
    ----------
    points : WeightedBlocks
    cells : IVFIndex
    n_candidates : int
        K.
    first, last : int

    Returns
    -------
    samples : (m,) int64
        The points, in the order of the cells.
    indices : (m, K) int32
        Ordered by (distance, index); −1 where a pool holds fewer than K others.
    squared_distances : (m, K)
        From float32 products around the mean of the cell, accurate to six digits of its extent;
        infinite where absent.
    """
    samples = cells.order[cells.bounds[first] : cells.bounds[last]]
    indices = np.full((len(samples), n_candidates), -1, dtype=np.int32)
    squared = np.full((len(samples), n_candidates), np.inf)
    offset = int(cells.bounds[first])
    for cell in range(first, last):
        members = cells.members(cell)
        pool = np.concatenate([cells.members(near) for near in cells.probes[cell]])
        there = points.stacked(pool, np.float32)
        # around the cell itself float32 products keep most digits
        there -= there[: len(members)].mean(axis=0)
        norms = np.einsum("ij,ij->i", there, there)
        start = int(cells.bounds[cell]) - offset
        step = max(1, _BLOCK_BYTES // (4 * len(pool)))
        for begin in range(0, len(members), step):
            rows = np.arange(begin, min(begin + step, len(members)))
            products = np.empty((len(rows), len(pool)), dtype=np.float32)
            products[...] = norms
            subtract_twice_products(products, there[begin : begin + len(rows)], there)
            products[np.arange(len(rows)), rows] = np.inf  # the cell comes first in its pool
            kept = min(n_candidates, len(pool) - 1)
            found = top_k_columns(products, kept)
            chosen = pool[found]
            near = np.take_along_axis(products, found, axis=1).astype(np.float64)
            near += norms[rows, None]
            np.maximum(near, 0.0, out=near)
            by_distance = np.lexsort((chosen, near), axis=-1)
            here = start + rows
            indices[here, :kept] = np.take_along_axis(chosen, by_distance, axis=1)
            squared[here, :kept] = np.take_along_axis(near, by_distance, axis=1)
    return samples, indices, squared
