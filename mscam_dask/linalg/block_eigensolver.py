"""Smallest eigenpairs of a Laplacian whose rows are in blocks, from coarse to fine.

The samples are aggregated, the small Laplacian of the aggregates is solved, and its eigenvectors
are prolonged to all samples. Rounds of a Chebyshev filter and Rayleigh-Ritz make them accurate.
Each function is the work of one block, or of the small matrices (p, p) that are sums over blocks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.errors import DataError

# Number of aggregates of the coarse problem, which is dense.
_MOST_AGGREGATES = 1024

# Residual relative to the largest eigenvalue; the spectral cut of a large graph needs no more: see
# docs/decisions/0075.
_TOLERANCE = 1e-4

# Relative change of the largest Ritz value of the block below which its columns have settled.
_MAX_CHANGE_OF_LAST = 0.1

_MAX_ROUNDS = 30

# Largest amplification of a direction by one filter, and of null vectors: the upper directions lose
# digits to rounding, which the next round restores.
_LARGEST_GAIN, _LARGEST_GAIN_AT_ZERO = 1e5, 1e9
_LARGEST_DEGREE = 300

# Eigenvalue of the Gram matrix of unit columns below which a direction is rounding.
_MIN_INDEPENDENT = 1e-5


@dataclasses.dataclass(frozen=True, slots=True)
class LaplacianRows:
    """Rows of a Laplacian L = D − (A + Aᵀ)/2."""

    matrix: csr_array[Any]  # (m, h), columns are the rows of the halo
    halo: Halo
    own: NDArray[np.int32]  # (m,) positions of the rows themselves in the halo
    largest_degree: float

    def apply(self, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Rows of L V (m, p) from the blocks of V that the halo names."""
        return np.asarray(self.matrix @ self.halo.gather(parts))


def aggregate_rows(
    points: NDArray[np.float32], components: NDArray[Any], n_samples: int
) -> NDArray[np.int32]:
    """Aggregate of each point (m, r) of a block, numbered from 0: near rows of one component (m,).

    An aggregate has samples of one component, so null vectors are exact. The number of aggregates
    is in proportion to `n_samples` of all blocks.
    """
    m = len(points)
    wanted = -(-m * min(_MOST_AGGREGATES, n_samples) // n_samples)
    if wanted >= m:
        return np.arange(m, dtype=np.int32)
    seeds = points[np.linspace(0, m - 1, wanted).astype(np.int64)]
    norms = np.einsum("ij,ij->i", seeds, seeds)
    nearest = np.argmin(norms - 2.0 * (points @ seeds.T), axis=1)
    _, aggregates = np.unique(np.stack([nearest, components], axis=1), axis=0, return_inverse=True)
    return aggregates.ravel().astype(np.int32)


def coarse_block(
    rows: LaplacianRows, own: NDArray[np.int32], others: Sequence[NDArray[np.int32]]
) -> csr_array[np.float64]:
    """Sum of the entries of L by aggregates: of the block's rows (m,), and of those of its halo."""
    columns = rows.halo.gather(others)
    n_own, n_columns = int(own.max()) + 1, int(columns.max()) + 1
    left = csr_array((np.ones(len(own)), (own, np.arange(len(own)))), shape=(n_own, len(own)))
    right = csr_array(
        (np.ones(len(columns)), (np.arange(len(columns)), columns)), shape=(len(columns), n_columns)
    )
    return csr_array(left @ (rows.matrix.astype(np.float64) @ right))


def coarse_vectors(
    blocks: Sequence[csr_array[np.float64]], aggregates: NDArray[np.int32], n_vectors: int
) -> NDArray[np.float32]:
    """Bottom eigenvectors of the Laplacian of the aggregates (n,), as values of their samples, (g, p)."""
    roots = np.sqrt(np.bincount(aggregates))
    g = len(roots)
    total = np.zeros((g, g))
    for block in blocks:
        total[: block.shape[0], : block.shape[1]] += block.toarray()
    scaled = total / roots[:, None] / roots
    last = min(n_vectors, g) - 1
    _, vectors = scipy.linalg.eigh(0.5 * (scaled + scaled.T), subset_by_index=[0, last])
    return np.asarray(vectors / roots[:, None], dtype=np.float32)


@dataclasses.dataclass(frozen=True, slots=True)
class RitzSums:
    """Sums over the rows of a block of columns V: VᵀV, VᵀLV, (LV)ᵀLV, and the largest degree."""

    products: NDArray[np.float64]
    largest_degree: float


def ritz_sums(rows: LaplacianRows, own: NDArray[Any], image: NDArray[Any]) -> RitzSums:
    """Sums of a block of rows of V (m, p) and LV (m, p)."""
    v, lv = own.astype(np.float64), image.astype(np.float64)
    return RitzSums(np.stack([v.T @ v, v.T @ lv, lv.T @ lv]), rows.largest_degree)


@dataclasses.dataclass(frozen=True, slots=True)
class RitzPairs:
    """Ritz pairs in the span of columns V."""

    rotation: NDArray[np.float64]  # (p, q): V times it are the orthonormal Ritz vectors
    values: NDArray[np.float64]  # (q,) ascending, ≥ 0
    residuals: NDArray[np.float64]  # (q,) ‖L v − θ v‖
    bound: float  # upper bound of the eigenvalues of L

    def converged(self, n_accurate: int) -> bool:
        """Whether the first pairs are accurate."""
        return bool(np.all(self.residuals[:n_accurate] <= _TOLERANCE * self.bound))

    def settled(self, before: RitzPairs | None) -> bool:
        """Whether the last Ritz value changed little, so that the columns miss no eigenvector."""
        return before is not None and bool(
            before.values[-1] - self.values[-1] <= _MAX_CHANGE_OF_LAST * self.values[-1]
        )


def ritz_pairs(sums: Sequence[RitzSums]) -> RitzPairs:
    """Solve the Rayleigh-Ritz problem from sums over blocks; dependent columns are dropped."""
    gram, energy, squares = sum((one.products for one in sums[1:]), sums[0].products)
    lengths = np.sqrt(np.maximum(np.diag(gram), np.finfo(np.float64).tiny))
    unit = gram / lengths[:, None] / lengths
    if not np.isfinite(unit).all():
        raise DataError(
            "the eigenvectors of the graph are not finite: check the weights of the graph."
        )
    sizes, span = scipy.linalg.eigh(0.5 * (unit + unit.T))
    kept = sizes > _MIN_INDEPENDENT
    basis = span[:, kept] / np.sqrt(sizes[kept]) / lengths[:, None]
    projected = basis.T @ energy @ basis
    values, rotation = scipy.linalg.eigh(0.5 * (projected + projected.T))
    rotation = basis @ rotation
    squared = np.einsum("ij,ik,kj->j", rotation, squares, rotation) - values**2
    bound = 2.0 * max(one.largest_degree for one in sums)
    return RitzPairs(rotation, np.maximum(values, 0.0), np.sqrt(np.maximum(squared, 0.0)), bound)


@dataclasses.dataclass(frozen=True, slots=True)
class Filter:
    """Chebyshev filter that damps the eigenvalues of an interval."""

    degree: int
    center: float  # of the interval
    factor: float  # two over half its length


def next_filter(
    found: RitzPairs,
    before: RitzPairs | None,
    n_accurate: int,
    n_rounds: int,
    *,
    n_null: int,
    warm: bool,
) -> Filter | None:
    """Filter of the next round; None if the pairs are accurate, or after the last round.

    A `warm` start that is accurate needs no round. After a coarse start the columns must have
    settled, unless all accurate pairs are null vectors, which a coarse start has exactly: then one
    round does.
    """
    known = n_null >= n_accurate and n_rounds > 0
    done = found.converged(n_accurate) and (warm or known or found.settled(before))
    if done or n_rounds >= _MAX_ROUNDS or found.bound == 0:
        return None
    return _filter(found, n_accurate)


def _filter(found: RitzPairs, n_accurate: int) -> Filter:
    """Filter that damps eigenvalues above those of the block, with a degree from the gap below them."""
    values, bound = found.values, found.bound
    edge = float(values[n_accurate - 1])
    gain, gain_at_zero = np.log(2.0 * _LARGEST_GAIN), np.log(2.0 * _LARGEST_GAIN_AT_ZERO)
    rate_at_zero = max(_gain_rate(0.0, edge, bound), 1e-3) if edge > 0 else 1e-3
    largest_degree = min(_LARGEST_DEGREE, gain_at_zero / rate_at_zero)
    # A cut at the last wanted value would not separate anything (an eigenvalue of higher
    # multiplicity than the block): keep it where the largest degree still gains tenfold.
    reach = (np.arccosh(10.0) / (2 * largest_degree)) ** 2
    cut = max(float(values[-1]), edge + reach * (bound - edge))
    cut = min(cut, 0.5 * (bound + edge))
    missing = max(float(found.residuals[:n_accurate].max()) / (_TOLERANCE * bound), 10.0)
    degree = min(
        np.log(4.0 * missing) / _gain_rate(edge, cut, bound),
        gain / _gain_rate(float(values[0]), cut, bound),
        gain_at_zero / _gain_rate(0.0, cut, bound),
        _LARGEST_DEGREE,
    )
    return Filter(max(2, int(np.ceil(degree))), 0.5 * (bound + cut), 4.0 / (bound - cut))


def _gain_rate(value: float, cut: float, bound: float) -> float:
    """Logarithm of the gain per degree of the Chebyshev filter at `value` < cut."""
    return float(np.arccosh((bound + cut - 2.0 * value) / (bound - cut)))


def filter_first(
    own: NDArray[np.float32], image: NDArray[np.float32], found: RitzPairs, polynomial: Filter
) -> NDArray[np.float32]:
    """First step of the filter on the Ritz vectors of a block, from V and LV: no product with L."""
    rotation = found.rotation.astype(np.float32)
    scale = np.float32(0.5 * polynomial.factor)
    return np.asarray((np.float32(polynomial.center) * own - image) @ (rotation * scale))


def filter_next(
    rows: LaplacianRows,
    previous: NDArray[np.float32],
    current: Sequence[NDArray[np.float32]],
    polynomial: Filter,
) -> NDArray[np.float32]:
    """Next step of the filter on a block, from its last but one step and the halo of the last."""
    gathered = rows.halo.gather(current)
    following = np.asarray(rows.matrix @ gathered)
    following *= np.float32(-polynomial.factor)
    following += np.float32(polynomial.factor * polynomial.center) * gathered[rows.own]
    following -= previous
    return following


Ranges = tuple[tuple[int, int], ...]
"""Start and stop of each block of rows."""


def blocks_of(rows: NDArray[Any], ranges: Ranges) -> tuple[int, ...]:
    """Blocks in which some rows are, ascending; rows −1 are absent."""
    starts = np.array([start for start, _ in ranges])
    found = np.zeros(len(ranges) + 1, dtype=np.bool_)
    found[np.searchsorted(starts, rows.ravel(), side="right")] = True
    return tuple(np.flatnonzero(found[1:]).tolist())


@dataclasses.dataclass(frozen=True, slots=True)
class Halo:
    """Rows of several blocks that one block reads."""

    blocks: tuple[int, ...]  # blocks with such rows, ascending
    rows: tuple[NDArray[np.int32], ...]  # rows of each of these, from its start, ascending

    def gather(self, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Rows of arrays, one array for each of `blocks`, below each other."""
        # each part is copied to its place: np.concatenate would hold all rows twice
        ends = np.cumsum([0, *map(len, self.rows)])
        gathered = np.empty((ends[-1], *parts[0].shape[1:]), dtype=parts[0].dtype)
        for part, rows, first in zip(parts, self.rows, ends[:-1], strict=True):
            gathered[first : first + len(rows)] = part[rows]
        return gathered


def halo_of(columns: NDArray[Any], ranges: Ranges) -> tuple[Halo, NDArray[np.int32]]:
    """Halo of the rows `columns` (−1 is absent), and their positions in the gathered rows."""
    n = ranges[-1][1]
    wanted = np.zeros(n + 1, dtype=np.bool_)  # the last entry: absent
    wanted[columns] = True
    wanted[n] = False
    rows = np.flatnonzero(wanted).astype(np.int32)
    place = np.full(n + 1, -1, dtype=np.int32)
    place[rows] = np.arange(len(rows), dtype=np.int32)
    edges = np.searchsorted(rows, [start for start, _ in ranges] + [n])
    blocks = tuple(np.flatnonzero(np.diff(edges)).tolist())
    parts = tuple(rows[edges[b] : edges[b + 1]] - np.int32(ranges[b][0]) for b in blocks)
    return Halo(blocks, parts), place[columns]


@dataclasses.dataclass(frozen=True, slots=True)
class RowPieces:
    """Some rows of several arrays, dense or sparse, on their way to another block."""

    destinations: NDArray[np.int32]  # (m,) row of each among all rows of the new order
    arrays: tuple[Any, ...]  # (m, …) each


def split_rows(
    arrays: Sequence[Any], destinations: NDArray[np.int32], edges: Sequence[int]
) -> list[RowPieces]:
    """Rows of arrays by destination: piece g has those from ``edges[g]`` up to ``edges[g + 1]``."""
    group = np.searchsorted(edges, destinations, side="right") - 1
    pieces = []
    for number in range(len(edges) - 1):
        mine = np.flatnonzero(group == number)
        pieces.append(RowPieces(destinations[mine], tuple(array[mine] for array in arrays)))
    return pieces


def join_rows(pieces: Sequence[RowPieces], start: int, stop: int) -> tuple[NDArray[Any], ...]:
    """Rows start … stop − 1 of the new order, put together from pieces that have all of them."""
    first = pieces[0].arrays
    joined = tuple(np.empty((stop - start, *one.shape[1:]), dtype=one.dtype) for one in first)
    for piece in pieces:
        mine = (piece.destinations >= start) & (piece.destinations < stop)
        here = piece.destinations[mine] - start
        for target, array in zip(joined, piece.arrays, strict=True):
            target[here] = array[mine]
    return joined
