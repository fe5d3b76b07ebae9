"""Selection of scale and α of each view before the fit, by neighbor overlap between views.

Neighbor overlap also finds views that are uninformative. Partition scores decide whether these are
excluded: docs/decisions/0014.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.presence import PresentRows, present_samples
from mscam_dask.data.views.sampling import SampledRows, sampled_view
from mscam_dask.data.views.sources import ArrayRows, RowSource
from mscam_dask.engine.executors.base import Handle
from mscam_dask.engine.stage import Stage
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
    uninformative_views,
)
from mscam_dask.solvers.row_blocks import ViewShape
from mscam_dask.solvers.view_svd import view_svd
from mscam_dask.types.events import ViewSettingsSelected
from mscam_dask.types.parameters import Parameters, Scale, ViewSettings
from mscam_dask.types.rules import CONSTANTS, SIZES

ViewSettingsChoice = tuple[ViewSettingsSelected, ...]
"""Selected settings of each view."""

# The smallest numbers of views in a task, and the largest numbers of tasks that select settings in a round,
# and whose dense graphs of the sample are summed.
_MIN_TOGETHER = 2
_MAX_TASKS = 64
_MAX_SUMMED = 8

# Columns of a view whose directions are found again in each of several tasks.
_FEW_COLUMNS = 256


def select_view_settings(
    stage: Stage,
    data: MultiViewData,
    options: Sequence[ViewSettings],
    seed: int,
    *,
    n_compared: int = SIZES.n_compared,
) -> tuple[ViewSettingsChoice, ...]:
    """Select the settings of each view with the largest neighbor overlap with the other views.

    Structure that all views share need not be the clusters. Unit length reduces two columns to an angle, so
    it is no option for views of few columns. Small α keeps directions of little variance, so the selection
    is repeated without the smallest α.

    Parameters
    ----------
    stage : Stage
    data : MultiViewData
        Data of two views or more.
    options : sequence of ViewSettings
        Candidates for every view.
    seed : int
        Seed of the sample of rows, if there are more than `n_compared`.
    n_compared : int
        Maximum number of rows that are compared.

    Returns
    -------
    tuple of ViewSettingsChoice
        Selection among all options first, then the others if they differ.
    """
    rng = np.random.default_rng(seed)
    rows = _drawn(data.n_samples, rows_compared(len(data.views), n_compared), rng)
    k = min(CONSTANTS.validation_neighbors, len(rows) - 1)
    some = _drawn(len(rows), SIZES.n_coarsely_compared, rng)
    coarse = Coarse(some, max(k, len(some) // CONSTANTS.coarse_divisor))
    neighbors = [
        _neighbors_of_view(
            stage,
            source,
            tuple(options),
            (rows, k, coarse),
            _n_parts(source, len(data.views), options),
        )
        for source in data.views
    ]
    alphas = sorted({option.alpha for option in options})
    selections = _select(stage, neighbors, [Rule(tuple(options), least) for least in alphas[:2]])
    of_many = selections.pop()
    # the same for all of them: partitions are compared by the scores of the same views
    uninformative = uninformative_views(selections[0], of_many)
    if not data.covers_samples_without(uninformative):
        uninformative = ()
    overlaps = [
        max(choice.standardized for choice in of_view)
        for of_view in zip(*selections, of_many, strict=True)
    ]
    agreements = [
        _agreement(data.view_names, options, choices, uninformative, overlaps)
        for choices in selections
    ]
    by_settings = {_view_settings(agreement): agreement for agreement in reversed(agreements)}
    return tuple(reversed(by_settings.values()))


def _n_parts(source: RowSource, n_views: int, options: Sequence[ViewSettings]) -> int:
    """Number of tasks that search neighbors in a view: one if there are many views, or by scaling.

    Each task finds the directions of the view again. With large data, whose other stages have many tasks,
    and few columns each setting has a task.
    """
    if n_views > SIZES.few_views:
        return 1
    is_large = source.shape[0] > SIZES.exact_samples and not isinstance(source, PresentRows)
    if is_large and source.view_type == "features" and source.shape[1] <= _FEW_COLUMNS:
        return len(set(options))
    return len({option.scale for option in options})


def _neighbors_of_view(
    stage: Stage,
    source: RowSource,
    options: tuple[ViewSettings, ...],
    searched: tuple[NDArray[np.int64], int, Coarse],
    n_parts: int,
) -> Handle:
    """Submit the neighbors of the sampled rows of a view, by parts of the settings."""
    rows, k, coarse = searched
    read: Handle = source
    if isinstance(source, ArrayRows):  # only these rows are sent
        read, rows = sampled_view(source, rows), np.arange(len(rows))
    elif n_parts > len({option.scale for option in options}):  # they are read once
        read = stage.submit(read_sample, source, rows)
        rows = np.arange(len(rows))
    parts = [
        stage.submit(
            sampled_neighbors,
            read,
            options,
            rows,
            k,
            coarse,
            (part, n_parts),
            part=f"{source.name}/{part}",
        )
        for part in range(n_parts)
    ]
    return stage.submit(joined_settings, parts)


def rows_compared(n_views: int, most: int) -> int:
    """Number of rows of each view in which neighbors are searched exhaustively: `most`, or fewer.

    With more than eight views it falls with the root of their number, but not below 1000, so that the
    searches in all views take as long as in eight.
    """
    wanted = int(most * math.sqrt(min(1.0, SIZES.few_views / n_views)))
    return min(most, max(SIZES.n_coarsely_compared, wanted))


def _select(
    stage: Stage, neighbors: Sequence[Handle], rules: Sequence[Rule]
) -> list[tuple[Choice, ...]]:
    """Select the settings of each view by each rule; the coarse overlaps come last.

    In the first round a view is compared with the mean over all settings of every other view, then with
    those selected in the previous round, until nothing changes. The result does not depend on the order
    of the views. The coarse overlaps, which take one round, are awaited at the end.
    """
    found: list[tuple[Choice, ...]] = [()] * len(rules)
    chosen: dict[int, tuple[int, ...] | None] = dict.fromkeys(range(len(rules)))
    coarse: list[Handle] = []
    for _ in range(SIZES.max_overlap_rounds):
        submitted = [
            _submit_choices(stage, neighbors, rules[which], before)
            for which, before in chosen.items()
        ]
        if not coarse:
            coarse = _submit_choices(stage, neighbors, Rule((), is_coarse=True), None)
        following: dict[int, tuple[int, ...] | None] = {}
        gathered = stage.gather(*submitted)
        for (which, before), groups in zip(chosen.items(), gathered, strict=True):
            found[which] = tuple(itertools.chain.from_iterable(groups))
            now = tuple(choice.index for choice in found[which])
            if now != before:
                following[which] = now
        chosen = following
        if not chosen:
            break
    overlaps = tuple(itertools.chain.from_iterable(stage.executor.gather(coarse)))
    return [*found, overlaps]


def _submit_choices(
    stage: Stage, neighbors: Sequence[Handle], rule: Rule, before: tuple[int, ...] | None
) -> list[Handle]:
    """Submit the selection of the settings of each view in one round, by groups of views."""
    n_views = len(neighbors)
    votes = [
        stage.submit(votes_of_views, list(neighbors[span]), rule, before and before[span])
        for span in _spans(n_views, max(4 * _MIN_TOGETHER, -(-n_views // _MAX_SUMMED)))
    ]
    total = stage.submit(summed_votes, votes)
    return [
        stage.submit(
            choices_of_views, list(neighbors[span]), total, rule, before and before[span], n_views
        )
        for span in _spans(n_views, max(_MIN_TOGETHER, -(-n_views // _MAX_TASKS)))
    ]


def _spans(n_views: int, together: int) -> list[slice]:
    return [slice(first, first + together) for first in range(0, n_views, together)]


def _drawn(n_samples: int, most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    if n_samples <= most:
        return np.arange(n_samples)
    return np.sort(rng.choice(n_samples, most, replace=False))


def _agreement(
    names: Sequence[str],
    options: Sequence[ViewSettings],
    choices: Sequence[Choice],
    uninformative: Sequence[int],
    overlaps: Sequence[float],
) -> ViewSettingsChoice:
    return tuple(
        ViewSettingsSelected(
            view=name,
            scale=options[choice.index].scale,
            alpha=options[choice.index].alpha,
            agreement=choice.agreement,
            ahead=choice.margin,
            overlap=overlaps[view],
            is_informative=view not in uninformative,
        )
        for view, (name, choice) in enumerate(zip(names, choices, strict=True))
    )


def with_view_settings(
    candidates: Sequence[Parameters],
    agreements: Sequence[ViewSettingsChoice],
    *,
    may_exclude_views: bool,
) -> tuple[Parameters, ...]:
    """Return the candidates with the view settings of each selection in turn, without duplicates.

    With `may_exclude_views`, each is tried without the uninformative views and then with all views;
    otherwise its own excluded views are kept.
    """
    replaced = (
        dataclasses.replace(
            candidate, view_settings=_view_settings(agreement), exclude_views=exclude_views
        )
        for agreement in agreements
        for candidate in candidates
        for exclude_views in (
            (_uninformative(agreement), ()) if may_exclude_views else (candidate.exclude_views,)
        )
    )
    return tuple(dict.fromkeys(replaced))


def _uninformative(agreement: ViewSettingsChoice) -> tuple[int, ...]:
    return tuple(view for view, record in enumerate(agreement) if not record.is_informative)


def choice_for(
    parameters: Parameters, agreements: Sequence[ViewSettingsChoice]
) -> ViewSettingsChoice:
    """Return the selection that gave these parameters their view settings; empty if none did."""
    for agreement in agreements:
        if _view_settings(agreement) == parameters.view_settings:
            return agreement
    return ()


def _view_settings(agreement: ViewSettingsChoice) -> tuple[ViewSettings, ...]:
    return tuple(ViewSettings(record.scale, record.alpha) for record in agreement)


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


def read_sample(source: RowSource, rows: NDArray[np.int64]) -> ArrayRows:
    """Some rows of a view, in memory."""
    return SampledRows(source, rows).in_memory()


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
    (number, count) each has some of the settings, and the first one the coarse neighbors.
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
    searches = [(scale, alpha) for scale in ordered for alpha in positions[scale]]
    together = -(-len(searches) // part[1])
    own_searches = searches[part[0] * together : (part[0] + 1) * together]
    for scale in ordered:
        # the first part has the default scaling, and the next one if that makes all rows equal
        searches_coarse = many is None and part[0] == 0
        wanted = [alpha for own, alpha in own_searches if own == scale]
        if not wanted and not searches_coarse:
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
        for alpha in wanted:
            neighbors[positions[scale][alpha]] = embedding_neighbors(view, alpha, n_neighbors)
        if searches_coarse:
            many = coarse_neighbors(view, max(positions[scale]), coarse.n_neighbors, coarse.rows)
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
