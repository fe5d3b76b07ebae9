"""Checkpoints of a fit: written atomically, verified by digests, the last two kept.

Layout, in a directory or below a prefix of an object store; the files of a checkpoint are
those of `mscam_dask.data.checkpoint_format`::

    checkpoints/
        CURRENT                 name of the newest checkpoint, digest of its manifest and of itself
        00000006-5c1f0a9e/      previous checkpoint
        00000007-b2d47c13/

An object store has no rename and no lock. A checkpoint is therefore written under a unique name, each
object is read back and compared, the manifest is written last, and then CURRENT is replaced in one step.
Objects of a killed writer have a name that CURRENT never had: they are skipped, and removed with the
next checkpoint.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Protocol

from mscam_dask.data.checkpoint_format import (
    MANIFEST,
    Checkpoint,
    Manifest,
    Pointer,
    entry_of,
    put_all,
    read_checkpoint,
)
from mscam_dask.data.store.filesystem import LOCAL, Files, failures_are_typed, rename_durably
from mscam_dask.data.store.object_store import Location, ObjectPath
from mscam_dask.data.store.schema import digest_of
from mscam_dask.errors import StoreCorruptError, TemporaryFailure

__all__ = [
    "CURRENT",
    "Checkpoint",
    "DirectoryObjects",
    "FileCheckpointStore",
    "ObjectCheckpointStore",
    "Objects",
    "RemoteObjects",
]

CURRENT = "CURRENT"
"""Name of the pointer."""

_NAME = re.compile(r"([0-9]{8})-[0-9a-f]{8}")
_REMEDY = "continue the run: what was saved before is untouched."


class Objects(Protocol):
    """Objects below one prefix, by name; every operation raises OSError when it cannot be done."""

    def put(self, name: str, content: bytes) -> None:
        """Write or replace an object: readers see the old content or the new one."""
        ...

    def get(self, name: str) -> bytes:
        """Content of an object; FileNotFoundError when there is none."""
        ...

    def names(self) -> list[str]:
        """Names of all objects below the prefix."""
        ...

    def remove(self, names: list[str]) -> None:
        """Remove objects; some of them may be gone when this fails."""
        ...


class RemoteObjects:
    """Objects of a store that is reached through fsspec; see `Objects`."""

    def __init__(self, prefix: ObjectPath) -> None:
        self._prefix = prefix

    def put(self, name: str, content: bytes) -> None:
        """See `Objects.put`."""
        (self._prefix / name).write_bytes(content)

    def get(self, name: str) -> bytes:
        """See `Objects.get`."""
        return (self._prefix / name).read_bytes()

    def names(self) -> list[str]:
        """See `Objects.names`."""
        below = len(str(self._prefix)) + 1
        return [str(file)[below:] for file in self._prefix.sizes() if file != self._prefix]

    def remove(self, names: list[str]) -> None:
        """See `Objects.remove`."""
        self._prefix.remove([self._prefix / name for name in names])


class DirectoryObjects:
    """Files below a directory as objects, whose names are paths with forward slashes; see `Objects`.

    A file is written under another name, synced and renamed. Directories are synced before a file at
    the top is replaced, which is CURRENT. `names` has an empty directory with a slash at its end.
    """

    def __init__(self, root: Path, files: Files) -> None:
        self._root = root
        self._files = files
        self._unsynced: set[Path] = set()

    def put(self, name: str, content: bytes) -> None:
        """See `Objects.put`."""
        file = self._root / PurePosixPath(name)
        self._make_directory(file.parent)
        partial = file.with_name(f".{file.name}.partial")
        self._files.write(partial, content)
        self._files.sync(partial)
        if file.parent == self._root:
            for directory in sorted(self._unsynced, reverse=True):  # the innermost first
                self._files.sync(directory)
            self._unsynced.clear()
            rename_durably(self._files, partial, file)
        else:
            self._files.rename(partial, file)
            self._unsynced.add(file.parent)

    def get(self, name: str) -> bytes:
        """See `Objects.get`."""
        try:
            return self._files.read(self._root / PurePosixPath(name))
        except (NotADirectoryError, IsADirectoryError) as error:
            raise FileNotFoundError(name) from error

    def names(self) -> list[str]:
        """See `Objects.names`."""
        return list(self._below(self._root, ""))

    def remove(self, names: list[str]) -> None:
        """See `Objects.remove`; directories that become empty are removed too."""
        directories: set[Path] = set()
        for name in names:
            path = self._root / PurePosixPath(name)
            if not name.endswith("/"):
                self._files.unlink(path)
            inside = [path, *path.parents] if name.endswith("/") else path.parents
            directories.update(each for each in inside if each.is_relative_to(self._root))
        for directory in sorted(directories, reverse=True):
            if not self._files.names(directory):
                self._files.rmdir(directory)
                self._unsynced.discard(directory)

    def _below(self, directory: Path, prefix: str) -> Iterator[str]:
        names = self._files.names(directory)
        if prefix and not names:
            yield prefix
        for name in names:
            if self._files.is_directory(directory / name):
                yield from self._below(directory / name, f"{prefix}{name}/")
            else:
                yield f"{prefix}{name}"

    def _make_directory(self, directory: Path) -> None:
        if self._files.is_directory(directory):
            return
        self._make_directory(directory.parent)
        self._files.mkdir(directory)
        if directory.is_relative_to(self._root) and directory != self._root:
            self._unsynced |= {directory, directory.parent}
        else:
            self._files.sync(directory.parent)


class ObjectCheckpointStore:
    """Store of one fit's checkpoints below a prefix; a `mscam_dask.engine.checkpoint.CheckpointStore`.

    Parameters
    ----------
    prefix
        Used by one fit only.
    objects
        Access to the objects; by default through fsspec.

    Attributes
    ----------
    damage : tuple of str
        Damaged checkpoints that `load` skipped for an earlier one.

    Notes
    -----
    Two requests for each of about twenty objects, one listing and a removal for each checkpoint.
    Memory: the encoded bytes of one array at a time beside the state itself.

    A second writer is detected by its CURRENT, and the writer that detects it stops. When both replace
    CURRENT between the same two requests, the checkpoint before is kept by both.
    """

    def __init__(self, prefix: Location, *, objects: Objects | None = None) -> None:
        self.prefix = prefix
        self.damage: tuple[str, ...] = ()
        if objects is None:
            assert isinstance(prefix, ObjectPath)
            objects = RemoteObjects(prefix)
        self._objects = objects
        self._own: set[bytes | None] | None = None  # what CURRENT can be when nobody else writes

    def save(self, snapshot: Checkpoint) -> None:
        """Save a checkpoint; it is on the object store when this returns.

        Raises
        ------
        TemporaryFailure
            When the store cannot be reached, or another driver saves below the same prefix; the
            states before are untouched.
        ConfigurationError
            When the credentials do not allow it.
        """
        with failures_are_typed(f"The checkpoint at {self.prefix}", _REMEDY):
            before = self._alone()
            kept = self._checkpoints()
            last = self._named(before)
            numbers = [_number(name) for name in kept] + ([] if last is None else [_number(last)])
            name = f"{max(numbers, default=-1) + 1:08d}-{uuid.uuid4().hex[:8]}"
            pointer = Pointer(name, self._write(name, snapshot)).encode()
            before = self._alone()
            self._own = {before, pointer}  # the answer to the next request may be lost
            self._objects.put(CURRENT, pointer)
            self._own = {pointer}
            if last is None:
                last = self._newest_whole(kept)
            self._remove_old(kept.keys() - {name, last}, kept)

    def load(self) -> Checkpoint | None:
        """Return the newest complete checkpoint; `damage` lists the ones that were skipped.

        Raises
        ------
        StoreCorruptError
            When there are checkpoints and every one is damaged; names the objects.
        ConfigurationError, TemporaryFailure
            When the store cannot be read; see `mscam_dask.data.store.object_store.translate_errors`.
        """
        content = self._get(CURRENT)
        self._own = {content}
        current = self._named(content)
        kept = self._checkpoints()
        problems = self._problems(content, current, kept)
        tried = [
            name
            for name in _newest_first(kept, current)
            if MANIFEST in kept[name] or name == current  # the others were never finished
        ]
        snapshot, self.damage = _first_whole(tried, self._read, problems, where=self.prefix)
        return snapshot

    def clear(self) -> None:
        """Remove every checkpoint, CURRENT first: after an interruption there is none to resume from."""
        kept = self._checkpoints()
        if self._get(CURRENT) is not None:
            self._objects.remove([CURRENT])
        self._own = None
        manifests = [f"{name}/{MANIFEST}" for name in kept if MANIFEST in kept[name]]
        if manifests:
            self._objects.remove(manifests)
        self._remove(kept, {name: files - {MANIFEST} for name, files in kept.items()})

    def _get(self, name: str) -> bytes | None:
        try:
            return self._objects.get(name)
        except FileNotFoundError:
            return None

    def _content(self, name: str, path: str) -> bytes | None:
        return self._get(f"{name}/{path}")

    def _read(self, name: str) -> Checkpoint:
        return read_checkpoint(self.prefix / name, partial(self._content, name))

    def _alone(self) -> bytes | None:
        """Return the content of CURRENT, if no other writer has replaced it.

        Raises
        ------
        TemporaryFailure
        """
        content = self._get(CURRENT)
        if self._own is None:
            self._own = {content}
        elif content not in self._own:
            raise TemporaryFailure(
                f"Another driver saves checkpoints at {self.prefix}, so this one stops. Let the "
                "other one finish, or stop it and run the same command again."
            )
        return content

    def _checkpoints(self) -> dict[str, set[str]]:
        """Paths of the objects inside each checkpoint, finished or not, by its name."""
        found: dict[str, set[str]] = {}
        for whole in self._objects.names():
            name, slash, path = whole.partition("/")
            if slash and _NAME.fullmatch(name):
                found.setdefault(name, set()).add(path)
        return found

    def _named(self, content: bytes | None) -> str | None:
        """Name of the checkpoint in CURRENT; None if CURRENT is missing or damaged."""
        try:
            name = Pointer.decode(content or b"").name
        except ValueError:
            return None
        return name if _NAME.fullmatch(name) else None

    def _problems(
        self, content: bytes | None, current: str | None, kept: dict[str, set[str]]
    ) -> list[str]:
        """Problems with CURRENT, or with the manifest it names."""
        file = self.prefix / CURRENT
        if content is None:
            finished = [name for name in kept if MANIFEST in kept[name]]
            return [f"{file} is missing."] if finished else []
        if current is None:
            return [f"{file} is damaged: its content is not what its own digest says."]
        if current not in kept:
            return [f"{self.prefix / current} is missing."]
        manifest = self._content(current, MANIFEST)
        if manifest is not None and digest_of(manifest) != Pointer.decode(content).manifest_sha256:
            return [f"{self.prefix / current / MANIFEST} is not the one that CURRENT names."]
        return []

    def _newest_whole(self, kept: dict[str, set[str]]) -> str | None:
        """Name of the newest complete checkpoint, for when CURRENT names none."""
        for name in _newest_first(kept, None):
            with suppress(StoreCorruptError):
                self._read(name)
                return name
        return None

    def _write(self, name: str, snapshot: Checkpoint) -> str:
        """Write a checkpoint; return the digest of its manifest."""
        entries = {}

        def put(path: str, content: bytes) -> None:
            self._objects.put(f"{name}/{path}", content)
            entries[path] = entry_of(content)
            if self._content(name, path) != content:
                raise OSError(
                    None, "the file read back differs from what was written", f"{name}/{path}"
                )

        put_all(snapshot, put)
        manifest = Manifest(entries).encode()
        put(MANIFEST, manifest)
        return digest_of(manifest)

    def _remove_old(self, names: Iterable[str], kept: dict[str, set[str]]) -> None:
        """Remove earlier checkpoints; what stays is removed with the next one."""
        with suppress(TemporaryFailure, OSError):
            self._remove(names, kept)

    def _remove(self, names: Iterable[str], kept: dict[str, set[str]]) -> None:
        files = [f"{name}/{path}" for name in names for path in sorted(kept[name])]
        if files:
            self._objects.remove(files)


class FileCheckpointStore(ObjectCheckpointStore):
    """Store of one fit's checkpoints in a directory; see `ObjectCheckpointStore`.

    Parameters
    ----------
    directory
        Created when the first checkpoint is saved. The caller ensures that one process at a time
        writes to it.
    files
        File system to write to.
    """

    def __init__(self, directory: str | Path, *, files: Files = LOCAL) -> None:
        self.directory = Path(os.path.realpath(directory))
        super().__init__(self.directory, objects=DirectoryObjects(self.directory, files))

    def clear(self) -> None:
        """Remove every checkpoint, and the directory."""
        with failures_are_typed(f"The checkpoints in {self.directory}", "run the command again."):
            super().clear()

    def _remove_old(self, names: Iterable[str], kept: dict[str, set[str]]) -> None:
        self._remove(names, kept)


def _first_whole(
    names: Iterable[str],
    read: Callable[[str], Checkpoint],
    problems: Iterable[str],
    *,
    where: Location,
) -> tuple[Checkpoint | None, tuple[str, ...]]:
    """Return the first complete checkpoint, and the problems with those before it.

    Parameters
    ----------
    names
        Of checkpoints, newest first.
    read
        Raises StoreCorruptError for a damaged one.
    problems
        Problems that are known already.
    where
        Location of the checkpoints, for the message.

    Raises
    ------
    StoreCorruptError
        When there are problems and no checkpoint is complete.
    """
    found = list(problems)
    for name in names:
        try:
            snapshot = read(name)
        except StoreCorruptError as error:
            found.append(str(error))
            continue
        return snapshot, tuple(found)
    if found:
        raise StoreCorruptError(
            " ".join(found) + f" No earlier checkpoint is complete. Remove {where} to start the "
            "clustering from the beginning."
        )
    return None, ()


def _number(name: str) -> int:
    return int(name.partition("-")[0])


def _newest_first(kept: Iterable[str], current: str | None) -> list[str]:
    """Names in the order in which to read them: the current one, then earlier ones."""
    names = sorted(kept, reverse=True)
    if current is None:
        return names
    older = [name for name in names if _number(name) < _number(current)]
    return [current, *older] if current in names else older
