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
from mscam_dask.linalg.orthonormal import column_signs, inverse_root, orient_columns
from mscam_dask.linalg.ridge import RANK_TOLERANCE, Basis, basis_from_gram, basis_from_kernel
from mscam_dask.linalg.scaling import fit_transform_from_moments, safe_exponent
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

ROUNDING = 16 * float(np.finfo(np.float64).eps)
"""Share of the mean that rounding may leave as s of a constant column."""

# s²_min / s²_max above which a Gram matrix gives Q to the precision of its dtype.
_WELL_CONDITIONED: dict[Any, float] = {np.float32: 1e-7, np.float64: 1.0}


def view_svd(
    read: RowReader,
    shape: ViewShape,
    *,
    scale: Scale,
    name: str,
    dtype: type[np.floating[Any]] = np.float64,
    max_rank: int | None = None,
    most_decomposed: int = MAX_EXACT_GRAM,
) -> ViewSVD:
    """Thin SVD X = Q S Vᵀ of a scaled and centered view; DataError if all its rows are equal.

    Distance views become the kernel exp(−D / mean D), kernel views are used as they are, both centered in feature space.
    All in float64, Q in `dtype`. Only the `max_rank` directions of largest s² are kept, and then of a view with more
    than `most_decomposed` rows and columns no Gram matrix or kernel is decomposed; the unit of s² is its mean over all.
    """
    smaller_side = min(shape.n_samples, shape.n_features)
    exact = max_rank is None or smaller_side <= most_decomposed
    if shape.view_type != "features":
        found, encoder = _factor_kernel(read, shape, None if exact else max_rank)
    else:
        moments = moments_of_rows(read, 0, shape.n_samples, shape.n_features)
        transform = fit_transform_from_moments(scale, moments)

        def blocks() -> Iterator[tuple[int, int, NDArray[np.float64]]]:
            for start, stop in row_blocks(shape.n_samples, shape.n_features):
                yield start, stop, transform.apply(read(start, stop))

        if not exact:
            found = _factor_strongest(blocks, shape, dtype, max_rank or smaller_side)
        elif shape.n_features <= shape.n_samples:
            total = gram_of_rows(read, 0, shape.n_samples, transform)
            found = _factor_by_columns(blocks, total, dtype, max_rank or smaller_side)
        else:
            found = _factor_by_rows(blocks, shape, dtype)
        encoder = Encoder("features", transform, 0, 1.0, found.offset, found.loadings)
    known_s2, offset = found.known_s2, found.offset
    if shape.view_type == "features":
        floor = shape.n_samples * ROUNDING**2 * float(offset @ offset)
    else:
        floor = shape.n_samples * ROUNDING * float(np.abs(offset).max())
    rank = n_separating(known_s2, floor, name=name, scale=scale)
    unit = float(known_s2[:rank].mean()) if found.mean_s2 is None else found.mean_s2
    rank = min(rank, max_rank or smaller_side)
    encoder = dataclasses.replace(encoder, loadings=found.loadings[:, :rank])
    vectors = found.basis.vectors[:, :rank].astype(dtype, copy=False)
    return ViewSVD(Basis(vectors, known_s2[:rank] / unit), encoder)


def n_separating(
    singular_values_squared: NDArray[np.float64], floor: float, *, name: str, scale: Scale
) -> int:
    """Number of s² above what rounding of the mean may leave after centering; DataError without any."""
    rank = int(np.count_nonzero(singular_values_squared > floor))
    if rank == 0:
        raise DataError(
            f"all rows of view {name!r} are equal after scale={scale!r}: it does not separate "
            "samples. Exclude the view or set another scale."
        )
    return rank


@dataclasses.dataclass(frozen=True, slots=True)
class _Factors:
    """Singular vectors and values of the centered rows X (n, d)."""

    basis: Basis
    offset: NDArray[np.float64]  # (d,) mean row
    loadings: NDArray[np.float64]  # (d, r) V / s, so that Q = X V / s
    known_s2: NDArray[np.float64]  # (≥ r,) all known s², descending
    mean_s2: float | None = None  # over all directions; None if all s² are known


def _factor_by_columns(
    blocks: Blocks, total: GramSum, dtype: type[np.floating[Any]], max_rank: int
) -> _Factors:
    """SVD through XᵀX, for d ≤ n."""
    offset = total.mean
    directions, all_s2 = basis_from_gram(total.gram)
    s2 = all_s2[:max_rank]
    loadings = directions[:, : len(s2)] / np.sqrt(s2)
    if s2.size and s2[-1] < _WELL_CONDITIONED[dtype] * s2[0]:
        # small directions of a Gram matrix are inaccurate: restore the orthonormality of Q
        overlap = np.zeros((len(s2), len(s2)))
        for _, _, rows in blocks():
            part = (rows - offset) @ loadings
            overlap += part.T @ part
        loadings = loadings @ inverse_root(overlap)
    vectors, loadings = _signed(blocks, total.count, offset, loadings, dtype)
    return _Factors(Basis(vectors, s2), offset, loadings, all_s2)


def _factor_strongest(
    blocks: Blocks, shape: ViewShape, dtype: type[np.floating[Any]], max_rank: int
) -> _Factors:
    """Truncated SVD; only the sum of the other s² is known."""
    offset = mean_row(blocks, shape)
    directions, total = truncated_svd(blocks, shape, offset, max_rank)
    s2 = directions.singular_values_squared
    loadings = directions.vectors / np.sqrt(s2)
    vectors, loadings = _signed(blocks, shape.n_samples, offset, loadings, dtype)
    mean_s2 = total / min(shape.n_samples - 1, shape.n_features)
    return _Factors(Basis(vectors, s2), offset, loadings, s2, mean_s2)


def _signed(
    blocks: Blocks,
    n_samples: int,
    offset: NDArray[np.float64],
    loadings: NDArray[np.float64],
    dtype: type[np.floating[Any]],
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Products of rows and loadings, and the loadings, with canonical signs."""
    vectors: NDArray[Any] = np.empty((n_samples, loadings.shape[1]), dtype=dtype)
    for start, stop, rows in blocks():
        vectors[start:stop] = (rows - offset) @ loadings
    signs = column_signs(vectors)
    vectors *= signs.astype(vectors.dtype)
    return vectors, loadings * signs


def _factor_by_rows(blocks: Blocks, shape: ViewShape, dtype: type[np.floating[Any]]) -> _Factors:
    """SVD through X Xᵀ, for d > n."""
    n = shape.n_samples
    offset = mean_row(blocks, shape)

    def centered() -> Iterator[tuple[int, int, NDArray[np.float64]]]:
        for start, stop, rows in blocks():
            yield start, stop, rows - offset

    gram = np.empty((n, n))
    for panel in _panels(centered()):
        for other_start, other_stop, others in centered():
            if other_start > panel[-1][0]:
                break
            for start, stop, rows in panel:
                if start >= other_start:
                    products = rows @ others.T
                    gram[start:stop, other_start:other_stop] = products
                    gram[other_start:other_stop, start:stop] = products.T
    basis = basis_from_kernel(gram)
    loadings = np.zeros((shape.n_features, basis.rank))
    for start, stop, rows in centered():
        for first in range(0, shape.n_features, _COLUMNS):
            some = slice(first, first + _COLUMNS)
            loadings[some] += rows[:, some].T @ basis.vectors[start:stop]
    loadings /= basis.singular_values_squared
    vectors = basis.vectors.astype(dtype, copy=False)
    s2 = basis.singular_values_squared
    return _Factors(Basis(vectors, s2), offset, loadings, s2)


def _panels(
    blocks: Iterator[tuple[int, int, NDArray[np.float64]]],
) -> Iterator[list[tuple[int, int, NDArray[np.float64]]]]:
    """Groups of blocks held together, so that the preceding rows are streamed once per group."""
    panel: list[tuple[int, int, NDArray[np.float64]]] = []
    for start, stop, rows in blocks:
        if panel and (stop - panel[0][0]) * rows.shape[1] * 8 > _PANEL_BYTES:
            yield panel
            panel = []
        panel.append((start, stop, rows))
    yield panel


def _factor_kernel(
    read: RowReader, shape: ViewShape, max_rank: int | None
) -> tuple[_Factors, Encoder]:
    """SVD in feature space, and encoder, of a distance or kernel view."""
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
    found = _Factors(basis, means, basis.vectors / s2, s2, mean_s2)
    return found, Encoder(shape.view_type, None, exponent, unit, means, found.loadings)


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


def truncated_eigh(
    kernel: NDArray[np.float64], rank: int, *, n_sampled: int = _RANK_SAMPLE
) -> tuple[Basis, float]:
    """Leading eigenpairs of a centered kernel (n, n) by ARPACK, and the mean of all its positive eigenvalues.

    The sum of all is the trace. The number of positive eigenvalues and the sum of the negative ones are estimated from
    `n_sampled` samples: a kernel of lower rank shows all its directions there, any other is taken to have n − 1.
    """
    n = len(kernel)
    directions, negative = _eigenvalue_signs(kernel, n_sampled)
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


def _eigenvalue_signs(kernel: NDArray[np.float64], n_sampled: int) -> tuple[float, float]:
    """Estimated number of positive eigenvalues of a kernel, and magnitude of all negative ones."""
    n = len(kernel)
    drawn = np.sort(np.random.default_rng(_SEED).choice(n, min(n, n_sampled), replace=False))
    values = scipy.linalg.eigvalsh(kernel[np.ix_(drawn, drawn)])
    least = RANK_TOLERANCE * np.abs(values).max()
    positive, negative = values[values > least], values[values < -least]
    directions = float(len(positive))
    if len(positive) + len(negative) >= len(drawn) - 1:
        directions *= (n - 1) / (len(positive) + len(negative))
    return directions, float(-negative.sum()) * n / len(drawn)
