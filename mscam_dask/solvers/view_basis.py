"""From the rows of one view to its ridge self-representation, block of rows by block.

Z = Q diag(f) Qᵀ with X = Q S Vᵀ and f = s²/(s²+α) solves min ‖X − XZ‖² + α‖Z‖² (samples in
the rows of X here); ‖z_i − z_j‖ = ‖f∘(q_i − q_j)‖, so n×n is never needed. Every view is
centred after scaling: what all samples share tells none apart, yet would be the largest
singular direction. The rows arrive through a callable, so this code serves arrays, Dask
collections and Zarr stores alike.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mscam_dask.errors import DataError
from mscam_dask.kernels.distances import mean_squared_distance
from mscam_dask.kernels.ridge import (
    Basis,
    anchor_coordinates,
    basis_from_gram,
    basis_from_kernel,
    orient_columns,
    orthonormalize_nearby,
    ridge_gains,
)
from mscam_dask.kernels.scaling import (
    ColumnMoments,
    RowTransform,
    fit_transform_from_moments,
    harmless_exponent,
)
from mscam_dask.model.parameters import Scale

__all__ = [
    "Encoder",
    "FactoredView",
    "PreparedView",
    "RowReader",
    "ViewShape",
    "factor_view",
    "prepare_view",
    "row_blocks",
    "scaled_gram",
]

RowReader = Callable[[int, int], NDArray[np.float64]]
"""read(start, stop) -> rows start up to, not including, stop of a view, (m, d) float64."""

Metric = Literal["features", "distance", "kernel"]

# A direction with gain f below this share of the largest gain weighs less than 1e-4 of the
# leading one in squared distances, whatever α.
GAIN_TOLERANCE = 1e-2

# Rows are streamed in blocks of about this size.
_BLOCK_BYTES = 64 * 2**20


@dataclasses.dataclass(frozen=True, slots=True)
class ViewShape:
    """What must be known of a view before reading it: rows, columns, kind of numbers."""

    n_samples: int
    n_features: int
    metric: Metric


@dataclasses.dataclass(frozen=True, slots=True)
class Encoder:
    """Maps rows of a view, new ones too, to anchor coordinates.

    Attributes
    ----------
    metric : {"features", "distance", "kernel"}
    transform : RowTransform or None
        Scaling of feature rows; None for distance and kernel views.
    exponent : int
        Distances and kernel values are divided by 2 to this power first; 0 but for extreme
        magnitudes.
    distance_scale : float
        Mean distance, the unit of exp(−D / mean); 1 for other views.
    offset : (d,)
        Mean of the transformed rows of the fit.
    loadings : (d, r)
        Anchor coordinates are (transformed rows − offset) @ loadings, that is √ω f∘(x V / s).
    """

    metric: Metric
    transform: RowTransform | None
    exponent: int
    distance_scale: float
    offset: NDArray[np.float64]
    loadings: NDArray[np.float64]

    def __call__(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Anchor coordinates (m, r) of `rows` (m, d)."""
        if self.transform is not None:
            rows = self.transform.apply(rows)
        elif self.exponent:
            rows = np.ldexp(rows, -self.exponent)
        if self.metric == "distance":
            rows = np.exp(-rows / self.distance_scale)
        return np.asarray((rows - self.offset) @ self.loadings, dtype=np.float64)


@dataclasses.dataclass(frozen=True, slots=True)
class FactoredView:
    """A scaled, centred view X = Q S Vᵀ, before α is chosen.

    Attributes
    ----------
    basis : Basis
        Q (n, r) and s² (r,) of all directions, scaled so that the mean s² is one.
    encoder : Encoder
        Its loadings give Q: (transformed rows − offset) @ loadings.
    """

    basis: Basis
    encoder: Encoder

    @property
    def effective_rank(self) -> float:
        """(Σs²)² / Σs⁴."""
        s2 = self.basis.singular_values_squared
        return float(s2.sum() ** 2 / np.sum(s2**2))


@dataclasses.dataclass(frozen=True, slots=True)
class PreparedView:
    """What the iterations need of a view.

    Attributes
    ----------
    basis : Basis
        Q (n, r) and s² (r,); directions with gain below 1e-2 of the largest are dropped.
    weight : float
        1 / mean squared distance of the anchor coordinates: the view's ω, to be divided by
        the number of views.
    effective_rank : float
        (Σs²)² / Σs⁴ over all directions.
    encoder : Encoder
        To anchor coordinates, √ω included.
    """

    basis: Basis
    weight: float
    effective_rank: float
    encoder: Encoder

    def anchors(self, alpha: float) -> NDArray[np.float64]:
        """√ω f∘Q, (n, r): mean squared distance over pairs is one."""
        return anchor_coordinates(self.basis, alpha) * float(np.sqrt(self.weight))


def row_blocks(n_samples: int, n_columns: int) -> Iterator[tuple[int, int]]:
    """Row ranges of about 64 MiB that depend on the shape alone."""
    size = max(1, _BLOCK_BYTES // (8 * max(1, n_columns)))
    for start in range(0, n_samples, size):
        yield start, min(start + size, n_samples)


def factor_view(read: RowReader, shape: ViewShape, *, scale: Scale, name: str) -> FactoredView:
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

    Returns
    -------
    FactoredView

    Raises
    ------
    DataError
        When all rows are equal after scaling.

    Notes
    -----
    Three passes over the rows (moments, Gram matrix, basis): 2 n d r + n d² flops, peak
    memory n·r + d² floats and one block; the n×n side is used when d > n.
    """
    if shape.metric != "features":
        basis, encoder = _factor_kernel(read, shape)
    else:
        transform = _fit_transform(read, shape, scale)

        def blocks() -> Iterator[tuple[int, int, NDArray[np.float64]]]:
            for start, stop in row_blocks(shape.n_samples, shape.n_features):
                yield start, stop, transform.apply(read(start, stop))

        tall = shape.n_features <= shape.n_samples
        factor = _factor_by_columns if tall else _factor_by_rows
        basis, offset, loadings = factor(blocks, shape)
        encoder = Encoder("features", transform, 0, 1.0, offset, loadings)
    real = basis.singular_values_squared > _rounding_floor(encoder.offset, shape)
    if not real.any():
        raise DataError(
            f"all rows of view {name!r} are equal after scale={scale!r}: it cannot tell samples "
            "apart. Leave it out or choose another scale"
        )
    s2 = basis.singular_values_squared[real]
    encoder = dataclasses.replace(encoder, loadings=encoder.loadings[:, real])
    return FactoredView(Basis(basis.vectors[:, real], s2 / s2.mean()), encoder)


def _rounding_floor(offset: NDArray[np.float64], shape: ViewShape) -> float:
    """s² that centring may leave of what all rows share: no direction, but rounding."""
    precision = 16 * float(np.finfo(np.float64).eps)
    if shape.metric == "features":
        return shape.n_samples * precision**2 * float(offset @ offset)
    return shape.n_samples * precision * float(np.abs(offset).max())


def prepare_view(view: FactoredView, *, alpha: float) -> PreparedView:
    """Keep the directions that the self-representation with this α uses.

    Parameters
    ----------
    view : FactoredView
    alpha : float
        α > 0, in units of the mean squared singular value.

    Returns
    -------
    PreparedView
    """
    gains = ridge_gains(view.basis.singular_values_squared, alpha)
    keep = gains > GAIN_TOLERANCE * gains[0]
    kept = view.basis
    if not keep.all():
        kept = Basis(
            np.ascontiguousarray(kept.vectors[:, keep]), kept.singular_values_squared[keep]
        )
    weight = 1.0 / mean_squared_distance(anchor_coordinates(kept, alpha))
    loadings = view.encoder.loadings[:, keep] * (np.sqrt(weight) * gains[keep])
    encoder = dataclasses.replace(view.encoder, loadings=np.ascontiguousarray(loadings))
    return PreparedView(kept, weight, view.effective_rank, encoder)


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


_Blocks = Callable[[], Iterator[tuple[int, int, NDArray[np.float64]]]]


def _factor_by_columns(
    blocks: _Blocks, shape: ViewShape
) -> tuple[Basis, NDArray[np.float64], NDArray[np.float64]]:
    """Basis, mean row (d,) and loadings (d, r) through XᵀX, for d ≤ n."""
    n, d = shape.n_samples, shape.n_features
    offset = _mean_row(blocks, shape)
    gram = np.zeros((d, d))
    for _, _, rows in blocks():
        centered = rows - offset
        gram += centered.T @ centered
    directions, s2 = basis_from_gram(gram)
    loadings = directions / np.sqrt(s2)
    vectors = np.empty((n, len(s2)))
    for start, stop, rows in blocks():
        vectors[start:stop] = (rows - offset) @ loadings
    if s2.size == 0:
        return Basis(vectors, s2), offset, loadings
    vectors = orthonormalize_nearby(vectors)
    oriented = orient_columns(vectors)
    loadings *= np.sign(np.sum(oriented * vectors, axis=0))
    return Basis(oriented, s2), offset, loadings


def _factor_by_rows(
    blocks: _Blocks, shape: ViewShape
) -> tuple[Basis, NDArray[np.float64], NDArray[np.float64]]:
    """The same through X Xᵀ, for d > n."""
    n = shape.n_samples
    offset = _mean_row(blocks, shape)
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
    return basis, offset, loadings


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


def _mean_row(blocks: _Blocks, shape: ViewShape) -> NDArray[np.float64]:
    total = np.zeros(shape.n_features)
    for _, _, rows in blocks():
        total += rows.sum(axis=0)
    return total / shape.n_samples


def _fit_transform(read: RowReader, shape: ViewShape, scale: Scale) -> RowTransform:
    moments: ColumnMoments | None = None
    for start, stop in row_blocks(shape.n_samples, shape.n_features):
        block = ColumnMoments.from_rows(read(start, stop))
        moments = block if moments is None else moments.merge(block)
    assert moments is not None, "a view without rows passed validation"
    return fit_transform_from_moments(scale, moments)
