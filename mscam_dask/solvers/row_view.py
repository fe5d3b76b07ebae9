"""The ADMM of a view whose rows are in blocks, by sums over blocks.

With B = [Q, V_m] the sums BᵀB and BᵀLB over blocks define the problem of `mscam_dask.solvers.admm`
in span(H), H = B T: no task needs all rows.
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
from mscam_dask.linalg.laplacian import induced_laplacian
from mscam_dask.solvers.admm import ReducedProblem, ViewSolution, n_shrunk, solve_view
from mscam_dask.solvers.ridge_view import RidgeView
from mscam_dask.types.parameters import Parameters

# Length of a component of V_m outside span(Q) below which it is rounding.
_NEW_DIRECTION = 1e-3


@dataclasses.dataclass(frozen=True, slots=True)
class ReducedSums:
    """Sums over the rows of a block of B = [Q, V_m], and the largest degree."""

    products: NDArray[np.float64]  # BᵀB, and (h, h) whose symmetric part over all blocks is BᵀLB
    totals: NDArray[np.float64]  # (h,) sum of the rows of B
    n_rows: int
    largest_degree: float


@dataclasses.dataclass(frozen=True, slots=True)
class EmbeddedRows:
    """Rows of the embedding of a view, NaN for absent samples; `factor` is of squared distances."""

    rows: NDArray[Any]
    factor: float = 1.0


def _columns(view: RidgeView, vectors: NDArray[Any], parameters: Parameters) -> NDArray[Any]:
    """Rows of B = [Q, V_m] with the directions of a view that take part in metric learning."""
    rank = n_shrunk(
        view.basis.singular_values_squared, view.alpha, parameters.constants.min_shrinkage
    )
    own = vectors[:, : 2 * parameters.n_clusters]
    if view.present is not None:
        own = own[view.present.samples]
    return np.hstack((view.basis.vectors[:, :rank], own.astype(np.float32, copy=False)))


def reduced_sums(
    views: Sequence[RidgeView],
    vectors: Sequence[NDArray[Any]],
    rows: LaplacianRows,
    first: int,
    parameters: Parameters,
) -> ReducedSums:
    """Sums of a block of rows over itself or later blocks of its halo, from the `first` on.

    L is symmetric, so later blocks count twice and earlier ones are left out. The last of `views` and of `vectors` is the
    block itself. An incomplete view is in one block; its Laplacian is that of the subgraph of its samples.
    """
    *pairs, (view, block) = zip(views, vectors, strict=True)
    own = _columns(view, block, parameters).astype(np.float64)
    if view.present is not None:
        matrix = induced_laplacian(rows.matrix, view.present.samples)
        products = np.stack([own.T @ own, own.T @ (matrix @ own)])
        return ReducedSums(products, own.sum(axis=0), len(own), float(matrix.diagonal().max()))
    edges = np.cumsum([0, *(len(mine) for mine in rows.halo.rows)])
    own_place = int(np.searchsorted(edges, rows.own[0], side="right")) - 1
    some = slice(first, first + len(pairs))
    parts = [
        _columns(view, block, parameters)[mine] * (1 if place == own_place else 2)
        for place, ((view, block), mine) in enumerate(
            zip(pairs, rows.halo.rows[some], strict=True), start=first
        )
    ]
    matrix = rows.matrix
    if len(parts) < len(rows.halo.rows):
        matrix = csr_array(matrix[:, edges[some.start] : edges[some.stop]])
    image = np.asarray(matrix @ np.concatenate(parts), dtype=np.float64)
    is_first = first == own_place
    gram = own.T @ own if is_first else np.zeros((own.shape[1], own.shape[1]))
    totals = own.sum(axis=0) if is_first else np.zeros(own.shape[1])
    n_rows = len(own) if is_first else 0
    return ReducedSums(np.stack([gram, own.T @ image]), totals, n_rows, rows.largest_degree)


def added_sums(parts: Sequence[ReducedSums]) -> ReducedSums:
    """Sums over several blocks, or over parts of a block, in their order."""
    return ReducedSums(
        sum((one.products for one in parts[1:]), parts[0].products),
        sum((one.totals for one in parts[1:]), parts[0].totals),
        sum(one.n_rows for one in parts),
        max(one.largest_degree for one in parts),
    )


def _reduced_problem(
    sums: ReducedSums, view: RidgeView, parameters: Parameters, graph_weight: float
) -> tuple[NDArray[np.float64], ReducedProblem]:
    """Coefficients T of an orthonormal basis H = B T of span(B), and the problem in its coordinates."""
    gram, energy = sums.products
    s2 = view.basis.singular_values_squared
    rank = n_shrunk(s2, view.alpha, parameters.constants.min_shrinkage)
    overlap = scipy.linalg.solve(gram[:rank, :rank], gram[:rank, rank:], assume_a="pos")
    rest = gram[rank:, rank:] - gram[rank:, :rank] @ overlap
    squared, rotation = scipy.linalg.eigh(0.5 * (rest + rest.T))
    new = squared > _NEW_DIRECTION**2
    added = rotation[:, new] / np.sqrt(squared[new])
    h = rank + added.shape[1]
    basis = np.zeros((len(gram), h))
    basis[:rank, :rank] = np.eye(rank)
    basis[:rank, rank:] = -overlap @ added
    basis[rank:, rank:] = added
    restricted = basis.T @ energy @ basis
    problem = ReducedProblem(
        squared_singular_values=np.concatenate([s2[:rank], np.zeros(h - rank)]),
        laplacian=0.5 * (restricted + restricted.T),
        laplacian_bound=2.0 * sums.largest_degree,
        alpha=view.alpha,
        metric_ridge=parameters.constants.metric_ridge,
        graph_weight=graph_weight,
    )
    return basis, problem


def solve_reduced(
    sums: ReducedSums, view: RidgeView, parameters: Parameters, graph_weight: float
) -> tuple[NDArray[np.float64], ViewSolution]:
    """Solve the ADMM problem of a view from sums over all rows: coefficients (h, c) of F in B."""
    basis, problem = _reduced_problem(sums, view, parameters, graph_weight)
    rank = np.count_nonzero(problem.squared_singular_values)
    start = basis.T @ sums.products[0][:, rank : rank + parameters.n_clusters]
    solution = solve_view(problem, start, parameters.constants.admm)
    return basis @ solution.state.f, solution


def smoothed_coefficients(
    sums: ReducedSums, view: RidgeView, parameters: Parameters, graph_weight: float
) -> tuple[NDArray[np.float64], float, float]:
    """Solve min_Z ‖X − XZ‖² + α‖Z‖² + λ tr(Z L Zᵀ) in span(H), the Z-step of MSCAN, Eq. (6).

    The optimality condition (XᵀX + αI) Z + λ Z L = XᵀX decouples into (λL + (s_i² + α)I) c_i = s_i² q_i, Z = Q Cᵀ; with
    L̂ = U Λ Uᵀ, c_i = s_i² U (λΛ + (s_i² + α)I)⁻¹ Uᵀ e_i. Coefficients (h, r) of C in B, the mean squared distance of
    two rows of C, and the objective.
    """
    basis, problem = _reduced_problem(sums, view, parameters, graph_weight)
    rank = np.count_nonzero(problem.squared_singular_values)
    s2 = problem.squared_singular_values[:rank]
    values, vectors = scipy.linalg.eigh(problem.laplacian)
    damped = 1.0 / (graph_weight * np.maximum(values, 0.0)[:, None] + s2 + view.alpha)
    solution = vectors @ (damped * vectors[:rank].T) * s2
    coefficients = basis @ solution
    n = sums.n_rows
    mean = sums.totals @ coefficients / n
    scatter = float(np.sum(solution**2)) - n * float(mean @ mean)
    value = float(np.sum(view.basis.singular_values_squared) - s2 @ np.diag(solution[:rank]))
    return coefficients, 2.0 * scatter / (n - 1), value


def embed_rows(
    view: RidgeView,
    vectors: NDArray[Any],
    coefficients: NDArray[np.float64],
    parameters: Parameters,
) -> NDArray[np.float32]:
    """Rows of the embedding F (m, c); NaN for samples that the view does not have."""
    columns = _columns(view, vectors, parameters)
    rows = np.asarray(columns @ coefficients.astype(columns.dtype), dtype=np.float32)
    return rows if view.present is None else view.present.spread(rows)
