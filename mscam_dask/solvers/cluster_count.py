"""The number of clusters: the widest eigengap among the cuts of nearly the highest modularity.

See docs/decisions/0015.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["least_near_peak", "relative_gaps", "widest_gap_near_peak"]

# Modularities closer to the highest than this (relative) say nothing; the eigengap then does.
_TIE = 0.08


def relative_gaps(values: NDArray[np.float64]) -> tuple[float, ...]:
    """(λ_{c+1} − λ_c) / λ_{c+1} for c = 2, 3, …, m − 1; 0 where λ_{c+1} is 0 to rounding.

    Parameters
    ----------
    values : (m,)
        Smallest eigenvalues λ of a graph's Laplacian, ascending.
    """
    lower, upper = values[1:-1], values[2:]
    zero = np.finfo(np.float64).eps * len(values) * max(1.0, float(values[-1]))
    gaps = np.where(upper > zero, (upper - lower) / np.where(upper > zero, upper, 1.0), 0.0)
    return tuple(float(gap) for gap in np.clip(gaps, 0.0, 1.0))


def widest_gap_near_peak(
    counts: Sequence[int], modularity: Sequence[float], eigengap: Sequence[float]
) -> int:
    """The number with the largest eigengap of those whose modularity is within 8 % of the highest.

    Of equal ones the smallest.

    Examples
    --------
    >>> widest_gap_near_peak((2, 3, 4, 5), (0.3, 0.59, 0.6, 0.4), (0.9, 0.3, 0.2, 0.1))
    3
    """
    least = least_near_peak(modularity)
    near = [index for index, value in enumerate(modularity) if value >= least]
    return counts[max(near, key=eigengap.__getitem__)]


def least_near_peak(modularity: Sequence[float]) -> float:
    """The least modularity among which the eigengap decides: 8 % below the highest.

    Examples
    --------
    >>> round(least_near_peak((0.3, 0.5)), 3)
    0.46
    """
    highest = max(modularity)
    return highest - _TIE * abs(highest)
