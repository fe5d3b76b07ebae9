"""Whether settings can be used with data, before any fit."""

from __future__ import annotations

from typing import Any, get_args

from mscam_dask.baselines.base import require_choice
from mscam_dask.data.multiview import MultiViewData
from mscam_dask.errors import MscamError
from mscam_dask.model.parameters import Scale
from mscam_dask.pipeline.experiments.fitting import cell_data
from mscam_dask.pipeline.experiments.methods import METHODS, make_estimator
from mscam_dask.pipeline.experiments.planning import Contest

__all__ = ["check_contest"]


def check_contest(contest: Contest) -> None:
    """Refuse what a method would refuse as soon as it is fitted.

    Raises
    ------
    MscamError
        What the method says, after the names of method and data set.
    """
    first = contest.cell(contest.settings[0], contest.seeds[0])
    data = cell_data(first, shuffle=False)
    for setting in contest.settings:
        parameters = contest.cell(setting, contest.seeds[0]).parameters
        where = f"{contest.method} on {contest.dataset.entry.name}"
        try:
            estimator = make_estimator(
                METHODS[contest.method], first.n_clusters, first.seed, parameters
            )
            _check(estimator, data)
        except MscamError as error:
            raise type(error)(f"{where}: {error}") from error


def _check(estimator: Any, data: MultiViewData) -> None:
    # What both faces do first when they are fitted; neither reads the data for it.
    if hasattr(estimator, "_candidates"):
        estimator._candidates(data)
    else:
        require_choice("scale", estimator.scale, get_args(Scale))
        estimator._check(data)
        estimator._chosen(data)
