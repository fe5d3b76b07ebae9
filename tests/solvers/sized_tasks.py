"""Tasks of some sizes, whose memory is measured.

Each function prepares the arguments of a task, and returns the task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array, random_array

from mscam_dask.engine.preprocessing_selection import summed_votes
from mscam_dask.engine.row_blocks import tasks as block_tasks
from mscam_dask.linalg import block_eigensolver as eigen
from mscam_dask.linalg import incomplete, ivf, neighbors
from mscam_dask.linalg.distances import WeightedBlocks
from mscam_dask.linalg.ridge import Basis
from mscam_dask.linalg.scaling import ColumnMoments, fit_transform_from_moments
from mscam_dask.solvers import (
    admm,
    graph_update,
    partition_graph,
    partition_score,
    preprocessing,
    row_blocks,
    row_graph,
    row_view,
    spectral_cut,
    view_svd,
)
from mscam_dask.solvers.ridge_view import Encoder, RidgeView
from mscam_dask.solvers.row_blocks import ViewShape, ViewType
from mscam_dask.types.parameters import AdmmSettings, Parameters

__all__ = ["TASKS"]

Array = NDArray[Any]
Run = Callable[[], object]


def numbers(*shape: int) -> NDArray[np.float32]:
    """Numbers from 0 to 1, the same for the same shape."""
    return np.random.default_rng(0).random(shape, dtype=np.float32)


def edges(n_samples: int, n_rows: int, k: int, step: int = 1) -> Array:
    """Distinct neighbors (m, k) of the first rows, at multiples of a distance."""
    return np.add.outer(np.arange(n_rows), step + step * np.arange(k)[::-1]) % n_samples


def candidates(n_samples: int, n_rows: int, k: int, step: int = 1) -> graph_update.CandidateEdges:
    indices = edges(n_samples, n_rows, k, step).astype(np.int32)
    return graph_update.CandidateEdges(0, indices, np.sort(numbers(n_rows, k).astype(np.float64)))


def graph_block(n_samples: int, n_rows: int, n_neighbors: int) -> Run:
    wanted = 2 * n_neighbors + 2
    found = candidates(n_samples, n_rows, wanted)
    projected = np.random.default_rng(1).random((n_rows, wanted))
    return lambda: row_graph.graph_block(found, projected, n_neighbors, 1.0, 1.0, n_samples)


def forests(n_samples: int, n_rows: int, n_neighbors: int) -> Run:
    path = np.stack([np.arange(n_samples - 1), np.arange(1, n_samples)]).astype(np.int32)
    parts = [part.copy() for part in np.array_split(path, 4, axis=1)]
    del path
    return lambda: row_graph.components_of_forests(parts, n_samples)


def embedding(n: int, n_pairs: int, n_clusters: int, dtype: Any) -> spectral_cut.SpectralEmbedding:
    labels = np.arange(n) % n_clusters
    rows = (0.01 * numbers(n, n_pairs) + np.eye(n_pairs, dtype=np.float32)[labels]).astype(dtype)
    return spectral_cut.walk_embedding(np.arange(n_pairs), rows, n_clusters)


def join_partitions(n_samples: int, n_sampled: int, n_clusters: int, n_cuts: int) -> Run:
    positions = spectral_cut.spread_rows(n_samples, n_sampled)
    sample = row_graph.CutSample(
        spectral_cut.SpectralEmbedding(numbers(1, 1), numbers(1, 1)),
        positions,
        np.zeros(1),
        np.zeros(1),
    )
    labels = [positions % n_clusters for _ in range(n_cuts)]
    blocks = [
        np.zeros((n_cuts, len(part)), dtype=np.int32)
        for part in np.array_split(np.arange(n_samples), 4)
    ]
    order = np.arange(n_samples, dtype=np.int32)
    return lambda: row_graph.join_partitions(blocks, sample, row_graph.Cuts(labels, []), order)


def sampled_cut(n_samples: int, n_sampled: int, n_clusters: int, n_cuts: int) -> Run:
    points = embedding(n_sampled, 2 * n_clusters, n_clusters, np.float32)
    return lambda: spectral_cut.random_minima(points, 0, range(2))


def ridge_rows(n_rows: int, rank: int) -> RidgeView:
    encoder = Encoder("kernel", None, 0, 1.0, np.zeros(1), np.zeros((1, rank)))
    return RidgeView(Basis(numbers(n_rows, rank), np.full(rank, 100.0)), 1.0, 1.0, 1.0, encoder)


def solve_reduced(n_blocks: int) -> Callable[..., Run]:
    def task(n_directions: int) -> Run:
        parameters = Parameters(n_clusters=5)
        h = n_directions
        sums = [
            row_view.ReducedSums(np.stack([np.eye(h), np.diag(np.arange(h) / h)]), 1.0)
            for _ in range(n_blocks)
        ]
        view = ridge_rows(1, h - 10)
        return lambda: row_view.solve_reduced(sums, view, parameters, 1.0)

    return task


def laplacian_rows(n_samples: int, n_rows: int, n_halo: int, n_blocks: int) -> eigen.LaplacianRows:
    """Twenty entries in each row; the halo is in blocks of equal size."""
    size = n_samples // n_blocks
    rows = np.arange(0, size, n_blocks * size // n_halo, dtype=np.int32)[: n_halo // n_blocks]
    halo = eigen.Halo(tuple(range(n_blocks)), tuple(rows.copy() for _ in range(n_blocks)))
    width = len(rows) * n_blocks
    columns = np.sort(edges(width, n_rows, 20), axis=1).astype(np.int32).ravel()
    pointers = np.arange(0, 20 * n_rows + 1, 20, dtype=np.int32)
    matrix = csr_array((numbers(20 * n_rows), columns, pointers), shape=(n_rows, width))
    return eigen.LaplacianRows(matrix, halo, np.arange(n_rows, dtype=np.int32) % width, 1.0)


def reduced_sums(n_rows: int, n_halo: int, n_directions: int) -> Run:
    """Half of the rows of sixteen other blocks are in the halo."""
    rows = laplacian_rows(n_halo, n_rows, n_halo // 2, 16)
    rank = n_directions - 10
    views = [ridge_rows(n_halo // 16, rank) for _ in range(16)] + [ridge_rows(n_rows, rank)]
    vectors = [numbers(len(view.basis.vectors), 15) for view in views]
    return lambda: row_view.reduced_sums(views, vectors, rows, 0, Parameters(n_clusters=5))


def filter_next(n_samples: int, n_rows: int, n_halo: int, n_columns: int) -> Run:
    rows = laplacian_rows(n_samples, n_rows, n_halo, 4)
    current = [numbers(n_samples // 4, n_columns) for _ in range(4)]
    previous = numbers(n_rows, n_columns)
    polynomial = eigen.Filter(10, 0.1, 2.0)
    return lambda: eigen.filter_next(rows, previous, current, polynomial)


def spectral_cuts(n: int, c: int, n_pairs: int) -> Run:
    labels = np.arange(n) % c
    vectors = 0.01 * numbers(n, n_pairs).astype(np.float64) + np.eye(n_pairs)[labels]

    def run() -> object:
        points = spectral_cut.walk_embedding(np.arange(n_pairs), vectors, c)
        return spectral_cut.good_minima(points, rng=np.random.default_rng(0))

    return run


def assemble_graph(n_samples: int, n_neighbors: int) -> Run:
    whole = edges(n_samples, n_samples, n_neighbors)
    halves = np.array_split(whole, 2)
    blocks = [(half.copy(), np.full(half.shape, 1.0 / n_neighbors)) for half in halves]
    del whole, halves
    return lambda: graph_update.assemble_graph(blocks)


def neighbor_graph(n_samples: int, n_neighbors: int, rank: int) -> Run:
    points: Array = (numbers(n_samples, rank) < 0.5).astype(np.float32) - np.float32(0.5)
    points -= points.mean(axis=0)
    return lambda: graph_update.neighbor_graph(points, n_neighbors)


def reduced_problem(n_samples: int, rank: int, n_clusters: int) -> Run:
    q = np.linalg.qr(numbers(n_samples, rank))[0]
    vectors = np.linalg.qr(numbers(n_samples, 2 * n_clusters).astype(np.float64) - 0.5)[0]
    laplacian: csr_array[Any] = csr_array(
        diags_array(np.ones(n_samples, dtype=np.float32), format="csr")
    )
    basis = Basis(q, np.full(rank, 100.0))

    def run() -> object:
        problem = admm.reduced_problem(
            basis, vectors, laplacian, alpha=1.0, metric_ridge=1.0, graph_weight=1.0
        )
        return admm.solve_view(problem, vectors[:, :n_clusters], AdmmSettings())

    return run


def svd(view_type: ViewType, *, truncated: bool) -> Callable[..., Run]:
    """SVD of a view whose rows are read by small blocks; of few directions if truncated."""

    def task(n: int, rank: int, d: int = 0) -> Run:
        rng = np.random.default_rng(0)
        factor = rng.standard_normal((n, 8 if truncated else rank))
        other = factor if view_type != "features" else rng.standard_normal((d, factor.shape[1]))
        view = (factor @ other.T).astype(np.float32)
        del factor, other

        def read(start: int, stop: int) -> NDArray[np.float64]:
            return view[start:stop].astype(np.float64)

        return lambda: view_svd.view_svd(
            read,
            ViewShape(n, d or n, view_type),
            scale="none",
            name="v",
            dtype=np.float32,
            max_rank=rank if truncated else None,
            block_bytes=2**18,
        )

    return task


def mean_and_gram(n_samples: int, n_columns: int) -> Run:
    view = numbers(n_samples, n_columns)
    transform = fit_transform_from_moments(
        "standard", ColumnMoments.from_rows(view[:100].astype(np.float64))
    )

    def blocks() -> Iterator[tuple[int, int, NDArray[np.float64]]]:
        for start, stop in row_blocks.row_blocks(n_samples, n_columns):
            yield start, stop, transform.apply(view[start:stop].astype(np.float64))

    shape = ViewShape(n_samples, n_columns, "features")
    return lambda: row_blocks.mean_and_gram(blocks, shape)


def reference_graphs(n: int, d: int = 0) -> Run:
    view = numbers(n, d or n)
    view = view if d else view + view.T

    def read(start: int, stop: int) -> NDArray[np.float64]:
        return view[start:stop].astype(np.float64)

    shape = ViewShape(n, d or n, "features" if d else "kernel")
    return lambda: partition_score.reference_graphs(
        read, shape, 9, dtype=np.float32, block_bytes=2**16
    )


def incomplete_points(n_samples: int, n_columns: int, n_blocks: int) -> incomplete.IncompleteBlocks:
    """Points of which each block has all but a few."""
    present = [
        incomplete.PresentSamples(np.flatnonzero(np.arange(n_samples) % 50 != block), n_samples)
        for block in range(n_blocks)
    ]
    return incomplete.IncompleteBlocks(
        n_samples,
        tuple(numbers(len(own), n_columns // n_blocks) for own in present),
        tuple(present),
        (0,) * n_blocks,
        (1.0,) * n_blocks,
    )


def complete_partition_graph(n: int, k: int) -> Run:
    points = WeightedBlocks((numbers(n, 8),), (np.ones(8),))
    return lambda: partition_graph.partition_graph(points, np.zeros(n, dtype=np.int64), k)


def incomplete_partition_graph(n: int, k: int) -> Run:
    points = incomplete_points(n, 2, 2)
    for block, present in zip(points.blocks, points.present, strict=True):
        block[present.samples % 2 > 0] += 100.0
    return lambda: partition_graph.partition_graph(points, np.zeros(n, dtype=np.int64), k)


def cluster_rows(*, are_near: bool = False, alternate: bool = True) -> Callable[..., Run]:
    """Rows of clusters that alternate or not; candidate neighbors are in the same cluster, or in others."""

    def task(n: int, c: int, k: int, rows: int, columns: int) -> Run:
        labels = np.arange(n) % c if alternate else np.arange(n) * c // n
        points = WeightedBlocks((numbers(rows, columns),), (np.ones(columns),))
        found = candidates(n, rows, 2 * k + 2, c if are_near else 1)
        if not alternate:
            others = (found.indices + np.int32(n // c)) % np.int32(n)
            found = graph_update.CandidateEdges(0, others, found.squared_distances)
        step = -(-n // (4096 * c))
        members = [np.flatnonzero(labels == one)[::step] for one in range(c)]
        samples = np.sort(np.concatenate(members))
        pool = partition_graph.Pool(samples, numbers(len(samples), columns))
        return lambda: partition_graph.cluster_rows(points, found, labels, pool, k)

    return task


def settings(n: int, d: int) -> Run:
    rows = np.random.default_rng(0).standard_normal((n, d))

    def run() -> object:
        found = view_svd.view_svd(
            lambda start, stop: rows[start:stop],
            ViewShape(n, d, "features"),
            scale="standard",
            name="v",
            block_bytes=2**16,
        )
        return preprocessing.embedding_neighbors(found, 1.0, 9)

    return run


def votes(n_rows: int, n_coarse: int) -> Run:
    lists = [[edges(n_rows, n_rows, 9)]]
    return lambda: preprocessing.neighbor_votes(lists, n_rows)


def sum_of_votes(n_rows: int, n_coarse: int) -> Run:
    lists = [[edges(n_coarse, n_coarse, n_coarse // 10)]]
    parts = [preprocessing.neighbor_votes(lists, n_coarse) for _ in range(8)]
    return lambda: summed_votes(parts)


def centers(n_points: int, n_rows: int, n_columns: int) -> Run:
    parts = np.array_split(numbers(n_points * 32 // 500, n_columns), 4)
    samples = [part.copy() for part in parts]
    del parts
    return lambda: block_tasks.centers(samples, n_points, 0, 500)


def assigned(n_points: int, n_rows: int, n_columns: int) -> Run:
    points = WeightedBlocks((numbers(n_rows, n_columns),), (np.ones(n_columns),))
    trained = numbers(n_points // 500, n_columns)
    return lambda: ivf.assign_to_cells(points.stacked(slice(None), np.float32), trained)


def search(n_points: int, n_rows: int, n_columns: int, n_candidates: int) -> Run:
    points = numbers(n_points, 1) * np.ones(n_columns, dtype=np.float32)
    index = ivf.build_ivf(points, n_candidates=n_candidates, seed=0)
    read = index.searched(0, n_rows)
    parts = [points[index.order[some]] for some in np.array_split(read, 4)]
    del points
    return lambda: block_tasks.search(parts, index, n_candidates, 0, n_rows)


def nearest_neighbors(n_samples: int, n_candidates: int, n_rows: int = 0) -> Run:
    """Search for some rows, or for all."""
    points: Array = numbers(n_samples, 8)
    stop = n_rows or n_samples
    return lambda: neighbors.nearest_neighbors(points, n_candidates, row_stop=stop)


def nearest_sharing(n_samples: int) -> Run:
    points = incomplete_points(n_samples, 2, 2)
    n_rows = max(64, 2**20 // n_samples)
    return lambda: incomplete.nearest_sharing(points, 9, 0, n_rows)


def coarse_vectors(n_samples: int) -> Run:
    block = csr_array(random_array((1024, 1024), density=0.01, rng=np.random.default_rng(0)))
    labels = np.arange(n_samples, dtype=np.int32) % 1024
    found = block_tasks.Aggregates(labels, np.ones(1024))
    return lambda: block_tasks.coarse_eigenvectors([block] * 4, found, 30)


def products(n_samples: int, n_columns: int, n_blocks: int) -> Run:
    points = incomplete_points(n_samples, n_columns, n_blocks)
    return lambda: points.products(np.arange(n_samples))


TASKS: dict[str, Callable[..., Run]] = {
    "assemble_graph": assemble_graph,
    "assigned": assigned,
    "centers": centers,
    "cluster_rows of candidates": cluster_rows(are_near=True),
    "cluster_rows of one cluster": cluster_rows(alternate=False),
    "cluster_rows of the pool": cluster_rows(),
    "coarse_vectors": coarse_vectors,
    "filter_next": filter_next,
    "forests": forests,
    "good_minima": spectral_cuts,
    "graph_block": graph_block,
    "join_partitions": join_partitions,
    "mean_and_gram": mean_and_gram,
    "nearest_neighbors": nearest_neighbors,
    "nearest_sharing": nearest_sharing,
    "neighbor_graph": neighbor_graph,
    "partition_graph": complete_partition_graph,
    "partition_graph of incomplete views": incomplete_partition_graph,
    "products": products,
    "random_minima": sampled_cut,
    "reduced_problem": reduced_problem,
    "reduced_sums": reduced_sums,
    "reference_graphs": reference_graphs,
    "search": search,
    "settings": settings,
    "solve_reduced": solve_reduced(64),
    "solve_reduced of one block": solve_reduced(1),
    "sum_of_votes": sum_of_votes,
    "view_svd": svd("features", truncated=False),
    "view_svd of a kernel": svd("kernel", truncated=False),
    "view_svd of a kernel, truncated": svd("kernel", truncated=True),
    "view_svd, truncated": svd("features", truncated=True),
    "votes": votes,
}
