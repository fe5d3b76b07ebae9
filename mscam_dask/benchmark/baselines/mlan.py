"""MLAN: adaptive neighbors on weighted views, with exactly c connected components.

    min Σ_v √(Σ_ij ‖x_i − x_j‖²_v s_ij) + α ‖S‖²   rows of S on the simplex, rank(L_S) = n − c

The square root leads to view weights w_v = 1 / (2 √(Σ_ij ‖x_i − x_j‖²_v s_ij)); the
rank constraint becomes 2λ tr(FᵀL_S F) with λ adjusted until S has c components.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.benchmark.baselines.base import Baseline, View, require_count
from mscam_dask.data.views.as_multi_view import MultiViewData
from mscam_dask.errors import DataError
from mscam_dask.linalg.distances import squared_distances, squared_distances_on_edges
from mscam_dask.linalg.eigensolver import bottom_eigenpairs
from mscam_dask.linalg.laplacian import connected_components, graph_from_neighbors, laplacian
from mscam_dask.linalg.simplex import adaptive_neighbor_weights_global
from mscam_dask.solvers.graph_update import neighbor_widths
from mscam_dask.solvers.rank_control import Decision, RankControl

__all__ = ["MLAN"]


@dataclasses.dataclass(frozen=True, slots=True)
class _Rows:
    """The k nearest samples of each row by the weighted distances, and these distances."""

    indices: NDArray[np.int64]
    squared_distances: NDArray[np.float64]

    def graph(
        self, embedding: NDArray[np.float64], graph_weight: float, width: float
    ) -> csr_array[np.float64]:
        """S: argmin Σ_j (d_ij + λ‖f_i − f_j‖²) s_ij + α s_ij² on the simplex, row by row."""
        projected = squared_distances_on_edges(embedding, self.indices)
        weights = adaptive_neighbor_weights_global(
            self.squared_distances + graph_weight * projected, width
        )
        return graph_from_neighbors(self.indices, weights)


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class MLAN(Baseline):
    """Multi-view learning with adaptive neighbors (clustering).

    Parameters
    ----------
    n_neighbors : int, default=9
        k, the only parameter of the method; the paper uses 9.
    max_iter : int, default=30
    n_clusters, scale, view_type, n_features_per_view, random_state, memory_limit_bytes
        See `Baseline`.

    Attributes
    ----------
    labels_ : (n_samples,) int64
        Connected components of `similarity_graph_`.
    similarity_graph_ : (n_samples, n_samples) CSR
        S, rows on the simplex.
    n_connected_components_ : int
        Number of them: c, unless the fit warned.
    view_weights_ : (n_views,)
        w_v, normalized to sum 1.
    graph_weight_ : float
        λ of the last step; 0 if the initial graph has c components.
    n_iter_ : int

    Notes
    -----
    n² (Σd + V) flops and V + 3 dense (n, n) arrays. α is the mean over rows of
    (k d_{i,k+1} − Σ_{h≤k} d_ih) / 2 with equal weights 1/V, computed once; it is also the initial λ.
    As the w_v are far smaller than 1/V, α outweighs the differences between the k nearest, which
    nearly all rows keep. Each row has edges among its k nearest by the current weights, as in
    common implementations of the method. λ doubles while there are fewer than c components; when
    there are more, the step is repeated with a smaller λ (bisection).

    References
    ----------
    F. Nie, G. Cai, X. Li, "Multi-view clustering and semi-supervised classification with adaptive
    neighbours", AAAI 2017, doi:10.1609/aaai.v31i1.10909.
    """

    _title: ClassVar[str] = "MLAN"
    _square_matrices: ClassVar[int] = 3
    _square_matrices_per_view: ClassVar[int] = 1

    n_neighbors: int = 9
    max_iter: int = 30

    def _check(self, data: MultiViewData) -> None:
        # d_{i,k+1} needs one sample more than the k neighbors and the row itself.
        require_count("n_neighbors", self.n_neighbors, maximum=data.n_samples - 2)

    def _cluster(self, views: tuple[View, ...], rng: np.random.Generator) -> NDArray[np.int64]:
        squared = [squared_distances(view, view) for view in views]
        weights = np.full(len(views), 1.0 / len(views))
        rows, width = _neighbors(squared, weights, self.n_neighbors)
        if not width > 0:
            raise DataError(
                f"the {self.n_neighbors + 1} nearest samples of every row are equally far away, so "
                "the width of the neighborhoods is 0. Raise n_neighbors or remove duplicate samples."
            )
        flat = np.zeros((len(views[0]), 1))
        graph = rows.graph(flat, 0.0, width)
        control = RankControl(self.n_clusters, 2.0, width)
        warm: NDArray[np.float64] | None = None
        steps, graph_weight = 0, 0.0
        count, _ = connected_components(graph)
        decision = Decision.REACHED if count == self.n_clusters else Decision.ACCEPT
        while decision is Decision.ACCEPT and steps < self.max_iter:
            weights = _view_weights(squared, graph)
            rows, _ = _neighbors(squared, weights, self.n_neighbors)
            # The spectrum of the last accepted graph serves every value of λ.
            spectrum = bottom_eigenpairs(
                laplacian(graph), self.n_clusters, warm_start=warm, rng=rng
            )
            warm = spectrum.vectors
            steps += 1
            decision = Decision.RETRY
            while decision is Decision.RETRY:
                graph_weight = control.graph_weight
                graph = rows.graph(spectrum.vectors, graph_weight, width)
                count, _ = connected_components(graph)
                decision, control = control.observe(count)

        if count != self.n_clusters:
            self._warn(
                f"MLAN has {count} connected components instead of {self.n_clusters} after {steps} "
                "iterations; the labels are these components. Lower n_neighbors for more components, "
                "raise it for fewer, or raise max_iter."
            )
        self.similarity_graph_ = graph
        self.n_connected_components_, labels = connected_components(graph)
        self.view_weights_ = weights / weights.sum()
        self.graph_weight_ = graph_weight
        self.n_iter_ = steps
        return labels


def _neighbors(
    squared: list[NDArray[np.float64]], weights: NDArray[np.float64], n_neighbors: int
) -> tuple[_Rows, float]:
    """The k nearest samples by Σ w_v d_v, and the mean width α that keeps k of them."""
    total = np.zeros_like(squared[0])
    for weight, matrix in zip(weights, squared, strict=True):
        total += weight * matrix
    np.fill_diagonal(total, np.inf)
    nearest = np.argpartition(total, n_neighbors, axis=1)[:, : n_neighbors + 1]
    distances = np.take_along_axis(total, nearest, axis=1)
    order = np.lexsort((nearest, distances), axis=-1)
    indices = np.take_along_axis(nearest, order, axis=1)
    distances = np.take_along_axis(distances, order, axis=1)
    width = float(neighbor_widths(distances).mean())
    return _Rows(indices[:, :n_neighbors], distances[:, :n_neighbors]), width


def _view_weights(
    squared: list[NDArray[np.float64]], graph: csr_array[np.float64]
) -> NDArray[np.float64]:
    """w_v = 1 / (2 √(Σ_ij d_ij s_ij)), (V,)."""
    edges = graph.tocoo()
    costs = np.array([np.sum(matrix[edges.row, edges.col] * edges.data) for matrix in squared])
    if not (costs > 0).all():
        raise DataError(
            f"view(s) number {np.flatnonzero(costs <= 0).tolist()} have no distance above 0 between "
            "neighbors, so their weight would be infinite. Remove duplicate samples or the view."
        )
    return np.asarray(0.5 / np.sqrt(costs), dtype=np.float64)
