"""Nearest neighbours, candidate edges and the adaptive-neighbour choice among them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.kernels.distances import squared_distances, squared_distances_on_edges
from mscam_dask.kernels.simplex import adaptive_neighbor_weights

__all__ = ["nearest_candidates", "nearest_neighbors", "select_neighbors"]

# Neighbours asked for beyond K + self, so that rounding and ties at the boundary can
# be seen; rows where they still decide are searched again without approximation.
_PADDING = 8
_BLOCK_BYTES = 1 << 26

# A mean this small beside the largest coordinate costs no digit.
_CENTERED = 1e-3

# Relative difference of squared distances below which two samples count as equally far.
_TIE = 1e-9


def nearest_candidates(
    embedding: NDArray[np.float64],
    n_candidates: int,
    *,
    row_start: int = 0,
    row_stop: int | None = None,
) -> NDArray[np.int64]:
    """The K nearest other samples of each row: the indices of `nearest_neighbors`."""
    indices, _ = nearest_neighbors(embedding, n_candidates, row_start=row_start, row_stop=row_stop)
    return indices


def nearest_neighbors(
    embedding: NDArray[np.float64],
    n_candidates: int,
    *,
    row_start: int = 0,
    row_stop: int | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The K nearest other samples of each row, ordered by (distance, index), and how far.

    Parameters
    ----------
    embedding : array of shape (n, r), r >= 1
        Coordinates of all samples, finite.
    n_candidates : int
        K, between 1 and n - 1.
    row_start, row_stop : int, optional
        Only these rows; all by default.

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
    scikit-learn's blocked brute force (2 m n r flops, memory of one block) proposes
    K + 1 + 8 neighbours; their distances are recomputed by exact differences. A row for
    which the error bound of the matrix product cannot exclude a sample beyond them
    (ties, duplicates) is searched again over all samples. Squared distances that differ by
    less than 1e-9 of themselves count as tied there; where the bound is coarser than that,
    exact differences decide.
    """
    n = len(embedding)
    stop = n if row_stop is None else row_stop
    _check_search(embedding, n_candidates, row_start, stop)
    if row_start == stop:
        return np.empty((0, n_candidates), dtype=np.int64), np.empty((0, n_candidates))
    points = _centered(embedding)
    n_asked = min(n, n_candidates + 1 + _PADDING)
    search = NearestNeighbors(n_neighbors=n_asked, algorithm="brute").fit(points)
    found_distances, found = search.kneighbors(points[row_start:stop])
    found = found.astype(np.int64, copy=False)
    own = np.arange(row_start, stop, dtype=np.int64)[:, None]
    exact = squared_distances_on_edges(embedding, found, row_start=row_start)
    exact[found == own] = np.inf
    order = np.lexsort((found, exact), axis=-1)[:, :n_candidates]
    result = np.take_along_axis(found, order, axis=1)
    distances = np.take_along_axis(exact, order, axis=1)
    if n_asked == n:
        return result, distances
    # every sample not proposed is at least `reach` away
    margin = _product_error(points, row_start, stop)
    reach = found_distances[:, -1] ** 2 - margin
    kth = distances[:, -1]
    doubtful = np.flatnonzero(~(kth < reach))
    # where the bound is far below the distance itself, what it cannot tell apart is a tie
    tied = margin[doubtful] <= _TIE * kth[doubtful]
    for rows, search_again in (
        (doubtful[tied], _by_lowest_index),
        (doubtful[~tied], _by_exact_differences),
    ):
        if rows.size:
            again = search_again(points, rows + row_start, n_candidates, kth[rows], margin[rows])
            result[rows], distances[rows] = _ordered(embedding, rows + row_start, again)
    return result, distances


def _centered(embedding: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows around their mean, where the matrix product rounds least; no copy if they are so."""
    mean = embedding.mean(axis=0)
    largest = max(float(embedding.max()), -float(embedding.min()))
    if np.abs(mean).max() <= _CENTERED * largest:
        return np.ascontiguousarray(embedding)
    return np.ascontiguousarray(embedding - mean)


def _ordered(
    embedding: NDArray[np.float64], samples: NDArray[np.int64], neighbors: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Neighbours of some samples sorted by (exact distance, index), and the distances."""
    distances = np.empty(neighbors.shape)
    for row, (sample, indices) in enumerate(zip(samples, neighbors, strict=True)):
        differences = embedding[indices] - embedding[sample]
        distances[row] = np.einsum("ij,ij->i", differences, differences)
    order = np.lexsort((neighbors, distances), axis=-1)
    return np.take_along_axis(neighbors, order, axis=1), np.take_along_axis(
        distances, order, axis=1
    )


def _product_error(points: NDArray[np.float64], start: int, stop: int) -> NDArray[np.float64]:
    """Bound on the rounding of ||x||^2 + ||y||^2 - 2 x.y, per row, for centred points."""
    squared_norms = np.einsum("ij,ij->i", points, points)
    unit = (points.shape[1] + 8) * np.finfo(np.float64).eps
    bound: NDArray[np.float64] = 2.0 * unit * (squared_norms[start:stop] + squared_norms.max())
    return bound


def _by_lowest_index(
    points: NDArray[np.float64],
    samples: NDArray[np.int64],
    n_candidates: int,
    kth: NDArray[np.float64],
    margin: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Neighbours (samples, K) among all samples, those as far as the K-th by lowest index.

    What the bound cannot tell from the K-th counts as equally far: what is surely closer
    comes first, then the lowest numbers among the equal.
    """
    n = len(points)
    chosen = np.empty((len(samples), n_candidates), dtype=np.int64)
    step = max(1, _BLOCK_BYTES // (8 * n))
    for start in range(0, len(samples), step):
        block = slice(start, min(start + step, len(samples)))
        distances = squared_distances(points[samples[block]], points)
        closer = distances < (kth[block] - 2.0 * margin[block])[:, None]
        equal = distances <= (kth[block] + 2.0 * margin[block])[:, None]
        rank = np.where(closer, -1, np.where(equal, np.arange(n), 2 * n))
        rank[np.arange(len(rank)), samples[block]] = 2 * n
        chosen[block] = np.argpartition(rank, n_candidates - 1, axis=1)[:, :n_candidates]
    return chosen


def _by_exact_differences(
    points: NDArray[np.float64],
    samples: NDArray[np.int64],
    n_candidates: int,
    kth: NDArray[np.float64],
    margin: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Rows (samples, K) by exact differences over every sample the bound cannot exclude.

    Duplicated samples have the same neighbours but for themselves: each distinct point
    is searched once, for K + 1 neighbours, and each sample then removes itself.
    """
    n, n_wanted = len(points), n_candidates + 1
    _, first, which = np.unique(points[samples], axis=0, return_index=True, return_inverse=True)
    which = which.reshape(-1)
    # kth excludes the sample itself, so the K + 1 nearest, itself included, lie within it
    radius = np.full(len(first), -np.inf)
    np.maximum.at(radius, which, kth + margin)
    nearest = np.empty((len(first), n_wanted), dtype=np.int64)
    step = max(1, _BLOCK_BYTES // (8 * n))
    for start in range(0, len(first), step):
        rows = samples[first[start : start + step]]
        within = squared_distances(points[rows], points) <= radius[start : start + step, None]
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


def select_neighbors(
    indices: NDArray[np.int64], squared_distances: NDArray[np.float64], n_neighbors: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The k nearest candidates of each row and their adaptive-neighbour weights, Eq. (29)-(30).

    Parameters
    ----------
    indices : array of shape (m, K)
        Candidates, distinct within a row; -1 marks an absent one.
    squared_distances : array of shape (m, K)
        Their squared distances; ignored where absent.
    n_neighbors : int
        k >= 1.

    Returns
    -------
    indices : array of shape (m, k), int64
        Ordered by (distance, index).
    weights : array of shape (m, k)
        On the simplex; see `mscam_dask.kernels.simplex.adaptive_neighbor_weights`.

    Raises
    ------
    ConfigurationError
        `n_neighbors` is below 1.
    DataError
        A row has fewer than k + 1 candidates, or one without a finite distance.

    Notes
    -----
    The formula needs d_{k+1}. When K = k and every candidate is present (k = n - 1:
    there is no (k + 1)-th sample) d_{k+1} = d_k is used, the smallest width for which
    the row stays within its k candidates: the farthest then has weight 0, and k equal
    distances (so also k = 1) give uniform weights.
    """
    if n_neighbors < 1:
        raise ConfigurationError(
            f"n_neighbors is {n_neighbors}; allowed is at least 1. Set n_neighbors, usually 9."
        )
    absent = indices < 0
    n_present = indices.shape[1] - np.count_nonzero(absent, axis=1)
    all_taken = indices.shape[1] == n_neighbors and not absent.any()
    short = np.flatnonzero(n_present < n_neighbors + (not all_taken))
    if short.size:
        raise DataError(
            f"{short.size} of {len(indices)} rows have fewer than n_neighbors + 1 = "
            f"{n_neighbors + 1} candidates (first rows: {short[:5].tolist()}, the first has "
            f"{n_present[short[0]]}). Propose more candidates or lower n_neighbors."
        )
    distances = np.where(absent, np.inf, squared_distances)
    order = np.lexsort((indices, distances), axis=-1)[:, : n_neighbors + 1]
    nearest = np.take_along_axis(distances, order, axis=1)
    if all_taken:
        nearest = np.concatenate((nearest, nearest[:, -1:]), axis=1)
    chosen = np.take_along_axis(indices, order[:, :n_neighbors], axis=1)
    return chosen.astype(np.int64, copy=False), adaptive_neighbor_weights(nearest)


def _check_search(embedding: NDArray[np.float64], n_candidates: int, start: int, stop: int) -> None:
    n = len(embedding)
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
    if embedding.ndim != 2 or embedding.shape[1] == 0:
        raise DataError(
            f"the embedding has shape {embedding.shape}; allowed is (n, r) with r >= 1. "
            "A view without any usable direction has no neighbours: drop it."
        )
    bad = np.flatnonzero(~np.isfinite(embedding).all(axis=1))
    if bad.size:
        raise DataError(
            f"{bad.size} of {n} rows of the embedding hold NaN or infinity (first rows: "
            f"{bad[:5].tolist()}). Clean or rescale the view."
        )
