"""Checkpoints of a fit: written atomically, verified by checksums, the last two kept (docs/checkpoints.md).

On a disk a checkpoint is written under another name, read back and synced before it gets its own. In an
object store its checksum is written last. That of a killed writer is skipped, and removed with the next one.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mscam_dask.data.store.arrays import (
    CHECKSUM,
    METADATA,
    REMEDY,
    Format,
    get_array,
    get_json,
    new_group,
    put_array,
    put_json,
    usable_attributes,
    verify_arrays,
    write_checksums,
)
from mscam_dask.data.store.filesystem import (
    check_tree,
    failures_are_typed,
    make_directory,
    remove,
    rename_durably,
    sync_tree,
)
from mscam_dask.data.store.object_store import Location, as_location, translate_errors
from mscam_dask.errors import StoreCorruptError, TemporaryFailure

_FORMAT = Format(
    "mscam_dask.checkpoint",
    3,
    other="Give the place of the checkpoints of a fit.",
    again="remove the checkpoints to start the clustering from the beginning",
)

_PARTIAL = ".partial"
_NAME = rf"[0-9]{{8}}-[0-9a-f]{{8}}({_PARTIAL})?"
_RECORD = "record"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """State from which a fit can be resumed: arrays or ArrayPieces by name, and values that JSON can hold."""

    arrays: Mapping[str, Any]
    record: Mapping[str, Any]


class FileCheckpointStore:
    """Store of one fit's checkpoints in a directory or an object store; `damage` lists those that `load` skipped.

    A second writer is detected by the names of its checkpoints, and the writer that detects it stops.

    Parameters
    ----------
    place
        Path of a directory, which is made when the first checkpoint is saved, or a URL (s3://bucket/name). The
        caller ensures that one process at a time writes to a directory.
    """

    def __init__(self, place: str | Location) -> None:
        location = as_location(place)
        self.place = Path(os.path.realpath(location)) if isinstance(location, Path) else location
        self.damage: tuple[str, ...] = ()
        self._known: set[str] | None = None  # checkpoints that are there if nobody else writes

    def save(self, snapshot: Checkpoint) -> None:
        """Save a checkpoint; it is on the disk or the object store when this returns."""
        remedy = "continue the run: what was saved before is untouched."
        with failures_are_typed(f"The checkpoint at {self.place}", remedy):
            found = self._names()
            self._check_alone(found)
            last = max(filter(self._is_finished, found), default="")
            number = 1 + max((int(name[:8]) for name in found), default=-1)
            name = f"{number:08d}-{uuid.uuid4().hex[:8]}"
            self._known = {*found, name}
            self._write(name, snapshot)
            self._check_alone(self._names())
            with suppress(TemporaryFailure):  # of objects: what stays is removed with the next one
                self._remove(found - {last})

    def load(self) -> Checkpoint | None:
        """Return the newest complete checkpoint, None without any; `StoreCorruptError` if all are damaged."""
        problems: list[str] = []
        if isinstance(self.place, Path):
            check_tree(self.place)
        self._known = self._names()
        for name in sorted(filter(self._is_finished, self._known), reverse=True):
            place = self.place / name
            if not (place / METADATA).is_file():
                problems.append(f"{place / METADATA} is missing.")
                continue
            try:
                attributes = _FORMAT.attributes(place)
                with usable_attributes(place):
                    arrays = {
                        key: get_array(place, f"arrays/{key}") for key in attributes["arrays"]
                    }
                    snapshot = Checkpoint(arrays, get_json(place, _RECORD))
            except StoreCorruptError as error:
                problems.append(str(error).removesuffix(f" {REMEDY}"))
                continue
            self.damage = tuple(problems)
            return snapshot
        if problems:
            raise StoreCorruptError(
                f"{' '.join(problems)} No earlier checkpoint is complete. Remove {self.place} to start the "
                "clustering from the beginning."
            )
        self.damage = ()
        return None

    def clear(self) -> None:
        """Remove every checkpoint, and an empty directory."""
        with failures_are_typed(f"The checkpoints at {self.place}", "run the command again."):
            self._remove(self._names())
            self._known = None
            if isinstance(self.place, Path):
                with suppress(OSError):
                    self.place.rmdir()

    def _check_alone(self, found: set[str]) -> None:
        """Refuse to go on if another writer has saved a checkpoint since the last look."""
        known = found if self._known is None else self._known
        if any(name not in known and name.removesuffix(_PARTIAL) not in known for name in found):
            raise TemporaryFailure(
                f"Another driver saves checkpoints at {self.place}, so this one stops. Let the "
                "other one finish, or stop it and run the same command again."
            )

    def _names(self) -> set[str]:
        """Names of the checkpoints, finished or not."""
        if isinstance(self.place, Path):
            found = {path.name for path in self.place.iterdir()} if self.place.is_dir() else set()
        else:
            below = len(str(self.place)) + 1
            found = {str(file)[below:].partition("/")[0] for file in self.place.sizes()}
        return {name for name in found if re.fullmatch(_NAME, name)}

    def _is_finished(self, name: str) -> bool:
        file = self.place / name / METADATA
        if isinstance(file, Path):
            return not name.endswith(_PARTIAL)
        return file.is_file() and f'"{CHECKSUM}"'.encode() in file.read_bytes()

    def _write(self, name: str, snapshot: Checkpoint) -> None:
        """Write a checkpoint, read it back, and wait until it is on the disk."""
        place = self.place / name
        if isinstance(self.place, Path):
            make_directory(self.place)
            place = self.place / (name + _PARTIAL)
        with translate_errors(place):
            group = new_group(place)
            group.attrs.put({**_FORMAT.marks, "arrays": list(snapshot.arrays)})
            put_json(group, _RECORD, snapshot.record)
            for key, values in snapshot.arrays.items():
                put_array(group, f"arrays/{key}", values)
            write_checksums(group, place)
        verify_arrays(place, _FORMAT.attributes(place))
        if isinstance(place, Path):
            sync_tree(place)
            rename_durably(place, place.with_suffix(""))

    def _remove(self, names: Iterable[str]) -> None:
        """Remove checkpoints; one that is removed in part is no longer a finished one."""
        for place in [self.place / name for name in names]:
            if isinstance(place, Path):
                remove(place.rename(place.with_suffix(_PARTIAL)))
            else:
                files = sorted(place.sizes(), key=lambda file: file != place / METADATA)
                place.remove(files[:1])
                place.remove(files[1:])
