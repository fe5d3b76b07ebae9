"""Nearest neighbours of samples for which products in single precision do not tell them: ties, duplicates."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mscam_dask.linalg.distances import distances_by_products, distances_to
from mscam_dask.linalg.top_k import top_k_columns
from mscam_dask.linalg.weighted_blocks import WeightedBlocks

__all__ = ["nearest_of", "search_in_float64"]

# Products of a block of rows with all samples: in the second-level cache where it can be.
_BLOCK_BYTES = 1 << 20

# Relative difference of squared distances below which two samples count as equally far.
_TIE = 1e-9


def nearest_of(
    points: WeightedBlocks,
    samples: NDArray[np.int64],
    found: NDArray[np.int64],
    n_candidates: int,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The K nearest of the samples found, by exact differences, without the sample itself."""
    exact = distances_to(points, samples, found)
    exact[found == samples[:, None]] = np.inf
    order = np.lexsort((found, exact), axis=-1)[:, :n_candidates]
    return np.take_along_axis(found, order, axis=1), np.take_along_axis(exact, order, axis=1)


def search_in_float64(
    points: WeightedBlocks, samples: NDArray[np.int64], n_candidates: int, n_asked: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The search of some samples with products in float64, and without where those fail too.

    Parameters
    ----------
    points : Coordinates
        Of all n samples.
    samples : (m,) int
        Those that are searched for.
    n_candidates, n_asked : int
        K, and how many neighbours the products propose; K < n_asked < n.

    Returns
    -------
    indices, squared_distances : (m, K)
        As of `mscam_dask.linalg.neighbors.nearest_neighbors`.
    """
    whole = points.stacked(slice(None))
    whole -= whole.mean(axis=0)
    squared_norms = np.einsum("ij,ij->i", whole, whole)
    margin = _product_error(squared_norms, whole.shape[1])[samples]
    result = np.empty((len(samples), n_candidates), dtype=np.int64)
    distances = np.empty(result.shape)
    untold = np.zeros(len(samples), dtype=np.bool_)
    step = max(1, _BLOCK_BYTES // (8 * len(whole)))
    for start in range(0, len(samples), step):
        rows = slice(start, min(start + step, len(samples)))
        mine, error = samples[rows], margin[rows]
        squared = distances_by_products(whole[mine], whole, squared_norms)
        found = top_k_columns(squared, n_asked)
        farthest = np.take_along_axis(squared, found, axis=1).max(axis=1)
        result[rows], distances[rows] = nearest_of(points, mine, found, n_candidates)
        kth = distances[rows, -1]
        doubtful = ~(kth < farthest - error)
        # where the bound is far below the distance itself, what it cannot tell apart is a tie
        tied = error <= _TIE * kth
        untold[rows] = doubtful & ~tied
        which = np.flatnonzero(doubtful & tied)
        if which.size:
            lowest = _by_lowest_index(
                squared[which], mine[which], n_candidates, kth[which], error[which]
            )
            result[start + which], distances[start + which] = _ordered(points, mine[which], lowest)
    which = np.flatnonzero(untold)
    if which.size:
        radius = distances[which, -1] + margin[which]
        exact = _by_exact_differences(whole, squared_norms, samples[which], n_candidates, radius)
        result[which], distances[which] = _ordered(points, samples[which], exact)
    return result, distances


def _ordered(
    points: WeightedBlocks, samples: NDArray[np.int64], neighbors: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Neighbours of some samples sorted by (exact distance, index), and the distances."""
    distances = distances_to(points, samples, neighbors)
    order = np.lexsort((neighbors, distances), axis=-1)
    return np.take_along_axis(neighbors, order, axis=1), np.take_along_axis(
        distances, order, axis=1
    )


def _product_error(squared_norms: NDArray[np.float64], rank: int) -> NDArray[np.float64]:
    """Bound on the rounding of ||x||^2 + ||y||^2 - 2 x.y, per sample, for centred points."""
    unit = (rank + 8) * np.finfo(np.float64).eps
    bound: NDArray[np.float64] = 2.0 * unit * (squared_norms + squared_norms.max())
    return bound


def _by_lowest_index(
    squared: NDArray[np.float64],
    samples: NDArray[np.int64],
    n_candidates: int,
    kth: NDArray[np.float64],
    margin: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Neighbours (m, K) by distances (m, n) to all samples, those as far as the K-th by lowest index.

    What the bound cannot tell from the K-th counts as equally far: what is surely closer
    comes first, then the lowest numbers among the equal.
    """
    n = squared.shape[1]
    closer = squared < (kth - 2.0 * margin)[:, None]
    equal = squared <= (kth + 2.0 * margin)[:, None]
    rank = np.where(closer, -1, np.where(equal, np.arange(n), 2 * n))
    rank[np.arange(len(rank)), samples] = 2 * n
    chosen: NDArray[np.int64] = np.argpartition(rank, n_candidates - 1, axis=1)[:, :n_candidates]
    return chosen


def _by_exact_differences(
    points: NDArray[np.float64],
    squared_norms: NDArray[np.float64],
    samples: NDArray[np.int64],
    n_candidates: int,
    radius: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Rows (samples, K) by exact differences over every sample within a radius (samples,), the bound's.

    Duplicated samples have the same neighbours but for themselves: each distinct point
    is searched once, for K + 1 neighbours, and each sample then removes itself.
    """
    n, n_wanted = len(points), n_candidates + 1
    _, first, which = np.unique(points[samples], axis=0, return_index=True, return_inverse=True)
    which = which.reshape(-1)
    # the radius excludes the sample itself, so the K + 1 nearest, itself included, lie within it
    reach = np.full(len(first), -np.inf)
    np.maximum.at(reach, which, radius)
    nearest = np.empty((len(first), n_wanted), dtype=np.int64)
    step = max(1, _BLOCK_BYTES // (8 * n))
    for start in range(0, len(first), step):
        rows = samples[first[start : start + step]]
        squared = distances_by_products(points[rows], points, squared_norms)
        within = squared <= reach[start : start + step, None]
        within[np.arange(len(rows)), rows] = True
        row, candidate = np.nonzero(within)
        counts = np.bincount(row, minlength=len(rows))
        offsets = np.concatenate(([0], np.cumsum(counts)))
        for i in range(len(rows)):
            mine = candidate[offsets[i] : offsets[i + 1]]
            differences = points[mine] - points[rows[i]]
            exact = np.sum(differences * differences, axis=1)
            nearest[start + i] = mine[np.lexsort((mine, exact))[:n_wanted]]
    mine_all: NDArray[np.int64] = nearest[which]
    is_self = mine_all == samples[:, None]
    # a sample hidden behind K + 1 lower-numbered duplicates drops the last instead
    is_self[~is_self.any(axis=1), -1] = True
    others: NDArray[np.int64] = mine_all[~is_self].reshape(len(samples), n_candidates)
    return others
