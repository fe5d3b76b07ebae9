"""Dense oracle of the tests: Algorithms 1 (MSCAN) and 2 (MSCAM) of the paper with n × n matrices.

N. Xu et al., arXiv:1709.03656. Columns of X are samples, and G = XᵀX (n, n). Every function can be read
beside the formula that it implements. The package shares with it only the descent on the Stiefel
manifold and the weights of a row of the A-step, which have tests from their own definitions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import scipy.linalg
import scipy.sparse.csgraph
from numpy.typing import NDArray

from mscam_dask.linalg.orthonormal import polar_factor, power_steps
from mscam_dask.solvers.graph_update import adaptive_neighbor_weights
from mscam_dask.types.parameters import AdmmSettings

Array = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slips:
    """Slips of the published text that are kept, numbered as in docs/method.md.

    Slip 4 is `metric_ridge` and `identity_weight` of 0.
    """

    z_ridge: bool = False  # 1: λ in place of α in the Z-step
    metric_split: bool = False  # 2: the copy M = P
    second_multiplier: bool = False  # 2: and its multiplier
    closed_w_step: bool = False  # 3: Eq. (22)
    no_rank_control: bool = False  # 5


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
    slips: Slips = Slips()


@dataclasses.dataclass(frozen=True)
class DenseState:
    """Z (n, n); P, W, F, Y (n, c); μ; M and Y2 (n, c) of the published split, else None."""

    Z: Array
    P: Array
    W: Array
    F: Array
    Y: Array
    penalty: float
    M: Array | None = None
    Y2: Array | None = None


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


def z_step(problem: DenseProblem, state: DenseState) -> Array:
    """Eq. (16) with α: (G + αI + μ/2 PPᵀ) Z = G + P (μW + Y)ᵀ / 2."""
    P, mu = state.P, state.penalty
    ridge = problem.graph_weight if problem.slips.z_ridge else problem.alpha
    left = problem.gram + ridge * np.eye(len(problem.gram)) + 0.5 * mu * P @ P.T
    return np.asarray(
        scipy.linalg.solve(left, problem.gram + P @ (0.5 * (mu * state.W + state.Y)).T)
    )


def p_step(problem: DenseProblem, Z: Array, state: DenseState) -> Array:
    """(ZZᵀ + (2τ/μ) I) P = Z (W + Y/μ); least squares of least norm when τ = 0.

    The published split adds I on the left and M + Y2/μ on the right.
    """
    mu = state.penalty
    target, diagonal = state.W + state.Y / mu, 2.0 * problem.metric_ridge / mu
    right = Z @ target
    if problem.slips.metric_split:
        diagonal, right = diagonal + 1.0, right + state.M + state.Y2 / mu
    if diagonal == 0:
        return np.asarray(scipy.linalg.pinv(Z.T) @ target)
    return np.asarray(scipy.linalg.solve(Z @ Z.T + diagonal * np.eye(len(Z)), right))


def w_step(problem: DenseProblem, F: Array, state: DenseState, *, max_iterations: int) -> Array:
    """Descend λ tr(WᵀLW) + ⟨Y, W⟩ + μ/2 ‖W − F‖² over WᵀW = I, W in span(H)."""
    H, eta = problem.subspace, state.penalty / (2.0 * problem.graph_weight)
    linear = eta * (F - state.Y / state.penalty)
    if problem.slips.closed_w_step:
        return closed_w_step(problem.laplacian, linear / eta, eta)
    point = power_steps(
        H.T @ problem.laplacian @ H,
        H.T @ linear,
        H.T @ state.W,
        n_steps=max_iterations,
        largest_eigenvalue=problem.eigenvalue_bound,
    )
    return np.asarray(H @ point)


def stiefel_objective(quadratic: Array, linear: Array, point: Array) -> float:
    """tr(wᵀLw) − 2 tr(wᵀE)."""
    return float(np.sum(point * (quadratic @ point)) - 2.0 * np.sum(point * linear))


def closed_w_step(laplacian: Array, target: Array, eta: float) -> Array:
    """Eq. (22) as printed: W = V I Uᵀ of U S Vᵀ = Eᵀ(R⁻¹)ᵀR with RRᵀ = L + ηI."""
    R = scipy.linalg.cholesky(laplacian + eta * np.eye(len(laplacian)), lower=True)
    return polar_factor(R.T @ scipy.linalg.solve_triangular(R, target, lower=True))


def step(
    problem: DenseProblem, state: DenseState, *, penalty_growth: float, max_iterations: int
) -> DenseState:
    """One pass Z → P → (M →) F → W → Y (→ Y2) → μ with n × n matrices."""
    mu, slips = state.penalty, problem.slips
    Z = z_step(problem, state)
    P = p_step(problem, Z, state)
    F = Z.T @ P
    W = w_step(problem, F, state, max_iterations=max_iterations)
    M = Y2 = None
    if slips.metric_split:
        M = P - state.Y2 / mu
        Y2 = state.Y2 + mu * (M - P) if slips.second_multiplier else np.zeros_like(P)
    return DenseState(Z, P, W, F, state.Y + mu * (W - F), mu * penalty_growth, M, Y2)


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


def a_step(distances: Array, n_neighbors: int) -> Array:
    """Eq. (29)-(30): rows of A (n, n) on the simplex; a missing (k + 1)-th distance is the k-th."""
    d = distances.copy()
    np.fill_diagonal(d, np.inf)
    order = np.argsort(d, axis=1, kind="stable")
    nearest = np.take_along_axis(d, order[:, : n_neighbors + 1], axis=1)
    if n_neighbors == len(d) - 1:
        nearest[:, -1] = nearest[:, -2]
    A = np.zeros_like(d)
    np.put_along_axis(A, order[:, :n_neighbors], adaptive_neighbor_weights(nearest), axis=1)
    return A


def data_distances(grams: Sequence[Array], alpha: float, smallest_gain: float = 0.0) -> Array:
    """Mean over the views of ‖z_i − z_j‖² of Z = (G + αI)⁻¹G, in units of its mean.

    Directions whose gain is at most `smallest_gain` times the largest are left out, as ridge views do.
    """
    total = np.zeros_like(grams[0])
    for gram in grams:
        values, vectors = scipy.linalg.eigh(gram)
        gains = values / (values + alpha)
        kept = gains > smallest_gain * gains.max()
        d = pair_distances(vectors[:, kept] * gains[kept])
        total += d / d[~np.eye(len(d), dtype=np.bool_)].mean()
    return total / len(grams)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Numbers of both algorithms."""

    n_clusters: int
    n_neighbors: int = 9
    alpha: float = 1.0
    graph_weight: float = 0.1
    graph_weight_growth: float = 1.3
    identity_weight: float = 1.0
    metric_ridge: float = 1.0
    max_iter: int = 30
    tol: float = 1e-6
    admm: AdmmSettings = dataclasses.field(default_factory=AdmmSettings)
    slips: Slips = Slips()


@dataclasses.dataclass(frozen=True)
class Found:
    """Result: labels by first appearance, A, ‖A − A_before‖ / ‖A‖ of the last iteration, F of each view."""

    labels: NDArray[np.int64]
    graph: Array
    converged: bool
    graph_change: float
    embeddings: tuple[Array, ...]

    @property
    def n_components(self) -> int:
        return int(self.labels.max()) + 1


def components_of(graph: Array) -> NDArray[np.int64]:
    """Connected components, by first appearance."""
    return np.asarray(scipy.sparse.csgraph.connected_components(graph, directed=False)[1], np.int64)


def solve_mscan(grams: Sequence[Array], settings: Settings) -> Found:
    """Algorithm 1: Sylvester Z-steps and A-steps on Σ_v ‖z_i − z_j‖², λ as the components want."""
    weight = settings.graph_weight
    graph = a_step(data_distances(grams, settings.alpha), settings.n_neighbors)
    found = _found(graph, graph, (), settings)
    for _ in range(settings.max_iter):
        L = dense_laplacian(graph)
        columns = [mscan_z_step(gram, L, alpha=settings.alpha, weight=weight).T for gram in grams]
        before, graph = graph, a_step(_summed(columns), settings.n_neighbors)
        found = _found(graph, before, columns, settings)
        if found.converged:
            break
        if not settings.slips.no_rank_control:
            growth = settings.graph_weight_growth
            weight *= growth if found.n_components < settings.n_clusters else 1.0 / growth
    return found


def solve_mscam(grams: Sequence[Array], settings: Settings) -> Found:
    """Algorithm 2: the ADMM of every view from the bottom eigenvectors of L, and A-steps.

    The distances of the A-step are w · mean_v ω_v ‖z_i − z_j‖² + λ n/2c · mean_v ‖F_v,i − F_v,j‖², z of the
    ridge self-representation and ω_v = 1/(its mean). With too many components λ falls and the A-step is
    repeated; with too few it is larger in the next iteration.
    """
    n, c = len(grams[0]), settings.n_clusters
    weight, growth = settings.graph_weight, settings.graph_weight_growth
    is_steered = not settings.slips.no_rank_control
    data = data_distances(grams, settings.alpha)
    graph = a_step(data, settings.n_neighbors)
    found = _found(graph, graph, (), settings)
    for _ in range(settings.max_iter):
        L = dense_laplacian(graph)
        embeddings = [solve_view(gram, L, weight, settings) for gram in grams]
        projected = _summed(embeddings) * n / (2.0 * c * len(grams))
        before = graph
        for _ in range(21):
            mixed = settings.identity_weight * data + weight * projected
            graph = a_step(mixed, settings.n_neighbors)
            found = _found(graph, before, embeddings, settings)
            if not is_steered or found.n_components <= c:
                break
            weight /= growth
        if found.converged:
            break
        if is_steered and found.n_components < c:
            weight *= growth
    return found


def solve_view(gram: Array, laplacian: Array, weight: float, settings: Settings) -> Array:
    """F = ZᵀP (n, c) of a view when primal and dual residual meet the tolerance."""
    admm, c = settings.admm, settings.n_clusters
    problem = DenseProblem(
        gram,
        laplacian,
        np.eye(len(gram)),
        float(2.0 * laplacian.diagonal().max()),  # Gershgorin
        settings.alpha,
        settings.metric_ridge,
        weight,
        settings.slips,
    )
    W = scipy.linalg.eigh(laplacian, subset_by_index=[0, c - 1])[1]
    zero = np.zeros_like(W)
    state = DenseState(np.zeros_like(gram), W, W, zero, zero, admm.penalty, W, zero)
    for _ in range(admm.max_iterations):
        before = state.F
        state = step(problem, state, penalty_growth=admm.penalty_growth, max_iterations=5)
        gaps = (state.W - state.F, state.F - before)
        if max(np.linalg.norm(gap) for gap in gaps) <= admm.tolerance * np.sqrt(c):
            break
    return state.F


def _summed(embeddings: Sequence[Array]) -> Array:
    return np.asarray(np.sum([pair_distances(rows) for rows in embeddings], axis=0))


def _found(graph: Array, before: Array, embeddings: Sequence[Array], settings: Settings) -> Found:
    labels = components_of(graph)
    change = float(np.linalg.norm(graph - before) / np.linalg.norm(graph))
    n_components = int(labels.max()) + 1
    converged = (
        change <= settings.tol
        if settings.slips.no_rank_control
        else n_components == settings.n_clusters
    )
    return Found(labels, graph, converged, change, tuple(embeddings))


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
