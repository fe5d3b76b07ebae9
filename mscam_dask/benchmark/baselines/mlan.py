"""MLAN: adaptive neighbours on weighted views, with exactly c connected components.

    min Σ_v √(Σ_ij ‖x_i − x_j‖²_v s_ij) + α ‖S‖²   rows of S on the simplex, rank(L_S) = n − c

The root makes view weights w_v = 1 / (2 √(Σ_ij ‖x_i − x_j‖²_v s_ij)) appear by themselves; the
rank constraint becomes 2λ tr(FᵀL_S F) with λ steered until S has c components.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.benchmark.baselines.base import Baseline, View, require_count
from mscam_dask.data.views.as_multi_view import MultiViewData
from mscam_dask.errors import ConvergenceWarning, DataError
from mscam_dask.linalg.adaptive_neighbors import adaptive_neighbor_weights_global, neighbor_widths
from mscam_dask.linalg.distances import squared_distances, squared_distances_on_edges
from mscam_dask.linalg.eigensolver import bottom_eigenpairs
from mscam_dask.linalg.laplacian import connected_components, graph_from_neighbors, laplacian
from mscam_dask.solvers.rank_control import Decision, RankControl
from mscam_dask.types.parameters import Scale

__all__ = ["MLAN"]


@dataclasses.dataclass(frozen=True, slots=True)
class _Rows:
    """The k nearest samples of each row under the weighted distances, and those distances."""

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


class MLAN(Baseline):
    """Multi-view learning with adaptive neighbours (clustering).

    Parameters
    ----------
    n_clusters : int, default=8
    n_neighbors : int, default=9
        k, the only parameter of the method; the paper uses 9.
    scale, view_type, n_features_per_view
        As for `mscam_dask.MSCAM`.
    max_iter : int, default=30
    random_state : int, RandomState or None, default=None
        Only for the start of the eigensolver.
    memory_limit_bytes : int, optional
        What the fit may use; None: what the machine has free.

    Attributes
    ----------
    labels_ : (n_samples,) int64
        Connected components of `similarity_graph_`.
    similarity_graph_ : (n_samples, n_samples) CSR
        S, rows on the simplex.
    n_connected_components_ : int
        c, or the fit has warned.
    view_weights_ : (n_views,)
        w_v, normalised to sum 1.
    graph_weight_ : float
        λ of the last step, 0 when the data alone have c components.
    n_iter_ : int

    Notes
    -----
    n² (Σd + V) flops and V + 3 dense (n, n) arrays. α is the mean over rows of
    (k d_{i,k+1} − Σ_{h≤k} d_ih) / 2 with equal weights 1/V, found once; it is also the first λ.
    As the w_v are far smaller than 1/V, α outweighs the differences between the k nearest, which
    nearly all rows keep. Each row chooses among its k nearest under the current weights, as in
    common implementations of the method. λ doubles while there are fewer than c components; when
    there are more, the step is repeated with a smaller λ (bisection).

    References
    ----------
    F. Nie, G. Cai, X. Li, "Multi-view clustering and semi-supervised classification with adaptive
    neighbours", AAAI 2017, doi:10.1609/aaai.v31i1.10909.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = np.arange(90) % 3
    >>> views = [6 * rng.normal(size=(3, d))[truth] + rng.normal(size=(90, d)) for d in (5, 8)]
    >>> model = MLAN(3, random_state=0).fit(views)
    >>> model.n_connected_components_, np.bincount(model.labels_).tolist()
    (3, [30, 30, 30])
    """

    _title: ClassVar[str] = "MLAN"
    _square_matrices: ClassVar[int] = 3
    _square_matrices_per_view: ClassVar[int] = 1

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_neighbors: int = 9,
        scale: Scale = "standard",
        view_type: Any = "features",
        n_features_per_view: Sequence[int] | None = None,
        max_iter: int = 30,
        random_state: int | np.random.RandomState | None = None,
        memory_limit_bytes: int | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_neighbors = n_neighbors
        self.scale = scale
        self.view_type = view_type
        self.n_features_per_view = n_features_per_view
        self.max_iter = max_iter
        self.random_state = random_state
        self.memory_limit_bytes = memory_limit_bytes

    def _check(self, data: MultiViewData) -> None:
        # d_{i,k+1} is needed: one sample beyond the k neighbours and the row itself
        require_count("n_neighbors", self.n_neighbors, maximum=data.n_samples - 2)
        require_count("max_iter", self.max_iter)

    def _cluster(self, views: tuple[View, ...], rng: np.random.Generator) -> NDArray[np.int64]:
        squared = [squared_distances(view, view) for view in views]
        weights = np.full(len(views), 1.0 / len(views))
        rows, width = _neighbors(squared, weights, self.n_neighbors)
        if not width > 0:
            raise DataError(
                f"the {self.n_neighbors + 1} nearest samples of every row are equally far, so "
                "the width of MLAN's neighbourhoods is 0. Raise n_neighbors or remove duplicated samples."
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
            # the spectrum of the last accepted graph, for all tries of λ
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
            warnings.warn(
                f"MLAN ended with {count} connected components instead of {self.n_clusters} after "
                f"{steps} iterations; the labels are these components. Set n_neighbors lower when "
                "there are too few, higher when there are too many, or raise max_iter.",
                ConvergenceWarning,
                stacklevel=3,
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
    """The k nearest under Σ w_v d_v, and the mean width α that keeps k of them."""
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
            f"view(s) number {np.flatnonzero(costs <= 0).tolist()} have no distance at all between "
            "neighbours: MLAN's weight for them is infinite. Remove duplicated samples or the view."
        )
    return np.asarray(0.5 / np.sqrt(costs), dtype=np.float64)
