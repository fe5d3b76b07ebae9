"""Checkpoints of a fit on an object store: written atomically, verified, the last two kept.

Layout; see `mscam_dask.data.checkpoints` for the files of a checkpoint::

    s3://bucket/prefix/
        CURRENT
        00000006-5c1f0a9e/      the one before
        00000007-b2d47c13/

An object store has no rename and no lock. A checkpoint is therefore written under a unique
name, each object is read back and compared, the manifest is written last, and then CURRENT is
replaced by one request. Objects of a killed writer have a name that CURRENT never had: they are
skipped, and removed with the next checkpoint.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Protocol

from mscam_dask.data.checkpoints import (
    CURRENT,
    MANIFEST,
    Checkpoint,
    Manifest,
    Pointer,
    entry_of,
    newest_whole,
    put_all,
    read_checkpoint,
)
from mscam_dask.data.store.checksums import digest_of
from mscam_dask.data.store.filesystem import failures_are_typed
from mscam_dask.data.store.object_store import ObjectPath
from mscam_dask.errors import StoreCorruptError, TemporaryFailure

__all__ = ["ObjectCheckpointStore", "Objects", "RemoteObjects"]

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


class ObjectCheckpointStore:
    """Store of one fit's checkpoints below a prefix; see `mscam_dask.data.checkpoints.FileCheckpointStore`.

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

    def __init__(self, prefix: ObjectPath, *, objects: Objects | None = None) -> None:
        self.prefix = prefix
        self.damage: tuple[str, ...] = ()
        self._objects = RemoteObjects(prefix) if objects is None else objects
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
            with suppress(TemporaryFailure, OSError):  # removed with the next one
                self._remove(kept.keys() - {name, last}, kept)

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
        snapshot, self.damage = newest_whole(tried, self._read, problems, where=self.prefix)
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

    def _remove(self, names: Iterable[str], kept: dict[str, set[str]]) -> None:
        files = [f"{name}/{path}" for name in names for path in sorted(kept[name])]
        if files:
            self._objects.remove(files)


def _number(name: str) -> int:
    return int(name.partition("-")[0])


def _newest_first(kept: Iterable[str], current: str | None) -> list[str]:
    """Names in the order in which to read them: the current one, then earlier ones."""
    names = sorted(kept, reverse=True)
    if current is None:
        return names
    older = [name for name in names if _number(name) < _number(current)]
    return [current, *older] if current in names else older
