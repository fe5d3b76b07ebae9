"""An experiment while it runs: its directory, its record and its progress.

    OUTPUT/
        experiment.json, results.md, results.csv, report.html, pipeline.toml
        trials/<first 2 digits>/<key>.json
        data/<name>.zarr
        .lock             see `mscam_dask.pipeline.run.lock`

Every file is written under a temporary name, synced and renamed, so it is complete or absent. A
damaged file of a trial counts as absent.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from dask.utils import parse_bytes

from mscam_dask.benchmark.config import (
    CompareTable,
    ExperimentSettings,
    RobustnessTable,
    RunsTable,
    SweepTable,
)
from mscam_dask.benchmark.datasets import Dataset, open_datasets
from mscam_dask.benchmark.methods import method
from mscam_dask.benchmark.report import write_experiment_report
from mscam_dask.benchmark.results import (
    PROTOCOLS,
    ExperimentRecord,
    MethodEntry,
    Outcome,
    TrialEntry,
    decode_experiment,
    encode_experiment,
    now,
)
from mscam_dask.benchmark.rows import curves, heat_map, method_runs
from mscam_dask.benchmark.tables import csv_text, markdown_text
from mscam_dask.benchmark.trial import Limits, Trial, run_trials
from mscam_dask.data.store.filesystem import read_regular
from mscam_dask.errors import DataError, MscamError, TemporaryFailure
from mscam_dask.estimators._resources import executor_for
from mscam_dask.monitor.run_record import blas_libraries, software_versions
from mscam_dask.pipeline.config.toml_document import toml_text
from mscam_dask.pipeline.run.cluster import (
    OpenCluster,
    check_workers,
    open_cluster,
    smallest_memory_bytes,
)
from mscam_dask.pipeline.run.graceful_shutdown import GracefulShutdown
from mscam_dask.pipeline.run.run_directory import lock_directory, write_whole
from mscam_dask.pipeline.run.security import check_execution

_RECORD = "experiment.json"

# Outcome of a trial that exceeded a limit -> the limit in `TrialEntry.limits`.
_EXCEEDED: dict[Outcome, str] = {"over time": "time_s", "over memory": "memory_bytes"}

_REMEDY = "Finished trials are kept; rerun the same command to resume."
# Fields that stay those of the run that computed the trials, if a later run computes none.
_FIELDS_OF_RUN = (
    *("command", "started", "ended", "seconds"),
    *("executor", "versions", "blas", "n_reused"),
)
_WRITTEN = ("results.csv", "results.md", "report.html")


def read_record(directory: Path) -> ExperimentRecord:
    """Read the experiment.json of a directory."""
    file = directory / _RECORD
    try:
        content = read_regular(file)
    except OSError as error:
        raise DataError(f"{file} cannot be read ({error.strerror}).") from error
    return decode_experiment(content, str(file))


def write_trial(directory: Path, entry: TrialEntry) -> None:
    """Write the file of a trial that has ended."""
    content = msgspec.json.format(msgspec.json.encode(entry), indent=2) + b"\n"
    write_whole(_trial_file(directory, entry.key), content)


def _trial_file(directory: Path, key: str) -> Path:
    return directory / "trials" / key[:2] / f"{key}.json"


def kept_trials(directory: Path, trials: Sequence[Trial], limits: Limits) -> dict[str, TrialEntry]:
    """Return the trials that have a result in a directory, by key.

    A trial runs again if its worker was lost, if it failed with a `TemporaryFailure`, or if it
    exceeded a limit that is higher now.
    """
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
    is_temporary = entry.outcome == "failed" and entry.reason.startswith("TemporaryFailure:")
    if is_temporary or entry.outcome == "worker lost":
        return None
    if entry.outcome in _EXCEEDED:
        name = _EXCEEDED[entry.outcome]
        exceeded, limit = entry.limits.get(name), getattr(limits, name)
        return entry if exceeded and limit and limit <= exceeded else None
    return entry


@dataclass(frozen=True)
class Progress:
    """Progress of an experiment: a stage that begins (`text`), or a trial that has ended (`entry`).

    `done` and `total` are the trials of this stage, those that have ended and all.
    """

    text: str = ""
    entry: TrialEntry | None = None
    done: int = 0
    total: int = 0


Observer = Callable[[Progress], None]


def output_of(settings: ExperimentSettings, output: Path | None = None) -> Path:
    """Return the directory of an experiment: `output`, [output] directory or <root>/<name>, root runs.

    It is the same for every run of an experiment, so that a second one resumes the first.
    """
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
    observers: Sequence[Observer] = (),
) -> ExperimentRecord:
    """Run the trials of an experiment that have no result yet, and write its results.

    The directory is missing, empty, or of an experiment whose finished trials are reused unless
    `overwrite`; by default `output_of`. A finished experiment is not changed before a trial runs:
    there may be nothing to run. `command` is for the record.
    A trial that fails is part of the result. After SIGTERM (`TemporaryFailure`) and Ctrl-C
    (`KeyboardInterrupt`) the same command resumes.
    """
    check_execution(settings.execution, insecure=insecure)
    path, table = output_of(settings, output), settings.table
    with _opened(settings, path, command, observers, overwrite=overwrite) as experiment:
        if settings.dataset:
            experiment.notify("reading the data")
        datasets = open_datasets(settings, path / "data")
        runs = method_runs(settings, datasets)
        for run in runs:
            run.check()
        protocols = set() if isinstance(table, SweepTable) else {run.protocol for run in runs}
        experiment.update(
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
        experiment.run(search, "search", datasets)
        final = [trial for run in runs for trial in run.final_trials(experiment.entries)]
        experiment.run(final, "final runs", datasets)
        keys = dict.fromkeys(
            trial.key
            for run in runs
            for trial in (*run.search_trials(), *run.final_trials(experiment.entries))
        )
        entries = experiment.entries
        if isinstance(table, SweepTable):
            maps = tuple(heat_map(table, run.search_trials(), entries) for run in runs)
            experiment.update(heat_maps=maps)
        else:
            experiment.update(rows=tuple(run.row(entries) for run in runs))
        if isinstance(table, RobustnessTable):
            experiment.update(curves=curves(experiment.record.rows, datasets))
        experiment.update(trials=tuple(entries[key] for key in keys))
        experiment.finish()
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
        observers: Sequence[Observer],
    ) -> None:
        self._settings = settings
        self._path = path
        self._observers = observers
        self._started = time.perf_counter()
        self._begun = False
        self._cluster: OpenCluster | None = None
        self.exits = contextlib.ExitStack()
        self.entries: dict[str, TrialEntry] = {}
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
            write_whole(self._path / _RECORD, encode_experiment(self.record))
            tables = msgspec.to_builtins(self._settings)
            del tables["name"]
            write_whole(self._path / "pipeline.toml", toml_text(tables).encode())

    def update(self, **changes: Any) -> None:
        """Change fields of the record."""
        self.record = msgspec.structs.replace(self.record, **changes)

    def notify(self, text: str = "", **progress: Any) -> None:
        """Tell the observers that a stage begins, or that a trial has ended."""
        for observer in self._observers:
            observer(Progress(text, **progress))

    def run(self, trials: Sequence[Trial], stage: str, datasets: Mapping[str, Dataset]) -> None:
        """Run the trials that have no result, those expected to take longest first."""
        limits = limits_of(self._settings, self._cluster)
        unknown = {trial.key: trial for trial in trials if trial.key not in self.entries}
        kept = kept_trials(self._path, list(unknown.values()), limits)
        for key, entry in kept.items():
            # The same trial can belong to data sets with different names.
            self.entries[key] = msgspec.structs.replace(entry, dataset=unknown[key].dataset)
        self.update(n_reused=self.record.n_reused + len(kept))
        missing = [trial for key, trial in unknown.items() if key not in kept]
        if not missing:
            return
        cluster = self._opened_cluster(datasets)
        limits = limits_of(self._settings, cluster)
        longest: dict[tuple[str, str], float] = {}
        for entry in self.entries.values():
            place = entry.method, entry.dataset
            longest[place] = max(longest.get(place, 0.0), entry.seconds or 0.0)
        missing.sort(key=lambda each: longest.get((each.method, each.dataset), 0.0), reverse=True)
        self.notify(f"{len(missing)} fits to run ({stage})")
        limited = [msgspec.structs.replace(trial, limits=limits) for trial in missing]
        self._add(run_trials(limited, cluster), len(missing))

    def _opened_cluster(self, datasets: Mapping[str, Dataset]) -> OpenCluster:
        """Open the cluster on the first call; it closes with the experiment."""
        if self._cluster is None:
            self.begin()
            self.notify("starting workers")
            self._cluster = self.exits.enter_context(open_cluster(self._settings.execution))
            stores = [place for one in datasets.values() if (place := one.location) is not None]
            check_workers(self._cluster, stores)
            self.update(executor=self._cluster.description)
        return self._cluster

    def _add(self, entries: Iterator[TrialEntry], total: int) -> None:
        """Write each trial when it has ended, and tell the observers."""
        for done, entry in enumerate(entries, start=1):
            write_trial(self._path, entry)
            self.entries[entry.key] = entry
            self.notify(entry=entry, done=done, total=total)

    def finish(self) -> None:
        """Write tables, record and report; nothing if no trial was run and they would not change."""
        self._close("finished")
        if not self._begun and self.previous is not None:
            of_run = {name: getattr(self.previous, name) for name in _FIELDS_OF_RUN}
            record = msgspec.structs.replace(self.record, **of_run)
            are_there = all((self._path / name).is_file() for name in _WRITTEN)
            if are_there and encode_experiment(record) == encode_experiment(self.previous):
                self.record = msgspec.structs.replace(record, n_reused=self.record.n_reused)
                return
            self.update(executor=self.previous.executor)
        self.begin()
        write_whole(self._path / "results.csv", csv_text(self.record).encode())
        write_whole(self._path / "results.md", markdown_text(self.record).encode())
        write_whole(self._path / _RECORD, encode_experiment(self.record))
        try:
            write_experiment_report(self._path, self.record)
        except (MscamError, OSError) as error:
            self.notify(f"the results are complete, but the report failed: {error}")

    def end(self, state: str) -> str:
        """Write the record with a final state, if it had begun; return the message of a deadline."""
        if self._begun:
            self._close(state)
            with contextlib.suppress(MscamError, OSError):
                write_whole(self._path / _RECORD, encode_experiment(self.record))
        return f"Interrupted. {_REMEDY}"

    def _close(self, state: str) -> None:
        seconds = time.perf_counter() - self._started
        self.update(state=state, ended=now(), seconds=seconds, blas=blas_libraries())


@contextmanager
def _opened(
    settings: ExperimentSettings,
    path: Path,
    command: str,
    observers: Sequence[Observer],
    *,
    overwrite: bool,
) -> Iterator[_Experiment]:
    """Lock the directory, and keep its record correct however the experiment ends."""
    with lock_directory(path, record=_RECORD, kind="an experiment"):
        experiment = _Experiment(settings, path, command, observers)
        if overwrite or experiment.previous is None:
            experiment.begin()
        if overwrite and (path / "trials").is_dir():
            shutil.rmtree(path / "trials")
        with GracefulShutdown(lambda: experiment.end("interrupted")) as shutdown:
            try:
                with experiment.exits:
                    yield experiment
            except KeyboardInterrupt as error:
                experiment.end("interrupted")
                if shutdown.exit_code == TemporaryFailure.exit_code:
                    raise TemporaryFailure(f"Stopped by SIGTERM. {_REMEDY}") from error
                raise KeyboardInterrupt(_REMEDY) from error
            except BaseException:
                experiment.end("failed")
                raise
