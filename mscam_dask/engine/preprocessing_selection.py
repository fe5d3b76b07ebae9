"""Choosing each view's scaling and α before the fit, by agreement of neighbors between views.

The same agreement tells which views may have nothing in common with the others; whether these are
better left out, the judge of partitions says: docs/decisions/0072.
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

__all__ = [
    "COMPARED",
    "ViewSettingsChoice",
    "choice_for",
    "select_view_settings",
    "with_view_settings",
]

ViewSettingsChoice = tuple[ViewSettingsSelected, ...]
"""What was chosen for each view."""

COMPARED = 3000
"""Most rows compared: the standard error of an agreement is below 0.01 with so many."""

_NEIGHBORS = 9

# Of so many rows a tenth each are compared too, to tell which views are confirmed by no other: docs/decisions/0072.
_COARSELY_COMPARED = 1000
_COARSELY = 10

# Of two views neither can be told to be the one that knows nothing.
_FEWEST_CONFIRMING = 2

# Below it, directions of little variance count as much as the others; see `select_view_settings`.
_MILD_ALPHA = 1.0


def select_view_settings(
    data: MultiViewData,
    options: Sequence[ViewSettings],
    seed: int,
    executor: Executor,
    *,
    n_compared: int = COMPARED,
) -> tuple[ViewSettingsChoice, ...]:
    """The preparation of each view whose nearest neighbors the other views confirm.

    What all views share need not be the clusters: small α lets directions of little variance in, and rows of
    unit length leave of two columns the angle alone. So the choice is made again among the options with
    α ≥ 1 and, where a view has few columns, once more with these rows as long as they are.

    Parameters
    ----------
    data : MultiViewData
        Of two views or more.
    options : sequence of Preparation
        Tried on every view.
    seed : int
        Of the sample of rows that is compared where there are more than `n_compared`.
    executor : Executor
        Entered.
    n_compared : int
        Most rows that are compared.

    Returns
    -------
    tuple of Agreement
        Among all options first; then the others, where they are other choices.
    """
    rng = np.random.default_rng(seed)
    sample = _drawn(data.n_samples, n_compared, rng)
    k = min(_NEIGHBORS, len(sample) - 1)
    coarse = None
    if len(data.views) > _FEWEST_CONFIRMING:
        rows = _drawn(len(sample), _COARSELY_COMPARED, rng)
        coarse = preprocessing_tasks.Coarse(rows, max(k, len(rows) // _COARSELY))
    found = [
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
    wide = any(option.alpha < _MILD_ALPHA <= other.alpha for option in options for other in options)
    mildest = _MILD_ALPHA if wide else 0.0
    asked = [(0.0, False), (mildest, False)]
    if len({option.scale for option in options}) > 1 and any(map(has_few_columns, shapes)):
        asked.append((mildest, True))
    chosen = [
        executor.submit(
            preprocessing_tasks.choose,
            found,
            shapes,
            tuple(options),
            least_alpha,
            keeps_lengths,
            key=f"select_preprocessing/{least_alpha:g}-{keeps_lengths}",
        )
        for least_alpha, keeps_lengths in dict.fromkeys(asked)
    ]
    coarsely = []
    if coarse is not None:
        coarsely.append(
            executor.submit(preprocessing_tasks.coarse_overlaps, found, key="coarse_overlaps")
        )
    gathered = executor.gather([*chosen, *coarsely])
    executor.release([*found, *chosen, *coarsely])
    choices_of_each = gathered[: len(chosen)]
    # once for all of them: partitions are compared that the same views judge
    unconfirmed = () if coarse is None else uninformative_views(gathered[0], gathered[-1])
    agreements = [
        _agreement(data.view_names, options, choices, unconfirmed) for choices in choices_of_each
    ]
    by_preparations = {_preparations(agreement): agreement for agreement in reversed(agreements)}
    return tuple(reversed(by_preparations.values()))


def _drawn(n_samples: int, most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    if n_samples <= most:
        return np.arange(n_samples)
    return np.sort(rng.choice(n_samples, most, replace=False))


def _agreement(
    names: Sequence[str],
    options: Sequence[ViewSettings],
    choices: Sequence[Choice],
    unconfirmed: Sequence[int],
) -> ViewSettingsChoice:
    return tuple(
        ViewSettingsSelected(
            view=name,
            scale=options[choice.index].scale,
            alpha=options[choice.index].alpha,
            agreement=choice.agreement,
            ahead=choice.ahead,
            is_informative=view not in unconfirmed,
        )
        for view, (name, choice) in enumerate(zip(names, choices, strict=True))
    )


def with_view_settings(
    candidates: Sequence[Parameters],
    agreements: Sequence[ViewSettingsChoice],
    *,
    may_exclude_views: bool,
) -> tuple[Parameters, ...]:
    """The candidates with the preparations of each agreement in turn, equal ones once.

    With `may_exclude_views`, each without the views that are not confirmed, then with all; else without those
    that it says.
    """
    replaced = (
        dataclasses.replace(
            one, view_settings=_preparations(agreement), exclude_views=exclude_views
        )
        for agreement in agreements
        for one in candidates
        for exclude_views in (
            (_unconfirmed(agreement), ()) if may_exclude_views else (one.exclude_views,)
        )
    )
    return tuple(dict.fromkeys(replaced))


def _unconfirmed(agreement: ViewSettingsChoice) -> tuple[int, ...]:
    return tuple(view for view, record in enumerate(agreement) if not record.is_informative)


def choice_for(
    parameters: Parameters, agreements: Sequence[ViewSettingsChoice]
) -> ViewSettingsChoice:
    """The agreement that gave these parameters their preparations; empty where none did."""
    for agreement in agreements:
        if _preparations(agreement) == parameters.view_settings:
            return agreement
    return ()


def _preparations(agreement: ViewSettingsChoice) -> tuple[ViewSettings, ...]:
    return tuple(ViewSettings(record.scale, record.alpha) for record in agreement)
