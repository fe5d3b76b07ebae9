"""LMVSC: each view represented by its own anchors, in linear time.

    min_{Z_v} ‖X_v − Z_v A_v‖² + α‖Z_v‖²   rows of Z_v (n, m) on the simplex, one problem for each view

with the samples in the rows of X_v (n, d_v) and anchors A_v (m, d_v) from k-means. Clusters come
from the left singular vectors of [Z_1 ... Z_V] Σ^-1/2 / √V, Σ the column sums.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from mscam_dask.benchmark.baselines.base import Baseline, View, require_count, require_number
from mscam_dask.benchmark.baselines.spectral import kmeans_labels, leading_left_singular
from mscam_dask.data.views.as_multi_view import MultiViewData
from mscam_dask.errors import ConfigurationError
from mscam_dask.linalg.simplex import project_rows_to_simplex

__all__ = ["LMVSC"]

_BLOCK_ROWS = 2048


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class LMVSC(Baseline):
    """Large-scale multi-view subspace clustering in linear time.

    Parameters
    ----------
    n_anchors : int or None, default=None
        m, anchors of each view; None: `n_clusters`. The paper tries c, 50 and 100.
    alpha : float, default=1.0
        Ridge penalty on Z; the paper tries 0.001 to 10.
    max_iter : int, default=1000
        Maximum number of projected gradient steps for a block of rows.
    tol : float, default=1e-6
        A row has converged when a step changes no entry by more.
    n_init : int, default=20
        Number of starts of the final k-means.
    n_clusters, scale, view_type, n_features_per_view, random_state, memory_limit_bytes
        See `Baseline`.

    Attributes
    ----------
    labels_ : (n_samples,) int64
    anchors_ : tuple of (m, d_v)
    anchor_graph_ : (n_samples, m · n_views)
        Z_v concatenated, the rows of each on the simplex.

    Notes
    -----
    Deviation: accelerated projected gradients solve the quadratic programs of a block of samples
    together, instead of one solver call for each sample; the minimizer is the same.
    n m (d + m · steps) flops per view; memory: the scaled views, and twice (n, m V).

    References
    ----------
    Z. Kang et al., "Large-scale multi-view subspace clustering in linear time", AAAI 2020,
    doi:10.1609/aaai.v34i04.5867.
    """

    _title: ClassVar[str] = "LMVSC"

    n_anchors: int | None = None
    alpha: float = 1.0
    max_iter: int = 1000
    tol: float = 1e-6
    n_init: int = 20

    def _check(self, data: MultiViewData) -> None:
        if self.n_anchors is not None:
            require_count("n_anchors", self.n_anchors, maximum=data.n_samples)
        if self._anchor_count() * len(data.views) < self.n_clusters:
            raise ConfigurationError(
                f"n_anchors={self.n_anchors} in {len(data.views)} view(s) give fewer than the "
                f"{self.n_clusters} dimensions that the embedding needs. Raise n_anchors."
            )
        require_number("alpha", self.alpha)
        require_number("tol", self.tol)

    def _anchor_count(self) -> int:
        return self.n_clusters if self.n_anchors is None else self.n_anchors

    def _working_bytes(self, n_samples: int, widths: Sequence[int]) -> int:
        joined = 8 * n_samples * self._anchor_count() * len(widths)
        # k-means copies the largest view
        return 2 * joined + 8 * n_samples * (max(widths) + 2 * self.n_clusters) + 64 * 2**20

    def _cluster(self, views: tuple[View, ...], rng: np.random.Generator) -> NDArray[np.int64]:
        m = self._anchor_count()
        self.anchors_ = tuple(_anchors(view, m, rng) for view in views)
        Z = np.empty((len(views[0]), m * len(views)))
        unfinished = 0
        for position, (view, anchors) in enumerate(zip(views, self.anchors_, strict=True)):
            gram = anchors @ anchors.T + self.alpha * np.eye(m)
            for start in range(0, len(view), _BLOCK_ROWS):
                block = slice(start, start + _BLOCK_ROWS)
                rows, left = simplex_least_squares(
                    gram, view[block] @ anchors.T, max_iter=self.max_iter, tol=self.tol
                )
                Z[block, position * m : (position + 1) * m] = rows
                unfinished += left
        if unfinished:
            self._warn(
                f"LMVSC: {unfinished} of {len(Z) * len(views)} rows still changed by more than "
                f"tol={self.tol} after max_iter={self.max_iter} steps. Raise max_iter, tol or alpha."
            )
        self.anchor_graph_ = Z
        graph = _normalized(Z / np.sqrt(len(views)))
        embedding = leading_left_singular(graph, self.n_clusters)
        return kmeans_labels(embedding, self.n_clusters, n_init=self.n_init, rng=rng)


def _anchors(view: View, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Centers (m, d) of k-means on the view."""
    model = KMeans(count, n_init=10, max_iter=100, random_state=int(rng.integers(2**31)))
    return np.asarray(model.fit(view).cluster_centers_, dtype=np.float64)


def simplex_least_squares(
    gram: NDArray[np.float64], linear: NDArray[np.float64], *, max_iter: int, tol: float
) -> tuple[NDArray[np.float64], int]:
    """Solve argmin_z zᵀHz / 2 − bᵀz over the simplex, for every row b.

    Parameters
    ----------
    gram : (m, m)
        H, symmetric positive definite.
    linear : (n, m)
        b.
    max_iter : int
    tol : float
        A row has converged when a step changes no entry by more.

    Returns
    -------
    rows : (n, m)
    unfinished : int
        Number of rows that have not converged.

    Notes
    -----
    Accelerated projected gradients with step 1 / λ_max(H), restarted where the momentum points
    uphill. Converged rows leave the batch. H is centered first, H − h1ᵀ − 1hᵀ + s11ᵀ, which
    changes no minimizer on the simplex and lowers λ_max.
    """
    m = len(gram)
    # On Σz = 1 a term linear in 1ᵀz is constant, so centering H and correcting b keeps the minimizer.
    mean = gram.mean(axis=1)
    centered = gram - mean[:, None] - mean[None, :] + mean.mean()
    target = linear - mean[None, :]
    target = target - target.mean(axis=1, keepdims=True)
    top = float(scipy.linalg.eigvalsh(centered, subset_by_index=[m - 1, m - 1])[0])
    top = max(top, np.finfo(np.float64).tiny)
    result = project_rows_to_simplex(target / top)
    active = np.arange(len(result))
    point, before = result.copy(), result.copy()
    momentum = np.ones(len(result))
    for _ in range(max_iter):
        gradient = point @ centered - target[active]
        moved = project_rows_to_simplex(point - gradient / top)
        step = moved - before
        uphill = np.einsum("ij,ij->i", point - moved, step) > 0
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        factor = np.where(uphill, 0.0, (momentum - 1.0) / following)
        momentum = np.where(uphill, 1.0, following)
        result[active] = moved
        running = np.abs(moved - point).max(axis=1) > tol
        point = (moved + factor[:, None] * step)[running]
        before, momentum, active = moved[running], momentum[running], active[running]
        if active.size == 0:
            break
    return result, int(active.size)


def _normalized(Z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Z Σ^-1/2, Σ the column sums; an anchor without samples has no column."""
    sums = Z.sum(axis=0)
    used = sums > 0
    return np.asarray(Z[:, used] / np.sqrt(sums[used]), dtype=np.float64)
