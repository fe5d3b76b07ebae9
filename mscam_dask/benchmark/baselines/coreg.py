"""CoReg: spectral embeddings of the views, regularized toward a consensus embedding.

    max Σ_v tr(U_vᵀ L_v U_v) + λ Σ_v tr(U_v U_vᵀ U* U*ᵀ)   over U_vᵀU_v = U*ᵀU* = I_c

with L_v = D^-1/2 K_v D^-1/2. Both steps have closed forms: U_v are the leading eigenvectors of
L_v + λ U* U*ᵀ, U* those of Σ_v U_v U_vᵀ.
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

__all__ = ["CoReg"]


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class CoReg(AffinityBaseline):
    """Co-regularized multi-view spectral clustering, centroid-based.

    Parameters
    ----------
    consensus_weight : float, default=0.01
        λ, the same for all views; the paper tries 0.01 to 0.05.
    max_iter : int, default=30
    tol : float, default=1e-4
        Stop when the objective rises by less than this share.
    n_init : int, default=20
        Number of k-means starts.
    affinity, n_neighbors
        See `AffinityBaseline`; the default affinity is "gaussian".
    n_clusters, scale, view_type, n_features_per_view, random_state, memory_limit_bytes
        See `Baseline`.

    Attributes
    ----------
    labels_ : (n_samples,) int64
    consensus_embedding_ : (n_samples, n_clusters)
        U*, orthonormal columns.
    objective_ : tuple of float
        After each iteration; nondecreasing.
    n_iter_ : int

    Notes
    -----
    One dense eigenproblem per view and iteration, O(n³); V + 3 dense (n, n) arrays.

    References
    ----------
    A. Kumar, P. Rai, H. Daumé III, "Co-regularized multi-view spectral clustering", NIPS 2011.
    """

    _title: ClassVar[str] = "CoReg"
    _square_matrices: ClassVar[int] = 3
    _square_matrices_per_view: ClassVar[int] = 1

    consensus_weight: float = 0.01
    max_iter: int = 30
    tol: float = 1e-4
    n_init: int = 20

    def _check(self, data: MultiViewData) -> None:
        super()._check(data)
        require_number("consensus_weight", self.consensus_weight, positive=False)
        require_number("tol", self.tol, positive=False)

    def _cluster(self, views: tuple[View, ...], rng: np.random.Generator) -> NDArray[np.int64]:
        affinities = [
            normalized_affinity(view_affinity(view, self.affinity, self.n_neighbors))
            for view in views
        ]
        embeddings = [leading_eigenvectors(matrix, self.n_clusters) for matrix in affinities]
        consensus = _consensus(embeddings, self.n_clusters)
        objective = [self._objective(affinities, embeddings, consensus)]
        for _ in range(self.max_iter):
            embeddings = [
                self._improve(matrix, embedding, consensus)
                for matrix, embedding in zip(affinities, embeddings, strict=True)
            ]
            consensus = _consensus(embeddings, self.n_clusters)
            objective.append(self._objective(affinities, embeddings, consensus))
            if objective[-1] - objective[-2] <= self.tol * abs(objective[-1]):
                break
        else:
            self._warn_not_settled()
        self.consensus_embedding_ = consensus
        self.objective_ = tuple(objective)
        self.n_iter_ = len(objective) - 1
        return kmeans_labels(unit_rows(consensus), self.n_clusters, n_init=self.n_init, rng=rng)

    def _objective(
        self,
        affinities: list[NDArray[np.float64]],
        embeddings: list[NDArray[np.float64]],
        consensus: NDArray[np.float64],
    ) -> float:
        total = 0.0
        for matrix, U in zip(affinities, embeddings, strict=True):
            agreement = np.sum((consensus.T @ U) ** 2)
            total += float(np.vdot(U, matrix @ U) + self.consensus_weight * agreement)
        return total

    def _improve(
        self,
        matrix: NDArray[np.float64],
        start: NDArray[np.float64],
        consensus: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Leading eigenvectors of L + λ U* U*ᵀ."""
        regularized = matrix + self.consensus_weight * (consensus @ consensus.T)
        return leading_eigenvectors(regularized, self.n_clusters)


def _consensus(embeddings: list[NDArray[np.float64]], count: int) -> NDArray[np.float64]:
    """U*: leading eigenvectors of Σ U_v U_vᵀ, the left singular vectors of [U_1 ... U_V]."""
    left, _, _ = scipy.linalg.svd(np.hstack(embeddings), full_matrices=False)
    return np.asarray(left[:, :count], dtype=np.float64)
