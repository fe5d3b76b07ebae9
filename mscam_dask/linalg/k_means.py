"""k-means on dense rows: the computation of scikit-learn's `KMeans.fit`, without the estimator.

Autologgers (MLflow) replace the `fit` of every scikit-learn estimator, also inside a fit of this
package, and would log each of some hundred k-means runs as a model of its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster._kmeans import _kmeans_single_lloyd
from sklearn.utils._openmp_helpers import _openmp_effective_n_threads

__all__ = ["k_means", "lloyd"]

_MAX_ITERATIONS = 100


def k_means(
    rows: NDArray[np.float64], n_clusters: int, *, n_init: int, seed: int
) -> tuple[NDArray[np.int64], float]:
    """Solve k-means by Lloyd's iterations from several k-means++ starts: best partition, sum of squares.

    Parameters
    ----------
    rows : (n, d)
    n_clusters : int
        c ≤ n.
    n_init : int
        Number of starts.
    seed : int
        Seed of the starts.

    Returns
    -------
    labels : (n,) int64
        Clusters 0 … c−1, some of which may be empty where rows are equal.
    sum_of_squares : float

    Notes
    -----
    Bit-identical to ``KMeans(n_clusters, n_init=n_init, max_iter=100, tol=0.0, random_state=seed)``.
    A start is better if its sum of squares is lower and its partition differs.
    """
    rng = np.random.RandomState(seed)
    centered = np.ascontiguousarray(rows - rows.mean(axis=0))
    norms = np.einsum("ij,ij->i", centered, centered)
    best: tuple[NDArray[np.int64], float] | None = None
    for _ in range(n_init):
        chosen = _plus_plus(centered, norms, n_clusters, rng)
        labels, squares = _iterate(centered, centered[chosen])
        if best is None or (squares < best[1] and not _is_same(labels, best[0], n_clusters)):
            best = labels, squares
    assert best is not None, "n_init is at least one"
    return best


def lloyd(
    rows: NDArray[np.float64], centers: NDArray[np.float64]
) -> tuple[NDArray[np.int64], float]:
    """Partition that Lloyd's iterations reach from given centers, and its sum of squares.

    Parameters
    ----------
    rows : (n, d)
    centers : (c, d)

    Returns
    -------
    labels : (n,) int64
    sum_of_squares : float
    """
    mean = rows.mean(axis=0)
    return _iterate(np.ascontiguousarray(rows - mean), centers - mean)


def _plus_plus(
    rows: NDArray[np.float64],
    norms: NDArray[np.float64],
    n_clusters: int,
    rng: np.random.RandomState,
) -> list[int]:
    """Rows of the centers of one k-means++ start, the best of 2 + log c draws each.

    With the bits of ``sklearn.cluster.kmeans_plusplus``, without the checks of its arguments, which take
    a third of the time.
    """
    n = len(rows)
    ones = np.ones(n)
    chosen = [int(rng.choice(n, p=ones / n))]
    nearest = _squared_distances(rows, norms, np.array(chosen))[0]
    potential = nearest @ ones
    for _ in range(1, n_clusters):
        draws = rng.uniform(size=2 + int(np.log(n_clusters))) * potential
        drawn = np.minimum(np.searchsorted(np.cumsum(nearest), draws), n - 1)
        distances = np.minimum(nearest, _squared_distances(rows, norms, drawn))
        potentials = distances @ ones
        best = int(np.argmin(potentials))
        potential, nearest = potentials[best], distances[best]
        chosen.append(int(drawn[best]))
    return chosen


def _squared_distances(
    rows: NDArray[np.float64], norms: NDArray[np.float64], some: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Squared distances (m, n) of some rows from all rows with these squared norms."""
    distances = -2.0 * (rows[some] @ rows.T)
    distances += norms[some, None]
    distances += norms
    return np.maximum(distances, 0.0, out=distances)


def _iterate(
    rows: NDArray[np.float64], centers: NDArray[np.float64]
) -> tuple[NDArray[np.int64], float]:
    labels, squares, _, _ = _kmeans_single_lloyd(
        rows,
        np.ones(len(rows)),
        np.ascontiguousarray(centers),
        max_iter=_MAX_ITERATIONS,
        tol=0.0,
        n_threads=_openmp_effective_n_threads(),
    )
    return labels.astype(np.int64), float(squares)


def _is_same(first: NDArray[np.int64], second: NDArray[np.int64], n_clusters: int) -> bool:
    """Whether two labelings are the same partition, up to the clusters' numbers."""
    pairs = np.unique(first * n_clusters + second)
    firsts, seconds = np.divmod(pairs, n_clusters)
    return len(np.unique(firsts)) == len(pairs) == len(np.unique(seconds))
