"""Tree over clusters: which of them the learned graph connects most."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

__all__ = ["cluster_tree", "weights_between"]


def weights_between(
    graph: csr_array[np.float64], labels: NDArray[np.int64], n_clusters: int
) -> NDArray[np.float64]:
    """Edge weight (c, c) of (A + Aᵀ)/2 within and between clusters."""
    entries = coo_array(graph)
    pairs = (entries.data, (labels[entries.coords[0]], labels[entries.coords[1]]))
    weights = coo_array(pairs, shape=(n_clusters, n_clusters)).toarray()
    return np.asarray(0.5 * (weights + weights.T))


def cluster_tree(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Merge clusters by pair sampling, the most connected first.

    Parameters
    ----------
    weights : (c, c)
        Edge weight within and between clusters, symmetric.

    Returns
    -------
    (c − 1, 4)
        Linkage matrix of SciPy: the two merged nodes (clusters, then earlier merges from c on), their
        distance, and the number of clusters below. ``scipy.cluster.hierarchy.fcluster(tree, m,
        "maxclust")`` has the group of each cluster in m groups.

    Notes
    -----
    The distance of a and b is p(a) p(b) / p(a, b), with p(a, b) the probability that a random edge
    connects them and p(a) that it starts in a. Merged nodes add up, and distances never decrease. One
    edge is spread evenly over all pairs, so that no distance is infinite. O(c³).

    References
    ----------
    T. Bonald, B. Charpentier, A. Galland, A. Hollocou, "Hierarchical graph clustering using node pair
    sampling", MLG workshop (2018), arXiv:1806.01664.
    """
    c = len(weights)
    joint = weights + 1.0 / c**2
    joint /= joint.sum()
    nodes, sizes = np.arange(c), np.ones(c, dtype=np.int64)
    tree = np.empty((c - 1, 4))
    for merge in range(c - 1):
        start = joint.sum(axis=1)
        distance = np.outer(start, start) / joint
        np.fill_diagonal(distance, np.inf)
        i, j = sorted(divmod(int(np.argmin(distance)), len(joint)))
        size = sizes[i] + sizes[j]
        tree[merge] = (*sorted((nodes[i], nodes[j])), distance[i, j], size)
        joint[i] += joint[j]
        joint[:, i] += joint[:, j]
        joint = np.delete(np.delete(joint, j, axis=0), j, axis=1)
        nodes, sizes = np.delete(nodes, j), np.delete(sizes, j)
        nodes[i], sizes[i] = c + merge, size
    return tree
