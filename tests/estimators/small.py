"""Small views, and models that are fitted to them at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from mscam_dask import MSCAM, Constants
from tests.synthetic import Array, Labels, distances_between, gaussian_views


def quick(n_clusters: Any = 3, **parameters: Any) -> MSCAM:
    """MSCAM with one setting and a short path."""
    return MSCAM(
        n_clusters, **{"constants": Constants.paper(), "max_iter": 2, "n_jobs": 1, **parameters}
    )


def integer_views() -> list[Array]:
    """Small whole numbers, with many zeros: exact in every dtype and sparse form."""
    views, _ = gaussian_views(0, n_samples=72, spread=1.5, dims=(4, 7))
    return [np.where(np.abs(view) < 0.3, 0.0, np.round(4 * view)) for view in views]


def pair_views() -> tuple[Array, Array, Array, Labels]:
    """Features, distances between and kernel of the same points in three views' worth of kinds."""
    (a, b, c), labels = gaussian_views(3, n_samples=75, spread=2.0, dims=(4, 5, 6))
    return a, distances_between(b), c @ c.T, labels
