"""ADMM of a view whose rows are in blocks: sums over blocks, the problem in span(H), products by block.

With B = [Q, V_m] the sums BᵀB and BᵀLB over blocks of rows define the problem of
`mscam_dask.solvers.admm` in span(H), H = B T: no task needs all rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.linalg.block_eigensolver import LaplacianRows
from mscam_dask.solvers.admm import (
    NEW_DIRECTION,
    ReducedProblem,
    ViewSolution,
    n_shrunk,
    solve_view,
)
from mscam_dask.solvers.ridge_view import RidgeView
from mscam_dask.types.parameters import Parameters

__all__ = ["ReducedSums", "added_sums", "embed_rows", "reduced_sums", "solve_reduced"]


@dataclasses.dataclass(frozen=True, slots=True)
class ReducedSums:
    """Sums over the rows of a block of B = [Q, V_m]: BᵀB and BᵀLB (h, h), and the largest degree."""

    products: NDArray[np.float64]
    largest_degree: float


def _columns(view: RidgeView, vectors: NDArray[Any], parameters: Parameters) -> NDArray[Any]:
    """Rows of B = [Q, V_m] with the directions of a view that take part in metric learning."""
    rank = n_shrunk(view.basis.singular_values_squared, view.alpha, parameters.min_shrinkage)
    return np.hstack((view.basis.vectors[:, :rank], vectors[:, : 2 * parameters.n_clusters]))


def reduced_sums(
    views: Sequence[RidgeView],
    vectors: Sequence[NDArray[Any]],
    rows: LaplacianRows,
    first: int,
    parameters: Parameters,
) -> ReducedSums:
    """Sums of a block of rows over some blocks of its halo, from the `first` on; BᵀB is in the first ones.

    The last of `views` and of `vectors` is the block itself.
    """
    *pairs, (view, block) = zip(views, vectors, strict=True)
    own = _columns(view, block, parameters).astype(np.float64)
    some = slice(first, first + len(pairs))
    parts = [
        _columns(view, block, parameters)[mine]
        for (view, block), mine in zip(pairs, rows.halo.rows[some], strict=True)
    ]
    matrix = rows.matrix
    if len(parts) < len(rows.halo.rows):
        edges = np.cumsum([0, *(len(mine) for mine in rows.halo.rows)])
        matrix = csr_array(matrix[:, edges[some.start] : edges[some.stop]])
    image = np.asarray(matrix @ np.concatenate(parts), dtype=np.float64)
    gram = own.T @ own if first == 0 else np.zeros((own.shape[1], own.shape[1]))
    return ReducedSums(np.stack([gram, own.T @ image]), rows.largest_degree)


def added_sums(parts: Sequence[ReducedSums]) -> ReducedSums:
    """Sums of a block of rows over all blocks of its halo."""
    products = sum((one.products for one in parts[1:]), parts[0].products)
    return ReducedSums(products, parts[0].largest_degree)


def solve_reduced(
    sums: Sequence[ReducedSums], view: RidgeView, parameters: Parameters, graph_weight: float
) -> tuple[NDArray[np.float64], ViewSolution]:
    """Solve the ADMM problem of a view from the sums over all blocks.

    Parameters
    ----------
    sums : sequence of ReducedSums
    view : RidgeView
        Of any rows: its s² and α are used.
    parameters : Parameters
    graph_weight : float
        λ of tr(WᵀLW).

    Returns
    -------
    coefficients : (h, c)
        F = B times them.
    solution : ViewSolution
    """
    gram, energy = sum((one.products for one in sums[1:]), sums[0].products)
    s2 = view.basis.singular_values_squared
    rank = n_shrunk(s2, view.alpha, parameters.min_shrinkage)
    overlap = scipy.linalg.solve(gram[:rank, :rank], gram[:rank, rank:], assume_a="pos")
    rest = gram[rank:, rank:] - gram[rank:, :rank] @ overlap
    squared, rotation = scipy.linalg.eigh(0.5 * (rest + rest.T))
    new = squared > NEW_DIRECTION[np.dtype(np.float32)] ** 2
    added = rotation[:, new] / np.sqrt(squared[new])
    h = rank + added.shape[1]
    to_subspace = np.zeros((len(gram), h))  # H = B times it
    to_subspace[:rank, :rank] = np.eye(rank)
    to_subspace[:rank, rank:] = -overlap @ added
    to_subspace[rank:, rank:] = added
    restricted = to_subspace.T @ energy @ to_subspace
    problem = ReducedProblem(
        subspace=np.eye(h),
        squared_singular_values=np.concatenate([s2[:rank], np.zeros(h - rank)]),
        laplacian=0.5 * (restricted + restricted.T),
        laplacian_bound=2.0 * max(one.largest_degree for one in sums),
        alpha=view.alpha,
        metric_ridge=parameters.metric_ridge,
        graph_weight=graph_weight,
    )
    start = to_subspace.T @ gram[:, rank : rank + parameters.n_clusters]
    solution = solve_view(problem, start, parameters.admm)
    return to_subspace @ solution.embedding, solution


def embed_rows(
    view: RidgeView,
    vectors: NDArray[Any],
    coefficients: NDArray[np.float64],
    parameters: Parameters,
) -> NDArray[np.float32]:
    """Rows of the embedding F (m, c)."""
    columns = _columns(view, vectors, parameters)
    return np.asarray(columns @ coefficients.astype(columns.dtype), dtype=np.float32)
