"""Tasks on blocks of rows of large data, and the small tasks between them.

A block is known by its start and stop among all rows. Rows are first in the order of the data, then in
the order of the cells of the joint ridge embedding, in which neighbors are in few other blocks.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.data.result_arrays import write_rows
from mscam_dask.data.views.sampling import cache_chunks
from mscam_dask.data.views.sources import RowSource
from mscam_dask.engine.tasks import (
    GraphSpectrum,
    ViewResult,
    added,
    admm_record,
    metric_record,
)
from mscam_dask.linalg.block_eigensolver import (
    LaplacianRows,
    Ranges,
    RitzPairs,
    RowPieces,
    aggregate_rows,
    blocks_of,
    coarse_block,
    coarse_vectors,
    join_rows,
    split_rows,
)
from mscam_dask.linalg.distances import mean_squared_distance
from mscam_dask.linalg.eigensolver import Spectrum
from mscam_dask.linalg.ivf import (
    IVFIndex,
    assign_to_cells,
    cut_cells,
    ivf_search,
    train_centers,
    training_rows,
)
from mscam_dask.linalg.scaling import ColumnMoments, RowTransform
from mscam_dask.solvers.cluster_tree import ward_merge
from mscam_dask.solvers.graph_update import CandidateEdges
from mscam_dask.solvers.lda import (
    ClassSums,
    LinearDiscriminants,
    class_sums,
    discriminant_loadings,
    discriminant_points,
    mean_distance,
)
from mscam_dask.solvers.partition_graph import Pool, cluster_rows, points_at, pool_of_rows
from mscam_dask.solvers.predict import extend_labels
from mscam_dask.solvers.ridge_view import RidgeView, complete_embedding
from mscam_dask.solvers.row_graph import (
    Components,
    CutSample,
    GraphRows,
    VectorSample,
    cut_sample,
    projected_rows,
    whole_graph,
)
from mscam_dask.solvers.row_view import (
    GramSum,
    ReducedSums,
    ViewFactor,
    embed_rows,
    gram_of_rows,
    moments_of_rows,
    project_rows,
    ridge_factor,
    solve_reduced,
)
from mscam_dask.solvers.spectral_cut import Minimum, canonical_labels, random_minima, start_minima
from mscam_dask.types.events import ViewIteration
from mscam_dask.types.parameters import Parameters, ViewSettings

View = RidgeView | LinearDiscriminants

FAN_IN = 16
"""Views whose distances one task adds up, and blocks whose rows, or sums, it takes."""


# views -----------------------------------------------------------------------------------------


def moments(source: RowSource, start: int, stop: int) -> ColumnMoments:
    """Moments of the columns of a view over a block of rows."""
    return moments_of_rows(cache_chunks(source).read, start, stop, source.shape[1])


def gram(source: RowSource, start: int, stop: int, transform: RowTransform) -> GramSum:
    """Centered Gram matrix of a block of scaled rows."""
    return gram_of_rows(cache_chunks(source).read, start, stop, transform)


def merged_grams(sums: list[GramSum]) -> GramSum:
    """Sum of the Gram matrices of several blocks."""
    return functools.reduce(GramSum.merge, sums)


def factor(
    sums: list[GramSum], transform: RowTransform, settings: ViewSettings, name: str, max_rank: int
) -> ViewFactor:
    """Directions of a view from the Gram matrices of all blocks."""
    return ridge_factor(
        sums, transform, scale=settings.scale, alpha=settings.alpha, name=name, max_rank=max_rank
    )


def project(source: RowSource, start: int, stop: int, found: ViewFactor) -> RidgeView:
    """Ridge view of a block of rows."""
    return found.ridge.of_rows(project_rows(cache_chunks(source).read, start, stop, found))


def rows_of_view(view: RidgeView, start: int, stop: int) -> RidgeView:
    """Ridge view of some rows of a whole ridge view."""
    return view.of_rows(view.basis.vectors[start:stop].copy())


# order of the rows -----------------------------------------------------------------------------


def training_points(
    views: list[View], start: int, stop: int, n_samples: int, seed: int, cell_points: int
) -> NDArray[np.float32]:
    """Points of a block on which the centers of the cells are trained."""
    rows = training_rows(start, stop, n_samples, seed, cell_points=cell_points)
    return np.asarray(complete_embedding(views).stacked(rows, np.float32))


def centers(
    samples: list[NDArray[np.float32]], n_samples: int, seed: int, cell_points: int
) -> NDArray[np.float32]:
    """Centers of the cells."""
    n_cells = max(1, n_samples // cell_points)
    return train_centers(np.concatenate(samples), n_cells, np.random.default_rng(seed))


def assigned(views: list[View], trained: NDArray[np.float32]) -> NDArray[np.int32]:
    """Cell of each row of a block."""
    points = complete_embedding(views)
    return assign_to_cells(points.stacked(slice(None), np.float32), trained).astype(np.int32)


def cells(
    parts: list[NDArray[np.int32]],
    trained: NDArray[np.float32],
    n_candidates: int,
    cell_points: int,
) -> IVFIndex:
    """Cells and the order of the rows by cell."""
    return cut_cells(np.concatenate(parts), trained, n_candidates, cell_points=cell_points)


def searched_blocks(index: IVFIndex, ranges: Ranges) -> list[tuple[int, ...]]:
    """For each block of rows in the order of the cells, the blocks in which its rows search."""
    return [blocks_of(index.searched(start, stop), ranges) for start, stop in ranges]


def searched_points(
    views: list[View], index: IVFIndex, number: int, by: int, ranges: Ranges
) -> NDArray[np.float32]:
    """Points of the block `number` in which the rows of the block `by` search."""
    (start, stop), searched = ranges[number], index.searched(*ranges[by])
    mine = searched[(searched >= start) & (searched < stop)] - start
    return np.asarray(complete_embedding(views).stacked(mine, np.float32))


def split_view(
    view: View, positions: NDArray[np.int32], start: int, edges: tuple[int, ...]
) -> list[RowPieces]:
    """Rows of a block by the group of blocks to which they go."""
    vectors, _ = view.coordinates()
    return split_rows([vectors], positions[start : start + len(vectors)], edges)


def join_view(pieces: list[RowPieces], view: View, start: int, stop: int) -> View:
    """View of a block of rows in the new order, from the pieces of all blocks."""
    (vectors,) = join_rows(pieces, start, stop)
    return view.of_rows(vectors)


@dataclasses.dataclass(frozen=True)
class _SearchedPoints:
    """Points at some ascending positions among all rows, read by position."""

    points: NDArray[np.float32]
    positions: NDArray[np.int64]

    def stacked(self, rows: NDArray[np.int64], dtype: Any) -> NDArray[Any]:
        return self.points[np.searchsorted(self.positions, rows)].astype(dtype, copy=False)


def search(
    parts: list[NDArray[np.float32]], index: IVFIndex, n_candidates: int, start: int, stop: int
) -> CandidateEdges:
    """Candidate neighbors of a block of rows in the order of the cells, among `searched_points`."""
    points = _SearchedPoints(np.concatenate(parts), index.searched(start, stop))
    found = ivf_search(points, index, n_candidates, start=start, stop=stop)
    return CandidateEdges(start, *found)


def split_candidates(
    candidates: CandidateEdges, order: NDArray[np.int32], edges: tuple[int, ...]
) -> list[RowPieces]:
    """Candidate edges of a block in the order of other cells, back in the first order."""
    own = order[candidates.row_start : candidates.row_start + len(candidates.indices)]
    indices = np.where(candidates.indices < 0, np.int32(-1), order[candidates.indices])
    return split_rows([indices, candidates.squared_distances], own, edges)


def join_candidates(pieces: list[RowPieces], start: int, stop: int) -> CandidateEdges:
    """Candidate edges of a block of rows from the pieces of all blocks."""
    return CandidateEdges(start, *join_rows(pieces, start, stop))


# graph and eigenvectors ------------------------------------------------------------------------


def components_of(components: Components, positions: NDArray[np.int32]) -> NDArray[np.int64]:
    """Connected component of each sample in the order of the data, by first appearance."""
    return canonical_labels(components.labels[positions].astype(np.int64))


def reordered(labels: NDArray[np.int64], order: NDArray[np.int32]) -> NDArray[np.int64]:
    """Labels in the order of the cells."""
    return np.asarray(labels[order])


def component_sums(
    views: list[View], components: Components, start: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Number of rows of a block in each component, and the sum of their points."""
    points = complete_embedding(views)
    own = components.labels[start : start + len(points)].astype(np.int64)
    sizes = np.bincount(own, minlength=components.count).astype(np.float64)
    return sizes, points.means(own, np.ones(components.count))


def merged_components(
    sums: list[tuple[NDArray[np.float64], NDArray[np.float64]]],
    components: Components,
    positions: NDArray[np.int32],
    n_clusters: int,
) -> NDArray[np.int64]:
    """Connected components, merged to the requested number of clusters; in the order of the data."""
    sizes = added(size for size, _ in sums)
    merged = ward_merge(added(total for _, total in sums) / sizes[:, None], sizes, n_clusters)
    return canonical_labels(merged[components.labels[positions]])


@dataclasses.dataclass(frozen=True, slots=True)
class Aggregates:
    """Aggregate of each sample, and number of samples of each aggregate."""

    labels: NDArray[np.int32]
    sizes: NDArray[np.float64]


def aggregates(
    views: list[View], components: Components, start: int, n_samples: int
) -> NDArray[np.int32]:
    """Aggregate of each row of a block."""
    points = complete_embedding(views).stacked(slice(None), np.float32)
    return aggregate_rows(points, components.labels[start : start + len(points)], n_samples)


def join_aggregates(parts: list[NDArray[np.int32]]) -> Aggregates:
    """Aggregates of all blocks, numbered one block after the other."""
    counts = [int(part.max()) + 1 for part in parts]
    firsts = np.cumsum([0, *counts[:-1]])
    labels = np.concatenate(
        [part + np.int32(first) for part, first in zip(parts, firsts, strict=True)]
    )
    return Aggregates(labels, np.bincount(labels).astype(np.float64))


def coarse_rows(
    rows: LaplacianRows, found: Aggregates, number: int, ranges: Ranges
) -> csr_array[Any]:
    """Entries of a block of rows of the Laplacian, summed by aggregates."""
    own, *others = (found.labels[slice(*ranges[block])] for block in (number, *rows.halo.blocks))
    return coarse_block(rows, own, others)


def coarse_eigenvectors(
    blocks: list[csr_array[Any]], found: Aggregates, n_vectors: int
) -> NDArray[np.float32]:
    """Bottom eigenvectors of the Laplacian of the aggregates."""
    return coarse_vectors(blocks, found.sizes, n_vectors)


def prolonged(
    vectors: NDArray[np.float32], found: Aggregates, start: int, stop: int
) -> NDArray[np.float32]:
    """Rows of coarse eigenvectors for the samples of a block."""
    return vectors[found.labels[start:stop]]


def applied(rows: LaplacianRows, parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Rows of L V."""
    return rows.apply(parts)


def rotated(vectors: NDArray[np.float32], found: RitzPairs) -> NDArray[np.float32]:
    """Rows of the Ritz vectors."""
    return np.asarray(vectors @ found.rotation.astype(np.float32))


def indicators(components: Components, start: int, stop: int) -> NDArray[np.float32]:
    """Rows of the null vectors of the Laplacian: scaled indicators of the components."""
    roots = np.sqrt(np.bincount(components.labels))
    own = components.labels[start:stop]
    rows = np.zeros((stop - start, components.count), dtype=np.float32)
    rows[np.arange(stop - start), own] = 1.0 / roots[own]
    return rows


# cuts ------------------------------------------------------------------------------------------


def embedding_sample(
    samples: list[VectorSample],
    values: NDArray[np.float64],
    n_clusters: int,
    n_samples: int,
    n_wanted: int,
) -> CutSample:
    """Sample of the spectral embedding for k-means."""
    return cut_sample(samples, values, n_clusters, n_samples, n_wanted)


def drawn_minima(sample: CutSample, seed: int, starts: range) -> list[Minimum]:
    """Local minima of k-means from some random starts."""
    drawn = int(np.random.default_rng(seed).integers(2**31))
    return random_minima(sample.embedding, drawn, starts)


def started_minima(
    sample: CutSample, init_labels: NDArray[np.int64] | None, order: NDArray[np.int32]
) -> tuple[Minimum, Minimum | None]:
    """Local minima of k-means from the eigenvectors and from an earlier partition."""
    of_sample = (
        None if init_labels is None else init_labels[order[sample.positions]].astype(np.int64)
    )
    return start_minima(sample.embedding, of_sample)


def extended(
    blocks: list[GraphRows],
    order: NDArray[np.int32],
    init_labels: NDArray[np.int64],
    n_clusters: int,
) -> NDArray[np.int64]:
    """Earlier labels, extended to new samples (−1) on the whole graph."""
    return extend_labels(whole_graph(blocks, order), init_labels, n_clusters)


# ADMM and metrics ------------------------------------------------------------------------------


def solved(
    sums: list[ReducedSums], view: RidgeView, name: str, parameters: Parameters, graph_weight: float
) -> tuple[NDArray[np.float64], ViewIteration]:
    """Coefficients of the embedding of a view, and the record of its ADMM."""
    started = time.perf_counter()
    coefficients, solution = solve_reduced(sums, view, parameters, graph_weight)
    return coefficients, admm_record(name, solution, started)


def embedded(
    view: RidgeView,
    vectors: NDArray[Any],
    result: tuple[NDArray[np.float64], ViewIteration],
    parameters: Parameters,
) -> NDArray[np.float32]:
    """Rows of the embedding of a view."""
    return embed_rows(view, vectors, result[0], parameters)


def projected(
    views: list[list[NDArray[Any]]], candidates: CandidateEdges, ranges: Ranges
) -> NDArray[np.float64]:
    """Sum over some views of projected squared distances on the candidate edges of a block."""
    return added(projected_rows(views, candidates, ranges))


def class_sums_of(view: RidgeView, labels: NDArray[np.int64], start: int, stop: int) -> ClassSums:
    """Sums of a block of rows by cluster; labels are in the order of the cells."""
    return class_sums(view, labels[start:stop], int(labels.max()) + 1)


def metric_of(
    sums: list[ClassSums], view: RidgeView, name: str
) -> tuple[NDArray[np.float64], LinearDiscriminants, ViewIteration]:
    """Loadings of the linear discriminants of a view, the discriminants without rows, and the record."""
    started = time.perf_counter()
    total = sums[0]
    for other in sums[1:]:
        total = total.merge(other)
    loadings, separation = discriminant_loadings(total, view)
    empty = np.empty((0, loadings.shape[1]), dtype=np.float32)
    metric = LinearDiscriminants(empty, mean_distance(total, loadings), separation)
    return loadings, metric, metric_record(name, separation, started)


def discriminants(
    view: RidgeView, metric: tuple[NDArray[np.float64], LinearDiscriminants, ViewIteration]
) -> LinearDiscriminants:
    """Rows of a view in its linear discriminants."""
    return metric[1].of_rows(discriminant_points(view, metric[0]))


# MSCAN solves its linear systems on all rows ---------------------------------------------------


def whole_view(blocks: list[RidgeView]) -> RidgeView:
    """Ridge view of all rows."""
    return blocks[0].of_rows(np.concatenate([block.basis.vectors for block in blocks]))


def whole_spectrum(
    rows: list[LaplacianRows],
    vectors: list[NDArray[Any]],
    values: NDArray[np.float64],
    ranges: Ranges,
) -> GraphSpectrum:
    """Laplacian and eigenvectors of all rows."""
    data = np.concatenate([block.matrix.data for block in rows])
    columns = []
    for block in rows:
        names = [
            part + np.int32(ranges[number][0])
            for number, part in zip(block.halo.blocks, block.halo.rows, strict=True)
        ]
        columns.append(np.concatenate(names)[block.matrix.indices])
    counts = np.concatenate([np.diff(block.matrix.indptr) for block in rows])
    n = len(counts)
    laplacian: csr_array[Any] = csr_array(
        (data, np.concatenate(columns), np.concatenate(([0], np.cumsum(counts)))), shape=(n, n)
    )
    joined = np.concatenate(vectors)
    return GraphSpectrum(laplacian, Spectrum(values, joined, 0.0, 0, True))  # noqa: FBT003


def rows_at_mean_one(result: ViewResult, start: int, stop: int) -> NDArray[Any]:
    """Rows of an embedding in units of the root of its mean squared distance."""
    unit = max(mean_squared_distance(result.embedding), np.finfo(float).tiny)
    return np.asarray(result.embedding[start:stop] / np.sqrt(unit))


def rows_of_embedding(result: ViewResult, start: int, stop: int) -> NDArray[Any]:
    """Rows of an embedding."""
    return np.asarray(result.embedding[start:stop])


# partition graph -------------------------------------------------------------------------------


def pool(views: list[View], start: int, labels: NDArray[np.int64], n_neighbors: int) -> Pool:
    """Evenly spaced members of the clusters among a block of rows."""
    return pool_of_rows(complete_embedding(views), start, labels, n_neighbors)


def partition_rows(
    views: list[View],
    candidates: CandidateEdges,
    labels: NDArray[np.int64],
    members: Pool,
    n_neighbors: int,
) -> GraphRows:
    """Rows of the partition graph."""
    return cluster_rows(complete_embedding(views), candidates, labels, members, n_neighbors)


def bridge_points(views: list[View], start: int, samples: NDArray[np.int64]) -> NDArray[np.float32]:
    """Points of a block between which clusters are connected."""
    return points_at(complete_embedding(views), start, samples)


# results ---------------------------------------------------------------------------------------


def split_rows_of_views(
    parts: list[NDArray[Any]], order: NDArray[np.int32], start: int, edges: tuple[int, ...]
) -> list[RowPieces]:
    """Rows of a block of several arrays by the group of samples to which they belong."""
    return split_rows(parts, order[start : start + len(parts[0])], edges)


def widths(rows: tuple[NDArray[Any], ...]) -> list[int]:
    """Numbers of columns of some arrays."""
    return [array.shape[1] for array in rows]


def n_entries(rows: tuple[NDArray[Any], ...]) -> int:
    """Number of entries of `mscam_dask.solvers.row_graph.join_graph`."""
    return len(rows[0])


def written(
    blocks: list[tuple[NDArray[Any], ...]],
    number: int,
    shifts: tuple[int, ...],
    place: tuple[Path, str],
    first: int,
    start: int,
    stop: int,
) -> bool:
    """Write rows start … stop − 1 of an array of a result: array `number` of each block.

    A shift is added to each block; `first` is the row of the array where the blocks start. False where
    this worker does not see the directory.
    """
    parts = [
        block[number] + shift if shift else block[number]
        for block, shift in zip(blocks, shifts, strict=True)
    ]
    return write_rows(*place, parts, first, start, stop)


# checkpoints -----------------------------------------------------------------------------------


def restored_rows(
    data: NDArray[np.float64],
    indices: NDArray[Any],
    indptr: NDArray[Any],
    start: int,
    n_samples: int,
) -> GraphRows:
    """Block of rows of a graph from its arrays."""
    shape = (len(indptr) - 1, n_samples)
    return GraphRows(start, csr_array((data, indices, indptr), shape=shape))
