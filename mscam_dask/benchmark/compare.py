"""Comparison and robustness experiments: their trials, and the rows and curves of the results."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from mscam_dask.benchmark.config import ExperimentSettings, RobustnessTable, RunsTable
from mscam_dask.benchmark.experiment import Experiment
from mscam_dask.benchmark.load_datasets import Dataset, mixture_datasets, open_datasets
from mscam_dask.benchmark.methods import METHODS, ROBUSTNESS, paper_scores
from mscam_dask.benchmark.results import (
    LABEL_FREE_SCORES,
    PROTOCOLS,
    SCORES,
    CurveEntry,
    ExperimentRecord,
    MeanStd,
    MethodEntry,
    RowEntry,
    TrialEntry,
)
from mscam_dask.benchmark.schedule import (
    MethodRun,
    best_setting,
    check_method_run,
    final_trials,
    method_runs,
    search_trials,
    trial_limits,
    unique,
)
from mscam_dask.benchmark.trial import Limits, Trial, run_trials
from mscam_dask.pipeline.run.cluster import OpenCluster, check_workers, open_cluster

__all__ = ["run_comparison"]

_VARIES_ORDER = ", which also shuffles the samples (seed 0 keeps the order)."
_VARIES_SAMPLES = ", which also draws the samples and their noise."
_VARIES_SEED = "; the samples keep the order of the file."


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
    with Experiment.open(settings, output, **options) as experiment:
        _Comparison(settings, experiment).run()
        return experiment.record


class _Comparison:
    """Steps of one comparison."""

    def __init__(self, settings: ExperimentSettings, experiment: Experiment) -> None:
        assert isinstance(settings.table, RunsTable)
        self._settings = settings
        self._table = settings.table
        self._experiment = experiment
        self._seeds = tuple(range(self._table.seed, self._table.seed + self._table.runs))
        self._entries: dict[str, TrialEntry] = {}

    def run(self) -> None:
        """Open the data, check the settings, run the trials, write the results."""
        datasets = self._datasets()
        rows = method_runs(self._settings, datasets)
        for run in rows:
            check_method_run(run)
        names = dict.fromkeys(run.method for run in rows)
        self._experiment.update(
            seeds=self._seeds,
            varies=self._varies(),
            protocols={
                name: sentence
                for name, sentence in PROTOCOLS.items()
                if any(run.protocol == name for run in rows)
            },
            datasets=tuple(dataset.entry for dataset in datasets.values()),
            methods=tuple(MethodEntry.from_method(METHODS[name]) for name in names),
        )
        self._run_missing(rows, datasets)
        self._write(rows, datasets)

    def _datasets(self) -> dict[str, Dataset]:
        if isinstance(self._table, RobustnessTable):
            return mixture_datasets(self._table, self._seeds)
        self._experiment.notify("reading the data")
        return open_datasets(self._settings.datasets, self._experiment.directory, need_labels=False)

    def _varies(self) -> str:
        first = self._table.seed
        seeds = f"Run i has seed {f'{first} + i' if first else 'i'}"
        if isinstance(self._table, RobustnessTable):
            return seeds + _VARIES_SAMPLES
        return seeds + (_VARIES_ORDER if getattr(self._table, "shuffle", False) else _VARIES_SEED)

    def _run_missing(self, rows: list[MethodRun], datasets: dict[str, Dataset]) -> None:
        stores = [dataset.location for dataset in datasets.values() if None in dataset.data]
        with contextlib.ExitStack() as stack:
            cluster: OpenCluster | None = None
            limits = trial_limits(self._table, None)
            for stage in ("search", "final runs"):
                if stage == "search":
                    trials = [trial for run in rows for trial in search_trials(run)]
                else:
                    trials = [trial for run in rows for trial in final_trials(run, self._entries)]
                missing = self._load_cached(unique(trials), limits)
                if missing and cluster is None:
                    self._experiment.begin()
                    self._experiment.notify("starting workers")
                    cluster = stack.enter_context(open_cluster(self._settings.execution))
                    check_workers(cluster, stores)
                    self._experiment.update(executor=cluster.description)
                    limits = trial_limits(self._table, cluster)
                if missing and cluster is not None:
                    self._run(missing, limits, cluster, stage)

    def _load_cached(self, trials: list[Trial], limits: Limits) -> list[Trial]:
        """Load the trials that have a result, and return the others."""
        cached = self._experiment.directory.cached_of(
            [trial for trial in trials if trial.key not in self._entries], limits
        )
        for trial in trials:
            if trial.key in cached:
                # The same trial can belong to data sets with different names.
                self._entries[trial.key] = msgspec.structs.replace(
                    cached[trial.key], dataset=trial.dataset
                )
        self._experiment.update(n_reused=self._experiment.record.n_reused + len(cached))
        return [trial for trial in trials if trial.key not in self._entries]

    def _run(self, trials: list[Trial], limits: Limits, cluster: OpenCluster, stage: str) -> None:
        trials = sorted(trials, key=self._expected_seconds, reverse=True)  # the longest first
        self._experiment.notify(f"{len(trials)} fits to run ({stage})")
        for count, (trial, entry) in enumerate(run_trials(trials, limits, cluster), start=1):
            self._experiment.directory.write_trial(entry)
            self._entries[trial.key] = entry
            self._experiment.notify(entry=entry, done=count, total=len(trials))

    def _expected_seconds(self, trial: Trial) -> float:
        """Longest time of the method on the data set so far; 0 before the first trial."""
        seconds = [
            entry.seconds or 0.0
            for entry in self._entries.values()
            if (entry.method, entry.dataset) == (trial.method, trial.dataset)
        ]
        return max(seconds, default=0.0)

    def _write(self, rows: list[MethodRun], datasets: dict[str, Dataset]) -> None:
        table = tuple(_row(run, self._entries) for run in rows)
        shares = {
            dataset.entry.name: dataset.entry.corruption_rate
            for dataset in datasets.values()
            if dataset.entry.corruption_rate is not None
        }
        keys = [
            trial.key
            for run in rows
            for trial in (*search_trials(run), *final_trials(run, self._entries))
        ]
        self._experiment.finish(
            rows=table,
            curves=_curves(table, shares) if shares else (),
            trials=tuple(self._entries[key] for key in dict.fromkeys(keys)),
        )


def _mean_std(values: Sequence[float]) -> MeanStd:
    """Mean and sample standard deviation (n − 1); None for too few values."""
    return MeanStd(
        mean=statistics.fmean(values) if values else None,
        std=statistics.stdev(values) if len(values) > 1 else None,
    )


def _row(run: MethodRun, entries: Mapping[str, TrialEntry]) -> RowEntry:
    """Row of a method on a data set whose trials have ended."""
    setting = best_setting(run, entries)
    keys = [run.trial(setting, seed).key for seed in run.seeds]
    ended = [entries[key] for key in keys if key in entries]
    good = [entry for entry in ended if entry.outcome == "ok"]
    reasons = [f"{entry.outcome}: {entry.reason}" for entry in ended if entry.outcome != "ok"]
    if len(ended) < len(keys):
        reasons.append(f"{len(keys) - len(ended)} other runs were skipped after that")
    scores = {
        name: _mean_std([value for entry in good if (value := entry.scores.get(name)) is not None])
        for name in (SCORES if run.dataset.entry.n_classes else LABEL_FREE_SCORES)
    }
    scores["seconds"] = _mean_std([entry.seconds for entry in good if entry.seconds is not None])
    scores["peak_memory_bytes"] = _mean_std(
        [float(entry.peak_memory_bytes) for entry in good if entry.peak_memory_bytes is not None]
    )
    return RowEntry(
        dataset=run.dataset.entry.name,
        method=run.method,
        protocol=run.protocol,
        parameters=setting,
        n_runs=len(keys),
        n_failed=len(keys) - len(good),
        scores=scores,
        paper=paper_scores(run.dataset.entry.name, run.method),
        reasons=tuple(dict.fromkeys(reasons)),
        note="the view was chosen with labels" if run.view_is_chosen else "",
    )


def _curves(rows: Sequence[RowEntry], shares: Mapping[str, float]) -> tuple[CurveEntry, ...]:
    """Accuracy by corrupted share of each method and protocol.

    Parameters
    ----------
    rows
    shares
        Corrupted share by data set.
    """
    curves = []
    for method, protocol in dict.fromkeys((row.method, row.protocol) for row in rows):
        own_rows = [row for row in rows if (row.method, row.protocol) == (method, protocol)]
        published = ROBUSTNESS.get(method, {})
        curves.append(
            CurveEntry(
                method=method,
                protocol=protocol,
                corruption_rate=tuple(shares[row.dataset] for row in own_rows),
                mean=tuple(row.scores["accuracy"].mean for row in own_rows),
                std=tuple(row.scores["accuracy"].std for row in own_rows),
                paper=tuple(published.get(round(shares[row.dataset], 6)) for row in own_rows),
            )
        )
    return tuple(curves)
