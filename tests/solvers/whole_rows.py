"""Steps of a view from whole rows: ridge view, discriminants, and the ADMM problem with a basis of span(H) by projection."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.linalg.incomplete import PresentSamples
from mscam_dask.linalg.orthonormal import Basis
from mscam_dask.solvers.admm import AdmmState, ReducedProblem, n_shrunk
from mscam_dask.solvers.lda import (
    LinearDiscriminants,
    class_sums,
    discriminant_points,
    fitted_discriminants,
)
from mscam_dask.solvers.ridge_view import RidgeView, ridge_view, view_svd, with_loadings
from mscam_dask.solvers.row_blocks import ViewShape, ViewType
from mscam_dask.types.parameters import Scale
from mscam_dask.types.rules import SIZES
from tests.synthetic import Array

# Length of a component outside span(Q) below which it is rounding.
NEW_DIRECTION = {np.dtype(np.float64): 1e-6, np.dtype(np.float32): 1e-3}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WholeProblem(ReducedProblem):
    """ADMM problem of a view with H (n, h)."""

    subspace: NDArray[Any]

    def start(self, vectors: Array) -> Array:
        """Vectors (n, c) in the coordinates of H."""
        return np.asarray(self.subspace.T @ vectors, dtype=np.float64)

    def self_representation(self, state: AdmmState) -> Array:
        """Z = H Ĉ Hᵀ (n, n), which the solver never forms."""
        gains = self.squared_singular_values / (self.squared_singular_values + self.alpha)
        left, right = state.core
        return np.asarray(self.subspace @ (np.diag(gains) + left @ right.T) @ self.subspace.T)


def ridge_points(view: RidgeView) -> Array:
    """Ridge embedding √ω f∘Q (n, r)."""
    vectors, weights = view.coordinates()
    return np.asarray(vectors * np.sqrt(weights), dtype=np.float64)


def reduced_problem(
    basis: Basis,
    graph_vectors: Array,
    laplacian: csr_array[np.float64],
    *,
    alpha: float,
    metric_ridge: float,
    graph_weight: float,
    min_shrinkage: float = 0.0,
) -> WholeProblem:
    """Restrict the ADMM problem of a view to span(H), H = orth[Q, V_m]; exact without `min_shrinkage`."""
    s2 = basis.singular_values_squared
    rank = n_shrunk(s2, alpha, min_shrinkage)
    q = np.linalg.qr(basis.vectors[:, :rank].astype(np.float64))[0]
    rest = graph_vectors - q @ (q.T @ graph_vectors)
    left, lengths, _ = np.linalg.svd(rest - q @ (q.T @ rest), full_matrices=False)
    added = left[:, lengths > NEW_DIRECTION[basis.vectors.dtype]]
    subspace = np.hstack([q, added])
    return WholeProblem(
        subspace=subspace,
        squared_singular_values=np.concatenate([s2[:rank], np.zeros(added.shape[1])]),
        laplacian=subspace.T @ (laplacian @ subspace),
        laplacian_bound=float(2.0 * laplacian.diagonal().max()),  # Gershgorin
        alpha=alpha,
        metric_ridge=metric_ridge,
        graph_weight=graph_weight,
    )


def prepared(
    rows: Array,
    *,
    alpha: float = 1.0,
    scale: Scale = "standard",
    view_type: ViewType = "features",
    present: PresentSamples | None = None,
) -> RidgeView:
    """Ridge view of rows in memory."""
    shape = ViewShape(rows.shape[0], rows.shape[1], view_type)

    def read(start: int, stop: int) -> Array:
        return rows[start:stop]

    view = with_loadings(view_svd(read, shape, scale=scale, name="a view"), read)
    return ridge_view(view, alpha=alpha, present=present)


def linear_discriminants(view: RidgeView, labels: NDArray[np.int64]) -> LinearDiscriminants:
    """Solve B u = s S u for a view and a partition, and project the samples on the solutions."""
    own = labels if view.present is None else labels[view.present.samples]
    sums = class_sums(view.basis.vectors[:, : SIZES.max_rank], own)
    loadings, metric = fitted_discriminants(sums, view)
    return metric.of_rows(discriminant_points(view, loadings))
