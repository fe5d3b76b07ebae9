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
from mscam_dask.errors import DataError, MscamError, TemporaryFailure
from mscam_dask.monitor.run_record import blas_libraries, software_versions
from mscam_dask.pipeline.config.parse import check_name
from mscam_dask.pipeline.config.toml_document import toml_text
from mscam_dask.pipeline.config.validate import check_execution
from mscam_dask.pipeline.run.graceful_shutdown import GracefulShutdown
from mscam_dask.pipeline.run.run_directory import lock_directory, write_whole

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
    def markdown(self) -> Path:
        """Tables as Markdown."""
        return self.path / "results.md"

    @property
    def csv(self) -> Path:
        """Rows or heat maps as CSV."""
        return self.path / "results.csv"

    @property
    def report(self) -> Path:
        """HTML report."""
        return self.path / "report.html"

    @property
    def pipeline(self) -> Path:
        """Copy of the settings."""
        return self.path / "pipeline.toml"

    def store(self, name: str) -> Path:
        """Path of the store of a data set.

        Raises
        ------
        ConfigurationError
            If the name cannot be the name of a file.
        """
        check_name(name, "the name of a data set", "The store has this name; choose another.")
        return self.path / "data" / f"{name}.zarr"

    def trial(self, key: str) -> Path:
        """Path of the file of a trial."""
        return self.path / "trials" / key[:2] / f"{key}.json"

    @classmethod
    @contextmanager
    def hold(cls, path: str | Path) -> Iterator[ExperimentDirectory]:
        """Create a directory, or take that of an experiment, and lock it.

        Raises
        ------
        ConfigurationError
            If it holds something else, which is not changed.
        TemporaryFailure
            If another process has locked it, or the disk is full.
        """
        directory = cls(Path(path).absolute())
        with lock_directory(directory.path, record=_RECORD, kind="an experiment"):
            yield directory

    def write(self, file: Path, content: bytes) -> None:
        """Write one file atomically."""
        write_whole(file, content)

    def write_record(self, record: ExperimentRecord) -> None:
        """Write experiment.json."""
        self.write(self.record, encode_experiment(record))

    def read_record(self) -> ExperimentRecord:
        """Read experiment.json.

        Raises
        ------
        DataError
            If it cannot be read, or is not the record of an experiment.
        """
        try:
            content = self.record.read_bytes()
        except OSError as error:
            raise DataError(f"{self.record} cannot be read ({error.strerror}).") from error
        return decode_experiment(content, str(self.record))

    def write_trial(self, entry: TrialEntry) -> None:
        """Write the file of a trial that has ended."""
        content = msgspec.json.format(msgspec.json.encode(entry), indent=2) + b"\n"
        self.write(self.trial(entry.key), content)

    def clear_cache(self) -> None:
        """Remove every trial, so that each runs again."""
        trials = self.path / "trials"
        if trials.is_dir():
            shutil.rmtree(trials)

    def cached(self, key: str, limits: Limits) -> TrialEntry | None:
        """Return the trial of a key; None if it has to run.

        A trial runs again if its worker was lost, if it failed with a `TemporaryFailure`, or if it
        exceeded a limit that is higher now.
        """
        try:
            content = self.trial(key).read_bytes()
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
            exceeded, limit = entry.limits.get(name), limits.as_dict()[name]
            return (
                entry if exceeded is not None and limit is not None and limit <= exceeded else None
            )
        return entry

    def cached_of(self, trials: list[Trial], limits: Limits) -> dict[str, TrialEntry]:
        """Return the trials that need not run, by key."""
        entries = {trial.key: self.cached(trial.key, limits) for trial in trials}
        return {key: entry for key, entry in entries.items() if entry is not None}


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
    settings
    previous
        Record of a finished run in the same directory; None without.
    """

    def __init__(
        self,
        settings: ExperimentSettings,
        directory: ExperimentDirectory,
        command: str,
        observers: Sequence[Observer],
    ) -> None:
        self.settings = settings
        self.directory = directory
        self.previous = _finished_record(directory)
        self.record = ExperimentRecord(
            kind=settings.kind,
            name=settings.name,
            state="running",
            command=command,
            started=_now(),
            versions=software_versions(),
        )
        self._observers = observers
        self._started = time.perf_counter()
        self._begun = False

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

        A finished experiment is not changed before `begin`: there may be nothing to run.

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
        TemporaryFailure
            After SIGTERM; the same command resumes.
        KeyboardInterrupt
            After Ctrl-C; the same command resumes.
        """
        check_execution(settings.execution, insecure=insecure)
        with ExperimentDirectory.hold(output or default_output(settings)) as directory:
            experiment = cls(settings, directory, command, observers)
            if overwrite or experiment.previous is None:
                experiment.begin()
            if overwrite:
                directory.clear_cache()
            with GracefulShutdown(experiment._on_deadline) as shutdown:
                try:
                    yield experiment
                except KeyboardInterrupt as error:
                    experiment.end("interrupted")
                    if shutdown.exit_code == TemporaryFailure.exit_code:
                        raise TemporaryFailure(f"Stopped by SIGTERM. {_REMEDY}") from error
                    raise KeyboardInterrupt(_REMEDY) from error
                except BaseException:
                    experiment.end("failed")
                    raise

    def _on_deadline(self) -> str:
        self.end("interrupted")
        return f"Interrupted. {_REMEDY}"

    def begin(self) -> None:
        """Write the record with the state "running", on the first call only."""
        if self._begun:
            return
        self._begun = True
        self.directory.write_record(self.record)
        self.directory.write(self.directory.pipeline, _settings_text(self.settings).encode())

    def update(self, **changes: Any) -> None:
        """Change fields of the record."""
        self.record = msgspec.structs.replace(self.record, **changes)

    def notify(
        self, text: str = "", *, entry: TrialEntry | None = None, done: int = 0, total: int = 0
    ) -> None:
        """Call the observers."""
        for observer in self._observers:
            observer(Progress(text=text, entry=entry, done=done, total=total))

    def end(self, state: str) -> None:
        """Write the record with a final state, if the experiment had begun and it can be written."""
        if not self._begun:
            return
        self._close(state)
        with contextlib.suppress(MscamError, OSError):
            self.directory.write_record(self.record)

    def finish(self, **results: Any) -> None:
        """Write the tables, then the record, then the report.

        Nothing is written if no trial was run and the files would not change.
        """
        self.update(**results)
        self._close("finished")
        directory = self.directory
        if not self._begun and self.previous is not None:
            if self._is_unchanged(self.previous):
                self.record = msgspec.structs.replace(self.previous, n_reused=self.record.n_reused)
                return
            self.update(executor=self.previous.executor)
        self.begin()
        directory.write(directory.csv, csv_text(self.record).encode())
        directory.write(directory.markdown, markdown_text(self.record).encode())
        directory.write_record(self.record)
        try:
            write_experiment_report(directory.path, msgspec.to_builtins(self.record))
        except (MscamError, OSError) as error:
            self.notify(f"the results are complete, but the report failed: {error}")

    def _is_unchanged(self, previous: ExperimentRecord) -> bool:
        """Whether this run would write the same files as a previous one."""
        of_run = {name: getattr(previous, name) for name in _FIELDS_OF_RUN}
        record = msgspec.structs.replace(self.record, **of_run)
        files = (self.directory.csv, self.directory.markdown, self.directory.report)
        return encode_experiment(record) == encode_experiment(previous) and all(
            file.is_file() for file in files
        )

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
    kinds = {kind: name for name, kind in KIND_TABLES.items()}
    table = msgspec.to_builtins(settings.table)
    if settings.datasets:  # by name, each with its table
        table |= {"datasets": list(settings.datasets), "directory": None}
    tables = {
        kinds[settings.kind]: table,
        "dataset": {
            name: _without_none(msgspec.to_builtins(table))
            for name, table in settings.datasets.items()
        },
        "parameters": settings.parameters,
        "grid": settings.grids,
        "execution": msgspec.to_builtins(settings.execution),
        "output": msgspec.to_builtins(settings.output),
    }
    return toml_text({name: table for name, table in tables.items() if table})


def _without_none(table: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if value is not None}


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
