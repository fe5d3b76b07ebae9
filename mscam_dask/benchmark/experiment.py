"""An experiment while it runs: its trials, directory, record and progress, and the rows and curves of its tables.

Trials are trials/<first 2 digits>/<key>.json. Every file is complete or absent; a damaged trial counts as absent.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from dask.utils import parse_bytes

from mscam_dask.benchmark.baselines.base import Baseline
from mscam_dask.benchmark.config import (
    CompareTable,
    ExperimentSettings,
    RobustnessTable,
    RunsTable,
    SweepTable,
)
from mscam_dask.benchmark.datasets import Dataset, StoredData, open_datasets
from mscam_dask.benchmark.methods import METHODS, ROBUSTNESS, TABLES, grid_points, method
from mscam_dask.benchmark.report import (
    csv_text,
    markdown_text,
    trial_text,
    write_experiment_report,
)
from mscam_dask.benchmark.results import (
    LABEL_FREE_SCORES,
    PROTOCOLS,
    RECORD,
    SCORES,
    CurveEntry,
    ExperimentRecord,
    HeatMapEntry,
    Limits,
    MeanStd,
    MethodEntry,
    Outcome,
    Protocol,
    RowEntry,
    TrialEntry,
    encode_experiment,
    read_record,
)
from mscam_dask.benchmark.trial import Trial, run_trials
from mscam_dask.data.store.filesystem import read_regular
from mscam_dask.data.store.object_store import as_location
from mscam_dask.data.views.validation import validate
from mscam_dask.errors import ConfigurationError, DataError, MscamError
from mscam_dask.estimators._resources import executor_for
from mscam_dask.monitor.events import StepFinished, StepStarted
from mscam_dask.monitor.messages import duration, plural
from mscam_dask.monitor.run_record import blas_libraries, now, software_versions
from mscam_dask.pipeline.cluster import (
    OpenCluster,
    check_workers,
    open_cluster,
    smallest_memory_bytes,
)
from mscam_dask.pipeline.graceful_shutdown import GracefulShutdown
from mscam_dask.pipeline.run import Observer
from mscam_dask.pipeline.run_directory import lock_directory, write_whole
from mscam_dask.pipeline.security import check_execution
from mscam_dask.pipeline.toml_document import toml_text

_REMEDY = "Finished trials are kept; rerun the same command to resume."
# Fields that stay those of the run that computed the trials, if a later run computes none.
_FIELDS_OF_RUN = (
    *("command", "started", "ended", "seconds"),
    *("executor", "versions", "blas", "n_reused"),
)
_WRITTEN = ("results.csv", "results.md", "report.html")


def write_trial(directory: Path, entry: TrialEntry) -> None:
    """Write the file of a trial that has ended."""
    content = msgspec.json.format(msgspec.json.encode(entry), indent=2) + b"\n"
    write_whole(_trial_file(directory, entry.key), content)


def _trial_file(directory: Path, key: str) -> Path:
    return directory / "trials" / key[:2] / f"{key}.json"


def kept_trials(directory: Path, trials: Sequence[Trial], limits: Limits) -> dict[str, TrialEntry]:
    """Return the trials that need not run again, by key."""
    found = {trial.key: _kept(_trial_file(directory, trial.key), limits) for trial in trials}
    return {key: entry for key, entry in found.items() if entry is not None and entry.key == key}


def _kept(file: Path, limits: Limits) -> TrialEntry | None:
    try:
        entry = msgspec.json.decode(read_regular(file), type=TrialEntry)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DataError(
            f"{file} cannot be read ({error.strerror}). Correct its permissions or remove it, and the "
            "trial runs again."
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    # A lost worker, a temporary failure, and a limit that is higher now are reasons to run again.
    is_temporary = entry.outcome == "failed" and entry.reason.startswith("TemporaryFailure:")
    if is_temporary or entry.outcome == "worker lost":
        return None
    exceeded: dict[Outcome, str] = {"over time": "time_s", "over memory": "memory_bytes"}
    if name := exceeded.get(entry.outcome):
        before, limit = getattr(entry.limits, name), getattr(limits, name)
        return entry if before and limit and limit <= before else None
    return entry


def output_of(settings: ExperimentSettings, output: Path | None = None) -> Path:
    """Return the directory of an experiment: `output`, [output] directory or <root>/<name>, root runs."""
    chosen = output or settings.output.directory
    root = Path(settings.output.root or "runs")
    return (root / settings.name if chosen is None else Path(chosen)).absolute()


def limits_of(settings: ExperimentSettings, cluster: OpenCluster | None = None) -> Limits:
    """Return the limits of every trial; the default memory limit is the share of a worker thread."""
    table = settings.table
    if isinstance(table, SweepTable):
        return Limits()
    if table.memory_limit is not None:
        memory_bytes: int | None = parse_bytes(table.memory_limit)
    elif cluster is None or cluster.client is None:
        memory_bytes = smallest_memory_bytes()
    else:
        memory_bytes = executor_for(cluster.client, 1).memory_limit_bytes
    return Limits(time_s=table.time_limit_s, memory_bytes=memory_bytes)


def run_experiment(
    settings: ExperimentSettings,
    output: Path | None = None,
    *,
    command: str = "",
    overwrite: bool = False,
    insecure: bool = False,
    observer: Observer = lambda _: None,
) -> ExperimentRecord:
    """Run the trials of an experiment that have no result in its directory, and write its results.

    A finished experiment is not changed before a trial runs. After SIGTERM (`TemporaryFailure`) and
    Ctrl-C (`KeyboardInterrupt`) the same command resumes.
    """
    check_execution(settings.execution, insecure=insecure)
    path = output_of(settings, output)
    with lock_directory(path, record=RECORD, kind="an experiment"):
        experiment = _Experiment(settings, path, command, observer)
        if overwrite or experiment.previous is None:
            experiment.begin()
        if overwrite and (path / "trials").is_dir():
            shutil.rmtree(path / "trials")
        shutdown = GracefulShutdown(lambda: experiment.end("interrupted"))
        with shutdown.reported(experiment.failed, _REMEDY), experiment.exits:
            experiment.execute()
            return experiment.record


def _varies(table: RunsTable | SweepTable) -> str:
    """Sentence on the difference between runs."""
    if isinstance(table, SweepTable):
        return "Every trial is run once."
    seeds = f"Run i has seed {f'{table.seed} + i' if table.seed else 'i'}"
    if isinstance(table, RobustnessTable):
        return f"{seeds}, which also draws the samples and their noise."
    if isinstance(table, CompareTable) and table.shuffle:
        return f"{seeds}, which also shuffles the samples (seed 0 keeps the order)."
    return f"{seeds}; the samples keep the order of the file."


class _Experiment:
    """A running experiment: its record as far as it is known, and the trials that have ended, by key."""

    def __init__(
        self,
        settings: ExperimentSettings,
        path: Path,
        command: str,
        observer: Observer,
    ) -> None:
        self._settings = settings
        self._path = path
        self._notify = observer
        self._started = time.perf_counter()
        self._begun = False
        self._cluster: OpenCluster | None = None
        self.exits = contextlib.ExitStack()
        self._entries: dict[str, TrialEntry] = {}
        self.previous: ExperimentRecord | None = None
        with contextlib.suppress(DataError):
            previous = read_record(path)
            self.previous = previous if previous.state == "finished" else None
        self.record = ExperimentRecord(
            kind=settings.table.kind,
            name=settings.name,
            state="running",
            command=command,
            started=now(),
            versions=software_versions(),
        )

    def begin(self) -> None:
        """Write the record with the state "running" and the settings, on the first call only."""
        if not self._begun:
            self._begun = True
            write_whole(self._path / RECORD, encode_experiment(self.record))
            tables = msgspec.to_builtins(self._settings)
            del tables["name"]
            write_whole(self._path / "pipeline.toml", toml_text(tables).encode())

    def execute(self) -> None:
        """Run the trials, and write the results."""
        table, sweep = self._settings.table, self._settings.sweep
        if self._settings.dataset:
            self._notify(StepStarted(step="ingest"))
        datasets = open_datasets(self._settings, self._path / "data")
        runs = method_runs(self._settings, datasets)
        for run in runs:
            run.check()
        protocols = {run.protocol for run in runs} if sweep is None else set()
        self._update(
            seeds=table.seeds,
            varies=_varies(table),
            protocols={name: text for name, text in PROTOCOLS.items() if name in protocols},
            datasets=tuple(dataset.entry for dataset in datasets.values()),
            methods=tuple(
                msgspec.convert(method(name), MethodEntry, from_attributes=True)
                for name in dict.fromkeys(run.method for run in runs)
            ),
        )
        search = [trial for run in runs for trial in run.search_trials()]
        self._run(search, "search", datasets)
        final = [trial for run in runs for trial in run.final_trials(self._entries)]
        self._run(final, "final runs", datasets)
        keys = dict.fromkeys(
            trial.key
            for run in runs
            for trial in (*run.search_trials(), *run.final_trials(self._entries))
        )
        if sweep is None:
            self._update(rows=tuple(run.row(self._entries) for run in runs))
        else:
            maps = (heat_map(sweep, run.search_trials(), self._entries) for run in runs)
            self._update(heat_maps=tuple(maps))
        if isinstance(table, RobustnessTable):
            self._update(curves=curves(self.record.rows, datasets))
        self._update(trials=tuple(self._entries[key] for key in keys))
        self._finish()

    def _update(self, **changes: Any) -> None:
        """Change fields of the record."""
        self.record = msgspec.structs.replace(self.record, **changes)

    def _run(self, trials: Sequence[Trial], stage: str, datasets: Mapping[str, Dataset]) -> None:
        """Run the trials that have no result, those expected to take longest first."""
        limits = limits_of(self._settings, self._cluster)
        unknown = {trial.key: trial for trial in trials if trial.key not in self._entries}
        kept = kept_trials(self._path, list(unknown.values()), limits)
        for key, entry in kept.items():
            # The same trial can belong to data sets with different names.
            self._entries[key] = msgspec.structs.replace(entry, dataset=unknown[key].dataset)
        self._update(n_reused=self.record.n_reused + len(kept))
        missing = [trial for key, trial in unknown.items() if key not in kept]
        if not missing:
            return
        cluster = self._opened_cluster(datasets)
        limits = limits_of(self._settings, cluster)
        longest: dict[tuple[str, str], float] = {}
        for entry in self._entries.values():
            place = entry.method, entry.dataset
            longest[place] = max(longest.get(place, 0.0), entry.seconds or 0.0)
        missing.sort(key=lambda each: longest.get((each.method, each.dataset), 0.0), reverse=True)
        self._notify(StepStarted(step=f"{stage}: {plural(len(missing), 'fit')}"))
        limited = [msgspec.structs.replace(trial, limits=limits) for trial in missing]
        started = time.monotonic()
        for done, entry in enumerate(run_trials(limited, cluster), start=1):
            write_trial(self._path, entry)
            self._entries[entry.key] = entry
            left = (time.monotonic() - started) / done * (len(missing) - done)
            text = f"{trial_text(entry)}, {duration(left)} left"
            step, seconds = f"{done}/{len(missing)}", entry.seconds or 0.0
            self._notify(StepFinished(step=step, summary=text, seconds=seconds))

    def _opened_cluster(self, datasets: Mapping[str, Dataset]) -> OpenCluster:
        """Open the cluster on the first call; it closes with the experiment."""
        if self._cluster is None:
            self.begin()
            self._notify(StepStarted(step="start"))
            self._cluster = self.exits.enter_context(open_cluster(self._settings.execution))
            data = [dataset.data for dataset in datasets.values()]
            stores = [as_location(one.path) for one in data if isinstance(one, StoredData)]
            check_workers(self._cluster, stores)
            self._update(executor=self._cluster.description)
        return self._cluster

    def _finish(self) -> None:
        """Write tables, record and report; nothing if no trial was run and they would not change."""
        self._close("finished")
        if not self._begun and self.previous is not None:
            of_run = {name: getattr(self.previous, name) for name in _FIELDS_OF_RUN}
            record = msgspec.structs.replace(self.record, **of_run)
            are_there = all((self._path / name).is_file() for name in _WRITTEN)
            if are_there and encode_experiment(record) == encode_experiment(self.previous):
                self.record = msgspec.structs.replace(record, n_reused=self.record.n_reused)
                return
            self._update(executor=self.previous.executor)
        self.begin()
        write_whole(self._path / "results.csv", csv_text(self.record).encode())
        write_whole(self._path / "results.md", markdown_text(self.record).encode())
        write_whole(self._path / RECORD, encode_experiment(self.record))
        try:
            write_experiment_report(self._path, self.record)
        except (MscamError, OSError) as error:
            note = f"The results are complete, but the report failed: {error}"
            self._notify(StepFinished(step="report", summary="failed", notes=(note,), seconds=0.0))

    def failed(self, error: BaseException) -> None:
        """End with an error or an interrupt."""
        self.end("interrupted" if isinstance(error, KeyboardInterrupt) else "failed")

    def end(self, state: str) -> str:
        """Write the record with a final state, if it had begun; return the message of a deadline."""
        if self._begun:
            self._close(state)
            with contextlib.suppress(MscamError, OSError):
                write_whole(self._path / RECORD, encode_experiment(self.record))
        return f"Interrupted. {_REMEDY}"

    def _close(self, state: str) -> None:
        seconds = time.perf_counter() - self._started
        self._update(state=state, ended=now(), seconds=seconds, blas=blas_libraries())


# rows, curves and heat maps ----------------------------------------------------------------------


LABEL_FREE_MAPS = ("cross_view_information", "adjusted_modularity")
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
