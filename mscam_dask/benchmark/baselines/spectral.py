"""Spectral clustering: affinities, embeddings and k-means of the baselines, and two methods for one table."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import ArpackNoConvergence, eigsh
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.neighbors import kneighbors_graph

from mscam_dask.benchmark.baselines.base import (
    Baseline,
    SingleViewBaseline,
    View,
    require_choice,
    require_count,
    require_number,
)
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.errors import DataError
from mscam_dask.linalg.distances import squared_distances
from mscam_dask.linalg.laplacian import connected_components
from mscam_dask.linalg.neighbors import nearest_neighbors
from mscam_dask.linalg.orthonormal import orient_columns

__all__ = [
    "AffinityBaseline",
    "GaussianSpectral",
    "NeighborSpectral",
    "gaussian_affinity",
    "kmeans_labels",
    "leading_eigenvectors",
    "leading_left_singular",
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


def leading_left_singular(matrix: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Leading left singular vectors (n, <= count) of a tall matrix, through its Gram matrix.

    Singular values below 10⁻⁷ of the largest one are left out.
    """
    values, vectors = np.linalg.eigh(matrix.T @ matrix)
    top, lengths = vectors[:, ::-1][:, :count], np.sqrt(np.maximum(values[::-1][:count], 0.0))
    keep = lengths > 1e-7 * max(float(lengths[0]), np.finfo(np.float64).tiny)
    return np.asarray((matrix @ top[:, keep]) / lengths[keep], dtype=np.float64)


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


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class GaussianSpectral(SingleViewBaseline):
    """Spectral clustering of one view (SC-BSV) or of all views concatenated (SC-Concat).

    Parameters
    ----------
    width_factor : float, default=1.0
        Width of the Gaussian, relative to the median distance between samples.
    n_init : int, default=20
        Number of k-means starts.
    n_clusters, scale, view_type, n_features_per_view, random_state, memory_limit_bytes
        See `Baseline`.

    Attributes
    ----------
    labels_ : (n_samples,) int64

    Notes
    -----
    w_ij = exp(−‖x_i − x_j‖² / 2σ²), w_ii = 0; k-means on the c leading eigenvectors of
    D^-1/2 W D^-1/2, their rows scaled to length one. O(n² d + n³) flops, four dense (n, n) arrays.

    References
    ----------
    A. Y. Ng, M. I. Jordan, Y. Weiss, "On spectral clustering: analysis and an algorithm",
    NIPS 2001.
    """

    _title: ClassVar[str] = "Spectral clustering"
    _square_matrices: ClassVar[int] = 4

    width_factor: float = 1.0
    n_init: int = 20

    def _check(self, data: MultiViewData) -> None:
        require_number("width_factor", self.width_factor)

    def _cluster(self, views: tuple[View, ...], rng: np.random.Generator) -> NDArray[np.int64]:
        rows = views[0] if len(views) == 1 else np.hstack(views)
        affinity = gaussian_affinity(rows, width_factor=self.width_factor)
        np.fill_diagonal(affinity, 0.0)
        return spectral_labels(affinity, self.n_clusters, n_init=self.n_init, rng=rng)


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class NeighborSpectral(Baseline):
    """`sklearn.cluster.SpectralClustering` with affinity "nearest_neighbors" on all views concatenated.

    Parameters
    ----------
    n_neighbors : int, default=10
        Neighbors of a sample in the graph, itself included, as in scikit-learn.
    n_init : int, default=10
        Number of k-means starts.
    n_clusters, scale, view_type, n_features_per_view, random_state, memory_limit_bytes
        See `Baseline`.

    Attributes
    ----------
    labels_ : (n_samples,) int64
    n_connected_components_ : int
        Number for the neighbor graph; the fit warns if there are more than `n_clusters`.

    Notes
    -----
    Memory O(n (Σd + k)): the views twice (apart and concatenated), the graph and its eigenvectors.
    The time of the eigensolver (ARPACK, shift-invert mode) grows faster than n.

    References
    ----------
    U. von Luxburg, "A tutorial on spectral clustering", Statistics and Computing 17 (2007),
    doi:10.1007/s11222-007-9033-z.
    """

    _title: ClassVar[str] = "kNN-graph spectral clustering"

    n_neighbors: int = 10
    n_init: int = 10

    def _check(self, data: MultiViewData) -> None:
        require_count("n_neighbors", self.n_neighbors, minimum=2, maximum=data.n_samples)

    def _working_bytes(self, n_samples: int, widths: Sequence[int]) -> int:
        graph = 12 * 4 * n_samples * self.n_neighbors
        return 8 * n_samples * sum(widths) + graph + 8 * 20 * n_samples * self.n_clusters

    def _cluster(self, views: tuple[View, ...], rng: np.random.Generator) -> NDArray[np.int64]:
        rows = views[0] if len(views) == 1 else np.hstack(views)
        model = SpectralClustering(
            self.n_clusters,
            affinity="nearest_neighbors",
            n_neighbors=self.n_neighbors,
            n_init=self.n_init,
            random_state=int(rng.integers(2**31)),
        )
        if self.n_clusters == len(rows):  # ARPACK cannot compute n eigenvectors
            labels = np.arange(len(rows))
            affinity = kneighbors_graph(rows, self.n_neighbors, include_self=True)
        else:
            with warnings.catch_warnings():
                # Up to c components are intended; the warning below tells of more.
                warnings.filterwarnings("ignore", message="Graph is not fully connected")
                labels = model.fit_predict(rows)
            affinity = model.affinity_matrix_
        self.n_connected_components_, _ = connected_components(csr_array(affinity))
        if self.n_connected_components_ > self.n_clusters:
            self._warn(
                f"the {self.n_neighbors}-neighbor graph has {self.n_connected_components_} connected "
                f"components, more than the {self.n_clusters} clusters, so some are merged "
                "arbitrarily. Raise n_neighbors."
            )
        return np.asarray(labels, dtype=np.int64)
