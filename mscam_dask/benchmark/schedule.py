"""Which cells a comparison needs, and which setting of a method is the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mscam_dask.benchmark.load_datasets import Dataset
from mscam_dask.benchmark.methods import METHODS, grid_points
from mscam_dask.benchmark.results import Protocol, TrialEntry
from mscam_dask.benchmark.settings import ExperimentSettings, RunsTable
from mscam_dask.benchmark.trial import Trial

__all__ = ["MethodRun", "best_setting", "final_trials", "method_runs", "search_trials", "unique"]

_OVER = ("over time", "over memory")


@dataclass(frozen=True)
class MethodRun:
    """A method on a data set under a protocol, and the settings that are tried for it.

    Attributes
    ----------
    settings
        Parameters beyond the method's defaults. The best of several is chosen with labels.
    seeds
        Of all runs; the first `n_trials` of them try every setting.
    view_is_chosen
        Whether the settings differ in the single view, so that labels choose it.
    """

    dataset: Dataset
    method: str
    protocol: Protocol
    settings: tuple[dict[str, Any], ...]
    seeds: tuple[int, ...]
    n_trials: int
    shuffle: bool
    view_is_chosen: bool

    def trial(self, setting: Mapping[str, Any], seed: int) -> Trial:
        """Return the cell of a setting and a seed."""
        return Trial(
            dataset=self.dataset.entry.name,
            method=self.method,
            data=self.dataset.of(seed),
            n_clusters=self.dataset.entry.n_clusters,
            seed=seed,
            shuffled=self.shuffle and seed != 0,
            parameters={**METHODS[self.method].defaults, **setting},
        )


def method_runs(settings: ExperimentSettings, datasets: Mapping[str, Dataset]) -> list[MethodRun]:
    """Return every row of a comparison's table."""
    table = settings.table
    assert isinstance(table, RunsTable)
    names = list(METHODS) if table.methods is None else list(dict.fromkeys(table.methods))
    seeds = tuple(table.seed + run for run in range(table.runs))
    return [
        MethodRun(
            dataset=dataset,
            method=name,
            protocol=protocol,
            settings=tuple(_settings(settings, name, searched, dataset)),
            seeds=seeds,
            n_trials=min(table.search_runs, table.runs),
            shuffle=bool(getattr(table, "shuffle", False)),
            view_is_chosen=_view_is_chosen(settings, name, dataset),
        )
        for dataset in datasets.values()
        for name in names
        for protocol, searched in _protocols(settings, name, dataset)
    ]


def _view_is_chosen(settings: ExperimentSettings, name: str, dataset: Dataset) -> bool:
    """Return whether a method takes the best single view of a data set by its labels."""
    fixed = settings.parameters.get(name, {})
    return (
        METHODS[name].label_aware_view_choice
        and "view" not in fixed
        and len(dataset.entry.views) > 1
    )


def _protocols(
    settings: ExperimentSettings, name: str, dataset: Dataset
) -> list[tuple[Protocol, Protocol]]:
    """Protocol of each row of a method on a data set, and the protocol whose settings are tried.

    The best single view is chosen with labels, so its one row is never among the label-free rows.
    """
    table = settings.table
    assert isinstance(table, RunsTable)
    requested = list(dict.fromkeys(table.protocols))
    if not _view_is_chosen(settings, name, dataset):
        return [(protocol, protocol) for protocol in requested]
    return [("grid", "grid" if "grid" in requested else "defaults")]


def _settings(
    settings: ExperimentSettings, name: str, protocol: Protocol, dataset: Dataset
) -> list[dict[str, Any]]:
    method, fixed = METHODS[name], settings.parameters.get(name, {})
    grid: Mapping[str, Any] = {}
    if protocol == "grid":
        grid = settings.grids.get(name, method.grid)
        grid = {key: values for key, values in grid.items() if key not in fixed}
    if method.label_aware_view_choice and "view" not in fixed and "view" not in grid:
        grid = {"view": [view.name for view in dataset.entry.views], **grid}
    return [{**fixed, **point} for point in grid_points(grid)]


def search_trials(contest: MethodRun) -> list[Trial]:
    """Return what has to be known before the rest: every setting, with the first seeds."""
    n_trials = contest.n_trials if len(contest.settings) > 1 else 1
    return [
        contest.trial(setting, seed)
        for setting in contest.settings
        for seed in contest.seeds[:n_trials]
    ]


def best_setting(contest: MethodRun, found: Mapping[str, TrialEntry]) -> dict[str, Any]:
    """Return the setting of the highest mean accuracy over the first seeds; the earlier of a tie.

    A setting whose first runs all failed comes last.
    """
    if len(contest.settings) == 1:
        return contest.settings[0]

    def mean_accuracy(setting: Mapping[str, Any]) -> float:
        entries = [
            found[contest.trial(setting, seed).key] for seed in contest.seeds[: contest.n_trials]
        ]
        values = [one.scores["accuracy"] for one in entries if one.outcome == "ok"]
        known = [value for value in values if value is not None]
        return math.fsum(known) / len(known) if known else -1.0

    return max(contest.settings, key=mean_accuracy)


def final_trials(contest: MethodRun, found: Mapping[str, TrialEntry]) -> list[Trial]:
    """Return the other runs of the best setting; none when its first went over a limit."""
    setting = best_setting(contest, found)
    first = found[contest.trial(setting, contest.seeds[0]).key]
    if first.outcome in _OVER:
        return []
    return [contest.trial(setting, seed) for seed in contest.seeds]


def unique(trials: Sequence[Trial]) -> list[Trial]:
    """Return the cells, each key once."""
    return list({trial.key: trial for trial in trials}.values())
