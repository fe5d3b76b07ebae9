"""A comparison or robustness experiment from its settings to its directory."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from mscam_dask.benchmark.checking import check_contest
from mscam_dask.benchmark.experiment import Experiment, Observer, default_output
from mscam_dask.benchmark.limits import trial_limits
from mscam_dask.benchmark.load_datasets import Dataset, mixture_datasets, open_datasets
from mscam_dask.benchmark.results import PROTOCOLS, ExperimentRecord, TrialEntry
from mscam_dask.benchmark.run_trials import run_trials
from mscam_dask.benchmark.schedule import (
    MethodRun,
    final_trials,
    method_runs,
    search_trials,
    unique,
)
from mscam_dask.benchmark.settings import ExperimentSettings, RobustnessTable, RunsTable
from mscam_dask.benchmark.summary import curves_of, method_entry, row_of
from mscam_dask.benchmark.trial import Limits, Trial
from mscam_dask.pipeline.config.validate import check_execution
from mscam_dask.pipeline.run.cluster import OpenCluster, check_workers, open_cluster

__all__ = ["run_comparison"]

_VARIES = ", which also shuffles the samples (seed 0 keeps the order)."
_VARIES_DRAWN = ", with which its samples and their noise are drawn."
_VARIES_SEED = "; the samples keep the order of the file."


def run_comparison(
    settings: ExperimentSettings,
    output: str | Path | None = None,
    *,
    command: str = "",
    overwrite: bool = False,
    insecure: bool = False,
    observers: Sequence[Observer] = (),
) -> ExperimentRecord:
    """Run every method on every data set, or what is missing of it.

    Parameters
    ----------
    settings
        From `mscam_dask.benchmark.config.read_experiment`.
    output
        Directory; missing, empty, or of an experiment, whose finished cells are kept.
        runs/<name> by default.
    command
        What makes it again, for the document.
    overwrite
        Run every fit again, also those that are kept.
    insecure
        Allow a scheduler on another computer without encryption.
    observers
        Called with each `Progress`.

    Returns
    -------
    ExperimentRecord
        As in experiment.json.

    Raises
    ------
    MscamError
        For what is wrong before the first fit, and a cluster that is lost. A cell that fails
        is in the result instead. `TemporaryFailure` after SIGTERM.
    KeyboardInterrupt
        After Ctrl-C.
    """
    check_execution(settings.execution, insecure=insecure)
    with Experiment.entered(
        settings,
        output or default_output(settings),
        command=command,
        overwrite=overwrite,
        observers=observers,
    ) as context:
        comparison = _Comparison(settings, context)
        comparison.run()
        return context.record


class _Comparison:
    """The steps of one comparison."""

    def __init__(self, settings: ExperimentSettings, context: Experiment) -> None:
        assert isinstance(settings.table, RunsTable)
        self._settings = settings
        self._table = settings.table
        self._course = context
        self._seeds = tuple(range(self._table.seed, self._table.seed + self._table.runs))
        self._found: dict[str, TrialEntry] = {}

    def run(self) -> None:
        """Open the data, check, run the cells, write the tables."""
        datasets = self._datasets()
        rows = method_runs(self._settings, datasets)
        for contest in rows:
            check_contest(contest)
        names = dict.fromkeys(contest.method for contest in rows)
        self._course.update(
            seeds=self._seeds,
            varies=self._varies(),
            protocols={name: PROTOCOLS[name] for name in dict.fromkeys(self._table.protocols)},
            datasets=tuple(dataset.entry for dataset in datasets.values()),
            methods=tuple(method_entry(name) for name in names),
        )
        self._run_cells(rows, datasets)
        self._write(rows, datasets)

    def _datasets(self) -> dict[str, Dataset]:
        if isinstance(self._table, RobustnessTable):
            return mixture_datasets(self._table, self._seeds)
        self._course.tell("reading the data")
        return open_datasets(self._settings.datasets, self._course.directory, need_labels=True)

    def _varies(self) -> str:
        first = self._table.seed
        seeds = f"Run i has seed {f'{first} + i' if first else 'i'}"
        if isinstance(self._table, RobustnessTable):
            return seeds + _VARIES_DRAWN
        return seeds + (_VARIES if getattr(self._table, "shuffle", False) else _VARIES_SEED)

    def _run_cells(self, rows: list[MethodRun], datasets: dict[str, Dataset]) -> None:
        stores = [one.place for one in datasets.values() if None in one.data]
        with contextlib.ExitStack() as stack:
            first = unique([trial for contest in rows for trial in search_trials(contest)])
            cluster: OpenCluster | None = None
            limits = trial_limits(self._table, None)
            for stage in ("first", "later"):
                trials = (
                    first
                    if stage == "first"
                    else unique(
                        [trial for contest in rows for trial in final_trials(contest, self._found)]
                    )
                )
                missing = self._take_kept(trials, limits)
                if missing and cluster is None:
                    self._course.begin()
                    self._course.tell("starting workers")
                    cluster = stack.enter_context(open_cluster(self._settings.execution))
                    check_workers(cluster, stores)
                    self._course.update(executor=cluster.description)
                    limits = trial_limits(self._table, cluster)
                if missing and cluster is not None:
                    self._run(missing, limits, cluster, stage)

    def _take_kept(self, trials: list[Trial], limits: Limits) -> list[Trial]:
        """Take over what is kept; the cells that remain to be run."""
        kept = self._course.directory.kept_of(
            [trial for trial in trials if trial.key not in self._found], limits
        )
        for trial in trials:
            if trial.key in kept:
                # the same fit under another name of its data is the same cell
                self._found[trial.key] = msgspec.structs.replace(
                    kept[trial.key], dataset=trial.dataset
                )
        self._course.update(n_reused=self._course.record.n_reused + len(kept))
        return [trial for trial in trials if trial.key not in self._found]

    def _run(self, trials: list[Trial], limits: Limits, cluster: OpenCluster, stage: str) -> None:
        title = "every setting once" if stage == "first" else "the other runs"
        trials = sorted(trials, key=self._expected_seconds, reverse=True)  # no long one at the end
        self._course.tell(f"{len(trials)} fits to do: {title}")
        for count, (trial, entry) in enumerate(run_trials(trials, limits, cluster), start=1):
            self._course.directory.keep(entry)
            self._found[trial.key] = entry
            self._course.tell(entry=entry, done=count, total=len(trials))

    def _expected_seconds(self, trial: Trial) -> float:
        """What fits of the same method on the same data took; 0 before the first."""
        taken = [
            entry.seconds or 0.0
            for entry in self._found.values()
            if (entry.method, entry.dataset) == (trial.method, trial.dataset)
        ]
        return max(taken, default=0.0)

    def _write(self, rows: list[MethodRun], datasets: dict[str, Dataset]) -> None:
        table = tuple(row_of(contest, self._found) for contest in rows)
        shares = {
            dataset.entry.name: dataset.entry.corrupted
            for dataset in datasets.values()
            if dataset.entry.corrupted is not None
        }
        keys = [
            trial.key
            for contest in rows
            for trial in (*search_trials(contest), *final_trials(contest, self._found))
        ]
        self._course.finish(
            rows=table,
            curves=curves_of(table, shares) if shares else (),
            trials=tuple(self._found[key] for key in dict.fromkeys(keys)),
        )
