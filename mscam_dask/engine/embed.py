"""Embedding of each view given the graph: ADMM for MSCAM, a linear system for MSCAN; projected distances."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.engine.blocks import FAN_IN, Spectrum, Stage, View, taken
from mscam_dask.engine.executors.base import Handle
from mscam_dask.engine.prepare import Prepared
from mscam_dask.linalg.block_eigensolver import LaplacianRows, Ranges
from mscam_dask.solvers.graph_update import CandidateEdges, projected_weight
from mscam_dask.solvers.ridge_view import RidgeView
from mscam_dask.solvers.row_blocks import added
from mscam_dask.solvers.row_graph import projected_rows
from mscam_dask.solvers.row_view import (
    EmbeddedRows,
    ReducedSums,
    added_sums,
    embed_rows,
    reduced_sums,
    smoothed_coefficients,
    solve_reduced,
)
from mscam_dask.types.events import ViewIteration
from mscam_dask.types.parameters import Parameters


@dataclasses.dataclass(frozen=True, slots=True)
class SolvedView:
    """Coefficients (h, c) of the embedding of a view, the factor of its distances, and the record."""

    coefficients: NDArray[np.float64]
    factor: float
    record: ViewIteration


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SolvedRows(EmbeddedRows):
    """Embedding of a view in one block, and the record of its solver."""

    record: ViewIteration


def embed_views(
    stage: Stage,
    spectrum: Spectrum,
    graph_weight: float,
    views: Sequence[View],
    names: Sequence[str],
    parameters: Parameters,
) -> tuple[list[tuple[Handle, ...]], list[Handle]]:
    """Submit the embedding of each view by blocks of rows, and results with the records of their solvers."""
    embeddings: list[tuple[Handle, ...]] = []
    solutions = []
    for view, name in zip(views, names, strict=True):
        if len(view.rows) == 1:
            solved = stage.submit(
                admm_view,
                view.rows[0],
                spectrum.vectors[0],
                spectrum.laplacian[0],
                name,
                parameters,
                graph_weight,
                part=name,
            )
            embeddings.append((solved,))
            solutions.append(solved)
            continue
        sums = stage.tree(
            added_sums,
            [
                part
                for number in range(len(spectrum.halos))
                for part in _block_sums(stage, view, spectrum, number, parameters)
            ],
            n_left=FAN_IN,
        )
        solved = stage.submit(
            solve_view, sums, view.empty, name, parameters, graph_weight, part=name
        )
        embeddings.append(
            tuple(
                stage.submit(embedded, block, vectors, solved, parameters)
                for block, vectors in zip(view.rows, spectrum.vectors, strict=True)
            )
        )
        solutions.append(solved)
    return embeddings, solutions


def _block_sums(
    stage: Stage, view: View, spectrum: Spectrum, number: int, parameters: Parameters
) -> list[Handle]:
    """Submit the sums of a block of rows: a task for each sixteen blocks of its halo, from the block itself on."""
    halo = spectrum.halos[number]
    return [
        stage.submit(
            reduced_sums,
            taken(view.rows, [*halo[first : first + FAN_IN], number]),
            taken(spectrum.vectors, [*halo[first : first + FAN_IN], number]),
            spectrum.laplacian[number],
            first,
            parameters,
        )
        for first in range(halo.index(number), len(halo), FAN_IN)
    ]


def admm_view(
    view: RidgeView,
    vectors: NDArray[Any],
    rows: LaplacianRows,
    name: str,
    parameters: Parameters,
    graph_weight: float,
) -> SolvedRows:
    """Solve the problem of a view in one block."""
    sums = reduced_sums([view, view], [vectors, vectors], rows, 0, parameters)
    solved = solve_view([sums], view, name, parameters, graph_weight)
    embedding = embed_rows(view, vectors, solved.coefficients, parameters)
    return SolvedRows(embedding, solved.factor, record=solved.record)


def solve_view(
    sums: list[ReducedSums],
    view: RidgeView,
    name: str,
    parameters: Parameters,
    graph_weight: float,
) -> SolvedView:
    """Solve the problem of a view from the sums over its rows."""
    started = time.perf_counter()
    total = added_sums(sums)
    weight = graph_weight * projected_weight(total.n_rows, parameters.n_clusters)
    if parameters.model == "mscan":
        coefficients, distance, objective = smoothed_coefficients(total, view, parameters, weight)
        seconds = time.perf_counter() - started
        record = ViewIteration(view=name, objective=objective, seconds=seconds)
        return SolvedView(coefficients, 1.0 / max(distance, np.finfo(float).tiny), record)
    coefficients, solution = solve_reduced(total, view, parameters, weight)
    record = ViewIteration(
        view=name,
        primal_residual=solution.state.primal_residual,
        dual_residual=solution.state.dual_residual,
        inner_iterations=solution.state.iteration,
        converged=solution.converged,
        objective=solution.objective,
        seconds=time.perf_counter() - started,
    )
    share = 1.0 if view.present is None else len(view.present) / view.present.n_samples
    return SolvedView(coefficients, share, record)


def embedded(
    view: RidgeView, vectors: NDArray[Any], solved: SolvedView, parameters: Parameters
) -> EmbeddedRows:
    """Rows of the embedding of a view."""
    return EmbeddedRows(embed_rows(view, vectors, solved.coefficients, parameters), solved.factor)


def view_records(results: list[SolvedView | SolvedRows]) -> list[ViewIteration]:
    """Records of the ADMM of several views."""
    return [result.record for result in results]


def submit_records(stage: Stage, solved: Sequence[Handle]) -> list[Handle]:
    """Submit the records of the ADMM of all views, by groups of views."""
    return [
        stage.submit(view_records, list(solved[first : first + FAN_IN]))
        for first in range(0, len(solved), FAN_IN)
    ]


def projected_sums(
    stage: Stage,
    spectrum: Spectrum,
    graph_weight: float,
    prepared: Prepared,
    parameters: Parameters,
) -> tuple[list[Handle], list[Handle]]:
    """Submit the sums over views of the projected distances of each part of the rows, by a tree in view order.

    Also returns the results with the records of the views. The embeddings, as large as the eigenvectors, are freed.
    """
    candidates, summed = prepared.candidates, []
    embeddings, solved = embed_views(
        stage, spectrum, graph_weight, prepared.views, prepared.names, parameters
    )
    is_whole = candidates.order.is_whole
    for number, (part, links) in enumerate(zip(candidates.parts, candidates.links, strict=True)):
        needed = sorted({0 if is_whole else number, *links})
        level = [
            stage.submit(
                projected_distances,
                [taken(rows, needed) for rows in embeddings[first : first + FAN_IN]],
                part,
                candidates.order.ranges,
            )
            for first in range(0, len(embeddings), FAN_IN)
        ]
        summed += stage.tree(added, level)
    return summed, solved


def projected_distances(
    views: Sequence[Sequence[EmbeddedRows]], candidates: CandidateEdges, ranges: Ranges
) -> NDArray[np.float64]:
    """Sum over some views of projected squared distances on candidate edges."""
    return added(projected_rows(views, candidates, ranges))
