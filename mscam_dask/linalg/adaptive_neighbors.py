"""Adaptive neighbors, Eq. (29)-(31): rows of a graph from the distances to candidate neighbors.

With the projection of rows onto the probability simplex.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mscam_dask.errors import ConfigurationError, DataError

__all__ = [
    "adaptive_neighbor_weights",
    "adaptive_neighbor_weights_global",
    "neighbor_widths",
    "project_rows_to_simplex",
    "select_neighbors",
    "tied_neighbor_weights",
]

# If the k + 1 distances of a row agree to this relative precision, the row is a tie: the differences
# are rounding, and Eq. (30) would divide rounding by rounding.
_TIE_TOLERANCE = 16 * np.finfo(np.float64).eps

# Relative precision of ties for distances from coordinates in single precision.
_SEARCH_TOLERANCE = 1e-5


def select_neighbors(
    indices: NDArray[np.int64], squared_distances: NDArray[np.float64], n_neighbors: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Select the k nearest candidates of each row, with their adaptive-neighbor weights, Eq. (29)-(30).

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
        On the simplex; see `adaptive_neighbor_weights`.

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


def adaptive_neighbor_weights(
    sorted_squared_distances: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Solve argmin_a sum_j d_ij a_ij + gamma_i ||a_i||^2 on the simplex, k entries non-zero.

    Parameters
    ----------
    sorted_squared_distances : array of shape (n, k + 1)
        Squared distances of each row to its k + 1 nearest candidates, ascending.

    Returns
    -------
    array of shape (n, k)
        Weights of the k nearest, descending within the row, sum one. A candidate tied
        with the (k + 1)-th gets 0. A row whose k + 1 distances are all equal (0/0, as
        with duplicated samples) gets 1/k everywhere.

    Raises
    ------
    DataError
        Fewer than two columns, or a row not finite, nonnegative and ascending.

    Notes
    -----
    With gamma_i from Eq. (30) of the paper the solution of Eq. (29) is

        a_ij = (d_{i,k+1} - d_ij) / (k d_{i,k+1} - sum_{h<=k} d_ih).

    The denominator is summed as differences (no cancellation) relative to d_{i,k+1}
    (no overflow).

    References
    ----------
    F. Nie, X. Wang, H. Huang, "Clustering and projected clustering with adaptive
    neighbors", KDD 2014, doi:10.1145/2623330.2623726. Xu et al., arXiv:1709.03656.

    Examples
    --------
    >>> import numpy as np
    >>> adaptive_neighbor_weights(np.array([[0.0, 1.0, 2.0], [3.0, 3.0, 3.0]]))
    array([[0.66666667, 0.33333333],
           [0.5       , 0.5       ]])
    """
    gaps, _ = _relative_gaps(sorted_squared_distances)
    k = gaps.shape[1]
    total = gaps.sum(axis=1, keepdims=True)
    tied = total <= k * _TIE_TOLERANCE
    weights: NDArray[np.float64] = np.where(tied, 1.0 / k, gaps / np.where(tied, 1.0, total))
    return weights


def tied_neighbor_weights(
    sorted_squared_distances: NDArray[np.float64], n_neighbors: int
) -> NDArray[np.float64]:
    """Adaptive-neighbor weights that keep or drop all tied candidates: k_i neighbors of row i.

    k_i is the smallest number of neighbors, at least k, such that the next candidate is farther (by a
    share of 1e-5). If the ties extend beyond the candidates, k_i is the number of neighbors nearer than
    the ties. So neither rounding nor the order of the samples determines which of many samples at one
    distance is the k-th, as in word counts or citation links.

    Parameters
    ----------
    sorted_squared_distances : array of shape (n, K)
        Squared distances of each row to its K > k nearest candidates, ascending.
    n_neighbors : int
        k.

    Returns
    -------
    array of shape (n, K)
        Weights, rows on the simplex; 0 beyond k_i. If all candidates of a row are at one distance,
        its weights are 1/K.

    Raises
    ------
    DataError
        As `adaptive_neighbor_weights`.

    Examples
    --------
    >>> import numpy as np
    >>> d = np.array([[0.0, 1.0, 1.0, 1.0, 2.0]])
    >>> adaptive_neighbor_weights(d[:, :3])
    array([[1., 0.]])
    >>> tied_neighbor_weights(d, 2)
    array([[0.4, 0.2, 0.2, 0.2, 0. ]])
    >>> tied_neighbor_weights(d[:, :4], 2)
    array([[1., 0., 0., 0.]])
    """
    d = sorted_squared_distances
    kth = d[:, n_neighbors - 1 : n_neighbors]
    farther = d > (1.0 + _SEARCH_TOLERANCE) * kth
    ends = np.take_along_axis(d, np.argmax(farther, axis=1)[:, None], axis=1)
    reach = np.where(farther.any(axis=1, keepdims=True), ends, kth)
    near = d < (1.0 - _SEARCH_TOLERANCE) * reach
    return adaptive_neighbor_weights(np.hstack((np.where(near, d, reach), reach)))


def neighbor_widths(sorted_squared_distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Width gamma_i for which row i has exactly k non-zero weights, Eq. (30).

    Parameters
    ----------
    sorted_squared_distances : array of shape (n, k + 1)
        As for `adaptive_neighbor_weights`; the widths have the same unit.

    Returns
    -------
    array of shape (n,)
        gamma_i = (k d_{i,k+1} - sum_{h<=k} d_ih) / 2, nonnegative; 0 for tied rows.

    Raises
    ------
    DataError
        As `adaptive_neighbor_weights`.
    """
    gaps, farthest = _relative_gaps(sorted_squared_distances)
    widths: NDArray[np.float64] = 0.5 * gaps.sum(axis=1) * farthest[:, 0]
    return widths


def adaptive_neighbor_weights_global(
    sorted_squared_distances: NDArray[np.float64], width: float
) -> NDArray[np.float64]:
    """Solve argmin_a sum_j d_ij a_ij + gamma ||a_i||^2 on the simplex, one gamma for all rows.

    Parameters
    ----------
    sorted_squared_distances : array of shape (n, K)
        Squared distances to all candidates of each row. ``inf`` marks an absent
        candidate (weight 0); the order does not matter to the result.
    width : float
        gamma > 0, for example the mean of `neighbor_widths`, Eq. (31).

    Returns
    -------
    array of shape (n, K)
        Rows on the simplex; the number of non-zero weights differs from row to row.

    Raises
    ------
    ConfigurationError
        `width` is not positive and finite (it is 0 when every row is tied).
    DataError
        A row holds NaN or has no finite distance.
    """
    if not (np.isfinite(width) and width > 0):
        raise ConfigurationError(
            f"the global neighbor width is {width!r}; allowed is a positive finite number. "
            "Use the row-wise widths (n_neighbors) when all candidates are tied."
        )
    d = sorted_squared_distances
    nearest = d.min(axis=1, keepdims=True, initial=np.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        # shifted by the nearest before dividing: differences survive a small width
        points = (nearest - d) / (2.0 * width)
    return project_rows_to_simplex(points)


def _relative_gaps(
    sorted_squared_distances: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(d_{k+1} - d_j) / d_{k+1} for j <= k, shape (n, k), and d_{k+1}, shape (n, 1)."""
    d = sorted_squared_distances
    if d.ndim != 2 or d.shape[1] < 2:
        raise DataError(
            f"sorted squared distances have shape {d.shape}; allowed is (n, k + 1) with "
            "k >= 1: the k nearest and one more. Ask for at least two candidates."
        )
    valid = (d[:, 0] >= 0) & np.isfinite(d[:, -1]) & np.all(d[:, 1:] >= d[:, :-1], axis=1)
    bad = np.flatnonzero(~valid)
    if bad.size:
        raise DataError(
            f"{bad.size} of {len(d)} rows of squared distances are not finite, "
            f"nonnegative and ascending (first rows: {bad[:5].tolist()}). Sort each row "
            "and drop absent candidates first."
        )
    farthest = d[:, -1:]
    divisor = np.where(farthest > 0, farthest, 1.0)
    return (farthest - d[:, :-1]) / divisor, farthest


def project_rows_to_simplex(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solve argmin_a ||a - v||^2 over a >= 0, sum(a) = 1, for every row v.

    Parameters
    ----------
    rows : array of shape (n, m), m >= 1
        Points to project. ``-inf`` is allowed (an absent entry, its result is 0) as
        long as the row has a finite entry.

    Returns
    -------
    array of shape (n, m)
        A new array; nonnegative rows with sum one.

    Raises
    ------
    DataError
        A row is empty, holds NaN or ``+inf``, or has no finite entry.

    Notes
    -----
    The solution is ``max(v - theta, 0)`` with ``theta >= max(v) - 1``, hence entries
    below ``max(v) - 1`` never matter: the rows are shifted to maximum 0 and clipped at
    -1, which is exact and makes any magnitude safe. O(n m log m) time, three copies of
    `rows` in memory.

    References
    ----------
    J. Duchi et al., "Efficient projections onto the l1-ball", ICML 2008,
    doi:10.1145/1390156.1390191.

    Examples
    --------
    >>> import numpy as np
    >>> project_rows_to_simplex(np.array([[0.5, 0.5, -3.0], [9.0, 0.0, 0.0]]))
    array([[0.5, 0.5, 0. ],
           [1. , 0. , 0. ]])
    """
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise DataError(
            f"rows to project have shape {rows.shape}; allowed is (n, m) with m >= 1. "
            "Pass at least one candidate per row."
        )
    n, m = rows.shape
    largest = rows.max(axis=1, keepdims=True, initial=-np.inf)
    bad = np.flatnonzero(~np.isfinite(largest[:, 0]))
    if bad.size:
        raise DataError(
            f"{bad.size} of {n} rows cannot be projected on the simplex (first: "
            f"{bad[:5].tolist()}): a row needs a finite maximum and no NaN. "
            "Remove the rows or correct their distances."
        )
    with np.errstate(over="ignore"):  # max - min may exceed the range: clipped below
        shifted = np.clip(rows - largest, -1.0, 0.0)
    descending = -np.sort(-shifted, axis=1)
    # thresholds[:, j]: theta if exactly the j + 1 largest entries were positive
    thresholds = (np.cumsum(descending, axis=1) - 1.0) / np.arange(1, m + 1)
    support = np.count_nonzero(descending > thresholds, axis=1)
    theta = np.take_along_axis(thresholds, support[:, None] - 1, axis=1)
    projected: NDArray[np.float64] = np.maximum(shifted - theta, 0.0)
    return projected
