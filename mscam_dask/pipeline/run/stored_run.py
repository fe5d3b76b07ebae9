"""A run as its directory holds it, and the runs of a root: whatever reads a run reads it here."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mscam_dask.data.results import read_model, read_result
from mscam_dask.data.store.filesystem import MAX_BYTES, read_regular
from mscam_dask.data.store.object_store import Location, as_location
from mscam_dask.errors import ConfigurationError, DataError, StoreCorruptError
from mscam_dask.monitor.run_record import DataRecord, FitRecord, RunRecord
from mscam_dask.pipeline.config.settings import Settings
from mscam_dask.pipeline.run.lock import is_locked
from mscam_dask.pipeline.run.run_directory import NEXT_SUFFIX, RunDirectory, resolved
from mscam_dask.pipeline.run.sample_tables import read_clusters

_MAX_ROW_BYTES = 2**13


@dataclass(frozen=True)
class StoredRun:
    """A run directory and the content of its run.json."""

    directory: RunDirectory
    record: RunRecord

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read the record of a run directory, or of the one that a link leads to."""
        place = os.fspath(path)
        if "://" in place:
            raise ConfigurationError(
                f"{place} is a URL, but a run directory is on a file system. Copy it to a directory first."
            )
        directory = RunDirectory(resolved(place))
        return cls(directory, directory.read_record())

    @property
    def name(self) -> str:
        """Name of the run directory."""
        return self.directory.path.name

    @cached_property
    def state(self) -> str:
        """State that run.json records, but "interrupted" if no process is running the run."""
        is_cut_off = self.record.state == "running" and not is_locked(self.directory.path)
        return "interrupted" if is_cut_off else self.record.state

    @property
    def data(self) -> DataRecord:
        """Record of the clustered data, which a finished run has."""
        assert self.record.data is not None
        return self.record.data

    @property
    def fit(self) -> FitRecord:
        """Record of the fit, which a finished run has."""
        assert self.record.fit is not None
        return self.record.fit

    @property
    def store(self) -> Location:
        """Store of the clustered data."""
        place = as_location(self.data.store)
        return self.directory.path / place if isinstance(place, Path) else place

    @property
    def has_results(self) -> bool:
        """Whether the run has finished."""
        return self.record.state == "finished" and None not in (self.record.data, self.record.fit)

    def finished(self) -> Self:
        """Return the run; refuse one that has not finished."""
        if self.has_results:
            return self
        error = self.record.error
        cause = "" if error is None else f" ({error.message})"
        raise DataError(
            f"{self.directory.path} holds a run that has not finished: its state is {self.state!r}{cause}. "
            f"{self.to_finish}"
        )

    @property
    def to_finish(self) -> str:
        """Remedy for a run that has not finished."""
        if self.state == "running":
            return "Wait until it ends."
        return f"Continue it with mscam-dask resume {self.directory.path}."

    def labels(self) -> pd.Series[int]:
        """Return the clusters of labels.csv, by sample."""
        names, labels = self.clusters(self.directory.labels)
        return pd.Series(labels[:, 0], index=names)

    def clusters(self, file: Path) -> tuple[list[str], NDArray[np.int64]]:
        """Return the samples of a table and its columns of clusters, (n, k)."""
        try:
            return read_clusters(self.content(file))
        except ValueError as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{file} is not a list of samples and clusters: {error}.") from error

    def content(self, file: Path) -> bytes:
        """Return the content of a file, which for a table of samples is as the run wrote it."""
        limit = MAX_BYTES + _MAX_ROW_BYTES * self.data.n_samples
        try:
            content = read_regular(file, max_bytes=limit)
        except OSError as error:
            raise DataError(f"{file} cannot be read: {error}.") from error
        written = {**self.record.files_sha256, "labels.csv": self.record.labels_sha256}
        if written.get(file.name) not in (None, hashlib.sha256(content).hexdigest()):
            raise DataError(
                f"{file} has changed since the run wrote it (another SHA-256). Resume the run, which "
                "writes it again."
            )
        return content

    def integrity_problem(self) -> str:
        """Return how the results are damaged, or an empty text if they are intact."""
        files = (self.directory.labels, self.directory.result, self.directory.samples)
        missing = [file.name for file in files if not file.exists()]
        if missing:
            return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
        try:
            for name in self.record.files_sha256:
                if (self.directory.path / name).exists():
                    self.content(self.directory.path / name)
            labels = self.labels().to_numpy()
            result = read_result(self.directory.result)
            read_model(self.directory.result)
        except DataError as error:
            return str(error).partition(". ")[0].removesuffix(".")
        if not np.array_equal(labels, result.labels):
            return f"{files[0].name} does not have the clusters of {files[1].name}"
        return ""


def last_started(directory: RunDirectory, fingerprint: str | None = None) -> StoredRun | None:
    """Return the run that was started last, with the fingerprint if given; an unfinished one that is to replace another comes first."""
    following = directory.next()
    for place in (directory,) if following is None else (following, directory):
        with suppress(DataError):
            run = StoredRun(place, place.read_record())
            is_replaced_next = place is following and run.record.state == "finished"
            if fingerprint in (None, run.record.run_fingerprint) and not is_replaced_next:
                return run
    return None


def scan(paths: Iterable[Path]) -> Iterator[tuple[RunDirectory, StoredRun | DataError]]:
    """Yield the run directories among paths, by name, each with its run or why it cannot be read."""
    for path in sorted(paths):
        directory = RunDirectory(path.absolute())
        if os.path.lexists(directory.record):
            try:
                yield directory, StoredRun(directory, directory.read_record())
            except DataError as error:
                yield directory, error


@dataclass(frozen=True)
class Siblings:
    """Other runs of the same pipeline in the root of a run directory."""

    finished: list[StoredRun]  # the last one first, by their numbers, whatever the clock says
    next_number: int  # of a run that finishes now
    notes: tuple[str, ...]  # on runs that are passed over as damaged


def siblings_of(settings: Settings, directory: RunDirectory) -> Siblings:
    """Read the other runs of the pipeline in the root of a run directory."""
    root, pattern = settings.output.root, f"{glob.escape(settings.name)}-*"
    paths = Path(root).resolve().glob(pattern) if root else ()  # as the directory: links followed
    others = [
        run
        for place, run in scan(paths)
        if place.path not in (directory.path, directory.place)
        and not place.path.name.endswith(NEXT_SUFFIX)
    ]
    runs = [
        run for run in others if isinstance(run, StoredRun) and run.record.pipeline == settings.name
    ]
    numbers = [run.record.number for run in runs]
    with suppress(DataError):
        numbers.append(RunDirectory(directory.place).read_record().number)
    finished = [run for run in runs if run.has_results]
    finished.sort(
        key=lambda run: (run.record.number, run.record.ended or "", run.name), reverse=True
    )
    damaged = [run for run in others if isinstance(run, StoreCorruptError)]
    notes = tuple(f"A previous run is passed over: {error}" for error in damaged)
    return Siblings(finished, max(numbers, default=0) + 1, notes)


def flat(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested tables by dotted keys."""
    found: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found
