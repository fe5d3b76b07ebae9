"""Projection of rows onto the probability simplex, and adaptive neighbors of one width, Eq. (31)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mscam_dask.errors import ConfigurationError, DataError

__all__ = ["adaptive_neighbor_weights_global", "project_rows_to_simplex"]


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
        gamma > 0, for example the mean of `mscam_dask.solvers.graph_update.neighbor_widths`, Eq. (31).

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
