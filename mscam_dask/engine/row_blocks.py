"""Large data by blocks of rows: submission of the tasks of every stage of a fit.

No task reads, holds or returns more than some blocks of rows, a small matrix, or a vector with one
number for each sample: docs/decisions/0075. Blocks depend on the number of samples only, so the result
is the same for any number of workers.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.data.views.as_multi_view import RowSource
from mscam_dask.data.views.sources import ArrayRows
from mscam_dask.engine.executors.base import Executor, Handle, HandleGroup
from mscam_dask.engine.tasks import graph as graph_tasks
from mscam_dask.engine.tasks import row_blocks as tasks
from mscam_dask.engine.tasks import views as view_tasks
from mscam_dask.linalg.block_eigensolver import (
    Filter,
    RitzPairs,
    filter_first,
    filter_next,
    next_filter,
    ritz_pairs,
    ritz_sums,
)
from mscam_dask.linalg.halo import Ranges
from mscam_dask.linalg.ivf import CELL_POINTS
from mscam_dask.solvers.graph_update import projected_weight
from mscam_dask.solvers.row_admm import reduced_sums
from mscam_dask.solvers.row_cut import choose_cuts, extend_rows, join_partitions, sample_vectors
from mscam_dask.solvers.row_graph import (
    components_of_forests,
    graph_block,
    laplacian_rows,
    linked_blocks,
    mean_rows,
    row_weights_between,
    spanning_forest,
    whole_graph,
)
from mscam_dask.solvers.row_partition_graph import bridge_ends, bridges, join_pools, with_bridges
from mscam_dask.solvers.row_view import row_scaling
from mscam_dask.solvers.view_svd import MAX_EXACT_GRAM
from mscam_dask.types.events import ViewIteration
from mscam_dask.types.parameters import Parameters, ViewSettings
from mscam_dask.types.rules import SIZES

__all__ = [
    "BlockedCandidates",
    "BlockedEmbedding",
    "BlockedGraph",
    "BlockedSpectrum",
    "BlockedView",
    "RowOrder",
    "block_ranges",
    "most_rows",
]

# Rows of a block; with more blocks than enough for most clusters, up to ten times as many.
_BLOCK_ROWS = 6144
_ENOUGH_BLOCKS = 96
_MOST_ROWS = 65_536

# Groups of blocks between which rows are exchanged: as many pieces of each block.
_MOST_PIECES = 16

# Random starts of k-means in one task.
_STARTS = 5

# Minimum number of samples per cluster for k-means.
_PER_CLUSTER = 4

# Views whose distances, and blocks whose Gram matrices, one task adds up.
_FAN_IN = 16


def block_ranges(n_samples: int) -> Ranges:
    """Blocks of rows of large data, of equal size; they depend on n only."""
    wanted = max(1, min(_ENOUGH_BLOCKS, n_samples // _BLOCK_ROWS))
    n_blocks = max(wanted, -(-n_samples // _MOST_ROWS))
    edges = [n_samples * block // n_blocks for block in range(n_blocks + 1)]
    return tuple(itertools.pairwise(edges))


def most_rows(n_samples: int) -> int:
    """Upper bound of the rows of a block, which does not fall where there are more samples."""
    return min(n_samples, max(2 * _BLOCK_ROWS, min(_MOST_ROWS, -(-n_samples // _ENOUGH_BLOCKS))))


@dataclasses.dataclass(frozen=True)
class BlockedView(HandleGroup):
    """Ridge view, or discriminants, by blocks of rows; `empty` is the same without rows."""

    rows: tuple[Handle, ...]
    empty: Handle

    def handles(self) -> Sequence[Handle]:
        """Return all handles."""
        return (*self.rows, self.empty)


@dataclasses.dataclass(frozen=True)
class RowOrder(HandleGroup):
    """Order of the rows by cells: sample at each position, and position of each sample."""

    ranges: Ranges
    order: Handle
    positions: Handle

    def handles(self) -> Sequence[Handle]:
        """Return all handles."""
        return (self.order, self.positions)


@dataclasses.dataclass(frozen=True)
class BlockedCandidates(HandleGroup):
    """Candidate neighbors by blocks of rows, and the blocks in which those of each block are."""

    order: RowOrder
    rows: tuple[Handle, ...]
    links: tuple[tuple[int, ...], ...]

    def __iter__(self) -> Iterator[Handle]:
        return iter(self.handles())

    def handles(self) -> Sequence[Handle]:
        """Return all handles."""
        return (*self.rows, *self.order.handles())


@dataclasses.dataclass(frozen=True)
class BlockedGraph(HandleGroup):
    """Consensus graph by blocks of rows, and the blocks with neighbors of each block."""

    ranges: Ranges
    rows: tuple[Handle, ...]
    links: tuple[tuple[int, ...], ...]
    components: Handle
    n_components: int

    def handles(self) -> Sequence[Handle]:
        """Return all handles."""
        return (*self.rows, self.components)

    @property
    def sources(self) -> list[list[int]]:
        """For each block, the blocks with edges into it."""
        return [
            [other for other, links in enumerate(self.links) if block in links]
            for block in range(len(self.links))
        ]

    @property
    def halos(self) -> list[list[int]]:
        """For each block, the blocks with columns of its rows of the Laplacian."""
        both = zip(self.links, self.sources, strict=True)
        return [sorted({block, *links, *into}) for block, (links, into) in enumerate(both)]


@dataclasses.dataclass(frozen=True)
class BlockedSpectrum(HandleGroup):
    """Laplacian and bottom eigenvectors by blocks of rows; without `laplacian` only start vectors."""

    laplacian: tuple[Handle, ...]
    vectors: tuple[Handle, ...]
    halos: tuple[tuple[int, ...], ...]
    values: NDArray[np.float64]
    converged: bool

    def handles(self) -> Sequence[Handle]:
        """Return all handles."""
        return (*self.laplacian, *self.vectors)


@dataclasses.dataclass(frozen=True)
class BlockedEmbedding(HandleGroup):
    """Embedding of a view by blocks of rows, its record, and what the A-step uses instead if that differs."""

    rows: tuple[Handle, ...]
    record: Handle
    scaled: tuple[Handle, ...] = ()

    def handles(self) -> Sequence[Handle]:
        """Return all handles."""
        return (*self.rows, self.record, *self.scaled)


def _taken(handles: Sequence[Handle], numbers: Sequence[int]) -> list[Handle]:
    return [handles[number] for number in numbers]


# views -----------------------------------------------------------------------------------------


def ridge_view_blocks(
    source: RowSource,
    settings: ViewSettings,
    ranges: Ranges,
    max_rank: int,
    executor: Executor,
    *,
    key: str,
) -> BlockedView:
    """Submit the ridge view of a view of large data, in the order of the data.

    Views of many columns, and distance and kernel views, are decomposed by one task.
    """
    if source.view_type != "features" or source.shape[1] > MAX_EXACT_GRAM:
        return _decomposed_at_once(source, settings, ranges, max_rank, executor, key=key)
    data = [
        _rows(source, start, stop, executor, key=f"rows/{key}/{start}") for start, stop in ranges
    ]
    moments = [
        executor.submit(tasks.moments, *one, key=f"moments/{key}/{start}")
        for one, (start, _) in zip(data, ranges, strict=True)
    ]
    transform = executor.submit(row_scaling, moments, settings.scale, key=f"scaling/{key}")
    grams = [
        executor.submit(tasks.gram, *one, transform, key=f"gram/{key}/{start}")
        for one, (start, _) in zip(data, ranges, strict=True)
    ]
    while len(grams) > _FAN_IN:  # a tree, since a task would hold the matrices of all blocks
        merged = [
            executor.submit(
                tasks.merged_grams,
                grams[first : first + _FAN_IN],
                key=f"merge_grams/{key}/{len(grams)}/{first}",
            )
            for first in range(0, len(grams), _FAN_IN)
        ]
        executor.release(grams)
        grams = merged
    factor = executor.submit(
        tasks.factor, grams, transform, settings, source.name, max_rank, key=f"factor/{key}"
    )
    rows = [
        executor.submit(tasks.project, *one, factor, key=f"project/{key}/{start}")
        for one, (start, _) in zip(data, ranges, strict=True)
    ]
    empty = executor.submit(tasks.ridge_of, factor, key=f"prepare/{key}")
    executor.release([*moments, transform, *grams, factor])
    if isinstance(source, ArrayRows):
        executor.release([one[0] for one in data])
    return BlockedView(tuple(rows), empty)


def _rows(
    source: RowSource, start: int, stop: int, executor: Executor, *, key: str
) -> tuple[Any, int, int]:
    """Source of a block of rows, and their range in it: only these rows of an array are sent."""
    if not isinstance(source, ArrayRows):
        return source, start, stop
    rows = ArrayRows(source.array[start:stop], source.name)
    return executor.submit(graph_tasks.given, rows, key=key), 0, stop - start


def _decomposed_at_once(
    source: RowSource,
    settings: ViewSettings,
    ranges: Ranges,
    max_rank: int,
    executor: Executor,
    *,
    key: str,
) -> BlockedView:
    factored = executor.submit(
        view_tasks.svd_view, source, settings.scale, max_rank, key=f"factor/{key}"
    )
    view = executor.submit(view_tasks.ridge_view_of, factored, settings.alpha, key=f"prepare/{key}")
    *rows, empty = (
        executor.submit(tasks.rows_of_view, view, start, stop, key=f"project/{key}/{start}-{stop}")
        for start, stop in (*ranges, (0, 0))
    )
    executor.release([factored, view])
    return BlockedView(tuple(rows), empty)


# candidate neighbors ---------------------------------------------------------------------------


def ordered_by_cells(
    views: Sequence[BlockedView],
    ranges: Ranges,
    n_candidates: int,
    seed: int,
    executor: Executor,
    *,
    key: str,
) -> tuple[list[BlockedView], BlockedCandidates]:
    """Submit the views in the order of the cells of their joint embedding, and the candidate neighbors."""
    n = ranges[-1][1]
    blocks = [[view.rows[number] for view in views] for number in range(len(ranges))]
    samples = [
        executor.submit(
            tasks.training_points,
            block,
            start,
            stop,
            n,
            seed,
            CELL_POINTS,
            key=f"cell_sample/{key}/{start}",
        )
        for block, (start, stop) in zip(blocks, ranges, strict=True)
    ]
    centers = executor.submit(
        tasks.centers, samples, n, seed, CELL_POINTS, key=f"cell_centers/{key}"
    )
    parts = [
        executor.submit(tasks.assigned, block, centers, key=f"assign_cells/{key}/{start}")
        for block, (start, _) in zip(blocks, ranges, strict=True)
    ]
    index = executor.submit(
        tasks.cells, parts, centers, n_candidates, CELL_POINTS, key=f"cells/{key}"
    )
    order = RowOrder(
        ranges,
        executor.submit(tasks.order_of, index, key=f"row_order/{key}"),
        executor.submit(tasks.positions_of, index, key=f"row_positions/{key}"),
    )
    searched = executor.submit(tasks.searched_blocks, index, ranges, key=f"searched_blocks/{key}")
    executor.release([*samples, centers, *parts])
    moved = [
        _moved(view, order, executor, key=f"{key}/{number}") for number, view in enumerate(views)
    ]
    (needed,) = executor.gather([searched])
    rows = []
    for number, (start, stop) in enumerate(ranges):
        points = [
            executor.submit(
                tasks.searched_points,
                [view.rows[other] for view in moved],
                index,
                other,
                number,
                ranges,
                key=f"searched_points/{key}/{number}/{other}",
            )
            for other in needed[number]
        ]
        rows.append(
            executor.submit(
                tasks.search,
                points,
                index,
                n_candidates,
                start,
                stop,
                key=f"ivf_neighbors/{key}/{start}",
            )
        )
        executor.release(points)
    links = _links(rows, ranges, executor, key=f"candidates/{key}")
    executor.release([index, searched])
    return moved, BlockedCandidates(order, tuple(rows), links)


def candidates_in_order(
    views: Sequence[BlockedView],
    order: RowOrder,
    n_candidates: int,
    seed: int,
    executor: Executor,
    *,
    key: str,
) -> BlockedCandidates:
    """Submit candidate neighbors by other distances, for rows that keep their order."""
    ranges = order.ranges
    moved, found = ordered_by_cells(views, ranges, n_candidates, seed, executor, key=key)
    edges = _edges(ranges)
    pieces = [
        executor.submit(
            tasks.split_candidates,
            block,
            found.order.order,
            edges,
            key=f"split_candidates/{key}/{number}",
        )
        for number, block in enumerate(found.rows)
    ]
    rows = _exchanged(
        pieces, tasks.join_candidates, (), ranges, executor, key=f"candidate_neighbors/{key}"
    )
    links = _links(rows, ranges, executor, key=f"candidates/{key}")
    for view in moved:
        executor.release(view.rows)
    executor.release([found])
    return BlockedCandidates(order, tuple(rows), links)


def _edges(ranges: Ranges) -> tuple[int, ...]:
    """First rows of groups of blocks, and the end."""
    together = -(-len(ranges) // _MOST_PIECES)
    return (*(start for start, _ in ranges[::together]), ranges[-1][1])


def _moved(view: BlockedView, order: RowOrder, executor: Executor, *, key: str) -> BlockedView:
    """Submit a view in a new order of rows."""
    edges = _edges(order.ranges)
    pieces = [
        executor.submit(
            tasks.split_view, block, order.positions, start, edges, key=f"split_rows/{key}/{start}"
        )
        for block, (start, _) in zip(view.rows, order.ranges, strict=True)
    ]
    rows = _exchanged(
        pieces, tasks.join_view, (view.empty,), order.ranges, executor, key=f"join_rows/{key}"
    )
    return BlockedView(tuple(rows), view.empty)


def _exchanged(
    pieces: list[Handle],
    join: Any,
    arguments: tuple[Handle, ...],
    ranges: Ranges,
    executor: Executor,
    *,
    key: str,
) -> list[Handle]:
    """Submit the blocks of rows in a new order from the pieces of each block; pieces are released."""
    together = -(-len(ranges) // _MOST_PIECES)
    joined: list[Handle] = []
    for group in range(-(-len(ranges) // together)):
        sent = [
            executor.submit(tasks.first_item, piece, group, key=f"send_rows/{key}/{number}/{group}")
            for number, piece in enumerate(pieces)
        ]
        joined += [
            executor.submit(join, sent, *arguments, start, stop, key=f"{key}/{start}")
            for start, stop in ranges[group * together : (group + 1) * together]
        ]
        executor.release(sent)
    executor.release(pieces)
    return joined


def _links(
    rows: Sequence[Handle], ranges: Ranges, executor: Executor, *, key: str
) -> tuple[tuple[int, ...], ...]:
    """Gather the blocks in which the neighbors of each block are."""
    handles = [
        executor.submit(linked_blocks, block, ranges, key=f"linked_blocks/{key}/{number}")
        for number, block in enumerate(rows)
    ]
    links = executor.gather(handles)
    executor.release(handles)
    return tuple(links)


# graph -----------------------------------------------------------------------------------------


def build_graph(
    executor: Executor,
    blocks: BlockedCandidates,
    summed: list[Handle] | None,
    *,
    n_neighbors: int,
    data_weight: float,
    projected_weight: float,
    key: str,
) -> BlockedGraph:
    """Submit the A-step over all blocks of rows, and gather its number of connected components."""
    ranges = blocks.order.ranges
    rows = [
        executor.submit(
            graph_block,
            block,
            None if summed is None else summed[number],
            n_neighbors,
            data_weight,
            projected_weight,
            ranges[-1][1],
            key=f"graph_rows/{key}/{number}",
        )
        for number, block in enumerate(blocks.rows)
    ]
    return _connected(rows, ranges, executor, key=key)


def _connected(
    rows: Sequence[Handle], ranges: Ranges, executor: Executor, *, key: str
) -> BlockedGraph:
    """Return the graph of blocks of rows, with its connected components."""
    forests = [
        executor.submit(spanning_forest, block, key=f"spanning_forest/{key}/{number}")
        for number, block in enumerate(rows)
    ]
    components = executor.submit(
        components_of_forests, forests, ranges[-1][1], key=f"components/{key}"
    )
    count = executor.submit(tasks.component_count, components, key=f"component_count/{key}")
    links = [
        executor.submit(linked_blocks, block, ranges, key=f"linked_blocks/{key}/{number}")
        for number, block in enumerate(rows)
    ]
    n_components, *found = executor.gather([count, *links])
    executor.release([*forests, count, *links])
    return BlockedGraph(ranges, tuple(rows), tuple(found), components, int(n_components))


def mean_graph(
    graphs: Sequence[BlockedGraph], weights: Sequence[float], executor: Executor, *, key: str
) -> BlockedGraph:
    """Submit the weighted mean of graphs of the same rows, with its connected components."""
    rows = [
        executor.submit(mean_rows, list(blocks), tuple(weights), key=f"mean_graph/{key}/{number}")
        for number, blocks in enumerate(zip(*(graph.rows for graph in graphs), strict=True))
    ]
    return _connected(rows, graphs[0].ranges, executor, key=key)


def components_of(graph: BlockedGraph, order: RowOrder, executor: Executor, *, key: str) -> Handle:
    """Submit the connected component of each sample."""
    return executor.submit(
        tasks.components_of, graph.components, order.positions, key=f"components/{key}/samples"
    )


def merged_components(
    views: Sequence[BlockedView],
    graph: BlockedGraph,
    order: RowOrder,
    n_clusters: int,
    executor: Executor,
    *,
    key: str,
) -> Handle:
    """Submit the connected components merged to c clusters."""
    sums = [
        executor.submit(
            tasks.component_sums,
            [view.rows[number] for view in views],
            graph.components,
            start,
            key=f"component_sums/{key}/{start}",
        )
        for number, (start, _) in enumerate(graph.ranges)
    ]
    merged = executor.submit(
        tasks.merged_components,
        sums,
        graph.components,
        order.positions,
        n_clusters,
        key=f"merge_components/{key}",
    )
    executor.release(sums)
    return merged


def gather_graph(graph: BlockedGraph, order: RowOrder, executor: Executor) -> csr_array[np.float64]:
    """Gather the graph of the samples in their own order."""
    of_samples, *rows = executor.gather([order.order, *graph.rows])
    return whole_graph(rows, of_samples)


def extend_labels(
    graph: BlockedGraph,
    order: RowOrder,
    known: NDArray[np.int64],
    n_clusters: int,
    executor: Executor,
) -> Handle:
    """Submit earlier labels, extended to new samples (−1) by one task with the whole graph."""
    return executor.submit(
        tasks.extended, list(graph.rows), order.order, known, n_clusters, key="extend_labels/warm"
    )


# eigenvectors ----------------------------------------------------------------------------------


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
                _taken(vectors, halo),
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
            _taken(graph.rows, sources),
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
                _taken(current, halo),
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


# spectral cuts ---------------------------------------------------------------------------------


def submit_cuts(  # noqa: PLR0913 - one spectrum, and the cuts that are wanted
    spectrum: BlockedSpectrum,
    order: RowOrder,
    parameters: Parameters,
    executor: Executor,
    *,
    key: str,
    known: Handle | None = None,
    with_starts: bool = True,
    random: bool = False,
    all_minima: bool = False,
) -> Handle:
    """Submit the partitions of a spectral embedding, in the order of the data.

    Parameters
    ----------
    known : handle, optional
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
            tasks.started_minima, sample, known, order.order, key=f"qr_start/{key}"
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


# ADMM and the A-step ---------------------------------------------------------------------------


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
            executor.submit(
                reduced_sums,
                _taken(view.rows, halo),
                _taken(spectrum.vectors, halo),
                spectrum.laplacian[number],
                parameters,
                key=f"reduced_sums/{key}/{name}/{number}",
            )
            for number, halo in enumerate(spectrum.halos)
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
        record = executor.submit(tasks.record_of, solved, key=f"view_record/{key}/{name}")
        executor.release([*sums, solved])
        results.append(BlockedEmbedding(rows, record))
    return results


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
            view_tasks.admm_view,
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
        record = executor.submit(tasks.record_of_whole, result, key=f"view_record/{key}/{name}")
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
                    _taken(one.scaled or one.rows, needed)
                    for one in results[first : first + _FAN_IN]
                ],
                block,
                candidates.order.ranges,
                key=f"projected_distances/{key}/{number}/{first}",
            )
            for first in range(0, len(results), _FAN_IN)
        ]
        depth = 0
        while len(level) > 1:
            sums = [
                executor.submit(
                    graph_tasks.added,
                    level[first : first + _FAN_IN],
                    key=f"reduce_distances/{key}/{number}/{depth}/{first}",
                )
                for first in range(0, len(level), _FAN_IN)
            ]
            executor.release(level)
            level, depth = sums, depth + 1
        summed.append(level[0])
    return summed


def gather_embedding(
    result: BlockedEmbedding, of_samples: NDArray[np.int32], executor: Executor
) -> NDArray[np.float64]:
    """Gather the embedding of a view in the order of the data."""
    rows = np.concatenate(executor.gather(result.rows))
    embedding = np.empty(rows.shape)
    embedding[of_samples] = rows
    return embedding


def gather_coordinates(
    views: Sequence[BlockedView],
    names: Sequence[str],
    order: RowOrder,
    n_axes: int,
    executor: Executor,
) -> list[NDArray[np.float32]]:
    """Gather the first principal coordinates of each view in the order of the data."""
    handles = [
        executor.submit(
            view_tasks.principal_coordinates, block, n_axes, key=f"principal_coordinates/{name}/{b}"
        )
        for view, name in zip(views, names, strict=True)
        for b, block in enumerate(view.rows)
    ]
    of_samples, *parts = executor.gather([order.order, *handles])
    executor.release(handles)
    n_blocks = len(order.ranges)
    gathered = []
    for view in range(len(views)):
        rows = np.concatenate(parts[view * n_blocks : (view + 1) * n_blocks])
        coordinates = np.empty_like(rows)
        coordinates[of_samples] = rows
        gathered.append(coordinates)
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
    total = executor.submit(graph_tasks.added, parts, key="cluster_weights")
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
) -> tuple[list[BlockedView], list[ViewIteration]]:
    """Submit the linear discriminants of each view for a partition, and gather their records."""
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
        empty = executor.submit(tasks.first_item, metric, 1, key=f"empty_metric/{key}/{name}")
        learned.append(
            executor.submit(tasks.first_item, metric, 2, key=f"view_record/{key}/{name}")
        )
        metrics.append(BlockedView(rows, empty))
        executor.release([*sums, metric])
    records = executor.gather(learned)
    executor.release([*learned, by_cells])
    return metrics, records


# partition graph -------------------------------------------------------------------------------


def partition_graph(
    views: Sequence[BlockedView],
    candidates: BlockedCandidates,
    labels: Any,
    n_neighbors: int,
    executor: Executor,
    *,
    key: str,
) -> BlockedGraph:
    """Submit the graph whose connected components are exactly the clusters of a partition."""
    order = candidates.order
    ranges = order.ranges
    by_cells = executor.submit(tasks.reordered, labels, order.order, key=f"ordered_labels/{key}")
    of_blocks = [[view.rows[number] for view in views] for number in range(len(ranges))]
    pools = [
        executor.submit(tasks.pool, block, start, by_cells, n_neighbors, key=f"pool/{key}/{start}")
        for block, (start, _) in zip(of_blocks, ranges, strict=True)
    ]
    pool = executor.submit(join_pools, pools, key=f"join_pools/{key}")
    rows = [
        executor.submit(
            tasks.partition_rows,
            block,
            found,
            by_cells,
            pool,
            n_neighbors,
            key=f"partition_rows/{key}/{number}",
        )
        for number, (block, found) in enumerate(zip(of_blocks, candidates.rows, strict=True))
    ]
    graph = _connected(rows, ranges, executor, key=key)
    executor.release([*pools, pool])
    ends = executor.submit(bridge_ends, graph.components, by_cells, key=f"bridge_ends/{key}")
    (samples,) = executor.gather([ends])
    if samples.size:
        points = [
            executor.submit(
                tasks.bridge_points, block, start, ends, key=f"bridge_points/{key}/{start}"
            )
            for block, (start, _) in zip(of_blocks, ranges, strict=True)
        ]
        edges = executor.submit(
            bridges, ends, points, graph.components, by_cells, key=f"bridges/{key}"
        )
        joined = [
            executor.submit(
                with_bridges, block, edges, n_neighbors, key=f"bridged_rows/{key}/{number}"
            )
            for number, block in enumerate(graph.rows)
        ]
        executor.release([graph, *points, edges])
        graph = _connected(joined, ranges, executor, key=f"{key}/bridged")
    executor.release([ends, by_cells])
    return graph


# checkpoints -----------------------------------------------------------------------------------


def gather_arrays(
    graph: BlockedGraph, executor: Executor
) -> tuple[NDArray[np.float64], NDArray[Any], NDArray[Any]]:
    """Gather data, indices and indptr of the graph in the order of the cells."""
    blocks = [rows.affinity for rows in executor.gather(graph.rows)]
    counts = np.concatenate([np.diff(block.indptr) for block in blocks])
    return (
        np.concatenate([block.data for block in blocks]),
        np.concatenate([block.indices for block in blocks]),
        np.concatenate(([0], np.cumsum(counts))),
    )


def restore_graph(
    data: NDArray[np.float64],
    indices: NDArray[Any],
    indptr: NDArray[Any],
    executor: Executor,
    *,
    key: str,
) -> BlockedGraph:
    """Submit a graph from the arrays that `gather_arrays` returned."""
    n = len(indptr) - 1
    ranges = block_ranges(n)
    rows = []
    for start, stop in ranges:
        part = slice(indptr[start], indptr[stop])
        pointers = (indptr[start : stop + 1] - indptr[start]).astype(np.int32)
        rows.append(
            executor.submit(
                tasks.restored_rows,
                data[part],
                indices[part].astype(np.int32),
                pointers,
                start,
                n,
                key=f"restore_graph/{key}/{start}",
            )
        )
    return _connected(rows, ranges, executor, key=key)


def restore_vectors(vectors: NDArray[Any], executor: Executor, *, key: str) -> BlockedSpectrum:
    """Submit start vectors of the eigensolver from those of a checkpoint."""
    rows = tuple(
        executor.submit(graph_tasks.given, vectors[start:stop], key=f"given/{key}/{start}")
        for start, stop in block_ranges(len(vectors))
    )
    return BlockedSpectrum((), rows, (), np.zeros(0), converged=True)
