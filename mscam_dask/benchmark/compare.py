"""Comparison and robustness experiments: their trials, and the rows and curves of the results."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mscam_dask.benchmark.baselines.base import Baseline
from mscam_dask.benchmark.config import CompareTable, ExperimentSettings, RobustnessTable, RunsTable
from mscam_dask.benchmark.datasets import Dataset, mixture_datasets, open_datasets
from mscam_dask.benchmark.experiment import Experiment
from mscam_dask.benchmark.methods import METHODS, ROBUSTNESS, grid_points, method, paper_scores
from mscam_dask.benchmark.results import (
    LABEL_FREE_SCORES,
    PROTOCOLS,
    SCORES,
    CurveEntry,
    ExperimentRecord,
    MeanStd,
    MethodEntry,
    Protocol,
    RowEntry,
    TrialEntry,
)
from mscam_dask.benchmark.trial import Limits, Trial, run_trials
from mscam_dask.errors import ConfigurationError, MscamError
from mscam_dask.pipeline.config.parse import parse_memory
from mscam_dask.pipeline.run.cluster import OpenCluster, smallest_memory_bytes

__all__ = ["MethodRun", "comparison_datasets", "method_runs", "run_comparison", "trial_limits"]

_OVER_LIMIT = ("over time", "over memory")
_MEASURES = ("seconds", "peak_memory_bytes")


@dataclass(frozen=True)
class MethodRun:
    """A method on a data set under a protocol: one row of a comparison.

    Attributes
    ----------
    settings
        Candidate settings: parameters that are not at the method's defaults. The best of several
        is chosen with labels.
    seeds
        Seeds of all runs.
    n_search_seeds
        Number of first seeds with which every candidate setting is run.
    shuffle
        Whether the seed also shuffles the samples.
    view_is_chosen
        Whether the settings are different single views, so that the view is chosen with labels.
    """

    dataset: Dataset
    method: str
    protocol: Protocol
    settings: tuple[dict[str, Any], ...]
    seeds: tuple[int, ...]
    n_search_seeds: int
    shuffle: bool
    view_is_chosen: bool

    def trial(self, setting: Mapping[str, Any], seed: int) -> Trial:
        """Return the trial of a setting and a seed."""
        return Trial(
            dataset=self.dataset.entry.name,
            method=self.method,
            data=self.dataset.data_of(seed),
            n_clusters=self.dataset.entry.n_clusters,
            seed=seed,
            shuffled=self.shuffle and seed != 0,
            parameters=dict(setting),
        )

    def search_trials(self) -> list[Trial]:
        """Return the trials that run first: every candidate setting with the first seeds."""
        seeds = self.seeds[: self.n_search_seeds if len(self.settings) > 1 else 1]
        return [self.trial(setting, seed) for setting in self.settings for seed in seeds]

    def best_setting(self, entries: Mapping[str, TrialEntry]) -> dict[str, Any]:
        """Return the setting with the highest mean accuracy over the first seeds; the first of a tie.

        A setting without a result comes last.
        """
        if len(self.settings) == 1:
            return self.settings[0]

        def mean_accuracy(setting: Mapping[str, Any]) -> float:
            keys = [self.trial(setting, seed).key for seed in self.seeds[: self.n_search_seeds]]
            values = _known("accuracy", [entries[key] for key in keys])
            return statistics.fmean(values) if values else -1.0

        return max(self.settings, key=mean_accuracy)

    def final_trials(self, entries: Mapping[str, TrialEntry]) -> list[Trial]:
        """Return the trials of the best setting; none if its first one exceeded a limit."""
        setting = self.best_setting(entries)
        first = entries[self.trial(setting, self.seeds[0]).key]
        if first.outcome in _OVER_LIMIT:
            return []
        return [self.trial(setting, seed) for seed in self.seeds]

    def check(self) -> None:
        """Check every setting against the data set, before any fit.

        Raises
        ------
        MscamError
            Error of the method, with the names of method and data set; or settings are to be chosen
            with labels on data without labels.
        """
        where = f"{self.method} on {self.dataset.entry.name}"
        if self.protocol == "grid" and not self.dataset.entry.n_classes:
            raise ConfigurationError(
                f"{where}: settings or views are chosen with labels, but the data have none. Give "
                'labels, or compare with protocols = ["defaults"] only'
                f"{', and without ' + self.method if self.view_is_chosen else ''}."
            )
        data = self.dataset.data_of(self.seeds[0]).open(self.seeds[0])
        checked = method(self.method)
        for setting in self.settings:
            try:
                estimator = checked.make(self.dataset.entry.n_clusters, self.seeds[0], setting)
                if isinstance(estimator, Baseline):
                    estimator.check_parameters(data)
                elif not checked.takes_arrays:
                    estimator.candidate_settings(data)
            except MscamError as error:
                raise type(error)(f"{where}: {error}") from error


def method_runs(settings: ExperimentSettings, datasets: Mapping[str, Dataset]) -> list[MethodRun]:
    """Return the rows of a comparison."""
    table = settings.table
    assert isinstance(table, RunsTable)
    runs = []
    for dataset in datasets.values():
        for name in dict.fromkeys(table.methods or METHODS):
            view_is_chosen = (
                method(name).label_aware_view_choice
                and "view" not in settings.parameters.get(name, {})
                and len(dataset.entry.views) > 1
            )
            if table.methods is None and view_is_chosen and not dataset.entry.n_classes:
                continue
            protocols = tuple(dict.fromkeys(table.protocols))
            if view_is_chosen:  # with labels, so its one row never is a label-free one
                protocols = ("grid",)
            for protocol in protocols:
                searches = protocol == "grid" and "grid" in table.protocols
                runs.append(
                    MethodRun(
                        dataset=dataset,
                        method=name,
                        protocol=protocol,
                        settings=tuple(_settings(settings, name, dataset, with_grid=searches)),
                        seeds=_seeds(table),
                        n_search_seeds=min(table.search_runs, table.runs),
                        shuffle=isinstance(table, CompareTable) and table.shuffle,
                        view_is_chosen=view_is_chosen,
                    )
                )
    return runs


def _settings(
    settings: ExperimentSettings, name: str, dataset: Dataset, *, with_grid: bool
) -> list[dict[str, Any]]:
    tried, fixed = method(name), settings.parameters.get(name, {})
    grid = dict(settings.grids.get(name, tried.grid)) if with_grid else {}
    grid = {key: values for key, values in grid.items() if key not in fixed}
    if tried.label_aware_view_choice and "view" not in {*fixed, *grid}:
        grid = {"view": [view.name for view in dataset.entry.views], **grid}
    return [{**fixed, **point} for point in grid_points(grid)]


def _seeds(table: RunsTable) -> tuple[int, ...]:
    return tuple(range(table.seed, table.seed + table.runs))


def comparison_datasets(
    settings: ExperimentSettings, stores: Path, *, write_to: Path | None = None
) -> dict[str, Dataset]:
    """Open the data sets of a comparison, or draw those of a robustness experiment.

    See `mscam_dask.benchmark.datasets.open_datasets`.
    """
    if isinstance(settings.table, RobustnessTable):
        return mixture_datasets(settings.table, _seeds(settings.table))
    return open_datasets(settings.datasets, stores, write_to=write_to)


def trial_limits(table: RunsTable, cluster: OpenCluster | None) -> Limits:
    """Return the limits of every trial; the default memory limit is the share of a worker thread.

    Parameters
    ----------
    table
    cluster
        Where the trials run; None if not known yet.

    Raises
    ------
    ConfigurationError
        If memory_limit is not an amount of memory.
    """
    if table.memory_limit is not None:
        memory_bytes: int | None = parse_memory(table.memory_limit, "memory_limit")
    elif cluster is None or cluster.client is None:
        memory_bytes = smallest_memory_bytes()
    else:
        from mscam_dask.engine.executors.dask import DaskExecutor

        memory_bytes = DaskExecutor(cluster.client).memory_limit_bytes
    return Limits(time_s=table.time_limit_s, memory_bytes=memory_bytes)


def run_comparison(
    settings: ExperimentSettings, output: str | Path | None = None, **options: Any
) -> ExperimentRecord:
    """Run every method on every data set; trials that have a result are not repeated.

    Parameters
    ----------
    settings, output, **options
        As for `mscam_dask.benchmark.experiment.Experiment.open`.

    Returns
    -------
    ExperimentRecord
        As in experiment.json.

    Raises
    ------
    MscamError
        If settings or data are invalid, or the cluster is lost; a trial that fails is part of the
        result instead. `TemporaryFailure` after SIGTERM.
    KeyboardInterrupt
        After Ctrl-C.
    """
    table = settings.table
    assert isinstance(table, RunsTable)
    with Experiment.open(settings, output, **options) as experiment:
        if settings.datasets:
            experiment.notify("reading the data")
        datasets = comparison_datasets(settings, experiment.directory.stores)
        runs = method_runs(settings, datasets)
        for run in runs:
            run.check()
        protocols = {run.protocol for run in runs}
        experiment.update(
            seeds=_seeds(table),
            varies=_varies(table),
            protocols={name: text for name, text in PROTOCOLS.items() if name in protocols},
            datasets=tuple(dataset.entry for dataset in datasets.values()),
            methods=tuple(
                MethodEntry.from_method(method(name))
                for name in dict.fromkeys(run.method for run in runs)
            ),
        )
        search = [trial for run in runs for trial in run.search_trials()]
        _run_missing(search, "search", table, datasets, experiment)
        final = [trial for run in runs for trial in run.final_trials(experiment.entries)]
        _run_missing(final, "final runs", table, datasets, experiment)
        rows = tuple(_row(run, experiment.entries) for run in runs)
        keys = dict.fromkeys(
            trial.key
            for run in runs
            for trial in (*run.search_trials(), *run.final_trials(experiment.entries))
        )
        experiment.finish(
            rows=rows,
            curves=_curves(rows, datasets) if isinstance(table, RobustnessTable) else (),
            trials=tuple(experiment.entries[key] for key in keys),
        )
        return experiment.record


def _varies(table: RunsTable) -> str:
    """Sentence on the difference between runs."""
    seeds = f"Run i has seed {f'{table.seed} + i' if table.seed else 'i'}"
    if isinstance(table, RobustnessTable):
        return f"{seeds}, which also draws the samples and their noise."
    if isinstance(table, CompareTable) and table.shuffle:
        return f"{seeds}, which also shuffles the samples (seed 0 keeps the order)."
    return f"{seeds}; the samples keep the order of the file."


def _run_missing(
    trials: Sequence[Trial],
    stage: str,
    table: RunsTable,
    datasets: Mapping[str, Dataset],
    experiment: Experiment,
) -> None:
    """Run the trials that have no result, those expected to take longest first."""
    missing = experiment.missing(trials, trial_limits(table, experiment.opened_cluster))
    if not missing:
        return
    stores = [location for each in datasets.values() if (location := each.location) is not None]
    cluster = experiment.cluster(stores)
    limits = trial_limits(table, cluster)
    longest: dict[tuple[str, str], float] = {}
    for entry in experiment.entries.values():
        key = entry.method, entry.dataset
        longest[key] = max(longest.get(key, 0.0), entry.seconds or 0.0)
    missing.sort(key=lambda trial: longest.get((trial.method, trial.dataset), 0.0), reverse=True)
    experiment.notify(f"{len(missing)} fits to run ({stage})")
    for done, (_, entry) in enumerate(run_trials(missing, limits, cluster), start=1):
        experiment.add(entry, done, len(missing))


def _known(score: str, entries: Sequence[TrialEntry]) -> list[float]:
    """Known values of a score, "seconds" or "peak_memory_bytes" in the trials with a result."""
    values = [
        getattr(entry, score) if score in _MEASURES else entry.scores.get(score)
        for entry in entries
        if entry.outcome == "ok"
    ]
    return [float(value) for value in values if value is not None]


def _row(run: MethodRun, entries: Mapping[str, TrialEntry]) -> RowEntry:
    """Row of a method on a data set whose trials have ended."""
    setting = run.best_setting(entries)
    keys = [run.trial(setting, seed).key for seed in run.seeds]
    ended = [entries[key] for key in keys if key in entries]
    n_good = sum(entry.outcome == "ok" for entry in ended)
    reasons = [f"{entry.outcome}: {entry.reason}" for entry in ended if entry.outcome != "ok"]
    if len(ended) < len(keys):
        reasons.append(f"{len(keys) - len(ended)} other runs were skipped after that")
    names = SCORES if run.dataset.entry.n_classes else LABEL_FREE_SCORES
    scores = {name: MeanStd.of(_known(name, ended)) for name in (*names, *_MEASURES)}
    return RowEntry(
        dataset=run.dataset.entry.name,
        method=run.method,
        protocol=run.protocol,
        parameters=setting,
        n_runs=len(keys),
        n_failed=len(keys) - n_good,
        scores=scores,
        paper=paper_scores(run.dataset.entry.name, run.method),
        reasons=tuple(dict.fromkeys(reasons)),
        note="the view was chosen with labels" if run.view_is_chosen else "",
    )


def _curves(rows: Sequence[RowEntry], datasets: Mapping[str, Dataset]) -> tuple[CurveEntry, ...]:
    """Accuracy by corrupted share of each method and protocol."""
    shares = {name: dataset.entry.corruption_rate or 0.0 for name, dataset in datasets.items()}
    curves = []
    for name, protocol in dict.fromkeys((row.method, row.protocol) for row in rows):
        points = [row for row in rows if (row.method, row.protocol) == (name, protocol)]
        published = ROBUSTNESS.get(name, {})
        curves.append(
            CurveEntry(
                method=name,
                protocol=protocol,
                corruption_rate=tuple(shares[row.dataset] for row in points),
                mean=tuple(row.scores["accuracy"].mean for row in points),
                std=tuple(row.scores["accuracy"].std for row in points),
                paper=tuple(published.get(round(shares[row.dataset], 6)) for row in points),
            )
        )
    return tuple(curves)
