"""The strongest directions of a view that has many rows and many columns.

A Gram matrix of the smaller side costs min(n, d)² numbers and min(n, d)³ flops to decompose: of texts in
twenty thousand words, hours. Where few directions are wanted, block power iterations find them from passes
over the rows.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from mscam_dask.errors import DataError
from mscam_dask.solvers.view_rows import Blocks, ViewShape

__all__ = ["SPARE", "Strongest", "strongest_directions"]

SPARE = 16
"""Columns beside those wanted: the iteration converges by the gap to the first one left out."""

# Relative gain of Σ s² by an iteration, at which it ends.
_TOLERANCE = 1e-4

_MOST_ITERATIONS = 30

# Of the first columns, in the space of the features: the order of the samples does not matter.
_SEED = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Strongest:
    """Directions of largest variance.

    Attributes
    ----------
    directions : (d, r)
        Orthonormal columns, strongest first.
    singular_values_squared : (r,)
        Of the centred rows X: Xv = s q.
    total : float
        ‖X‖²_F, the sum of s² over all directions.
    """

    directions: NDArray[np.float64]
    singular_values_squared: NDArray[np.float64]
    total: float


def strongest_directions(
    blocks: Blocks, shape: ViewShape, offset: NDArray[np.float64], rank: int
) -> Strongest:
    """Right singular vectors of the centred rows X by block power iteration on XᵀX.

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
    Strongest
        Fewer than wanted where the view has fewer.

    Raises
    ------
    DataError
        When values are too large to be squared.

    Notes
    -----
    One pass an iteration, 4 n d b flops with b = rank + 16; memory three times d b numbers. V spans
    the block; V ← orth(XᵀX V), and s² are the Ritz values of the pass, eigenvalues of
    (XV)ᵀXV. It ends when their sum gains less than 10⁻⁴: directions of about the same s²
    may be mixed then, which changes no distance by more than that.

    References
    ----------
    N. Halko, P.-G. Martinsson, J. A. Tropp, "Finding structure with randomness", SIAM Review 53
    (2011), doi:10.1137/090771806, algorithm 4.4.
    """
    d = shape.n_features
    width = min(rank + SPARE, shape.n_samples, d)
    rng = np.random.default_rng(_SEED)
    basis = _orthonormal(rng.standard_normal((d, width)))
    found, image = _one_pass(blocks, offset, basis, rank)
    for _ in range(_MOST_ITERATIONS - 1):
        before = found.singular_values_squared.sum()
        found, image = _one_pass(blocks, offset, _orthonormal(image), rank)
        if found.singular_values_squared.sum() <= before * (1.0 + _TOLERANCE):
            break
    return found


def _one_pass(
    blocks: Blocks, offset: NDArray[np.float64], basis: NDArray[np.float64], rank: int
) -> tuple[Strongest, NDArray[np.float64]]:
    """What the columns V of a basis (d, b) hold of the strongest directions, and XᵀX V."""
    image, gram, total = np.zeros(basis.shape), np.zeros((basis.shape[1],) * 2), 0.0
    with np.errstate(over="ignore", invalid="ignore"):  # refused below
        for _, _, rows in blocks():
            centred = rows - offset
            projected = centred @ basis
            image += centred.T @ projected
            gram += projected.T @ projected
            total += float(np.einsum("ij,ij->", centred, centred))
    if not (np.isfinite(image).all() and np.isfinite(gram).all()):
        raise DataError(
            "values of a view are too large to be squared, or NaN. Clean it or choose a scaling."
        )
    values, rotation = scipy.linalg.eigh(gram)
    values, rotation = values[::-1][:rank], rotation[:, ::-1][:, :rank]
    there = values > values.sum() * np.finfo(np.float64).eps
    return Strongest(basis @ rotation[:, there], values[there], total), image


def _orthonormal(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    q, _ = scipy.linalg.qr(columns, mode="economic", check_finite=False)
    return np.asarray(q)
