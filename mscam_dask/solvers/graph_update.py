"""A-step: adaptive neighbors from the summed distances of all views, Eq. (29)-(30).

Row i of A solves min Σ_j (d_ij a_ij + γ_i a_ij²) on the simplex, with

    d_ij = w · mean_v ω_v ‖z_i − z_j‖² + λ · (n / 2c) · mean_v ‖F_v,i − F_v,j‖²

over the views v, with w the identity weight. `graph_block` computes the distances d_ij, and
`adaptive_neighbor_weights` the solution in closed form,

    a_ij = (d_{i,k+1} − d_ij) / (k d_{i,k+1} − Σ_{h≤k} d_ih) for the k nearest candidates, else 0.

Both means average to one over pairs, so λ has no unit. The candidates of a row are its nearest
neighbors in the joint ridge embedding, which are computed once; no n×n matrix is formed.

The graph weight λ is controlled until the graph has exactly c connected components, by the rule of CAN and MLAN: raise λ
if there are too few components; lower it and repeat the A-step from the same distances if there are too many. If one
growth step jumps over c, λ is bisected.

A graph is in blocks of rows: its Laplacian, its components and sums over its edges are found block by block.

F. Nie, X. Wang, H. Huang, doi:10.1145/2623330.2623726.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array, vstack

from mscam_dask.linalg.distances import WeightedBlocks, squared_distances_to
from mscam_dask.linalg.eigensolver import LaplacianRows
from mscam_dask.linalg.halos import Ranges, RowPieces, blocks_of, halo_of, split_rows
from mscam_dask.linalg.incomplete import (
    IncompleteBlocks,
    PresentSamples,
    nearest_sharing,
    with_finite_distances,
)
from mscam_dask.linalg.laplacian import connected_components, graph_from_neighbors
from mscam_dask.linalg.neighbors import ColumnFacts, column_facts, nearest_neighbors
from mscam_dask.solvers.known_labels import are_cannot_linked, with_links
from mscam_dask.solvers.row_blocks import added
from mscam_dask.types.rules import SIZES

# If the k + 1 distances of a row agree to this relative precision, the row is a tie: differences
# are rounding, and Eq. (30) would divide rounding by rounding.
_TIE_TOLERANCE = 16 * np.finfo(np.float64).eps

# Relative precision of ties for distances from coordinates in single precision.
_SEARCH_TOLERANCE = 1e-5

# Neighbors beyond the k-th that are searched at first, for ties with it.
_FEW_TIES = 5


@dataclasses.dataclass(frozen=True, slots=True)
class CandidateEdges:
    """Candidate edges of a block of rows and their data distances."""

    row_start: int
    indices: NDArray[Any]  # (m, K), −1 where absent
    squared_distances: NDArray[np.floating[Any]]  # (m, K) mean_v ω_v ‖z_i − z_j‖², 0 where absent
    coverage: NDArray[np.float64] | None = None  # (m, K) share of the views with both ends

    def in_double(self) -> NDArray[np.float64]:
        """Squared distances in double precision."""
        return self.squared_distances.astype(np.float64, copy=False)


def projected_weight(n_samples: int, n_clusters: int) -> float:
    """Factor n / 2c that makes the mean squared distance of rows of F, FᵀF = I_c, equal to one."""
    return n_samples / (2.0 * n_clusters)


def search_facts(points: WeightedBlocks | IncompleteBlocks, some: slice) -> list[ColumnFacts]:
    """Facts of the columns of some views for `candidate_neighbors`; none of incomplete views."""
    return [] if isinstance(points, IncompleteBlocks) else column_facts(points, some)


def candidate_neighbors(
    points: NDArray[np.float64] | WeightedBlocks | IncompleteBlocks,
    n_candidates: int,
    row_start: int,
    row_stop: int,
    facts: Sequence[Sequence[ColumnFacts]] = (),
) -> CandidateEdges:
    """Candidate edges of some rows: nearest neighbors in the joint ridge embedding, by distance.

    The facts of the columns of each view, in groups of views, are computed if they are not given.
    """
    if isinstance(points, IncompleteBlocks):
        indices, distances = nearest_sharing(points, n_candidates, row_start, row_stop)
        count = np.zeros(indices.shape)
        for own in points.present:
            has = own.positions >= 0
            count += has[row_start:row_stop, None] & has[indices]
        return CandidateEdges(row_start, indices, distances, count / len(points.present))
    of_views = [one for group in facts for one in group] or None
    indices, distances = nearest_neighbors(
        points, n_candidates, row_start=row_start, row_stop=row_stop, facts=of_views
    )
    return CandidateEdges(row_start, indices, distances)


@dataclasses.dataclass(frozen=True, slots=True)
class GraphRows:
    """A block of rows of a consensus graph."""

    start: int  # first row
    affinity: csr_array[np.float64]  # (m, n) on the simplex, columns ascending

    @property
    def stop(self) -> int:
        """Row after the last."""
        return self.start + self.affinity.shape[0]


def graph_block(
    candidates: CandidateEdges,
    projected: NDArray[np.float64] | None,
    n_neighbors: int,
    data_weight: float,
    projected_factor: float,
    n_samples: int,
    known: NDArray[np.int64] | None = None,
) -> GraphRows:
    """Solve the A-step, Eq. (29)–(30), for a block of rows of a graph of `n_samples`.

    `projected` is Σ_v ‖F_v,i − F_v,j‖² (m, K), or None, and `projected_factor` is λ n / (2 c V). Weights of pairs with other known labels (n,) are 0.
    """
    distances = _joint_distances(candidates, projected, data_weight, projected_factor)
    if known is None:
        chosen, weights = select_neighbors(candidates.indices, distances, n_neighbors)
    else:
        linked = with_links(candidates.indices, distances, known, candidates.row_start)
        chosen, weights = select_neighbors(*linked, n_neighbors)
        weights[are_cannot_linked(chosen, known, candidates.row_start)] = 0.0
    return GraphRows(candidates.row_start, graph_from_neighbors(chosen, weights, n_samples))


def _joint_distances(
    candidates: CandidateEdges,
    projected: NDArray[np.float64] | None,
    data_weight: float,
    projected_factor: float,
) -> NDArray[np.float64]:
    """Distances d_ij (m, K) of the A-step; pairs without a common view are the farthest, at a finite distance."""
    squared, coverage = candidates.in_double(), candidates.coverage
    if coverage is None:
        own = data_weight * squared
        return own if projected is None else own + projected_factor * projected
    is_shared = coverage > 0.0
    distances = data_weight * np.where(is_shared, squared, 0.0)
    if projected is not None:  # the mean over the views that have both ends
        distances = distances + projected_factor * (projected / np.where(is_shared, coverage, 1.0))
    return with_finite_distances(np.where(is_shared, distances, np.inf))


def select_neighbors(
    indices: NDArray[np.int64], squared_distances: NDArray[np.float64], n_neighbors: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The k nearest candidates of each row by (distance, index), with their adaptive-neighbor weights, (m, k) each.

    Candidates (m, K) are distinct, −1 where absent. If all K = k are taken (k = n − 1), d_{k+1} = d_k is used, the
    smallest width for which the row stays within them: the farthest has weight 0, k equal distances uniform weights.
    """
    absent = indices < 0
    all_taken = indices.shape[1] == n_neighbors and not absent.any()
    distances = np.where(absent, np.inf, squared_distances)
    order = np.lexsort((indices, distances), axis=-1)[:, : n_neighbors + 1]
    nearest = np.take_along_axis(distances, order, axis=1)
    if all_taken:
        nearest = np.concatenate((nearest, nearest[:, -1:]), axis=1)
    chosen = np.take_along_axis(indices, order[:, :n_neighbors], axis=1)
    return chosen.astype(np.int64, copy=False), adaptive_neighbor_weights(nearest)


def adaptive_neighbor_weights(
    sorted_squared_distances: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Solve argmin_a Σ_j d_ij a_ij + γ_i ‖a_i‖² on the simplex, with k weights above 0 (n, k).

    From the k + 1 least distances of each row, ascending: a_ij = (d_{i,k+1} − d_ij) / (k d_{i,k+1} − Σ_{h≤k} d_ih),
    Eq. (29) with γ_i from Eq. (30). Sums are of differences (no cancellation) relative to d_{i,k+1} (no overflow). A
    candidate tied with the (k + 1)-th gets 0; a row of equal distances (0/0, duplicates) gets 1/k everywhere.

    F. Nie, X. Wang, H. Huang, doi:10.1145/2623330.2623726. Xu et al., arXiv:1709.03656.
    """
    gaps, _ = _relative_gaps(sorted_squared_distances)
    k = gaps.shape[1]
    total = gaps.sum(axis=1, keepdims=True)
    tied = total <= k * _TIE_TOLERANCE
    weights: NDArray[np.float64] = np.where(tied, 1.0 / k, gaps / np.where(tied, 1.0, total))
    return weights


def tied_neighbor_weights(
    sorted_squared_distances: NDArray[np.float64], n_neighbors: int
) -> NDArray[np.float64]:
    """Adaptive-neighbor weights (n, K) that keep or drop all tied candidates: k_i of row i.

    k_i is the smallest number, at least k, such that the next candidate is farther (by a share of 1e-5); if the ties
    extend beyond the K > k candidates, the number of neighbors nearer than the ties. If all distances are equal, weights are 1/K.
    """
    d = sorted_squared_distances
    kth = d[:, n_neighbors - 1 : n_neighbors]
    farther = d > (1.0 + _SEARCH_TOLERANCE) * kth
    ends = np.take_along_axis(d, np.argmax(farther, axis=1)[:, None], axis=1)
    reach = np.where(farther.any(axis=1, keepdims=True), ends, kth)
    near = d < (1.0 - _SEARCH_TOLERANCE) * reach
    return adaptive_neighbor_weights(np.hstack((np.where(near, d, reach), reach)))


def neighbor_widths(sorted_squared_distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Width γ_i = (k d_{i,k+1} − Σ_{h≤k} d_ih) / 2 with k weights above 0 (n,), Eq. (30)."""
    gaps, farthest = _relative_gaps(sorted_squared_distances)
    widths: NDArray[np.float64] = 0.5 * gaps.sum(axis=1) * farthest[:, 0]
    return widths


def _relative_gaps(
    sorted_squared_distances: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(d_{k+1} - d_j) / d_{k+1} for j <= k, shape (n, k), and d_{k+1}, shape (n, 1)."""
    d = sorted_squared_distances
    farthest = d[:, -1:]
    divisor = np.where(farthest > 0, farthest, 1.0)
    return (farthest - d[:, :-1]) / divisor, farthest


def neighbor_graph(
    points: NDArray[np.float64] | WeightedBlocks | IncompleteBlocks, n_neighbors: int
) -> csr_array[np.float64]:
    """Adaptive-neighbor graph (n, n) of the data distances alone, Eq. (29)–(30); ties with the k-th are all kept, up to 4k, or dropped."""
    n = len(points)
    found = candidate_neighbors(points, min(n_neighbors + _FEW_TIES, n - 1), 0, n)
    if found.indices.shape[1] == n_neighbors:
        return graph_block(found, None, n_neighbors, 1.0, 0.0, n).affinity
    distances = with_finite_distances(found.in_double())
    if (distances[:, -1] <= (1.0 + _SEARCH_TOLERANCE) * distances[:, n_neighbors - 1]).any():
        found = candidate_neighbors(points, min(SIZES.max_ties * n_neighbors, n - 1), 0, n)
        distances = with_finite_distances(found.in_double())
    return graph_from_neighbors(found.indices, tied_neighbor_weights(distances, n_neighbors))


def spread_affinity(
    affinity: csr_array[np.float64], present: PresentSamples
) -> csr_array[np.float64]:
    """Sparse matrix (n, n) of all samples from that (m, m) of the samples of a view."""
    own, samples = affinity.tocoo(), present.samples
    shape = (present.n_samples, present.n_samples)
    return csr_array((own.data, (samples[own.row], samples[own.col])), shape=shape)


# rows in blocks ---------------------------------------------------------------------------------


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
    views: Sequence[Sequence[NDArray[Any]]],
    factors: Sequence[float],
    candidates: CandidateEdges,
    ranges: Ranges,
) -> NDArray[np.float64]:
    """Sum over views of projected squared distances on candidate edges; 0 where an end is absent.

    `views` has for each view its embedding in each block of the candidates and of the rows, NaN for absent samples, and
    `factors` those of its squared distances. Complete views are side by side.
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

    for parts, factor in zip(views, factors, strict=True):
        embedding = halo.gather(parts)
        if factor != 1.0:
            embedding *= embedding.dtype.type(np.sqrt(factor))
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


# graph weight ------------------------------------------------------------------------------------


# Bisections of one jump: a factor of growth^(1/2^6) on λ is too small to move an edge.
_MAX_BISECTIONS = 6

# If λ was divided this often by the growth factor without effect, the data distances alone give
# more than c components.
_MAX_REDUCTIONS = 20

# Consecutive outer iterations that end in a jump over c before λ counts as stalled.
_MAX_STALLS = 3


class Decision(enum.Enum):
    """Decision on the graph of an A-step; checkpoints hold the values."""

    ACCEPT = "ACCEPT"  # go on to the next outer iteration
    RETRY = "RETRY"  # repeat the A-step with the new weight
    REACHED = "REACHED"  # the graph has exactly c components
    STALLED = "STALLED"  # no λ gave exactly c components, in several consecutive iterations
    STOPPED = "STOPPED"  # the new partition is not accepted, or its score is nearly perfect


@dataclasses.dataclass(frozen=True, slots=True)
class RankControl:
    """Immutable state of the rank control."""

    n_clusters: int
    growth: float  # factor on λ
    graph_weight: float  # λ of the next A-step
    below: float | None = None  # largest λ with too few components, for these distances
    above: float | None = None  # smallest λ with too many
    retries: int = 0  # repeated A-steps of this outer iteration
    stalls: int = 0  # consecutive outer iterations that ended in a jump over c

    def observe(self, n_components: int) -> tuple[Decision, RankControl]:
        """Decision after an A-step with `graph_weight` and these components, and next state."""
        if n_components == self.n_clusters:
            return Decision.REACHED, self
        if n_components > self.n_clusters:
            return self._after_too_many()
        if self.above is None:
            return Decision.ACCEPT, self._grown(stalls=0)
        if self.retries < _MAX_BISECTIONS:
            return self._retry(below=self.graph_weight, above=self.above)
        stalls = self.stalls + 1  # accept despite the jump over c
        decision = Decision.STALLED if stalls >= _MAX_STALLS else Decision.ACCEPT
        return decision, self._grown(stalls=stalls)

    def _grown(self, *, stalls: int) -> RankControl:
        """State of the next outer iteration."""
        weight = self.graph_weight * self.growth
        return RankControl(self.n_clusters, self.growth, weight, stalls=stalls)

    def _after_too_many(self) -> tuple[Decision, RankControl]:
        if self.below is None and self.retries >= _MAX_REDUCTIONS:
            return Decision.STALLED, self
        if self.below is not None and self.retries > _MAX_BISECTIONS:
            return Decision.STALLED, self  # the same weight gave too few before, too many now
        if self.below is not None and self.retries == _MAX_BISECTIONS:
            # one last step with a weight that gave too few, so that the outer loop can continue
            return Decision.RETRY, dataclasses.replace(
                self,
                graph_weight=self.below,
                above=self.graph_weight,
                retries=self.retries + 1,
            )
        return self._retry(below=self.below, above=self.graph_weight)

    def _retry(self, *, below: float | None, above: float) -> tuple[Decision, RankControl]:
        weight = above / self.growth if below is None else (below * above) ** 0.5
        state = dataclasses.replace(
            self, graph_weight=weight, below=below, above=above, retries=self.retries + 1
        )
        return Decision.RETRY, state
