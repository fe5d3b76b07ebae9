"""Neighbor overlap: shared nearest neighbors of views, corrected for chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["add_mean_graph", "shared_neighbors"]


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
