"""From affinities and embeddings to labels: the last steps of the spectral methods."""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import ArpackNoConvergence, eigsh
from sklearn.cluster import KMeans

from mscam_dask.errors import DataError
from mscam_dask.linalg.distances import squared_distances
from mscam_dask.linalg.neighbors import nearest_neighbors
from mscam_dask.linalg.orthonormal import orient_columns

__all__ = [
    "AFFINITIES",
    "gaussian_affinity",
    "kmeans_labels",
    "leading_eigenvectors",
    "neighbor_affinity",
    "normalized_affinity",
    "spectral_labels",
    "unit_rows",
    "view_affinity",
]

AFFINITIES = ("gaussian", "neighbors")

_LANCZOS_FROM = 500
"""Samples from which Lanczos' method is the faster one."""

_LANCZOS_SHARE = 0.3
"""Products with the matrix, as a share of n, that cost less than factoring it densely."""


def gaussian_affinity(
    rows: NDArray[np.float64], *, width_factor: float = 1.0
) -> NDArray[np.float64]:
    """w_ij = exp(-||x_i - x_j||^2 / 2 sigma^2) with sigma a multiple of the median distance.

    Parameters
    ----------
    rows : (n, d)
    width_factor : float
        sigma over the median of ||x_i - x_j||, i < j.

    Returns
    -------
    (n, n)
        Symmetric, ones on the diagonal.

    Raises
    ------
    DataError
        More than half of all pairs coincide, so that the median distance is 0.
    """
    squared = squared_distances(rows, rows)
    median = float(np.sqrt(np.median(squared[np.triu_indices(len(rows), 1)])))
    if median == 0.0:
        raise DataError(
            f"at least half of the {len(rows)} x {len(rows)} distances of a view are 0: the median "
            "distance is no width for a Gaussian. Leave the view out or use neighbour graphs."
        )
    squared *= -0.5 / (width_factor * median) ** 2
    np.exp(squared, out=squared)
    squared += squared.T.copy()
    squared *= 0.5
    return squared


def neighbor_affinity(rows: NDArray[np.float64], n_neighbors: int) -> csr_array[np.float64]:
    """(B + B^T) / 2 with b_ij = 1 for the k nearest other samples j of i."""
    indices, _ = nearest_neighbors(rows, n_neighbors)
    n = len(rows)
    pointers = np.arange(0, n * n_neighbors + 1, n_neighbors)
    graph: csr_array[np.float64] = csr_array(
        (np.ones(n * n_neighbors), indices.ravel(), pointers), shape=(n, n)
    )
    return csr_array((graph + graph.T) * 0.5)


def view_affinity(rows: NDArray[np.float64], kind: str, n_neighbors: int) -> NDArray[np.float64]:
    """`neighbor_affinity` or `gaussian_affinity`, one of `AFFINITIES`, dense (n, n)."""
    if kind == "neighbors":
        return np.asarray(neighbor_affinity(rows, n_neighbors).toarray())
    return gaussian_affinity(rows)


def normalized_affinity(affinity: NDArray[np.float64]) -> NDArray[np.float64]:
    """D^-1/2 W D^-1/2, with a zero row where a sample has no edge; a new array."""
    degrees = affinity.sum(axis=1)
    root = np.where(degrees > 0, 1.0 / np.sqrt(np.where(degrees > 0, degrees, 1.0)), 0.0)
    return np.asarray(affinity * root[:, None] * root, dtype=np.float64)


def leading_eigenvectors(matrix: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Solve max tr(U^T M U) over U^T U = I: the eigenvectors of the largest eigenvalues.

    Parameters
    ----------
    matrix : (n, n)
        Symmetric.
    count : int

    Returns
    -------
    (n, count)
        By descending eigenvalue, the entry of largest magnitude positive.

    Notes
    -----
    A large matrix without a zero is left to Lanczos' method, to rounding, in a tenth of the time,
    unless its leading eigenvalues are so close that it takes more products than factoring costs.
    One with zeros may be of several components and its eigenvalue 1 multiple, which one starting
    vector does not see safely: that is factored densely.
    """
    n = len(matrix)
    if n >= _LANCZOS_FROM and 6 * count < n and np.all(matrix):
        start = np.random.default_rng(0).standard_normal(n)  # the same at every call
        basis = max(4 * count, 40)
        restarts = max(2, int(_LANCZOS_SHARE * n) // (basis - count))
        try:
            _, vectors = eigsh(matrix, count, which="LA", v0=start, ncv=basis, maxiter=restarts)
            return orient_columns(np.ascontiguousarray(vectors[:, ::-1]))
        except ArpackNoConvergence:
            pass  # factored below
    _, vectors = scipy.linalg.eigh(matrix, subset_by_index=[n - count, n - 1])
    return orient_columns(np.ascontiguousarray(vectors[:, ::-1]))


def unit_rows(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows divided by their length; zero rows stay."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1.0), dtype=np.float64)


def kmeans_labels(
    rows: NDArray[np.float64], n_clusters: int, *, n_init: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """The best of `n_init` k-means++ starts by the within-cluster sum of squares, (n,)."""
    model = KMeans(n_clusters, n_init=n_init, random_state=int(rng.integers(2**31)))
    return np.asarray(model.fit_predict(rows), dtype=np.int64)


def spectral_labels(
    affinity: NDArray[np.float64], n_clusters: int, *, n_init: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Ng, Jordan and Weiss: k-means on the unit rows of the leading eigenvectors.

    Parameters
    ----------
    affinity : (n, n)
        Symmetric, non-negative.
    n_clusters : int
    n_init : int
        Starts of k-means.
    rng : numpy.random.Generator

    Returns
    -------
    (n,) int64

    References
    ----------
    A. Y. Ng, M. I. Jordan, Y. Weiss, "On spectral clustering: analysis and an algorithm",
    NIPS 2001.
    """
    vectors = leading_eigenvectors(normalized_affinity(affinity), n_clusters)
    return kmeans_labels(unit_rows(vectors), n_clusters, n_init=n_init, rng=rng)
