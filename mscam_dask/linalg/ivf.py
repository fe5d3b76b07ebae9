"""Approximate nearest neighbors by an inverted-file (IVF) index: cells of points and nearby cells.

The points are put in the order of the cells, near cells next to each other, so that a block of rows
searches few other blocks. Every step is a function of a block of points, of a sample or of one
vector: neither the number of threads nor the blocks change a neighbor.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.linalg.distances import subtract_twice_products
from mscam_dask.linalg.neighbors import top_k_columns

CELL_POINTS = 500
"""Average number of points of a cell."""

# Cells in the pool of a cell: a pool has about 4000 points.
_PROBES = 8

# If cells are small, as in sparse regions, a pool has as many cells as are needed for this many
# times the requested neighbors.
_POINTS_PER_NEIGHBOR = 4

# Points on which each center is trained.
_TRAINING_POINTS = 32
_ROUNDS = 6

# More centers than this are trained in groups, one group for each of √(number of centers) coarse
# centers.
_MAX_CENTERS_AT_ONCE = 256

# Smallest share of the centers in a part when their order is found.
_MIN_SHARE_OF_SPLIT = 0.1

# With more centers than this, a point is compared with the centers of its nearest groups of centers
# only, because the time to compare all points with all centers grows as n².
_MAX_CENTERS_COMPARED = 4096
_GROUPS = 8

# Bytes of the products of one block of points with centers or with a pool.
_BLOCK_BYTES = 8 * 2**20


@dataclasses.dataclass(frozen=True, slots=True)
class IVFIndex:
    """A partition of n points into cells of bounded size, and an order of the points by cell."""

    order: NDArray[np.int32]  # (n,) points, cell after cell, ascending within a cell
    bounds: NDArray[np.int64]  # (g + 1,): cell j holds order[bounds[j] : bounds[j + 1]]
    probes: tuple[NDArray[np.int64], ...]  # the nearest cells of each, itself first: its pool

    @property
    def positions(self) -> NDArray[np.int32]:
        """Position of each point in the order, (n,)."""
        positions = np.empty_like(self.order)
        positions[self.order] = np.arange(len(self.order), dtype=self.order.dtype)
        return positions

    def cells_of(self, start: int, stop: int) -> range:
        """Cells of the points at positions start … stop − 1."""
        first = int(np.searchsorted(self.bounds, start, side="right")) - 1
        return range(first, int(np.searchsorted(self.bounds, stop, side="left")))

    def searched(self, start: int, stop: int) -> NDArray[np.int64]:
        """Positions in the pools of the points at positions start … stop − 1, ascending."""
        near = np.unique(np.concatenate([self.probes[cell] for cell in self.cells_of(start, stop)]))
        spans = [np.arange(self.bounds[cell], self.bounds[cell + 1]) for cell in near]
        return np.concatenate(spans)

    def pool(self, cell: int) -> NDArray[np.int64]:
        """Positions of the points in the pool of a cell, its own first."""
        spans = [np.arange(self.bounds[near], self.bounds[near + 1]) for near in self.probes[cell]]
        return np.concatenate(spans)


def training_rows(
    start: int, stop: int, n_points: int, seed: int, cell_points: int
) -> NDArray[np.int64]:
    """Rows of a block on which the centers are trained, relative to its start, ascending."""
    wanted = min(n_points, max(1, n_points // cell_points) * _TRAINING_POINTS)
    size = max(1, stop * wanted // n_points - start * wanted // n_points)
    rng = np.random.default_rng((seed, start))
    return np.sort(rng.choice(stop - start, size, replace=False))


def train_centers(
    parts: Sequence[NDArray[np.float32]], n_cells: int, seed: int
) -> NDArray[np.float32]:
    """Centers of about `n_cells` cells by k-means on the parts of a sample, near centers next to each other."""
    sample, rng = np.concatenate(parts), np.random.default_rng(seed)
    if n_cells > _MAX_CENTERS_AT_ONCE:
        n_groups = int(np.sqrt(n_cells))
        some = np.sort(
            rng.choice(len(sample), min(len(sample), n_groups * _TRAINING_POINTS), replace=False)
        )
        group = _nearest_center(sample, _lloyd(sample[some], n_groups, rng))
        groups = [sample[group == number] for number in range(n_groups)]
        centers = np.concatenate(
            [_lloyd(own, -(-len(own) * n_cells // len(sample)), rng) for own in groups if len(own)]
        )
    else:
        centers = _lloyd(sample, n_cells, rng)
    return centers[_spatial_order(centers)]


def _lloyd(
    sample: NDArray[np.float32], n_cells: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    n_cells = min(n_cells, len(sample))
    centers = sample[np.sort(rng.choice(len(sample), n_cells, replace=False))].copy()
    for _ in range(_ROUNDS):
        nearest = _nearest_center(sample, centers)
        counts = np.bincount(nearest, minlength=n_cells)
        order = np.argsort(nearest, kind="stable")
        filled = np.flatnonzero(counts)
        starts = np.concatenate(([0], np.cumsum(counts)[:-1]))[filled]
        centers[filled] = np.add.reduceat(sample[order], starts, axis=0) / counts[filled, None]
    return centers


def _spatial_order(centers: NDArray[np.float32]) -> NDArray[np.int64]:
    """Order with near centers next to each other, by splits in two along the widest direction."""
    centered = centers - centers.mean(axis=0)
    direction = np.zeros(centers.shape[1], dtype=centers.dtype)
    direction[np.argmax(np.einsum("ij,ij->j", centered, centered))] = 1.0
    for _ in range(8):  # power iteration
        direction = centered.T @ (centered @ direction)
        size = np.linalg.norm(direction)
        if size == 0:
            break
        direction /= size
    projected = centered @ direction
    order = np.argsort(projected, kind="stable")
    if len(order) <= 2:
        return order
    split = _best_split(projected[order])
    parts = order[:split], order[split:]
    return np.concatenate([part[_spatial_order(centers[part])] for part in parts])


def _best_split(values: NDArray[np.floating[Any]]) -> int:
    """Position that splits ascending values in two parts with the farthest means, as 2-means does.

    Halves would cut through clusters: blocks of rows would search a half more of the other blocks.
    """
    n = len(values)
    counts = np.arange(1, n)
    sums = np.cumsum(values, dtype=np.float64)
    gaps = sums[:-1] / counts - (sums[-1] - sums[:-1]) / (n - counts)
    least = max(1, int(_MIN_SHARE_OF_SPLIT * n))
    between = (counts * (n - counts) * gaps**2)[least - 1 : n - least]
    return least + int(np.argmax(between))


def _nearest_center(points: NDArray[np.float32], centers: NDArray[np.float32]) -> NDArray[np.int64]:
    """Nearest center of each point, (n,)."""
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


def assign_to_cells(points: NDArray[np.float32], centers: NDArray[np.float32]) -> NDArray[np.int64]:
    """Cell of each point, (n,): its nearest center, or that of its nearest groups of many."""
    n_centers = len(centers)
    if n_centers <= _MAX_CENTERS_COMPARED:
        return _nearest_center(points, centers)
    edges = np.linspace(0, n_centers, int(np.sqrt(n_centers)) + 1).astype(np.int64)
    means = np.add.reduceat(centers, edges[:-1], axis=0) / np.diff(edges)[:, None]
    norms = np.einsum("ij,ij->i", centers, centers)
    to_means = np.empty((len(points), len(means)), dtype=np.float32)
    to_means[...] = np.einsum("ij,ij->i", means, means)
    subtract_twice_products(to_means, points, means.astype(np.float32))
    groups = np.argpartition(to_means, _GROUPS, axis=1)[:, :_GROUPS]
    nearest = np.zeros(len(points), dtype=np.int64)
    smallest = np.full(len(points), np.inf, dtype=np.float32)
    for group, (start, stop) in enumerate(itertools.pairwise(edges)):
        rows = np.flatnonzero((groups == group).any(axis=1))
        if not rows.size:
            continue
        products = np.empty((len(rows), stop - start), dtype=np.float32)
        products[...] = norms[start:stop]
        subtract_twice_products(products, points[rows], centers[start:stop])
        own = np.argmin(products, axis=1)
        found = products[np.arange(len(rows)), own]
        nearer = found < smallest[rows]
        nearest[rows[nearer]] = start + own[nearer]
        smallest[rows[nearer]] = found[nearer]
    return nearest


def cut_cells(
    parts: Sequence[NDArray[np.integer[Any]]],
    centers: NDArray[np.float32],
    n_candidates: int,
    cell_points: int,
) -> IVFIndex:
    """IVF index from the nearest center of each point, in parts: splits large cells, finds nearby ones.

    Cells have at most 2 `cell_points`; pools have at least four times `n_candidates`, or all
    points. The parts of a cell (many duplicates) share their center, so each is near the others.
    """
    assigned = np.concatenate(parts)
    order = np.argsort(assigned, kind="stable").astype(np.int32)
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
        probes += [_nearest_cells(row, sizes, n_candidates) for row in gaps]
    return IVFIndex(order, np.array(bounds, dtype=np.int64), tuple(probes))


def _nearest_cells(
    gaps: NDArray[np.float32], sizes: NDArray[np.int64], n_candidates: int
) -> NDArray[np.int64]:
    """Nearest cells of one, in order: a few, or as many as hold enough points."""
    nearest = np.argsort(gaps, kind="stable")
    n_short = np.count_nonzero(np.cumsum(sizes[nearest]) < _POINTS_PER_NEIGHBOR * n_candidates)
    return nearest[: max(_PROBES, int(n_short) + 1)]


def ivf_search(
    parts: Sequence[NDArray[np.float32]], index: IVFIndex, n_candidates: int, start: int, stop: int
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """K nearest neighbors of the points at positions start … stop − 1, in the pool of their cell.

    Positions (m, K) by (distance, position), −1 where a pool has fewer; squared distances (m, K)
    from float32 products around the mean of the cell, infinite where absent. The parts have the
    points at the positions `index.searched(start, stop)`.
    """
    points, read = np.concatenate(parts), index.searched(start, stop)
    indices = np.full((stop - start, n_candidates), -1, dtype=np.int32)
    squared = np.full((stop - start, n_candidates), np.inf, dtype=np.float32)
    for cell in index.cells_of(start, stop):
        first, last = int(index.bounds[cell]), int(index.bounds[cell + 1])
        pool = index.pool(cell)
        there = points[np.searchsorted(read, pool)]
        # around the cell itself float32 products keep most digits
        there -= there[: last - first].mean(axis=0)
        norms = np.einsum("ij,ij->i", there, there)
        step = max(1, _BLOCK_BYTES // (4 * len(pool)))
        for begin in range(max(first, start), min(last, stop), step):
            rows = np.arange(begin, min(begin + step, last, stop)) - first
            products = np.empty((len(rows), len(pool)), dtype=np.float32)
            products[...] = norms
            subtract_twice_products(products, there[rows[0] : rows[-1] + 1], there)
            products[np.arange(len(rows)), rows] = np.inf  # the cell comes first in its pool
            kept = min(n_candidates, len(pool) - 1)
            found = top_k_columns(products, kept)
            chosen = pool[found]
            near = np.take_along_axis(products, found, axis=1).astype(np.float64)
            near += norms[rows, None]
            np.maximum(near, 0.0, out=near)
            by_distance = np.lexsort((chosen, near), axis=-1)
            here = first + rows - start
            indices[here, :kept] = np.take_along_axis(chosen, by_distance, axis=1)
            squared[here, :kept] = np.take_along_axis(near, by_distance, axis=1)
    return indices, squared
