"""Choosing each view's scaling and α before the fit, by agreement of neighbours between views."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from mscam_dask.data.views import MultiViewData
from mscam_dask.engine.executor import Executor
from mscam_dask.engine.tasks import preparation as preparation_tasks
from mscam_dask.engine.tasks.views import view_shape
from mscam_dask.model.parameters import Parameters, Preparation
from mscam_dask.model.records import PreparationRecord

__all__ = ["agree", "with_preparations"]

# Rows compared: the standard error of an agreement is below 0.01 with so many.
_SAMPLE = 3000

_NEIGHBORS = 9


def agree(
    data: MultiViewData, options: Sequence[Preparation], seed: int, executor: Executor
) -> tuple[PreparationRecord, ...]:
    """The preparation of each view whose nearest neighbours the other views confirm.

    Parameters
    ----------
    data : MultiViewData
        Of two views or more.
    options : sequence of Preparation
        Tried on every view.
    seed : int
        Of the sample of rows that is compared where there are more than 3000.
    executor : Executor
        Entered.

    Returns
    -------
    tuple of PreparationRecord
        One per view.
    """
    n = data.n_samples
    sample = np.arange(n)
    if n > _SAMPLE:
        rng = np.random.default_rng(seed)
        sample = np.sort(rng.choice(n, _SAMPLE, replace=False))
    k = min(_NEIGHBORS, len(sample) - 1)
    found = [
        executor.submit(
            preparation_tasks.sampled_neighbors,
            source,
            tuple(options),
            sample,
            k,
            key=f"sampled_neighbors/{source.name}",
        )
        for source in data.views
    ]
    shapes = [view_shape(source) for source in data.views]
    chosen = executor.submit(
        preparation_tasks.choose, found, shapes, tuple(options), key="choose_preparations"
    )
    (choices,) = executor.gather([chosen])
    executor.release([*found, chosen])
    return tuple(
        PreparationRecord(
            view=name,
            scale=options[choice.index].scale,
            alpha=options[choice.index].alpha,
            agreement=choice.agreement,
            ahead=choice.ahead,
        )
        for name, choice in zip(data.view_names, choices, strict=True)
    )


def with_preparations(
    candidates: Sequence[Parameters], records: Sequence[PreparationRecord]
) -> tuple[Parameters, ...]:
    """The candidates with the preparations that were chosen, equal ones once."""
    chosen = tuple(Preparation(record.scale, record.alpha) for record in records)
    replaced = (dataclasses.replace(one, preparations=chosen) for one in candidates)
    return tuple(dict.fromkeys(replaced))
