"""Squared Euclidean distances of all pairs and on given edges."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas
from scipy.sparse import csr_array

# Differences of one block of edges: small enough to stay in the second-level cache.
_BLOCK_BYTES = 1 << 18


def sums_by_group(
    rows: NDArray[Any], groups: NDArray[np.integer[Any]], n_groups: int
) -> NDArray[np.float64]:
    """Sums (g, d) of the rows (n, d) of each group, added in the order of the rows."""
    n = len(rows)
    members = csr_array((np.ones(n), (groups, np.arange(n))), shape=(n_groups, n))
    return np.asarray(members @ rows)


def squared_distances(
    rows: NDArray[np.float64], others: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Squared distances (m, n) by one matrix product, centered at the mean of `others`, at least 0.

    Near coincident points lose about eps * ||x||^2 to cancellation; `squared_distances_to` does not.
    """
    if rows.shape[1] == 0 or len(others) == 0:
        return np.zeros((len(rows), len(others)))
    center = others.mean(axis=0)
    a = rows - center
    b = others - center
    return squared_distances_by_products(a, b, np.einsum("ij,ij->i", b, b))


def squared_distances_by_products(
    rows: NDArray[np.float64], others: NDArray[np.float64], squared_norms: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Squared distances (m, n) of points already centered; `squared_norms` (n,) of `others`."""
    result: NDArray[np.float64] = rows @ others.T
    result *= -2.0
    result += np.einsum("ij,ij->i", rows, rows)[:, None]
    result += squared_norms
    np.maximum(result, 0.0, out=result)
    return result


def squared_distances_to(
    embedding: NDArray[Any] | WeightedBlocks,
    samples: NDArray[np.integer[Any]],
    indices: NDArray[np.integer[Any]],
) -> NDArray[np.float64]:
    """Squared distances ||x_samples[i] - x_indices[i, l]||^2 (m, K) by differences; arbitrary for index -1.

    d_ij and d_ji are the same to the last bit, however the rows were cut into calls. Columns kept
    as float32 are subtracted and summed in float32: about six digits.
    """
    m, n_candidates = indices.shape
    result = np.zeros((m, n_candidates))
    pairs = (
        tuple(embedding.pairs()) if isinstance(embedding, WeightedBlocks) else ((embedding, None),)
    )
    for columns, weights in pairs:
        factors = None if weights is None else weights.astype(columns.dtype)
        r = columns.shape[1]
        step = max(1, _BLOCK_BYTES // max(1, columns.itemsize * r * n_candidates))
        for start in range(0, m, step):
            rows = slice(start, min(start + step, m))
            # `take` is the faster, but copies all columns first if they are not contiguous
            if columns.flags.c_contiguous:
                ends = np.take(columns, indices[rows], axis=0, mode="clip")
            else:
                ends = columns[indices[rows]]
            ends -= columns[samples[rows], None, :]
            weighted = ends if factors is None else ends * factors
            result[rows] += np.einsum("ijk,ijk->ij", ends, weighted)
    return result


def subtract_twice_products(
    result: NDArray[np.float32], rows: NDArray[np.float32], others: NDArray[np.float32]
) -> None:
    """Subtract 2 rows othersᵀ from the C-contiguous `result` (m, n) in place, by one BLAS call."""
    written = blas.sgemm(
        -2.0, others.T, rows.T, beta=1.0, c=result.T, trans_a=True, overwrite_c=True
    )
    if not np.shares_memory(written, result):  # not reached with float32 in C order
        result[...] = written.T


@dataclasses.dataclass(frozen=True, slots=True)
class WeightedBlocks:
    """Points x_i with ‖x_i − x_j‖² = Σ_v Σ_l w_vl (s_v,il − s_v,jl)²."""

    blocks: tuple[NDArray[Any], ...]  # (n, r_v) each, float32 or float64
    weights: tuple[NDArray[np.float64], ...]  # (r_v,) each, nonnegative

    def __len__(self) -> int:
        return len(self.blocks[0])

    @property
    def rank(self) -> int:
        """Columns of all blocks together."""
        return sum(block.shape[1] for block in self.blocks)

    def take(self, rows: NDArray[np.int64]) -> WeightedBlocks:
        """Copy of the points `rows`."""
        return WeightedBlocks(tuple(block[rows] for block in self.blocks), self.weights)

    def stacked(self, rows: slice | NDArray[np.integer], dtype: Any = np.float64) -> NDArray[Any]:
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
