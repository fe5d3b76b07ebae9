"""Reference algorithms: Algorithms 1 (MSCAN) and 2 (MSCAM) of the paper with dense matrices.

Every published slip is a switch of `mscam_dask.solvers.reference_steps.ReferenceCorrections`;
`ReferenceCorrections.printed()` follows the printed text. The n × n matrices of the paper
(arXiv:1709.03656) are formed in full, so use this code for small data and for tests.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.linalg.distances import mean_squared_distance, squared_distances
from mscam_dask.linalg.laplacian import connected_components
from mscam_dask.linalg.laplacian import laplacian as graph_laplacian
from mscam_dask.solvers.reference_steps import (
    ReferenceOptions,
    ViewState,
    a_step,
    initial_state,
    view_iteration,
    z_step_mscan,
)

# Largest number of repeated A-steps from the same distances.
_MAX_REDUCTIONS = 20


@dataclasses.dataclass(frozen=True, slots=True)
class ReferenceIteration:
    """Record of one outer iteration.

    Attributes
    ----------
    graph_weight : float
        λ of the A-step.
    n_connected_components : int
        Connected components of the new graph.
    graph_change : float
        ‖A − A_before‖_F / ‖A‖_F.
    """

    graph_weight: float
    n_connected_components: int
    graph_change: float


@dataclasses.dataclass(frozen=True, slots=True)
class ReferenceSolution:
    """Result of a reference algorithm.

    Attributes
    ----------
    labels : (n,) int64
        Connected components of the graph, by first appearance.
    consensus_graph : (n, n) CSR
        A.
    n_connected_components : int
        Not necessarily c: nothing in the printed algorithms enforces it.
    view_embeddings : tuple of (n, c), or of (n, n) for MSCAN
        F_v = Z_vᵀP_v; Z_vᵀ for MSCAN.
    converged : bool
        The graph has c components (rank control), or no longer changes (without).
    history : tuple of ReferenceIteration
    """

    labels: NDArray[np.int64]
    consensus_graph: csr_array[np.float64]
    n_connected_components: int
    view_embeddings: tuple[NDArray[np.float64], ...]
    converged: bool
    history: tuple[ReferenceIteration, ...]


def solve_mscan(
    grams: Sequence[NDArray[np.float64]], settings: ReferenceOptions
) -> ReferenceSolution:
    """Algorithm 1: alternate Sylvester Z-steps and A-steps on ‖z_i − z_j‖².

    Parameters
    ----------
    grams : sequence of (n, n)
        K_v = X_vᵀX_v of the scaled views, or kernel matrices.
    settings : ReferenceOptions
        MSCAN uses only ``rank_control`` of the corrections.

    Raises
    ------
    ConfigurationError, DataError
        As `solve_mscam`.

    Notes
    -----
    O(V n³) flops per outer iteration. λ acts through Z, so a change of λ takes effect in the
    next Z-step.
    """
    n = _n_samples(grams, settings)
    control = settings.corrections.rank_control
    graph_weight = settings.graph_weight
    by_view = settings.of_views(len(grams))
    graph = a_step(_data_distances(grams, by_view), settings.n_neighbors)
    history: list[ReferenceIteration] = []
    columns: tuple[NDArray[np.float64], ...] = ()
    converged = False
    while len(history) < settings.max_iter and not converged:
        laplacian = graph_laplacian(graph).toarray()
        columns = tuple(
            z_step_mscan(gram, laplacian, alpha=own.alpha, graph_weight=graph_weight).T
            for gram, own in zip(grams, by_view, strict=True)
        )
        total = np.zeros((n, n))
        for rows in columns:
            total += squared_distances(rows, rows)
        before, graph = graph, a_step(total, settings.n_neighbors)
        history.append(_record(graph, before, graph_weight))
        converged = _is_finished(history[-1], settings)
        if control and not converged:
            too_few = history[-1].n_connected_components < settings.n_clusters
            growth = settings.graph_weight_growth
            graph_weight *= growth if too_few else 1.0 / growth
    return _solution(graph, columns, history, converged=converged)


def solve_mscam(
    grams: Sequence[NDArray[np.float64]], settings: ReferenceOptions
) -> ReferenceSolution:
    """Algorithm 2: alternate the ADMM of every view (Z, P, M, W, multipliers) and A-steps.

    Parameters
    ----------
    grams : sequence of (n, n)
        K_v = X_vᵀX_v of the prepared views, or kernel matrices.
    settings : ReferenceOptions

    Raises
    ------
    ConfigurationError
        n_clusters > n, n_neighbors >= n, or the number of α differs from that of views.
    DataError
        No view, or Gram matrices that are not square or differ in size.

    Notes
    -----
    Per outer iteration O(V n³) flops for each inner iteration; V n² numbers in memory. The
    paper does not say how the ADMM continues when A changes: here each view restarts from the
    bottom eigenvectors of L. With the corrections, d_ij of the A-step is
    w · mean_v ω_v ‖z_i − z_j‖² + λ n/2c · mean_v ‖F_v,i − F_v,j‖², z of the ridge
    self-representation and ω_v = 1/(its mean squared distance); as printed it is
    Σ_v ‖F_v,i − F_v,j‖².
    """
    n = _n_samples(grams, settings)
    by_view = settings.of_views(len(grams))
    data = _data_distances(grams, by_view)
    graph = a_step(data, settings.n_neighbors)
    graph_weight = settings.graph_weight
    history: list[ReferenceIteration] = []
    states: tuple[ViewState, ...] = ()
    converged = False
    while len(history) < settings.max_iter and not converged:
        laplacian = graph_laplacian(graph).toarray()
        start = scipy.linalg.eigh(laplacian, subset_by_index=[0, settings.n_clusters - 1])[1]
        states = tuple(
            _solve_view(gram, laplacian, start, settings=own, graph_weight=graph_weight)
            for gram, own in zip(grams, by_view, strict=True)
        )
        projected = np.zeros((n, n))
        for state in states:
            projected += squared_distances(state.embedding, state.embedding)
        projected *= n / (2.0 * settings.n_clusters * len(grams))
        before = graph
        graph, graph_weight, used = _steered_a_step(
            data, projected, graph_weight, settings=settings
        )
        history.append(_record(graph, before, used))
        converged = _is_finished(history[-1], settings)
    embeddings = tuple(state.embedding for state in states)
    return _solution(graph, embeddings, history, converged=converged)


def _solve_view(
    gram: NDArray[np.float64],
    laplacian: NDArray[np.float64],
    start: NDArray[np.float64],
    *,
    settings: ReferenceOptions,
    graph_weight: float,
) -> ViewState:
    """ADMM of a view until primal and dual residual meet the tolerance."""
    admm = settings.admm
    state = initial_state(start, admm.penalty)
    scale = np.sqrt(settings.n_clusters)
    for _ in range(admm.max_iterations):
        before = state.embedding
        state = view_iteration(gram, laplacian, state, settings=settings, graph_weight=graph_weight)
        primal = np.linalg.norm(state.W - state.embedding) / scale
        dual = np.linalg.norm(state.embedding - before) / scale
        if primal <= admm.tolerance and dual <= admm.tolerance:
            break
    return state


def _steered_a_step(
    data: NDArray[np.float64],
    projected: NDArray[np.float64],
    graph_weight: float,
    *,
    settings: ReferenceOptions,
) -> tuple[csr_array[np.float64], float, float]:
    """New graph, λ of the next iteration and λ of this one.

    With too many components λ is lowered and the A-step repeated; with too few it is raised next.
    """
    corrections = settings.corrections
    floor, growth = corrections.identity_weight, settings.graph_weight_growth
    graph = a_step(floor * data + graph_weight * projected, settings.n_neighbors)
    if not corrections.rank_control:
        return graph, graph_weight, graph_weight
    count, _ = connected_components(graph)
    reductions = 0
    while count > settings.n_clusters and reductions < _MAX_REDUCTIONS:
        graph_weight /= growth
        reductions += 1
        graph = a_step(floor * data + graph_weight * projected, settings.n_neighbors)
        count, _ = connected_components(graph)
    raised = graph_weight * growth if count < settings.n_clusters else graph_weight
    return graph, raised, graph_weight


def _data_distances(
    grams: Sequence[NDArray[np.float64]], by_view: Sequence[ReferenceOptions]
) -> NDArray[np.float64]:
    """Distances mean_v ω_v ‖z_i − z_j‖² of the ridge self-representations Z = (K + α_vI)⁻¹K, (n, n)."""
    total = np.zeros_like(grams[0])
    for gram, own in zip(grams, by_view, strict=True):
        columns = scipy.linalg.solve(gram + own.alpha * np.eye(len(gram)), gram, assume_a="pos").T
        mean = mean_squared_distance(columns)
        total += squared_distances(columns, columns) / (mean if mean > 0 else 1.0)
    total /= len(grams)
    return total


def _n_samples(grams: Sequence[NDArray[np.float64]], settings: ReferenceOptions) -> int:
    if len(grams) == 0 or any(gram.shape != (len(grams[0]),) * 2 for gram in grams):
        raise DataError(
            f"the Gram matrices have shapes {[gram.shape for gram in grams]}; allowed is one "
            "(n, n) matrix for each view, at least one. Check the views."
        )
    n = len(grams[0])
    if settings.n_clusters > n:
        raise ConfigurationError(
            f"n_clusters={settings.n_clusters} but there are {n} samples. Lower n_clusters."
        )
    if settings.n_neighbors >= n:
        raise ConfigurationError(
            f"n_neighbors={settings.n_neighbors} but there are {n} samples; allowed is at most "
            f"{n - 1}. Lower n_neighbors."
        )
    return n


def _record(
    graph: csr_array[np.float64], before: csr_array[np.float64], graph_weight: float
) -> ReferenceIteration:
    difference = (graph - before).toarray()
    change = float(np.linalg.norm(difference) / np.linalg.norm(graph.data))
    return ReferenceIteration(graph_weight, connected_components(graph)[0], change)


def _is_finished(iteration: ReferenceIteration, settings: ReferenceOptions) -> bool:
    if settings.corrections.rank_control:
        return iteration.n_connected_components == settings.n_clusters
    return iteration.graph_change <= settings.tol


def _solution(
    graph: csr_array[np.float64],
    embeddings: tuple[NDArray[np.float64], ...],
    history: Sequence[ReferenceIteration],
    *,
    converged: bool,
) -> ReferenceSolution:
    count, labels = connected_components(graph)
    return ReferenceSolution(labels, graph, count, embeddings, converged, tuple(history))
