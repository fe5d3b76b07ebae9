"""Tasks on one view, and on the ADMM results of several views."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.as_multi_view import RowSource
from mscam_dask.data.views.chunk_cache import cache_chunks
from mscam_dask.data.views.presence import present_samples
from mscam_dask.engine.tasks.graph import GraphSpectrum, added
from mscam_dask.linalg.distances import mean_squared_distance
from mscam_dask.linalg.incomplete_blocks import PresentSamples
from mscam_dask.linalg.laplacian import induced_laplacian
from mscam_dask.solvers.admm import ViewSolution, reduced_problem, solve_view
from mscam_dask.solvers.graph_update import CandidateEdges, projected_distances, projected_weight
from mscam_dask.solvers.lda import LinearDiscriminants, linear_discriminants
from mscam_dask.solvers.mscan import smooth_self_representation
from mscam_dask.solvers.ridge_view import RidgeView, ViewSVD, ridge_view
from mscam_dask.solvers.row_blocks import ViewShape
from mscam_dask.solvers.view_svd import view_svd
from mscam_dask.types.events import ViewIteration, ViewPrepared
from mscam_dask.types.parameters import Parameters, Scale

__all__ = [
    "TimedView",
    "ViewResult",
    "admm_record",
    "admm_view",
    "embedding_of",
    "learn_metric",
    "metric_record",
    "principal_coordinates",
    "projected",
    "ridge_view_of",
    "svd_view",
    "view_prepared",
    "view_records",
    "view_shape",
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
