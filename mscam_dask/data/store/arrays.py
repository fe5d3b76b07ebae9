"""Arrays of a Zarr group whose damage is noticed: a checksum in each chunk, and every chunk written.

Zarr's default codecs decode a flipped bit into wrong numbers, and a missing chunk reads as zeros.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.store.object_store import (
    Location,
    ObjectPath,
    translate_errors,
    zarr_place,
)
from mscam_dask.data.store.schema import (
    CHECKSUMS,
    METADATA,
    METADATA_ERRORS,
    corrupt_store,
    read_metadata,
)
from mscam_dask.errors import StoreCorruptError

CHUNK_BYTES = 8 * 2**20
"""Uncompressed bytes of a chunk, unless the number of rows is given."""

# Exceptions of codecs for a chunk that is cut short or altered.
_CHUNK_ERRORS = (ValueError, RuntimeError, KeyError, TypeError, IndexError)


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
