"""The directory of an experiment: what it was, its cells, what came out.

    OUTPUT/
        experiment.json, results.md, results.csv, report.html, pipeline.toml
        cells/<first 2 digits>/<key>.json
        data/<name>.zarr
        .lock             see `mscam_dask.pipeline.run.lock`

Every file is written aside, synced and renamed, so it is whole or not there; a file that is not
a cell's record is as good as missing.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from mscam_dask.benchmark.results import (
    ExperimentRecord,
    Outcome,
    TrialEntry,
    decode_experiment,
    encode_experiment,
)
from mscam_dask.benchmark.trial import Limits, Trial
from mscam_dask.errors import DataError, TemporaryFailure
from mscam_dask.pipeline.config.file_names import check_name
from mscam_dask.pipeline.run.run_directory import lock_directory, write_whole

__all__ = ["ExperimentDirectory"]

_RECORD = "experiment.json"

_LIMITED: dict[Outcome, str] = {"over time": "time_s", "over memory": "memory_bytes"}


@dataclass(frozen=True)
class ExperimentDirectory:
    """Paths inside an experiment's directory, and how its files are written and found.

    Attributes
    ----------
    path
        Absolute.
    """

    path: Path

    @property
    def record(self) -> Path:
        """The document, see `mscam_dask.benchmark.results`."""
        return self.path / _RECORD

    @property
    def markdown(self) -> Path:
        """Tables for people."""
        return self.path / "results.md"

    @property
    def csv(self) -> Path:
        """The rows, or the heat maps, as text."""
        return self.path / "results.csv"

    @property
    def report(self) -> Path:
        """Page for people."""
        return self.path / "report.html"

    @property
    def pipeline(self) -> Path:
        """Copy of the settings."""
        return self.path / "pipeline.toml"

    def store(self, name: str) -> Path:
        """Where the data set of this name is kept.

        Raises
        ------
        ConfigurationError
            When no file can be called by that name.
        """
        check_name(name, "the name of a data set", "Its store is called by it; choose another.")
        return self.path / "data" / f"{name}.zarr"

    def trial(self, key: str) -> Path:
        """Where the cell of this key is kept."""
        return self.path / "cells" / key[:2] / f"{key}.json"

    @classmethod
    @contextmanager
    def hold(cls, path: str | Path) -> Iterator[ExperimentDirectory]:
        """Make a directory, or take one that an experiment made, and keep other drivers out.

        Raises
        ------
        ConfigurationError
            When something else is there; nothing in it is touched.
        TemporaryFailure
            When another driver holds it, or the disk is full.
        """
        directory = cls(Path(path).absolute())
        with lock_directory(directory.path, record=_RECORD, kind="an experiment"):
            yield directory

    def write(self, file: Path, content: bytes) -> None:
        """Write one file aside, sync it and give it its name."""
        write_whole(file, content)

    def write_record(self, record: ExperimentRecord) -> None:
        """Write experiment.json."""
        self.write(self.record, encode_experiment(record))

    def read_record(self) -> ExperimentRecord:
        """Read experiment.json.

        Raises
        ------
        DataError
            When it cannot be read, or is no record of an experiment.
        """
        try:
            content = self.record.read_bytes()
        except OSError as error:
            raise DataError(f"{self.record} cannot be read ({error.strerror}).") from error
        return decode_experiment(content, str(self.record))

    def keep(self, entry: TrialEntry) -> None:
        """Keep a cell that has ended."""
        content = msgspec.json.format(msgspec.json.encode(entry), indent=2) + b"\n"
        self.write(self.trial(entry.key), content)

    def forget(self) -> None:
        """Remove every cell: each is to be run again."""
        trials = self.path / "cells"
        if trials.is_dir():
            shutil.rmtree(trials)

    def kept(self, key: str, limits: Limits) -> TrialEntry | None:
        """Return the cell of a key, None when it is to be run.

        A cell that a lost worker took with it, that failed of what passes by itself, or that
        went over a limit lower than today's, is to be run again.
        """
        try:
            content = self.trial(key).read_bytes()
        except FileNotFoundError:
            return None
        try:
            entry = msgspec.json.decode(content, type=TrialEntry)
        except msgspec.DecodeError:
            return None
        if entry.key != key or entry.outcome == "worker lost":
            return None
        if entry.outcome == "failed" and entry.reason.startswith(f"{TemporaryFailure.__name__}:"):
            return None
        if entry.outcome in _LIMITED:
            name = _LIMITED[entry.outcome]
            then, now = entry.limits.get(name), limits.as_dict()[name]
            return entry if then is not None and now is not None and now <= then else None
        return entry

    def kept_of(self, trials: list[Trial], limits: Limits) -> dict[str, TrialEntry]:
        """Return those of the cells that need not be run, by key."""
        found = {trial.key: self.kept(trial.key, limits) for trial in trials}
        return {key: entry for key, entry in found.items() if entry is not None}
