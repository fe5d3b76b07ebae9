"""Tasks that compare the preparations of the views on a sample of the rows."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.sampling import SampledRows
from mscam_dask.data.views import RowSource
from mscam_dask.errors import DataError
from mscam_dask.model.parameters import Preparation, Scale
from mscam_dask.solvers.factoring import factor_view
from mscam_dask.solvers.preparation import (
    Choice,
    agreed_preparations,
    anchor_neighbors,
    has_few_columns,
    usual_preparation,
)
from mscam_dask.solvers.view_rows import ViewShape

__all__ = ["choose", "sampled_neighbors"]

Neighbors = dict[int, NDArray[np.int64]]
"""Neighbour lists (m, k) by position of the preparation."""


def sampled_neighbors(
    source: RowSource,
    options: tuple[Preparation, ...],
    sample: NDArray[np.int64],
    n_neighbors: int,
) -> Neighbors:
    """Nearest neighbours within a sample of the rows, for each preparation of one view.

    A preparation that makes all rows equal is left out, unless they all do; the scaling makes
    no difference to distance and kernel views, so that it is tried once.
    """
    rows = SampledRows(source, sample).in_memory().read(0, len(sample))
    shape = ViewShape(len(rows), rows.shape[1], source.metric)
    positions: dict[Scale, dict[float, int]] = {}
    for position, option in enumerate(options):
        scale = option.scale if source.metric == "features" else options[0].scale
        positions.setdefault(scale, {}).setdefault(option.alpha, position)
    found: Neighbors = {}
    refusal: DataError | None = None
    for scale, by_alpha in positions.items():
        try:
            lists = _neighbors_by_alpha(rows, shape, scale, source.name, by_alpha, n_neighbors)
        except DataError as error:
            refusal = error
            continue
        found.update(zip(by_alpha.values(), lists, strict=True))
    if not found and refusal is not None:
        raise refusal
    return found


def _neighbors_by_alpha(
    rows: NDArray[np.float64],
    shape: ViewShape,
    scale: Scale,
    name: str,
    alphas: Iterable[float],
    n_neighbors: int,
) -> list[NDArray[np.int64]]:
    """Those of one scaling, whose basis is as large as the rows and given up at the end."""
    view = factor_view(lambda start, stop: rows[start:stop], shape, scale=scale, name=name)
    return [anchor_neighbors(view, alpha, n_neighbors) for alpha in alphas]


def choose(
    found: list[Neighbors],
    shapes: list[ViewShape],
    options: tuple[Preparation, ...],
    least_alpha: float,
    keeps_lengths: bool,  # noqa: FBT001 - tasks take positions
) -> tuple[Choice, ...]:
    """The preparation of each view among those with no smaller α; see `agreed_preparations`.

    With `keeps_lengths`, rows of few columns are not scaled to unit length.
    """

    def is_tried(option: Preparation, shape: ViewShape) -> bool:
        shortened = keeps_lengths and has_few_columns(shape) and option.scale == "unit"
        return option.alpha >= least_alpha and not shortened

    positions = [
        [position for position in sorted(view) if is_tried(options[position], shape)]
        or sorted(view)
        for view, shape in zip(found, shapes, strict=True)
    ]
    usual = [
        usual_preparation(shape, [options[position] for position in tried])
        for shape, tried in zip(shapes, positions, strict=True)
    ]
    lists = [
        [view[position] for position in tried] for view, tried in zip(found, positions, strict=True)
    ]
    return tuple(
        Choice(tried[choice.index], choice.agreement, choice.ahead)
        for choice, tried in zip(agreed_preparations(lists, usual), positions, strict=True)
    )
