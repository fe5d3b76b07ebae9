"""A-step: adaptive neighbors from the summed distances of all views.

Row i of A solves min Σ_j (d_ij a_ij + γ_i a_ij²) on the simplex, with

    d_ij = w · mean_v ω_v ‖z_i − z_j‖² + λ · (n / 2c) · mean_v ‖F_v,i − F_v,j‖²

over the views v, with w the identity weight. Both means average to one over pairs, so λ has no
unit. The candidates of a row are its nearest neighbors in the joint ridge embedding, which are
computed once; no n×n matrix is formed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.linalg.adaptive_neighbors import select_neighbors, tied_neighbor_weights
from mscam_dask.linalg.distances import squared_distances_on_edges
from mscam_dask.linalg.incomplete_blocks import (
    IncompleteBlocks,
    nearest_sharing,
    with_finite_distances,
)
from mscam_dask.linalg.laplacian import connected_components, graph_from_blocks
from mscam_dask.linalg.neighbors import nearest_neighbors
from mscam_dask.linalg.present_samples import PresentSamples
from mscam_dask.linalg.weighted_blocks import WeightedBlocks
from mscam_dask.types.rules import SIZES

__all__ = [
    "CandidateEdges",
    "Graph",
    "assemble_graph",
    "candidate_neighbors",
    "graph_rows",
    "mean_graph",
    "neighbor_graph",
    "projected_distances",
    "projected_weight",
    "spread_affinity",
    "spread_graph",
]


@dataclasses.dataclass(frozen=True, slots=True)
class CandidateEdges:
    """Candidate edges of a block of rows and their data distances.

    Attributes
    ----------
    row_start : int
        First row of the block.
    indices : (m, K) int64 or int32
        Candidate neighbors; −1 where absent.
    squared_distances : (m, K)
        mean_v ω_v ‖z_i − z_j‖²; 0 where absent.
    coverage : (m, K) or None
        Share of the views that have both ends; None if all views have all samples. Without a common
        view, the squared distance is infinite.
    """

    row_start: int
    indices: NDArray[Any]
    squared_distances: NDArray[np.float64]
    coverage: NDArray[np.float64] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Graph:
    """A consensus graph and its connected components.

    Attributes
    ----------
    affinity : (n, n) CSR
        A, rows on the simplex, zero diagonal.
    n_components : int
    components : (n,) int64
        Numbered by first appearance.
    """

    affinity: csr_array[np.float64]
    n_components: int
    components: NDArray[np.int64]


def projected_weight(n_samples: int, n_clusters: int) -> float:
    """Factor n / 2c that makes the mean squared distance of rows of F, FᵀF = I_c, equal to one."""
    return n_samples / (2.0 * n_clusters)


def candidate_neighbors(
    anchors: NDArray[np.float64] | WeightedBlocks | IncompleteBlocks,
    n_candidates: int,
    row_start: int,
    row_stop: int,
) -> CandidateEdges:
    """Candidate neighbors of a block of rows: nearest neighbors in the joint ridge embedding.

    Parameters
    ----------
    anchors : (n, Σr), WeightedBlocks or IncompleteBlocks
        Joint ridge embedding.
    n_candidates : int
    row_start, row_stop : int

    Returns
    -------
    CandidateEdges
        Sorted by distance within each row.
    """
    if isinstance(anchors, IncompleteBlocks):
        indices, distances = nearest_sharing(anchors, n_candidates, row_start, row_stop)
        coverage = _coverage(anchors, np.arange(row_start, row_stop), indices)
        return CandidateEdges(row_start, indices, distances, coverage)
    indices, distances = nearest_neighbors(
        anchors, n_candidates, row_start=row_start, row_stop=row_stop
    )
    return CandidateEdges(row_start, indices, distances)


def _coverage(
    points: IncompleteBlocks, rows: NDArray[np.int64], indices: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Share of the blocks that `rows` and their `indices` have in common."""
    count = np.zeros(indices.shape)
    for own in points.present:
        has = own.positions >= 0
        count += has[rows][:, None] & has[indices]
    return count / len(points.present)


def projected_distances(
    embedding: NDArray[np.float64],
    candidates: CandidateEdges,
    present: PresentSamples | None = None,
) -> NDArray[np.float64]:
    """Squared distances ‖F_i − F_j‖² (m, K) of one view on the candidate edges; 0 where absent.

    If the view does not have all samples, its distances are multiplied by its share of them, so that
    their mean over pairs is the same.
    """
    if present is not None:
        root = np.sqrt(len(present) / present.n_samples)
        embedding = present.spread(embedding * embedding.dtype.type(root), 0.0)
        has = present.positions >= 0
        rows = np.arange(candidates.row_start, candidates.row_start + len(candidates.indices))
        distances = projected_distances(embedding, candidates)
        return np.where(has[rows][:, None] & has[candidates.indices], distances, 0.0)
    distances = squared_distances_on_edges(
        embedding, candidates.indices, row_start=candidates.row_start
    )
    distances[candidates.indices < 0] = 0.0
    return distances


def graph_rows(
    candidates: CandidateEdges,
    projected: NDArray[np.float64] | None,
    *,
    n_neighbors: int,
    data_weight: float,
    projected_weight: float,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Solve the A-step for a block of rows: k neighbors and their weights, Eq. (29)–(30).

    Parameters
    ----------
    candidates : CandidateEdges
    projected : (m, K) or None
        Σ_v ‖F_v,i − F_v,j‖²; None for the data distances alone.
    n_neighbors : int
        k.
    data_weight, projected_weight : float
        Factors on the two distances.

    Returns
    -------
    indices, weights : (m, k)
    """
    squared, shared = candidates.squared_distances, None
    if candidates.coverage is not None:
        shared = candidates.coverage > 0.0
        squared = np.where(shared, squared, 0.0)
        if projected is not None:  # the mean over the views that have both ends
            projected = projected / np.where(shared, candidates.coverage, 1.0)
    distances = data_weight * squared
    if projected is not None:
        distances = distances + projected_weight * projected
    if shared is not None:
        distances = with_finite_distances(np.where(shared, distances, np.inf))
    return select_neighbors(candidates.indices, distances, n_neighbors)


def assemble_graph(
    blocks: list[tuple[NDArray[np.int64], NDArray[np.float64]]],
) -> Graph:
    """Graph of consecutive row blocks, with its connected components."""
    affinity = graph_from_blocks(blocks)
    count, components = connected_components(affinity)
    return Graph(affinity, count, components)


def neighbor_graph(
    anchors: NDArray[np.float64] | WeightedBlocks | IncompleteBlocks, n_neighbors: int
) -> Graph:
    """Adaptive-neighbor graph of all samples from the data distances alone, Eq. (29)–(30).

    Samples that tie with the k-th neighbor are all kept, or all dropped if there are too many.

    Parameters
    ----------
    anchors : (n, r), WeightedBlocks or IncompleteBlocks
        Ridge embedding of one view, or of several side by side.
    n_neighbors : int
        k, at most n − 1; up to 4k are kept.
    """
    n = len(anchors)
    found = candidate_neighbors(anchors, min(SIZES.max_ties * n_neighbors, n - 1), 0, n)
    if found.indices.shape[1] == n_neighbors:
        return assemble_graph(
            [
                graph_rows(
                    found, None, n_neighbors=n_neighbors, data_weight=1.0, projected_weight=0.0
                )
            ]
        )
    weights = tied_neighbor_weights(with_finite_distances(found.squared_distances), n_neighbors)
    return assemble_graph([(found.indices.astype(np.int64), weights)])


def spread_graph(graph: Graph, present: PresentSamples) -> Graph:
    """Graph of all samples from that of the samples of a view; absent ones have no edges."""
    affinity = spread_affinity(graph.affinity, present)
    count, components = connected_components(affinity)
    return Graph(affinity, count, components)


def spread_affinity(
    affinity: csr_array[np.float64], present: PresentSamples
) -> csr_array[np.float64]:
    """Sparse matrix (n, n) of all samples from that (m, m) of the samples of a view."""
    own, samples = affinity.tocoo(), present.samples
    shape = (present.n_samples, present.n_samples)
    return csr_array((own.data, (samples[own.row], samples[own.col])), shape=shape)


def mean_graph(graphs: Sequence[Graph], weights: Sequence[float] | None = None) -> Graph:
    """Solve min_A Σ_v w_v ‖A − A_v‖² with rows on the simplex: the weighted mean of graphs.

    Parameters
    ----------
    graphs : sequence of Graph
        At least one, all of the same samples.
    weights : sequence of float, optional
        w, positive, one for each graph; equal by default.

    Returns
    -------
    Graph
        It has the edges of all graphs, so at most as many components as any of them. The row of a
        sample is the mean over the graphs in which it has neighbors.
    """
    weights = weights or [1.0] * len(graphs)
    affinity = graphs[0].affinity * weights[0]
    for graph, weight in zip(graphs[1:], weights[1:], strict=True):
        affinity = csr_array(affinity + graph.affinity * weight)
    has_neighbors = [np.diff(graph.affinity.indptr) > 0 for graph in graphs]
    if all(rows.all() for rows in has_neighbors):
        affinity = csr_array(affinity * (1.0 / sum(weights)))
    else:
        totals = sum(w * rows for w, rows in zip(weights, has_neighbors, strict=True))
        factors = 1.0 / np.where(totals > 0.0, totals, 1.0)
        affinity.data *= np.repeat(factors, np.diff(affinity.indptr))
    count, components = connected_components(affinity)
    return Graph(affinity, count, components)
