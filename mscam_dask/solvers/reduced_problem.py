"""The sub-problem of one view, restricted to the space in which its iterates stay.

H = orth[Q, V_m], Q the left singular vectors of the view and V_m the bottom eigenvectors of the
graph's Laplacian; see `mscam_dask.solvers.admm` for the problem and how it is solved.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.linalg.orthonormal import inverse_root
from mscam_dask.linalg.ridge import Basis

__all__ = ["ReducedProblem", "reduced_problem"]

# Directions of V_m outside span(Q) shorter than this are rounding, not new directions.
_NEW_DIRECTION = {np.dtype(np.float64): 1e-6, np.dtype(np.float32): 1e-3}

# LH is formed for so many columns of H at a time.
_SLAB_COLUMNS = 64


@dataclasses.dataclass(frozen=True, slots=True)
class ReducedProblem:
    """The view's sub-problem in the coordinates of H.

    Attributes
    ----------
    subspace : (n, h)
        H, orthonormal columns, of the type the basis is kept in.
    squared_singular_values : (h,)
        s², zero on the directions added for the graph.
    laplacian : (h, h)
        L̂ = HᵀLH.
    laplacian_bound : float
        An upper bound of L̂'s eigenvalues.
    alpha, metric_ridge, graph_weight : float
        α, τ and the weight λ of tr(WᵀLW).
    """

    subspace: NDArray[Any]
    squared_singular_values: NDArray[np.float64]
    laplacian: NDArray[np.float64]
    laplacian_bound: float
    alpha: float
    metric_ridge: float
    graph_weight: float


def reduced_problem(
    basis: Basis,
    graph_vectors: NDArray[np.float64],
    laplacian: csr_array[np.float64],
    *,
    alpha: float,
    metric_ridge: float,
    graph_weight: float,
    min_shrinkage: float = 0.0,
) -> ReducedProblem:
    """Restrict the view's sub-problem to span[Q, V_m].

    Parameters
    ----------
    basis : Basis
        Q (n, r) and s² (r,) of the prepared view.
    graph_vectors : (n, m)
        Orthonormal bottom eigenvectors of the Laplacian.
    laplacian : (n, n) sparse
        L of the current graph.
    alpha, metric_ridge, graph_weight : float
        α > 0, τ ≥ 0, λ > 0.
    min_shrinkage : float
        Directions of Q with a smaller gain s²/(s²+α) stay with their ridge solution: a metric
        factor along them costs more than it moves the embedding, and they are most directions
        of a noisy view. With 0 the restriction is exact.

    Returns
    -------
    ReducedProblem
        With h ≤ r + m, all r directions among them where `min_shrinkage` is 0.

    Notes
    -----
    O(nnz(L) h + n h²) flops, n·h floats and a slab, of the type Q is kept in. The projection
    off span(Q) is repeated, which makes H orthonormal to rounding of that type.
    """
    s2 = basis.singular_values_squared
    gains = s2 / (s2 + alpha)
    # gains descend with s²: the directions used come first
    rank = int(np.count_nonzero(gains >= min(min_shrinkage, 0.5 * float(gains[0]))))
    q = basis.vectors[:, :rank]
    added = _directions_outside(q, graph_vectors)
    subspace = np.concatenate([q, added], axis=1)
    return ReducedProblem(
        subspace=subspace,
        squared_singular_values=np.concatenate([s2[:rank], np.zeros(added.shape[1])]),
        laplacian=_restricted(laplacian, subspace),
        laplacian_bound=_largest_eigenvalue_bound(laplacian),
        alpha=alpha,
        metric_ridge=metric_ridge,
        graph_weight=graph_weight,
    )


def _directions_outside(q: NDArray[Any], vectors: NDArray[np.float64]) -> NDArray[Any]:
    """Orthonormal basis (n, ≤ m) of what `vectors` (n, m) span beyond orthonormal columns `q`."""
    vectors = vectors.astype(q.dtype, copy=False)
    # few columns: in float64, or their Gram matrix would see rounding as directions
    rest = np.asarray(vectors - q @ (q.T @ vectors), dtype=np.float64)
    squared, rotation = np.linalg.eigh(rest.T @ rest)
    lengths = np.sqrt(np.maximum(squared, 0.0))
    new = lengths > _NEW_DIRECTION[q.dtype]
    added = rest @ (rotation[:, new] / lengths[new])
    # short directions lost digits to the first projection; two more find them again
    for _ in range(2):
        added -= q @ (q.T @ added.astype(q.dtype, copy=False))
        added = added @ inverse_root(added.T @ added)
    return np.asarray(added, dtype=q.dtype)


def _restricted(laplacian: csr_array[np.float64], subspace: NDArray[Any]) -> NDArray[np.float64]:
    """L̂ = HᵀLH, by slabs of columns: LH as a whole would be as large as H."""
    matrix = laplacian.astype(subspace.dtype, copy=False)
    h = subspace.shape[1]
    restricted = np.empty((h, h))
    for start in range(0, h, _SLAB_COLUMNS):
        slab = slice(start, min(start + _SLAB_COLUMNS, h))
        restricted[:, slab] = subspace.T @ (matrix @ np.ascontiguousarray(subspace[:, slab]))
    return 0.5 * (restricted + restricted.T)


def _largest_eigenvalue_bound(laplacian: csr_array[np.float64]) -> float:
    """Gershgorin: λ_max(L) ≤ 2 max_i L_ii, which also bounds every restriction of L."""
    return float(2.0 * laplacian.diagonal().max())
