"""Fit with `solver="reference"`: the reference algorithm with dense matrices, in this process."""

from __future__ import annotations

import dataclasses
import math

from mscam_dask.data.views.as_multi_view import MultiViewData
from mscam_dask.engine.incomplete import refuse_incomplete
from mscam_dask.engine.tasks.iteration import reference_graphs_of_view, view_shape
from mscam_dask.errors import ConfigurationError, MemoryPlanError
from mscam_dask.solvers.partition_score import mean_score, view_score
from mscam_dask.solvers.reference import (
    ReferenceCorrections,
    ReferenceOptions,
    ReferenceSolution,
    solve_mscam,
    solve_mscan,
)
from mscam_dask.solvers.view_svd import scaled_gram
from mscam_dask.types.events import IterationFinished
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.result import Solution, Status, shares_of_views
from mscam_dask.types.rules import CONSTANTS

__all__ = ["run_reference"]

_GIB = 2.0**30

# Number of dense n×n arrays in the ADMM of one view, beside one Gram matrix per view.
_WORKING_MATRICES = 12

# Parameters without a counterpart in the dense algorithms, which score no partitions and search
# exhaustively. They are also deterministic, so that the seed has no effect.
_WITHOUT_EFFECT = ("tol", "patience", "min_shrinkage", "n_candidates", "exact_samples")


def run_reference(
    data: MultiViewData, parameters: Parameters, *, memory_limit_bytes: int | None = None
) -> Solution:
    """Run Algorithm 1 or 2, corrected, on dense matrices.

    Parameters
    ----------
    data : MultiViewData
    parameters : Parameters
    memory_limit_bytes : int, optional

    Returns
    -------
    Solution
        Labels are the connected components of the graph, whatever their number.

    Raises
    ------
    ConfigurationError
        If a parameter is set that has no effect here.
    MemoryPlanError
        If there is not enough memory for the n×n matrices.
    """
    _refuse_parameters_without_effect(parameters)
    refuse_incomplete(data)
    n = data.n_samples
    need = 8 * n * n * (len(data.views) + _WORKING_MATRICES)
    if memory_limit_bytes is not None and need > memory_limit_bytes:
        raise MemoryPlanError(
            f"solver='reference' holds about {len(data.views) + _WORKING_MATRICES} dense "
            f"{n} x {n} matrices, {need / _GIB:.2f} GiB, and {memory_limit_bytes / _GIB:.2f} GiB "
            "are free; use solver='reduced'"
        )
    view_settings = [parameters.settings_of_view(view) for view in range(len(data.views))]
    grams = [
        scaled_gram(source.read, view_shape(source), scale=options.scale, name=source.name)
        for source, options in zip(data.views, view_settings, strict=True)
    ]
    settings = ReferenceOptions(
        n_clusters=parameters.n_clusters,
        n_neighbors=parameters.n_neighbors,
        alpha=parameters.alpha,
        view_alphas=tuple(options.alpha for options in view_settings),
        graph_weight=parameters.graph_weight,
        graph_weight_growth=parameters.graph_weight_growth,
        max_iter=parameters.max_iter,
        admm=parameters.admm,
        corrections=ReferenceCorrections(
            identity_weight=parameters.identity_weight, metric_ridge=parameters.metric_ridge
        ),
    )
    solve = solve_mscan if parameters.model == "mscan" else solve_mscam
    result = solve(grams, settings)
    reached = result.n_connected_components == parameters.n_clusters
    scores = [
        view_score(
            reference_graphs_of_view(
                source, min(CONSTANTS.validation_neighbors, data.n_samples - 1)
            ),
            result.labels,
        )
        for source in data.views
    ]
    return Solution(
        labels=result.labels,
        consensus_graph=result.consensus_graph,
        learned_graph=result.consensus_graph,
        n_connected_components=result.n_connected_components,
        status=Status.CONVERGED if reached else Status.COMPONENTS_NOT_REACHED,
        score=mean_score(scores),
        n_neighbors=parameters.n_neighbors,
        parameters=parameters,
        settings=(),
        prepared=(),
        history=_history(result, parameters),
        view_embeddings=dict(zip(data.view_names, result.view_embeddings, strict=True)),
        view_coordinates={},
        view_contributions=shares_of_views(data.view_names, scores),
        encoders={},
    )


def _refuse_parameters_without_effect(parameters: Parameters) -> None:
    for field in dataclasses.fields(parameters):
        got = getattr(parameters, field.name)
        if field.name in _WITHOUT_EFFECT and got != field.default:
            raise ConfigurationError(
                f"{field.name}={got!r} has no effect with solver='reference'; allowed is "
                f"{field.default!r}, the default. Leave it out, or use solver='reduced'."
            )


def _history(result: ReferenceSolution, parameters: Parameters) -> tuple[IterationFinished, ...]:
    """Records of the A-steps; values that the dense algorithms do not compute are NaN."""
    return tuple(
        IterationFinished(
            iteration=iteration,
            graph_weight=step.graph_weight,
            n_connected_components=step.n_connected_components,
            n_clusters=parameters.n_clusters,
            score=math.nan,
            eigengap=math.nan,
            views=(),
            view_scores=(),
            seconds=math.nan,
            spectrum_converged=True,
            accepted=True,
        )
        for iteration, step in enumerate(result.history)
    )
