"""MMSC: a non-negative indicator shared by the spectral embeddings of all views.

    min Σ_v tr(G_vᵀ L_v G_v) + α‖G_v − G‖²   over GᵀG = I_c, G ≥ 0

with L_v the normalised Laplacian of view v. The best G_v = α (L_v + αI)⁻¹ G given G, which leaves
max tr(GᵀSG) over GᵀG = I, G ≥ 0, with S = Σ_v (L_v + αI)⁻¹.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from mscam_dask.benchmark.baselines._spectral import (
    AFFINITIES,
    kmeans_labels,
    leading_eigenvectors,
    normalized_affinity,
    unit_rows,
    view_affinity,
)
from mscam_dask.benchmark.baselines.base import (
    Baseline,
    View,
    require_choice,
    require_count,
    require_number,
)
from mscam_dask.data.views.as_multi_view import MultiViewData
from mscam_dask.errors import ConvergenceWarning
from mscam_dask.types.parameters import Scale

__all__ = ["MMSC"]


# Added to the first indicator, so that no entry of G starts at 0 and stays there.
_START_OFFSET = 0.2


class MMSC(Baseline):
    """Multi-modal spectral clustering with a non-negative indicator.

    Parameters
    ----------
    n_clusters : int, default=8
    alpha : float, default=1.0
        Weight of the agreement of the views with the common indicator.
    affinity : {"neighbors", "gaussian"}, default="neighbors"
        Of each view: the symmetrised graph of the `n_neighbors` nearest samples, or
        exp(−d² / 2σ²) with σ the median distance.
    n_neighbors : int, default=10
        For affinity="neighbors".
    scale, view_type, n_features_per_view
        As for `mscam_dask.MSCAM`.
    max_iter : int, default=1000
        Most multiplicative updates.
    tol : float, default=1e-5
        Stop when tr(GᵀSG) changes by less than this share.
    n_init : int, default=20
        Starts of the k-means that makes the first indicator.
    random_state : int, RandomState or None, default=None
    memory_limit_bytes : int, optional
        What the fit may use; None: what the machine has free.

    Attributes
    ----------
    labels_ : (n_samples,) int64
        The column of the largest entry of each row of G. A cluster may come out empty.
    indicator_ : (n_samples, n_clusters)
        G ≥ 0, columns nearly orthonormal.
    objective_ : tuple of float
        tr(GᵀSG) after each update; the largest possible value is the sum of the c largest
        eigenvalues of S.
    n_iter_ : int

    Notes
    -----
    G ← G ∘ √(SG / (G GᵀSG)), which keeps G ≥ 0 because S ≥ 0: the inverse of an M-matrix has no
    negative entry. The start is the indicator of spectral clustering on S, plus 0.2. V inverses,
    O(V n³), then O(n² c) an update; five dense (n, n) arrays.

    References
    ----------
    X. Cai, F. Nie, H. Huang, F. Kamangar, "Heterogeneous image feature integration via multi-modal
    spectral clustering", CVPR 2011, doi:10.1109/CVPR.2011.5995740.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = np.arange(90) % 3
    >>> views = [6 * rng.normal(size=(3, d))[truth] + rng.normal(size=(90, d)) for d in (5, 8)]
    >>> np.bincount(MMSC(3, random_state=0).fit_predict(views)).tolist()
    [30, 30, 30]
    """

    _title: ClassVar[str] = "MMSC"
    _square_matrices: ClassVar[int] = 5

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        alpha: float = 1.0,
        affinity: str = "neighbors",
        n_neighbors: int = 10,
        scale: Scale = "standard",
        view_type: Any = "features",
        n_features_per_view: Sequence[int] | None = None,
        max_iter: int = 1000,
        tol: float = 1e-5,
        n_init: int = 20,
        random_state: int | np.random.RandomState | None = None,
        memory_limit_bytes: int | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.alpha = alpha
        self.affinity = affinity
        self.n_neighbors = n_neighbors
        self.scale = scale
        self.view_type = view_type
        self.n_features_per_view = n_features_per_view
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.random_state = random_state
        self.memory_limit_bytes = memory_limit_bytes

    def _check(self, data: MultiViewData) -> None:
        require_number("alpha", self.alpha)
        require_choice("affinity", self.affinity, AFFINITIES)
        if self.affinity == "neighbors":
            require_count("n_neighbors", self.n_neighbors, maximum=data.n_samples - 1)
        require_count("max_iter", self.max_iter)
        require_number("tol", self.tol, positive=False)
        require_count("n_init", self.n_init)

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
            warnings.warn(
                f"MMSC stopped after max_iter={self.max_iter} updates, the objective still changing "
                f"by {_change(objective):.1e} of itself (tol={self.tol}). Raise max_iter or tol.",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.indicator_ = G
        self.objective_ = tuple(objective)
        self.n_iter_ = len(objective)
        return np.asarray(np.argmax(G, axis=1), dtype=np.int64)

    def _resolvent(self, view: View) -> NDArray[np.float64]:
        """(L + αI)⁻¹ of one view's normalised Laplacian, without negative entries."""
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
