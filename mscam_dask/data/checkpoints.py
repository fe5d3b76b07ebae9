"""Checkpoints of a fit: written atomically, verified by checksums, the last two kept (docs/checkpoints.md).

A checkpoint is written under a unique name, read back, and on the disk before current.json is
replaced in one step. That of a killed writer was never current and has no checksum: it is skipped,
and removed with the next one.
"""

from __future__ import annotations

import os
import re
import shutil
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
    read_metadata,
    usable_attributes,
    verify_arrays,
    write_checksums,
)
from mscam_dask.data.store.atomic_replace import POINTER, Pointer
from mscam_dask.data.store.filesystem import (
    LOCAL,
    check_tree,
    failures_are_typed,
    make_directory,
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

_NAME = r"[0-9]{8}-[0-9a-f]{8}"
_RECORD = "record"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """State from which a fit can be resumed: arrays or ArrayPieces by name, and values that JSON can hold."""

    arrays: Mapping[str, Any]
    record: Mapping[str, Any]


class FileCheckpointStore:
    """Store of one fit's checkpoints in a directory or an object store; `damage` lists those that `load` skipped.

    A second writer is detected by its current.json, and the writer that detects it stops. When both replace
    it between the same two requests, the checkpoint before is kept by both.

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
        self._own: set[Pointer | None] | None = None  # what current.json says if nobody else writes

    def save(self, snapshot: Checkpoint) -> None:
        """Save a checkpoint; it is on the disk or the object store when this returns."""
        remedy = "continue the run: what was saved before is untouched."
        with failures_are_typed(f"The checkpoint at {self.place}", remedy):
            before, kept = self._alone(), self._names()
            last = max(kept, default=None) if before is None else before.store
            number = 1 + max((int(name[:8]) for name in (*kept, *filter(None, [last]))), default=-1)
            name = f"{number:08d}-{uuid.uuid4().hex[:8]}"
            self._write(self.place / name, snapshot)
            pointer = Pointer.to(self.place, name)
            before = self._alone()
            self._own = {before, pointer}  # the answer to the next request may be lost
            pointer.write(self.place)
            self._own = {pointer}
            with suppress(TemporaryFailure):  # of objects: what stays is removed with the next one
                self._remove(kept - {last})

    def load(self) -> Checkpoint | None:
        """Return the newest complete checkpoint, None without any; `StoreCorruptError` if all are damaged."""
        problems: list[str] = []
        if isinstance(self.place, Path):
            check_tree(self.place)
        names = sorted(filter(self._is_finished, self._names()), reverse=True)
        pointer: Pointer | None = None
        try:
            pointer = Pointer.read(self.place, _NAME)
            if pointer is not None:
                names = [pointer.store, *(name for name in names if name != pointer.store)]
                pointer.check(self.place)
            elif names:
                problems.append(f"{self.place / POINTER} is missing.")
        except FileNotFoundError:
            problems.append(f"{self.place / names.pop(0) / METADATA} is missing.")
        except StoreCorruptError as error:
            problems.append(_damage(error))
        self._own = {pointer}
        for name in names:
            try:
                snapshot = _read(self.place / name)
            except StoreCorruptError as error:
                problems.append(_damage(error))
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
        """Remove every checkpoint, current.json first, and an empty directory."""
        with failures_are_typed(f"The checkpoints at {self.place}", "run the command again."):
            names = self._names()
            self._remove([POINTER])
            self._remove(f"{name}/{METADATA}" for name in names)
            self._own = None
            self._remove(names)
            if isinstance(self.place, Path):
                with suppress(OSError):
                    self.place.rmdir()

    def _alone(self) -> Pointer | None:
        """Return current.json, None where it is damaged, if no other writer has replaced it."""
        pointer = None
        with suppress(StoreCorruptError):
            pointer = Pointer.read(self.place, _NAME)
        if self._own is None:
            self._own = {pointer}
        elif pointer not in self._own:
            raise TemporaryFailure(
                f"Another driver saves checkpoints at {self.place}, so this one stops. Let the "
                "other one finish, or stop it and run the same command again."
            )
        return pointer

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
        return file.is_file() and f'"{CHECKSUM}"'.encode() in read_metadata(file)

    def _write(self, place: Location, snapshot: Checkpoint) -> None:
        """Write a checkpoint, read it back, and wait until it is on the disk."""
        if isinstance(place, Path):
            make_directory(place)
        with translate_errors(place):
            group = new_group(place)
            group.attrs.put({**_FORMAT.marks, "arrays": list(snapshot.arrays)})
            put_json(group, _RECORD, snapshot.record)
            for name, values in snapshot.arrays.items():
                put_array(group, f"arrays/{name}", values)
            if isinstance(place, Path):
                sync_tree(place)  # before the checksum, which says that the rest is there
            write_checksums(group, place)
        verify_arrays(place, _FORMAT.attributes(place))
        if isinstance(place, Path):
            LOCAL.sync(place / METADATA)
            LOCAL.sync(place)

    def _remove(self, names: Iterable[str]) -> None:
        """Remove files, and directories or prefixes with everything below them, that may be there."""
        for place in [self.place / name for name in names]:
            if not isinstance(place, Path):
                place.remove(list(place.sizes()))
            elif place.is_dir():
                shutil.rmtree(place)
            else:
                place.unlink(missing_ok=True)


def _read(place: Location) -> Checkpoint:
    attributes = _FORMAT.attributes(place)
    with usable_attributes(place):
        arrays = {name: get_array(place, f"arrays/{name}") for name in attributes["arrays"]}
        return Checkpoint(arrays, get_json(place, _RECORD))


def _damage(error: StoreCorruptError) -> str:
    """Return what is damaged, without the remedy for a store."""
    return str(error).removesuffix(f" {REMEDY}")
