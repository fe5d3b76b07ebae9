"""Embedding of each view given the graph: ADMM for MSCAM, a linear system for MSCAN; projected distances."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from mscam_dask.engine.blocks import FAN_IN, GraphSpectrum, Stage, View, taken
from mscam_dask.engine.executors.base import Handle
from mscam_dask.engine.prepare import Prepared
from mscam_dask.solvers import admm
from mscam_dask.solvers.graph_update import projected_distances, projected_weight
from mscam_dask.solvers.ridge_view import RidgeView
from mscam_dask.solvers.row_blocks import added
from mscam_dask.types.events import ViewIteration
from mscam_dask.types.parameters import Parameters


def embed_views(
    stage: Stage, spectrum: GraphSpectrum, graph_weight: float, prepared: Prepared
) -> tuple[list[tuple[Handle, ...]], list[Handle]]:
    """Submit the embedding of each view by blocks of rows, and the results of `solved_view`."""
    embeddings, solutions, parameters = [], [], prepared.parameters
    for view, name in zip(prepared.views, prepared.names, strict=True):
        sums = [
            part
            for number in range(len(spectrum.halos))
            for part in _block_sums(stage, view, spectrum, number, parameters)
        ]
        solved = stage.submit(
            solved_view,
            stage.tree(admm.added_sums, sums, n_left=FAN_IN),
            view.empty,
            name,
            parameters,
            graph_weight,
            part=name,
        )
        coefficients = stage.item(solved, 0)
        rows = [
            stage.submit(admm.embed_rows, block, vectors, coefficients, parameters)
            for block, vectors in zip(view.rows, spectrum.vectors, strict=True)
        ]
        embeddings.append(tuple(rows))
        solutions.append(solved)
    return embeddings, solutions


def _block_sums(
    stage: Stage, view: View, spectrum: GraphSpectrum, number: int, parameters: Parameters
) -> list[Handle]:
    """Submit the sums of a block of rows: a task for each sixteen blocks of its halo, from the block itself on."""
    halo = spectrum.halos[number]
    return [
        stage.submit(
            admm.reduced_sums,
            taken(view.rows, [*halo[first : first + FAN_IN], number]),
            taken(spectrum.vectors, [*halo[first : first + FAN_IN], number]),
            spectrum.laplacian[number],
            first,
            parameters,
        )
        for first in range(halo.index(number), len(halo), FAN_IN)
    ]


def solved_view(
    sums: list[admm.ReducedSums],
    view: RidgeView,
    name: str,
    parameters: Parameters,
    graph_weight: float,
) -> tuple[NDArray[np.float64], float, ViewIteration]:
    """Solve the problem of a view: coefficients (h, c) of its embedding, factor of its squared distances, and record."""
    started = time.perf_counter()
    total = admm.added_sums(sums)
    weight = graph_weight * projected_weight(total.n_rows, parameters.n_clusters)
    if parameters.model == "mscan":
        coefficients, distance, objective = admm.smoothed_coefficients(
            total, view, parameters, weight
        )
        seconds = time.perf_counter() - started
        record = ViewIteration(view=name, objective=objective, seconds=seconds)
        return coefficients, 1.0 / max(distance, np.finfo(float).tiny), record
    coefficients, solution = admm.solve_reduced(total, view, parameters, weight)
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
    return coefficients, share, record


def projected_sums(
    stage: Stage, spectrum: GraphSpectrum, graph_weight: float, prepared: Prepared
) -> tuple[list[Handle], list[Handle]]:
    """Submit the sums over views of the projected distances of each part of the rows, by a tree in view order.

    Also returns the records of the solvers. The embeddings, as large as the eigenvectors, are freed.
    """
    candidates, summed = prepared.candidates, []
    embeddings, solved = embed_views(stage, spectrum, graph_weight, prepared)
    factors = [stage.item(view, 1) for view in solved]
    for part, links in zip(candidates.parts, candidates.links, strict=True):
        level = [
            stage.submit(
                projected_distances,
                [taken(rows, links) for rows in embeddings[first : first + FAN_IN]],
                factors[first : first + FAN_IN],
                part,
                candidates.order.ranges,
            )
            for first in range(0, len(embeddings), FAN_IN)
        ]
        summed += stage.tree(added, level)
    return summed, [stage.item(view, 2) for view in solved]
