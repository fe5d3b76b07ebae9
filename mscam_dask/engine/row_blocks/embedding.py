"""ADMM and learned metrics of the views of large data by blocks of rows, and the distances of the A-step."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.row_blocks.handles import (
    BlockedCandidates,
    BlockedEmbedding,
    BlockedGraph,
    BlockedSpectrum,
    BlockedView,
    RowOrder,
    taken_handles,
)
from mscam_dask.engine.tasks import iteration as iteration_tasks
from mscam_dask.engine.tasks import row_blocks as tasks
from mscam_dask.linalg.block_eigensolver import Ranges
from mscam_dask.solvers.graph_update import projected_weight
from mscam_dask.solvers.row_graph import row_weights_between
from mscam_dask.solvers.row_view import added_sums, reduced_sums
from mscam_dask.types.parameters import Parameters

__all__ = [
    "FAN_IN",
    "embed_views",
    "gather_rows",
    "learn_metrics",
    "projected_sums",
    "submit_coordinates",
    "weights_between",
]

FAN_IN = 16
"""Views whose distances one task adds up, and blocks whose rows, or sums, it takes."""


def embed_views(  # noqa: PLR0913 - the views, a spectrum of their graph, and the settings
    spectrum: BlockedSpectrum,
    graph_weight: float,
    views: Sequence[BlockedView],
    names: Sequence[str],
    ranges: Ranges,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
) -> list[BlockedEmbedding]:
    """Submit the ADMM of each view."""
    if parameters.model == "mscan":
        return _smoothed(
            spectrum, graph_weight, views, names, ranges, parameters, executor, key=key
        )
    weight = graph_weight * projected_weight(ranges[-1][1], parameters.n_clusters)
    results = []
    for view, name in zip(views, names, strict=True):
        sums = [
            _block_sums(view, spectrum, number, parameters, executor, key=f"{key}/{name}/{number}")
            for number in range(len(spectrum.halos))
        ]
        solved = executor.submit(
            tasks.solved, sums, view.empty, name, parameters, weight, key=f"admm_view/{key}/{name}"
        )
        rows = tuple(
            executor.submit(
                tasks.embedded,
                block,
                vectors,
                solved,
                parameters,
                key=f"embed_rows/{key}/{name}/{number}",
            )
            for number, (block, vectors) in enumerate(zip(view.rows, spectrum.vectors, strict=True))
        )
        record = executor.submit(operator.itemgetter(1), solved, key=f"view_record/{key}/{name}")
        executor.release([*sums, solved])
        results.append(BlockedEmbedding(rows, record))
    return results


def _block_sums(
    view: BlockedView,
    spectrum: BlockedSpectrum,
    number: int,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
) -> Handle:
    """Submit the sums of a block of rows, by a task for each sixteen blocks of its halo."""
    halo = spectrum.halos[number]
    parts = [
        executor.submit(
            reduced_sums,
            taken_handles(view.rows, [*halo[first : first + FAN_IN], number]),
            taken_handles(spectrum.vectors, [*halo[first : first + FAN_IN], number]),
            spectrum.laplacian[number],
            first,
            parameters,
            key=f"reduced_sums/{key}/{first}",
        )
        for first in range(0, len(halo), FAN_IN)
    ]
    if len(parts) == 1:
        return parts[0]
    total = executor.submit(added_sums, parts, key=f"reduced_sums/{key}/total")
    executor.release(parts)
    return total


def _smoothed(  # noqa: PLR0913 - as `embed_views`
    spectrum: BlockedSpectrum,
    graph_weight: float,
    views: Sequence[BlockedView],
    names: Sequence[str],
    ranges: Ranges,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
) -> list[BlockedEmbedding]:
    """Submit the Z-step of MSCAN, whose linear systems are solved on all rows of a view."""
    whole = executor.submit(
        tasks.whole_spectrum,
        list(spectrum.laplacian),
        list(spectrum.vectors),
        spectrum.values,
        ranges,
        key=f"whole_spectrum/{key}",
    )
    results = []
    for view, name in zip(views, names, strict=True):
        of_all = executor.submit(tasks.whole_view, list(view.rows), key=f"whole_view/{key}/{name}")
        result = executor.submit(
            iteration_tasks.admm_view,
            of_all,
            whole,
            name,
            parameters,
            graph_weight,
            key=f"admm_view/{key}/{name}",
        )
        rows, scaled = (
            tuple(
                executor.submit(
                    cut, result, start, stop, key=f"embed_rows/{key}/{name}/{kind}/{start}"
                )
                for start, stop in ranges
            )
            for kind, cut in enumerate((tasks.rows_of_embedding, tasks.rows_at_mean_one))
        )
        record = executor.submit(
            operator.attrgetter("record"), result, key=f"view_record/{key}/{name}"
        )
        executor.release([of_all, result])
        results.append(BlockedEmbedding(rows, record, scaled))
    executor.release([whole])
    return results


def projected_sums(
    results: Sequence[BlockedEmbedding],
    candidates: BlockedCandidates,
    executor: Executor,
    *,
    key: str,
) -> list[Handle]:
    """Submit the sums over views of the projected distances, by block of rows, by a tree in view order."""
    summed = []
    for number, (block, links) in enumerate(zip(candidates.rows, candidates.links, strict=True)):
        needed = sorted({number, *links})
        level = [
            executor.submit(
                tasks.projected,
                [
                    taken_handles(one.scaled or one.rows, needed)
                    for one in results[first : first + FAN_IN]
                ],
                block,
                candidates.order.ranges,
                key=f"projected_distances/{key}/{number}/{first}",
            )
            for first in range(0, len(results), FAN_IN)
        ]
        depth = 0
        while len(level) > 1:
            sums = [
                executor.submit(
                    iteration_tasks.added,
                    level[first : first + FAN_IN],
                    key=f"reduce_distances/{key}/{number}/{depth}/{first}",
                )
                for first in range(0, len(level), FAN_IN)
            ]
            executor.release(level)
            level, depth = sums, depth + 1
        summed.append(level[0])
    return summed


def submit_coordinates(
    views: Sequence[BlockedView], names: Sequence[str], n_axes: int, executor: Executor
) -> list[tuple[Handle, ...]]:
    """Submit the first principal coordinates of each view, by blocks of rows."""
    return [
        tuple(
            executor.submit(
                iteration_tasks.principal_coordinates,
                block,
                n_axes,
                key=f"principal_coordinates/{name}/{b}",
            )
            for b, block in enumerate(view.rows)
        )
        for view, name in zip(views, names, strict=True)
    ]


def gather_rows(
    rows: Sequence[Handle], of_samples: NDArray[np.int32], dtype: Any, executor: Executor
) -> NDArray[Any]:
    """Gather an embedding, or coordinates, in the order of the data."""
    parts = np.concatenate(executor.gather(rows))
    gathered = np.empty(parts.shape, dtype=dtype)
    gathered[of_samples] = parts
    return gathered


def weights_between(
    graph: BlockedGraph, labels: Handle, order: RowOrder, n_clusters: int, executor: Executor
) -> Handle:
    """Submit the edge weight of a graph within and between clusters."""
    by_cells = executor.submit(
        tasks.reordered, labels, order.order, key="ordered_labels/cluster_weights"
    )
    parts = [
        executor.submit(
            row_weights_between, block, by_cells, n_clusters, key=f"cluster_weights/{number}"
        )
        for number, block in enumerate(graph.rows)
    ]
    total = executor.submit(iteration_tasks.added, parts, key="cluster_weights")
    executor.release([by_cells, *parts])
    return total


def learn_metrics(
    views: Sequence[BlockedView],
    names: Sequence[str],
    labels: Handle,
    order: RowOrder,
    executor: Executor,
    *,
    key: str,
) -> tuple[list[BlockedView], list[Handle]]:
    """Submit the linear discriminants of each view for a partition, and their records."""
    by_cells = executor.submit(tasks.reordered, labels, order.order, key=f"ordered_labels/{key}")
    metrics, learned = [], []
    for view, name in zip(views, names, strict=True):
        sums = [
            executor.submit(
                tasks.class_sums_of,
                block,
                by_cells,
                start,
                stop,
                key=f"class_sums/{key}/{name}/{start}",
            )
            for block, (start, stop) in zip(view.rows, order.ranges, strict=True)
        ]
        metric = executor.submit(
            tasks.metric_of, sums, view.empty, name, key=f"learn_metric/{key}/{name}"
        )
        rows = tuple(
            executor.submit(tasks.discriminants, block, metric, key=f"metric/{key}/{name}/{number}")
            for number, block in enumerate(view.rows)
        )
        empty = executor.submit(operator.getitem, metric, 1, key=f"empty_metric/{key}/{name}")
        learned.append(
            executor.submit(operator.getitem, metric, 2, key=f"view_record/{key}/{name}")
        )
        metrics.append(BlockedView(rows, empty))
        executor.release([*sums, metric])
    executor.release([by_cells])
    return metrics, learned
