"""IVF index of points that are all in memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mscam_dask.linalg.ivf import (
    CELL_POINTS,
    IVFIndex,
    assign_to_cells,
    cut_cells,
    train_centers,
    training_rows,
)


def build_ivf(
    points: NDArray[np.float32], *, n_candidates: int, seed: int, cell_points: int = CELL_POINTS
) -> IVFIndex:
    """The steps of the engine, for one block."""
    n = len(points)
    sample = points[training_rows(0, n, n, seed, cell_points=cell_points)]
    centers = train_centers(sample, max(1, n // cell_points), np.random.default_rng(seed))
    cells = assign_to_cells(points, centers)
    return cut_cells(cells, centers, n_candidates, cell_points=cell_points)
