"""Truncated SVD of a view with many rows and columns, and truncated eigendecomposition of a kernel.

Decomposing a Gram matrix takes min(n, d)² numbers and min(n, d)³ flops, which is hours for texts with
twenty thousand words. If few directions are wanted, block power iteration finds them in passes over the
rows. For a distance or kernel view, Lanczos iteration finds the eigenvectors of the kernel matrix.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from numpy.typing import NDArray

from mscam_dask.errors import DataError
from mscam_dask.linalg.orthonormal import orient_columns
from mscam_dask.linalg.ridge import RANK_TOLERANCE, Basis
from mscam_dask.solvers.row_blocks import Blocks, ViewShape

__all__ = ["N_OVERSAMPLES", "RANK_SAMPLE", "TruncatedSVD", "truncated_eigh", "truncated_svd"]

N_OVERSAMPLES = 16
"""Additional columns; the iteration converges by the gap to the first direction left out."""

RANK_SAMPLE = 2048
"""Samples on which the rank of a large kernel is estimated."""

# Relative gain of Σ s² in one iteration below which the iteration stops.
_TOLERANCE = 1e-4

_MAX_ITERATIONS = 30

# Seed of the first columns, in the space of the features, so the order of samples does not matter.
_SEED = 0


@dataclasses.dataclass(frozen=True, slots=True)
class TruncatedSVD:
    """Truncated SVD of a centered view: the directions of largest variance.

    Attributes
    ----------
    directions : (d, r)
        Right singular vectors, by descending s².
    singular_values_squared : (r,)
        s² of the centered rows X, Xv = s q.
    total : float
        ‖X‖²_F, the sum of s² over all directions.
    """

    directions: NDArray[np.float64]
    singular_values_squared: NDArray[np.float64]
    total: float


def truncated_svd(
    blocks: Blocks, shape: ViewShape, offset: NDArray[np.float64], rank: int
) -> TruncatedSVD:
    """Solve max_V ‖XV‖² over VᵀV = I for centered rows X, by block power iteration on XᵀX.

    Parameters
    ----------
    blocks : callable
        Called for each pass.
    shape : ViewShape
    offset : (d,)
        Mean row.
    rank : int
        Directions wanted.

    Returns
    -------
    TruncatedSVD
        Fewer directions than `rank` if the view has fewer.

    Raises
    ------
    DataError
        Values are NaN or too large to be squared.

    Notes
    -----
    One pass per iteration, 4 n d b flops with b = rank + 16; memory for three times d b numbers. Each
    pass sets V ← orth(XᵀX V); s² are the Ritz values, the eigenvalues of (XV)ᵀXV. The iteration stops
    when their sum gains less than 10⁻⁴. Directions with similar s² may still be mixed, which changes
    distances by no more than that.

    References
    ----------
    N. Halko, P.-G. Martinsson, J. A. Tropp, "Finding structure with randomness", SIAM Review 53
    (2011), doi:10.1137/090771806, algorithm 4.4.
    """
    d = shape.n_features
    width = min(rank + N_OVERSAMPLES, shape.n_samples, d)
    rng = np.random.default_rng(_SEED)
    basis = _orthonormal(rng.standard_normal((d, width)))
    found, image = _one_pass(blocks, offset, basis, rank)
    for _ in range(_MAX_ITERATIONS - 1):
        before = found.singular_values_squared.sum()
        found, image = _one_pass(blocks, offset, _orthonormal(image), rank)
        if found.singular_values_squared.sum() <= before * (1.0 + _TOLERANCE):
            break
    return found


def _one_pass(
    blocks: Blocks, offset: NDArray[np.float64], basis: NDArray[np.float64], rank: int
) -> tuple[TruncatedSVD, NDArray[np.float64]]:
    """Ritz vectors and values in the span of the columns V of a basis (d, b), and XᵀX V."""
    image, gram, total = np.zeros(basis.shape), np.zeros((basis.shape[1],) * 2), 0.0
    with np.errstate(over="ignore", invalid="ignore"):  # refused below
        for _, _, rows in blocks():
            centered = rows - offset
            projected = centered @ basis
            image += centered.T @ projected
            gram += projected.T @ projected
            total += float(np.einsum("ij,ij->", centered, centered))
    if not (np.isfinite(image).all() and np.isfinite(gram).all()):
        raise DataError(
            "values of a view are too large to be squared, or NaN. Clean it or choose a scaling."
        )
    values, rotation = scipy.linalg.eigh(gram)
    values, rotation = values[::-1][:rank], rotation[:, ::-1][:, :rank]
    there = values > values.sum() * np.finfo(np.float64).eps
    return TruncatedSVD(basis @ rotation[:, there], values[there], total), image


def _orthonormal(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    q, _ = scipy.linalg.qr(columns, mode="economic", check_finite=False)
    return np.asarray(q)


def truncated_eigh(
    kernel: NDArray[np.float64], rank: int, *, n_sampled: int = RANK_SAMPLE
) -> tuple[Basis, float]:
    """Leading eigenpairs of a centered kernel matrix, and the mean of all its positive eigenvalues.

    Parameters
    ----------
    kernel : (n, n)
        Symmetric, n > 2048.
    rank : int
        Directions wanted.
    n_sampled : int
        Samples on which the rank is estimated.

    Returns
    -------
    basis : Basis
        Fewer directions than `rank` if the kernel has fewer; negative eigenvalues are dropped.
    mean : float
        Mean of s² over all directions.

    Notes
    -----
    About a hundred products with the matrix, 2n² flops each, by ARPACK's restarted Lanczos method; memory
    for 2 rank + 1 vectors. The sum of all eigenvalues is the trace. The number of positive eigenvalues and
    the sum of the negative ones are estimated from 2048 samples: a kernel of lower rank shows all its
    directions there, any other kernel is taken to have n − 1.
    """
    n = len(kernel)
    directions, negative = _eigenvalue_signs(kernel, n_sampled)
    if directions == 0:
        return Basis(np.zeros((n, 0)), np.zeros(0)), 1.0
    first = np.random.default_rng(_SEED).standard_normal(n)
    wanted = min(
        rank, math.ceil(directions)
    )  # searching for more is slow, because the others are zero
    values, vectors = scipy.sparse.linalg.eigsh(kernel, wanted, which="LA", v0=first)
    values, vectors = values[::-1], vectors[:, ::-1]
    there = values > max(0.0, RANK_TOLERANCE * values[0])
    basis = Basis(orient_columns(vectors[:, there]), values[there])
    return basis, (float(kernel.trace()) + negative) / directions


def _eigenvalue_signs(kernel: NDArray[np.float64], n_sampled: int) -> tuple[float, float]:
    """Estimated number of positive eigenvalues of a kernel, and total magnitude of the negative ones."""
    n = len(kernel)
    drawn = np.sort(np.random.default_rng(_SEED).choice(n, min(n, n_sampled), replace=False))
    values = scipy.linalg.eigvalsh(kernel[np.ix_(drawn, drawn)])
    least = RANK_TOLERANCE * np.abs(values).max()
    positive, negative = values[values > least], values[values < -least]
    directions = float(len(positive))
    if len(positive) + len(negative) >= len(drawn) - 1:
        directions *= (n - 1) / (len(positive) + len(negative))
    return directions, float(-negative.sum()) * n / len(drawn)
