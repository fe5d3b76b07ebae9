"""Imputation of missing cells: the computation of scikit-learn's imputers, without the estimators.

Autologgers (MLflow) replace the `fit` of every scikit-learn estimator; see `mscam_dask.solvers.spectral_cut`.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

__all__ = ["IMPUTE_METHODS", "ImputeMethod", "Imputer", "fit_imputer"]

ImputeMethod = Literal["mean", "median", "knn"]
"""Mean or median of the column, or mean of the five nearest rows that have the cell."""

IMPUTE_METHODS: tuple[ImputeMethod, ...] = get_args(ImputeMethod)

_N_NEIGHBORS = 5

# Bytes of the distances of a block of rows to all donors.
_BLOCK_BYTES = 16 * 2**20

Rows = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Imputer:
    """Values for missing cells, from the rows of a fit.

    Attributes
    ----------
    statistics : (d,)
        Mean or median of each column.
    donors : (m, d) or None
        Rows whose nearest neighbors are averaged; None for mean and median.
    """

    statistics: Rows
    donors: Rows | None = None

    def __call__(self, rows: Rows, *, block_bytes: int = _BLOCK_BYTES) -> Rows:
        """Copy of some rows (b, d) with a value in each cell that is NaN."""
        missing = np.isnan(rows)
        filled = np.where(missing, self.statistics, rows)
        if self.donors is None:
            return filled
        from sklearn.metrics.pairwise import nan_euclidean_distances  # slow to import

        some = np.flatnonzero(missing.any(axis=1))
        step = max(1, block_bytes // (8 * len(self.donors)))
        for start in range(0, len(some), step):
            here = some[start : start + step]
            distances = nan_euclidean_distances(rows[here], self.donors)
            for column in np.flatnonzero(missing[here].any(axis=0)).tolist():
                own = missing[here, column]
                filled[here[own], column] = self._from_neighbors(distances[own], column)
        return filled

    def _from_neighbors(self, distances: Rows, column: int) -> Rows:
        """Mean of a column over the nearest donors that have it; its mean without such a donor."""
        assert self.donors is not None
        values = self.donors[:, column]
        has = np.flatnonzero(~np.isnan(values))
        distances = distances[:, has]
        k = min(_N_NEIGHBORS, len(has))
        nearest = np.argpartition(distances, k - 1, axis=1)[:, :k]
        known = ~np.isnan(np.take_along_axis(distances, nearest, axis=1))
        counts = known.sum(axis=1)
        sums = np.where(known, values[has][nearest], 0.0).sum(axis=1)
        means: Rows = np.where(counts > 0, sums / np.maximum(counts, 1), self.statistics[column])
        return means


def fit_imputer(rows: Rows, method: ImputeMethod) -> Imputer:
    """Imputer from rows (m, d), each column of which has a value.

    Notes
    -----
    The values are those of ``SimpleImputer(strategy=method)`` and ``KNNImputer()``.
    """
    if method == "median":
        return Imputer(np.nanmedian(rows, axis=0))
    return Imputer(np.nanmean(rows, axis=0), rows if method == "knn" else None)
