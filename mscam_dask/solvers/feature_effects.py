"""Standardized mean differences of features between a cluster and all other samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

__all__ = ["FeatureEffects", "feature_effects"]


@dataclasses.dataclass(frozen=True, slots=True)
class FeatureEffects:
    """Effect sizes of the columns of one view, by cluster.

    Attributes
    ----------
    means, means_of_rest : (c, d)
        Mean of each column over the samples of a cluster and over all others; NaN if there are none.
    shares, shares_of_rest : (c, d)
        Share of values other than 0 in a cluster and in all other samples; NaN if there are none.
    effects : (c, d)
        Difference of the two means in units of the pooled standard deviation (Cohen's d); 0 if they
        are equal, infinite if they differ and the column varies in neither.
    """

    means: NDArray[np.float64]
    means_of_rest: NDArray[np.float64]
    shares: NDArray[np.float64]
    shares_of_rest: NDArray[np.float64]
    effects: NDArray[np.float64]


def feature_effects(
    blocks: Iterable[tuple[int, NDArray[np.float64]]],
    labels: NDArray[np.int64],
    n_clusters: int,
) -> FeatureEffects:
    """Cohen's d, mean and share of nonzeros of every column for each cluster against the other samples, in one pass over the rows.

    Parameters
    ----------
    blocks : iterable of (start, (b, d))
        Rows of the view, in order.
    labels : (n,) int64
        Clusters 0 … c−1.
    n_clusters : int
        c.

    Returns
    -------
    FeatureEffects

    Notes
    -----
    Sums of the values and their squares by cluster, about the mean of the first block: O(n d)
    flops, memory of a block and a few (c, d) arrays.

    References
    ----------
    J. Cohen, "Statistical Power Analysis for the Behavioral Sciences", 2nd ed., 1988, chapter 2.
    """
    shift: NDArray[np.float64] | None = None
    sums = squares = n_nonzero = np.zeros((n_clusters, 0))
    for start, rows in blocks:
        if shift is None:
            shift = rows.mean(axis=0)
            sums, squares, n_nonzero = (np.zeros((n_clusters, len(shift))) for _ in range(3))
        own = labels[start : start + len(rows)]
        for cluster in np.unique(own):
            shifted = rows[own == cluster] - shift
            sums[cluster] += shifted.sum(axis=0)
            squares[cluster] += np.einsum("ij,ij->j", shifted, shifted)
            n_nonzero[cluster] += np.count_nonzero(rows[own == cluster], axis=0)
    assert shift is not None, "a view without rows passed validation"
    sizes = np.bincount(labels, minlength=n_clusters).astype(np.float64)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        rest_sizes = sizes.sum() - sizes
        own_means, rest_means = sums / sizes, (sums.sum(axis=0) - sums) / rest_sizes
        shares, rest_shares = n_nonzero / sizes, (n_nonzero.sum(axis=0) - n_nonzero) / rest_sizes
        own_scatter = squares - sizes * own_means**2
        rest = squares.sum(axis=0) - squares - rest_sizes * rest_means**2
        scatter = np.maximum(own_scatter, 0.0) + np.maximum(rest, 0.0)
        # rounding error of sums over n samples of a column that varies in neither
        largest = np.finfo(np.float64).eps * len(labels) * squares.sum(axis=0)
        scatter[scatter <= largest] = 0.0
        difference = own_means - rest_means
        effects = difference / np.sqrt(scatter / max(1.0, float(sizes.sum()) - 2.0))
    effects[difference == 0.0] = 0.0
    return FeatureEffects(own_means + shift, rest_means + shift, shares, rest_shares, effects)
