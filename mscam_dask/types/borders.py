"""Borders between the clusters of a partition, and the support that they give it."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from mscam_dask.types.rules import RULES

SMALLEST = 5
"""Samples of the smallest cluster whose border can hold: 2⁻⁵ is below the level of 0.05."""


@dataclasses.dataclass(frozen=True, eq=False)
class Borders:
    """Tests for a valley in the density of the samples between each pair of clusters."""

    # (c, c) largest over the parts of two clusters: 0 on the diagonal and for pairs with a dozen nearer
    # clusters each, 1 for clusters of fewer than 5 samples
    p_values: NDArray[np.float64]
    # (c, c, 3) samples on the side of the first, at the border, and opposite.
    counts: NDArray[np.int64]
    sizes: NDArray[np.int64]  # (c,) compared samples

    @property
    def stand(self) -> NDArray[np.bool_]:
        """Clusters (c,) that borders separate from all other clusters, up to much smaller ones.

        A border may fail with a cluster of up to 5 % of the samples. None if none are left to be separated.
        """
        minor = self.sizes <= RULES.level * self.sizes[:, None]
        holds = (self.p_values <= RULES.level) | minor
        return np.asarray(holds.all(axis=1)) & (self.n_supported > 1)

    @property
    def merged(self) -> NDArray[np.int64]:
        """Cluster (c,) into which each is merged until all borders hold, numbered 0, 1, ….

        The smallest cluster with a border that does not hold joins the one across its weakest border.
        """
        p, sizes = self.p_values.copy(), self.sizes.astype(np.float64)
        into = np.arange(len(sizes))
        while p.max() > RULES.level:
            failing = np.flatnonzero(p.max(axis=1) > RULES.level)
            small = failing[np.argmin(sizes[failing])]
            other = int(np.lexsort((-sizes, -p[small]))[0])
            into[into == small] = other
            sizes[other] += sizes[small]
            p[small] = p[:, small] = 0.0
        return np.asarray(np.unique(into, return_inverse=True)[1], dtype=np.int64)

    @property
    def n_supported(self) -> int:
        """Number of clusters that are left then."""
        return int(self.merged.max()) + 1

    @property
    def support(self) -> bool:
        """Whether all borders hold, up to half of the clusters and few samples; not of two clusters in one."""
        left = np.zeros(self.n_supported)
        np.maximum.at(left, self.merged, self.sizes)  # the largest of those that are merged stays
        is_few = self.sizes.sum() - left.sum() <= RULES.level * self.sizes.sum()
        return bool(is_few and len(left) > 1 and 2 * len(left) >= len(self.sizes))

    @property
    def unseparated(self) -> list[tuple[int, int]]:
        """Pairs of clusters whose border does not hold, the one with the largest p-value first."""
        i, j = np.nonzero(np.triu(self.p_values, 1) > RULES.level)
        order = np.argsort(-self.p_values[i, j], kind="stable")
        return list(zip(i[order].tolist(), j[order].tolist(), strict=True))

    def of_several(self, n_tested: int) -> Borders:
        """Borders of one of several tested partitions: p-values by Bonferroni."""
        return dataclasses.replace(self, p_values=np.minimum(1.0, n_tested * self.p_values))

    def in_order(self, order: NDArray[np.int64]) -> Borders:
        """Borders of the clusters in another order."""
        pairs = np.ix_(order, order)
        return Borders(self.p_values[pairs], self.counts[pairs], self.sizes[order])
