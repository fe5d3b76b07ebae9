"""How much a sample's neighbour in a graph tells about the sample's own cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.special
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

__all__ = ["entropy", "informations", "reliable_information"]

# How soon a partition that neighbours do not tell whole counts for half: docs/decisions/0068.
_POWER = 3

# Clusters up to which a cell of the (c, c) table has a number of 32 bits.
_LARGEST_TABLE = 46_340


@dataclass(frozen=True, slots=True)
class _Walk:
    """One step of the random walk on a graph of n samples.

    Attributes
    ----------
    neighbors : (nnz,) int
        Where each edge leads to, row after row.
    steps : (nnz,)
        Probability of each edge, given its row.
    counts : (n,) int
        Edges of each row.
    connected : (n,) bool
        Rows with edges of positive weight; the others step to any sample.
    """

    neighbors: NDArray[np.integer[Any]]
    steps: NDArray[np.float64]
    counts: NDArray[np.int64]
    connected: NDArray[np.bool_]


def informations(
    affinity: csr_array[np.float64], partitions: Sequence[NDArray[np.int64]]
) -> list[float]:
    """Mutual information between a sample's cluster and that of a random neighbour, in nats.

    Parameters
    ----------
    affinity : (n, n) sparse
        Non-negative; a sample's neighbour is drawn in proportion to its row. Samples without
        edges draw a neighbour from all samples.
    partitions : sequence of (n,) int
        Cluster of each sample, 0 … c−1; what depends on the graph alone is done once.

    Returns
    -------
    list of float
        One for each partition, between 0 (the graph says nothing about it) and log c (c equal
        clusters, no edge between them).

    Notes
    -----
    I(y_0; y_1) of one step of the random walk that starts at a uniformly drawn sample: the
    auto-information of the partition. Unlike modularity, it weighs *which* other clusters the
    remaining edges lead to, and a graph whose every smooth partition scores alike (a
    low-dimensional view) does not drown one with few informative edges. O(nnz + c²) flops.

    References
    ----------
    M. Faccin, M. T. Schaub, J.-C. Delvenne, "State aggregations in Markov chains and block
    models of networks", Phys. Rev. Lett. 127 (2021), doi:10.1103/PhysRevLett.127.078301.
    """
    n = affinity.shape[0]
    degrees = np.asarray(affinity @ np.ones(n, dtype=affinity.dtype), dtype=np.float64)
    connected = degrees > 0
    counts = np.diff(affinity.indptr)
    steps = affinity.data * np.repeat(1.0 / np.where(connected, degrees, 1.0), counts)
    walk = _Walk(affinity.indices, steps, counts, connected)
    return [_information(walk, labels) for labels in partitions]


def entropy(labels: NDArray[np.int64]) -> float:
    """Entropy of the cluster of a uniformly drawn sample, in nats.

    Parameters
    ----------
    labels : (n,) int
        0 … c−1.

    Returns
    -------
    float
        The most information a graph can have on the partition; log c for c equal clusters.
    """
    shares = np.bincount(labels) / len(labels)
    return float(scipy.special.entr(shares).sum())


def reliable_information(information: float, entropy: float) -> float:
    """I (1 + (I / H)³) / 2: information, half of which counts as far as the neighbours tell the whole cluster.

    Parameters
    ----------
    information : float
        I ≥ 0 of a graph, or its mean over graphs, in nats.
    entropy : float
        H of the partition.

    Returns
    -------
    float
        In nats: I where the graph cuts no cluster (I = H), half of it where neighbours tell little.

    Notes
    -----
    Information alone prefers to halve a large cluster to keeping two small ones apart: of clusters
    with shares 0.7, 0.2, 0.06, 0.02 and less that nothing connects it has H = 0.91 nats, and as much where the
    largest is cut into three, though half of each neighbour's information is lost then.
    """
    if entropy <= 0.0:
        return 0.0
    return 0.5 * information * (1.0 + min(1.0, information / entropy) ** _POWER)


def _information(walk: _Walk, labels: NDArray[np.int64]) -> float:
    """Of one partition, by the (c, c) table of the clusters before and after a step."""
    n = len(labels)
    n_clusters = int(labels.max()) + 1
    if n_clusters > _LARGEST_TABLE:
        return _information_of_pairs(walk, labels, n_clusters)
    compact = labels.astype(np.int32)
    cells = np.repeat(compact * np.int32(n_clusters), walk.counts)
    cells += compact[walk.neighbors]
    walks = np.bincount(cells, weights=walk.steps, minlength=n_clusters**2)
    sizes = np.bincount(labels, minlength=n_clusters)
    alone = np.bincount(labels[~walk.connected], minlength=n_clusters)
    joint = (walks.reshape(n_clusters, n_clusters) + np.outer(alone, sizes / n)) / n
    independent = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    present = joint > 0
    terms = joint[present] * np.log(joint[present] / independent[present])
    return max(0.0, float(np.sum(terms)))


def _information_of_pairs(walk: _Walk, labels: NDArray[np.int64], n_clusters: int) -> float:
    """The same without a (c, c) table: only pairs of clusters that a step may join are held."""
    n = len(labels)
    walks = coo_array(
        (walk.steps, (np.repeat(labels, walk.counts), labels[walk.neighbors])),
        shape=(n_clusters, n_clusters),
    ).tocsr()
    sizes = csr_array(np.bincount(labels, minlength=n_clusters)[None, :] / n)
    alone = csr_array(np.bincount(labels[~walk.connected], minlength=n_clusters)[:, None])
    joint = coo_array(walks + alone @ sizes)
    first, second, p = joint.row, joint.col, joint.data / n
    independent = (
        np.bincount(first, weights=p, minlength=n_clusters)[first]
        * np.bincount(second, weights=p, minlength=n_clusters)[second]
    )
    present = p > 0
    return max(0.0, float(np.sum(p[present] * np.log(p[present] / independent[present]))))
