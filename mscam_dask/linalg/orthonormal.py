"""Orthonormalization of nearly orthonormal columns, and canonical signs."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

__all__ = ["column_signs", "inverse_root", "orient_columns", "orthonormalize_nearby"]

# ||Q^T Q - I||_F from which Newton-Schulz is used, and at which it is done.
_NEARLY, _ROUNDING = 1e-2, 1e-14

_BLOCK_ENTRIES = 1 << 17


def orthonormalize_nearby(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solve argmin_Q ||Q - vectors||_F over Q^T Q = I, for columns already nearly so.

    Parameters
    ----------
    vectors : array of shape (n, r)
        Columns orthonormal to a few digits, full rank.

    Returns
    -------
    array of shape (n, r)
        vectors (vectors^T vectors)^{-1/2}.

    Notes
    -----
    Newton-Schulz, Q <- Q (3 I - Q^T Q) / 2, squares the error of columns that are nearly
    orthonormal: one or two steps of 4 n r^2 flops. Columns that are not take the inverse
    square root through the eigenvectors of their Gram matrix.
    """
    identity = np.eye(vectors.shape[1])
    gram = vectors.T @ vectors
    error = float(np.linalg.norm(gram - identity))
    while _ROUNDING < error <= _NEARLY:
        vectors = 1.5 * vectors - 0.5 * (vectors @ gram)
        error *= error  # an upper bound, so the last Gram matrix need not be formed
        if error > _ROUNDING:
            gram = vectors.T @ vectors
            error = float(np.linalg.norm(gram - identity))
    if error <= _NEARLY:
        return vectors
    return np.asarray(vectors @ inverse_root(gram), dtype=np.float64)


def inverse_root(gram: NDArray[np.float64]) -> NDArray[np.float64]:
    """Inverse square root G^{-1/2} of a symmetric positive definite matrix (r, r)."""
    values, rotation = scipy.linalg.eigh(gram)
    return np.asarray((rotation / np.sqrt(values)) @ rotation.T, dtype=np.float64)


def orient_columns(vectors: NDArray[np.floating[Any]]) -> NDArray[Any]:
    """Flip columns so that the first entry of (nearly) largest magnitude is positive.

    Parameters
    ----------
    vectors : array of shape (n, m)

    Returns
    -------
    array of shape (n, m)
        A new array. Entries within 1e-8 of the largest (1e-6 in single precision) count as
        largest, so rounding does not decide between two entries of opposite sign.
    """
    return vectors * column_signs(vectors).astype(vectors.dtype, copy=False)


def column_signs(vectors: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Signs (m,), 1 or -1, by which `orient_columns` multiplies the columns.

    Notes
    -----
    One pass over the rows for the largest entries, a second until each is met.
    """
    n, m = vectors.shape
    signs = np.ones(m)
    if vectors.size == 0:
        return signs
    tolerance = max(1e-8, 8 * float(np.finfo(vectors.dtype).eps))
    largest = np.maximum(vectors.max(axis=0), -vectors.min(axis=0))
    wanted = np.arange(m)
    step = max(1, _BLOCK_ENTRIES // m)
    for start in range(0, n, step):
        block = vectors[start : start + step, wanted]
        reached = np.abs(block) >= (1 - tolerance) * largest[wanted]
        met = reached.any(axis=0)
        first = block[np.argmax(reached, axis=0), np.arange(len(wanted))]
        signs[wanted[met & (first < 0)]] = -1.0
        wanted = wanted[~met]
        if not wanted.size:
            break
    return signs
