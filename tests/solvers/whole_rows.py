"""ADMM problem of a view from whole rows, with a basis of span(H) by projection instead of by sums."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.linalg.orthonormal import inverse_root
from mscam_dask.linalg.ridge import Basis
from mscam_dask.solvers.admm import NEW_DIRECTION, ReducedProblem, n_shrunk


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WholeProblem(ReducedProblem):
    """ADMM problem of a view with H (n, h)."""

    subspace: NDArray[Any]

    def start(self, vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        """Vectors (n, c) in the coordinates of H."""
        return np.asarray(self.subspace.T @ vectors, dtype=np.float64)


def reduced_problem(
    basis: Basis,
    graph_vectors: NDArray[np.float64],
    laplacian: csr_array[np.float64],
    *,
    alpha: float,
    metric_ridge: float,
    graph_weight: float,
    min_shrinkage: float = 0.0,
) -> WholeProblem:
    """Restrict the ADMM problem of a view to span(H), H = orth[Q, V_m].

    Parameters
    ----------
    basis : Basis
        Q (n, r) and s² (r,) of the view.
    graph_vectors : (n, m)
        Orthonormal bottom eigenvectors of the Laplacian.
    laplacian : (n, n) sparse
        L of the current graph.
    alpha, metric_ridge, graph_weight : float
        α > 0, τ ≥ 0, λ > 0.
    min_shrinkage : float
        Directions of Q with a smaller gain s²/(s²+α) keep their ridge solution. A metric factor
        along them costs more than it changes the embedding, and they are the majority in a
        noisy view. With 0 the restriction is exact.

    Returns
    -------
    WholeProblem
        With h ≤ r + m; it includes all r directions if `min_shrinkage` is 0.

    Notes
    -----
    O(nnz(L) h + n h²) flops; n·h floats and a block of columns, in the dtype of Q. The projection
    onto the complement of span(Q) is repeated, so H is orthonormal to rounding of that dtype.
    """
    s2 = basis.singular_values_squared
    rank = n_shrunk(s2, alpha, min_shrinkage)
    q = basis.vectors[:, :rank]
    added = _directions_outside(q, graph_vectors)
    subspace = np.concatenate([q, added], axis=1)
    return WholeProblem(
        subspace=subspace,
        squared_singular_values=np.concatenate([s2[:rank], np.zeros(added.shape[1])]),
        laplacian=_restricted(laplacian, subspace),
        laplacian_bound=_largest_eigenvalue_bound(laplacian),
        alpha=alpha,
        metric_ridge=metric_ridge,
        graph_weight=graph_weight,
    )


def _directions_outside(q: NDArray[Any], vectors: NDArray[np.float64]) -> NDArray[Any]:
    """Orthonormal basis (n, ≤ m) of the part of span(`vectors`) orthogonal to the columns `q`."""
    vectors = vectors.astype(q.dtype, copy=False)
    # float64, because the Gram matrix of float32 columns would turn rounding into directions
    rest = np.asarray(vectors - q @ (q.T @ vectors), dtype=np.float64)
    squared, rotation = np.linalg.eigh(rest.T @ rest)
    lengths = np.sqrt(np.maximum(squared, 0.0))
    new = lengths > NEW_DIRECTION[q.dtype]
    added = rest @ (rotation[:, new] / lengths[new])
    # short directions lose digits in the first projection; two more restore them
    for _ in range(2):
        added -= q @ (q.T @ added.astype(q.dtype, copy=False))
        added = added @ inverse_root(added.T @ added)
    return np.asarray(added, dtype=q.dtype)


def _restricted(laplacian: csr_array[np.float64], subspace: NDArray[Any]) -> NDArray[np.float64]:
    """L̂ = HᵀLH by blocks of columns, because all of LH would be as large as H."""
    matrix = laplacian.astype(subspace.dtype, copy=False)
    h = subspace.shape[1]
    restricted = np.empty((h, h))
    for start in range(0, h, 64):
        some = slice(start, min(start + 64, h))
        restricted[:, some] = subspace.T @ (matrix @ np.ascontiguousarray(subspace[:, some]))
    return 0.5 * (restricted + restricted.T)


def _largest_eigenvalue_bound(laplacian: csr_array[np.float64]) -> float:
    """Gershgorin bound λ_max(L) ≤ 2 max_i L_ii, which also bounds every restriction of L."""
    return float(2.0 * laplacian.diagonal().max())
