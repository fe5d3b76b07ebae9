"""Read a store: every chunk is verified by its checksum, and a missing chunk is an error."""

from __future__ import annotations

import hashlib
import json
import socket
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.store import schema
from mscam_dask.data.store.atomic_replace import resolve_current
from mscam_dask.data.store.object_store import (
    Location,
    ObjectPath,
    as_location,
    translate_errors,
    zarr_place,
)
from mscam_dask.data.store.schema import (
    CHECKSUMS,
    METADATA_ERRORS,
    corrupt_store,
    require_checksums,
    root_attributes,
)
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.presence import PresentRows
from mscam_dask.data.views.sources import (
    VIEW_TYPES,
    ViewType,
    as_rows,
    check_row_range,
    view_digest,
)
from mscam_dask.errors import DataError, StoreCorruptError
from mscam_dask.types.parameters import ImputeMethod

__all__ = [
    "ZarrRows",
    "check_codecs",
    "is_store",
    "open_array",
    "open_store",
    "read_chunk",
    "read_origin",
    "verify_store",
]

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
    """Return the error for an array without one of its files, or for a store that is gone."""
    if isinstance(directory, ObjectPath) or any(
        (parent / "zarr.json").is_file() for parent in directory.parents
    ):
        return corrupt_store(file, what)
    return StoreCorruptError(
        f"{file} does not exist where it was read ({socket.gethostname()}), nor does its store: it was "
        "moved or removed after it was opened, or this Dask worker does not mount it. Put it where every "
        "worker sees it under this path, or give its present path."
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


@dataclass(frozen=True, eq=False)
class ZarrRows:
    """A view in a store, opened by the process that reads it.

    Parameters
    ----------
    path
        Absolute path or URL of the store; workers must see it under the same name.
    key
        Path of the array inside the store.
    name, view_type, shape, dtype
        See `RowSource`; as recorded when the store was written.
    chunk_size
        Rows of a chunk.
    recorded_digest
        `view_digest` of the values when they were written.
    metadata_sha256
        Digest of the array's zarr.json when it was written.

    Notes
    -----
    Pickles to a few hundred bytes. Memory of a read: the rows asked for plus one chunk.
    """

    path: str
    key: str
    name: str
    view_type: ViewType
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    chunk_size: int
    recorded_digest: str
    metadata_sha256: str

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns, None where they have none; read at their first use.

        Raises
        ------
        StoreCorruptError
            When the store's metadata are not usable.
        """
        names = self._group_attribute(schema.FEATURE_NAMES)
        return None if names is None else tuple(names)

    @property
    def impute(self) -> ImputeMethod | None:
        """Method by which missing cells were filled, None where none was asked for; read when asked for.

        Raises
        ------
        StoreCorruptError
            As `feature_names`.
        """
        method: ImputeMethod | None = self._group_attribute(schema.IMPUTE)
        return method

    def _group_attribute(self, name: str) -> Any:
        file = as_location(self.path) / self.key.rpartition("/")[0] / "zarr.json"
        with translate_errors(file):
            try:
                return json.loads(file.read_bytes())["attributes"].get(name)
            except (OSError, *METADATA_ERRORS) as error:
                raise corrupt_store(file, f"no usable group metadata: {error}") from error

    def read(self, start: int, stop: int) -> NDArray[np.float64]:
        """Return rows start..stop-1 as read-only float64.

        Raises
        ------
        StoreCorruptError
            When a chunk is missing or fails its checksum, or the array is no longer the one
            that was opened; the message names the file.
        """
        check_row_range(self, start, stop)
        root = as_location(self.path)
        array = open_array(root, self.key)
        if array.shape != self.shape or array.dtype != self.dtype:
            raise StoreCorruptError(
                f"View {self.name!r} in {self.path} is now {array.shape} {array.dtype}; it was "
                f"{self.shape} {self.dtype} when the store was opened. Another program replaced "
                "it: open the store again."
            )
        self._check_unreplaced(root)
        rows = np.empty((stop - start, self.shape[1]), dtype=np.float64)
        for first in range(start - start % self.chunk_size, stop, self.chunk_size):
            begin, end = max(first, start), min(first + self.chunk_size, stop)
            rows[begin - start : end - start] = read_chunk(
                array, root / self.key, slice(begin, end)
            )
        if isinstance(root, Path):  # what lies at a URL is never replaced in its place
            self._check_unreplaced(root)
        return as_rows(rows)

    def _check_unreplaced(self, root: Location) -> None:
        metadata = root / self.key / "zarr.json"
        if hashlib.sha256(metadata.read_bytes()).hexdigest() != self.metadata_sha256:
            raise corrupt_store(metadata, "it is not what it was when the store was opened")


def is_store(path: str | Location) -> bool:
    """Return whether a place is a store of this package, of any version, damaged or not."""
    root = as_location(path)
    try:
        root = resolve_current(root)
    except StoreCorruptError:
        return True  # nobody else has such a pointer
    try:
        return bool(root_attributes(root).get("format") == schema.FORMAT)
    except StoreCorruptError:
        return (root / schema.view_key(0)).is_dir()
    except DataError:
        return False


def open_store(path: str | Location) -> MultiViewData:
    """Open a store written by `ingest`; values are read at their first use.

    Parameters
    ----------
    path
        Directory of the store, or its URL (s3://, gs://, az://, file://).

    Returns
    -------
    MultiViewData
        Whose views are `ZarrRows`, or a `PresentRows` of one for a view without some samples.

    Raises
    ------
    DataError
        When there is no store at the path, or it was written by a newer version.
    StoreCorruptError
        When metadata, ids or labels are damaged; the message names the file.
    ConfigurationError, TemporaryFailure
        When an object store cannot be read; see `mscam_dask.data.store.object_store.translate_errors`.
    """
    root = resolve_current(as_location(path).absolute())
    attributes = root_attributes(root)
    if attributes.get("format") != schema.FORMAT:
        raise DataError(
            f"{root} is a Zarr group, but not a store of this package (format="
            f"{attributes.get('format')!r}). Run mscam-dask ingest {path} -o data.zarr first."
        )
    if attributes.get("format_version") != schema.FORMAT_VERSION:
        raise DataError(
            f"{root} has format version {attributes.get('format_version')!r}; this version reads "
            f"{schema.FORMAT_VERSION}. Upgrade mscam_dask, or ingest the original data again."
        )
    require_checksums(root, attributes)
    try:
        n_samples, n_views = int(attributes["n_samples"]), int(attributes["n_views"])
        has_labels, has_ids = bool(attributes["has_labels"]), bool(attributes["has_sample_ids"])
        names = attributes["label_names"]
        label_names = None if names is None else tuple(str(name) for name in names)
    except METADATA_ERRORS as error:
        raise corrupt_store(
            root / "zarr.json", f"attribute missing or unusable: {error!r}"
        ) from error
    keys = [schema.view_key(index) for index in range(n_views)]
    views = tuple(
        _with_presence(root, index, _view(root, key, n_samples, attributes[CHECKSUMS].get(key, "")))
        for index, key in enumerate(keys)
    )
    return MultiViewData(
        views=views,
        sample_ids=read_sample_ids(root, n_samples) if has_ids else None,
        labels=read_vector(root, schema.LABELS, n_samples).astype(np.int64) if has_labels else None,
        label_names=label_names,
    )


def read_origin(path: str | Location) -> tuple[dict[str, str], ...]:
    """Return what the readers decided about the files of a store, as `write_store` was given it.

    Parameters
    ----------
    path
        As for `open_store`.

    Returns
    -------
    tuple of dict
        Empty for a store that was written without it.

    Raises
    ------
    DataError, StoreCorruptError, ConfigurationError, TemporaryFailure
        As `open_store`.
    """
    root = resolve_current(as_location(path).absolute())
    rows = root_attributes(root).get(schema.ORIGIN, ())
    return tuple({str(name): str(value) for name, value in row.items()} for row in rows)


def verify_store(path: str | Location) -> MultiViewData:
    """Open a store and compare the digest of every view with the recorded one.

    Raises
    ------
    StoreCorruptError
        When a view's values are not those that were written.
    """
    data = open_store(path)
    for view in data.views:
        stored = view.source if isinstance(view, PresentRows) else view
        assert isinstance(stored, ZarrRows)
        found = view_digest(view)
        if found != stored.recorded_digest:
            raise corrupt_store(
                as_location(stored.path) / stored.key,
                f"view {view.name!r} has digest {found[:16]}..., recorded is "
                f"{stored.recorded_digest[:16]}...",
            )
    return data


def _with_presence(root: Location, index: int, view: ZarrRows) -> ZarrRows | PresentRows:
    """Return a view restricted to the samples that it has."""
    n_present = open_array(root, view.key).attrs.get(schema.N_PRESENT)
    if n_present is None:
        return view
    spec = replace(schema.PRESENCE, key=schema.presence_key(index))
    samples = np.flatnonzero(read_vector(root, spec, view.shape[0]))
    if len(samples) != n_present:
        raise corrupt_store(
            root / spec.key / "zarr.json", f"{len(samples)} samples, {n_present!r} expected"
        )
    return PresentRows(view, samples)


def _view(root: Location, key: str, n_samples: int, metadata_sha256: str) -> ZarrRows:
    file = root / key / "zarr.json"
    array = open_array(root, key)
    check_codecs(array, file)
    if array.ndim != 2 or array.shape[0] != n_samples or array.chunks[1] < array.shape[1]:
        raise corrupt_store(
            file,
            f"shape {array.shape} in chunks {array.chunks} is not ({n_samples}, d) chunked by rows",
        )
    attributes = dict(array.attrs)
    view_type = attributes.get("view_type")
    texts = [attributes.get(field) for field in ("name", "source_dtype", "digest")]
    if view_type not in VIEW_TYPES or not all(isinstance(text, str) for text in texts):
        raise corrupt_store(
            file, f"name, view_type, source_dtype or digest unusable in {attributes}"
        )
    try:
        expected = schema.stored_dtype(np.dtype(attributes["source_dtype"]))
    except (TypeError, ValueError) as error:
        raise corrupt_store(file, f"source_dtype unusable in {attributes}") from error
    if array.dtype.kind not in schema.VALUES.kinds or array.dtype != expected:
        raise corrupt_store(file, f"dtype {array.dtype} where {expected} was written")
    return ZarrRows(
        path=str(root),
        key=key,
        name=attributes["name"],
        view_type=view_type,
        shape=array.shape,
        dtype=array.dtype,
        chunk_size=array.chunks[0],
        recorded_digest=attributes["digest"],
        metadata_sha256=metadata_sha256,
    )
