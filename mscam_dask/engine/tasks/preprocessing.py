"""Tasks that compare settings of the views on a sample of the rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.as_multi_view import RowSource
from mscam_dask.data.views.presence import present_samples
from mscam_dask.data.views.sampling import SampledRows
from mscam_dask.errors import DataError
from mscam_dask.solvers.preprocessing import (
    Choice,
    choose_view_settings,
    default_settings,
    embedding_neighbors,
    has_few_columns,
)
from mscam_dask.solvers.row_blocks import ViewShape
from mscam_dask.solvers.view_svd import view_svd
from mscam_dask.types.parameters import Scale, ViewSettings

__all__ = ["Coarse", "SampledNeighbors", "choose", "coarse_overlaps", "sampled_neighbors"]

# With fewer sampled rows, settings of an incomplete view are not compared.
_FEWEST_PRESENT = 3


@dataclasses.dataclass(frozen=True)
class Coarse:
    """Rows among the sampled ones, and the number of neighbors among them, for coarse overlaps."""

    rows: NDArray[np.int64]
    n_neighbors: int


@dataclasses.dataclass(frozen=True)
class SampledNeighbors:
    """Neighbors of sampled rows in one view.

    Attributes
    ----------
    by_settings : dict of int to (m, k) int64
        Neighbors by the position of the view settings.
    coarse : (m', k') int32
        Many neighbors of fewer rows with the default settings; of shape (0, 0) if not needed.
    """

    by_settings: dict[int, NDArray[np.int64]]
    coarse: NDArray[np.int32]


def sampled_neighbors(
    source: RowSource,
    options: tuple[ViewSettings, ...],
    sample: NDArray[np.int64],
    n_neighbors: int,
    coarse: Coarse | None,
) -> SampledNeighbors:
    """Nearest neighbors within a sample of the rows, for each candidate setting of one view.

    Settings that make all rows equal are skipped, unless all of them do. Distance and kernel views
    ignore the scaling, so that only one is tried. Rows of samples that the view does not have are −1.
    """
    present = present_samples(source)
    if present is None:
        return _sampled_neighbors(source, options, sample, n_neighbors, coarse)
    positions = present.positions[sample]
    has = np.flatnonzero(positions >= 0)
    some = (
        np.zeros(0, dtype=np.int64)
        if coarse is None
        else np.flatnonzero(positions[coarse.rows] >= 0)
    )
    if len(has) < _FEWEST_PRESENT or (coarse is not None and len(some) < _FEWEST_PRESENT):
        nothing = np.full((len(sample), n_neighbors), -1, dtype=np.int64)
        coarsely = np.full((0, 0) if coarse is None else (len(coarse.rows), 1), -1, dtype=np.int32)
        return SampledNeighbors(dict.fromkeys(range(len(options)), nothing), coarsely)
    own_coarse = None
    if coarse is not None:
        own_rows = np.searchsorted(has, coarse.rows[some])
        own_coarse = Coarse(own_rows, min(coarse.n_neighbors, len(some) - 1))
    found = _sampled_neighbors(
        source, options, positions[has], min(n_neighbors, len(has) - 1), own_coarse
    )
    return SampledNeighbors(
        {key: _spread_lists(lists, has, len(sample)) for key, lists in found.by_settings.items()},
        found.coarse if coarse is None else _spread_lists(found.coarse, some, len(coarse.rows)),
    )


def _spread_lists(
    lists: NDArray[np.integer[Any]], rows: NDArray[np.int64], n_rows: int
) -> NDArray[Any]:
    """Neighbor lists (n_rows, k) from those (m, k) among `rows`; −1 for the others."""
    spread = np.full((n_rows, lists.shape[1]), -1, dtype=lists.dtype)
    spread[rows] = rows[lists]
    return spread


def _sampled_neighbors(
    source: RowSource,
    options: tuple[ViewSettings, ...],
    sample: NDArray[np.int64],
    n_neighbors: int,
    coarse: Coarse | None,
) -> SampledNeighbors:
    rows = SampledRows(source, sample).in_memory().read(0, len(sample))
    shape = ViewShape(len(rows), rows.shape[1], source.view_type)
    positions: dict[Scale, dict[float, int]] = {}
    for position, option in enumerate(options):
        scale = option.scale if source.view_type == "features" else options[0].scale
        positions.setdefault(scale, {}).setdefault(option.alpha, position)
    neighbors: dict[int, NDArray[np.int64]] = {}
    coarse_neighbors: dict[Scale, NDArray[np.int32]] = {}
    refusal: DataError | None = None
    for scale, by_alpha in positions.items():
        try:
            lists, coarse_neighbors[scale] = _neighbors_by_alpha(
                rows, shape, scale, source.name, list(by_alpha), n_neighbors, coarse
            )
        except DataError as error:
            refusal = error
            continue
        neighbors.update(zip(by_alpha.values(), lists, strict=True))
    if not neighbors and refusal is not None:
        raise refusal
    tried = [options[position] for position in neighbors]
    default = tried[default_settings(shape, tried)]
    return SampledNeighbors(neighbors, coarse_neighbors[default.scale])


def _neighbors_by_alpha(
    rows: NDArray[np.float64],
    shape: ViewShape,
    scale: Scale,
    name: str,
    alphas: Sequence[float],
    n_neighbors: int,
    coarse: Coarse | None,
) -> tuple[list[NDArray[np.int64]], NDArray[np.int32]]:
    """Neighbors with one scaling, whose basis is as large as the rows and released at the end."""
    view = view_svd(lambda start, stop: rows[start:stop], shape, scale=scale, name=name)
    lists = [embedding_neighbors(view, alpha, n_neighbors) for alpha in alphas]
    if coarse is None:
        return lists, np.zeros((0, 0), dtype=np.int32)
    many = embedding_neighbors(view, max(alphas), coarse.n_neighbors, coarse.rows)
    return lists, many.astype(np.int32)


def choose(
    neighbors: list[SampledNeighbors],
    shapes: list[ViewShape],
    options: tuple[ViewSettings, ...],
    least_alpha: float,
    keeps_lengths: bool,  # noqa: FBT001 - tasks take positions
) -> tuple[Choice, ...]:
    """Select the settings of each view among those with α ≥ `least_alpha`; see `choose_view_settings`.

    With `keeps_lengths`, rows of few columns are not scaled to unit length.
    """

    def is_tried(option: ViewSettings, shape: ViewShape) -> bool:
        shortened = keeps_lengths and has_few_columns(shape) and option.scale == "unit"
        return option.alpha >= least_alpha and not shortened

    positions = [
        [position for position in sorted(view.by_settings) if is_tried(options[position], shape)]
        or sorted(view.by_settings)
        for view, shape in zip(neighbors, shapes, strict=True)
    ]
    defaults = [
        default_settings(shape, [options[position] for position in tried])
        for shape, tried in zip(shapes, positions, strict=True)
    ]
    lists = [
        [view.by_settings[position] for position in tried]
        for view, tried in zip(neighbors, positions, strict=True)
    ]
    return tuple(
        dataclasses.replace(choice, index=tried[choice.index])
        for choice, tried in zip(choose_view_settings(lists, defaults), positions, strict=True)
    )


def coarse_overlaps(neighbors: list[SampledNeighbors]) -> tuple[Choice, ...]:
    """Overlap of many neighbors in each view with those in the other views, without a selection."""
    return choose_view_settings([[view.coarse] for view in neighbors], [0] * len(neighbors))
