"""Mutual information between the cluster of a sample and the clusters of its neighbors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.special
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.linalg.distances import sums_by_group


@dataclass(frozen=True, slots=True)
class RandomWalk:
    """One step of the random walk on a graph of n samples."""

    neighbors: NDArray[np.integer[Any]]  # (nnz,) end of each edge, row after row
    steps: NDArray[np.float64]  # (nnz,) probability of each edge, given its row
    starts: NDArray[np.integer[Any]]  # (n + 1,) where the edges of each row start
    connected: NDArray[np.bool_]  # (n,) rows with edges of positive weight; others step anywhere

    @property
    def counts(self) -> NDArray[np.integer[Any]]:
        """Edges of each row (n,)."""
        return np.diff(self.starts)


def random_walk(affinity: csr_array[np.float64]) -> RandomWalk:
    """Random walk on a nonnegative graph (n, n); a sample without edges steps to any sample."""
    n = affinity.shape[0]
    degrees = np.asarray(affinity @ np.ones(n, dtype=affinity.dtype), dtype=np.float64)
    connected = degrees > 0
    counts = np.diff(affinity.indptr)
    steps = affinity.data * np.repeat(1.0 / np.where(connected, degrees, 1.0), counts)
    return RandomWalk(affinity.indices, steps, affinity.indptr, connected)


def information(walk: RandomWalk, labels: NDArray[np.int64]) -> float:
    """Mutual information I(y_0; y_1) of the clusters (n,) before and after a step, in nats.

    The walk starts at a uniformly drawn sample: auto-information of the partition. Unlike
    modularity, it weighs *which* other clusters the remaining edges lead to.

    M. Faccin, M. T. Schaub, J.-C. Delvenne, doi:10.1103/PhysRevLett.127.078301.
    """
    return _of_table(_joint_table(walk, labels, int(labels.max()) + 1))


def evidence(
    walk: RandomWalk,
    labels: NDArray[np.int64],
    n_clusters: int,
) -> NDArray[np.float32]:
    """Evidence (n, c) of the clusters of random neighbors for each cluster a.

    Σ_b p_i(b) log p(b | a), the mean log likelihood of the clusters b of the neighbors: it adds up
    over graphs whose neighbors are independent given the cluster. p(b | a) is from the symmetric
    table of clusters before and after a step, plus one step spread evenly, so that no entry is
    zero.
    """
    n = len(labels)
    table = n * _joint_table(walk, labels, n_clusters)
    table = 0.5 * (table + table.T) + 1.0 / n_clusters**2
    given = np.log(table / table.sum(axis=1, keepdims=True)).T
    votes = csr_array((walk.steps, labels[walk.neighbors], walk.starts), shape=(n, n_clusters))
    found = np.asarray(votes @ given, dtype=np.float32)
    sizes = np.bincount(labels, minlength=n_clusters)
    found[~walk.connected] = (sizes / n) @ given
    return found


def joint_information(labels: NDArray[np.int64], found: NDArray[np.floating[Any]]) -> float:
    """Mutual information of clusters (m,) and the views' summed `evidence` (m, c), overwritten.

    By Bayes' rule p_i(a) ∝ p(a) exp(found); the information is that of the table of mean p_i(a) by
    cluster. A cluster that only one view explains counts in full, not in part as in a mean.
    """
    n_clusters = found.shape[1]
    shares = np.bincount(labels, minlength=n_clusters) / len(labels)
    found[:, shares == 0.0] = -np.inf
    found += np.log(np.where(shares > 0.0, shares, 1.0)).astype(found.dtype)
    found -= found.max(axis=1, keepdims=True)
    np.exp(found, out=found)
    found /= found.sum(axis=1, keepdims=True)
    return _of_table(sums_by_group(found, labels, n_clusters) / len(labels))


def entropy(labels: NDArray[np.int64]) -> float:
    """Entropy of the cluster (n,) of a uniformly drawn sample, in nats."""
    shares = np.bincount(labels) / len(labels)
    return float(scipy.special.entr(shares).sum())


def _joint_table(
    walk: RandomWalk, labels: NDArray[np.int64], n_clusters: int
) -> NDArray[np.float64]:
    """Probability (c, c) of the clusters before and after a step."""
    n = len(labels)
    compact = labels.astype(np.int32)
    cells = np.repeat(compact * np.int32(n_clusters), walk.counts)
    cells += compact[walk.neighbors]
    walks = np.bincount(cells, weights=walk.steps, minlength=n_clusters**2)
    sizes = np.bincount(labels, minlength=n_clusters)
    alone = np.bincount(labels[~walk.connected], minlength=n_clusters)
    return (walks.reshape(n_clusters, n_clusters) + np.outer(alone, sizes / n)) / n


def _of_table(joint: NDArray[np.float64]) -> float:
    """Mutual information of a table of probabilities (c, c), in nats."""
    independent = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    present = joint > 0
    terms = joint[present] * np.log(joint[present] / independent[present])
    return max(0.0, float(np.sum(terms)))


def neighbor_votes(
    views: Sequence[Sequence[NDArray[np.integer[Any]]]], n_samples: int
) -> NDArray[np.float32]:
    """Sum (m, n_samples) over views of the mean graph of their neighbor lists (m, k), distinct or −1."""
    votes = np.zeros((len(views[0][0]), n_samples), dtype=np.float32)
    for lists in views:
        for neighbors in lists:
            rows = np.flatnonzero(neighbors[:, 0] >= 0)
            flat = rows[:, None] * n_samples + neighbors[rows]  # four times as fast as two indices
            votes.reshape(-1)[flat] += np.float32(1.0 / len(lists))
    return votes


def shared_neighbors(
    neighbors: NDArray[np.integer[Any]],
    others: NDArray[np.floating[Any]],
    popularity: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Neighbor overlap (m,): weight of a sample's neighbors in the other views, minus chance.

    (1/k) Σ_{j ∈ N(i)} (B_ij − Σ_l B_lj / m), from neighbors (m, k), their weights B (m, k) and
    popularity Σ_l B_lj / m (n,). Its mean is zero for neighbors independent of B, with the
    in-degrees (hubs) of both graphs held fixed. The chance term follows L. Hubert, P. Arabie,
    doi:10.1007/BF01908075.
    """
    return np.asarray((others - popularity[neighbors]).mean(axis=1), dtype=np.float64)


def modularity(affinity: csr_array[np.float64], labels: NDArray[np.int64]) -> float:
    """Modularity Q = Σ_c [ W_cc / 2m − (vol_c / 2m)² ] of clusters (n,), in symmetric W (n, n).

    0 without edges. M. E. J. Newman, doi:10.1073/pnas.0601602103.
    """
    total = float(affinity.data.sum())
    if total <= 0.0:
        return 0.0
    degrees: NDArray[np.float64] = np.asarray(affinity.sum(axis=1)).ravel()
    volumes = np.bincount(labels, weights=degrees)
    rows = np.repeat(np.arange(affinity.shape[0]), np.diff(affinity.indptr))
    inside = labels[rows] == labels[affinity.indices]
    within = float(affinity.data[inside].sum())
    return within / total - float(np.sum((volumes / total) ** 2))


def permutation_z(neighbors: NDArray[np.integer[Any]], votes: NDArray[np.floating[Any]]) -> float:
    """Inner product of a neighbor graph A with others B, in standard errors over permutations.

    From the neighbors (n, k) and the sum A + B (n, n) only. With A and B centered in rows and
    columns (without hubs), and up to relative order 1/n, Σ A_ij B_ij has the mean tr(A) tr(B) / (n
    − 1) and the variance (Σ A_ij² Σ B_ij² + Σ A_ij A_ji Σ B_ij B_ji) / n². N. Mantel, Cancer
    Research (1967).
    """
    n = len(votes)
    edges = np.arange(n)[:, None], neighbors
    own = np.zeros((n, n), dtype=np.bool_)
    own[edges] = True
    means, total_means = _means(own), _means(votes)

    def product(graph: NDArray[Any], of_graph: NDArray[np.float64]) -> float:
        """Inner product of A and a graph, both centered."""
        return _centered(float(graph[edges].sum(dtype=np.float64)), means, of_graph)

    def total_product(graph: NDArray[Any], of_graph: NDArray[np.float64]) -> float:
        """Inner product of A + B and a graph, both centered."""
        products = float(np.einsum("ij,ij->", votes, graph, dtype=np.float64))
        return _centered(products, total_means, of_graph)

    # by the two graphs, and by one and the transpose of the other
    own_squares, own_mutual = product(own, means), product(own.T, means[::-1])
    along, back = product(votes, total_means), product(votes.T, total_means[::-1])
    squares = total_product(votes, total_means) - 2.0 * along + own_squares
    mutual = total_product(votes.T, total_means[::-1]) - 2.0 * back + own_mutual
    rounding = n * np.finfo(np.float64).eps
    if own_squares <= rounding * neighbors.size or squares <= rounding * np.vdot(votes, votes):
        return 0.0
    trace = float(own.trace() - means[0].sum())
    others_trace = float(votes.trace() - total_means[0].sum()) - trace
    expected = trace * others_trace / (n - 1)
    variance = own_squares * squares + own_mutual * mutual
    return float(n * (along - own_squares - expected) / np.sqrt(variance))


def _means(graph: NDArray[Any]) -> NDArray[np.float64]:
    """Means (2, n) of the rows and of the columns of a graph."""
    return np.stack([graph.mean(axis=axis, dtype=np.float64) for axis in (1, 0)])


def _centered(products: float, first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Inner product of two graphs, once centered in rows and columns, from their means."""
    n = first.shape[1]
    return float(products - n * np.vdot(first, second) + first[0].sum() * second[0].sum())
