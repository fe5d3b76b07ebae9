"""Ridge self-representation of a view, through its singular vectors, and the joint embedding.

Z = Q diag(f) Qᵀ with X = Q S Vᵀ and f = s²/(s²+α) solves min ‖X − XZ‖² + α‖Z‖² (samples in the rows
of X here); ‖z_i − z_j‖ = ‖f∘(q_i − q_j)‖, so n×n is never needed. `mscam_dask.solvers.view_svd`
computes the singular vectors. Candidate neighbors are searched in the joint embedding; no column of
complete views is copied: weights on the columns define the distances.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.linalg.distances import WeightedBlocks
from mscam_dask.linalg.incomplete import IncompleteBlocks, PresentSamples
from mscam_dask.linalg.ridge import Basis, shrinkage_factors
from mscam_dask.linalg.scaling import RowTransform
from mscam_dask.solvers.row_blocks import ViewType

if TYPE_CHECKING:
    from mscam_dask.solvers.lda import LinearDiscriminants


# A direction with a gain f below this share of the largest gain contributes less than 1e-4 of the
# leading direction to squared distances, for every α.
_GAIN_TOLERANCE = 1e-2


@dataclasses.dataclass(frozen=True, slots=True)
class Encoder:
    """Map from rows of a view, also of new samples, to its ridge embedding √ω f∘(x V / s)."""

    view_type: ViewType
    transform: RowTransform | None  # of feature rows; None for distance and kernel views
    exponent: int  # rows are divided by 2 to it; 0 but for extreme magnitudes
    distance_scale: float  # mean distance, the unit of exp(−D / mean)
    offset: NDArray[np.float64]  # (d,) mean of the transformed rows of the fit
    loadings: NDArray[np.float64]  # (d, r), of the transformed rows minus offset

    def __call__(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Ridge embedding (m, r) of `rows` (m, d)."""
        if self.transform is not None:
            rows = self.transform.apply(rows)
        elif self.exponent:
            rows = np.ldexp(rows, -self.exponent)
        if self.view_type == "distance":
            rows = np.exp(-rows / self.distance_scale)
        return np.asarray((rows - self.offset) @ self.loadings, dtype=np.float64)


@dataclasses.dataclass(frozen=True, slots=True)
class ViewSVD:
    """SVD X = Q S Vᵀ of a scaled and centered view; it does not depend on α."""

    basis: Basis  # all directions, scaled so that the mean s² is one
    encoder: Encoder  # yields Q

    @property
    def effective_rank(self) -> float:
        """(Σs²)² / Σs⁴."""
        s2 = self.basis.singular_values_squared
        return float(s2.sum() ** 2 / np.sum(s2**2))


@dataclasses.dataclass(frozen=True, slots=True)
class RidgeView:
    """Ridge self-representation of a view, as the iterations use it."""

    basis: Basis  # directions with gain below 1e-2 of the largest are dropped
    alpha: float
    weight: float  # ω = 1 / mean squared distance in the ridge embedding
    effective_rank: float  # (Σs²)² / Σs⁴ over all directions
    encoder: Encoder
    present: PresentSamples | None = None  # samples that the view has; None for all
    mean_distance: float = 1.0  # mean squared distance of two samples, by the choice of the weight

    def of_rows(self, vectors: NDArray[Any]) -> RidgeView:
        """Ridge view of other rows: those of Q in `vectors`."""
        basis = Basis(vectors, self.basis.singular_values_squared)
        return dataclasses.replace(self, basis=basis)

    def coordinates(self) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Q (n, r) and the weights ω f² (r,) of its columns: distances of the ridge embedding."""
        gains = shrinkage_factors(self.basis.singular_values_squared, self.alpha)
        return self.basis.vectors, self.weight * gains**2


def ridge_view(
    view: ViewSVD,
    *,
    alpha: float,
    present: PresentSamples | None = None,
    n_samples: int | None = None,
) -> RidgeView:
    """Ridge self-representation for α in units of the mean s²; `n_samples` is for an SVD without rows."""
    gains = shrinkage_factors(view.basis.singular_values_squared, alpha)
    rank = int(np.count_nonzero(gains > _GAIN_TOLERANCE * gains[0]))
    # s² and the gains are descending, so the kept directions are a slice, not a copy
    kept = Basis(view.basis.vectors[:, :rank], view.basis.singular_values_squared[:rank])
    # columns of Q are orthonormal and have mean zero
    n_pairs = (n_samples or len(view.basis.vectors)) - 1
    weight = n_pairs / (2.0 * float(np.sum(gains[:rank] ** 2)))
    loadings = view.encoder.loadings[:, :rank] * (np.sqrt(weight) * gains[:rank])
    encoder = dataclasses.replace(view.encoder, loadings=np.ascontiguousarray(loadings))
    return RidgeView(kept, alpha, weight, view.effective_rank, encoder, present)


def joint_embedding(
    views: Sequence[RidgeView | LinearDiscriminants],
) -> WeightedBlocks | IncompleteBlocks:
    """Ridge embeddings of all views side by side (n, Σr), with mean squared distance one.

    Discriminants, if given, together also have mean squared distance one; the two add up. Distances of samples in
    incomplete views are means over the views that have both.
    """
    n_samples = next((view.present.n_samples for view in views if view.present is not None), None)
    if n_samples is None:
        return complete_embedding(views)
    all_samples = PresentSamples(np.arange(n_samples), n_samples)
    types = list(dict.fromkeys(type(view) for view in views))
    blocks = []
    for view in views:
        vectors, weights = view.coordinates()
        blocks.append(vectors * np.sqrt(weights).astype(vectors.dtype))
    return IncompleteBlocks(
        n_samples,
        tuple(blocks),
        tuple(view.present or all_samples for view in views),
        tuple(types.index(type(view)) for view in views),
        tuple(view.mean_distance for view in views),
    )


def complete_embedding(views: Sequence[RidgeView | LinearDiscriminants]) -> WeightedBlocks:
    """Joint ridge embedding of views that have all samples; large data have no others."""
    total_by_type: dict[type, float] = {}
    for view in views:
        total_by_type[type(view)] = total_by_type.get(type(view), 0.0) + view.mean_distance
    parts = [(*view.coordinates(), total_by_type[type(view)]) for view in views]
    return WeightedBlocks(
        tuple(vectors for vectors, _, _ in parts),
        tuple(weights / total if total > 0 else 0.0 * weights for _, weights, total in parts),
    )
