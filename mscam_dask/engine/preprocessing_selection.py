"""Selection of scale and α of each view before the fit, by neighbor overlap between views.

Neighbor overlap also finds views that are uninformative. Partition scores decide whether these are
excluded: docs/decisions/0014.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.rows import sampled_view
from mscam_dask.data.views.sources import RowSource
from mscam_dask.engine.blocks import Stage
from mscam_dask.engine.executors.base import Handle
from mscam_dask.engine.views import FactoredView, SVDs, svd_once, view_shape
from mscam_dask.errors import DataError
from mscam_dask.linalg.incomplete import PresentSamples
from mscam_dask.linalg.neighbor_information import neighbor_votes
from mscam_dask.linalg.scaling import BY_ROWS
from mscam_dask.solvers.preprocessing import (
    Choice,
    choose_view_settings,
    default_settings,
    embedding_neighbors,
    has_few_columns,
    overlap_of_permutations,
    uninformative_views,
)
from mscam_dask.types.events import ViewSettingsSelected
from mscam_dask.types.parameters import Parameters, ViewSettings
from mscam_dask.types.rules import CONSTANTS, SIZES

ViewSelections = dict[tuple[ViewSettings, ...], tuple[ViewSettingsSelected, ...]]
"""Records of the selected settings of each view, by these settings."""

# The largest number of tasks that select settings in a round; the fewest views whose dense graphs of the sample are
# summed by one task, and the most such tasks.
_MAX_TASKS = 64
_SUMMED_TOGETHER, _MAX_SUMMED = 8, 8


def select_view_settings(
    stage: Stage,
    data: MultiViewData,
    options: Sequence[ViewSettings],
    seed: int,
    svds: SVDs,
    *,
    n_clusters: int,
    n_compared: int = SIZES.n_compared,
) -> ViewSelections:
    """Select the settings of each view with the largest neighbor overlap with the other views.

    Structure that all views share need not be the clusters. Unit length reduces two columns to an angle, so
    it is no option for views of few columns. Small α keeps directions of little variance, so the selection
    is repeated without the smallest α. The selection among all options comes first, then the other if it
    differs. At most `n_compared` rows are compared; if these are all, `svds` gets the SVDs. Views are uninformative by their nearest neighbors and by as many as a
    cluster has on average.
    """
    rng = np.random.default_rng(seed)
    rows = _drawn(data.n_samples, rows_compared(len(data.views), n_compared), rng)
    k = min(CONSTANTS.validation_neighbors, len(rows) - 1)
    some = _drawn(len(rows), SIZES.n_coarsely_compared, rng)
    n_coarse = max(k, len(some) // n_clusters)
    are_all = len(rows) == data.n_samples
    views = data.views if are_all else [sampled_view(source, rows) for source in data.views]
    searched = [
        _neighbors_of_view(
            stage,
            source,
            _options_of(data, source.name, options),
            svds if are_all else {},
            k,
            some,
            n_coarse,
        )
        for source in views
    ]
    neighbors, coarse = zip(*searched, strict=True)
    least_alphas = sorted({option.alpha for option in options})[:2]
    selections, of_many = _select(stage, neighbors, coarse, least_alphas)
    # the same for all of them: partitions are compared by the scores of the same views
    uninformative = uninformative_views(selections[0], of_many)
    if not data.covers_samples_without(uninformative):
        uninformative = ()
    overlaps = [
        max(choice.standardized for choice in of_view)
        for of_view in zip(*selections, of_many, strict=True)
    ]
    found: ViewSelections = {}
    for choices in selections:
        records = _records(data.view_names, choices, uninformative, overlaps)
        found.setdefault(tuple(choice.settings for choice in choices), records)
    return found


def _options_of(
    data: MultiViewData, view: str, options: Sequence[ViewSettings]
) -> list[ViewSettings]:
    """Settings of one view, whose rows of unit length may be those of its logarithms."""
    return [
        dataclasses.replace(option, scale=data.row_scale(view))
        if option.scale == "unit"
        else option
        for option in options
    ]


def _neighbors_of_view(
    stage: Stage,
    source: RowSource,
    options: Sequence[ViewSettings],
    svds: SVDs,
    n_neighbors: int,
    some: NDArray[np.int64],
    n_coarse: int,
) -> tuple[Handle, Handle]:
    """Submit the neighbors of all rows of a view for each candidate setting, and many of `some` rows.

    Settings that make all rows equal are skipped, and unit length for rows of few columns.
    """
    shape, present = view_shape(source), source.present
    default = default_settings(shape, options)
    if present is not None:
        n_some = int(np.count_nonzero(present.positions[some] >= 0))
        if min(len(present), n_some) < _MIN_PRESENT:
            nothing = np.full((present.n_samples, 1), -1, dtype=np.int32)
            return {default: nothing}, {default: nothing[: len(some)]}
    if source.view_type != "features":  # it is not scaled
        options = [ViewSettings(options[0].scale, option.alpha) for option in options]
    scales = list(dict.fromkeys(option.scale for option in options))
    if has_few_columns(shape) and len(scales) > 1:  # unit length gives up one dimension
        scales = [scale for scale in scales if scale not in BY_ROWS]
    scales.sort(key=lambda scale: scale != default.scale)
    views = {scale: svd_once(stage, svds, source, scale) for scale in scales}
    settings = sorted(  # the default is the first
        {option for option in options if option.scale in scales},
        key=lambda option: (scales.index(option.scale), -option.alpha),
    )
    lists = [
        stage.submit(sampled_neighbors, views[one.scale], one, n_neighbors) for one in settings
    ]
    firsts = [next(one for one in settings if one.scale == scale) for scale in scales]
    many = stage.submit(default_neighbors, [*views.values()], firsts, some, n_coarse)
    return stage.submit(functools.reduce, operator.or_, lists, kind="joined_settings"), many


def rows_compared(n_views: int, most: int) -> int:
    """Number of rows of each view in which neighbors are searched exhaustively: `most`, or fewer."""
    wanted = int(most * math.sqrt(min(1.0, SIZES.few_views / n_views)))
    return min(most, max(SIZES.n_coarsely_compared, wanted))


def _select(
    stage: Stage,
    neighbors: Sequence[Handle],
    coarse: Sequence[Handle],
    least_alphas: Sequence[float],
) -> tuple[list[tuple[Choice, ...]], tuple[Choice, ...]]:
    """Select the settings of each view for each smallest α that is allowed, and its coarse overlap.

    In the first round a view is compared with the mean over all settings of every other view, then with
    those selected in the previous round, until nothing changes.
    """
    found: dict[float, tuple[Choice, ...]] = {}
    selected: dict[float, tuple[ViewSettings, ...] | None] = dict.fromkeys(least_alphas)
    changed = list(least_alphas)
    overlaps: list[Handle] = []
    for _ in range(SIZES.max_overlap_rounds):
        submitted = [
            _submit_choices(stage, choices_of_views, neighbors, least, selected[least])
            for least in changed
        ]
        if not overlaps:  # they are awaited at the end
            overlaps = _submit_choices(stage, coarse_choices, coarse, least_alphas[0], None)
        before = dict(selected)
        for least, groups in zip(changed, stage.gather(*submitted), strict=True):
            found[least] = tuple(itertools.chain.from_iterable(groups))
            selected[least] = tuple(choice.settings for choice in found[least])
        changed = [least for least in changed if selected[least] != before[least]]
        if not changed:
            break
    of_coarse = stage.executor.gather(overlaps)
    return [*found.values()], tuple(itertools.chain.from_iterable(of_coarse))


def _submit_choices(
    stage: Stage,
    function: Callable[..., list[Choice]],
    neighbors: Sequence[Handle],
    least_alpha: float,
    before: tuple[ViewSettings, ...] | None,
) -> list[Handle]:
    """Submit the selection of the settings of each view in one round, by groups of views."""
    n_views = len(neighbors)
    votes = [
        stage.submit(votes_of_views, list(neighbors[span]), least_alpha, before and before[span])
        for span in _spans(n_views, max(_SUMMED_TOGETHER, -(-n_views // _MAX_SUMMED)))
    ]
    (total,) = stage.tree(sum, votes)
    popularity = stage.submit(np.mean, total, 0, np.float64, kind="popularity")
    return [
        stage.submit(
            function,
            list(neighbors[span]),
            total,
            popularity,
            least_alpha,
            before and before[span],
            n_views,
        )
        for span in _spans(n_views, -(-n_views // _MAX_TASKS))
    ]


def _spans(n_views: int, together: int) -> list[slice]:
    return [slice(first, first + together) for first in range(0, n_views, together)]


def _drawn(n_samples: int, most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    if n_samples <= most:
        return np.arange(n_samples)
    return np.sort(rng.choice(n_samples, most, replace=False))


def _records(
    names: Sequence[str],
    choices: Sequence[Choice],
    uninformative: Sequence[int],
    overlaps: Sequence[float],
) -> tuple[ViewSettingsSelected, ...]:
    return tuple(
        ViewSettingsSelected(
            view=name,
            scale=choice.settings.scale,
            alpha=choice.settings.alpha,
            agreement=choice.agreement,
            ahead=choice.margin,
            overlap=overlaps[view],
            is_informative=view not in uninformative,
        )
        for view, (name, choice) in enumerate(zip(names, choices, strict=True))
    )


def with_view_settings(
    candidates: Sequence[Parameters], selections: ViewSelections, *, may_exclude_views: bool
) -> tuple[Parameters, ...]:
    """Return the candidates with the view settings of each selection in turn, without duplicates."""
    found = []
    for settings, records in selections.items():
        uninformative = tuple(
            view for view, record in enumerate(records) if not record.is_informative
        )
        for candidate in candidates:
            options = (uninformative, ()) if may_exclude_views else (candidate.exclude_views,)
            found += [
                dataclasses.replace(candidate, view_settings=settings, exclude_views=excluded)
                for excluded in options
            ]
    return tuple(dict.fromkeys(found))


# With fewer sampled rows, settings of an incomplete view are not compared.
_MIN_PRESENT = 3


SampledNeighbors = dict[ViewSettings, NDArray[np.int32]]
"""Neighbors (m, k) of sampled rows in one view, by its settings, the default first."""


def sampled_neighbors(
    found: FactoredView | DataError, settings: ViewSettings, n_neighbors: int
) -> SampledNeighbors:
    """Nearest neighbors of all rows of a view; none if the scaling made all rows equal."""
    if isinstance(found, DataError):
        return {}
    return {settings: _neighbors_among(found, settings.alpha, n_neighbors, slice(None))}


def default_neighbors(
    views: list[FactoredView | DataError],
    settings: list[ViewSettings],
    some: NDArray[np.int64],
    n_neighbors: int,
) -> SampledNeighbors:
    """Many neighbors of some rows, with the first scaling that does not make all rows equal."""
    for found, one in zip(views, settings, strict=True):
        if isinstance(found, FactoredView):
            return {one: _neighbors_among(found, one.alpha, n_neighbors, some)}
    raise next(found for found in views if isinstance(found, DataError))


def _neighbors_among(
    found: FactoredView, alpha: float, n_neighbors: int, rows: slice | NDArray[np.int64]
) -> NDArray[np.int32]:
    """Nearest neighbors (m, k) of some rows of a view among these; −1 for samples that it does not have."""
    if found.present is None:
        return embedding_neighbors(found.view, alpha, n_neighbors, rows)
    positions = found.present.positions[rows]
    own = PresentSamples(np.flatnonzero(positions >= 0), len(positions))
    k = min(n_neighbors, len(own) - 1)
    lists = embedding_neighbors(found.view, alpha, k, positions[own.samples])
    return own.spread(own.samples[lists].astype(np.int32), fill=-1)


def votes_of_views(
    views: list[SampledNeighbors], least_alpha: float, selected: tuple[ViewSettings, ...] | None
) -> NDArray[np.float32]:
    """Sum of the neighbor graphs of some views with the selected settings, or their mean over all settings."""
    lists = [_allowed(view, least_alpha) for view in views]
    voting = _voting(lists, selected)
    voted = [[view[one] for one in settings] for view, settings in zip(lists, voting, strict=True)]
    return neighbor_votes(voted, len(voted[0][0]))


def choices_of_views(
    views: list[SampledNeighbors],
    votes: NDArray[np.float32],
    popularity: NDArray[np.float64],
    least_alpha: float,
    selected: tuple[ViewSettings, ...] | None,
    n_views: int,
) -> list[Choice]:
    """Select the settings of some views by the votes of all views; see `choose_view_settings`."""
    lists = [_allowed(view, least_alpha) for view in views]
    usual = [next(iter(view)) for view in lists]
    return choose_view_settings(lists, _voting(lists, selected), usual, votes, popularity, n_views)


def coarse_choices(
    views: list[SampledNeighbors], votes: NDArray[np.float32], *arguments: Any
) -> list[Choice]:
    """Overlap of some views with many neighbors, whose shared numbers are far from Poisson."""
    found = []
    for view, choice in zip(views, choices_of_views(views, votes, *arguments), strict=True):
        (neighbors,) = view.values()
        standardized = overlap_of_permutations(neighbors, votes)
        found.append(dataclasses.replace(choice, standardized=standardized))
    return found


def _allowed(view: SampledNeighbors, least_alpha: float) -> SampledNeighbors:
    """Neighbors of a view for the settings with a large enough α, or for all of them if it has none of these."""
    return {one: found for one, found in view.items() if one.alpha >= least_alpha} or view


def _voting(
    lists: list[SampledNeighbors], selected: tuple[ViewSettings, ...] | None
) -> list[list[ViewSettings]]:
    """Settings of each view that vote: the selected ones, or all in the first round."""
    return [list(view) for view in lists] if selected is None else [[one] for one in selected]
