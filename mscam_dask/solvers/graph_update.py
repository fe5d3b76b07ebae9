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

F. Nie, X. Wang, H. Huang, doi:10.1145/2623330.2623726.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.linalg.distances import WeightedBlocks
from mscam_dask.linalg.incomplete import (
    IncompleteBlocks,
    PresentSamples,
    nearest_sharing,
    with_finite_distances,
)
from mscam_dask.linalg.laplacian import graph_from_neighbors
from mscam_dask.linalg.neighbors import ColumnFacts, column_facts, nearest_neighbors
from mscam_dask.solvers.known_labels import are_cannot_linked, with_links
from mscam_dask.types.rules import SIZES

# If the k + 1 distances of a row agree to this relative precision, the row is a tie: differences
# are rounding, and Eq. (30) would divide rounding by rounding.
_TIE_TOLERANCE = 16 * np.finfo(np.float64).eps

# Relative precision of ties for distances from coordinates in single precision.
_SEARCH_TOLERANCE = 1e-5


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
    facts: Sequence[ColumnFacts] | None = None,
) -> CandidateEdges:
    """Candidate edges of some rows: nearest neighbors in the joint ridge embedding, by distance."""
    if isinstance(points, IncompleteBlocks):
        indices, distances = nearest_sharing(points, n_candidates, row_start, row_stop)
        count = np.zeros(indices.shape)
        for own in points.present:
            has = own.positions >= 0
            count += has[row_start:row_stop, None] & has[indices]
        return CandidateEdges(row_start, indices, distances, count / len(points.present))
    indices, distances = nearest_neighbors(
        points, n_candidates, row_start=row_start, row_stop=row_stop, facts=facts
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
    projected_weight: float,
    n_samples: int,
    known: NDArray[np.int64] | None = None,
) -> GraphRows:
    """Solve the A-step, Eq. (29)–(30), for a block of rows of a graph of `n_samples`.

    `projected` is Σ_v ‖F_v,i − F_v,j‖² (m, K), or None. Weights of pairs with other known labels (n,) are 0.
    """
    squared, shared = candidates.in_double(), None
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
    if known is None:
        chosen, weights = select_neighbors(candidates.indices, distances, n_neighbors)
    else:
        linked = with_links(candidates.indices, distances, known, candidates.row_start)
        chosen, weights = select_neighbors(*linked, n_neighbors)
        weights[are_cannot_linked(chosen, known, candidates.row_start)] = 0.0
    return GraphRows(candidates.row_start, graph_from_neighbors(chosen, weights, n_samples))


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
    extend beyond the K > k candidates, the number of neighbors nearer than the ties. If all are at one, weights are 1/K.
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
    found = candidate_neighbors(points, min(SIZES.max_ties * n_neighbors, n - 1), 0, n)
    if found.indices.shape[1] == n_neighbors:
        return graph_block(found, None, n_neighbors, 1.0, 0.0, n).affinity
    weights = tied_neighbor_weights(with_finite_distances(found.in_double()), n_neighbors)
    return graph_from_neighbors(found.indices, weights)


def spread_affinity(
    affinity: csr_array[np.float64], present: PresentSamples
) -> csr_array[np.float64]:
    """Sparse matrix (n, n) of all samples from that (m, m) of the samples of a view."""
    own, samples = affinity.tocoo(), present.samples
    shape = (present.n_samples, present.n_samples)
    return csr_array((own.data, (samples[own.row], samples[own.col])), shape=shape)


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
