"""Ridge self-representation of a view, through its singular vectors, and the joint embedding.

Z = Q diag(f) Qᵀ with X = Q S Vᵀ and f = s²/(s²+α) solves min ‖X − XZ‖² + α‖Z‖² (samples in the rows
of X here); ‖z_i − z_j‖ = ‖f∘(q_i − q_j)‖, so n×n is never needed. The SVD streams a view by row blocks
and centers it: the mean would be the largest direction, but separates no samples. Candidate neighbors are searched in the joint embedding; no column of
complete views is copied: weights on the columns define the distances.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from numpy.typing import NDArray

from mscam_dask.errors import DataError
from mscam_dask.linalg.distances import WeightedBlocks
from mscam_dask.linalg.incomplete import IncompleteBlocks, PresentSamples
from mscam_dask.linalg.orthonormal import (
    RANK_TOLERANCE,
    Basis,
    basis_from_gram,
    basis_from_kernel,
    orient_columns,
    shrinkage_factors,
)
from mscam_dask.linalg.scaling import (
    RowTransform,
    fit_transform_from_moments,
    logarithms,
    safe_exponent,
)
from mscam_dask.solvers.row_blocks import (
    Blocks,
    GramSum,
    RowReader,
    ViewShape,
    ViewType,
    gram_of_rows,
    mean_row,
    moments_of_rows,
    row_blocks,
)
from mscam_dask.types.parameters import Scale

if TYPE_CHECKING:
    from mscam_dask.solvers.lda import LinearDiscriminants


# A direction with a gain f below this share of the largest gain contributes less than 1e-4 of the
# leading direction to squared distances, for every α.
_GAIN_TOLERANCE = 1e-2


class EqualRowsError(DataError):
    """All rows of a view are equal after scaling."""


@dataclasses.dataclass(frozen=True, slots=True)
class Encoder:
    """Map from rows of a view, also of new samples, to its ridge embedding √ω f∘(x V / s)."""

    view_type: ViewType
    transform: RowTransform | None  # of feature rows; None for distance and kernel views
    exponent: int  # rows are divided by 2**exponent; 0 except for extreme magnitudes
    distance_scale: float  # mean distance, the unit of exp(−D / mean)
    offset: NDArray[np.float64]  # (d,) mean of the transformed rows of the fit
    loadings: NDArray[np.float64]  # (d, r), of the transformed rows minus offset
    is_log: bool = False  # rows are replaced by their logarithms first

    def __call__(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Ridge embedding (m, r) of `rows` (m, d)."""
        rows = logarithms(rows) if self.is_log else rows
        if self.transform is not None:
            rows = self.transform.apply(rows)
        elif self.exponent:
            rows = np.ldexp(rows, -self.exponent)
        if self.view_type == "distance":
            rows = np.exp(-rows / self.distance_scale)
        return np.asarray((rows - self.offset) @ self.loadings, dtype=np.float64)


@dataclasses.dataclass(frozen=True, slots=True)
class ViewSVD:
    """SVD X = Q S Vᵀ of a scaled and centered view; it does not depend on α."""

    basis: Basis  # all directions, scaled so that the mean s² is one
    encoder: Encoder  # yields Q; without loadings if there are `left` vectors
    # Q of a view with more columns than rows, from which `with_loadings` computes the loadings
    left: NDArray[np.float64] | None = None

    @property
    def effective_rank(self) -> float:
        """(Σs²)² / Σs⁴."""
        s2 = self.basis.singular_values_squared
        return float(s2.sum() ** 2 / np.sum(s2**2))


@dataclasses.dataclass(frozen=True, slots=True)
class RidgeView:
    """Ridge self-representation of a view, as the iterations use it."""

    basis: Basis  # directions with gain below 1e-2 of the largest are dropped
    alpha: float
    weight: float  # ω = 1 / mean squared distance in the ridge embedding
    effective_rank: float  # (Σs²)² / Σs⁴ over all directions
    encoder: Encoder
    present: PresentSamples | None = None  # samples that the view has; None for all
    mean_distance: float = 1.0  # mean squared distance of two samples, by the choice of the weight

    def of_rows(self, vectors: NDArray[Any]) -> RidgeView:
        """Ridge view of other rows: those of Q in `vectors`."""
        basis = Basis(vectors, self.basis.singular_values_squared)
        return dataclasses.replace(self, basis=basis)

    def coordinates(self) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Q (n, r) and the weights ω f² (r,) of its columns: distances of the ridge embedding."""
        gains = shrinkage_factors(self.basis.singular_values_squared, self.alpha)
        return self.basis.vectors, self.weight * gains**2


def ridge_view(
    view: ViewSVD,
    *,
    alpha: float,
    present: PresentSamples | None = None,
    n_samples: int | None = None,
) -> RidgeView:
    """Ridge self-representation for α in units of the mean s²; `n_samples` is for an SVD without rows."""
    gains = shrinkage_factors(view.basis.singular_values_squared, alpha)
    rank = int(np.count_nonzero(gains > _GAIN_TOLERANCE * gains[0]))
    # s² and the gains are descending, so the kept directions are a slice, not a copy
    kept = Basis(view.basis.vectors[:, :rank], view.basis.singular_values_squared[:rank])
    # columns of Q are orthonormal and have mean zero
    n_pairs = (n_samples or len(view.basis.vectors)) - 1
    weight = n_pairs / (2.0 * float(np.sum(gains[:rank] ** 2)))
    loadings = view.encoder.loadings[:, :rank]
    loadings = loadings * (np.sqrt(weight) * gains[: loadings.shape[1]])
    encoder = dataclasses.replace(view.encoder, loadings=np.ascontiguousarray(loadings))
    return RidgeView(kept, alpha, weight, view.effective_rank, encoder, present)


def joint_embedding(
    views: Sequence[RidgeView | LinearDiscriminants],
) -> WeightedBlocks | IncompleteBlocks:
    """Ridge embeddings of all views side by side (n, Σr), with mean squared distance one.

    Discriminants, if given, together also have mean squared distance one; the two add up. Distances of samples in
    incomplete views are means over the views that have both.
    """
    n_samples = next((view.present.n_samples for view in views if view.present is not None), None)
    if n_samples is None:
        return complete_embedding(views)
    all_samples = PresentSamples(np.arange(n_samples), n_samples)
    types = list(dict.fromkeys(type(view) for view in views))
    blocks = []
    for view in views:
        vectors, weights = view.coordinates()
        blocks.append(vectors * np.sqrt(weights).astype(vectors.dtype))
    return IncompleteBlocks(
        n_samples,
        tuple(blocks),
        tuple(view.present or all_samples for view in views),
        tuple(types.index(type(view)) for view in views),
        tuple(view.mean_distance for view in views),
    )


def complete_embedding(views: Sequence[RidgeView | LinearDiscriminants]) -> WeightedBlocks:
    """Joint ridge embedding of views that have all samples; large data have no others."""
    total_by_type: dict[type, float] = {}
    for view in views:
        total_by_type[type(view)] = total_by_type.get(type(view), 0.0) + view.mean_distance
    parts = [(*view.coordinates(), total_by_type[type(view)]) for view in views]
    return WeightedBlocks(
        tuple(vectors for vectors, _, _ in parts),
        tuple(weights / total if total > 0 else 0.0 * weights for _, weights, total in parts),
    )


# SVD of a view -----------------------------------------------------------------------------------


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
    """Thin SVD X = Q S Vᵀ of a scaled and centered view, with Q in `dtype`; otherwise as `view_directions`."""
    view = view_directions(read, shape, scale=scale, name=name, max_rank=max_rank)
    if view.basis.vectors.size:
        vectors = view.basis.vectors.astype(dtype, copy=False)
    else:
        vectors = project_rows(read, 0, shape.n_samples, view.encoder, dtype)
    return dataclasses.replace(view, basis=dataclasses.replace(view.basis, vectors=vectors))


def view_directions(
    read: RowReader, shape: ViewShape, *, scale: Scale, name: str, max_rank: int | None = None
) -> ViewSVD:
    """S and V of a view, with Q only where it is found before V; DataError if all rows are equal.

    Distance views become the kernel exp(−D / mean D), kernel views are used as they are, both centered in feature space.
    All in float64. Only the `max_rank` directions of largest s² are kept, and then of a view with more
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
    if found.vectors is None:
        return view
    vectors = found.vectors[:, : view.basis.rank]
    left = vectors if view.encoder.loadings.shape[1] == 0 else None
    return ViewSVD(dataclasses.replace(view.basis, vectors=vectors), view.encoder, left)


def with_loadings(view: ViewSVD, read: RowReader, rank: int | None = None) -> ViewSVD:
    """SVD of a view with the loadings XᵀQ / s² of its first directions, all if they are known."""
    if view.left is None:
        return view
    vectors, encoder = view.left[:, :rank], view.encoder
    (n, r), d = vectors.shape, len(encoder.offset)
    assert encoder.transform is not None, "the view has features"
    loadings = np.zeros((d, r))
    for start, stop, rows in _blocks(read, ViewShape(n, d, "features"), encoder.transform)():
        for first in range(0, d, _COLUMNS):
            some = slice(first, first + _COLUMNS)
            loadings[some] += (rows[:, some] - encoder.offset[some]).T @ vectors[start:stop]
    loadings /= np.einsum("ij,ij->j", loadings, loadings)  # s², since XᵀQ = VS
    return ViewSVD(view.basis, dataclasses.replace(encoder, loadings=loadings))


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
            raise EqualRowsError(
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
    """Directions through X Xᵀ, for d > n, without loadings."""
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
    encoder = Encoder("features", transform, 0, 1.0, offset, np.zeros((d, 0)))
    return Directions(encoder, basis.singular_values_squared, basis.vectors)


def _all_pairs(read: RowReader, n: int) -> tuple[NDArray[np.float64], int]:
    """Distance or kernel view (n, n) divided by a power of 2, and its exponent: 0 unless values are extreme."""
    pairs = np.empty((n, n))
    for start, stop in row_blocks(n, n):
        pairs[start:stop] = read(start, stop)
    exponent = int(safe_exponent(max(pairs.max(), -pairs.min())))
    if exponent:
        np.ldexp(pairs, -exponent, out=pairs)
    return pairs, exponent


def classical_scaling(read: RowReader, shape: ViewShape, rank: int) -> NDArray[np.float64]:
    """First principal coordinates (n, r) of a distance or kernel view, with mean s² of one; zeros (n, 1) without any.

    The feature space of exp(−D / mean D) or of a Gaussian kernel would bend a plane. So the squared distances are D², and
    −2 log k for a positive kernel k whose samples have equal length.

    J. C. Gower, doi:10.1093/biomet/53.3-4.325.
    """
    gram, _ = _all_pairs(read, shape.n_samples)
    diagonal = gram.diagonal()
    if shape.view_type == "distance":
        gram *= -0.5 * gram
    elif gram.min() > 0.0 and np.allclose(diagonal, diagonal[0]):
        np.log(gram / diagonal[0], out=gram)
    _center(gram)
    basis, mean_s2 = truncated_eigh(gram, rank)
    if not basis.rank:
        return np.zeros((shape.n_samples, 1))
    return basis.vectors * np.sqrt(shape.n_samples / mean_s2 * basis.singular_values_squared)


def _center(kernel: NDArray[np.float64]) -> None:
    """Replace a kernel K by HKH with H = I − 11ᵀ/n."""
    kernel -= kernel.mean(axis=0)
    kernel -= kernel.mean(axis=1, keepdims=True)


def _of_kernel(read: RowReader, shape: ViewShape, max_rank: int | None) -> Directions:
    """Directions of a distance or kernel view in feature space."""
    n, unit = shape.n_samples, 1.0
    kernel, exponent = _all_pairs(read, n)
    if shape.view_type == "distance":
        unit = float(kernel.sum() / max(1, n * (n - 1))) or 1.0  # mean over i ≠ j
        kernel /= -unit
        np.exp(kernel, out=kernel)
    means = kernel.mean(axis=0)
    _center(kernel)  # new rows need the column means alone, since Qᵀ1 = 0
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

# Restarts of ARPACK, after which directions that have not converged are left out.
_MAX_RESTARTS = 300

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
    """Leading eigenpairs of a centered kernel (n, n), of a large one by ARPACK, and the mean of all its positive eigenvalues.

    The sum of all is the trace. The number of positive eigenvalues and the sum of the negative ones are estimated from
    some samples: a kernel of lower rank shows all its directions there, any other is taken to have n − 1.
    """
    n = len(kernel)
    directions, negative = _eigenvalue_signs(kernel)
    if directions == 0:
        return Basis(np.zeros((n, 0)), np.zeros(0)), 1.0
    # searching for more is slow, because the others are zero
    wanted = min(rank, math.ceil(directions))
    if n <= MAX_EXACT_GRAM:
        values, vectors = scipy.linalg.eigh(kernel, subset_by_index=(n - wanted, n - 1))
    else:
        first = np.random.default_rng(_SEED).standard_normal(n)
        try:
            values, vectors = scipy.sparse.linalg.eigsh(
                kernel, wanted, which="LA", v0=first, maxiter=_MAX_RESTARTS
            )
        except scipy.sparse.linalg.ArpackNoConvergence as error:  # only the smallest ones do not
            values, vectors = np.real(error.eigenvalues), np.real(error.eigenvectors)
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
