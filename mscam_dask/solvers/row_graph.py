"""Consensus graph whose rows are in blocks: A-step, Laplacian, connected components, spectral cuts by a sample of rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array, vstack

from mscam_dask.linalg.distances import squared_distances_to
from mscam_dask.linalg.eigensolver import LaplacianRows
from mscam_dask.linalg.halos import Ranges, RowPieces, blocks_of, halo_of, split_rows
from mscam_dask.linalg.laplacian import connected_components
from mscam_dask.solvers.admm import EmbeddedRows
from mscam_dask.solvers.graph_update import CandidateEdges, GraphRows
from mscam_dask.solvers.known_labels import cut_by_classes
from mscam_dask.solvers.row_blocks import added
from mscam_dask.solvers.spectral_cut import (
    Minimum,
    SpectralEmbedding,
    canonical_labels,
    cluster_means,
    near_optimal_partitions,
    nearest_mean,
    spread_rows,
    walk_embedding,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Components:
    """Connected components of a graph: their number, and that of each sample (n,) int32."""

    count: int
    labels: NDArray[np.int32]


def mean_rows(blocks: Sequence[GraphRows], weights: Sequence[float]) -> GraphRows:
    """Solve min_A Σ_v w_v ‖A − A_v‖² on the simplex: the weighted mean of the graphs in which a row has neighbors."""
    total = blocks[0].affinity * weights[0]
    for block, weight in zip(blocks[1:], weights[1:], strict=True):
        total = csr_array(total + block.affinity * weight)
    has = [np.diff(block.affinity.indptr) > 0 for block in blocks]
    if all(rows.all() for rows in has):
        total = csr_array(total * (1.0 / sum(weights)))
    else:
        counted = sum(weight * rows for weight, rows in zip(weights, has, strict=True))
        factors = 1.0 / np.where(counted > 0.0, counted, 1.0)
        total.data *= np.repeat(factors, np.diff(total.indptr))
    total.sort_indices()
    return GraphRows(blocks[0].start, total)


def linked_blocks(rows: GraphRows | CandidateEdges, ranges: Ranges) -> tuple[int, ...]:
    """Blocks in which the neighbors of some rows are."""
    columns = rows.affinity.indices if isinstance(rows, GraphRows) else rows.indices
    return blocks_of(columns, ranges)


def spanning_forest(rows: GraphRows) -> NDArray[np.int32]:
    """Edges (2, t) that connect the same samples as the edges of a block of rows."""
    own, affinity = np.arange(rows.start, rows.stop), rows.affinity
    names, places = np.unique(np.concatenate([own, affinity.indices]), return_inverse=True)
    first, second = np.repeat(places[: len(own)], np.diff(affinity.indptr)), places[len(own) :]
    edges = csr_array((np.ones(len(first)), (first, second)), shape=(len(names), len(names)))
    _, labels = connected_components(edges)
    _, least = np.unique(labels, return_index=True)
    others = least[labels] != np.arange(len(names))
    return np.stack([names[others], names[least[labels[others]]]]).astype(np.int32)


def components_of_forests(forests: Sequence[NDArray[np.int32]], n_samples: int) -> Components:
    """Connected components of a graph from the forests of its blocks of rows."""
    ends = np.concatenate(forests, axis=1)
    edges = csr_array(
        (np.ones(ends.shape[1], dtype=np.int8), (ends[0], ends[1])), shape=(n_samples, n_samples)
    )
    count, labels = connected_components(edges)
    return Components(count, labels.astype(np.int32))


def laplacian_rows(
    own: GraphRows, others: Sequence[GraphRows], ranges: Ranges, precision: DTypeLike = np.float32
) -> LaplacianRows:
    """Rows of the Laplacian from the same rows of A, and from all blocks with edges into them."""
    start, stop, n = own.start, own.stop, own.affinity.shape[1]
    m = stop - start
    rows: list[NDArray[Any]] = [np.repeat(np.arange(m), np.diff(own.affinity.indptr))]
    columns: list[NDArray[Any]] = [own.affinity.indices]
    values = [own.affinity.data]
    for other in others:
        into = np.flatnonzero((other.affinity.indices >= start) & (other.affinity.indices < stop))
        rows.append(other.affinity.indices[into] - start)
        columns.append(other.start + np.searchsorted(other.affinity.indptr, into, side="right") - 1)
        values.append(other.affinity.data[into])
    both: csr_array[Any] = csr_array(
        (
            0.5 * np.concatenate(values),
            (np.concatenate(rows), np.concatenate(columns).astype(np.int32)),
        ),
        shape=(m, n),
    )
    degrees = np.asarray(both.sum(axis=1))
    diagonal = csr_array((degrees, (np.arange(m), np.arange(start, stop))), shape=(m, n))
    total = csr_array(diagonal - both)
    # an isolated sample has no entry: the halo still has its row
    halo, place = halo_of(np.concatenate([total.indices, np.arange(start, stop)]), ranges)
    n_halo = sum(len(part) for part in halo.rows)
    matrix: csr_array[Any] = csr_array(
        (total.data.astype(precision), place[: total.nnz], total.indptr.astype(np.int32)),
        shape=(m, n_halo),
    )
    return LaplacianRows(matrix, halo, place[total.nnz :], float(total.diagonal(start).max()))


# Bytes of embeddings of several views side by side: few columns at a time are several times slower.
_TOGETHER_BYTES = 16 * 2**20


def projected_distances(
    views: Sequence[Sequence[EmbeddedRows]],
    candidates: CandidateEdges,
    ranges: Ranges,
) -> NDArray[np.float64]:
    """Sum over views of projected squared distances on candidate edges; 0 where an end is absent.

    `views` has for each view its embedding in each block of the candidates and of the rows, complete ones side by side.
    """
    m = len(candidates.indices)
    own = np.arange(candidates.row_start, candidates.row_start + m)
    halo, place = halo_of(np.concatenate([own, candidates.indices.ravel()]), ranges)
    indices: NDArray[Any] = place[m:].reshape(candidates.indices.shape)
    absent = indices < 0
    waiting: list[NDArray[Any]] = []
    sums = []

    def measure() -> None:
        if waiting:
            points = waiting[0] if len(waiting) == 1 else np.hstack(waiting)
            waiting.clear()
            distances = squared_distances_to(points, place[:m], indices)
            distances[absent] = 0.0
            np.nan_to_num(distances, copy=False, nan=0.0)
            sums.append(distances)

    for parts in views:
        embedding = halo.gather([part.rows for part in parts])
        if parts[0].factor != 1.0:
            embedding *= embedding.dtype.type(np.sqrt(parts[0].factor))
        if np.isnan(embedding).any():
            measure()
            waiting.append(embedding)
            measure()
        else:
            waiting.append(embedding)
            if sum(one.nbytes for one in waiting) + embedding.nbytes > _TOGETHER_BYTES:
                measure()
    measure()
    return added(sums)


def row_weights_between(
    rows: GraphRows, labels: NDArray[np.int64], n_clusters: int
) -> NDArray[np.float64]:
    """Edge weight (c, c) of a block of rows of (A + Aᵀ)/2 within and between clusters."""
    affinity = rows.affinity
    own = np.repeat(labels[rows.start : rows.stop], np.diff(affinity.indptr))
    pairs = own * n_clusters + labels[affinity.indices]
    flat = np.bincount(pairs, weights=affinity.data, minlength=n_clusters**2)
    weights = flat.reshape(n_clusters, n_clusters)
    return np.asarray(0.5 * (weights + weights.T))


def split_graph(rows: GraphRows, order: NDArray[np.int32], edges: Sequence[int]) -> list[RowPieces]:
    """Rows of a block by sample, with columns by sample: piece g has the samples edges[g] … edges[g + 1] − 1."""
    affinity = rows.affinity
    of_samples: csr_array[np.float64] = csr_array(
        (affinity.data, order[affinity.indices], affinity.indptr), shape=affinity.shape
    )
    return split_rows([of_samples], order[rows.start : rows.stop], edges)


def join_graph(pieces: Sequence[RowPieces], start: int, stop: int) -> GraphRows:
    """Rows of samples start … stop − 1, with ascending columns, from all pieces."""
    parts, samples = [], []
    for piece in pieces:
        mine = np.flatnonzero((piece.destinations >= start) & (piece.destinations < stop))
        parts.append(piece.arrays[0][mine])
        samples.append(piece.destinations[mine])
    rows = csr_array(vstack(parts, format="csr")[np.argsort(np.concatenate(samples))])
    rows.sort_indices()
    return GraphRows(start, rows)


def whole_graph(blocks: Sequence[GraphRows], order: NDArray[np.int32]) -> csr_array[np.float64]:
    """Graph (n, n) of all samples in their own order, from all blocks of rows in the order (n,)."""
    pieces = [split_graph(block, order, (0, len(order)))[0] for block in blocks]
    return join_graph(pieces, 0, len(order)).affinity


@dataclasses.dataclass(frozen=True, slots=True)
class CutSample:
    """Sample of a spectral embedding for k-means."""

    embedding: SpectralEmbedding
    positions: NDArray[np.int64]  # (m,) of its rows
    values: NDArray[np.float64]  # (q,) eigenvalues
    mean: NDArray[Any]  # (q,) mean row of all eigenvectors

    def rows(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """Spectral embedding of any rows of the eigenvectors."""
        n_clusters = self.embedding.vectors.shape[1]
        vectors = vectors[:, : len(self.values)]
        return walk_embedding(self.values, vectors, n_clusters, mean=self.mean).rows


@dataclasses.dataclass(frozen=True, slots=True)
class KnownRows:
    """Rows (l, q) of the eigenvectors with a known label, these labels, and the samples of the rows."""

    vectors: NDArray[Any]
    labels: NDArray[np.int64]
    samples: NDArray[np.int64]


def known_rows(
    vectors: NDArray[Any],
    n_pairs: int,
    start: int,
    order: NDArray[np.int32],
    known: NDArray[np.int64],
) -> KnownRows:
    """Rows with a known label in a block of the first eigenvectors."""
    samples = order[start : start + len(vectors)].astype(np.int64)
    mine = np.flatnonzero(known[samples] >= 0)
    return KnownRows(vectors[mine, :n_pairs], known[samples[mine]], samples[mine])


def join_known(blocks: Sequence[KnownRows]) -> KnownRows:
    """Rows with a known label in all blocks."""
    return KnownRows(
        np.concatenate([block.vectors for block in blocks]),
        np.concatenate([block.labels for block in blocks]),
        np.concatenate([block.samples for block in blocks]),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Cuts:
    """Partitions of a sample (m,) and the means (c, q) of their clusters."""

    labels: list[NDArray[np.int64]]
    means: list[NDArray[Any]]
    held_out: NDArray[np.int64] | None = None  # (l,) clusters of known rows in the last cut

    def with_classes(self, sample: CutSample, known: KnownRows) -> Cuts:
        """Cuts, and one by the mean rows of the known classes, in the place of those of the first cut."""
        found = cut_by_classes(
            sample.embedding.rows, self.means[0], sample.rows(known.vectors), known.labels
        )
        if found is None:
            return self
        labels, held_out, means = found
        means = means.astype(sample.embedding.rows.dtype)
        return Cuts([*self.labels, labels], [*self.means, means], held_out)


def sample_vectors(
    vectors: NDArray[Any], n_pairs: int, start: int, n_samples: int, n_wanted: int
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Evenly spaced rows (m, q) of the first eigenvectors in a block, and the sum (q,) of all its rows."""
    positions = spread_rows(n_samples, n_wanted) - start
    mine = positions[(positions >= 0) & (positions < len(vectors))]
    used = vectors[:, :n_pairs]
    return used[mine], used.sum(axis=0, dtype=np.float64)


def cut_sample(
    samples: Sequence[tuple[NDArray[Any], NDArray[np.float64]]],
    values: NDArray[np.float64],
    n_clusters: int,
    n_samples: int,
    n_wanted: int,
) -> CutSample:
    """Sample of the spectral embedding from the samples of all blocks."""
    vectors = np.concatenate([rows for rows, _ in samples])
    mean = (np.sum([total for _, total in samples], axis=0) / n_samples).astype(vectors.dtype)
    values = values[: vectors.shape[1]]
    embedding = walk_embedding(values, vectors, n_clusters, mean=mean)
    return CutSample(embedding, spread_rows(n_samples, n_wanted), values, mean)


def choose_cuts(
    sample: CutSample,
    started: tuple[Minimum, Minimum | None] | None,
    random: Sequence[list[Minimum]],
    all_minima: bool,  # noqa: FBT001 - tasks take positions
    known: KnownRows | None = None,
) -> Cuts:
    """Partitions among the local minima of k-means on a sample.

    With `all_minima` the good minima of the random starts; then the one from the earlier partition, and the least of
    all (with `all_minima`, of the pivoted-QR assignment), if `started` has them; and the one by the classes of known rows.
    """
    drawn = [minimum for group in random for minimum in group]
    chosen = near_optimal_partitions(drawn) if all_minima else []
    if started is not None:
        least, from_known = started
        if not all_minima:
            least = min([least, *drawn], key=lambda minimum: minimum[1])
        chosen += [least[0]] if from_known is None else [from_known[0], least[0]]
    cuts = Cuts(chosen, [cluster_means(sample.embedding, labels) for labels in chosen])
    return cuts if known is None else cuts.with_classes(sample, known)


def extend_rows(vectors: NDArray[Any], sample: CutSample, cuts: Cuts) -> NDArray[np.int32]:
    """Each partition (p, m) on a block of rows, by the nearest mean."""
    rows = sample.rows(vectors)
    return np.stack([nearest_mean(rows, means) for means in cuts.means]).astype(np.int32)


def join_partitions(
    blocks: Sequence[NDArray[np.int32]],
    sample: CutSample,
    cuts: Cuts,
    order: NDArray[np.int32],
    known: KnownRows | None = None,
) -> list[NDArray[np.int32]]:
    """Partitions (n,) in the order of the samples from blocks of rows; rows of the sample keep their cluster, so none is empty."""
    partitions = []
    for number, labels in enumerate(cuts.labels):
        joined = np.concatenate([block[number] for block in blocks])
        joined[sample.positions] = labels
        own = np.empty_like(joined)
        own[order] = joined
        if known is not None and cuts.held_out is not None and number == len(cuts.labels) - 1:
            own[known.samples] = cuts.held_out
        partitions.append(canonical_labels(own).astype(np.int32))
    return partitions
