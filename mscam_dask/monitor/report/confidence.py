"""Confidence of each sample in its cluster, and the cluster that is next, from memberships."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Confidence", "next_clusters", "sample_confidence"]

_MAX_ENTRIES = 2**20  # of a block of memberships


@dataclass(frozen=True, eq=False)
class Confidence:
    """Memberships of the samples in two clusters.

    Attributes
    ----------
    values : (n,)
        Membership in the cluster of the sample.
    next_cluster : (n,) int64
        Cluster of the largest other membership.
    """

    values: NDArray[np.float64]
    next_cluster: NDArray[np.int64]

    def least_certain(self, limit: int) -> NDArray[np.int64]:
        """Rows with the smallest values, smallest first, and ties in the order of rows."""
        return np.argsort(self.values, kind="stable")[:limit]


def sample_confidence(
    membership: NDArray[np.float64] | None, labels: NDArray[np.int64]
) -> Confidence | None:
    """Return the confidence of each sample.

    Parameters
    ----------
    membership : (n, c) or None
        Columns in ascending order of the labels of their clusters.
    labels : (n,)

    Returns
    -------
    Confidence or None
        None without memberships, and with a single cluster.
    """
    if membership is None or membership.shape[1] < 2:
        return None
    names = np.unique(labels)
    if len(names) < membership.shape[1]:
        names = np.arange(membership.shape[1])
    own = np.searchsorted(names, labels)
    values = np.take_along_axis(membership, own[:, None], axis=1)[:, 0]
    return Confidence(values, names[next_clusters(membership, own)])


def next_clusters(membership: NDArray[np.float64], own: NDArray[np.int64]) -> NDArray[np.int64]:
    """Column (n,) of the largest membership of each sample outside its own column.

    Parameters
    ----------
    membership : (n, c)
        c is at least 2.
    own : (n,) int64
    """
    found = np.empty(len(own), dtype=np.int64)
    step = max(1, _MAX_ENTRIES // membership.shape[1])
    for start in range(0, len(own), step):
        others = membership[start : start + step].copy()
        np.put_along_axis(others, own[start : start + step, None], -np.inf, axis=1)
        found[start : start + step] = others.argmax(axis=1)
    return found
