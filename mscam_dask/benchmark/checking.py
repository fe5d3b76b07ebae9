"""Whether settings can be used with data, before any fit."""

from __future__ import annotations

from mscam_dask.benchmark.baselines.base import Baseline
from mscam_dask.benchmark.fitting import trial_data
from mscam_dask.benchmark.methods import METHODS, make_estimator
from mscam_dask.benchmark.schedule import MethodRun
from mscam_dask.errors import MscamError

__all__ = ["check_contest"]


def check_contest(contest: MethodRun) -> None:
    """Refuse what a method would refuse as soon as it is fitted.

    Raises
    ------
    MscamError
        What the method says, after the names of method and data set.
    """
    first = contest.trial(contest.settings[0], contest.seeds[0])
    data = trial_data(first, shuffle=False)
    for setting in contest.settings:
        parameters = contest.trial(setting, contest.seeds[0]).parameters
        where = f"{contest.method} on {contest.dataset.entry.name}"
        try:
            estimator = make_estimator(
                METHODS[contest.method], first.n_clusters, first.seed, parameters
            )
            if isinstance(estimator, Baseline):
                estimator.check_parameters(data)
            else:
                estimator.candidate_settings(data)
        except MscamError as error:
            raise type(error)(f"{where}: {error}") from error
