"""Sums whose bits do not depend on how they are distributed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def added(terms: Iterable[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Sum of arrays by a binary tree in their order: sums of 2^m consecutive arrays that are added again give identical bits."""
    partial: list[tuple[int, NDArray[np.float64]]] = []
    for term in terms:
        size, total = 1, term
        while partial and partial[-1][0] == size:
            total = partial.pop()[1] + total
            size *= 2
        partial.append((size, total))
    _, total = partial.pop()
    while partial:
        total = partial.pop()[1] + total
    return total
