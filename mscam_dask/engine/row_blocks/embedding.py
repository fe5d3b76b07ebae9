"""Spectrum and cuts of a graph of large data by blocks of rows, and the ADMM and learned metrics of its views."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.engine import tasks as iteration_tasks
from mscam_dask.engine.executors.base import Executor, Handle, submit_tree
from mscam_dask.engine.row_blocks import tasks
from mscam_dask.engine.row_blocks.candidates import (
    BlockedCandidates,
    BlockedEmbedding,
    BlockedGraph,
    BlockedSpectrum,
    BlockedView,
    RowOrder,
    taken_handles,
)
from mscam_dask.linalg.block_eigensolver import (
    Filter,
    Ranges,
    RitzPairs,
    filter_first,
    filter_next,
    next_filter,
    ritz_pairs,
    ritz_sums,
)
from mscam_dask.solvers.graph_update import projected_weight
from mscam_dask.solvers.row_graph import (
    choose_cuts,
    extend_rows,
    join_partitions,
    laplacian_rows,
    row_weights_between,
    sample_vectors,
)
from mscam_dask.solvers.row_view import added_sums, reduced_sums
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.rules import SIZES

__all__ = [
    "embed_views",
    "gather_rows",
    "learn_metrics",
    "null_spectrum",
    "projected_sums",
    "spectrum_of",
    "start_vectors",
    "submit_coordinates",
    "submit_cuts",
    "weights_between",
]


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
    """Submit the sums of a block of rows: a task for each sixteen blocks of its halo, from the block itself on."""
    halo = spectrum.halos[number]
    parts = [
        executor.submit(
            reduced_sums,
            taken_handles(view.rows, [*halo[first : first + tasks.FAN_IN], number]),
            taken_handles(spectrum.vectors, [*halo[first : first + tasks.FAN_IN], number]),
            spectrum.laplacian[number],
            first,
            parameters,
            key=f"reduced_sums/{key}/{first}",
        )
        for first in range(halo.index(number), len(halo), tasks.FAN_IN)
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
                    for one in results[first : first + tasks.FAN_IN]
                ],
                block,
                candidates.order.ranges,
                key=f"projected_distances/{key}/{number}/{first}",
            )
            for first in range(0, len(results), tasks.FAN_IN)
        ]
        summed += submit_tree(
            executor,
            iteration_tasks.added,
            level,
            tasks.FAN_IN,
            key=f"reduce_distances/{key}/{number}",
        )
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


# Random starts of k-means in one task.
_STARTS = 2

# Minimum number of samples per cluster for k-means.
_PER_CLUSTER = 4


def spectrum_of(
    graph: BlockedGraph,
    previous: BlockedSpectrum | None,
    views: Sequence[BlockedView],
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
) -> BlockedSpectrum:
    """Compute 2c bottom eigenpairs of a graph, from the previous eigenvectors or from coarse to fine."""
    n_pairs = parameters.n_pairs(graph.ranges[-1][1])
    laplacian = _laplacian(graph, executor, key=key)
    halos = graph.halos
    vectors = (
        _coarse_vectors(graph, laplacian, views, n_pairs + max(5, n_pairs // 2), executor, key=key)
        if previous is None
        else list(previous.vectors)
    )
    before: RitzPairs | None = None
    n_rounds = 0
    while True:
        name = f"{key}/{n_rounds}"
        image = [
            executor.submit(
                tasks.applied,
                laplacian[b],
                taken_handles(vectors, halo),
                key=f"apply_laplacian/{name}/{b}",
            )
            for b, halo in enumerate(halos)
        ]
        sums = [
            executor.submit(
                ritz_sums, laplacian[b], vectors[b], image[b], key=f"ritz_sums/{name}/{b}"
            )
            for b in range(len(halos))
        ]
        ritz = executor.submit(ritz_pairs, sums, key=f"graph_spectrum/{name}")
        (found,) = executor.gather([ritz])
        polynomial = next_filter(
            found,
            before,
            parameters.n_clusters,
            n_rounds,
            n_null=graph.n_components,
            warm=previous is not None,
        )
        start = [
            executor.submit(tasks.rotated, vectors[b], ritz, key=f"ritz_vectors/{name}/{b}")
            for b in range(len(halos))
        ]
        following = (
            start
            if polynomial is None
            else _filtered(
                laplacian,
                halos,
                vectors,
                image,
                start,
                executor,
                ritz=ritz,
                polynomial=polynomial,
                key=name,
            )
        )
        if previous is None or n_rounds > 0:
            executor.release(vectors)
        executor.release([*image, *sums, ritz])
        if polynomial is None:
            converged = found.converged(parameters.n_clusters)
            return BlockedSpectrum(
                tuple(laplacian), tuple(start), tuple(map(tuple, halos)), found.values, converged
            )
        vectors, before, n_rounds = following, found, n_rounds + 1


def _laplacian(graph: BlockedGraph, executor: Executor, *, key: str) -> list[Handle]:
    return [
        executor.submit(
            laplacian_rows,
            graph.rows[number],
            taken_handles(graph.rows, sources),
            graph.ranges,
            key=f"laplacian_rows/{key}/{number}",
        )
        for number, sources in enumerate(graph.sources)
    ]


def _coarse_vectors(
    graph: BlockedGraph,
    laplacian: list[Handle],
    views: Sequence[BlockedView],
    n_vectors: int,
    executor: Executor,
    *,
    key: str,
) -> list[Handle]:
    """Submit eigenvectors of the aggregated graph, prolonged to all samples."""
    ranges = graph.ranges
    parts = [
        executor.submit(
            tasks.aggregates,
            [view.rows[number] for view in views],
            graph.components,
            start,
            ranges[-1][1],
            key=f"aggregates/{key}/{number}",
        )
        for number, (start, _) in enumerate(ranges)
    ]
    joined = executor.submit(tasks.join_aggregates, parts, key=f"join_aggregates/{key}")
    coarse = [
        executor.submit(
            tasks.coarse_rows, rows, joined, number, ranges, key=f"coarse_rows/{key}/{number}"
        )
        for number, rows in enumerate(laplacian)
    ]
    vectors = executor.submit(
        tasks.coarse_eigenvectors, coarse, joined, n_vectors, key=f"coarse_spectrum/{key}"
    )
    prolonged = [
        executor.submit(
            tasks.prolonged, vectors, joined, start, stop, key=f"prolong/{key}/{number}"
        )
        for number, (start, stop) in enumerate(ranges)
    ]
    executor.release([*parts, joined, *coarse, vectors])
    return prolonged


def _filtered(  # noqa: PLR0913 - the state of one round
    laplacian: list[Handle],
    halos: Sequence[Sequence[int]],
    vectors: list[Handle],
    image: list[Handle],
    start: list[Handle],
    executor: Executor,
    *,
    ritz: Handle,
    polynomial: Filter,
    key: str,
) -> list[Handle]:
    """Submit a Chebyshev filter on Ritz vectors `start`, which are released."""
    previous = start
    current = [
        executor.submit(
            filter_first, vectors[b], image[b], ritz, polynomial, key=f"filter/{key}/{b}/1"
        )
        for b in range(len(halos))
    ]
    for degree in range(2, polynomial.degree + 1):
        following = [
            executor.submit(
                filter_next,
                laplacian[b],
                previous[b],
                taken_handles(current, halo),
                polynomial,
                key=f"filter/{key}/{b}/{degree}",
            )
            for b, halo in enumerate(halos)
        ]
        executor.release(previous)
        previous, current = current, following
    executor.release(previous)
    return current


def null_spectrum(graph: BlockedGraph, executor: Executor, *, key: str) -> BlockedSpectrum:
    """Submit the null vectors of a graph."""
    vectors = tuple(
        executor.submit(
            tasks.indicators, graph.components, start, stop, key=f"null_vectors/{key}/{start}"
        )
        for start, stop in graph.ranges
    )
    laplacian = tuple(_laplacian(graph, executor, key=key))
    halos = tuple(map(tuple, graph.halos))
    return BlockedSpectrum(laplacian, vectors, halos, np.zeros(graph.n_components), converged=True)


def start_vectors(spectrum: BlockedSpectrum, executor: Executor) -> BlockedSpectrum:
    """Return the eigenvectors of a spectrum, whose Laplacian is released."""
    executor.release(spectrum.laplacian)
    return dataclasses.replace(spectrum, laplacian=())


def submit_cuts(  # noqa: PLR0913 - one spectrum, and the cuts that are wanted
    spectrum: BlockedSpectrum,
    order: RowOrder,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
    init_labels: Handle | None = None,
    with_starts: bool = True,
    random: bool = False,
    all_minima: bool = False,
) -> Handle:
    """Submit the partitions of a spectral embedding, in the order of the data.

    Parameters
    ----------
    init_labels : handle, optional
        A partition from which k-means starts.
    with_starts : bool
        Whether k-means starts from the eigenvectors.
    random : bool
        Whether it has random starts.
    all_minima : bool
        All good minima of the random starts instead of the best.
    """
    ranges, c = order.ranges, parameters.n_clusters
    n = ranges[-1][1]
    n_wanted = min(n, max(SIZES.n_cut, _PER_CLUSTER * c))
    n_pairs = parameters.n_pairs(n)
    samples = [
        executor.submit(
            sample_vectors, vectors, n_pairs, start, n, n_wanted, key=f"cut_rows/{key}/{start}"
        )
        for vectors, (start, _) in zip(spectrum.vectors, ranges, strict=True)
    ]
    sample = executor.submit(
        tasks.embedding_sample, samples, spectrum.values, c, n, n_wanted, key=f"cut_sample/{key}"
    )
    minima = [
        executor.submit(
            tasks.drawn_minima,
            sample,
            parameters.seed,
            range(first, min(first + _STARTS, SIZES.n_random_starts)),
            key=f"random_starts/{key}/{first}",
        )
        for first in range(0, SIZES.n_random_starts if random else 0, _STARTS)
    ]
    started = None
    if with_starts:
        started = executor.submit(
            tasks.started_minima, sample, init_labels, order.order, key=f"qr_start/{key}"
        )
    cuts = executor.submit(
        _chosen_cuts, sample, started, minima, all_minima, key=f"spectral_cut/{key}"
    )
    labels = [
        executor.submit(extend_rows, vectors, sample, cuts, key=f"extend_cut/{key}/{start}")
        for vectors, (start, _) in zip(spectrum.vectors, ranges, strict=True)
    ]
    joined = executor.submit(
        join_partitions, labels, sample, cuts, order.order, key=f"partitions/{key}/samples"
    )
    executor.release([*samples, sample, *minima, cuts, *labels])
    if started is not None:
        executor.release([started])
    return joined


def _chosen_cuts(
    sample: Any,
    started: Any,
    minima: list[Any],
    all_minima: bool,  # noqa: FBT001 - tasks take positions
) -> Any:
    return choose_cuts(sample, started, minima, all_minima=all_minima)
