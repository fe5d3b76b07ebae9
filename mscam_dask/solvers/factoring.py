"""The singular directions of one view, found block of rows by block.

Every view is centred after scaling: what all samples share tells none apart, yet would be the
largest singular direction. The rows arrive through a callable, so this code serves arrays, Dask
collections and Zarr stores alike.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.errors import DataError
from mscam_dask.kernels.orthonormal import column_signs, inverse_root
from mscam_dask.kernels.ridge import Basis, basis_from_gram, basis_from_kernel
from mscam_dask.kernels.scaling import fit_transform_from_moments, harmless_exponent
from mscam_dask.model.parameters import Scale
from mscam_dask.solvers.strongest import strongest_directions
from mscam_dask.solvers.view_basis import Encoder, FactoredView
from mscam_dask.solvers.view_rows import (
    Blocks,
    RowReader,
    ViewShape,
    column_moments,
    mean_and_gram,
    mean_row,
    row_blocks,
)

__all__ = ["MOST_DECOMPOSED", "factor_view", "scaled_gram"]

MOST_DECOMPOSED = 2048
"""Largest side of a Gram matrix that is decomposed where few of its directions are wanted."""

# s²_min / s²_max above which a Gram matrix gives Q to the precision it is kept in.
_WELL_CONDITIONED: dict[Any, float] = {np.float32: 1e-7, np.float64: 1.0}


def factor_view(
    read: RowReader,
    shape: ViewShape,
    *,
    scale: Scale,
    name: str,
    dtype: type[np.floating[Any]] = np.float64,
    max_rank: int | None = None,
) -> FactoredView:
    """Scale and centre a view and find its singular directions.

    Parameters
    ----------
    read : RowReader
    shape : ViewShape
    scale : {"standard", "unit", "minmax", "none"}
        For feature views; distance views become the kernel exp(−D / mean D), kernel views
        are used as they are, both centred in feature space.
    name : str
        For messages.
    dtype : {numpy.float64, numpy.float32}
        Of Q as it is kept; all that leads to it is float64.
    max_rank : int, optional
        Most directions kept, those of largest s². The unit of s² stays its mean over all.

    Returns
    -------
    FactoredView

    Raises
    ------
    DataError
        When all rows are equal after scaling.

    Notes
    -----
    Three passes over the rows (moments, Gram matrix, basis), a fourth where small directions
    need correction: 2 n d r + n d² flops, peak memory n·r + d² floats and a few blocks; the n×n
    side is used when d > n. With `max_rank`, of a view with more than 2048 rows and columns neither:
    see `mscam_dask.solvers.strongest`.
    """
    total: float | None = None
    if shape.metric != "features":
        basis, encoder = _factor_kernel(read, shape)
        all_s2 = basis.singular_values_squared
    else:
        transform = fit_transform_from_moments(scale, column_moments(read, shape))

        def blocks() -> Iterator[tuple[int, int, NDArray[np.float64]]]:
            for start, stop in row_blocks(shape.n_samples, shape.n_features):
                yield start, stop, transform.apply(read(start, stop))

        if max_rank is not None and min(shape.n_samples, shape.n_features) > MOST_DECOMPOSED:
            basis, offset, loadings, total = _factor_strongest(blocks, shape, dtype, max_rank)
            all_s2 = basis.singular_values_squared
        else:
            tall = shape.n_features <= shape.n_samples
            factor = _factor_by_columns if tall else _factor_by_rows
            basis, offset, loadings, all_s2 = factor(blocks, shape, _Kept(dtype, max_rank))
        encoder = Encoder("features", transform, 0, 1.0, offset, loadings)
    rank = int(np.count_nonzero(all_s2 > _rounding_floor(encoder.offset, shape)))
    if rank == 0:
        raise DataError(
            f"all rows of view {name!r} are equal after scale={scale!r}: it cannot tell samples "
            "apart. Leave it out or choose another scale"
        )
    unit = float(all_s2[:rank].mean())
    if total is not None:  # the others are not known, but their sum
        unit = total / min(shape.n_samples - 1, shape.n_features)
    rank = min(rank, max_rank or rank)
    encoder = dataclasses.replace(encoder, loadings=encoder.loadings[:, :rank])
    vectors = basis.vectors[:, :rank].astype(dtype, copy=False)
    return FactoredView(Basis(vectors, all_s2[:rank] / unit), encoder)


def _rounding_floor(offset: NDArray[np.float64], shape: ViewShape) -> float:
    """s² that centring may leave of what all rows share: no direction, but rounding."""
    precision = 16 * float(np.finfo(np.float64).eps)
    if shape.metric == "features":
        return shape.n_samples * precision**2 * float(offset @ offset)
    return shape.n_samples * precision * float(np.abs(offset).max())


def scaled_gram(
    read: RowReader, shape: ViewShape, *, scale: Scale, name: str
) -> NDArray[np.float64]:
    """X Xᵀ (n, n) of the scaled view, mean s² over its directions one: for the dense oracle.

    Raises
    ------
    DataError
        As `factor_view`.
    """
    basis = factor_view(read, shape, scale=scale, name=name).basis
    gram = (basis.vectors * basis.singular_values_squared) @ basis.vectors.T
    return np.asarray(gram, dtype=np.float64)


@dataclasses.dataclass(frozen=True, slots=True)
class _Kept:
    """What is kept of a basis: its type, and at most how many directions."""

    dtype: type[np.floating[Any]]
    max_rank: int | None


def _factor_by_columns(
    blocks: Blocks, shape: ViewShape, kept: _Kept
) -> tuple[Basis, NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Basis, mean row (d,), loadings (d, r) and every s² through XᵀX, for d ≤ n."""
    n, dtype = shape.n_samples, kept.dtype
    offset, gram = mean_and_gram(blocks, shape)
    directions, all_s2 = basis_from_gram(gram)
    s2 = all_s2[: kept.max_rank]
    loadings = directions[:, : len(s2)] / np.sqrt(s2)
    if s2.size and s2[-1] < _WELL_CONDITIONED[dtype] * s2[0]:
        # a Gram matrix knows small directions least: the last digits of orthonormality
        overlap = np.zeros((len(s2), len(s2)))
        for _, _, rows in blocks():
            part = (rows - offset) @ loadings
            overlap += part.T @ part
        loadings = loadings @ inverse_root(overlap)
    vectors, loadings = _signed(blocks, offset, loadings, np.empty((n, len(s2)), dtype=dtype))
    return Basis(vectors, s2), offset, loadings, all_s2


def _factor_strongest(
    blocks: Blocks, shape: ViewShape, dtype: type[np.floating[Any]], rank: int
) -> tuple[Basis, NDArray[np.float64], NDArray[np.float64], float]:
    """The same of the strongest directions alone, and the sum of all s²."""
    offset = mean_row(blocks, shape)
    found = strongest_directions(blocks, shape, offset, rank)
    s2 = found.singular_values_squared
    loadings = found.directions / np.sqrt(s2)
    vectors = np.empty((shape.n_samples, len(s2)), dtype=dtype)
    vectors, loadings = _signed(blocks, offset, loadings, vectors)
    return Basis(vectors, s2), offset, loadings, found.total


def _signed(
    blocks: Blocks,
    offset: NDArray[np.float64],
    loadings: NDArray[np.float64],
    vectors: NDArray[Any],
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Rows times loadings, put into `vectors`, and the loadings, with the signs that all bases have."""
    for start, stop, rows in blocks():
        vectors[start:stop] = (rows - offset) @ loadings
    signs = column_signs(vectors)
    vectors *= signs.astype(vectors.dtype)
    return vectors, loadings * signs


def _factor_by_rows(
    blocks: Blocks, shape: ViewShape, kept: _Kept
) -> tuple[Basis, NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The same through X Xᵀ, for d > n."""
    n = shape.n_samples
    offset = mean_row(blocks, shape)
    gram = np.empty((n, n))
    for start, stop, rows in blocks():
        for other_start, other_stop, others in blocks():
            if other_start > start:
                break
            gram[start:stop, other_start:other_stop] = (rows - offset) @ (others - offset).T
            gram[other_start:other_stop, start:stop] = gram[start:stop, other_start:other_stop].T
    basis = basis_from_kernel(gram)
    loadings = np.zeros((shape.n_features, basis.rank))
    for start, stop, rows in blocks():
        loadings += (rows - offset).T @ basis.vectors[start:stop]
    loadings /= basis.singular_values_squared
    vectors = basis.vectors.astype(kept.dtype, copy=False)
    s2 = basis.singular_values_squared
    return Basis(vectors, s2), offset, loadings, s2


def _factor_kernel(read: RowReader, shape: ViewShape) -> tuple[Basis, Encoder]:
    """Basis and encoder of a distance or kernel view."""
    n = shape.n_samples
    kernel = np.empty((n, n))
    for start, stop in row_blocks(n, n):
        kernel[start:stop] = read(start, stop)
    exponent = int(harmless_exponent(np.abs(kernel).max()))
    if exponent:
        kernel = np.ldexp(kernel, -exponent)
    unit = 1.0
    if shape.metric == "distance":
        unit = float(kernel.sum() / max(1, n * (n - 1))) or 1.0  # mean over i ≠ j
        kernel = np.exp(-kernel / unit)
    means = kernel.mean(axis=0)
    # HKH with H = I − 11ᵀ/n; new rows need the column means alone, since Qᵀ1 = 0
    kernel -= means
    kernel -= kernel.mean(axis=1, keepdims=True)
    basis = basis_from_kernel(kernel)
    loadings = basis.vectors / basis.singular_values_squared
    return basis, Encoder(shape.metric, None, exponent, unit, means, loadings)
