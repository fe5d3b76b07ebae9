"""Rows, curves and heat maps of an experiment: the trials of a method on a data set, and their results."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mscam_dask.benchmark.baselines.base import Baseline
from mscam_dask.benchmark.config import (
    CompareTable,
    ExperimentSettings,
    RunsTable,
    SweepTable,
)
from mscam_dask.benchmark.datasets import Dataset
from mscam_dask.benchmark.methods import METHODS, ROBUSTNESS, TABLES, grid_points, method
from mscam_dask.benchmark.results import (
    LABEL_FREE_SCORES,
    SCORES,
    CurveEntry,
    HeatMapEntry,
    MeanStd,
    Protocol,
    RowEntry,
    TrialEntry,
)
from mscam_dask.benchmark.trial import Trial
from mscam_dask.data.views.validation import validate
from mscam_dask.errors import ConfigurationError, MscamError

LABEL_FREE_MAPS = ("cross_view_information", "eigengap", "adjusted_modularity")
"""Label-free scores of a sweep; larger is better."""

_OVER_LIMIT = ("over time", "over memory")
_MEASURES = ("seconds", "peak_memory_bytes")

Entries = Mapping[str, TrialEntry]
"""Trials that have ended, by key."""


@dataclass(frozen=True)
class MethodRun:
    """A method on a data set under a protocol: one row of a comparison, or one map of a sweep."""

    dataset: Dataset
    method: str
    protocol: Protocol
    # Parameters that are not at the method's defaults; the best of several is chosen with labels.
    settings: tuple[dict[str, Any], ...]
    seeds: tuple[int, ...]
    n_search_seeds: int = 1  # first seeds with which every setting is run
    shuffle: bool = False  # whether the seed also shuffles the samples
    view_is_chosen: bool = False  # whether the settings are different single views
    label_free: bool = False  # whether the trials have scores without labels too

    def trial(self, setting: Mapping[str, Any], seed: int) -> Trial:
        """Return the trial of a setting and a seed."""
        return Trial(
            dataset=self.dataset.entry.name,
            method=self.method,
            data=self.dataset.data,
            n_clusters=self.dataset.entry.n_clusters,
            seed=seed,
            shuffled=self.shuffle and seed != 0,
            parameters=dict(setting),
            label_free=self.label_free,
        )

    def estimator(self, setting: Mapping[str, Any]) -> Any:
        """Return the estimator of a setting and the first seed."""
        return method(self.method).make(self.dataset.entry.n_clusters, self.seeds[0], setting)

    def search_trials(self) -> list[Trial]:
        """Return the trials that run first: every candidate setting with the first seeds."""
        seeds = self.seeds[: self.n_search_seeds if len(self.settings) > 1 else 1]
        return [self.trial(setting, seed) for setting in self.settings for seed in seeds]

    def best_setting(self, entries: Entries) -> dict[str, Any]:
        """Return the setting with the highest mean accuracy over the first seeds; the first of a tie."""

        def mean_accuracy(setting: Mapping[str, Any]) -> float:
            keys = [self.trial(setting, seed).key for seed in self.seeds[: self.n_search_seeds]]
            values = _known("accuracy", [entries[key] for key in keys])
            return statistics.fmean(values) if values else -1.0

        return (
            self.settings[0] if len(self.settings) == 1 else max(self.settings, key=mean_accuracy)
        )

    def final_trials(self, entries: Entries) -> list[Trial]:
        """Return the trials of the best setting; none if its first one exceeded a limit."""
        setting = self.best_setting(entries)
        if entries[self.trial(setting, self.seeds[0]).key].outcome in _OVER_LIMIT:
            return []
        return [self.trial(setting, seed) for seed in self.seeds]

    def check(self) -> None:
        """Check every setting against the data set, before any fit."""
        where = f"{self.method} on {self.dataset.entry.name}"
        seed, n_clusters = self.seeds[0], self.dataset.entry.n_clusters
        data = self.dataset.data.open(seed)
        if self.label_free:
            validate(data, n_clusters=n_clusters, n_neighbors=self.settings[0]["n_neighbors"])
        elif self.protocol == "grid" and not self.dataset.entry.n_classes:
            raise ConfigurationError(
                f"{where}: settings or views are chosen with labels, but the data have none. Give "
                'labels, or compare with protocols = ["defaults"] only'
                f"{', and without ' + self.method if self.view_is_chosen else ''}."
            )
        for setting in self.settings:
            try:
                estimator = self.estimator(setting)
                if isinstance(estimator, Baseline):
                    estimator.check_parameters(data)
                elif not method(self.method).takes_arrays:
                    estimator.candidate_settings(data)
            except MscamError as error:
                raise type(error)(f"{where}: {error}") from error

    def row(self, entries: Entries) -> RowEntry:
        """Return the row of the results when its trials have ended."""
        setting, dataset = self.best_setting(entries), self.dataset.entry
        keys = [self.trial(setting, seed).key for seed in self.seeds]
        ended = [entries[key] for key in keys if key in entries]
        reasons = [f"{entry.outcome}: {entry.reason}" for entry in ended if entry.outcome != "ok"]
        n_failed = len(keys) - len(ended) + len(reasons)
        if len(ended) < len(keys):
            reasons.append(f"{len(keys) - len(ended)} other runs were skipped after that")
        names = SCORES if dataset.n_classes else LABEL_FREE_SCORES
        return RowEntry(
            dataset=dataset.name,
            method=self.method,
            protocol=self.protocol,
            parameters=setting,
            n_runs=len(keys),
            n_failed=n_failed,
            scores={name: MeanStd.of(_known(name, ended)) for name in (*names, *_MEASURES)},
            paper=dict(TABLES.get((dataset.name, self.method), {})),
            reasons=tuple(dict.fromkeys(reasons)),
            note="the view was chosen with labels" if self.view_is_chosen else "",
        )


def _known(score: str, entries: Sequence[TrialEntry]) -> list[float]:
    """Known values of a score, "seconds" or "peak_memory_bytes" in the trials with a result."""
    values = [
        getattr(entry, score) if score in _MEASURES else entry.scores.get(score)
        for entry in entries
        if entry.outcome == "ok"
    ]
    return [float(value) for value in values if value is not None]


def method_runs(settings: ExperimentSettings, datasets: Mapping[str, Dataset]) -> list[MethodRun]:
    """Return the rows of an experiment."""
    table = settings.table
    if isinstance(table, SweepTable):
        axes = {"alpha": table.alpha, "graph_weight": table.graph_weight}
        points = tuple({**table.fixed, **point} for point in grid_points(axes))
        return [
            MethodRun(dataset, table.method, "grid", points, table.seeds, label_free=True)
            for dataset in datasets.values()
        ]
    names = dict.fromkeys(table.methods or METHODS)
    return [
        run for one in datasets.values() for name in names for run in _runs(settings, name, one)
    ]


def _runs(settings: ExperimentSettings, name: str, dataset: Dataset) -> list[MethodRun]:
    """Rows of one method on one data set: one for each protocol."""
    table, tried, fixed = settings.table, method(name), settings.parameters.get(name, {})
    assert isinstance(table, RunsTable)
    needs_view = tried.label_aware_view_choice and "view" not in fixed
    is_chosen = needs_view and len(dataset.entry.views) > 1
    if table.methods is None and is_chosen and not dataset.entry.n_classes:
        return []
    runs = []
    # With labels, so the one row of a chosen view never is a label-free one.
    protocols: tuple[Protocol, ...] = ("grid",) if is_chosen else table.protocols
    for protocol in dict.fromkeys(protocols):
        grid: dict[str, Any] = {}
        if protocol == "grid" and "grid" in table.protocols:
            grid = {**settings.grid.get(name, tried.grid)}
        if needs_view and "view" not in grid:
            grid = {"view": [view.name for view in dataset.entry.views], **grid}
        points = grid_points({key: grid[key] for key in grid if key not in fixed})
        runs.append(
            MethodRun(
                dataset=dataset,
                method=name,
                protocol=protocol,
                settings=tuple({**fixed, **point} for point in points),
                seeds=table.seeds,
                n_search_seeds=min(table.search_runs, table.runs),
                shuffle=isinstance(table, CompareTable) and table.shuffle,
                view_is_chosen=is_chosen,
            )
        )
    return runs


def curves(rows: Sequence[RowEntry], datasets: Mapping[str, Dataset]) -> tuple[CurveEntry, ...]:
    """Return the accuracy by corrupted share of each method and protocol."""
    shares = {name: dataset.entry.corruption_rate or 0.0 for name, dataset in datasets.items()}
    found = []
    for name, protocol in dict.fromkeys((row.method, row.protocol) for row in rows):
        points = [row for row in rows if (row.method, row.protocol) == (name, protocol)]
        published = ROBUSTNESS.get(name, {})
        found.append(
            CurveEntry(
                method=name,
                protocol=protocol,
                corruption_rate=tuple(shares[row.dataset] for row in points),
                mean=tuple(row.scores["accuracy"].mean for row in points),
                std=tuple(row.scores["accuracy"].std for row in points),
                paper=tuple(published.get(round(shares[row.dataset], 6)) for row in points),
            )
        )
    return tuple(found)


def heat_map(
    table: SweepTable, trials: Sequence[Trial], entries: Mapping[str, TrialEntry]
) -> HeatMapEntry:
    """Return the scores of the trials of one data set, of all points of the grid in order."""
    ended = [entries[trial.key].scores for trial in trials]

    def scores(name: str) -> tuple[tuple[float | None, ...], ...]:
        values, width = [each.get(name) for each in ended], len(table.graph_weight)
        return tuple(tuple(values[i : i + width]) for i in range(0, len(values), width))

    label_free = {name: scores(name) for name in (*LABEL_FREE_MAPS, "n_connected_components")}
    return HeatMapEntry(
        dataset=trials[0].dataset,
        method=table.method,
        alpha=table.alpha,
        graph_weight=table.graph_weight,
        with_labels={name: scores(name) for name in SCORES if any(name in each for each in ended)},
        label_free=label_free,
        best={name: point for name in LABEL_FREE_MAPS if (point := _argmax(label_free[name]))},
        fixed={**table.fixed, "seed": table.seed},
    )


def _argmax(values: Sequence[Sequence[float | None]]) -> tuple[int, int] | None:
    """Position of the largest value, the first of a tie; None if every value is null."""
    array = np.array(values, dtype=np.float64)
    if np.isnan(array).all():
        return None
    i, j = np.unravel_index(np.nanargmax(array), array.shape)
    return int(i), int(j)
