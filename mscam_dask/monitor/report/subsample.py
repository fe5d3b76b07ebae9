"""Samples that the plots show, and the consensus graph between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["DRAW_LIMIT", "DRAW_SEED", "Drawing", "contracted_graph", "draw_samples"]

DRAW_LIMIT = 2000
"""Size of the random sample. The least certain samples and one of each cluster are added."""

DRAW_SEED = 0


@dataclass(frozen=True, eq=False)
class Drawing:
    """Samples of the plots.

    Attributes
    ----------
    rows : (m,) int64
        Ordered by cluster, then by row.
    n_random
        Size of the random sample; n if all samples are shown.
    """

    rows: NDArray[np.int64]
    n_random: int


def draw_samples(
    labels: NDArray[np.int64], listed: NDArray[np.int64], *, limit: int = DRAW_LIMIT
) -> Drawing:
    """Select all samples, or a random sample, the listed rows, and one row of each cluster.

    Parameters
    ----------
    labels : (n,)
    listed : (l,)
        Rows that are always included.
    limit
        Size of the random sample, and of the rows added for clusters that it does not contain.
    """
    n_samples = len(labels)
    if n_samples <= limit:
        selected, n_random = np.arange(n_samples), n_samples
    else:
        rng = np.random.default_rng(DRAW_SEED)
        random = rng.choice(n_samples, size=limit, replace=False)
        first = np.unique(labels, return_index=True)[1]
        missing = first[~np.isin(labels[first], labels[random])][:limit]
        selected, n_random = np.unique(np.concatenate((random, listed, missing))), limit
    return Drawing(selected[np.lexsort((selected, labels[selected]))].astype(np.int64), n_random)


def contracted_graph(
    graph: csr_array[np.float64], rows: NDArray[np.int64]
) -> csr_array[np.float64]:
    """Graph between some samples, each of which represents the samples nearest to it in the graph.

    Parameters
    ----------
    graph : (n, n) CSR
    rows : (m,)

    Returns
    -------
    (m, m) CSR
        Symmetric, without a diagonal: total weight between the samples that two rows represent.
        With all samples, (A + Aᵀ)/2. Connected components stay connected.

    Notes
    -----
    The nearest sample is the fewest edges away. Samples that no row can reach are omitted.
    """
    from scipy.sparse import coo_array, csr_array
    from scipy.sparse.csgraph import dijkstra

    symmetric: csr_array[np.float64] = csr_array(0.5 * graph + 0.5 * graph.T)
    size = len(rows)
    if size == symmetric.shape[0]:
        nearest = np.empty(size, dtype=np.int64)
        nearest[rows] = np.arange(size)
    else:
        position = np.full(symmetric.shape[0] + 1, -1)
        position[rows] = np.arange(size)
        _, _, sources = dijkstra(
            symmetric, indices=rows, min_only=True, unweighted=True, return_predecessors=True
        )
        nearest = position[np.where(sources < 0, -1, sources)]
    entries = symmetric.tocoo()
    start, end = nearest[entries.coords[0]], nearest[entries.coords[1]]
    kept = (start >= 0) & (end >= 0) & (start != end)
    pairs = (entries.data[kept], (start[kept], end[kept]))
    return csr_array(coo_array(pairs, shape=(size, size)))
