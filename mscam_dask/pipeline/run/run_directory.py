"""The directory of one run: claimed, filled file by file, and only ever emptied of our files.

    RUN_DIR/
        pipeline.toml   the settings as they were understood, defaults included; runs again
        run.json        see `mscam_dask.pipeline.run.run_record`
        events.jsonl    one JSON record for each event, appended while the run goes on
        labels.csv      sample, cluster
        moved.csv       sample, cluster before, cluster now; of a run that had one before it
        data.zarr/      what was clustered, unless the pipeline named a store
        checkpoints/    see `mscam_dask.data.checkpoints`; removed when the run has finished
        result.zarr/    see `mscam_dask.data.results`
        report.html     see `mscam_dask.pipeline.run.report`
        .lock           see `mscam_dask.pipeline.run.lock`

Every file but events.jsonl is written aside, synced and renamed, so it is whole or not there.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from mscam_dask.data.store.filesystem import full_disk_is_temporary
from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.pipeline.run.directories import hold_directory, write_whole
from mscam_dask.pipeline.run.lock import LOCK_NAME
from mscam_dask.pipeline.run.run_record import RunRecord, decode_record, encode_record

__all__ = ["RunDirectory"]

_RECORD = "run.json"
_PARTIAL = re.compile(r"\.[a-z]+\.[a-z]+\.[0-9a-f]{8}\.(partial|old)")
_OWN = (
    "pipeline.toml",
    "events.jsonl",
    "labels.csv",
    "moved.csv",
    "report.html",
    "data.zarr",
    "result.zarr",
    "checkpoints",
)


@dataclass(frozen=True)
class RunDirectory:
    """Paths inside a run directory, and how its files are written.

    Attributes
    ----------
    path
        Absolute.
    """

    path: Path

    @property
    def pipeline(self) -> Path:
        """Copy of the settings."""
        return self.path / "pipeline.toml"

    @property
    def record(self) -> Path:
        """The record of the run."""
        return self.path / _RECORD

    @property
    def events(self) -> Path:
        """Events, one JSON record a line."""
        return self.path / "events.jsonl"

    @property
    def labels(self) -> Path:
        """Clusters as text."""
        return self.path / "labels.csv"

    @property
    def moved(self) -> Path:
        """Samples that changed cluster since the run before."""
        return self.path / "moved.csv"

    @property
    def data(self) -> Path:
        """Store of the data."""
        return self.path / "data.zarr"

    @property
    def checkpoints(self) -> Path:
        """States of the clustering; see `mscam_dask.data.checkpoints`."""
        return self.path / "checkpoints"

    @property
    def result(self) -> Path:
        """Store of the result."""
        return self.path / "result.zarr"

    @property
    def report(self) -> Path:
        """The report."""
        return self.path / "report.html"

    @classmethod
    @contextmanager
    def hold(cls, path: str | Path) -> Iterator[RunDirectory]:
        """Make a directory, or take one that a run made, and keep other drivers out of it.

        Parameters
        ----------
        path
            Missing, empty, or of a run.

        Raises
        ------
        ConfigurationError
            When something else is there; nothing in it is touched.
        TemporaryFailure
            When another driver holds it, or the disk is full.
        """
        directory = cls(Path(path).absolute())
        with hold_directory(directory.path, record=_RECORD, kind="a run"):
            yield directory

    def claim(self, record: RunRecord, *, overwrite: bool) -> None:
        """Start a run here: the files of an earlier one are removed. Held by the caller.

        Parameters
        ----------
        record
            The run's first record, written before anything else is touched.
        overwrite
            Whether files of an earlier run may be removed; files that no run writes stay.

        Raises
        ------
        ConfigurationError
            When an earlier run is there and may not be replaced.
        """
        occupied = self.record.exists()
        if occupied:
            self._check_replaceable(overwrite=overwrite)
        self.write_record(record)
        self.sweep()
        if occupied:
            self._remove_own()

    def _check_replaceable(self, *, overwrite: bool) -> None:
        try:
            earlier = self.read_record()
        except DataError as error:
            raise ConfigurationError(
                f"{self.path} holds no run that can be replaced: {error} Choose another output "
                "directory."
            ) from error
        if overwrite:
            return
        if earlier.state == "finished":
            raise ConfigurationError(
                f"{self.path} holds a run that finished at {earlier.ended}. Choose another "
                "output directory, or say --overwrite to replace it."
            )
        how = "was killed" if earlier.state == "running" else f"{earlier.state} at {earlier.ended}"
        raise ConfigurationError(
            f"{self.path} holds a run that {how}. Continue it with mscam-dask resume, choose "
            "another output directory, or say --overwrite to replace it."
        )

    def sweep(self) -> None:
        """Remove what a killed run was still writing; its names are in no finished run."""
        for item in self.path.iterdir():
            if _PARTIAL.fullmatch(item.name):
                _remove(item)

    def _remove_own(self) -> None:
        for name in _OWN:
            _remove(self.path / name)

    def holds_only_own(self) -> bool:
        """Whether everything in it was written by runs."""
        own = (*_OWN, _RECORD, LOCK_NAME)
        return all(
            item.name in own or _PARTIAL.fullmatch(item.name) for item in self.path.iterdir()
        )

    def remove(self, item: Path) -> None:
        """Remove one file or tree of the directory, if it is there."""
        assert item.parent == self.path
        _remove(item)

    @contextmanager
    def append_events(self) -> Iterator[IO[bytes]]:
        """Open events.jsonl to go on with; a line that a kill cut short is taken out."""
        with full_disk_is_temporary(self.events), self.events.open("a+b") as stream:
            stream.seek(0)
            whole = stream.read().rfind(b"\n") + 1
            stream.truncate(whole)
            yield stream

    def write(self, file: Path, content: bytes) -> None:
        """Write one file of the directory aside, sync it and give it its name."""
        write_whole(file, content)

    def write_record(self, record: RunRecord) -> None:
        """Write run.json."""
        self.write(self.record, encode_record(record))

    def read_record(self) -> RunRecord:
        """Read run.json.

        Raises
        ------
        DataError
            When it is missing, or no record of a run.
        """
        try:
            content = self.record.read_bytes()
        except OSError as error:
            raise DataError(
                f"{self.path} is no run directory: {_RECORD} cannot be read ({error.strerror}). Give "
                "the directory that mscam-dask run, compare or sweep wrote."
            ) from error
        return decode_record(content, str(self.record))


def _remove(item: Path) -> None:
    """Remove a file, a tree, or a link and not what it points to."""
    if item.is_dir() and not item.is_symlink():
        shutil.rmtree(item)
    else:
        item.unlink(missing_ok=True)
