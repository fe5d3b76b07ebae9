"""Tasks that work on one view."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views import RowSource
from mscam_dask.engine.tasks.graph import GraphSpectrum
from mscam_dask.kernels.distances import mean_squared_distance
from mscam_dask.model.parameters import Parameters, Scale
from mscam_dask.model.records import PreparedRecord, ViewRecord
from mscam_dask.solvers.graph import Candidates, projected_distances, projected_weight
from mscam_dask.solvers.self_representation import smooth_self_representation
from mscam_dask.solvers.view_admm import reduced_problem, solve_view
from mscam_dask.solvers.view_basis import (
    Encoder,
    FactoredView,
    PreparedView,
    ViewShape,
    factor_view,
    prepare_view,
)

__all__ = [
    "TimedView",
    "ViewResult",
    "embedding_of",
    "encoder_of",
    "factor",
    "prepare",
    "prepared_record",
    "projected",
    "stack_anchors",
    "sub_solve",
    "view_record",
    "view_shape",
]


@dataclasses.dataclass(frozen=True, slots=True)
class TimedView:
    """A factored view and the seconds it took."""

    view: FactoredView
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class ViewResult:
    """One view's embedding and what is to be told about the sub-solve."""

    embedding: NDArray[np.float64]
    record: ViewRecord


def view_shape(source: RowSource) -> ViewShape:
    """What the solvers need to know of a view before reading it."""
    return ViewShape(source.shape[0], source.shape[1], source.metric)


def factor(source: RowSource, scale: Scale) -> TimedView:
    """Read one view, scale and factor it."""
    started = time.perf_counter()
    view = factor_view(source.read, view_shape(source), scale=scale, name=source.name)
    return TimedView(view, time.perf_counter() - started)


def prepared_record(timed: TimedView, name: str, n_features: int) -> PreparedRecord:
    """Scalars of a factored view."""
    basis = timed.view.basis
    return PreparedRecord(
        view=name,
        n_features=n_features,
        rank=basis.rank,
        effective_rank=timed.view.effective_rank,
        seconds=timed.seconds,
        n_bytes=basis.vectors.nbytes,
    )


def prepare(timed: TimedView, alpha: float) -> PreparedView:
    """The directions of a view that its self-representation uses."""
    return prepare_view(timed.view, alpha=alpha)


def stack_anchors(views: list[PreparedView], alpha: float) -> NDArray[np.float64]:
    """Anchor space of all views: (n, Σr), mean squared distance over pairs equal to one."""
    ranks = [view.basis.rank for view in views]
    stacked = np.empty((len(views[0].basis.vectors), sum(ranks)))
    start = 0
    for view, rank in zip(views, ranks, strict=True):
        stacked[:, start : start + rank] = view.anchors(alpha)
        start += rank
    stacked /= np.sqrt(len(views))
    return stacked


def sub_solve(
    view: PreparedView,
    spectrum: GraphSpectrum,
    name: str,
    parameters: Parameters,
    graph_weight: float,
) -> ViewResult:
    """One view's sub-problem given the graph: ADMM for MSCAM, linear solves for MSCAN."""
    started = time.perf_counter()
    vectors = spectrum.spectrum.vectors
    weight = graph_weight * projected_weight(len(vectors), parameters.n_clusters)
    if parameters.model == "mscan":
        smooth = smooth_self_representation(
            view.basis,
            spectrum.laplacian,
            vectors,
            alpha=parameters.alpha,
            graph_weight=weight,
        )
        record = ViewRecord(
            view=name,
            primal_residual=smooth.relative_residual,
            dual_residual=0.0,
            inner_iterations=smooth.iterations,
            converged=smooth.converged,
            objective=smooth.objective,
            seconds=time.perf_counter() - started,
        )
        return ViewResult(smooth.embedding, record)
    problem = reduced_problem(
        view.basis,
        vectors,
        spectrum.laplacian,
        alpha=parameters.alpha,
        metric_ridge=parameters.metric_ridge,
        graph_weight=weight,
        smallest_gain=parameters.smallest_gain,
    )
    solution = solve_view(problem, vectors[:, : parameters.n_clusters], parameters.admm)
    record = ViewRecord(
        view=name,
        primal_residual=solution.state.primal_residual,
        dual_residual=solution.state.dual_residual,
        inner_iterations=solution.state.iteration,
        converged=solution.converged,
        objective=solution.objective,
        seconds=time.perf_counter() - started,
    )
    return ViewResult(solution.embedding, record)


def embedding_of(result: ViewResult) -> NDArray[np.float64]:
    """F_v (n, c), or C_v (n, r) for MSCAN."""
    return result.embedding


def view_record(result: ViewResult) -> ViewRecord:
    """Scalars of a sub-solve."""
    return result.record


def projected(result: ViewResult, candidates: Candidates, model: str) -> NDArray[np.float64]:
    """One view's projected squared distances on the candidate edges of a block of rows.

    For MSCAN they are divided by their mean over all pairs, so that views count the same.
    """
    distances = projected_distances(result.embedding, candidates)
    if model == "mscan":
        distances /= max(mean_squared_distance(result.embedding), np.finfo(float).tiny)
    return distances


def encoder_of(view: PreparedView) -> Encoder:
    """The map from rows of a view to anchor coordinates."""
    return view.encoder
