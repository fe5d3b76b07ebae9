"""Selection of scale and α of each view before the fit, by neighbor overlap between views.

Neighbor overlap also finds views that are uninformative. Partition scores decide whether these are
excluded: docs/decisions/0072.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.as_multi_view import MultiViewData
from mscam_dask.engine.executors.base import Executor
from mscam_dask.engine.tasks import preprocessing as preprocessing_tasks
from mscam_dask.engine.tasks.views import view_shape
from mscam_dask.solvers.preprocessing import Choice, has_few_columns, uninformative_views
from mscam_dask.types.events import ViewSettingsSelected
from mscam_dask.types.parameters import Parameters, ViewSettings
from mscam_dask.types.rules import CONSTANTS, RULES, SIZES

__all__ = [
    "ViewSettingsChoice",
    "choice_for",
    "select_view_settings",
    "with_view_settings",
]

ViewSettingsChoice = tuple[ViewSettingsSelected, ...]
"""Selected settings of each view."""

# With two views it is unknown which of them is uninformative.
_MIN_CONFIRMING = 2


def select_view_settings(
    data: MultiViewData,
    options: Sequence[ViewSettings],
    seed: int,
    executor: Executor,
    *,
    n_compared: int = SIZES.n_compared,
) -> tuple[ViewSettingsChoice, ...]:
    """Select the settings of each view with the largest neighbor overlap with the other views.

    Structure that all views share need not be the clusters: small α keeps directions of little variance,
    and unit length reduces two columns to an angle. So the selection is repeated among options with α ≥ 1
    and, if a view has few columns, once more without unit length for such views.

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
    sample = _drawn(data.n_samples, n_compared, rng)
    k = min(CONSTANTS.validation_neighbors, len(sample) - 1)
    coarse = None
    if len(data.views) > _MIN_CONFIRMING:
        rows = _drawn(len(sample), SIZES.n_coarsely_compared, rng)
        coarse = preprocessing_tasks.Coarse(rows, max(k, len(rows) // CONSTANTS.coarse_divisor))
    neighbors = [
        executor.submit(
            preprocessing_tasks.sampled_neighbors,
            source,
            tuple(options),
            sample,
            k,
            coarse,
            key=f"sampled_neighbors/{source.name}",
        )
        for source in data.views
    ]
    shapes = [view_shape(source) for source in data.views]
    wide = any(
        option.alpha < RULES.strong_ridge <= other.alpha for option in options for other in options
    )
    mildest = RULES.strong_ridge if wide else 0.0
    rules = [(0.0, False), (mildest, False)]
    if len({option.scale for option in options}) > 1 and any(map(has_few_columns, shapes)):
        rules.append((mildest, True))
    chosen = [
        executor.submit(
            preprocessing_tasks.choose,
            neighbors,
            shapes,
            tuple(options),
            least_alpha,
            keeps_lengths,
            key=f"select_preprocessing/{least_alpha:g}-{keeps_lengths}",
        )
        for least_alpha, keeps_lengths in dict.fromkeys(rules)
    ]
    coarsely = []
    if coarse is not None:
        coarsely.append(
            executor.submit(preprocessing_tasks.coarse_overlaps, neighbors, key="coarse_overlaps")
        )
    gathered = executor.gather([*chosen, *coarsely])
    executor.release([*neighbors, *chosen, *coarsely])
    choices_of_each = gathered[: len(chosen)]
    # the same for all of them: partitions are compared by the scores of the same views
    uninformative = () if coarse is None else uninformative_views(gathered[0], gathered[-1])
    agreements = [
        _agreement(data.view_names, options, choices, uninformative) for choices in choices_of_each
    ]
    by_settings = {_view_settings(agreement): agreement for agreement in reversed(agreements)}
    return tuple(reversed(by_settings.values()))


def _drawn(n_samples: int, most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    if n_samples <= most:
        return np.arange(n_samples)
    return np.sort(rng.choice(n_samples, most, replace=False))


def _agreement(
    names: Sequence[str],
    options: Sequence[ViewSettings],
    choices: Sequence[Choice],
    uninformative: Sequence[int],
) -> ViewSettingsChoice:
    return tuple(
        ViewSettingsSelected(
            view=name,
            scale=options[choice.index].scale,
            alpha=options[choice.index].alpha,
            agreement=choice.agreement,
            ahead=choice.ahead,
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
