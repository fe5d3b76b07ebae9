"""Steps that the spectral baselines share: affinities, eigenvectors and k-means."""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import ArpackNoConvergence, eigsh
from sklearn.cluster import KMeans

from mscam_dask.benchmark.baselines.base import Baseline, require_choice, require_count
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.errors import DataError
from mscam_dask.linalg.distances import squared_distances
from mscam_dask.linalg.neighbors import nearest_neighbors
from mscam_dask.linalg.orthonormal import orient_columns

__all__ = [
    "AffinityBaseline",
    "gaussian_affinity",
    "kmeans_labels",
    "leading_eigenvectors",
    "neighbor_affinity",
    "normalized_affinity",
    "spectral_labels",
    "unit_rows",
    "view_affinity",
]

_AFFINITIES = ("gaussian", "neighbors")

_LANCZOS_FROM = 500
"""Minimum number of samples for which the Lanczos method is faster."""

_LANCZOS_SHARE = 0.3
"""Maximum number of products with the matrix, as a share of n: more cost as much as dense solution."""


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class AffinityBaseline(Baseline):
    """Base class of the methods that start from an affinity matrix of each view.

    Parameters
    ----------
    affinity : {"gaussian", "neighbors"}, default="gaussian"
        exp(−d² / 2σ²) with σ the median distance, or the symmetrized graph of the `n_neighbors`
        nearest samples.
    n_neighbors : int, default=10
        For affinity="neighbors".
    n_clusters, scale, view_type, n_features_per_view, random_state, memory_limit_bytes
        See `Baseline`.
    """

    affinity: str = "gaussian"
    n_neighbors: int = 10

    def _check(self, data: MultiViewData) -> None:
        require_choice("affinity", self.affinity, _AFFINITIES)
        if self.affinity == "neighbors":
            require_count("n_neighbors", self.n_neighbors, maximum=data.n_samples - 1)


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
        If at least half of all pairs coincide, so that the median distance is 0.
    """
    squared = squared_distances(rows, rows)
    median = float(np.sqrt(np.median(squared[np.triu_indices(len(rows), 1)])))
    if median == 0.0:
        raise DataError(
            f"at least half of the {len(rows)} x {len(rows)} distances of a view are 0, so the median "
            "distance cannot be the width of a Gaussian. Exclude the view or use neighbor graphs."
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
    """Dense `neighbor_affinity` or `gaussian_affinity` of a view, (n, n)."""
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
    Large matrices without zeros go to the Lanczos method, which has the same accuracy in a tenth of
    the time unless the leading eigenvalues are too close. A matrix with zeros may have several
    connected components, and thus a multiple eigenvalue 1 that the Lanczos method can miss from
    one starting vector: the dense solver takes these.
    """
    n = len(matrix)
    if n >= _LANCZOS_FROM and 6 * count < n and np.all(matrix):
        start = np.random.default_rng(0).standard_normal(n)  # the same in every call
        basis = max(4 * count, 40)
        restarts = max(2, int(_LANCZOS_SHARE * n) // (basis - count))
        try:
            _, vectors = eigsh(matrix, count, which="LA", v0=start, ncv=basis, maxiter=restarts)
            return orient_columns(np.ascontiguousarray(vectors[:, ::-1]))
        except ArpackNoConvergence:
            pass  # The dense solver below does not fail.
    _, vectors = scipy.linalg.eigh(matrix, subset_by_index=[n - count, n - 1])
    return orient_columns(np.ascontiguousarray(vectors[:, ::-1]))


def unit_rows(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows scaled to length 1; zero rows stay zero."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1.0), dtype=np.float64)


def kmeans_labels(
    rows: NDArray[np.float64], n_clusters: int, *, n_init: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Labels (n,) of the best of `n_init` k-means++ starts by the within-cluster sum of squares."""
    model = KMeans(n_clusters, n_init=n_init, random_state=int(rng.integers(2**31)))
    return np.asarray(model.fit_predict(rows), dtype=np.int64)


def spectral_labels(
    affinity: NDArray[np.float64], n_clusters: int, *, n_init: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Spectral clustering of Ng, Jordan and Weiss: k-means on the unit rows of leading eigenvectors.

    Parameters
    ----------
    affinity : (n, n)
        Symmetric, nonnegative.
    n_clusters : int
    n_init : int
        Number of k-means starts.
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
