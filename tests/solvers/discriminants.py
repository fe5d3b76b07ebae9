"""Linear discriminants of a view in one block, put together from their steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mscam_dask.solvers.lda import (
    LinearDiscriminants,
    class_sums,
    discriminant_points,
    fitted_discriminants,
)
from mscam_dask.solvers.ridge_view import RidgeView
from mscam_dask.types.rules import SIZES


def linear_discriminants(
    view: RidgeView,
    labels: NDArray[np.int64],
    *,
    most_directions: int = SIZES.max_rank,
) -> LinearDiscriminants:
    """Solve B u = s S u for a view and a partition, and project the samples on the solutions."""
    own = labels if view.present is None else labels[view.present.samples]
    sums = class_sums(view.basis.vectors[:, :most_directions], own)
    loadings, metric = fitted_discriminants(sums, view)
    return metric.of_rows(discriminant_points(view, loadings))
