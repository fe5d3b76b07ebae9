"""The directory of one run: claimed, filled file by file, and only ever emptied of our files.

    RUN_DIR/
        pipeline.toml   the settings as they were understood, defaults included; runs again
        run.json        see `mscam_dask.pipeline.record`
        events.jsonl    one JSON record for each event, appended while the run goes on
        labels.csv      sample, cluster
        data.zarr/      what was clustered, unless the pipeline named a store
        result.zarr/    see `mscam_dask.data.results`

Every file but events.jsonl is written aside, synced and renamed, so it is whole or not there.
"""

from __future__ import annotations

import os
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

from mscam_dask.data.store_writer import full_disk_is_temporary
from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.pipeline.record import RunRecord, decode_record, encode_record

__all__ = ["RunDirectory"]

_RECORD = "run.json"
_OWN = ("pipeline.toml", "events.jsonl", "labels.csv", "data.zarr", "result.zarr")


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
    def data(self) -> Path:
        """Store of the data."""
        return self.path / "data.zarr"

    @property
    def result(self) -> Path:
        """Store of the result."""
        return self.path / "result.zarr"

    @classmethod
    def claim(cls, path: str | Path, record: RunRecord, *, overwrite: bool) -> RunDirectory:
        """Take a directory for a run that starts now: make it, or empty a finished run's.

        Parameters
        ----------
        path
            Missing, empty, or (with `overwrite`) the directory of a run that has ended.
        record
            The run's first record, written before anything else is touched.
        overwrite
            Whether files of an ended run may be removed; files that no run writes stay.

        Raises
        ------
        ConfigurationError
            When something else is there, or a run that has not ended.
        """
        root = Path(path).absolute()
        directory = cls(root)
        if root.exists() and not root.is_dir():
            raise ConfigurationError(f"{root} is a file; the output of a run is a directory.")
        occupied = root.is_dir() and any(root.iterdir())
        if occupied:
            directory._check_replaceable(overwrite=overwrite)
        with full_disk_is_temporary(root):
            root.mkdir(parents=True, exist_ok=True)
            directory.write_record(record)
            if occupied:
                directory._remove_own()
        return directory

    def _check_replaceable(self, *, overwrite: bool) -> None:
        if not self.record.is_file():
            raise ConfigurationError(
                f"{self.path} is not empty and no run directory (it has no {_RECORD}); it is never "
                "touched. Choose another output directory."
            )
        try:
            earlier = self.read_record()
        except DataError as error:
            raise ConfigurationError(
                f"{self.path} holds no run that can be replaced: {error} Choose another output "
                "directory."
            ) from error
        if earlier.state == "running":
            raise ConfigurationError(
                f"{self.path} holds a run that has not ended: it is still running, or was killed. "
                "Choose another output directory, or remove this one if nothing writes to it."
            )
        if not overwrite:
            raise ConfigurationError(
                f"{self.path} holds a run that {earlier.state} at {earlier.ended}. Choose another "
                "output directory, or say --overwrite to replace it."
            )

    def _remove_own(self) -> None:
        for name in _OWN:
            item = self.path / name
            if item.is_dir() and not item.is_symlink():
                shutil.rmtree(item)
            else:
                item.unlink(missing_ok=True)

    def write(self, file: Path, content: bytes) -> None:
        """Write one file of the directory aside, sync it and give it its name."""
        partial = file.with_name(f".{file.name}.{uuid.uuid4().hex[:8]}.partial")
        try:
            with full_disk_is_temporary(file):
                with partial.open("wb") as stream:
                    stream.write(content)
                    stream.flush()
                    os.fsync(stream.fileno())
                partial.replace(file)
        finally:
            partial.unlink(missing_ok=True)

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
                f"{self.path} is no run directory: {_RECORD} cannot be read ({error.strerror})."
            ) from error
        return decode_record(content, str(self.record))
