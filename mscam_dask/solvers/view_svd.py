"""Streaming SVD of one view by row blocks, centered: the mean would be the largest direction, but separates no samples."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from numpy.typing import NDArray

from mscam_dask.errors import DataError
from mscam_dask.linalg.orthonormal import orient_columns
from mscam_dask.linalg.ridge import RANK_TOLERANCE, Basis, basis_from_gram, basis_from_kernel
from mscam_dask.linalg.scaling import RowTransform, fit_transform_from_moments, safe_exponent
from mscam_dask.solvers.ridge_view import Encoder, ViewSVD
from mscam_dask.solvers.row_blocks import (
    Blocks,
    GramSum,
    RowReader,
    ViewShape,
    gram_of_rows,
    mean_row,
    moments_of_rows,
    row_blocks,
)
from mscam_dask.types.parameters import Scale

MAX_EXACT_GRAM = 2048
"""Largest side of a Gram matrix that is decomposed if only some of its directions are wanted."""

# Bytes of rows held in memory while the preceding rows are streamed, for views with d > n.
_PANEL_BYTES = 128 * 2**20

# Columns of a view for which loadings are computed at a time.
_COLUMNS = 2048

# Share of the mean that rounding may leave as s of a constant column.
_ROUNDING = 16 * float(np.finfo(np.float64).eps)


def view_svd(
    read: RowReader,
    shape: ViewShape,
    *,
    scale: Scale,
    name: str,
    dtype: type[np.floating[Any]] = np.float64,
    max_rank: int | None = None,
) -> ViewSVD:
    """Thin SVD X = Q S Vᵀ of a scaled and centered view; DataError if all its rows are equal.

    Distance views become the kernel exp(−D / mean D), kernel views are used as they are, both centered in feature space.
    All in float64, Q in `dtype`. Only the `max_rank` directions of largest s² are kept, and then of a view with more
    than `MAX_EXACT_GRAM` rows and columns no Gram matrix or kernel is decomposed; the unit of s² is its mean over all.
    """
    n, d = shape.n_samples, shape.n_features
    exact = max_rank is None or min(n, d) <= MAX_EXACT_GRAM
    if shape.view_type != "features":
        found = _of_kernel(read, shape, None if exact else max_rank)
    else:
        transform = fit_transform_from_moments(scale, moments_of_rows(read, 0, n, d))
        if exact and d <= n:
            found = directions_of_gram(gram_of_rows(read, 0, n, transform), transform)
        elif exact:
            found = _of_rows(read, shape, transform)
        else:
            found = _strongest(read, shape, transform, max_rank or d)
    view = found.without_rows(n, name=name, scale=scale, max_rank=max_rank)
    if found.vectors is not None:
        vectors = found.vectors[:, : view.basis.rank].astype(dtype, copy=False)
    else:
        vectors = project_rows(read, 0, n, view.encoder, dtype)
    return ViewSVD(Basis(vectors, view.basis.singular_values_squared), view.encoder)


def project_rows(
    read: RowReader, start: int, stop: int, encoder: Encoder, dtype: type[np.floating[Any]]
) -> NDArray[Any]:
    """Rows start … stop − 1 of a view by its encoder (m, r)."""
    rows: NDArray[Any] = np.empty((stop - start, encoder.loadings.shape[1]), dtype=dtype)
    for first, last in row_blocks(stop - start, len(encoder.offset)):
        rows[first:last] = encoder(read(start + first, start + last))
    return rows


@dataclasses.dataclass(frozen=True, slots=True)
class Directions:
    """Known directions of a centered view, those of largest s² first."""

    encoder: Encoder  # yields Q
    singular_values_squared: NDArray[np.float64]  # (r,)
    vectors: NDArray[np.float64] | None = None  # Q (n, r), if it is known without the encoder
    mean_s2: float | None = None  # over all directions; None if all s² are known

    def without_rows(
        self, n_samples: int, *, name: str, scale: Scale, max_rank: int | None
    ) -> ViewSVD:
        """SVD without Q: the first directions above what rounding of the mean may leave; DataError without any."""
        s2, offset = self.singular_values_squared, self.encoder.offset
        floor = n_samples * _ROUNDING**2 * float(offset @ offset)
        if self.encoder.view_type != "features":
            floor = n_samples * _ROUNDING * float(np.abs(offset).max())
        rank = int(np.count_nonzero(s2 > floor))
        if rank == 0:
            raise DataError(
                f"all rows of view {name!r} are equal after scale={scale!r}: it does not separate "
                "samples. Exclude the view or set another scale."
            )
        unit = float(s2[:rank].mean()) if self.mean_s2 is None else self.mean_s2
        kept = slice(min(rank, max_rank or rank))
        encoder = dataclasses.replace(self.encoder, loadings=self.encoder.loadings[:, kept])
        empty = np.empty((0, kept.stop), dtype=np.float32)
        return ViewSVD(Basis(empty, s2[kept] / unit), encoder)


def directions_of_gram(total: GramSum, transform: RowTransform) -> Directions:
    """Directions of the rows of a Gram matrix XᵀX (d, d).

    Q is orthonormal to the precision of the Gram matrix: 1e-5 where s² is 1e-10 of the largest.
    """
    vectors, s2 = basis_from_gram(total.gram)
    return Directions(_encoder(transform, total.mean, vectors / np.sqrt(s2)), s2)


def _encoder(
    transform: RowTransform, offset: NDArray[np.float64], loadings: NDArray[np.float64]
) -> Encoder:
    """Encoder of feature rows whose loadings have canonical signs."""
    return Encoder("features", transform, 0, 1.0, offset, orient_columns(loadings))


def _blocks(read: RowReader, shape: ViewShape, transform: RowTransform) -> Blocks:
    def blocks() -> Iterator[tuple[int, int, NDArray[np.float64]]]:
        for start, stop in row_blocks(shape.n_samples, shape.n_features):
            yield start, stop, transform.apply(read(start, stop))

    return blocks


def _strongest(
    read: RowReader, shape: ViewShape, transform: RowTransform, max_rank: int
) -> Directions:
    """Directions of largest s²; only the sum of the other s² is known."""
    blocks = _blocks(read, shape, transform)
    offset = mean_row(blocks, shape)
    found, total = truncated_svd(blocks, shape, offset, max_rank)
    s2 = found.singular_values_squared
    encoder = _encoder(transform, offset, found.vectors / np.sqrt(s2))
    return Directions(encoder, s2, mean_s2=total / min(shape.n_samples - 1, shape.n_features))


def _of_rows(read: RowReader, shape: ViewShape, transform: RowTransform) -> Directions:
    """Directions through X Xᵀ, for d > n."""
    n, d = shape.n_samples, shape.n_features
    blocks = _blocks(read, shape, transform)
    offset = mean_row(blocks, shape)
    gram = np.empty((n, n))
    # the preceding rows are read once for each panel of many blocks
    for start, stop in row_blocks(n, d, block_bytes=_PANEL_BYTES):
        panel = transform.apply(read(start, stop))
        panel -= offset
        for other_start, other_stop, others in blocks():
            if other_start >= stop:
                break
            products = panel @ (others - offset).T
            gram[start:stop, other_start:other_stop] = products
            gram[other_start:other_stop, start:stop] = products.T
    basis = basis_from_kernel(gram)
    loadings = np.zeros((d, basis.rank))
    for start, stop, rows in blocks():
        for first in range(0, d, _COLUMNS):
            some = slice(first, first + _COLUMNS)
            loadings[some] += (rows[:, some] - offset[some]).T @ basis.vectors[start:stop]
    loadings /= basis.singular_values_squared
    encoder = Encoder("features", transform, 0, 1.0, offset, loadings)
    return Directions(encoder, basis.singular_values_squared, basis.vectors)


def _of_kernel(read: RowReader, shape: ViewShape, max_rank: int | None) -> Directions:
    """Directions of a distance or kernel view in feature space."""
    n = shape.n_samples
    kernel = np.empty((n, n))
    for start, stop in row_blocks(n, n):
        kernel[start:stop] = read(start, stop)
    exponent = int(safe_exponent(max(kernel.max(), -kernel.min())))
    if exponent:
        np.ldexp(kernel, -exponent, out=kernel)
    unit = 1.0
    if shape.view_type == "distance":
        unit = float(kernel.sum() / max(1, n * (n - 1))) or 1.0  # mean over i ≠ j
        kernel /= -unit
        np.exp(kernel, out=kernel)
    means = kernel.mean(axis=0)
    # HKH with H = I − 11ᵀ/n; new rows need the column means alone, since Qᵀ1 = 0
    kernel -= means
    kernel -= kernel.mean(axis=1, keepdims=True)
    if max_rank is None:
        basis, mean_s2 = basis_from_kernel(kernel), None
    else:
        basis, mean_s2 = truncated_eigh(kernel, max_rank)
    s2 = basis.singular_values_squared
    encoder = Encoder(shape.view_type, None, exponent, unit, means, basis.vectors / s2)
    return Directions(encoder, s2, basis.vectors, mean_s2)


# Additional columns; the iteration converges by the gap to the first direction left out.
_N_OVERSAMPLES = 16

# Samples on which the rank of a large kernel is estimated.
_RANK_SAMPLE = 2048

# Relative gain of Σ s² in one iteration below which the iteration stops.
_TOLERANCE = 1e-4

_MAX_ITERATIONS = 30

# Seed of the first columns, in the space of the features, so the order of samples does not matter.
_SEED = 0


def truncated_svd(
    blocks: Blocks, shape: ViewShape, offset: NDArray[np.float64], rank: int
) -> tuple[Basis, float]:
    """Solve max_V ‖XV‖² over VᵀV = I for centered rows X, by block power iteration on XᵀX: V (d, r), s², and ‖X‖²_F.

    Each pass sets V ← orth(XᵀX V); s² are the eigenvalues of (XV)ᵀXV. The iteration stops when their sum gains less
    than 10⁻⁴; directions with similar s² may still be mixed.

    N. Halko, P.-G. Martinsson, J. A. Tropp, doi:10.1137/090771806, algorithm 4.4.
    """
    d = shape.n_features
    width = min(rank + _N_OVERSAMPLES, shape.n_samples, d)
    image: NDArray[np.float64] = np.random.default_rng(_SEED).standard_normal((d, width))
    before, n_passes = -np.inf, 0
    while True:
        basis = np.asarray(scipy.linalg.qr(image, mode="economic", check_finite=False)[0])
        image, gram, total = np.zeros(basis.shape), np.zeros((width, width)), 0.0
        with np.errstate(over="ignore", invalid="ignore"):  # refused below
            for _, _, rows in blocks():
                centered = rows - offset
                projected = centered @ basis
                image += centered.T @ projected
                gram += projected.T @ projected
                total += float(np.einsum("ij,ij->", centered, centered))
        if not (np.isfinite(image).all() and np.isfinite(gram).all()):
            raise DataError(
                "values of a view are too large to be squared, or NaN. Clean it or choose a "
                "scaling."
            )
        values, rotation = scipy.linalg.eigh(gram)
        values, rotation = values[::-1][:rank], rotation[:, ::-1][:, :rank]
        there = values > values.sum() * np.finfo(np.float64).eps
        s2, directions = values[there], basis @ rotation[:, there]
        n_passes += 1
        if n_passes == _MAX_ITERATIONS or s2.sum() <= before * (1.0 + _TOLERANCE):
            return Basis(directions, s2), total
        before = s2.sum()


def truncated_eigh(kernel: NDArray[np.float64], rank: int) -> tuple[Basis, float]:
    """Leading eigenpairs of a centered kernel (n, n) by ARPACK, and the mean of all its positive eigenvalues.

    The sum of all is the trace. The number of positive eigenvalues and the sum of the negative ones are estimated from
    some samples: a kernel of lower rank shows all its directions there, any other is taken to have n − 1.
    """
    n = len(kernel)
    directions, negative = _eigenvalue_signs(kernel)
    if directions == 0:
        return Basis(np.zeros((n, 0)), np.zeros(0)), 1.0
    first = np.random.default_rng(_SEED).standard_normal(n)
    # searching for more is slow, because the others are zero
    wanted = min(rank, math.ceil(directions))
    values, vectors = scipy.sparse.linalg.eigsh(kernel, wanted, which="LA", v0=first)
    values, vectors = values[::-1], vectors[:, ::-1]
    there = values > max(0.0, RANK_TOLERANCE * values[0])
    basis = Basis(orient_columns(vectors[:, there]), values[there])
    return basis, (float(kernel.trace()) + negative) / directions


def _eigenvalue_signs(kernel: NDArray[np.float64]) -> tuple[float, float]:
    """Estimated number of positive eigenvalues of a kernel, and magnitude of all negative ones."""
    n = len(kernel)
    drawn = np.sort(np.random.default_rng(_SEED).choice(n, min(n, _RANK_SAMPLE), replace=False))
    values = scipy.linalg.eigvalsh(kernel[np.ix_(drawn, drawn)])
    least = RANK_TOLERANCE * np.abs(values).max()
    positive, negative = values[values > least], values[values < -least]
    directions = float(len(positive))
    if len(positive) + len(negative) >= len(drawn) - 1:
        directions *= (n - 1) / (len(positive) + len(negative))
    return directions, float(-negative.sum()) * n / len(drawn)
