"""Neighbor overlap: shared nearest neighbors of views, corrected for chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["add_mean_graph", "permutation_z", "shared_neighbors"]


def add_mean_graph(
    total: NDArray[np.float32], lists: Sequence[NDArray[np.integer[Any]]], factor: float = 1.0
) -> None:
    """Add the mean graph of neighbor lists of the same samples to a dense graph in place.

    Parameters
    ----------
    total : (m, n)
        Weights of the n samples as neighbors of m of them.
    lists : sequence of (m, k) int
        Distinct neighbors of each of the m samples; −1 in the rows of samples that have none.
    factor : float
        Weight of the mean graph.
    """
    for neighbors in lists:
        rows = np.flatnonzero(neighbors[:, 0] >= 0)
        total[rows[:, None], neighbors[rows]] += np.float32(factor / len(lists))


def shared_neighbors(
    neighbors: NDArray[np.integer[Any]],
    others: NDArray[np.floating[Any]],
    popularity: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Neighbor overlap of each sample: weight of its neighbors in the other views, minus chance.

    Parameters
    ----------
    neighbors : (m, k) int
        Neighbors of each of m samples in one view.
    others : (m, k)
        Weights B_ij of these neighbors in the other views, where all rows of B have equal sums.
    popularity : (n,)
        Mean over the m samples of the weights of each sample in the other views.

    Returns
    -------
    (m,)
        (1/k) Σ_{j ∈ N(i)} (B_ij − Σ_l B_lj / m). Its mean is zero for neighbors that are
        independent of B, however often some samples (hubs) are neighbors in both.

    Notes
    -----
    O(m k) flops.

    References
    ----------
    The chance term follows L. Hubert, P. Arabie, "Comparing partitions", J. Classification 2
    (1985), doi:10.1007/BF01908075, with the in-degrees of both graphs held fixed.
    """
    return np.asarray((others - popularity[neighbors]).mean(axis=1), dtype=np.float64)


def permutation_z(first: NDArray[np.floating[Any]], second: NDArray[np.floating[Any]]) -> float:
    """Inner product of two graphs, standardized over all permutations of the samples of one of them.

    Parameters
    ----------
    first, second : (n, n)
        Weights of the neighbors of the same samples, without a diagonal.

    Returns
    -------
    float
        About standard normal for independent graphs; 0 for a graph whose weights are all equal.

    Notes
    -----
    With A and B centered in rows and columns, and up to terms of relative order 1/n, Σ A_ij B_ij has
    the mean tr(A) tr(B) / (n − 1) and the variance (Σ A_ij² Σ B_ij² + Σ A_ij A_ji Σ B_ij B_ji) / n².
    Centering leaves out hubs. O(n²) flops.

    References
    ----------
    N. Mantel, "The detection of disease clustering and a generalized regression approach", Cancer
    Research 27 (1967).
    """
    n = len(first)
    a, b = _centered(first), _centered(second)
    if not (a.any() and b.any()):
        return 0.0
    squares = np.vdot(a, a) * np.vdot(b, b) + np.vdot(a, a.T) * np.vdot(b, b.T)
    expected = a.trace() * b.trace() / (n - 1)
    return float(n * (np.vdot(a, b) - expected) / np.sqrt(squares))


def _centered(graph: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Graph minus the means of its rows and columns, 0 where these are rounding only."""
    values = graph.astype(np.float64)
    rounding = np.finfo(np.float64).eps * len(values) * np.abs(values).max(initial=0.0)
    values -= values.mean(axis=1, keepdims=True)
    values -= values.mean(axis=0)
    return np.where(np.abs(values) > rounding, values, 0.0)
