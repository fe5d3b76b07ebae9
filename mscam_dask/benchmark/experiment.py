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
import datetime as dt
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from mscam_dask.benchmark.config import KIND_TABLES, ExperimentSettings
from mscam_dask.benchmark.report import write_experiment_report
from mscam_dask.benchmark.results import (
    ExperimentRecord,
    Outcome,
    TrialEntry,
    csv_text,
    decode_experiment,
    encode_experiment,
    markdown_text,
)
from mscam_dask.benchmark.trial import Limits, Trial
from mscam_dask.data.store.filesystem import read_regular
from mscam_dask.data.store.object_store import Location
from mscam_dask.errors import DataError, MscamError, TemporaryFailure
from mscam_dask.monitor.run_record import blas_libraries, software_versions
from mscam_dask.pipeline.config.toml_document import toml_text
from mscam_dask.pipeline.run.cluster import OpenCluster, check_workers, open_cluster
from mscam_dask.pipeline.run.graceful_shutdown import GracefulShutdown
from mscam_dask.pipeline.run.run_directory import lock_directory, write_whole
from mscam_dask.pipeline.run.security import check_execution

__all__ = ["Experiment", "ExperimentDirectory", "Observer", "Progress", "default_output"]

_RECORD = "experiment.json"

# Outcome of a trial that exceeded a limit -> the limit in `TrialEntry.limits`.
_EXCEEDED: dict[Outcome, str] = {"over time": "time_s", "over memory": "memory_bytes"}

_REMEDY = "Finished trials are kept; rerun the same command to resume."
# Fields that stay those of the run that computed the trials, if a later run computes none.
_FIELDS_OF_RUN = (
    *("command", "started", "ended", "seconds"),
    *("executor", "versions", "blas", "n_reused"),
)


@dataclass(frozen=True)
class ExperimentDirectory:
    """Paths inside the directory of an experiment, and access to its files.

    Attributes
    ----------
    path
        Absolute.
    """

    path: Path

    @property
    def record(self) -> Path:
        """The record, see `mscam_dask.benchmark.results`."""
        return self.path / _RECORD

    @property
    def stores(self) -> Path:
        """Directory of the stores of the data sets."""
        return self.path / "data"

    def trial(self, key: str) -> Path:
        """Path of the file of a trial."""
        return self.path / "trials" / key[:2] / f"{key}.json"

    def read_record(self) -> ExperimentRecord:
        """Read experiment.json.

        Raises
        ------
        DataError
            If it cannot be read, or is not the record of an experiment.
        """
        try:
            content = read_regular(self.record)
        except OSError as error:
            raise DataError(f"{self.record} cannot be read ({error.strerror}).") from error
        return decode_experiment(content, str(self.record))

    def write_trial(self, entry: TrialEntry) -> None:
        """Write the file of a trial that has ended."""
        content = msgspec.json.format(msgspec.json.encode(entry), indent=2) + b"\n"
        write_whole(self.trial(entry.key), content)

    def cached(self, trials: Sequence[Trial], limits: Limits) -> dict[str, TrialEntry]:
        """Return the trials that have a result, by key.

        A trial runs again if its worker was lost, if it failed with a `TemporaryFailure`, or if it
        exceeded a limit that is higher now.
        """
        entries = {trial.key: self._cached(trial.key, limits) for trial in trials}
        return {key: entry for key, entry in entries.items() if entry is not None}

    def _cached(self, key: str, limits: Limits) -> TrialEntry | None:
        try:
            content = read_regular(self.trial(key))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise DataError(
                f"{self.trial(key)} cannot be read ({error.strerror}). Correct its permissions or "
                "remove it, and the trial runs again."
            ) from error
        try:
            entry = msgspec.json.decode(content, type=TrialEntry)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if entry.key != key or entry.outcome == "worker lost":
            return None
        if entry.outcome == "failed" and entry.reason.startswith(f"{TemporaryFailure.__name__}:"):
            return None
        if entry.outcome in _EXCEEDED:
            name = _EXCEEDED[entry.outcome]
            exceeded, limit = entry.limits.get(name), getattr(limits, name)
            return entry if exceeded and limit and limit <= exceeded else None
        return entry


@dataclass(frozen=True)
class Progress:
    """Progress of an experiment.

    Attributes
    ----------
    text
        Stage that begins; "" for a trial.
    entry
        Trial that has ended.
    done, total
        Number of trials of this stage, those that have ended and all.
    """

    text: str = ""
    entry: TrialEntry | None = None
    done: int = 0
    total: int = 0


Observer = Callable[[Progress], None]


def default_output(settings: ExperimentSettings) -> Path:
    """Return [output] directory if given, otherwise <root>/<name>; the default root is runs.

    It is the same for every run of an experiment, so that a second one resumes the first.
    """
    if settings.output.directory is not None:
        return Path(settings.output.directory)
    root = Path.cwd() / "runs" if settings.output.root is None else Path(settings.output.root)
    return root / settings.name


class Experiment:
    """A running experiment.

    Attributes
    ----------
    directory
    record
        Record as far as it is known.
    entries
        Trials that have ended, by key.
    opened_cluster
        Where trials run; None before the first one.
    previous
        Record of a finished run in the same directory; None without.
    """

    def __init__(
        self,
        settings: ExperimentSettings,
        path: Path,
        command: str,
        observers: Sequence[Observer],
    ) -> None:
        self.directory = ExperimentDirectory(path)
        self.entries: dict[str, TrialEntry] = {}
        self.previous = _finished_record(self.directory)
        self.record = ExperimentRecord(
            kind=settings.kind,
            name=settings.name,
            state="running",
            command=command,
            started=_now(),
            versions=software_versions(),
        )
        self._settings = settings
        self._observers = observers
        self._started = time.perf_counter()
        self._begun = False
        self.opened_cluster: OpenCluster | None = None
        self._exits = contextlib.ExitStack()

    @classmethod
    @contextmanager
    def open(
        cls,
        settings: ExperimentSettings,
        output: str | Path | None = None,
        *,
        command: str = "",
        overwrite: bool = False,
        insecure: bool = False,
        observers: Sequence[Observer] = (),
    ) -> Iterator[Experiment]:
        """Lock the directory, and keep its record correct however the experiment ends.

        A finished experiment is not changed before a trial runs: there may be nothing to run.

        Parameters
        ----------
        settings
            From `mscam_dask.benchmark.config.read_experiment`.
        output
            Directory: missing, empty, or of an experiment whose finished trials are reused. By
            default `default_output`.
        command
            Command for the record.
        overwrite
            Run every trial again.
        insecure
            Allow a scheduler on another machine without encryption.
        observers
            Called with each `Progress`.

        Raises
        ------
        ConfigurationError
            If the directory holds something else, which is not changed.
        TemporaryFailure
            After SIGTERM, when the same command resumes. Also if another process has locked the
            directory, or the disk is full.
        KeyboardInterrupt
            After Ctrl-C; the same command resumes.
        """
        check_execution(settings.execution, insecure=insecure)
        path = Path(output or default_output(settings)).absolute()
        with lock_directory(path, record=_RECORD, kind="an experiment"):
            experiment = cls(settings, path, command, observers)
            if overwrite or experiment.previous is None:
                experiment._begin()
            if overwrite and (path / "trials").is_dir():
                shutil.rmtree(path / "trials")
            with GracefulShutdown(experiment._on_deadline) as shutdown:
                try:
                    with experiment._exits:
                        yield experiment
                except KeyboardInterrupt as error:
                    experiment._end("interrupted")
                    if shutdown.exit_code == TemporaryFailure.exit_code:
                        raise TemporaryFailure(f"Stopped by SIGTERM. {_REMEDY}") from error
                    raise KeyboardInterrupt(_REMEDY) from error
                except BaseException:
                    experiment._end("failed")
                    raise

    def _on_deadline(self) -> str:
        self._end("interrupted")
        return f"Interrupted. {_REMEDY}"

    def _begin(self) -> None:
        """Write the record with the state "running", on the first call only."""
        if self._begun:
            return
        self._begun = True
        write_whole(self.directory.record, encode_experiment(self.record))
        settings = _settings_text(self._settings)
        write_whole(self.directory.path / "pipeline.toml", settings.encode())

    def update(self, **changes: Any) -> None:
        """Change fields of the record."""
        self.record = msgspec.structs.replace(self.record, **changes)

    def notify(self, text: str) -> None:
        """Tell the observers that a stage begins."""
        for observer in self._observers:
            observer(Progress(text=text))

    def missing(self, trials: Sequence[Trial], limits: Limits) -> list[Trial]:
        """Load the trials that have a result, and return the others, each key once."""
        unknown = [trial for trial in trials if trial.key not in self.entries]
        cached = self.directory.cached(unknown, limits)
        for trial in unknown:
            if trial.key in cached:
                # The same trial can belong to data sets with different names.
                entry = msgspec.structs.replace(cached[trial.key], dataset=trial.dataset)
                self.entries[trial.key] = entry
        self.update(n_reused=self.record.n_reused + len(cached))
        return list({trial.key: trial for trial in unknown if trial.key not in cached}.values())

    def cluster(self, stores: Sequence[Location]) -> OpenCluster:
        """Open the cluster on the first call; it closes with the experiment.

        Parameters
        ----------
        stores
            Stores that every worker has to read.
        """
        if self.opened_cluster is None:
            self._begin()
            self.notify("starting workers")
            self.opened_cluster = self._exits.enter_context(open_cluster(self._settings.execution))
            check_workers(self.opened_cluster, stores)
            self.update(executor=self.opened_cluster.description)
        return self.opened_cluster

    def add(self, entry: TrialEntry, done: int, total: int) -> None:
        """Write a trial that has ended, and tell the observers."""
        self.directory.write_trial(entry)
        self.entries[entry.key] = entry
        for observer in self._observers:
            observer(Progress(entry=entry, done=done, total=total))

    def finish(self, **results: Any) -> None:
        """Write the tables, then the record, then the report.

        Nothing is written if no trial was run and the files would not change.
        """
        self.update(**results)
        self._close("finished")
        if not self._begun and self.previous is not None:
            if self._is_unchanged(self.previous):
                self.record = msgspec.structs.replace(self.previous, n_reused=self.record.n_reused)
                return
            self.update(executor=self.previous.executor)
        self._begin()
        path = self.directory.path
        write_whole(path / "results.csv", csv_text(self.record).encode())
        write_whole(path / "results.md", markdown_text(self.record).encode())
        write_whole(self.directory.record, encode_experiment(self.record))
        try:
            write_experiment_report(path, self.record)
        except (MscamError, OSError) as error:
            self.notify(f"the results are complete, but the report failed: {error}")

    def _is_unchanged(self, previous: ExperimentRecord) -> bool:
        """Whether this run would write the same files as a previous one."""
        of_run = {name: getattr(previous, name) for name in _FIELDS_OF_RUN}
        record = msgspec.structs.replace(self.record, **of_run)
        names = ("results.csv", "results.md", "report.html")
        return encode_experiment(record) == encode_experiment(previous) and all(
            (self.directory.path / name).is_file() for name in names
        )

    def _end(self, state: str) -> None:
        """Write the record with a final state, if the experiment had begun and it can be written."""
        if self._begun:
            self._close(state)
            with contextlib.suppress(MscamError, OSError):
                write_whole(self.directory.record, encode_experiment(self.record))

    def _close(self, state: str) -> None:
        seconds = time.perf_counter() - self._started
        self.update(state=state, ended=_now(), seconds=seconds, blas=blas_libraries())


def _finished_record(directory: ExperimentDirectory) -> ExperimentRecord | None:
    try:
        record = directory.read_record()
    except DataError:
        return None
    return record if record.state == "finished" else None


def _settings_text(settings: ExperimentSettings) -> str:
    """Content of an experiment file with exactly these settings, defaults included."""
    name = next(name for name, kind in KIND_TABLES.items() if kind == settings.kind)
    content = msgspec.to_builtins(settings)
    table = content["table"]
    if settings.datasets:  # by name, each with its table
        table |= {"datasets": list(settings.datasets), "directory": None}
    datasets = {
        name: {key: value for key, value in table.items() if value is not None}
        for name, table in content["datasets"].items()
    }
    tables = {
        name: table,
        "dataset": datasets,
        "parameters": settings.parameters,
        "grid": settings.grids,
        "execution": content["execution"],
        "output": content["output"],
    }
    return toml_text({name: table for name, table in tables.items() if table})


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
