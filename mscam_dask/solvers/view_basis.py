"""From the rows of one view to its ridge self-representation, block of rows by block.

Z = Q diag(f) Qᵀ with X = Q S Vᵀ and f = s²/(s²+α) solves min ‖X − XZ‖² + α‖Z‖² (samples in
the rows of X here); ‖z_i − z_j‖ = ‖f∘(q_i − q_j)‖, so n×n is never needed. The rows arrive
through a callable, so this code serves arrays, Dask collections and Zarr stores alike.
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
from mscam_dask.kernels.scaling import ColumnMoments, RowTransform, fit_transform_from_moments
from mscam_dask.model.parameters import Scale

__all__ = [
    "Encoder",
    "PreparedView",
    "RowReader",
    "ViewShape",
    "prepare_view",
    "row_blocks",
    "scaled_gram",
]

RowReader = Callable[[int, int], NDArray[np.float64]]
"""read(start, stop) -> rows start up to, not including, stop of a view, (m, d) float64."""

Metric = Literal["features", "distance", "kernel"]

# A direction with gain f below this moves distances by less than 1e-4 of its own share.
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
    distance_scale : float
        Mean distance, the unit of exp(−D / mean); 1 for other views.
    loadings : (d, r)
        Anchor coordinates are transformed rows @ loadings, that is f∘(x V / s), times √ω.
    """

    metric: Metric
    transform: RowTransform | None
    distance_scale: float
    loadings: NDArray[np.float64]

    def __call__(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Anchor coordinates (m, r) of `rows` (m, d)."""
        return np.asarray(self._transformed(rows) @ self.loadings, dtype=np.float64)

    def _transformed(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.metric == "distance":
            return np.asarray(np.exp(-rows / self.distance_scale), dtype=np.float64)
        return rows if self.transform is None else self.transform.apply(rows)


@dataclasses.dataclass(frozen=True, slots=True)
class PreparedView:
    """What the iterations need of a view.

    Attributes
    ----------
    basis : Basis
        Q (n, r) and s² (r,), scaled so that the mean s² over all directions of the view is
        one; directions with gain below 1e-2 are dropped.
    weight : float
        1 / mean squared distance of the anchor coordinates: the view's ω, to be divided by
        the number of views.
    effective_rank : float
        (Σs²)² / Σs⁴ over all directions.
    encoder : Encoder
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


def prepare_view(
    read: RowReader, shape: ViewShape, *, scale: Scale, alpha: float, name: str
) -> PreparedView:
    """Scale a view, factor it and keep the directions its self-representation uses.

    Parameters
    ----------
    read : RowReader
    shape : ViewShape
    scale : {"standard", "unit", "minmax", "none"}
        For feature views; distance views become the kernel exp(−D / mean D), kernel views
        are used as they are.
    alpha : float
        α > 0, in units of the mean squared singular value.
    name : str
        For messages.

    Returns
    -------
    PreparedView

    Raises
    ------
    DataError
        When nothing is left of the view after scaling (a constant view).

    Notes
    -----
    Three passes over the rows (moments, Gram matrix, basis): 2 n d r + n d² flops, peak
    memory n·r + d² floats and one block; the n×n side is used when d > n.
    """
    transform, distance_scale, basis, components = _factor(read, shape, scale)
    s2 = basis.singular_values_squared
    if s2.size == 0:
        raise _constant_view(name, scale)
    s2 = s2 / s2.mean()
    effective_rank = float(s2.sum() ** 2 / np.sum(s2**2))
    gains = ridge_gains(s2, alpha)
    keep = gains > min(GAIN_TOLERANCE, float(gains[0]) / 2)
    kept = Basis(np.ascontiguousarray(basis.vectors[:, keep]), s2[keep])
    spread = mean_squared_distance(anchor_coordinates(kept, alpha))
    if not spread > 0.0:
        raise DataError(
            f"all rows of view {name!r} are equal after scale={scale!r}; leave the view out "
            "or choose another scale"
        )
    weight = 1.0 / spread
    loadings = components[:, keep] * (np.sqrt(weight) * gains[keep])
    encoder = Encoder(shape.metric, transform, distance_scale, np.ascontiguousarray(loadings))
    return PreparedView(kept, weight, effective_rank, encoder)


def scaled_gram(
    read: RowReader, shape: ViewShape, *, scale: Scale, name: str
) -> NDArray[np.float64]:
    """X Xᵀ (n, n) of the scaled view, mean s² over its directions one: for the dense oracle.

    Raises
    ------
    DataError
        As `prepare_view`.
    """
    _, _, basis, _ = _factor(read, shape, scale)
    s2 = basis.singular_values_squared
    if s2.size == 0:
        raise _constant_view(name, scale)
    return np.asarray((basis.vectors * (s2 / s2.mean())) @ basis.vectors.T, dtype=np.float64)


def _constant_view(name: str, scale: Scale) -> DataError:
    return DataError(
        f"view {name!r} is constant after scale={scale!r}: it cannot tell samples apart; "
        "leave it out or choose another scale"
    )


def _factor(
    read: RowReader, shape: ViewShape, scale: Scale
) -> tuple[RowTransform | None, float, Basis, NDArray[np.float64]]:
    """Transform, distance unit, basis, and components C (d, r) with Q = transformed X @ C."""
    n, d = shape.n_samples, shape.n_features
    if shape.metric != "features":
        kernel, unit = _kernel(read, shape)
        basis = basis_from_kernel(kernel)
        return None, unit, basis, basis.vectors / basis.singular_values_squared
    transform = _fit_transform(read, shape, scale)

    def blocks() -> Iterator[tuple[int, int, NDArray[np.float64]]]:
        for start, stop in row_blocks(n, d):
            yield start, stop, transform.apply(read(start, stop))

    if d <= n:
        gram = np.zeros((d, d))
        for _, _, rows in blocks():
            gram += rows.T @ rows
        directions, s2 = basis_from_gram(gram)
        components = directions / np.sqrt(s2)
        vectors = np.empty((n, len(s2)))
        for start, stop, rows in blocks():
            vectors[start:stop] = rows @ components
        vectors = orthonormalize_nearby(vectors) if s2.size else vectors
        return transform, 1.0, Basis(orient_columns(vectors), s2), _oriented(components, vectors)
    kernel = np.empty((n, n))
    for start, stop, rows in blocks():
        for other_start, other_stop, others in blocks():
            if other_start > start:
                break
            kernel[start:stop, other_start:other_stop] = rows @ others.T
            kernel[other_start:other_stop, start:stop] = kernel[
                start:stop, other_start:other_stop
            ].T
    basis = basis_from_kernel(kernel)
    components = np.zeros((d, basis.rank))
    for start, stop, rows in blocks():
        components += rows.T @ (basis.vectors[start:stop] / basis.singular_values_squared)
    return transform, 1.0, basis, components


def _oriented(components: NDArray[np.float64], vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give `components` the column signs that `orient_columns` gives `vectors`."""
    if vectors.size == 0:
        return components
    oriented = orient_columns(vectors)
    signs = np.sign(np.sum(oriented * vectors, axis=0))
    return np.asarray(components * signs, dtype=np.float64)


def _fit_transform(read: RowReader, shape: ViewShape, scale: Scale) -> RowTransform:
    moments: ColumnMoments | None = None
    for start, stop in row_blocks(shape.n_samples, shape.n_features):
        block = ColumnMoments.from_rows(read(start, stop))
        moments = block if moments is None else moments.merge(block)
    assert moments is not None, "a view without rows passed validation"
    return fit_transform_from_moments(scale, moments)


def _kernel(read: RowReader, shape: ViewShape) -> tuple[NDArray[np.float64], float]:
    """The view as an (n, n) kernel, and the unit of distance used."""
    n = shape.n_samples
    matrix = np.empty((n, n))
    for start, stop in row_blocks(n, n):
        matrix[start:stop] = read(start, stop)
    if shape.metric == "kernel":
        return matrix, 1.0
    # mean over i ≠ j; the diagonal is zero
    unit = float(matrix.sum() / max(1, n * (n - 1)))
    if not unit > 0.0:
        return np.zeros((n, n)), 1.0
    return np.exp(-matrix / unit), unit
