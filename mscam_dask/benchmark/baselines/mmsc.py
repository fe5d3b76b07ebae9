"""MMSC: a nonnegative indicator shared by the spectral embeddings of all views.

    min Σ_v tr(G_vᵀ L_v G_v) + α‖G_v − G‖²   over GᵀG = I_c, G ≥ 0

with L_v the normalized Laplacian of view v. The best G_v = α (L_v + αI)⁻¹ G given G, so the
problem is max tr(GᵀSG) over GᵀG = I, G ≥ 0, with S = Σ_v (L_v + αI)⁻¹.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from mscam_dask.benchmark.baselines.base import View, require_number
from mscam_dask.benchmark.baselines.spectral import (
    AffinityBaseline,
    kmeans_labels,
    leading_eigenvectors,
    normalized_affinity,
    unit_rows,
    view_affinity,
)
from mscam_dask.data.views.as_multi_view import MultiViewData

__all__ = ["MMSC"]


# Added to the first indicator, because an entry of G that starts at 0 stays at 0.
_START_OFFSET = 0.2


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class MMSC(AffinityBaseline):
    """Multi-modal spectral clustering with a nonnegative indicator.

    Parameters
    ----------
    alpha : float, default=1.0
        Weight of the distance between the views' indicators and the common one.
    max_iter : int, default=1000
        Maximum number of multiplicative updates.
    tol : float, default=1e-5
        Stop when tr(GᵀSG) changes by less than this share.
    n_init : int, default=20
        Number of k-means starts for the initial indicator.
    affinity, n_neighbors
        See `AffinityBaseline`; the default affinity is "neighbors".
    n_clusters, scale, view_type, n_features_per_view, random_state, memory_limit_bytes
        See `Baseline`.

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

    References
    ----------
    X. Cai, F. Nie, H. Huang, F. Kamangar, "Heterogeneous image feature integration via multi-modal
    spectral clustering", CVPR 2011, doi:10.1109/CVPR.2011.5995740.
    """

    _title: ClassVar[str] = "MMSC"
    _square_matrices: ClassVar[int] = 5

    alpha: float = 1.0
    affinity: str = "neighbors"
    max_iter: int = 1000
    tol: float = 1e-5
    n_init: int = 20

    def _check(self, data: MultiViewData) -> None:
        super()._check(data)
        require_number("alpha", self.alpha)
        require_number("tol", self.tol, positive=False)

    def _cluster(self, views: tuple[View, ...], rng: np.random.Generator) -> NDArray[np.int64]:
        n, c = len(views[0]), self.n_clusters
        S = np.zeros((n, n))
        for view in views:
            S += self._resolvent(view)
        start = kmeans_labels(unit_rows(leading_eigenvectors(S, c)), c, n_init=self.n_init, rng=rng)
        sizes = np.sqrt(np.maximum(np.bincount(start, minlength=c), 1))
        G = np.full((n, c), _START_OFFSET) / sizes
        G[np.arange(n), start] += 1.0 / sizes[start]
        objective: list[float] = []
        for _ in range(self.max_iter):
            SG = S @ G
            agreement = G.T @ SG
            objective.append(float(np.trace(agreement)))
            if len(objective) > 1 and _change(objective) <= self.tol:
                break
            divisor = np.maximum(G @ agreement, np.finfo(np.float64).tiny)
            G = G * np.sqrt(SG / divisor)
        else:
            self._warn_not_settled()
        self.indicator_ = G
        self.objective_ = tuple(objective)
        self.n_iter_ = len(objective)
        return np.asarray(np.argmax(G, axis=1), dtype=np.int64)

    def _resolvent(self, view: View) -> NDArray[np.float64]:
        """(L + αI)⁻¹ of one view's normalized Laplacian, without negative entries."""
        affinity = view_affinity(view, self.affinity, self.n_neighbors)
        np.fill_diagonal(affinity, 0.0)
        matrix = -normalized_affinity(affinity)
        matrix[np.diag_indices(len(matrix))] += 1.0 + self.alpha
        factor = scipy.linalg.cho_factor(matrix, lower=True, overwrite_a=True)
        inverse = scipy.linalg.cho_solve(factor, np.eye(len(view)), overwrite_b=True)
        return np.asarray(np.maximum(inverse, 0.0))  # rounding may leave -1e-17


def _change(objective: list[float]) -> float:
    if len(objective) < 2:
        return np.inf
    return abs(objective[-1] - objective[-2]) / abs(objective[-1])
