"""Files of a checkpoint: record in JSON, arrays in Zarr, and a manifest with the digest of each.

00000007-b2d47c13/
manifest.json   path, size and SHA-256 of every other file, after its own digest
state.json      record
arrays/         Zarr v3 group: crc32c on every chunk, every chunk written, numbers only
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from mscam_dask.data.store.schema import digest_of
from mscam_dask.data.store.write import CHUNK_BYTES, create_array
from mscam_dask.errors import StoreCorruptError

__all__ = [
    "MANIFEST",
    "ArrayPieces",
    "Checkpoint",
    "Manifest",
    "Pointer",
    "decode_arrays",
    "decode_record",
    "encode_array",
    "encode_group",
    "encode_record",
    "entry_of",
    "put_all",
    "read_checkpoint",
]


@dataclasses.dataclass(frozen=True, eq=False)
class ArrayPieces:
    """An array that is never whole in memory: its rows, piece by piece.

    Attributes
    ----------
    shape : tuple of int
    dtype : dtype
    pieces : callable
        Returns the pieces in the order of their rows.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    pieces: Callable[[], Iterable[NDArray[Any]]]


@dataclasses.dataclass(frozen=True, eq=False)
class Checkpoint:
    """State from which a fit can be resumed, independent of its executor and of the storage.

    Attributes
    ----------
    arrays : mapping of str to array or ArrayPieces
        Numeric arrays by name, such as "graph_data"; those that were read are whole.
    record : mapping of str to values
        Nested mappings, sequences, strings, numbers (NaN and infinities too), booleans and None.
    """

    arrays: Mapping[str, Any]
    record: Mapping[str, Any]


_STATE = "state.json"
_ARRAYS = "arrays"


class Pointer:
    """Content of CURRENT.

    Parameters
    ----------
    name : str
        Name of the newest checkpoint.
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
            raise ValueError("it does not name a checkpoint") from error
        if pointer.encode() != content:
            raise ValueError("its content does not match its digest")
        return pointer


def put_all(snapshot: Checkpoint, put: Callable[[str, bytes], Any]) -> None:
    """Encode a checkpoint file by file: the record, then the chunks of each array; no manifest."""
    put(_STATE, encode_record(snapshot.record))
    for path, content in encode_group(list(snapshot.arrays)).items():
        put(f"{_ARRAYS}/{path}", content)
    for name, values in snapshot.arrays.items():
        for path, content in encode_array(name, values):
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
            f"{root} is not a checkpoint of this version of mscam_dask: {error}."
        ) from error
    return Checkpoint(arrays, record)


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
        raise ValueError("it is not the record of a checkpoint")
    if whole.get("format_version") != _VERSION:
        raise ValueError(
            f"format version {whole.get('format_version')!r}, this version reads {_VERSION}"
        )
    record = _restored(whole["record"])
    if not isinstance(record, dict):
        raise ValueError("its record is not a mapping")
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
    name: str, values: NDArray[Any] | ArrayPieces, *, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[tuple[str, bytes]]:
    """Files of one array, with their paths inside the group, one at a time.

    They are chunks of `chunk_bytes` at most, and metadata.
    """
    import zarr

    if values.dtype.kind not in _KINDS:
        raise TypeError(f"array {name!r} has dtype {values.dtype}; a checkpoint holds numbers")
    if not name.isidentifier():
        raise ValueError(
            f"array name {name!r} is not an identifier; it becomes the name of a directory"
        )
    files: dict[str, Any] = {}
    group = zarr.open_group(_memory(files), mode="w-", zarr_format=3)
    width = max(1, int(np.prod(values.shape[1:])) * values.dtype.itemsize)
    rows = max(1, min(values.shape[0], chunk_bytes // width))
    chunks = (rows, *(max(1, size) for size in values.shape[1:]))
    dims = tuple(f"dim_{axis}" for axis in range(len(values.shape)))
    dtype = values.dtype.newbyteorder("<")
    array = create_array(group, name, values.shape, chunks, dtype, dims, nested=False)
    metadata = frozenset(files)
    pieces = values.pieces() if isinstance(values, ArrayPieces) else [values]
    for start, block in _whole_chunks(pieces, rows):
        array[start : start + len(block)] = block
        for path in [path for path in files if path not in metadata]:
            yield path, files.pop(path).to_bytes()
    yield f"{name}/zarr.json", files[f"{name}/zarr.json"].to_bytes()


def _whole_chunks(
    pieces: Iterable[NDArray[Any]], n_rows: int
) -> Iterator[tuple[int, NDArray[Any]]]:
    """First row and rows of each chunk, of consecutive pieces."""
    start = 0
    kept: list[NDArray[Any]] = []
    for piece in pieces:
        kept.append(piece)
        if sum(map(len, kept)) < n_rows:
            continue
        rows = np.concatenate(kept) if len(kept) > 1 else piece
        whole = len(rows) - len(rows) % n_rows
        for first in range(0, whole, n_rows):
            yield start + first, rows[first : first + n_rows]
        start, kept = start + whole, [rows[whole:]]
    if any(map(len, kept)):
        yield start, np.concatenate(kept)


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
    """Files of one directory, by path inside it with forward slashes."""

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
            raise ValueError(f"it is not a manifest: {error}") from error
        if digest_of(bytes(signed.manifest)) != signed.sha256:
            raise ValueError("its content does not match its digest")
        if body.version != _MANIFEST_VERSION:
            raise ValueError(f"manifest of version {body.version}, not {_MANIFEST_VERSION}")
        manifest = cls(body.files)
        if manifest.encode() != content:
            raise ValueError("its bytes differ from those that were written")
        return manifest

    def problem_with(self, name: str, content: bytes) -> str | None:
        """Return the problem with the content of a listed file; None if it is as it was written."""
        entry = self.files[name]
        if len(content) != entry.n_bytes:
            return f"it has {len(content)} bytes, {entry.n_bytes} were written"
        if digest_of(content) != entry.sha256:
            return "its content is not what was written (SHA-256 differs)"
        return None
