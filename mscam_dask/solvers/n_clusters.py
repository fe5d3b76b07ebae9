"""Selection of the number of clusters: largest eigengap where adjusted modularity is near its peak.

See docs/decisions/0015 and 0071.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mscam_dask.types.events import NClustersSelected
from mscam_dask.types.rules import RULES


def relative_gaps(values: NDArray[np.float64]) -> tuple[float, ...]:
    """Eigengaps (λ_{c+1} − λ_c) / λ_{c+1} for c = 2, 3, …, m − 1; 0 if λ_{c+1} is 0 to rounding."""
    lower, upper = values[1:-1], values[2:]
    zero = np.finfo(np.float64).eps * len(values) * max(1.0, float(values[-1]))
    gaps = np.where(upper > zero, (upper - lower) / np.where(upper > zero, upper, 1.0), 0.0)
    return tuple(float(gap) for gap in np.clip(gaps, 0.0, 1.0))


def adjusted_modularity(modularity: float, reliability: float) -> float:
    """Modularity times the uncertainty coefficient: Q J / H.

    With many clusters, modularity is nearly the same for many numbers of clusters. U is lower for a
    number that splits a cluster, or merges clusters that only one view separates.
    """
    return modularity * reliability


def widest_gap_near_peak(
    counts: Sequence[int], adjusted: Sequence[float], eigengap: Sequence[float]
) -> int:
    """Number with the largest eigengap among those within 8 % of the highest adjusted modularity.

    Ties go to the smallest number.
    """
    least = least_near_peak(adjusted)
    near = [index for index, value in enumerate(adjusted) if value >= least]
    return counts[max(near, key=eigengap.__getitem__)]


def preferred(selection: NClustersSelected) -> int:
    """Number of clusters that the curves prefer, which is the answer unless that is one cluster."""
    return widest_gap_near_peak(selection.counts, selection.adjusted_modularity, selection.eigengap)


def split_half_ari_of(selection: NClustersSelected | None) -> float | None:
    """Split-half agreement of the number of clusters that the curves prefer."""
    if selection is None:
        return None
    return selection.stability[selection.counts.index(preferred(selection))]


def least_near_peak(adjusted: Sequence[float]) -> float:
    """Adjusted modularity from which on the eigengap decides: 8 % below the highest."""
    highest = max(adjusted)
    return highest - RULES.clear_difference * abs(highest)
