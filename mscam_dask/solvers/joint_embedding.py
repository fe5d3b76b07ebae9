"""Joint ridge embedding of several views, in which candidate neighbors are searched.

No column is copied: weights on the columns of each view define the distances.
"""

from __future__ import annotations

from collections.abc import Sequence

from mscam_dask.linalg.weighted_blocks import WeightedBlocks
from mscam_dask.solvers.lda import LinearDiscriminants
from mscam_dask.solvers.ridge_view import RidgeView

__all__ = ["joint_embedding"]


def joint_embedding(views: Sequence[RidgeView | LinearDiscriminants]) -> WeightedBlocks:
    """Ridge embeddings of all views side by side (n, Σr), with mean squared distance one over pairs.

    Discriminants, if given, together also have mean squared distance one; the two distances add up.
    """
    of_kind: dict[type, float] = {}
    for view in views:
        of_kind[type(view)] = of_kind.get(type(view), 0.0) + view.mean_distance
    parts = [(*view.coordinates(), of_kind[type(view)]) for view in views]
    return WeightedBlocks(
        tuple(vectors for vectors, _, _ in parts),
        tuple(weights / total if total > 0 else 0.0 * weights for _, weights, total in parts),
    )
