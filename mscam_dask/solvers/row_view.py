"""Ridge self-representation of a view whose rows are in blocks: sums over blocks, then projection.

The moments of the columns, the Gram matrix of the scaled rows and the projection on the directions are
the three passes of `mscam_dask.solvers.view_svd`, each of them one task for each block of rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mscam_dask.linalg.orthonormal import column_signs
from mscam_dask.linalg.ridge import Basis, basis_from_gram, shrinkage_factors
from mscam_dask.linalg.scaling import ColumnMoments, RowTransform, fit_transform_from_moments
from mscam_dask.solvers.ridge_view import Encoder, RidgeView, n_directions
from mscam_dask.solvers.row_blocks import BLOCK_BYTES, RowReader, row_blocks
from mscam_dask.solvers.view_svd import equal_rows_error
from mscam_dask.types.parameters import Scale

__all__ = [
    "GramSum",
    "ViewFactor",
    "gram_of_rows",
    "moments_of_rows",
    "project_rows",
    "ridge_factor",
    "row_scaling",
]

# Share of the largest squared mean that rounding may leave as s² of a constant column.
_ROUNDING = 16 * float(np.finfo(np.float64).eps)


@dataclasses.dataclass(frozen=True, slots=True)
class GramSum:
    """Number, mean and centered Gram matrix of some scaled rows.

    Attributes
    ----------
    count : int
    mean : (d,)
    gram : (d, d)
        Σ (x − mean)(x − mean)ᵀ.
    """

    count: int
    mean: NDArray[np.float64]
    gram: NDArray[np.float64]

    def merge(self, other: GramSum) -> GramSum:
        """Sum over both sets of rows."""
        count = self.count + other.count
        gap = other.mean - self.mean
        mean = self.mean + gap * (other.count / count)
        with np.errstate(over="ignore", invalid="ignore"):  # the decomposition raises DataError
            between = np.outer(gap, gap) * (self.count / count * other.count)
            return GramSum(count, mean, self.gram + other.gram + between)


@dataclasses.dataclass(frozen=True, slots=True)
class ViewFactor:
    """Directions of a view for one scale and α, from the sums over all blocks.

    Attributes
    ----------
    svd : Encoder
        Map from rows to rows of Q.
    ridge : RidgeView
        Ridge view without rows.
    """

    svd: Encoder
    ridge: RidgeView


def moments_of_rows(
    read: RowReader, start: int, stop: int, n_features: int, block_bytes: int = BLOCK_BYTES
) -> ColumnMoments:
    """Moments of the columns over rows start … stop − 1, read by smaller blocks."""
    moments: ColumnMoments | None = None
    for first, last in row_blocks(stop - start, n_features, block_bytes=block_bytes):
        block = ColumnMoments.from_rows(read(start + first, start + last))
        moments = block if moments is None else moments.merge(block)
    assert moments is not None, "a block has rows"
    return moments


def row_scaling(moments: Sequence[ColumnMoments], scale: Scale) -> RowTransform:
    """Scaling of the rows from the moments of all blocks."""
    total = moments[0]
    for other in moments[1:]:
        total = total.merge(other)
    return fit_transform_from_moments(scale, total)


def gram_of_rows(
    read: RowReader, start: int, stop: int, transform: RowTransform, block_bytes: int = BLOCK_BYTES
) -> GramSum:
    """Centered Gram matrix of the scaled rows start … stop − 1."""
    total: GramSum | None = None
    for first, last in row_blocks(stop - start, len(transform.offset), block_bytes=block_bytes):
        rows = transform.apply(read(start + first, start + last))
        mean = rows.mean(axis=0)
        rows -= mean
        with np.errstate(over="ignore", invalid="ignore"):
            block = GramSum(len(rows), mean, rows.T @ rows)
        total = block if total is None else total.merge(block)
    assert total is not None, "a block has rows"
    return total


def ridge_factor(
    sums: Sequence[GramSum],
    transform: RowTransform,
    *,
    scale: Scale,
    alpha: float,
    name: str,
    max_rank: int,
) -> ViewFactor:
    """Directions of a view and their ridge shrinkage, from the Gram matrices of all blocks.

    Raises
    ------
    DataError
        All rows are equal after scaling.

    Notes
    -----
    As `mscam_dask.solvers.view_svd.view_svd` and `mscam_dask.solvers.ridge_view.ridge_view`, except that
    signs are those of the loadings, and that Q is orthonormal to the precision of the Gram matrix: 1e-5
    where s² is 1e-10 of the largest.
    """
    total = sums[0]
    for other in sums[1:]:
        total = total.merge(other)
    directions, s2 = basis_from_gram(total.gram)
    floor = total.count * _ROUNDING**2 * float(total.mean @ total.mean)
    rank = int(np.count_nonzero(s2 > floor))
    if rank == 0:
        raise equal_rows_error(name, scale)
    unit = float(s2[:rank].mean())
    rank = min(rank, max_rank)
    loadings = directions[:, :rank] / np.sqrt(s2[:rank])
    loadings *= column_signs(loadings)
    svd = Encoder("features", transform, 0, 1.0, total.mean, loadings)
    values = s2[:rank] / unit
    effective_rank = float(values.sum() ** 2 / np.sum(values**2))
    kept = n_directions(values, alpha)
    gains = shrinkage_factors(values[:kept], alpha)
    # columns of Q are orthonormal and have mean zero
    weight = (total.count - 1) / (2.0 * float(np.sum(gains**2)))
    encoder = dataclasses.replace(
        svd, loadings=np.ascontiguousarray(loadings[:, :kept] * (np.sqrt(weight) * gains))
    )
    basis = Basis(np.empty((0, kept), dtype=np.float32), values[:kept])
    svd = dataclasses.replace(svd, loadings=np.ascontiguousarray(loadings[:, :kept]))
    return ViewFactor(svd, RidgeView(basis, alpha, weight, effective_rank, encoder))


def project_rows(
    read: RowReader, start: int, stop: int, factor: ViewFactor, block_bytes: int = BLOCK_BYTES
) -> NDArray[np.float32]:
    """Rows start … stop − 1 of Q (m, r)."""
    n_features = len(factor.svd.offset)
    vectors = np.empty((stop - start, factor.ridge.basis.rank), dtype=np.float32)
    for first, last in row_blocks(stop - start, n_features, block_bytes=block_bytes):
        vectors[first:last] = factor.svd(read(start + first, start + last))
    return vectors
