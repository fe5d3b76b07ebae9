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
    get_array,
    get_json,
    new_group,
    put_array,
    put_json,
    verify_array,
)
from mscam_dask.data.store.atomic_replace import POINTER, Pointer
from mscam_dask.data.store.filesystem import (
    LOCAL,
    check_tree,
    failures_are_typed,
    make_directory,
    sync_tree,
)
from mscam_dask.data.store.object_store import Location, translate_errors
from mscam_dask.data.store.schema import (
    CHECKSUM,
    METADATA,
    REMEDY,
    checked_attributes,
    read_metadata,
    usable_attributes,
    write_checksums,
)
from mscam_dask.errors import StoreCorruptError, TemporaryFailure

FORMAT = "mscam_dask.checkpoint"
FORMAT_VERSION = 3

_NAME = r"[0-9]{8}-[0-9a-f]{8}"
_RECORD = "record"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """State from which a fit can be resumed: arrays or ArrayPieces by name, and values that JSON can hold."""

    arrays: Mapping[str, Any]
    record: Mapping[str, Any]


class ObjectCheckpointStore:
    """Store of one fit's checkpoints below `prefix`; `damage` lists the damaged ones that `load` skipped.

    A second writer is detected by its current.json, and the writer that detects it stops. When both replace
    it between the same two requests, the checkpoint before is kept by both.
    """

    def __init__(self, prefix: Location) -> None:
        self.prefix = prefix
        self.damage: tuple[str, ...] = ()
        self._own: set[Pointer | None] | None = None  # what current.json says if nobody else writes

    def save(self, snapshot: Checkpoint) -> None:
        """Save a checkpoint; it is on the disk or the object store when this returns."""
        remedy = "continue the run: what was saved before is untouched."
        with failures_are_typed(f"The checkpoint at {self.prefix}", remedy):
            before, kept = self._alone(), self._names()
            last = max(kept, default=None) if before is None else before.store
            number = 1 + max((int(name[:8]) for name in (*kept, *filter(None, [last]))), default=-1)
            name = f"{number:08d}-{uuid.uuid4().hex[:8]}"
            self._write(self.prefix / name, snapshot)
            pointer = Pointer.to(self.prefix, name)
            before = self._alone()
            self._own = {before, pointer}  # the answer to the next request may be lost
            pointer.write(self.prefix)
            self._own = {pointer}
            with suppress(TemporaryFailure):  # of objects: what stays is removed with the next one
                self._remove(kept - {last})

    def load(self) -> Checkpoint | None:
        """Return the newest complete checkpoint, None without any; `StoreCorruptError` if all are damaged."""
        problems: list[str] = []
        if isinstance(self.prefix, Path):
            check_tree(self.prefix)
        names = sorted(filter(self._is_finished, self._names()), reverse=True)
        pointer: Pointer | None = None
        try:
            pointer = Pointer.read(self.prefix, _NAME)
            if pointer is not None:
                names = [pointer.store, *(name for name in names if name != pointer.store)]
                pointer.check(self.prefix)
            elif names:
                problems.append(f"{self.prefix / POINTER} is missing.")
        except FileNotFoundError:
            problems.append(f"{self.prefix / names.pop(0) / METADATA} is missing.")
        except StoreCorruptError as error:
            problems.append(_damage(error))
        self._own = {pointer}
        for name in names:
            try:
                snapshot = _read(self.prefix / name)
            except StoreCorruptError as error:
                problems.append(_damage(error))
                continue
            self.damage = tuple(problems)
            return snapshot
        if problems:
            raise StoreCorruptError(
                f"{' '.join(problems)} No earlier checkpoint is complete. Remove {self.prefix} to start the "
                "clustering from the beginning."
            )
        self.damage = ()
        return None

    def clear(self) -> None:
        """Remove every checkpoint, current.json first, and an empty directory."""
        with failures_are_typed(f"The checkpoints at {self.prefix}", "run the command again."):
            names = self._names()
            self._remove([POINTER])
            self._remove(f"{name}/{METADATA}" for name in names)
            self._own = None
            self._remove(names)
            if isinstance(self.prefix, Path):
                with suppress(OSError):
                    self.prefix.rmdir()

    def _alone(self) -> Pointer | None:
        """Return current.json, None where it is damaged, if no other writer has replaced it."""
        pointer = None
        with suppress(StoreCorruptError):
            pointer = Pointer.read(self.prefix, _NAME)
        if self._own is None:
            self._own = {pointer}
        elif pointer not in self._own:
            raise TemporaryFailure(
                f"Another driver saves checkpoints at {self.prefix}, so this one stops. Let the "
                "other one finish, or stop it and run the same command again."
            )
        return pointer

    def _names(self) -> set[str]:
        """Names of the checkpoints, finished or not."""
        if isinstance(self.prefix, Path):
            found = {path.name for path in self.prefix.iterdir()} if self.prefix.is_dir() else set()
        else:
            below = len(str(self.prefix)) + 1
            found = {str(file)[below:].partition("/")[0] for file in self.prefix.sizes()}
        return {name for name in found if re.fullmatch(_NAME, name)}

    def _is_finished(self, name: str) -> bool:
        file = self.prefix / name / METADATA
        return file.is_file() and f'"{CHECKSUM}"'.encode() in read_metadata(file)

    def _write(self, place: Location, snapshot: Checkpoint) -> None:
        """Write a checkpoint, read it back, and wait until it is on the disk."""
        if isinstance(place, Path):
            make_directory(place)
        with translate_errors(place):
            group = new_group(place)
            group.attrs.put(
                {
                    "format": FORMAT,
                    "format_version": FORMAT_VERSION,
                    "arrays": list(snapshot.arrays),
                }
            )
            put_json(group, _RECORD, snapshot.record)
            for name, values in snapshot.arrays.items():
                put_array(group, f"arrays/{name}", values)
            if isinstance(place, Path):
                sync_tree(place)  # before the checksum, which says that the rest is there
            write_checksums(group, place)
        _attributes(place)
        for key in (_RECORD, *(f"arrays/{name}" for name in snapshot.arrays)):
            verify_array(place, key)
        if isinstance(place, Path):
            LOCAL.sync(place / METADATA)
            LOCAL.sync(place)

    def _remove(self, names: Iterable[str]) -> None:
        """Remove files, and directories or prefixes with everything below them, that may be there."""
        for place in [self.prefix / name for name in names]:
            if not isinstance(place, Path):
                place.remove(list(place.sizes()))
            elif place.is_dir():
                shutil.rmtree(place)
            else:
                place.unlink(missing_ok=True)


class FileCheckpointStore(ObjectCheckpointStore):
    """Store of one fit's checkpoints in a directory; see `ObjectCheckpointStore`.

    Parameters
    ----------
    directory
        Created when the first checkpoint is saved. The caller ensures that one process at a time
        writes to it.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(os.path.realpath(directory))
        super().__init__(self.directory)


def _attributes(place: Location) -> Mapping[str, Any]:
    return checked_attributes(
        place,
        FORMAT,
        FORMAT_VERSION,
        other="Give the place of the checkpoints of a fit.",
        again="remove the checkpoints to start the clustering from the beginning",
    )


def _read(place: Location) -> Checkpoint:
    attributes = _attributes(place)
    with usable_attributes(place):
        arrays = {name: get_array(place, f"arrays/{name}") for name in attributes["arrays"]}
        return Checkpoint(arrays, get_json(place, _RECORD))


def _damage(error: StoreCorruptError) -> str:
    """Return what is damaged, without the remedy for a store."""
    return str(error).removesuffix(f" {REMEDY}")
