"""What an experiment would do, worked out without doing it: fits, bytes, memory, time."""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mscam_dask.benchmark.checking import check_contest
from mscam_dask.benchmark.directory import ExperimentDirectory
from mscam_dask.benchmark.experiment import default_output
from mscam_dask.benchmark.limits import trial_limits
from mscam_dask.benchmark.load_datasets import Dataset, mixture_datasets, open_datasets
from mscam_dask.benchmark.results import DatasetEntry, Kind, TrialEntry
from mscam_dask.benchmark.schedule import (
    MethodRun,
    final_trials,
    method_runs,
    search_trials,
    unique,
)
from mscam_dask.benchmark.settings import (
    ExperimentSettings,
    RobustnessTable,
    RunsTable,
    SweepTable,
)
from mscam_dask.benchmark.sweep import sweep_parameters, sweep_trials
from mscam_dask.benchmark.trial import Limits, Trial
from mscam_dask.engine.memory import plan_memory
from mscam_dask.pipeline.config.validate import check_execution
from mscam_dask.pipeline.run.dry_run import limit_of, workers_of

__all__ = ["ExperimentPlan", "plan_experiment"]

_ITEM_BYTES = 8


@dataclass(frozen=True)
class ExperimentPlan:
    """What an experiment would do.

    Attributes
    ----------
    directory
    kind
    datasets
        What would be clustered.
    methods
        Names.
    n_kept
        Fits that are done.
    n_missing
        Fits to do; at most, where the best of several settings is to be found first.
    read_bytes
        Of the views of all data sets, as float64.
    worker_bytes
        A sweep: what a worker needs. Others: what a fit may take before it is ended.
    limit_bytes
        Memory of a worker; None where the cluster decides.
    n_workers
    time_limit_s
        Of a fit; None without.
    seconds
        Rough time of those missing fits whose method has fits on the same data here, divided by
        the workers where fits run side by side.
    n_unknown
        The other missing fits.
    """

    directory: Path
    kind: Kind
    datasets: tuple[DatasetEntry, ...]
    methods: tuple[str, ...]
    n_kept: int
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
    """Plan an experiment; nothing is started or left behind, sources are read for their digests.

    Parameters
    ----------
    settings, output, overwrite, insecure
        As for `mscam_dask.benchmark.compare.run_comparison`.

    Raises
    ------
    MscamError
        What the experiment itself would say of its settings, sources or data.
    """
    check_execution(settings.execution, insecure=insecure)
    directory = ExperimentDirectory(Path(output or default_output(settings)).absolute())
    kept = _nothing_kept if overwrite else directory.kept_of
    with tempfile.TemporaryDirectory(prefix="mscam-dry-run-") as aside:
        if isinstance(settings.table, SweepTable):
            return _sweep(settings, directory, ExperimentDirectory(Path(aside)), kept)
        return _comparison(settings, directory, ExperimentDirectory(Path(aside)), kept)


Kept = Callable[[list[Trial], Limits], dict[str, TrialEntry]]


def _nothing_kept(_cells: list[Trial], _limits: Limits) -> dict[str, TrialEntry]:
    return {}


def _comparison(
    settings: ExperimentSettings,
    directory: ExperimentDirectory,
    aside: ExperimentDirectory,
    kept: Kept,
) -> ExperimentPlan:
    table = settings.table
    assert isinstance(table, RunsTable)
    if isinstance(table, RobustnessTable):
        datasets = mixture_datasets(table, range(table.seed, table.seed + table.runs))
    else:
        datasets = open_datasets(settings.datasets, directory, need_labels=True, aside=aside)
    rows = method_runs(settings, datasets)
    for contest in rows:
        check_contest(contest)
    limits = trial_limits(table, None)
    first = unique([trial for contest in rows for trial in search_trials(contest)])
    found = kept(first, limits)
    missing = {trial.key: trial for trial in first if trial.key not in found}
    n_open = 0
    for contest in rows:
        if any(trial.key in missing for trial in search_trials(contest)):
            if len(contest.settings) > 1:
                n_open += len(contest.seeds) - contest.n_trials  # of a setting not known yet
                continue
            later = [contest.trial(contest.settings[0], seed) for seed in contest.seeds]
        else:
            later = final_trials(contest, found)
        more = kept([trial for trial in later if trial.key not in found], limits)
        found |= more
        missing |= {trial.key: trial for trial in later if trial.key not in found}
    seconds, n_unknown = _time(missing.values(), found)
    n_workers = workers_of(settings.execution)
    limit = limit_of(settings.execution, n_workers)
    return ExperimentPlan(
        directory=directory.path,
        kind=settings.kind,
        datasets=tuple(dataset.entry for dataset in datasets.values()),
        methods=_names(rows),
        n_kept=len(found),
        n_missing=len(missing) + n_open,
        read_bytes=_read_bytes(datasets.values()),
        worker_bytes=limits.memory_bytes if table.memory_limit is not None else limit,
        limit_bytes=limit,
        n_workers=n_workers,
        time_limit_s=table.time_limit_s,
        seconds=seconds / n_workers,
        n_unknown=n_unknown + n_open,
    )


def _sweep(
    settings: ExperimentSettings,
    directory: ExperimentDirectory,
    aside: ExperimentDirectory,
    kept: Kept,
) -> ExperimentPlan:
    table = settings.table
    assert isinstance(table, SweepTable)
    datasets = open_datasets(settings.datasets, directory, need_labels=False, aside=aside)
    n_workers = workers_of(settings.execution)
    found: dict[str, TrialEntry] = {}
    missing: dict[str, Trial] = {}
    need = 0
    for dataset in datasets.values():
        trials = list(sweep_trials(table, dataset).values())
        found |= kept(trials, Limits())
        missing |= {trial.key: trial for trial in trials if trial.key not in found}
        parameters = sweep_parameters(table, dataset, table.alpha[0], table.graph_weight[0])
        plan = plan_memory(dataset.read(), parameters)
        need = max(need, plan.worker_bytes(1))  # each task is a whole fit
    seconds, n_unknown = _time(missing.values(), found)
    return ExperimentPlan(
        directory=directory.path,
        kind=settings.kind,
        datasets=tuple(dataset.entry for dataset in datasets.values()),
        methods=(table.method,),
        n_kept=len(found),
        n_missing=len(missing),
        read_bytes=_read_bytes(datasets.values()),
        worker_bytes=need,
        limit_bytes=limit_of(settings.execution, n_workers),
        n_workers=n_workers,
        time_limit_s=None,
        seconds=seconds,
        n_unknown=n_unknown,
    )


def _names(rows: Sequence[MethodRun]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(contest.method for contest in rows))


def _read_bytes(datasets: Iterable[Dataset]) -> int:
    shapes = [view.shape for dataset in datasets for view in dataset.entry.views]
    return _ITEM_BYTES * sum(math.prod(shape) for shape in shapes)


def _time(missing: Iterable[Trial], found: dict[str, TrialEntry]) -> tuple[float, int]:
    """Seconds of the fits whose like have ended here, one after the other, and how many have no like."""
    taken: dict[tuple[str, str], list[float]] = {}
    for entry in found.values():
        if entry.seconds is not None:
            taken.setdefault((entry.method, entry.dataset), []).append(entry.seconds)
    known = {like: statistics.fmean(values) for like, values in taken.items()}
    each = [known.get((trial.method, trial.dataset)) for trial in missing]
    return math.fsum(value for value in each if value is not None), each.count(None)
