"""Joint ridge embedding of several views, in which candidate neighbors are searched.

No column of complete views is copied: weights on the columns of each view define the distances.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mscam_dask.linalg.distances import WeightedBlocks
from mscam_dask.linalg.incomplete_blocks import IncompleteBlocks, PresentSamples
from mscam_dask.solvers.lda import LinearDiscriminants
from mscam_dask.solvers.ridge_view import RidgeView

__all__ = ["complete_embedding", "joint_embedding"]


def joint_embedding(
    views: Sequence[RidgeView | LinearDiscriminants],
) -> WeightedBlocks | IncompleteBlocks:
    """Ridge embeddings of all views side by side (n, Σr), with mean squared distance one over pairs.

    Discriminants, if given, together also have mean squared distance one; the two distances add up.
    If a view does not have all samples, the distance of two samples is the mean over the views that
    have both.
    """
    incomplete = next((view.present for view in views if view.present is not None), None)
    if incomplete is not None:
        return _of_incomplete(views, incomplete.n_samples)
    return complete_embedding(views)


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


def _of_incomplete(
    views: Sequence[RidgeView | LinearDiscriminants], n_samples: int
) -> IncompleteBlocks:
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
