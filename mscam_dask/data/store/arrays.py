"""Zarr groups whose damage is noticed: a checksum in each chunk, every chunk written, and digests of all metadata.

Zarr's default codecs decode a flipped bit into wrong numbers, and a missing chunk reads as zeros.
"""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.store.filesystem import check_tree, read_regular
from mscam_dask.data.store.object_store import (
    Location,
    ObjectPath,
    translate_errors,
    zarr_place,
)
from mscam_dask.errors import DataError, MscamError, StoreCorruptError

METADATA = "zarr.json"

CHECKSUMS = "nodes"
"""Attribute of the root group: path of each node -> SHA-256 of its zarr.json."""

CHECKSUM = "checksum"
"""Attribute of the root group: digest of its own zarr.json, which is written last."""

CHUNK_BYTES = 8 * 2**20
"""Uncompressed bytes of a chunk, unless the number of rows is given."""

REMEDY = "Restore the file from a copy, or ingest the original data again."

# Arrays and groups of the kinds of this package, which tell a root that is damaged from one that is none.
_OURS = ("views/0/values", "labels", "consensus_graph", "record")

_STORE_OF_RUN = "data.zarr"

# Fields of a group in the Zarr v3 specification, and the one that zarr-python adds.
_FIELDS = frozenset({"zarr_format", "node_type", "attributes", "consolidated_metadata"})

# Exceptions of Zarr 3 for metadata that are cut short, altered or of another kind.
METADATA_ERRORS = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)

# Exceptions of codecs for a chunk that is cut short or altered.
_CHUNK_ERRORS = (ValueError, RuntimeError, KeyError, TypeError, IndexError)


@dataclass(frozen=True)
class Format:
    """Kind of a root group, the version that is read, and remedies for others."""

    kind: str
    version: int
    other: str  # a sentence for a root of another kind
    again: str  # what makes one of this version

    @property
    def marks(self) -> dict[str, Any]:
        """Attributes of a root of this kind."""
        return {"format": self.kind, "format_version": self.version}

    def is_at(self, root: Location) -> bool:
        """Whether a root is of this kind; raises as `root_attributes`."""
        return bool(root_attributes(root).get("format") == self.kind)

    def attributes(self, root: Location) -> Mapping[str, Any]:
        """Return the attributes of a root of this kind, after comparing metadata with their checksums."""
        attributes = root_attributes(root)
        if attributes.get("format") != self.kind:
            raise DataError(
                f"{root} is a Zarr group of another kind (format={attributes.get('format')!r}, not "
                f"{self.kind!r}). {self.other}"
            )
        found = attributes.get("format_version")
        if found != self.version:
            is_newer = isinstance(found, int) and found > self.version
            remedy = "Upgrade mscam_dask" if is_newer else "Read it with the version that wrote it"
            raise DataError(
                f"{root} has format version {found!r}; this version reads {self.version}. {remedy}, or "
                f"{self.again}."
            )
        if not isinstance(root, ObjectPath):
            check_tree(root)
        if CHECKSUM not in attributes:
            raise corrupt_store(root / METADATA, "its checksum is missing")
        return attributes


DATASET = Format(
    "mscam_dask.dataset",
    3,
    other="Give the store that mscam-dask ingest wrote (-o data.zarr), or ingest this one first.",
    again="ingest the original data again",
)
"""A data set; `mscam_dask.data.store.dataset` has its layout."""


@dataclass(frozen=True, eq=False)
class ArrayPieces:
    """An array that is never whole in memory: `pieces` returns its rows piece by piece, in order."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    pieces: Callable[[], Iterable[NDArray[Any]]]


def new_group(place: Location) -> Any:
    """Make a root group whose attributes and arrays follow."""
    import zarr

    return zarr.open_group(zarr_place(place, writable=True), mode="w-", zarr_format=3)


def put_array(
    group: Any,
    key: str,
    values: NDArray[Any] | ArrayPieces,
    dims: tuple[str, ...] | None = None,
    dtype: np.dtype[Any] | None = None,
    *,
    chunk_rows: int | None = None,
) -> Any:
    """Write an array in chunks of rows, compressed and checksummed, that keeps chunks of zeros; return the Zarr array.

    The pieces of one chunk are in memory; `dtype` is by default the array's own.
    """
    from zarr.codecs import Crc32cCodec, ZstdCodec

    shape, kept = values.shape, (values.dtype if dtype is None else dtype).newbyteorder("<")
    row_bytes = max(1, int(np.prod(shape[1:])) * kept.itemsize)
    rows = min(chunk_rows or CHUNK_BYTES // row_bytes, shape[0])
    array = group.create_array(
        key,
        shape=shape,
        chunks=tuple(max(1, size) for size in (rows, *shape[1:])),
        dtype=kept,
        compressors=(ZstdCodec(level=3), Crc32cCodec()),
        fill_value=0,
        dimension_names=dims or tuple(f"dim_{axis}" for axis in range(len(shape))),
        config={"write_empty_chunks": True},
    )
    pieces = values.pieces() if isinstance(values, ArrayPieces) else [values]
    for start, part in _whole_chunks(pieces, array.chunks[0]):
        array[start : start + len(part)] = part
    return array


def _whole_chunks(
    pieces: Iterable[NDArray[Any]], n_rows: int
) -> Iterator[tuple[int, NDArray[Any]]]:
    """First row and rows of whole chunks, of consecutive pieces."""
    start, kept = 0, []
    for piece in pieces:
        kept.append(piece)
        if sum(map(len, kept)) < n_rows:
            continue
        rows = np.concatenate(kept) if len(kept) > 1 else piece
        whole = len(rows) - len(rows) % n_rows
        yield start, rows[:whole]
        start, kept = start + whole, [rows[whole:]]
    if any(map(len, kept)):
        yield start, np.concatenate(kept)


def open_array(root: Location, key: str) -> Any:
    """Open one array of a store; damaged metadata are a `StoreCorruptError`."""
    import zarr

    file = root / key / METADATA
    if not file.is_file():
        raise missing(file, "it is missing")
    with translate_errors(file):
        try:
            return zarr.open_array(zarr_place(root / key), mode="r", zarr_format=3)
        except METADATA_ERRORS as error:
            raise corrupt_store(file, f"no usable array metadata: {error}") from error


def chunks_of(array: Any) -> Iterator[slice]:
    """Rows of each chunk of an array chunked by rows."""
    for start in range(0, array.shape[0] if array.size else 0, array.chunks[0]):
        yield slice(start, min(start + array.chunks[0], array.shape[0]))


def read_chunk(array: Any, directory: Location, rows: slice) -> NDArray[Any]:
    """Read rows that lie in one chunk; a missing or damaged one is a `StoreCorruptError`."""
    index = (rows.start // array.chunks[0],) + (0,) * (array.ndim - 1)
    file = directory / array.metadata.encode_chunk_key(index)
    if not file.is_file():
        raise missing(file, f"the chunk with rows {rows.start}:{rows.stop} is missing")
    with translate_errors(file):
        try:
            return np.asarray(array[rows])
        except _CHUNK_ERRORS as error:
            raise corrupt_store(
                file, f"rows {rows.start}:{rows.stop} cannot be decoded ({error})"
            ) from error


def get_array(root: Location, key: str) -> NDArray[Any]:
    """Read one array, chunk by chunk."""
    array = open_array(root, key)
    values = np.empty(array.shape, dtype=array.dtype)
    for rows in chunks_of(array):
        values[rows] = read_chunk(array, root / key, rows)
    return values


def verify_arrays(root: Location, attributes: Mapping[str, Any]) -> None:
    """Read every chunk of a root group with these attributes, one at a time."""
    for key in attributes[CHECKSUMS]:
        if json.loads(read_metadata(root / key / METADATA))["node_type"] == "array":
            array = open_array(root, key)
            for rows in chunks_of(array):
                read_chunk(array, root / key, rows)


def missing(file: Location, what: str) -> StoreCorruptError:
    """Return the error for an array without one of its files, or for a store that is gone."""
    if isinstance(file, ObjectPath) or any(
        (parent / METADATA).is_file() for parent in file.parent.parents
    ):
        return corrupt_store(file, what)
    return StoreCorruptError(
        f"{file} does not exist where it was read ({socket.gethostname()}), nor does its store: it was "
        "moved or removed after it was opened, or this Dask worker does not mount it. Put it where every "
        "worker sees it under this path, or give its present path."
    )


def put_json(group: Any, key: str, value: Any) -> None:
    """Write what JSON can hold, NaN and infinities too, as an array of bytes."""
    put_array(group, key, np.frombuffer(json.dumps(value).encode(), dtype=np.uint8), ("byte",))


def get_json(root: Location, key: str) -> Any:
    """Read what `put_json` wrote."""
    return json.loads(get_array(root, key).tobytes())


def corrupt_store(file: Location, what: str) -> StoreCorruptError:
    """Return the error for a damaged file."""
    return StoreCorruptError(f"{file} is damaged: {what}. {REMEDY}")


@contextmanager
def usable_attributes(root: Location) -> Iterator[None]:
    """Turn errors of reading attributes that are missing or of another type into `StoreCorruptError`."""
    try:
        yield
    except MscamError:
        raise
    except METADATA_ERRORS as error:
        raise corrupt_store(root / METADATA, f"attribute missing or unusable: {error!r}") from error


def write_checksums(group: Any, root: Location) -> None:
    """Write the checksums of a root group whose last array has been written."""
    below = len(str(root)) + 1
    files: list[Location] = sorted(root.rglob(METADATA), key=str)
    nodes = {
        str(file.parent)[below:]: digest_of(file.read_bytes())
        for file in files
        if file.parent != root
    }
    group.attrs.update({CHECKSUMS: nodes})
    group.attrs.update({CHECKSUM: _own_digest((root / METADATA).read_bytes())})


def root_attributes(root: Location) -> Mapping[str, Any]:
    """Return the attributes of a root group, after comparing metadata with their checksums."""
    if not root.is_dir():
        raise DataError(
            f"There is no store at {root}. Give the directory that mscam-dask ingest wrote "
            "(-o data.zarr), or run it first; other files have to be ingested before they are used."
        )
    file = root / METADATA
    if not file.is_file():
        # what lies below a directory may be anything, below a URL it is writes that have no name
        if any((root / node / METADATA).is_file() for node in _OURS) or (
            isinstance(root, ObjectPath) and any(root.rglob(METADATA))
        ):
            raise corrupt_store(file, "it is missing, and there are arrays below it")
        of_run = root / _STORE_OF_RUN
        hint = f" The store of this run is {of_run}." if of_run.is_dir() else ""
        raise DataError(
            f"{root} is not a Zarr v3 group (it has no zarr.json). Give the directory that "
            f"mscam-dask ingest wrote, or ingest this one first.{hint}"
        )
    content = read_metadata(file)
    try:
        metadata = json.loads(content)
        if metadata["zarr_format"] != 3 or metadata["node_type"] != "group":
            raise ValueError("it does not describe a Zarr v3 group")
        if unknown := metadata.keys() - _FIELDS:
            raise ValueError(f"fields that no Zarr v3 group has: {sorted(unknown)}")
        attributes: dict[str, Any] = dict(metadata.get("attributes") or {})
        if CHECKSUM in attributes and attributes[CHECKSUM] != _own_digest(content):
            raise ValueError("its content does not match its checksum")
    except METADATA_ERRORS as error:
        raise corrupt_store(file, f"no usable group metadata: {error}") from error
    for path, digest in attributes[CHECKSUMS].items() if CHECKSUM in attributes else ():
        node = root / path / METADATA
        if not node.is_file():
            raise corrupt_store(node, "it is missing")
        if digest_of(read_metadata(node)) != digest:
            raise corrupt_store(node, "its content does not match its checksum (SHA-256)")
    return attributes


def read_metadata(file: Location) -> bytes:
    """Content of a file of metadata, on a disk as `read_regular` reads it."""
    return file.read_bytes() if isinstance(file, ObjectPath) else read_regular(file)


def _own_digest(content: bytes) -> str:
    """Return the digest of a root's metadata without the checksum, independent of indentation."""
    metadata = json.loads(content)
    metadata["attributes"].pop(CHECKSUM, None)
    return digest_of(json.dumps(metadata, sort_keys=True).encode())


def digest_of(content: bytes) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(content).hexdigest()
