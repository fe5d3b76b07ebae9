"""Samples that are equal in all views, as far as there are fewer distinct ones than clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

__all__ = ["DistinctRows", "duplicate_samples"]

# Of rows that are compared at a time.
_COMPARED_BYTES = 2**20


@dataclass
class DistinctRows:
    """Distinct rows of one view, as long as there are fewer than `limit`.

    Most views have more within their first rows, and the others are skipped then.

    Parameters
    ----------
    limit
        Number of clusters.
    """

    limit: int
    _number_of: dict[bytes, int] = field(default_factory=dict)
    _numbers: list[NDArray[np.int64]] | None = field(default_factory=list)

    def update(self, rows: NDArray[np.float64]) -> None:
        """Add the next rows, (m, d)."""
        step = max(1, _COMPARED_BYTES // (8 * rows.shape[1]))
        for start in range(0, len(rows), step):
            if self._numbers is None:
                return
            part = rows[start : start + step] + 0.0  # one zero for both signs
            as_bytes = part.view(np.dtype((np.void, part.strides[0]))).ravel()
            found, which = np.unique(as_bytes, return_inverse=True)
            number = [
                self._number_of.setdefault(
                    blake2b(row.tobytes(), digest_size=16).digest(), len(self._number_of)
                )
                for row in found[: self.limit]
            ]
            if len(self._number_of) >= self.limit:
                self._numbers, self._number_of = None, {}
            else:
                self._numbers.append(np.array(number)[which])

    def joined(self, later: DistinctRows) -> DistinctRows:
        """Return the distinct rows of these rows and those that follow."""
        if self._numbers is None or later._numbers is None:
            return DistinctRows(self.limit, {}, None)
        number_of = dict(self._number_of)
        names = [number_of.setdefault(row, len(number_of)) for row in later._number_of]
        if len(number_of) >= self.limit:
            return DistinctRows(self.limit, {}, None)
        renamed = [np.array(names)[part] for part in later._numbers]
        return DistinctRows(self.limit, number_of, [*self._numbers, *renamed])

    def numbers(self) -> NDArray[np.int64] | None:
        """Number of each sample's row among the distinct ones, (n,); None where there are `limit`."""
        return None if self._numbers is None else np.concatenate(self._numbers)


def duplicate_samples(
    numbers: Sequence[NDArray[np.int64] | None], limit: int
) -> NDArray[np.int64] | None:
    """Return samples that equal an earlier one in all views, if fewer than `limit` are distinct.

    Parameters
    ----------
    numbers
        `DistinctRows.numbers` of each view.
    limit
        Number of clusters.

    Returns
    -------
    (m,) int64 or None
        In ascending order; None where at least `limit` samples differ from each other.
    """
    kinds = np.zeros(1, dtype=np.int64)
    for view in numbers:
        if view is None:
            return None
        _, kinds = np.unique(kinds * (limit + 1) + view, return_inverse=True)
    _, first = np.unique(kinds, return_index=True)
    if len(first) >= limit:
        return None
    return np.setdiff1d(np.arange(len(kinds)), first)
