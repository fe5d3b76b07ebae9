"""Points given by weighted blocks of columns, which join views without a copy."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["WeightedBlocks", "as_weighted_blocks"]


@dataclasses.dataclass(frozen=True, slots=True)
class WeightedBlocks:
    """Points x_i with ‖x_i − x_j‖² = Σ_v Σ_l w_vl (s_v,il − s_v,jl)².

    Attributes
    ----------
    blocks : tuple of (n, r_v)
        Columns, float32 or float64; at least one block.
    weights : tuple of (r_v,)
        nonnegative factors on the squared differences of each column.
    """

    blocks: tuple[NDArray[Any], ...]
    weights: tuple[NDArray[np.float64], ...]

    def __len__(self) -> int:
        return len(self.blocks[0])

    @property
    def rank(self) -> int:
        """Columns of all blocks together."""
        return sum(block.shape[1] for block in self.blocks)

    def take(self, rows: NDArray[np.int64]) -> WeightedBlocks:
        """Copy of the points `rows`."""
        return WeightedBlocks(tuple(block[rows] for block in self.blocks), self.weights)

    def stacked(self, rows: slice | NDArray[np.int64], dtype: Any = np.float64) -> NDArray[Any]:
        """Points `rows` as one array (m, Σr), with the weights applied."""
        parts = [
            block[rows].astype(dtype) * np.sqrt(weights).astype(dtype)
            for block, weights in zip(self.blocks, self.weights, strict=True)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def means(self, groups: NDArray[np.int64], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Mean point (g, Σr) of each group 0 … g−1 of the points."""
        columns = [
            np.bincount(groups, weights=column, minlength=len(sizes)) * np.sqrt(weight)
            for block, weights in zip(self.blocks, self.weights, strict=True)
            for column, weight in zip(block.T, weights, strict=True)
        ]
        return np.stack(columns, axis=1) / sizes[:, None]

    def pairs(self) -> Iterator[tuple[NDArray[Any], NDArray[np.float64]]]:
        """Blocks with their weights."""
        return zip(self.blocks, self.weights, strict=True)


def as_weighted_blocks(points: NDArray[np.float64] | WeightedBlocks) -> WeightedBlocks:
    """Points as weighted blocks; an array becomes one block of weight one."""
    if isinstance(points, WeightedBlocks):
        return points
    return WeightedBlocks((points,), (np.ones(points.shape[1]),))
