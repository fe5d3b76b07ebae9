"""Checkpoints of a fit: written atomically, verified by digests, the last two kept.

Layout, version 1::

    checkpoints/
        CURRENT             name of the newest checkpoint, digest of its manifest and of itself
        00000006/           previous checkpoint
        00000007/
            manifest.json   path, size and SHA-256 of every other file, after its own digest
            state.json      record
            arrays/         Zarr v3 group: crc32c on every chunk, every chunk written, numbers only

A checkpoint is written under a temporary name, read back and compared, synced to disk, renamed, and
only then named in CURRENT, which is replaced atomically. The previous checkpoint stays intact until
then.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from mscam_dask.data.store.checksums import digest_of
from mscam_dask.data.store.filesystem import (
    LOCAL,
    Files,
    failures_are_typed,
    remove_tree,
    rename_durably,
    write_durably,
)
from mscam_dask.data.store.write import CHUNK_BYTES, create_array
from mscam_dask.errors import StoreCorruptError

__all__ = [
    "CURRENT",
    "MANIFEST",
    "Checkpoint",
    "FileCheckpointStore",
    "Manifest",
    "Pointer",
    "decode_arrays",
    "decode_record",
    "encode_array",
    "encode_group",
    "encode_record",
    "entry_of",
    "newest_whole",
    "put_all",
    "read_checkpoint",
]

_KEEP = 2
_NAME = re.compile(r"[0-9]{8}")
_REMEDY = "continue the run: what was saved before is untouched."


class FileCheckpointStore:
    """Store of one fit's checkpoints in a directory; a `mscam_dask.engine.checkpoint.CheckpointStore`.

    Parameters
    ----------
    directory
        Created when the first checkpoint is saved. The caller ensures that one process at a time
        writes to it.
    files
        File system to write to.

    Attributes
    ----------
    damage : tuple of str
        Damaged checkpoints that `load` skipped for an earlier one.

    Notes
    -----
    Memory: the encoded bytes of one array at a time beside the state itself.
    """

    def __init__(self, directory: str | Path, *, files: Files = LOCAL) -> None:
        self.directory = Path(os.path.realpath(directory))
        self.damage: tuple[str, ...] = ()
        self._files = files

    def sweep(self) -> None:
        """Remove partial checkpoints of a killed process, and those that CURRENT never named."""
        current = self._pointer()[0]
        for name in self._files.names(self.directory):
            stale = current is not None and bool(_NAME.fullmatch(name)) and name > current
            if stale or name.endswith(".partial"):
                remove_tree(self._files, self.directory / name)

    def save(self, snapshot: Checkpoint) -> None:
        """Save a checkpoint; it is on disk when this returns.

        Raises
        ------
        TemporaryFailure
            When the disk is full or fails; earlier checkpoints stay intact.
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
        """Return the newest complete checkpoint; `damage` lists the ones that were skipped.

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
        """Name in CURRENT, and the problem with CURRENT or with the manifest that it names."""
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
        """Write a checkpoint under its temporary name; return the digest of its manifest."""
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
                raise OSError(None, "the file read back differs from what was written", str(file))
            self._files.sync(file)

        put_all(snapshot, put)
        manifest = Manifest(entries).encode()
        put(MANIFEST, manifest)
        for directory in sorted(directories, reverse=True):  # the innermost first
            self._files.sync(directory)
        return digest_of(manifest)


CURRENT = "CURRENT"
"""Name of the pointer."""

_STATE = "state.json"
_ARRAYS = "arrays"


class Pointer:
    """Content of CURRENT.

    Parameters
    ----------
    name : str
        Of the newest checkpoint.
    manifest_sha256 : str
    """

    def __init__(self, name: str, manifest_sha256: str) -> None:
        self.name = name
        self.manifest_sha256 = manifest_sha256

    def encode(self) -> bytes:
        """Encode the pointer, with its own digest at the end."""
        fields = {"checkpoint": self.name, "manifest_sha256": self.manifest_sha256}
        own = digest_of(json.dumps(fields).encode())
        return (json.dumps({**fields, "sha256": own}) + "\n").encode()

    @classmethod
    def decode(cls, content: bytes) -> Pointer:
        """Read what `encode` wrote.

        Raises
        ------
        ValueError
            When the content differs in any bit; the message says how.
        """
        try:
            fields = json.loads(content)
            pointer = cls(str(fields["checkpoint"]), str(fields["manifest_sha256"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError("it names no checkpoint") from error
        if pointer.encode() != content:
            raise ValueError("its content is not what its own digest says")
        return pointer


def put_all(snapshot: Checkpoint, put: Callable[[str, bytes], Any]) -> None:
    """Encode a checkpoint file by file: the record, then one array at a time; no manifest."""
    put(_STATE, encode_record(snapshot.record))
    for path, content in encode_group(list(snapshot.arrays)).items():
        put(f"{_ARRAYS}/{path}", content)
    for name, values in snapshot.arrays.items():
        for path, content in encode_array(name, values).items():
            put(f"{_ARRAYS}/{path}", content)


def read_checkpoint(root: object, content_of: Callable[[str], bytes | None]) -> Checkpoint:
    """Read one checkpoint and compare every file with the manifest.

    Parameters
    ----------
    root
        Location of the checkpoint, for messages.
    content_of
        Content of a file by its path inside; None when it is missing.

    Raises
    ------
    StoreCorruptError
        Naming the first file that is missing or not as it was written.
    """
    content = content_of(MANIFEST)
    if content is None:
        raise StoreCorruptError(f"{root}/{MANIFEST} is missing.")
    try:
        manifest = Manifest.decode(content)
    except ValueError as error:
        raise StoreCorruptError(f"{root}/{MANIFEST} is damaged: {error}.") from error
    contents: dict[str, bytes] = {}
    for path in manifest.files:
        found = content_of(path)
        if found is None:
            raise StoreCorruptError(f"{root}/{path} is missing.")
        problem = manifest.problem_with(path, found)
        if problem is not None:
            raise StoreCorruptError(f"{root}/{path} is damaged: {problem}.")
        contents[path] = found
    try:
        record = decode_record(contents.pop(_STATE))
        arrays = decode_arrays(
            {path.removeprefix(f"{_ARRAYS}/"): found for path, found in contents.items()}
        )
    except (KeyError, ValueError) as error:
        raise StoreCorruptError(
            f"{root} is no checkpoint of this version of mscam_dask: {error}."
        ) from error
    return Checkpoint(arrays, record)


def newest_whole(
    names: Iterable[str],
    read: Callable[[str], Checkpoint],
    problems: Iterable[str],
    *,
    where: object,
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


_FORMAT = "mscam_dask.checkpoint"
_VERSION = 1
_NUMBER = "not finite"  # {"not finite": "nan"}: JSON has no NaN and no infinity


def encode_record(record: Mapping[str, Any]) -> bytes:
    """Return a record as indented JSON; floats are written so that they read back the same."""
    content = {"format": _FORMAT, "format_version": _VERSION, "record": _plain(record)}
    return (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()


def decode_record(content: bytes) -> dict[str, Any]:
    """Read what `encode_record` wrote.

    Raises
    ------
    ValueError
        When it is something else, or of another version.
    """
    whole = json.loads(content)
    if not isinstance(whole, dict) or whole.get("format") != _FORMAT:
        raise ValueError("it is no record of a checkpoint")
    if whole.get("format_version") != _VERSION:
        raise ValueError(
            f"format version {whole.get('format_version')!r}, this version reads {_VERSION}"
        )
    record = _restored(whole["record"])
    if not isinstance(record, dict):
        raise ValueError("its record is no mapping")
    return record


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {_NUMBER: str(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _restored(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_NUMBER}:
            return float(value[_NUMBER])
        return {key: _restored(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_restored(item) for item in value]
    return value


_KINDS = "iuf"
_NAMES = "arrays"


def encode_group(names: Sequence[str]) -> dict[str, bytes]:
    """Metadata of the root group, which lists the arrays."""
    import zarr

    files: dict[str, Any] = {}
    zarr.open_group(
        _memory(files), mode="w-", zarr_format=3, attributes={_NAMES: [str(name) for name in names]}
    )
    return {path: buffer.to_bytes() for path, buffer in files.items()}


def encode_array(
    name: str, values: NDArray[Any], *, chunk_bytes: int = CHUNK_BYTES
) -> dict[str, bytes]:
    """Files of one array, by path inside the group: metadata and chunks of `chunk_bytes` at most."""
    import zarr

    if values.dtype.kind not in _KINDS:
        raise TypeError(f"array {name!r} has dtype {values.dtype}; a checkpoint holds numbers")
    if not name.isidentifier():
        raise ValueError(f"array name {name!r} is no identifier; it becomes a directory")
    files: dict[str, Any] = {}
    group = zarr.open_group(_memory(files), mode="w-", zarr_format=3)
    width = max(1, int(np.prod(values.shape[1:])) * values.itemsize)
    rows = max(1, min(len(values), chunk_bytes // width))
    chunks = (rows, *(max(1, size) for size in values.shape[1:]))
    dims = tuple(f"dim_{axis}" for axis in range(values.ndim))
    dtype = values.dtype.newbyteorder("<")
    array = create_array(group, name, values.shape, chunks, dtype, dims, nested=False)
    array[:] = values
    return {path: buffer.to_bytes() for path, buffer in files.items() if path != "zarr.json"}


def decode_arrays(files: Mapping[str, bytes]) -> dict[str, NDArray[Any]]:
    """Arrays of a group from its files, whose digests were compared before.

    Raises
    ------
    ValueError
        When the files are no such group.
    """
    import zarr
    from zarr.core.buffer import default_buffer_prototype

    make = default_buffer_prototype().buffer.from_bytes
    store = _memory({path: make(content) for path, content in files.items()})
    group = zarr.open_group(store, mode="r", zarr_format=3, use_consolidated=False)
    arrays = {}
    names: Any = group.attrs[_NAMES]
    for name in names:
        array: Any = group[str(name)]
        arrays[str(name)] = np.asarray(array[...])
    return arrays


def _memory(files: dict[str, Any]) -> Any:
    from zarr.storage import MemoryStore

    return MemoryStore(files)


MANIFEST = "manifest.json"
"""Name of the file in the directory whose files it lists."""

_MANIFEST_VERSION = 1


class FileEntry(Struct, frozen=True):
    """Size in bytes and SHA-256 of one file."""

    n_bytes: int
    sha256: str


class _Body(Struct, frozen=True):
    version: int
    files: dict[str, FileEntry]


class _Signed(Struct, frozen=True):
    """Encoded body with its digest."""

    sha256: str
    manifest: msgspec.Raw


def entry_of(content: bytes) -> FileEntry:
    """Entry of a file with this content."""
    return FileEntry(len(content), digest_of(content))


class Manifest:
    """Files of one directory, by path inside it with forward slashes.

    Parameters
    ----------
    files : mapping of str to FileEntry
    """

    def __init__(self, files: Mapping[str, FileEntry]) -> None:
        self.files = dict(sorted(files.items()))

    def encode(self) -> bytes:
        """Encode the manifest, after its own digest."""
        body = msgspec.json.encode(_Body(_MANIFEST_VERSION, self.files))
        return msgspec.json.encode(_Signed(digest_of(body), msgspec.Raw(body))) + b"\n"

    @classmethod
    def decode(cls, content: bytes) -> Manifest:
        """Read what `encode` wrote.

        Raises
        ------
        ValueError
            When the content differs in any bit; the message says how.
        """
        try:
            signed = msgspec.json.decode(content, type=_Signed)
            body = msgspec.json.decode(signed.manifest, type=_Body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"no manifest: {error}") from error
        if digest_of(bytes(signed.manifest)) != signed.sha256:
            raise ValueError("its content is not what its own digest says")
        if body.version != _MANIFEST_VERSION:
            raise ValueError(f"manifest of version {body.version}, not {_MANIFEST_VERSION}")
        manifest = cls(body.files)
        if manifest.encode() != content:
            raise ValueError("it is not as it was written")
        return manifest

    def problem_with(self, name: str, content: bytes) -> str | None:
        """Return the problem with the content of a listed file; None if it is as it was written."""
        entry = self.files[name]
        if len(content) != entry.n_bytes:
            return f"it has {len(content)} bytes, {entry.n_bytes} were written"
        if digest_of(content) != entry.sha256:
            return "its content is not what was written (SHA-256 differs)"
        return None


@dataclasses.dataclass(frozen=True, eq=False)
class Checkpoint:
    """State from which a fit can be resumed, independent of its executor and of the storage.

    Attributes
    ----------
    arrays : mapping of str to array
        Numeric arrays by name, such as "graph_data".
    record : mapping of str to values
        Nested mappings, sequences, strings, numbers (NaN and infinities too), booleans and None.
    """

    arrays: Mapping[str, NDArray[Any]]
    record: Mapping[str, Any]
