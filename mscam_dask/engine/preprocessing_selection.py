"""Selection of scale and α of each view before the fit, by neighbor overlap between views.

Neighbor overlap also finds views that are uninformative. Partition scores decide whether these are
excluded: docs/decisions/0072.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.as_multi_view import MultiViewData, RowSource
from mscam_dask.data.views.sampling import sampled_view
from mscam_dask.data.views.sources import ArrayRows
from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.tasks import preprocessing as preprocessing_tasks
from mscam_dask.engine.tasks.preprocessing import Rule
from mscam_dask.solvers.preprocessing import (
    Choice,
    uninformative_views,
)
from mscam_dask.types.events import ViewSettingsSelected
from mscam_dask.types.parameters import Parameters, ViewSettings
from mscam_dask.types.rules import CONSTANTS, RULES, SIZES

__all__ = [
    "ViewSettingsChoice",
    "choice_for",
    "rows_compared",
    "select_view_settings",
    "with_view_settings",
]

ViewSettingsChoice = tuple[ViewSettingsSelected, ...]
"""Selected settings of each view."""

# The smallest numbers of views in a task, and the largest numbers of tasks that select settings in a round,
# and whose dense graphs of the sample are summed.
_MIN_TOGETHER = 2
_MAX_TASKS = 64
_MAX_SUMMED = 8


def select_view_settings(
    data: MultiViewData,
    options: Sequence[ViewSettings],
    seed: int,
    executor: Executor,
    *,
    n_compared: int = SIZES.n_compared,
) -> tuple[ViewSettingsChoice, ...]:
    """Select the settings of each view with the largest neighbor overlap with the other views.

    Structure that all views share need not be the clusters. Unit length reduces two columns to an angle, so
    it is no option for views of few columns. Small α keeps directions of little variance, so the selection
    is repeated among options with α ≥ 1.

    Parameters
    ----------
    data : MultiViewData
        Data of two views or more.
    options : sequence of ViewSettings
        Candidates for every view.
    seed : int
        Seed of the sample of rows, if there are more than `n_compared`.
    executor : Executor
        Entered.
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
    coarse = preprocessing_tasks.Coarse(some, max(k, len(some) // CONSTANTS.coarse_divisor))
    # the searches in few views are split by scaling, because each task reads the rows of the view
    n_scales = len({option.scale for option in options})
    n_parts = n_scales if len(data.views) <= SIZES.few_views else 1
    neighbors = [
        _neighbors_of_view(source, tuple(options), (rows, k, coarse), n_parts, executor)
        for source in data.views
    ]
    wide = any(
        option.alpha < RULES.strong_ridge <= other.alpha for option in options for other in options
    )
    mildest = RULES.strong_ridge if wide else 0.0
    selections = _select(
        neighbors,
        [Rule(tuple(options), least) for least in dict.fromkeys((0.0, mildest))],
        executor,
    )
    executor.release(neighbors)
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


def _neighbors_of_view(
    source: RowSource,
    options: tuple[ViewSettings, ...],
    searched: tuple[NDArray[np.int64], int, preprocessing_tasks.Coarse],
    n_parts: int,
    executor: Executor,
) -> Handle:
    """Submit the neighbors of the sampled rows of a view, by parts of the scalings."""
    rows, k, coarse = searched
    if isinstance(source, ArrayRows):  # only these rows are sent
        source, rows = sampled_view(source, rows), np.arange(len(rows))
    parts = [
        executor.submit(
            preprocessing_tasks.sampled_neighbors,
            source,
            options,
            rows,
            k,
            coarse,
            (part, n_parts),
            key=f"sampled_neighbors/{source.name}/{part}",
        )
        for part in range(n_parts)
    ]
    joined = executor.submit(
        preprocessing_tasks.joined_settings, parts, key=f"joined_settings/{source.name}"
    )
    executor.release(parts)
    return joined


def rows_compared(n_views: int, most: int) -> int:
    """Number of rows of each view in which neighbors are searched exhaustively: `most`, or fewer.

    With more than eight views it falls with the root of their number, but not below 1000, so that the
    searches in all views take as long as in eight.
    """
    wanted = int(most * math.sqrt(min(1.0, SIZES.few_views / n_views)))
    return min(most, max(SIZES.n_coarsely_compared, wanted))


def _select(
    neighbors: Sequence[Handle], rules: Sequence[Rule], executor: Executor
) -> list[tuple[Choice, ...]]:
    """Select the settings of each view by each rule; the coarse overlaps come last.

    In the first round a view is compared with the mean over all settings of every other view, then with
    those selected in the previous round, until nothing changes. The result does not depend on the order
    of the views.
    """
    rules = [*rules, Rule((), is_coarse=True)]
    n_views = len(neighbors)
    voting = _spans(n_views, max(4 * _MIN_TOGETHER, -(-n_views // _MAX_SUMMED)))
    choosing = _spans(n_views, max(_MIN_TOGETHER, -(-n_views // _MAX_TASKS)))
    found: list[tuple[Choice, ...]] = [()] * len(rules)
    chosen: dict[int, tuple[int, ...] | None] = dict.fromkeys(range(len(rules)))
    for turn in range(SIZES.max_overlap_rounds):
        submitted, released = [], []
        for which, before in chosen.items():
            key = f"{turn}-{which}"
            votes = [
                executor.submit(
                    preprocessing_tasks.votes_of_views,
                    list(neighbors[span]),
                    rules[which],
                    before and before[span],
                    key=f"neighbor_votes/{key}/{span.start}",
                )
                for span in voting
            ]
            total = executor.submit(
                preprocessing_tasks.summed_votes, votes, key=f"summed_votes/{key}"
            )
            submitted += [
                executor.submit(
                    preprocessing_tasks.choices_of_views,
                    list(neighbors[span]),
                    total,
                    rules[which],
                    before and before[span],
                    n_views,
                    key=f"select_preprocessing/{key}/{span.start}",
                )
                for span in choosing
            ]
            released += [*votes, total]
        gathered = executor.gather(submitted)
        executor.release([*submitted, *released])
        following: dict[int, tuple[int, ...] | None] = {}
        groups = iter(gathered)
        for which, before in chosen.items():
            of_groups = itertools.islice(groups, len(choosing))
            found[which] = tuple(itertools.chain.from_iterable(of_groups))
            now = tuple(choice.index for choice in found[which])
            if now != before and not rules[which].is_coarse:
                following[which] = now
        chosen = following
    return found


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
            ahead=choice.ahead,
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
