"""Layout of a store, and the checksums of its metadata, which stores, results and checkpoints share.

A store is one Zarr v3 group in a directory or an object store. Its layout, version 3::

    data.zarr/                   attributes: format, format_version, n_samples, n_views, has_labels,
        |                        has_sample_ids, label_names, origin, nodes, checksum
        views/0                  attributes: feature_names and impute, where the view has them
        views/0/values           (sample, feature) numbers, chunked by rows; attributes: name,
        |                        view_type, source_dtype, digest, n_present
        views/1/presence         (sample,) bool, of views without some samples
        labels                   (sample,) int64, optional; position in label_names where these are text
        sample_ids/bytes         (byte,) uint8, optional: all ids as UTF-8, one after the other
        sample_ids/offsets       (edge,) int64: sample i has bytes[offsets[i]:offsets[i + 1]]

`digest` is the SHA-256 of the shape and of the SHA-256 of each 8192 rows as little-endian float64.
Rows of absent samples are NaN, as are columns in distance and kernel views; `digest` is that of the
other rows and columns, and `n_present` their number. `impute` is the method by which missing cells were
filled, `origin` the table of what the readers decided about the files.

Each chunk has a checksum (`mscam_dask.data.store.arrays`), but a `zarr.json` does not: with one bit
flipped it can name another view or another type. The root's attribute ``nodes`` has the SHA-256 of every
other zarr.json, and ``checksum`` that of the root's own content without this attribute.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from mscam_dask.data.store.filesystem import check_tree, read_regular
from mscam_dask.data.store.object_store import Location, ObjectPath
from mscam_dask.errors import DataError, MscamError, StoreCorruptError

FORMAT = "mscam_dask.dataset"
FORMAT_VERSION = 3

LABELS = "labels"
SAMPLE_ID_BYTES, SAMPLE_ID_OFFSETS = "sample_ids/bytes", "sample_ids/offsets"

# Attributes, of a view's group (its array's metadata are read with every block), its values, the root.
FEATURE_NAMES, IMPUTE = "feature_names", "impute"
N_PRESENT = "n_present"
ORIGIN = "origin"

METADATA = "zarr.json"

CHECKSUMS = "nodes"
"""Attribute of the root group: path of each node -> SHA-256 of its zarr.json."""

CHECKSUM = "checksum"
"""Attribute of the root group: digest of its own zarr.json, which is written last."""

_STORE_OF_RUN = "data.zarr"

REMEDY = "Restore the file from a copy, or ingest the original data again."

# Fields of a group in the Zarr v3 specification, and the one that zarr-python adds.
_FIELDS = frozenset({"zarr_format", "node_type", "attributes", "consolidated_metadata"})

# Exceptions of Zarr 3 for metadata that are cut short, altered or of another kind.
METADATA_ERRORS = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)


def view_key(index: int) -> str:
    """Path of the values of the view at a position."""
    return f"views/{index}/values"


def presence_key(index: int) -> str:
    """Path of the presence of the samples in the view at a position."""
    return f"views/{index}/presence"


def stored_dtype(source: np.dtype[Any]) -> np.dtype[Any]:
    """Little-endian type in which values are stored: their own if float64 holds it exactly, else float64."""
    exact = source.itemsize < 8 or source.newbyteorder("=") == np.float64
    return source.newbyteorder("<") if exact else np.dtype("<f8")


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


def checked_attributes(
    root: Location, kind: str, version: int, *, other: str, again: str, oldest: int | None = None
) -> Mapping[str, Any]:
    """Return the attributes of a root of one format, `oldest` to `version`; `other`, `again` are remedies."""
    attributes = root_attributes(root)
    if attributes.get("format") != kind:
        raise DataError(
            f"{root} is a Zarr group of another kind (format={attributes.get('format')!r}, not {kind!r}). "
            f"{other}"
        )
    if attributes.get("format_version") not in range(oldest or version, version + 1):
        raise DataError(
            f"{root} has format version {attributes.get('format_version')!r}; this version reads "
            f"{version}. Upgrade mscam_dask, or {again}."
        )
    if not isinstance(root, ObjectPath):
        check_tree(root)
    if CHECKSUM not in attributes:
        raise corrupt_store(root / METADATA, "its checksum is missing")
    return attributes


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
        ours = (view_key(0), LABELS, "consensus_graph", "record")
        if any((root / node / METADATA).is_file() for node in ours) or (
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
