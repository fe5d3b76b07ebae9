"""How many samples differ at all, where these are fewer than the clusters asked for."""

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
    """The distinct rows of one view, as long as there are fewer than `limit`.

    Most views have more within their first rows, and nothing more is looked at then.

    Parameters
    ----------
    limit
        Number of clusters asked for.
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
                self._numbers = None
            else:
                self._numbers.append(np.array(number)[which])

    def numbers(self) -> NDArray[np.int64] | None:
        """Number of each sample's row among the distinct ones, (n,); None where there are `limit`."""
        return None if self._numbers is None else np.concatenate(self._numbers)


def duplicate_samples(
    numbers: Sequence[NDArray[np.int64] | None], limit: int
) -> NDArray[np.int64] | None:
    """Samples that are equal to an earlier one in all views, where fewer than `limit` are not.

    Parameters
    ----------
    numbers
        `DistinctRows.numbers` of each view.
    limit
        Number of clusters asked for.

    Returns
    -------
    (m,) int64 or None
        In ascending order; None where at least `limit` samples differ from each other.
    """
    kinds = np.zeros(1, dtype=np.int64)
    for view in numbers:
        if view is None:
            return None
        _, kinds = np.unique(kinds * limit + view, return_inverse=True)
    _, first = np.unique(kinds, return_index=True)
    if len(first) >= limit:
        return None
    return np.setdiff1d(np.arange(len(kinds)), first)
