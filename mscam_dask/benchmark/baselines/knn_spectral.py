"""scikit-learn's spectral clustering of the k-nearest-neighbour graph of all views side by side."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.cluster import SpectralClustering
from sklearn.neighbors import kneighbors_graph

from mscam_dask.benchmark.baselines.base import Baseline, View, require_count
from mscam_dask.data.views.as_multi_view import MultiViewData
from mscam_dask.errors import ConvergenceWarning
from mscam_dask.linalg.laplacian import connected_components
from mscam_dask.types.parameters import Scale

__all__ = ["NeighborSpectral"]


class NeighborSpectral(Baseline):
    """`sklearn.cluster.SpectralClustering` with affinity "nearest_neighbors" on joined views.

    Parameters
    ----------
    n_clusters : int, default=8
    n_neighbors : int, default=10
        Neighbours of a sample in the graph, itself among them, as scikit-learn counts.
    scale, view_type, n_features_per_view
        As for `mscam_dask.MSCAM`.
    n_init : int, default=10
        Starts of k-means.
    random_state : int, RandomState or None, default=None
    memory_limit_bytes : int, optional
        What the fit may use; None: what the machine has free.

    Attributes
    ----------
    labels_ : (n_samples,) int64
    n_connected_components_ : int
        Of the neighbour graph; more than `n_clusters` is warned of.

    Notes
    -----
    Memory O(n (Σd + k)): the views twice (apart and joined), the graph and its eigenvectors. The
    time of the eigensolver (ARPACK, shift and invert) grows a good deal faster than n.

    References
    ----------
    U. von Luxburg, "A tutorial on spectral clustering", Statistics and Computing 17 (2007),
    doi:10.1007/s11222-007-9033-z.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = np.arange(90) % 3
    >>> views = [2 * rng.normal(size=(3, d))[truth] + rng.normal(size=(90, d)) for d in (5, 8)]
    >>> np.bincount(NeighborSpectral(3, random_state=0).fit_predict(views)).tolist()
    [30, 30, 30]
    """

    _title: ClassVar[str] = "kNN-graph spectral clustering"

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_neighbors: int = 10,
        scale: Scale = "standard",
        view_type: Any = "features",
        n_features_per_view: Sequence[int] | None = None,
        n_init: int = 10,
        random_state: int | np.random.RandomState | None = None,
        memory_limit_bytes: int | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_neighbors = n_neighbors
        self.scale = scale
        self.view_type = view_type
        self.n_features_per_view = n_features_per_view
        self.n_init = n_init
        self.random_state = random_state
        self.memory_limit_bytes = memory_limit_bytes

    def _check(self, data: MultiViewData) -> None:
        require_count("n_neighbors", self.n_neighbors, minimum=2, maximum=data.n_samples)
        require_count("n_init", self.n_init)

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
        if self.n_clusters == len(rows):  # one partition is left, and ARPACK refuses n eigenvectors
            labels = np.arange(len(rows))
            affinity = kneighbors_graph(rows, self.n_neighbors, include_self=True)
        else:
            with warnings.catch_warnings():
                # said below, and only where it matters: up to c components are what is looked for
                warnings.filterwarnings("ignore", message="Graph is not fully connected")
                labels = model.fit_predict(rows)
            affinity = model.affinity_matrix_
        self.n_connected_components_, _ = connected_components(csr_array(affinity))
        if self.n_connected_components_ > self.n_clusters:
            warnings.warn(
                f"the {self.n_neighbors}-neighbour graph has {self.n_connected_components_} "
                f"components, more than the {self.n_clusters} clusters: which of them are joined is "
                "arbitrary. Raise n_neighbors.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return np.asarray(labels, dtype=np.int64)
