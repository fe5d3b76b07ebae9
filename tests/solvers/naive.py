"""Slow, dense, independent: the n × n formulas of the view sub-problems, from their Lagrangian.

G is the Gram matrix XᵀX of the samples, n × n. Every function here can be read beside the
formula it implements; nothing is shared with the package but the Stiefel kernel of the W-step.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.linalg
import scipy.sparse.csgraph
from numpy.typing import NDArray

from mscam_dask.linalg.orthonormal import stiefel_quadratic

Array = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class DenseProblem:
    """One view's sub-problem: G and L are (n, n); H (n, h) restricts the W-step."""

    gram: Array
    laplacian: Array
    subspace: Array
    eigenvalue_bound: float
    alpha: float
    metric_ridge: float
    graph_weight: float


@dataclasses.dataclass(frozen=True)
class DenseState:
    """Z (n, n); P, W, F, Y (n, c); μ."""

    Z: Array
    P: Array
    W: Array
    F: Array
    Y: Array
    penalty: float


def gram_fidelity(gram: Array, Z: Array) -> float:
    """‖X − XZ‖² for any X with XᵀX = gram."""
    rest = np.eye(len(gram)) - Z
    return float(np.trace(rest.T @ gram @ rest))


def view_objective(problem: DenseProblem, Z: Array, P: Array) -> float:
    """‖X − XZ‖² + α‖Z‖² + τ‖P‖² + λ tr(PᵀZ L ZᵀP)."""
    F = Z.T @ P
    return float(
        gram_fidelity(problem.gram, Z)
        + problem.alpha * np.sum(Z**2)
        + problem.metric_ridge * np.sum(P**2)
        + problem.graph_weight * np.trace(F.T @ problem.laplacian @ F)
    )


def augmented_lagrangian(
    problem: DenseProblem, Z: Array, P: Array, W: Array, Y: Array, penalty: float
) -> float:
    """The terms above with λ tr(WᵀLW), plus ⟨Y, W − ZᵀP⟩ + μ/2 ‖W − ZᵀP‖²."""
    gap = W - Z.T @ P
    return float(
        gram_fidelity(problem.gram, Z)
        + problem.alpha * np.sum(Z**2)
        + problem.metric_ridge * np.sum(P**2)
        + problem.graph_weight * np.trace(W.T @ problem.laplacian @ W)
        + np.sum(Y * gap)
        + 0.5 * penalty * np.sum(gap**2)
    )


def z_step(problem: DenseProblem, P: Array, W: Array, Y: Array, penalty: float) -> Array:
    """Eq. (16) with α: (G + αI + μ/2 PPᵀ) Z = G + P (μW + Y)ᵀ / 2."""
    n = len(problem.gram)
    left = problem.gram + problem.alpha * np.eye(n) + 0.5 * penalty * P @ P.T
    return np.asarray(scipy.linalg.solve(left, problem.gram + P @ (0.5 * (penalty * W + Y)).T))


def p_step(problem: DenseProblem, Z: Array, W: Array, Y: Array, penalty: float) -> Array:
    """(ZZᵀ + (2τ/μ) I) P = Z (W + Y/μ); least squares of least norm when τ = 0."""
    target = W + Y / penalty
    if problem.metric_ridge == 0:
        return np.asarray(scipy.linalg.pinv(Z.T) @ target)
    left = Z @ Z.T + 2.0 * problem.metric_ridge / penalty * np.eye(len(Z))
    return np.asarray(scipy.linalg.solve(left, Z @ target))


def w_step(
    problem: DenseProblem, F: Array, W: Array, Y: Array, penalty: float, *, max_iterations: int
) -> Array:
    """Descend λ tr(WᵀLW) + ⟨Y, W⟩ + μ/2 ‖W − F‖² over WᵀW = I, W in span(H)."""
    H = problem.subspace
    linear = (penalty * F - Y) / (2.0 * problem.graph_weight)
    result = stiefel_quadratic(
        H.T @ problem.laplacian @ H,
        H.T @ linear,
        H.T @ W,
        max_iterations=max_iterations,
        largest_eigenvalue=problem.eigenvalue_bound,
    )
    return np.asarray(H @ result.point)


def step(
    problem: DenseProblem, state: DenseState, *, penalty_growth: float, max_iterations: int
) -> DenseState:
    """One pass Z → P → F → W → Y → μ with n × n matrices."""
    mu = state.penalty
    Z = z_step(problem, state.P, state.W, state.Y, mu)
    P = p_step(problem, Z, state.W, state.Y, mu)
    F = Z.T @ P
    W = w_step(problem, F, state.W, state.Y, mu, max_iterations=max_iterations)
    return DenseState(Z, P, W, F, state.Y + mu * (W - F), mu * penalty_growth)


def mscan_objective(
    gram: Array, laplacian: Array, Z: Array, *, alpha: float, weight: float
) -> float:
    """‖X − XZ‖² + α‖Z‖² + λ tr(Z L Zᵀ)."""
    smoothness = float(np.trace(Z @ laplacian @ Z.T))
    return gram_fidelity(gram, Z) + alpha * float(np.sum(Z**2)) + weight * smoothness


def mscan_z_step(gram: Array, laplacian: Array, *, alpha: float, weight: float) -> Array:
    """(G + αI) Z + λ Z L = G, by Bartels and Stewart."""
    n = len(gram)
    solution = scipy.linalg.solve_sylvester(gram + alpha * np.eye(n), weight * laplacian, gram)
    return np.asarray(solution)


def pair_distances(rows: Array) -> Array:
    """‖x_i − x_j‖², (n, n), by differences."""
    return np.asarray(np.sum((rows[:, None, :] - rows[None, :, :]) ** 2, axis=2))


def dense_laplacian(affinity: Array) -> Array:
    """D − (A + Aᵀ)/2."""
    symmetric = 0.5 * (affinity + affinity.T)
    return np.asarray(np.diag(symmetric.sum(axis=1)) - symmetric)


def modularity(affinity: Array, labels: NDArray[np.int64]) -> float:
    """Newman: Σ_ij (w_ij − d_i d_j / 2m) [same cluster] / 2m."""
    degrees, total = affinity.sum(axis=1), affinity.sum()
    same = labels[:, None] == labels[None, :]
    return float(np.sum((affinity - np.outer(degrees, degrees) / total)[same]) / total)


def partition_graph(
    distances: Array, labels: NDArray[np.int64], n_neighbors: int, allowed: NDArray[np.bool_]
) -> Array:
    """Rows of Eq. (29)-(30) with the nearest allowed samples of the own cluster, by a loop."""
    A = np.zeros(distances.shape)
    for i, own in enumerate(labels):
        others = np.flatnonzero((labels == own) & allowed[i] & (np.arange(len(labels)) != i))
        nearest = others[np.argsort(distances[i, others], kind="stable")]
        k = min(n_neighbors, len(nearest))
        if k:
            gaps = distances[i, nearest[min(k, len(nearest) - 1)]] - distances[i, nearest[:k]]
            A[i, nearest[:k]] = gaps / gaps.sum() if gaps.any() else 1.0 / k
    return A


def bridged(
    distances: Array, A: Array, labels: NDArray[np.int64], n_neighbors: int | NDArray[np.int64]
) -> Array:
    """A with one component a cluster: the smallest piece takes the shortest edge to the others."""
    _, pieces = scipy.sparse.csgraph.connected_components(A, directed=False)
    edges = np.zeros(A.shape)
    for cluster in np.unique(labels):
        while len(found := np.unique(pieces[labels == cluster])) > 1:
            smallest = min(found, key=lambda piece: np.count_nonzero(pieces == piece))
            others = (labels == cluster) & (pieces != smallest)
            between = np.where(np.outer(pieces == smallest, others), distances, np.inf)
            i, j = np.unravel_index(np.argmin(between), between.shape)
            edges[i, j] = 1.0
            pieces[pieces == smallest] = pieces[j]
    counts = edges.sum(axis=1, keepdims=True)
    return np.asarray((n_neighbors * A + edges) / (n_neighbors + counts))
