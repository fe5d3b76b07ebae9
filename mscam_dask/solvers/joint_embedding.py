"""The space in which neighbours are sought: anchor coordinates of all views side by side.

Nothing is copied: each view keeps its columns, and weights on them make the distances.
"""

from __future__ import annotations

from collections.abc import Sequence

from mscam_dask.linalg.weighted_blocks import WeightedBlocks
from mscam_dask.solvers.lda import LinearDiscriminants
from mscam_dask.solvers.ridge_view import RidgeView

__all__ = ["joint_embedding"]


def joint_embedding(views: Sequence[RidgeView | LinearDiscriminants]) -> WeightedBlocks:
    """Anchor space of all views, Σr columns: mean squared distance over pairs equal to one.

    With discriminants beside the views, these together have one as well, and the two are added.
    """
    of_kind: dict[type, float] = {}
    for view in views:
        of_kind[type(view)] = of_kind.get(type(view), 0.0) + view.mean_distance
    parts = [(*view.coordinates(), of_kind[type(view)]) for view in views]
    return WeightedBlocks(
        tuple(vectors for vectors, _, _ in parts),
        tuple(weights / total if total > 0 else 0.0 * weights for _, weights, total in parts),
    )
