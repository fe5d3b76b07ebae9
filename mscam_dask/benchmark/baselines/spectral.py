"""Spectral clustering: affinities, embeddings and k-means of the baselines, and four methods."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Annotated, ClassVar

import numpy as np
import scipy.linalg
from msgspec import Meta
from scipy.sparse import csr_array
from scipy.sparse.linalg import ArpackNoConvergence, eigsh
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.neighbors import kneighbors_graph
from sklearn.preprocessing import normalize

from mscam_dask.benchmark.baselines.base import (
    Array,
    Baseline,
    Labels,
    SingleViewBaseline,
    check_most,
)
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.errors import DataError
from mscam_dask.linalg.distances import squared_distances
from mscam_dask.linalg.laplacian import (
    connected_components,
    graph_from_neighbors,
    symmetric_affinity,
)
from mscam_dask.linalg.neighbors import nearest_neighbors
from mscam_dask.linalg.orthonormal import basis_from_rows, orient_columns
from mscam_dask.types.allowed import Count, NotNegative, Positive

_LANCZOS_FROM = 500
"""Minimum number of samples for which the Lanczos method is faster."""

_LANCZOS_SHARE = 0.3
"""Maximum number of products with the matrix, as a share of n: more cost as much as dense solution."""


def gaussian_affinity(rows: Array, *, width_factor: float = 1.0) -> Array:
    """w_ij = exp(-||x_i - x_j||^2 / 2 sigma^2), sigma a multiple of the median distance, (n, n)."""
    squared = squared_distances(rows, rows)
    median = float(np.sqrt(np.median(squared[np.triu_indices(len(rows), 1)])))
    if median == 0.0:
        raise DataError(
            f"at least half of the {len(rows)} x {len(rows)} distances of a view are 0, so the median "
            "distance cannot be the width of a Gaussian. Exclude the view or use neighbor graphs."
        )
    affinity = np.exp(squared * (-0.5 / (width_factor * median) ** 2))
    return np.asarray(0.5 * (affinity + affinity.T))


def neighbor_affinity(rows: Array, n_neighbors: int) -> csr_array[np.float64]:
    """(B + B^T) / 2 with b_ij = 1 for the k nearest other samples j of i."""
    indices, _ = nearest_neighbors(rows, n_neighbors)
    return symmetric_affinity(graph_from_neighbors(indices, np.ones(indices.shape)))


def normalized_affinity(affinity: Array) -> Array:
    """D^-1/2 W D^-1/2, with a zero row where a sample has no edge; a new array."""
    degrees = affinity.sum(axis=1)
    root = np.where(degrees > 0, 1.0 / np.sqrt(np.where(degrees > 0, degrees, 1.0)), 0.0)
    return np.asarray(affinity * root[:, None] * root, dtype=np.float64)


def leading_eigenvectors(matrix: Array, count: int) -> Array:
    """Solve max tr(U^T M U) over U^T U = I: U (n, count) by descending eigenvalue, oriented.

    Large matrices without zeros go to the Lanczos method, which takes a tenth of the time unless the
    leading eigenvalues are too close. With zeros there may be several connected components, and
    thus a multiple eigenvalue that it can miss from one starting vector: the dense solver takes these.
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


def kmeans_labels(rows: Array, n_clusters: int, n_init: int, rng: np.random.Generator) -> Labels:
    """Labels (n,) of the best of `n_init` k-means++ starts by the within-cluster sum of squares."""
    model = KMeans(n_clusters, n_init=n_init, random_state=int(rng.integers(2**31)))
    return np.asarray(model.fit_predict(rows))


def spectral_labels(
    affinity: Array, n_clusters: int, n_init: int, rng: np.random.Generator
) -> Labels:
    """Labels (n,) by k-means on the unit rows of leading eigenvectors (Ng, Jordan and Weiss)."""
    vectors = leading_eigenvectors(normalized_affinity(affinity), n_clusters)
    return kmeans_labels(normalize(vectors), n_clusters, n_init, rng)


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class GaussianSpectral(SingleViewBaseline):
    """Spectral clustering of one view (SC-BSV) or of all views concatenated (SC-Concat).

    Parameters
    ----------
    width_factor : float, default=1.0
        Width of the Gaussian, relative to the median distance between samples.
    n_init : int, default=20
        Number of k-means starts.

    Notes
    -----
    w_ij = exp(−‖x_i − x_j‖² / 2σ²), w_ii = 0; k-means on the c leading eigenvectors of
    D^-1/2 W D^-1/2, their rows scaled to length one. O(n² d + n³) flops, four dense (n, n) arrays.

    A. Y. Ng, M. I. Jordan, Y. Weiss, NIPS 2001.
    """

    _title: ClassVar[str] = "Spectral clustering"
    _square_matrices: ClassVar[int] = 4

    width_factor: Positive = 1.0
    n_init: Count = 20

    def _cluster(self, views: tuple[Array, ...], rng: np.random.Generator) -> Labels:
        rows = np.hstack(views)
        affinity = gaussian_affinity(rows, width_factor=self.width_factor)
        np.fill_diagonal(affinity, 0.0)
        return spectral_labels(affinity, self.n_clusters, self.n_init, rng)


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class NeighborSpectral(Baseline):
    """`sklearn.cluster.SpectralClustering` with affinity "nearest_neighbors" on all views concatenated.

    Parameters
    ----------
    n_neighbors : int, default=10
        Neighbors of a sample in the graph, itself included, as in scikit-learn.
    n_init : int, default=10
        Number of k-means starts.

    Attributes
    ----------
    n_connected_components_ : int
        Number for the neighbor graph; the fit warns if there are more than `n_clusters`.

    Notes
    -----
    Memory O(n (Σd + k)): the views twice (apart and concatenated), the graph and its eigenvectors.
    The time of the eigensolver (ARPACK, shift-invert mode) grows faster than n.

    U. von Luxburg, Statistics and Computing 17 (2007), doi:10.1007/s11222-007-9033-z.
    """

    _title: ClassVar[str] = "kNN-graph spectral clustering"

    n_neighbors: Annotated[int, Meta(ge=2)] = 10
    n_init: Count = 10

    def _check(self, data: MultiViewData) -> None:
        check_most("n_neighbors", self.n_neighbors, data.n_samples, f"{data.n_samples} samples")

    def _cluster(self, views: tuple[Array, ...], rng: np.random.Generator) -> Labels:
        rows = np.hstack(views)
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
                f"has {self.n_connected_components_} connected components in the "
                f"{self.n_neighbors}-neighbor graph, more than the {self.n_clusters} clusters, so some are merged "
                "arbitrarily. Raise n_neighbors."
            )
        return np.asarray(labels)


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class CoReg(Baseline):
    """Co-regularized multi-view spectral clustering, centroid-based.

        max Σ_v tr(U_vᵀ L_v U_v) + λ Σ_v tr(U_v U_vᵀ U* U*ᵀ)   over U_vᵀU_v = U*ᵀU* = I_c

    with L_v = D^-1/2 K_v D^-1/2. Both steps have closed forms: U_v are the leading eigenvectors of
    L_v + λ U* U*ᵀ, U* those of Σ_v U_v U_vᵀ.

    Parameters
    ----------
    consensus_weight : float, default=0.01
        λ, the same for all views; the paper tries 0.01 to 0.05.
    max_iter : int, default=30
    tol : float, default=1e-4
        Stop when the objective rises by less than this share.
    n_init : int, default=20
        Number of k-means starts.

    Attributes
    ----------
    objective_ : tuple of float
        After each iteration; nondecreasing.
    n_iter_ : int

    Notes
    -----
    One dense eigenproblem per view and iteration, O(n³); V + 3 dense (n, n) arrays.

    A. Kumar, P. Rai, H. Daumé III, NIPS 2011.
    """

    _title: ClassVar[str] = "CoReg"
    _square_matrices: ClassVar[int] = 3
    _square_matrices_per_view: ClassVar[int] = 1

    consensus_weight: NotNegative = 0.01
    max_iter: Count = 30
    tol: NotNegative = 1e-4
    n_init: Count = 20

    def _cluster(self, views: tuple[Array, ...], rng: np.random.Generator) -> Labels:
        c, weight = self.n_clusters, self.consensus_weight
        L = [normalized_affinity(gaussian_affinity(view)) for view in views]
        centroid = np.zeros((len(views[0]), c))
        for objective in self._until_settled():
            pull = weight * (centroid @ centroid.T)
            U = [leading_eigenvectors(matrix + pull, c) for matrix in L]
            centroid = basis_from_rows(np.hstack(U)).vectors[:, :c]  # of Σ U_v U_vᵀ
            own = sum(np.vdot(E, matrix @ E) for matrix, E in zip(L, U, strict=True))
            agreement = sum(np.sum((centroid.T @ E) ** 2) for E in U)
            objective.append(float(own + weight * agreement))
        return kmeans_labels(normalize(centroid), c, self.n_init, rng)


# Added to the first indicator, because an entry of G that starts at 0 stays at 0.
_START_OFFSET = 0.2


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class MMSC(Baseline):
    """Multi-modal spectral clustering with a nonnegative indicator.

        min Σ_v tr(G_vᵀ L_v G_v) + α‖G_v − G‖²   over GᵀG = I_c, G ≥ 0

    with L_v the normalized Laplacian of view v. The best G_v = α (L_v + αI)⁻¹ G given G, so the
    problem is max tr(GᵀSG) over GᵀG = I, G ≥ 0, with S = Σ_v (L_v + αI)⁻¹.

    Parameters
    ----------
    alpha : float, default=1.0
        Weight of the distance between the views' indicators and the common one.
    n_neighbors : int, default=10
        Neighbors in the graph of each view.
    max_iter : int, default=1000
        Maximum number of multiplicative updates.
    tol : float, default=1e-5
        Stop when tr(GᵀSG) changes by less than this share.
    n_init : int, default=20
        Number of k-means starts for the initial indicator.

    Attributes
    ----------
    labels_ : (n_samples,) int64
        The column of the largest entry of each row of G; a cluster can be empty.
    indicator_ : (n_samples, n_clusters)
        G ≥ 0, columns nearly orthonormal.
    objective_ : tuple of float
        tr(GᵀSG) after each update; the largest possible value is the sum of the c largest
        eigenvalues of S.
    n_iter_ : int

    Notes
    -----
    G ← G ∘ √(SG / (G GᵀSG)), which keeps G ≥ 0 because S ≥ 0: the inverse of an M-matrix has no
    negative entry. The initial G is the indicator of spectral clustering on S, plus 0.2. V inverses,
    O(V n³), then O(n² c) an update; five dense (n, n) arrays.

    X. Cai, F. Nie, H. Huang, F. Kamangar, CVPR 2011, doi:10.1109/CVPR.2011.5995740.
    """

    _title: ClassVar[str] = "MMSC"
    _square_matrices: ClassVar[int] = 5

    alpha: Positive = 1.0
    n_neighbors: Count = 10
    max_iter: Count = 1000
    tol: NotNegative = 1e-5
    n_init: Count = 20

    def _check(self, data: MultiViewData) -> None:
        check_most("n_neighbors", self.n_neighbors, data.n_samples - 1, f"{data.n_samples} samples")

    def _cluster(self, views: tuple[Array, ...], rng: np.random.Generator) -> Labels:
        n, c = len(views[0]), self.n_clusters
        S = np.zeros((n, n))
        for view in views:
            matrix = -normalized_affinity(neighbor_affinity(view, self.n_neighbors).toarray())
            matrix[np.diag_indices(n)] += 1.0 + self.alpha
            inverse = scipy.linalg.solve(matrix, np.eye(n), assume_a="pos", lower=True)
            S += np.maximum(inverse, 0.0)  # rounding may leave -1e-17
        start = kmeans_labels(normalize(leading_eigenvectors(S, c)), c, self.n_init, rng)
        sizes = np.sqrt(np.maximum(np.bincount(start, minlength=c), 1))
        G = np.full((n, c), _START_OFFSET) / sizes
        G[np.arange(n), start] += 1.0 / sizes[start]
        for objective in self._until_settled():
            self.indicator_, SG = G, S @ G
            agreement = G.T @ SG
            objective.append(float(np.trace(agreement)))
            G = G * np.sqrt(SG / np.maximum(G @ agreement, np.finfo(np.float64).tiny))
        return np.asarray(np.argmax(self.indicator_, axis=1))
