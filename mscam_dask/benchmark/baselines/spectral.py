"""Spectral clustering of one table: with a Gaussian kernel, or with a nearest-neighbor graph."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.cluster import SpectralClustering
from sklearn.neighbors import kneighbors_graph

from mscam_dask.benchmark.baselines._spectral import gaussian_affinity, spectral_labels
from mscam_dask.benchmark.baselines.base import (
    Baseline,
    SingleViewBaseline,
    View,
    require_count,
    require_number,
)
from mscam_dask.data.views.as_multi_view import MultiViewData
from mscam_dask.errors import ConvergenceWarning
from mscam_dask.linalg.laplacian import connected_components

__all__ = ["GaussianSpectral", "NeighborSpectral"]


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
        Of the neighbor graph; the fit warns if there are more than `n_clusters`.

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
            warnings.warn(
                f"the {self.n_neighbors}-neighbor graph has {self.n_connected_components_} connected "
                f"components, more than the {self.n_clusters} clusters, so some are merged "
                "arbitrarily. Raise n_neighbors.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return np.asarray(labels, dtype=np.int64)
