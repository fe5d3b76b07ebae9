"""Tasks that compare settings of the views on a sample of the rows."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.as_multi_view import RowSource
from mscam_dask.data.views.presence import present_samples
from mscam_dask.data.views.sampling import SampledRows
from mscam_dask.errors import DataError
from mscam_dask.solvers.preprocessing import (
    Choice,
    choose_view_settings,
    coarse_neighbors,
    default_settings,
    embedding_neighbors,
    has_few_columns,
    neighbor_votes,
    overlap_of_permutations,
)
from mscam_dask.solvers.row_blocks import ViewShape
from mscam_dask.solvers.view_svd import view_svd
from mscam_dask.types.parameters import Scale, ViewSettings

__all__ = [
    "Coarse",
    "Rule",
    "SampledNeighbors",
    "choices_of_views",
    "joined_settings",
    "sampled_neighbors",
    "summed_votes",
    "votes_of_views",
]


# With fewer sampled rows, settings of an incomplete view are not compared.
_MIN_PRESENT = 3


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
    shape : ViewShape
        Shape of the sample.
    by_settings : dict of int to (m, k) int32
        Neighbors by the position of the view settings.
    coarse : (m', k') int32
        Many neighbors of fewer rows with the default settings; of shape (0, 0) if not needed.
    refusal : DataError or None
        Error of the first settings that make all rows equal.
    """

    shape: ViewShape
    by_settings: dict[int, NDArray[np.int32]]
    coarse: NDArray[np.int32]
    refusal: DataError | None = None


@dataclasses.dataclass(frozen=True)
class Rule:
    """View settings among which a selection is made.

    Attributes
    ----------
    options : tuple of ViewSettings
        All candidates; those with α ≥ `least_alpha` are tried if a view has any.
    least_alpha : float
    is_coarse : bool
        Whether the coarse neighbors of each view are compared in place of those by settings.
    """

    options: tuple[ViewSettings, ...]
    least_alpha: float = 0.0
    is_coarse: bool = False

    def lists(self, view: SampledNeighbors) -> dict[int, NDArray[np.int32]]:
        """Neighbors of a view by the positions of the settings that are tried."""
        if self.is_coarse:
            return {0: view.coarse}
        tried = {
            position: view.by_settings[position]
            for position in sorted(view.by_settings)
            if self.options[position].alpha >= self.least_alpha
        }
        return tried or dict(sorted(view.by_settings.items()))


def sampled_neighbors(
    source: RowSource,
    options: tuple[ViewSettings, ...],
    sample: NDArray[np.int64],
    n_neighbors: int,
    coarse: Coarse,
    part: tuple[int, int] = (0, 1),
) -> SampledNeighbors:
    """Nearest neighbors within a sample of the rows, for each candidate setting of one view.

    Settings that make all rows equal are skipped, and unit length for rows of few columns. Distance and
    kernel views ignore the scaling, so that only one is tried. Rows of samples that the view does not have are −1. Of several parts
    (number, count) each has the settings of some scalings, and the first one the coarse neighbors.
    """
    present = present_samples(source)
    if present is None:
        return _sampled_neighbors(source, options, sample, n_neighbors, coarse, part)
    positions = present.positions[sample]
    has = np.flatnonzero(positions >= 0)
    some = np.flatnonzero(positions[coarse.rows] >= 0)
    if min(len(has), len(some)) < _MIN_PRESENT:
        shape = ViewShape(len(sample), source.shape[1], source.view_type)
        nothing = np.full((len(sample), 1), -1, dtype=np.int32)
        none_coarse = nothing[: len(coarse.rows)]
        return SampledNeighbors(shape, dict.fromkeys(range(len(options)), nothing), none_coarse)
    own_rows = np.searchsorted(has, coarse.rows[some])
    own_coarse = Coarse(own_rows, min(coarse.n_neighbors, len(some) - 1))
    found = _sampled_neighbors(
        source, options, positions[has], min(n_neighbors, len(has) - 1), own_coarse, part
    )
    own = found.coarse
    if len(own):  # one part has them
        own = _spread_lists(own, some, len(coarse.rows))
    return dataclasses.replace(
        found,
        shape=dataclasses.replace(found.shape, n_samples=len(sample)),
        by_settings={
            key: _spread_lists(lists, has, len(sample)) for key, lists in found.by_settings.items()
        },
        coarse=own,
    )


def _spread_lists(
    lists: NDArray[np.int32], rows: NDArray[np.int64], n_rows: int
) -> NDArray[np.int32]:
    """Neighbor lists (n_rows, k) from those (m, k) among `rows`; −1 for the others."""
    spread = np.full((n_rows, lists.shape[1]), -1, dtype=np.int32)
    spread[rows] = rows[lists]
    return spread


def _sampled_neighbors(
    source: RowSource,
    options: tuple[ViewSettings, ...],
    sample: NDArray[np.int64],
    n_neighbors: int,
    coarse: Coarse,
    part: tuple[int, int],
) -> SampledNeighbors:
    rows = SampledRows(source, sample).in_memory().read(0, len(sample))
    shape = ViewShape(len(rows), rows.shape[1], source.view_type)
    positions: dict[Scale, dict[float, int]] = {}
    for position, option in enumerate(options):
        scale = option.scale if source.view_type == "features" else options[0].scale
        positions.setdefault(scale, {}).setdefault(option.alpha, position)
    if has_few_columns(shape) and len(positions) > 1:
        positions.pop("unit", None)  # it gives up one dimension
    default = options[default_settings(shape, options)].scale
    neighbors: dict[int, NDArray[np.int32]] = {}
    many = None
    refusal: DataError | None = None
    ordered = sorted(positions, key=lambda one: one != default)
    mine = ordered[part[0] :: part[1]]
    for scale in ordered:
        # the first part has the default scaling, and the next one if that makes all rows equal
        searches_coarse = many is None and part[0] == 0
        if scale not in mine and not searches_coarse:
            continue
        try:
            view = view_svd(
                lambda start, stop: rows[start:stop],
                shape,
                scale=scale,
                name=source.name,
                dtype=np.float32,
            )
        except DataError as error:
            refusal = refusal or error
            continue
        by_alpha = positions[scale]
        if scale in mine:
            for alpha, position in by_alpha.items():
                neighbors[position] = embedding_neighbors(view, alpha, n_neighbors)
        if searches_coarse:
            many = coarse_neighbors(view, max(by_alpha), coarse.n_neighbors, coarse.rows)
        del view  # as large as the rows
    none = np.zeros((0, 0), dtype=np.int32)
    return SampledNeighbors(shape, neighbors, none if many is None else many, refusal)


def joined_settings(parts: list[SampledNeighbors]) -> SampledNeighbors:
    """Neighbors of one view for all settings.

    Raises
    ------
    DataError
        All settings make all rows equal.
    """
    by_settings = {
        position: found for part in parts for position, found in part.by_settings.items()
    }
    refusal = next((part.refusal for part in parts if part.refusal is not None), None)
    if not by_settings and refusal is not None:
        raise refusal
    coarse = next((part.coarse for part in parts if part.coarse.size), parts[0].coarse)
    return SampledNeighbors(parts[0].shape, by_settings, coarse)


def votes_of_views(
    views: list[SampledNeighbors], rule: Rule, chosen: tuple[int, ...] | None
) -> NDArray[np.float32]:
    """Sum of the neighbor graphs of some views with the chosen settings, or their mean over all settings."""
    lists = [rule.lists(view) for view in views]
    n_samples = views[0].shape.n_samples
    if rule.is_coarse:
        n_samples = len(views[0].coarse)
    counted = _counted(lists, chosen)
    voted = [[by[at] for at in positions] for by, positions in zip(lists, counted, strict=True)]
    return neighbor_votes(voted, n_samples)


def summed_votes(votes: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Sum over groups of views."""
    total = votes[0]
    for part in votes[1:]:
        total = total + part
    return total


def choices_of_views(
    views: list[SampledNeighbors],
    votes: NDArray[np.float32],
    rule: Rule,
    chosen: tuple[int, ...] | None,
    n_views: int,
) -> list[Choice]:
    """Select the settings of some views by the votes of all views; see `choose_view_settings`."""
    lists = [rule.lists(view) for view in views]
    places = [list(by) for by in lists]
    counted = [
        [tried.index(position) for position in positions]
        for tried, positions in zip(places, _counted(lists, chosen), strict=True)
    ]
    usual = [
        0
        if rule.is_coarse
        else default_settings(view.shape, [rule.options[position] for position in tried])
        for view, tried in zip(views, places, strict=True)
    ]
    choices = choose_view_settings(
        [list(by.values()) for by in lists], counted, usual, votes, n_views
    )
    if rule.is_coarse:  # lists of many neighbors are far from Poisson
        return [
            dataclasses.replace(choice, standardized=overlap_of_permutations(view.coarse, votes))
            for choice, view in zip(choices, views, strict=True)
        ]
    return [
        dataclasses.replace(choice, index=tried[choice.index])
        for choice, tried in zip(choices, places, strict=True)
    ]


def _counted(
    lists: list[dict[int, NDArray[np.int32]]], chosen: tuple[int, ...] | None
) -> list[list[int]]:
    """Positions of the settings of each view that vote: the chosen one, or all in the first round."""
    return [list(by) for by in lists] if chosen is None else [[position] for position in chosen]
