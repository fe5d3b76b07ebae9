"""Samples that a view has, among all n samples."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PresentSamples"]


@dataclasses.dataclass(frozen=True, slots=True)
class PresentSamples:
    """Samples that an incomplete view has.

    Attributes
    ----------
    samples : (m,) int64
        Positions among all samples, ascending.
    n_samples : int
        n.
    """

    samples: NDArray[np.int64]
    n_samples: int

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def positions(self) -> NDArray[np.int64]:
        """Position (n,) of each sample among those of the view, −1 where absent."""
        positions = np.full(self.n_samples, -1, dtype=np.int64)
        positions[self.samples] = np.arange(len(self.samples))
        return positions

    def spread(self, values: NDArray[Any], fill: float = np.nan) -> NDArray[Any]:
        """Rows (n, …) of all samples from those of the view, with `fill` for absent ones."""
        result = np.full((self.n_samples, *values.shape[1:]), fill, dtype=values.dtype)
        result[self.samples] = values
        return result
