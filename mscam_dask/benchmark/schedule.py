"""The trials of an experiment: which a comparison needs, within which limits, and dry runs."""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mscam_dask.benchmark.baselines.base import Baseline
from mscam_dask.benchmark.config import (
    ExperimentSettings,
    RobustnessTable,
    RunsTable,
    SweepTable,
)
from mscam_dask.benchmark.experiment import ExperimentDirectory, default_output
from mscam_dask.benchmark.fitting import trial_data
from mscam_dask.benchmark.load_datasets import Dataset, mixture_datasets, open_datasets
from mscam_dask.benchmark.methods import METHODS, grid_points
from mscam_dask.benchmark.results import DatasetEntry, Kind, Protocol, TrialEntry
from mscam_dask.benchmark.sweep import sweep_parameters, sweep_trials
from mscam_dask.benchmark.trial import Limits, Trial
from mscam_dask.engine.memory import plan_memory
from mscam_dask.errors import ConfigurationError, MscamError
from mscam_dask.pipeline.config.validate import check_execution, parse_memory
from mscam_dask.pipeline.run.cluster import OpenCluster, smallest_memory_bytes
from mscam_dask.pipeline.run.dry_run import limit_of, workers_of

__all__ = [
    "ExperimentPlan",
    "MethodRun",
    "best_setting",
    "check_method_run",
    "final_trials",
    "method_runs",
    "plan_experiment",
    "search_trials",
    "trial_limits",
    "unique",
]

_OVER_LIMIT = ("over time", "over memory")
_ITEM_BYTES = 8

_CachedOf = Callable[[list[Trial], Limits], dict[str, TrialEntry]]


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


def method_runs(settings: ExperimentSettings, datasets: Mapping[str, Dataset]) -> list[MethodRun]:
    """Return the rows of a comparison."""
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
            n_search_seeds=min(table.search_runs, table.runs),
            shuffle=bool(getattr(table, "shuffle", False)),
            view_is_chosen=_view_is_chosen(settings, name, dataset),
        )
        for dataset in datasets.values()
        for name in names
        if table.methods is not None
        or dataset.entry.n_classes
        or not _view_is_chosen(settings, name, dataset)
        for protocol, searched in _protocols(settings, name, dataset)
    ]


def _view_is_chosen(settings: ExperimentSettings, name: str, dataset: Dataset) -> bool:
    """Whether the best single view of a data set is chosen for a method with labels."""
    fixed = settings.parameters.get(name, {})
    return (
        METHODS[name].label_aware_view_choice
        and "view" not in fixed
        and len(dataset.entry.views) > 1
    )


def _protocols(
    settings: ExperimentSettings, name: str, dataset: Dataset
) -> list[tuple[Protocol, Protocol]]:
    """Protocol of each row of a method on a data set, and the protocol with its settings.

    The best single view is chosen with labels, so its one row never is a label-free one.
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


def search_trials(run: MethodRun) -> list[Trial]:
    """Return the trials that run first: every candidate setting with the first seeds."""
    n_seeds = run.n_search_seeds if len(run.settings) > 1 else 1
    return [run.trial(setting, seed) for setting in run.settings for seed in run.seeds[:n_seeds]]


def best_setting(run: MethodRun, entries: Mapping[str, TrialEntry]) -> dict[str, Any]:
    """Return the setting with the highest mean accuracy over the first seeds; the first of a tie.

    A setting without a result comes last.
    """
    if len(run.settings) == 1:
        return run.settings[0]

    def mean_accuracy(setting: Mapping[str, Any]) -> float:
        ended = [entries[run.trial(setting, seed).key] for seed in run.seeds[: run.n_search_seeds]]
        values = [
            value
            for entry in ended
            if entry.outcome == "ok" and (value := entry.scores["accuracy"]) is not None
        ]
        return math.fsum(values) / len(values) if values else -1.0

    return max(run.settings, key=mean_accuracy)


def final_trials(run: MethodRun, entries: Mapping[str, TrialEntry]) -> list[Trial]:
    """Return the trials of the best setting; none if its first one exceeded a limit."""
    setting = best_setting(run, entries)
    first = entries[run.trial(setting, run.seeds[0]).key]
    if first.outcome in _OVER_LIMIT:
        return []
    return [run.trial(setting, seed) for seed in run.seeds]


def unique(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials, each key once."""
    return list({trial.key: trial for trial in trials}.values())


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
    return Limits(time_s=table.time_limit_s, memory_bytes=_memory(table, cluster))


def _memory(table: RunsTable, cluster: OpenCluster | None) -> int | None:
    limit = table.memory_limit
    if limit is not None:
        return parse_memory(limit, "memory_limit")
    if cluster is None or cluster.client is None:
        return smallest_memory_bytes()
    from mscam_dask.engine.executors.dask import DaskExecutor

    return DaskExecutor(cluster.client).memory_limit_bytes


def check_method_run(run: MethodRun) -> None:
    """Check every setting of a method against its data set, before any fit.

    Raises
    ------
    MscamError
        Error of the method, with the names of method and data set; or settings are to be chosen
        with labels on data without labels.
    """
    if run.protocol == "grid" and not run.dataset.entry.n_classes:
        raise ConfigurationError(
            f"{run.method} on {run.dataset.entry.name}: settings or views are chosen with labels, but "
            f'the data have none. Give labels, or compare with protocols = ["defaults"] only'
            f"{', and without ' + run.method if run.view_is_chosen else ''}."
        )
    first = run.trial(run.settings[0], run.seeds[0])
    data = trial_data(first, shuffle=False)
    for setting in run.settings:
        parameters = run.trial(setting, run.seeds[0]).parameters
        where = f"{run.method} on {run.dataset.entry.name}"
        try:
            estimator = METHODS[run.method].make(first.n_clusters, first.seed, parameters)
            if isinstance(estimator, Baseline):
                estimator.check_parameters(data)
            elif not METHODS[run.method].takes_arrays:
                estimator.candidate_settings(data)
        except MscamError as error:
            raise type(error)(f"{where}: {error}") from error


@dataclass(frozen=True)
class ExperimentPlan:
    """Estimate of an experiment that has not run.

    Attributes
    ----------
    directory
    kind
    datasets
        Data sets to cluster.
    methods
        Names.
    n_cached
        Trials that have a result.
    n_missing
        Trials to run; a maximum if the best of several settings is not known yet.
    read_bytes
        Bytes of the views of all data sets, as float64.
    worker_bytes
        Memory that a worker needs (sweep), or that a trial may use (other experiments).
    limit_bytes
        Memory of a worker; None if the cluster decides.
    n_workers
    time_limit_s
        Time limit of a trial; None without.
    seconds
        Estimated time of those missing trials whose method has run on the same data here, divided
        by the number of workers if trials run in parallel.
    n_unknown
        Missing trials without an estimate.
    """

    directory: Path
    kind: Kind
    datasets: tuple[DatasetEntry, ...]
    methods: tuple[str, ...]
    n_cached: int
    n_missing: int
    read_bytes: int
    worker_bytes: int | None
    limit_bytes: int | None
    n_workers: int
    time_limit_s: float | None
    seconds: float
    n_unknown: int


def plan_experiment(
    settings: ExperimentSettings,
    output: str | Path | None = None,
    *,
    overwrite: bool = False,
    insecure: bool = False,
) -> ExperimentPlan:
    """Estimate an experiment without running it; sources are read for their digests.

    Parameters
    ----------
    settings, output, overwrite, insecure
        As for `mscam_dask.benchmark.compare.run_comparison`.

    Raises
    ------
    MscamError
        If settings, sources or data are invalid.
    """
    check_execution(settings.execution, insecure=insecure)
    directory = ExperimentDirectory(Path(output or default_output(settings)).absolute())
    cached_of = _nothing_cached if overwrite else directory.cached_of
    with tempfile.TemporaryDirectory(prefix="mscam-dry-run-") as temporary:
        if isinstance(settings.table, SweepTable):
            return _sweep(settings, directory, ExperimentDirectory(Path(temporary)), cached_of)
        return _comparison(settings, directory, ExperimentDirectory(Path(temporary)), cached_of)


def _nothing_cached(_trials: list[Trial], _limits: Limits) -> dict[str, TrialEntry]:
    return {}


def _comparison(
    settings: ExperimentSettings,
    directory: ExperimentDirectory,
    temporary: ExperimentDirectory,
    cached_of: _CachedOf,
) -> ExperimentPlan:
    table = settings.table
    assert isinstance(table, RunsTable)
    if isinstance(table, RobustnessTable):
        datasets = mixture_datasets(table, range(table.seed, table.seed + table.runs))
    else:
        datasets = open_datasets(
            settings.datasets, directory, need_labels=False, write_to=temporary
        )
    rows = method_runs(settings, datasets)
    for run in rows:
        check_method_run(run)
    limits = trial_limits(table, None)
    first = unique([trial for run in rows for trial in search_trials(run)])
    entries = cached_of(first, limits)
    missing = {trial.key: trial for trial in first if trial.key not in entries}
    n_open = 0
    for run in rows:
        if any(trial.key in missing for trial in search_trials(run)):
            if len(run.settings) > 1:
                n_open += len(run.seeds) - run.n_search_seeds  # the setting is not known yet
                continue
            final = [run.trial(run.settings[0], seed) for seed in run.seeds]
        else:
            final = final_trials(run, entries)
        entries |= cached_of([trial for trial in final if trial.key not in entries], limits)
        missing |= {trial.key: trial for trial in final if trial.key not in entries}
    return _plan(
        settings,
        directory,
        datasets,
        entries,
        missing,
        n_open=n_open,
        worker_bytes=None if table.memory_limit is None else limits.memory_bytes,
    )


def _sweep(
    settings: ExperimentSettings,
    directory: ExperimentDirectory,
    temporary: ExperimentDirectory,
    cached_of: _CachedOf,
) -> ExperimentPlan:
    table = settings.table
    assert isinstance(table, SweepTable)
    datasets = open_datasets(settings.datasets, directory, need_labels=False, write_to=temporary)
    entries: dict[str, TrialEntry] = {}
    missing: dict[str, Trial] = {}
    worker_bytes = 0
    for dataset in datasets.values():
        trials = list(sweep_trials(table, dataset).values())
        entries |= cached_of(trials, Limits())
        missing |= {trial.key: trial for trial in trials if trial.key not in entries}
        parameters = sweep_parameters(table, dataset, table.alpha[0], table.graph_weight[0])
        plan = plan_memory(dataset.read(), parameters)
        worker_bytes = max(worker_bytes, plan.worker_bytes(1))  # each task is a whole fit
    return _plan(settings, directory, datasets, entries, missing, worker_bytes=worker_bytes)


def _plan(
    settings: ExperimentSettings,
    directory: ExperimentDirectory,
    datasets: Mapping[str, Dataset],
    entries: dict[str, TrialEntry],
    missing: dict[str, Trial],
    *,
    worker_bytes: int | None,
    n_open: int = 0,
) -> ExperimentPlan:
    """Estimate from the trials with a result, the missing ones, and those of unknown settings."""
    table, n_workers = settings.table, workers_of(settings.execution)
    limit_bytes = limit_of(settings.execution, n_workers)
    seconds, n_unknown = _estimate_seconds(missing.values(), entries)
    if isinstance(table, SweepTable):
        methods: tuple[str, ...] = (table.method,)
    else:
        methods = tuple(METHODS if table.methods is None else dict.fromkeys(table.methods))
        seconds /= n_workers
    return ExperimentPlan(
        directory=directory.path,
        kind=settings.kind,
        datasets=tuple(dataset.entry for dataset in datasets.values()),
        methods=methods,
        n_cached=len(entries),
        n_missing=len(missing) + n_open,
        read_bytes=_read_bytes(datasets.values()),
        worker_bytes=limit_bytes if worker_bytes is None else worker_bytes,
        limit_bytes=limit_bytes,
        n_workers=n_workers,
        time_limit_s=getattr(table, "time_limit_s", None),
        seconds=seconds,
        n_unknown=n_unknown + n_open,
    )


def _read_bytes(datasets: Iterable[Dataset]) -> int:
    shapes = [view.shape for dataset in datasets for view in dataset.entry.views]
    return _ITEM_BYTES * sum(math.prod(shape) for shape in shapes)


def _estimate_seconds(
    missing: Iterable[Trial], entries: dict[str, TrialEntry]
) -> tuple[float, int]:
    """Sum of the mean seconds of each method on each data set, and the number of unknown trials."""
    seconds: dict[tuple[str, str], list[float]] = {}
    for entry in entries.values():
        if entry.seconds is not None:
            seconds.setdefault((entry.method, entry.dataset), []).append(entry.seconds)
    means = {key: statistics.fmean(values) for key, values in seconds.items()}
    estimates = [means.get((trial.method, trial.dataset)) for trial in missing]
    return math.fsum(value for value in estimates if value is not None), estimates.count(None)
