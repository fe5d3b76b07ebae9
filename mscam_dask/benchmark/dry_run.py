"""Estimate of an experiment before it runs: its fits, their memory and their time."""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mscam_dask.benchmark.compare import comparison_datasets, method_runs, trial_limits
from mscam_dask.benchmark.config import ExperimentSettings, RunsTable, SweepTable
from mscam_dask.benchmark.datasets import Dataset, open_datasets
from mscam_dask.benchmark.experiment import ExperimentDirectory, default_output
from mscam_dask.benchmark.methods import METHODS
from mscam_dask.benchmark.results import DatasetEntry, Kind, TrialEntry
from mscam_dask.benchmark.sweep import sweep_parameters, sweep_trials
from mscam_dask.benchmark.trial import Limits, Trial
from mscam_dask.engine.memory import plan_memory
from mscam_dask.pipeline.config.validate import check_execution
from mscam_dask.pipeline.run.dry_run import limit_of, workers_of

__all__ = ["ExperimentPlan", "plan_experiment"]

_ITEM_BYTES = 8


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
    work = _Work(directory, reuses=not overwrite)
    table, n_workers = settings.table, workers_of(settings.execution)
    limit_bytes = limit_of(settings.execution, n_workers)
    methods: tuple[str, ...]
    with tempfile.TemporaryDirectory(prefix="mscam-dry-run-") as temporary:
        if isinstance(table, SweepTable):
            datasets = open_datasets(settings.datasets, directory.stores, write_to=Path(temporary))
            worker_bytes: int | None = _add_sweep(work, table, datasets)
            methods, n_parallel, time_limit_s = (table.method,), 1, None
        else:
            datasets = comparison_datasets(settings, directory.stores, write_to=Path(temporary))
            worker_bytes = _add_comparison(work, settings, table, datasets)
            methods = tuple(dict.fromkeys(table.methods or METHODS))
            n_parallel, time_limit_s = n_workers, table.time_limit_s
    seconds, n_unknown = work.estimate()
    shapes = [view.shape for dataset in datasets.values() for view in dataset.entry.views]
    return ExperimentPlan(
        directory=directory.path,
        kind=settings.kind,
        datasets=tuple(dataset.entry for dataset in datasets.values()),
        methods=methods,
        n_cached=len(work.entries),
        n_missing=len(work.missing) + work.n_open,
        read_bytes=_ITEM_BYTES * sum(math.prod(shape) for shape in shapes),
        worker_bytes=limit_bytes if worker_bytes is None else worker_bytes,
        limit_bytes=limit_bytes,
        n_workers=n_workers,
        time_limit_s=time_limit_s,
        seconds=seconds / n_parallel,
        n_unknown=n_unknown + work.n_open,
    )


class _Work:
    """Trials of an experiment.

    Attributes
    ----------
    entries
        Trials that have a result, by key.
    missing
        Trials to run, by key.
    n_open
        Number of trials of settings that are not known yet.
    """

    def __init__(self, directory: ExperimentDirectory, *, reuses: bool) -> None:
        self._directory, self._reuses = directory, reuses
        self.entries: dict[str, TrialEntry] = {}
        self.missing: dict[str, Trial] = {}
        self.n_open = 0

    def add(self, trials: Iterable[Trial], limits: Limits) -> None:
        """Add trials, each key once."""
        new = {trial.key: trial for trial in trials if trial.key not in self.entries}
        if self._reuses:
            self.entries |= self._directory.cached(list(new.values()), limits)
        self.missing |= {key: trial for key, trial in new.items() if key not in self.entries}

    def estimate(self) -> tuple[float, int]:
        """Sum of the mean seconds of each method on each data set, and the number of unknown trials."""
        seconds: dict[tuple[str, str], list[float]] = {}
        for entry in self.entries.values():
            if entry.seconds is not None:
                seconds.setdefault((entry.method, entry.dataset), []).append(entry.seconds)
        means = {key: statistics.fmean(values) for key, values in seconds.items()}
        estimates = [means.get((one.method, one.dataset)) for one in self.missing.values()]
        known = [value for value in estimates if value is not None]
        return math.fsum(known), len(estimates) - len(known)


def _add_comparison(
    work: _Work,
    settings: ExperimentSettings,
    table: RunsTable,
    datasets: Mapping[str, Dataset],
) -> int | None:
    """Add the trials of a comparison, and return the memory limit of the file, if it has one."""
    limits = trial_limits(table, None)
    runs = method_runs(settings, datasets)
    for run in runs:
        run.check()
        work.add(run.search_trials(), limits)
    for run in runs:
        if not any(trial.key in work.missing for trial in run.search_trials()):
            work.add(run.final_trials(work.entries), limits)
        elif len(run.settings) == 1:
            work.add([run.trial(run.settings[0], seed) for seed in run.seeds], limits)
        else:
            work.n_open += len(run.seeds) - run.n_search_seeds
    return None if table.memory_limit is None else limits.memory_bytes


def _add_sweep(work: _Work, table: SweepTable, datasets: Mapping[str, Dataset]) -> int:
    """Add the trials of a sweep, and return the memory that a whole fit needs."""
    worker_bytes = 0
    for dataset in datasets.values():
        trials = list(sweep_trials(table, dataset).values())
        work.add(trials, Limits())
        plan = plan_memory(dataset.read(), sweep_parameters(trials[0]))
        worker_bytes = max(worker_bytes, plan.worker_bytes(1))
    return worker_bytes
