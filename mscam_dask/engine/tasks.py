"""Tasks of an outer iteration: a view and its ADMM, the consensus graph, spectral cuts, partition scores.

Each task reads views or calls the solvers on what it was given, and measures times; no task submits
another. Every function is importable, so that a worker process can run it; formulas are in
`mscam_dask.solvers`. Large results stay with the executor; small tasks such as `view_records` return the
parts that the driver needs.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.data.views.presence import present_samples
from mscam_dask.data.views.sampling import cache_chunks
from mscam_dask.data.views.sources import RowSource
from mscam_dask.linalg.distances import mean_squared_distance
from mscam_dask.linalg.eigensolver import Spectrum, bottom_eigenpairs
from mscam_dask.linalg.incomplete import PresentSamples
from mscam_dask.linalg.laplacian import connected_components, induced_laplacian, laplacian
from mscam_dask.linalg.neighbor_information import entropy, joint_information
from mscam_dask.solvers import spectral_cut
from mscam_dask.solvers.admm import ViewSolution, reduced_problem, solve_view
from mscam_dask.solvers.graph_update import (
    CandidateEdges,
    Graph,
    projected_distances,
    projected_weight,
)
from mscam_dask.solvers.lda import LinearDiscriminants, linear_discriminants
from mscam_dask.solvers.mscan import smooth_self_representation
from mscam_dask.solvers.partition_score import (
    PartitionScore,
    ReferenceGraphs,
    reference_graphs,
    view_evidence,
)
from mscam_dask.solvers.predict import extend_labels
from mscam_dask.solvers.ridge_view import RidgeView, ViewSVD, ridge_view
from mscam_dask.solvers.row_blocks import ViewShape
from mscam_dask.solvers.spectral_cut import Minimum, SpectralEmbedding, sampled_rows, walk_embedding
from mscam_dask.solvers.view_svd import view_svd
from mscam_dask.types.events import ViewIteration, ViewPrepared
from mscam_dask.types.parameters import Parameters, Scale

__all__ = [
    "GraphSpectrum",
    "TimedView",
    "ViewResult",
    "ViewScores",
    "WarmStart",
    "added",
    "admm_record",
    "admm_view",
    "all_cuts",
    "drawn_starts",
    "eigengap",
    "embedding_of",
    "extended",
    "first_cuts",
    "graph_arrays",
    "graph_spectrum",
    "learn_metric",
    "metric_record",
    "minima",
    "next_cuts",
    "partition_scores",
    "principal_coordinates",
    "projected",
    "reference_graphs_of_view",
    "restore_graph",
    "ridge_view_of",
    "score_partitions",
    "spectrum_facts",
    "svd_view",
    "view_prepared",
    "view_records",
    "view_shape",
    "warm_start",
]


# Maximum size of embeddings of several views that are copied side by side.
_TOGETHER_BYTES = 16 * 2**20


@dataclasses.dataclass(frozen=True, slots=True)
class TimedView:
    """SVD of a view, the samples that it has (None for all), and the seconds it took."""

    view: ViewSVD
    seconds: float
    present: PresentSamples | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ViewResult:
    """Embedding of one view, the record of its ADMM, and the samples that it has (None for all)."""

    embedding: NDArray[Any]
    record: ViewIteration
    present: PresentSamples | None = None


def view_shape(source: RowSource) -> ViewShape:
    """Shape and type of a view, which solvers need before they read it."""
    return ViewShape(source.shape[0], source.shape[1], source.view_type)


def svd_view(source: RowSource, scale: Scale, max_rank: int | None = None) -> TimedView:
    """Read one view, scale it and compute its SVD."""
    started = time.perf_counter()
    source = cache_chunks(source)
    view = view_svd(
        source.read,
        view_shape(source),
        scale=scale,
        name=source.name,
        dtype=np.float32,
        max_rank=max_rank,
    )
    return TimedView(view, time.perf_counter() - started, present_samples(source))


def view_prepared(timed: TimedView, name: str, n_features: int) -> ViewPrepared:
    """Record of the SVD of a view."""
    basis = timed.view.basis
    return ViewPrepared(
        view=name,
        n_features=n_features,
        rank=basis.rank,
        effective_rank=timed.view.effective_rank,
        seconds=timed.seconds,
        n_bytes=basis.vectors.nbytes,
    )


def ridge_view_of(timed: TimedView, alpha: float) -> RidgeView:
    """Ridge view: the directions of a view with their ridge shrinkage."""
    return ridge_view(timed.view, alpha=alpha, present=timed.present)


def learn_metric(
    view: RidgeView, labels: NDArray[np.int64], name: str
) -> tuple[LinearDiscriminants, ViewIteration]:
    """Learn the metric of one view from a partition: its linear discriminants, a closed form."""
    started = time.perf_counter()
    metric = linear_discriminants(view, labels)
    return metric, metric_record(name, metric.separation, started)


def metric_record(name: str, separation: float, started: float) -> ViewIteration:
    """Record of a metric in closed form, learned since a `time.perf_counter`."""
    return ViewIteration(
        view=name,
        primal_residual=0.0,
        dual_residual=0.0,
        inner_iterations=0,
        converged=True,
        objective=-separation,
        seconds=time.perf_counter() - started,
    )


def admm_view(
    view: RidgeView,
    spectrum: GraphSpectrum,
    name: str,
    parameters: Parameters,
    graph_weight: float,
) -> ViewResult:
    """Solve the problem of one view given the graph: ADMM for MSCAM, linear solves for MSCAN."""
    started = time.perf_counter()
    vectors, laplacian = spectrum.vectors[:, : 2 * parameters.n_clusters], spectrum.laplacian
    if view.present is not None:
        vectors = vectors[view.present.samples]
        laplacian = induced_laplacian(laplacian, view.present.samples)
    weight = graph_weight * projected_weight(len(vectors), parameters.n_clusters)
    if parameters.model == "mscan":
        smooth = smooth_self_representation(
            view.basis,
            laplacian,
            vectors if view.present is None else np.linalg.qr(vectors)[0],
            alpha=view.alpha,
            graph_weight=weight,
        )
        record = ViewIteration(
            view=name,
            primal_residual=smooth.relative_residual,
            dual_residual=0.0,
            inner_iterations=smooth.iterations,
            converged=smooth.converged,
            objective=smooth.objective,
            seconds=time.perf_counter() - started,
        )
        return ViewResult(smooth.embedding, record, view.present)
    problem = reduced_problem(
        view.basis,
        vectors,
        laplacian,
        alpha=view.alpha,
        metric_ridge=parameters.metric_ridge,
        graph_weight=weight,
        min_shrinkage=parameters.min_shrinkage,
    )
    solution = solve_view(problem, vectors[:, : parameters.n_clusters], parameters.admm)
    record = admm_record(name, solution, started)
    return ViewResult(solution.embedding, record, view.present)


def admm_record(name: str, solution: ViewSolution, started: float) -> ViewIteration:
    """Record of the ADMM of a view that started at a `time.perf_counter`."""
    return ViewIteration(
        view=name,
        primal_residual=solution.state.primal_residual,
        dual_residual=solution.state.dual_residual,
        inner_iterations=solution.state.iteration,
        converged=solution.converged,
        objective=solution.objective,
        seconds=time.perf_counter() - started,
    )


def embedding_of(result: ViewResult) -> NDArray[np.float64]:
    """Embedding F_v (n, c), or C_v (n, r) for MSCAN, in double precision; NaN for absent samples."""
    embedding = np.asarray(result.embedding, dtype=np.float64)
    return embedding if result.present is None else result.present.spread(embedding)


def view_records(results: list[ViewResult]) -> list[ViewIteration]:
    """Records of the ADMM of several views."""
    return [result.record for result in results]


def projected(
    results: list[ViewResult],
    candidates: CandidateEdges,
    model: str,
    *,
    together_bytes: int = _TOGETHER_BYTES,
) -> NDArray[np.float64]:
    """Sum over some views of projected squared distances on the candidate edges of a block of rows.

    For MSCAN the distances of each view are divided by their mean over all pairs.
    """
    if model == "mscan":
        return added(_divided_by_mean(result, candidates) for result in results)
    if any(result.present is not None for result in results):
        return added(
            projected_distances(result.embedding, candidates, result.present) for result in results
        )
    embeddings = [result.embedding for result in results]
    parts = _side_by_side(embeddings, together_bytes)
    return added(projected_distances(part, candidates) for part in parts)


def _side_by_side(
    embeddings: Sequence[NDArray[Any]], together_bytes: int
) -> Iterator[NDArray[Any]]:
    """Embeddings of consecutive views side by side, with summed squared distances.

    A few columns at a time are several times slower than all together. Embeddings of up to
    `together_bytes` are copied.
    """
    n_bytes = max(embedding.nbytes for embedding in embeddings)
    together = max(1, together_bytes // n_bytes)
    for first in range(0, len(embeddings), together):
        part = embeddings[first : first + together]
        yield part[0] if len(part) == 1 else np.hstack(part)


def _divided_by_mean(result: ViewResult, candidates: CandidateEdges) -> NDArray[np.float64]:
    distances = projected_distances(result.embedding, candidates, result.present)
    mean = mean_squared_distance(result.embedding)
    if result.present is not None:
        mean *= len(result.present) / result.present.n_samples
    distances /= max(mean, np.finfo(float).tiny)
    return distances


def principal_coordinates(view: RidgeView, n_axes: int) -> NDArray[np.float32]:
    """First principal coordinates (n, m) of the ridge embedding of a view, m ≤ `n_axes`.

    NaN for samples that the view does not have.
    """
    vectors, weights = view.coordinates()
    found = np.asarray(vectors[:, :n_axes] * np.sqrt(weights[:n_axes]), dtype=np.float32)
    return found if view.present is None else view.present.spread(found)


# Residual of the eigenpairs relative to the largest eigenvalue: far below any relevant eigengap.
_SPECTRUM_TOLERANCE = 1e-6

# The same where a component for each cluster leaves the eigengap alone to be found.
_GAP_TOLERANCE = 1e-3


@dataclasses.dataclass(frozen=True, slots=True)
class GraphSpectrum:
    """Laplacian of a graph and its bottom eigenpairs, shared by the tasks of an iteration."""

    laplacian: csr_array[Any]
    spectrum: Spectrum

    @property
    def vectors(self) -> NDArray[Any]:
        """Eigenvectors, (n, m)."""
        return self.spectrum.vectors


@dataclasses.dataclass(frozen=True, slots=True)
class WarmStart:
    """Eigenvectors of a `GraphSpectrum`, from which the next eigensolver starts."""

    vectors: NDArray[Any]


def graph_spectrum(
    graph: Graph,
    previous: GraphSpectrum | WarmStart | None,
    n_pairs: int,
    n_clusters: int,
    seed: int,
) -> GraphSpectrum:
    """Laplacian and bottom eigenpairs of a graph, from the previous eigenvectors as a start.

    All of them meet the tolerance, unless there is a component for each cluster. Then the null vectors
    are exact, and of the others only the first has to meet a coarser tolerance, because only the eigengap
    is wanted. Its error is quadratic in the residual. This takes a quarter as many products.
    """
    has_components = graph.n_components == n_clusters
    n_accurate = n_clusters + 1 if has_components else n_pairs
    matrix = laplacian(graph.affinity)
    spectrum = bottom_eigenpairs(
        matrix,
        n_pairs,
        warm_start=None if previous is None else previous.vectors,
        components=(graph.n_components, graph.components),
        n_accurate=n_accurate,
        relative_tolerance=_GAP_TOLERANCE if has_components else _SPECTRUM_TOLERANCE,
        rng=np.random.default_rng(seed),
    )
    return GraphSpectrum(matrix, spectrum)


def warm_start(spectrum: GraphSpectrum) -> WarmStart:
    """Eigenvectors of a spectrum without the Laplacian."""
    return WarmStart(spectrum.vectors)


def spectrum_facts(spectrum: GraphSpectrum, n_clusters: int) -> tuple[float, bool]:
    """Gap λ_{c+1} − λ_c of the Laplacian (NaN if n = c), and whether the eigenpairs converged."""
    return eigengap(spectrum.spectrum.values, n_clusters), spectrum.spectrum.converged


def eigengap(values: NDArray[np.float64], n_clusters: int) -> float:
    """Gap λ_{c+1} − λ_c of ascending eigenvalues; NaN if there are only c."""
    if len(values) <= n_clusters:
        return float("nan")
    return float(values[n_clusters] - values[n_clusters - 1])


def added(terms: Iterable[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Sum of one array or more by a binary tree in their order, two partial sums of one size at a time.

    Sums of 2^m consecutive arrays that are added again give identical bits.
    """
    partial: list[tuple[int, NDArray[np.float64]]] = []
    for term in terms:
        size, total = 1, term
        while partial and partial[-1][0] == size:
            total = partial.pop()[1] + total
            size *= 2
        partial.append((size, total))
    _, total = partial.pop()
    while partial:
        total = partial.pop()[1] + total
    return total


def graph_arrays(
    graph: Graph,
) -> tuple[NDArray[np.float64], NDArray[np.integer[Any]], NDArray[np.integer[Any]]]:
    """Data, indices and indptr of A, from which `restore_graph` rebuilds the graph."""
    affinity = graph.affinity
    return affinity.data, affinity.indices, affinity.indptr


def restore_graph(
    data: NDArray[np.float64],
    indices: NDArray[np.integer[Any]],
    indptr: NDArray[np.integer[Any]],
) -> Graph:
    """Graph from the arrays that `graph_arrays` returned."""
    n = len(indptr) - 1
    affinity: csr_array[np.float64] = csr_array((data, indices, indptr), shape=(n, n))
    count, components = connected_components(affinity)
    return Graph(affinity, count, components)


def drawn_starts(
    spectrum: GraphSpectrum, n_clusters: int, seed: int, starts: range
) -> list[Minimum]:
    """Local minima of k-means from some of the random starts of a cut."""
    drawn = int(np.random.default_rng(seed).integers(2**31))
    return spectral_cut.drawn_starts(_embedding(spectrum, n_clusters), drawn, starts)


def first_cuts(
    spectrum: GraphSpectrum, n_clusters: int, drawn: list[list[Minimum]]
) -> list[NDArray[np.int64]]:
    """Spectral cuts of a graph without an earlier partition, with random starts that were solved already."""
    starts = [minimum for group in drawn for minimum in group]
    return spectral_cut.spectral_cut(_embedding(spectrum, n_clusters), drawn=starts)


def minima(spectrum: GraphSpectrum, n_clusters: int, seed: int) -> list[NDArray[np.int64]]:
    """Spectral cuts at all good local minima of k-means."""
    return spectral_cut.good_minima(
        _embedding(spectrum, n_clusters), rng=np.random.default_rng(seed)
    )


def all_cuts(
    spectrum: GraphSpectrum, n_clusters: int, seed: int, init_labels: NDArray[np.int64]
) -> list[NDArray[np.int64]]:
    """Spectral cuts at the good minima, from an earlier partition and from the eigenvectors."""
    return [*minima(spectrum, n_clusters, seed), *next_cuts(spectrum, n_clusters, init_labels)]


def next_cuts(
    spectrum: GraphSpectrum, n_clusters: int, best: NDArray[np.int64]
) -> list[NDArray[np.int64]]:
    """Spectral cuts of a graph, also with k-means started from the best partition so far."""
    return spectral_cut.spectral_cut(_embedding(spectrum, n_clusters), init_labels=best)


def _embedding(spectrum: GraphSpectrum, n_clusters: int) -> SpectralEmbedding:
    return walk_embedding(spectrum.spectrum.values, spectrum.vectors, n_clusters)


def extended(graph: Graph, init_labels: NDArray[np.int64], n_clusters: int) -> NDArray[np.int64]:
    """Earlier labels, extended to new samples (−1)."""
    return extend_labels(graph.affinity, init_labels, n_clusters)


# Maximum number of log-likelihoods of one partition, a row per sample and a column per cluster.
_MAX_EVIDENCE_ENTRIES = 2**20


def reference_graphs_of_view(
    source: RowSource, n_neighbors: int, weight: float = 1.0
) -> ReferenceGraphs:
    """Read one view and build its reference graphs; `weight` is that of the view in mean scores."""
    source = cache_chunks(source)
    graphs = reference_graphs(source.read, view_shape(source), n_neighbors, dtype=np.float32)
    present = present_samples(source)
    if present is None and weight == 1.0:
        return graphs
    return dataclasses.replace(graphs, present=present, weight=weight)


@dataclasses.dataclass(frozen=True)
class ViewScores:
    """Scores and log-likelihoods of some partitions by some views; equal partitions are scored once.

    Attributes
    ----------
    scores : list of list of float
        Scores by view, then by partition.
    evidence : list of (m, c) float32
        For each distinct partition, the sum of the log-likelihoods of these views.
    """

    scores: list[list[float]]
    evidence: list[NDArray[np.float32]]


def score_partitions(
    views: list[ReferenceGraphs],
    partitions: list[NDArray[np.int64]],
    n_validation_samples: int = 0,
    *,
    max_entries: int = _MAX_EVIDENCE_ENTRIES,
) -> ViewScores:
    """Score each partition by the reference graphs of some views.

    With `n_validation_samples` these graphs are of a sample of that size.
    """
    distinct, which = _distinct(partitions, n_validation_samples)
    rows = _evidence_rows(distinct, max_entries)
    scores: list[list[float]] = []
    evidence: list[NDArray[np.float32]] = []
    for view in views:
        scored = view_evidence(view, distinct, rows)
        scores.append([scored[i][0] for i in which])
        for i, (_, log_likelihood) in enumerate(scored):
            if len(scores) == 1:
                evidence.append(log_likelihood)
            else:
                evidence[i] += log_likelihood
    return ViewScores(scores, evidence)


def partition_scores(
    partitions: list[NDArray[np.int64]],
    groups: list[ViewScores],
    n_validation_samples: int = 0,
    *,
    max_entries: int = _MAX_EVIDENCE_ENTRIES,
) -> list[PartitionScore]:
    """Score of each partition by all views."""
    distinct, which = _distinct(partitions, n_validation_samples)
    rows = _evidence_rows(distinct, max_entries)
    joint = []
    for labels, *by_group in zip(distinct, *(group.evidence for group in groups), strict=True):
        total = by_group[0].copy()
        for evidence in by_group[1:]:
            total += evidence
        joint.append(joint_information(labels[rows], total))
    view_scores = zip(*(scores for group in groups for scores in group.scores), strict=True)
    return [
        PartitionScore(scores, entropy(labels), joint[i])
        for scores, labels, i in zip(view_scores, partitions, which, strict=True)
    ]


def _distinct(
    partitions: list[NDArray[np.int64]], n_validation_samples: int
) -> tuple[list[NDArray[np.int64]], list[int]]:
    """Distinct partitions of the scored samples, and the position of each partition among them."""
    if n_validation_samples:
        rows = sampled_rows(len(partitions[0]), n_validation_samples)
        partitions = [np.unique(labels[rows], return_inverse=True)[1] for labels in partitions]
    positions: dict[bytes, int] = {}
    which = [positions.setdefault(labels.tobytes(), len(positions)) for labels in partitions]
    return [partitions[which.index(i)] for i in range(len(positions))], which


def _evidence_rows(
    partitions: list[NDArray[np.int64]], max_entries: int
) -> slice | NDArray[np.int64]:
    """Samples for the joint information of all views; not all of them if there are many clusters."""
    n, n_clusters = len(partitions[0]), max(int(labels.max()) for labels in partitions) + 1
    if n * n_clusters <= max_entries:
        return slice(None)
    return sampled_rows(n, max(1, max_entries // n_clusters))
