"""Reading one array of a store, whole or by chunks, each compared with its checksum."""

from __future__ import annotations

import socket
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.store import schema
from mscam_dask.data.store.checksums import METADATA_ERRORS, corrupt_store
from mscam_dask.data.store.object_store import Location, ObjectPath, translate_errors, zarr_place
from mscam_dask.errors import StoreCorruptError

__all__ = ["check_codecs", "open_array", "read_chunk", "read_sample_ids", "read_vector"]

# What its codecs raise for a chunk that is cut short or altered.
_CHUNK_ERRORS = (ValueError, RuntimeError, KeyError, TypeError, IndexError)


def open_array(root: Location, key: str) -> Any:
    """Open one array of a store; damaged metadata are a `StoreCorruptError`."""
    import zarr

    file = root / key / "zarr.json"
    if not file.is_file():
        raise _missing(root / key, file, "it is missing")
    with translate_errors(file):
        try:
            return zarr.open_array(zarr_place(root / key), mode="r", zarr_format=3)
        except METADATA_ERRORS as error:
            raise corrupt_store(file, f"no usable array metadata: {error}") from error


def read_chunk(array: Any, directory: Location, rows: slice) -> NDArray[Any]:
    """Read rows that lie in one chunk of an array chunked by rows."""
    index = (rows.start // array.chunks[0],) + (0,) * (array.ndim - 1)
    file = directory / array.metadata.encode_chunk_key(index)
    if not file.is_file():
        what = f"the chunk with rows {rows.start}:{rows.stop} is missing"
        raise _missing(directory, file, what)
    with translate_errors(file):
        try:
            return np.asarray(array[rows])
        except _CHUNK_ERRORS as error:
            raise corrupt_store(
                file, f"rows {rows.start}:{rows.stop} cannot be decoded ({error})"
            ) from error


def _missing(directory: Location, file: Location, what: str) -> StoreCorruptError:
    """The error of an array without one of its files, or of a store that is no longer there."""
    if isinstance(directory, ObjectPath) or any(
        (parent / "zarr.json").is_file() for parent in directory.parents
    ):
        return corrupt_store(file, what)
    return StoreCorruptError(
        f"{file} does not exist where it was read ({socket.gethostname()}), nor does its store: it was "
        "moved or removed after it was opened, or this Dask worker does not mount it. Put it where every "
        "worker sees it under this path, or give the path where it is now."
    )


def check_codecs(array: Any, file: Location) -> None:
    """Refuse an array without checksums: its damage could not be noticed."""
    codecs = [type(codec).__name__ for codec in array.metadata.codecs]
    if "Crc32cCodec" not in codecs:
        raise corrupt_store(file, f"its codecs {codecs} have no checksum (crc32c)")


def read_vector(root: Location, spec: schema.ArraySpec, length: int | None) -> NDArray[Any]:
    """Read a one-dimensional array whole; one of another length or type is damaged."""
    file = root / spec.key / "zarr.json"
    array = open_array(root, spec.key)
    check_codecs(array, file)
    if array.ndim != 1 or array.dtype.kind not in spec.kinds:
        raise corrupt_store(
            file, f"shape {array.shape}, dtype {array.dtype} where a vector was written"
        )
    if length is not None and array.shape[0] != length:
        raise corrupt_store(file, f"{array.shape[0]} entries, {length} expected")
    values = np.empty(array.shape, dtype=array.dtype)
    for start in range(0, len(values), array.chunks[0]):
        rows = slice(start, min(start + array.chunks[0], len(values)))
        values[rows] = read_chunk(array, root / spec.key, rows)
    return values


def read_sample_ids(root: Location, n_samples: int) -> tuple[str, ...]:
    """Read the ids of a store's samples."""
    buffer = read_vector(root, schema.SAMPLE_ID_BYTES, None).tobytes()
    offsets = read_vector(root, schema.SAMPLE_ID_OFFSETS, n_samples + 1)
    file = root / schema.SAMPLE_ID_OFFSETS.key
    if offsets[0] != 0 or offsets[-1] != len(buffer) or bool(np.any(np.diff(offsets) < 0)):
        raise corrupt_store(file, f"offsets do not cut the {len(buffer)} bytes of ids")
    edges = offsets.tolist()
    try:
        return tuple(buffer[start:stop].decode() for start, stop in pairwise(edges))
    except UnicodeDecodeError as error:
        raise corrupt_store(file, f"ids are not UTF-8 ({error})") from error
