"""Checkpoints of a fit: complete or not there, checked to the last bit, the last two kept.

Layout, version 1; see `mscam_dask.data.checkpoint_content` for what is inside::

    checkpoints/
        CURRENT
        00000006/           the one before
        00000007/

A checkpoint is written under another name, read back from the disk and compared, synced, file by
file and directory by directory, renamed, and only then named in CURRENT, which is replaced whole.
Whatever happens in between, the one before is untouched.
"""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path, PurePosixPath

from mscam_dask.data.checkpoint_content import (
    CURRENT,
    Pointer,
    newest_whole,
    put_all,
    read_checkpoint,
)
from mscam_dask.data.store.filesystem import (
    LOCAL,
    Files,
    failures_are_typed,
    remove_tree,
    rename_durably,
    write_durably,
)
from mscam_dask.data.store.manifest import MANIFEST, Manifest, digest_of, entry_of
from mscam_dask.types.checkpoint import Checkpoint

__all__ = ["CURRENT", "FileCheckpointStore"]

_KEEP = 2
_NAME = re.compile(r"[0-9]{8}")
_REMEDY = "continue the run: what was saved before is untouched."


class FileCheckpointStore:
    """Keeps the state of one fit in a directory; a `mscam_dask.engine.checkpoint.CheckpointStore`.

    Parameters
    ----------
    directory
        Made when the first state is saved. One process at a time writes in it: the caller sees
        to that.
    files
        File system to write to.

    Attributes
    ----------
    damage : tuple of str
        After `load`: what was found damaged and passed over for an earlier checkpoint.

    Notes
    -----
    Memory: the encoded bytes of one array at a time beside the state itself.
    """

    def __init__(self, directory: str | Path, *, files: Files = LOCAL) -> None:
        self.directory = Path(os.path.realpath(directory))
        self.damage: tuple[str, ...] = ()
        self._files = files

    def sweep(self) -> None:
        """Remove what a killed process was writing, and checkpoints that CURRENT never named."""
        current = self._pointer()[0]
        for name in self._files.names(self.directory):
            stale = current is not None and bool(_NAME.fullmatch(name)) and name > current
            if stale or name.endswith(".partial"):
                remove_tree(self._files, self.directory / name)

    def save(self, snapshot: Checkpoint) -> None:
        """Keep a state; when this returns it is on the disk.

        Raises
        ------
        TemporaryFailure
            When the disk is full or fails; the states before are untouched.
        """
        with failures_are_typed(f"The checkpoint in {self.directory}", _REMEDY):
            self._make_directory()
            self.sweep()
            kept = self._checkpoints()
            name = f"{int(kept[-1]) + 1 if kept else 0:08d}"
            digest = self._write_aside(name, snapshot)
            aside = self.directory / f".{name}.partial"
            rename_durably(self._files, aside, self.directory / name)
            pointer = Pointer(name, digest).encode()
            write_durably(self._files, self.directory / CURRENT, pointer)
            for old in kept[: -(_KEEP - 1)]:
                remove_tree(self._files, self.directory / old)

    def load(self) -> Checkpoint | None:
        """The newest state that is whole; `damage` says what was passed over.

        Raises
        ------
        StoreCorruptError
            When there are checkpoints and every one is damaged; names the files.
        """
        current, problem = self._pointer()
        names = self._checkpoints()
        problems = [problem] if problem and names else []
        if current is not None and current not in names:
            problems.append(f"{self.directory / current} is missing.")
        older = [name for name in names if current is None or name <= current]
        snapshot, self.damage = newest_whole(
            reversed(older), self._read, problems, where=self.directory
        )
        return snapshot

    def clear(self) -> None:
        """Remove every checkpoint."""
        with failures_are_typed(f"The checkpoints in {self.directory}", "run the command again."):
            aside = self.directory.with_name(f".{self.directory.name}.old")
            for directory in (self.directory, aside):
                if not self._files.is_directory(directory):
                    continue
                if directory != aside:
                    if self._files.is_directory(aside):
                        remove_tree(self._files, aside)
                    self._files.rename(directory, aside)
                remove_tree(self._files, aside)

    def _read(self, name: str) -> Checkpoint:
        return read_checkpoint(self.directory / name, partial(self._content, name))

    def _make_directory(self) -> None:
        missing = []
        directory = self.directory
        while not self._files.is_directory(directory):
            missing.append(directory)
            directory = directory.parent
        for directory in reversed(missing):
            self._files.mkdir(directory)
            self._files.sync(directory.parent)

    def _checkpoints(self) -> list[str]:
        """Names of checkpoints, oldest first."""
        return [name for name in self._files.names(self.directory) if _NAME.fullmatch(name)]

    def _pointer(self) -> tuple[str | None, str | None]:
        """What CURRENT names, and what is wrong with it or with the manifest it names."""
        file = self.directory / CURRENT
        try:
            content = self._files.read(file)
        except FileNotFoundError:
            return None, f"{file} is missing."
        try:
            pointer = Pointer.decode(content)
        except ValueError as error:
            return None, f"{file} is damaged: {error}."
        name = pointer.name
        if not _NAME.fullmatch(name):
            return None, f"{file} is damaged: it names {name!r}, which is no checkpoint."
        manifest = self._content(name, MANIFEST)
        if manifest is not None and digest_of(manifest) != pointer.manifest_sha256:
            return name, f"{self.directory / name / MANIFEST} is not the one that CURRENT names."
        return name, None

    def _content(self, name: str, file: str) -> bytes | None:
        try:
            return self._files.read(self.directory / name / PurePosixPath(file))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def _write_aside(self, name: str, snapshot: Checkpoint) -> str:
        """Write a whole checkpoint under its partial name; the digest of its manifest."""
        root = self.directory / f".{name}.partial"
        self._files.mkdir(root)
        entries = {}
        directories = {root}

        def put(path: str, content: bytes) -> None:
            file = root / PurePosixPath(path)
            for parent in reversed(file.relative_to(root).parents[:-1]):
                if root / parent not in directories:
                    self._files.mkdir(root / parent)
                    directories.add(root / parent)
            self._files.write(file, content)
            entries[path] = entry_of(content)
            if self._files.read(file) != content:
                raise OSError(None, "what was written does not read back the same", str(file))
            self._files.sync(file)

        put_all(snapshot, put)
        manifest = Manifest(entries).encode()
        put(MANIFEST, manifest)
        for directory in sorted(directories, reverse=True):  # the innermost first
            self._files.sync(directory)
        return digest_of(manifest)
