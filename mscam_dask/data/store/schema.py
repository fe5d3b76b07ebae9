"""Data dictionary of a store: arrays by name, dimensions, type and meaning.

A store is one Zarr v3 group in a local or shared directory. Its layout, version 3::

    data.zarr/                          attributes: format, format_version, n_samples, n_views,
        |                               has_labels, has_sample_ids, label_names, origin, nodes,
        |                               checksum
        views/0                         attributes: feature_names and impute, optional
        views/0/values                  (sample, feature)   one array per view, by position
        views/1/values                  attributes: name, view_type, source_dtype, digest
        views/1/presence                (sample,)           only of views without some samples
        labels                          (sample,)           optional
        sample_ids/bytes                (byte,)             optional
        sample_ids/offsets              (edge,)

Rules: every array carries a crc32c checksum in each chunk (Zarr's default codecs decode a
flipped bit into wrong numbers without an error); every chunk is written, also when it is all
fill value (a missing chunk would read as zeros); dtypes are numeric, never object; a view's
name is an attribute, never part of a path. `feature_names` lists the names of a view's columns
where they have some, and `impute` is the method by which missing cells of the view were filled.

A chunk carries a checksum, but a `zarr.json` does not: with one bit flipped it can name another
view, another number of views or another type. The root's attribute ``nodes`` has the SHA-256 of
every other zarr.json, and ``checksum`` that of the root's own content without this attribute.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mscam_dask.data.store.object_store import Location, ObjectPath
from mscam_dask.errors import DataError, StoreCorruptError

__all__ = [
    "CHECKSUMS",
    "FEATURE_NAMES",
    "FORMAT",
    "FORMAT_VERSION",
    "IMPUTE",
    "LABELS",
    "METADATA_ERRORS",
    "N_PRESENT",
    "ORIGIN",
    "PRESENCE",
    "SAMPLE_ID_BYTES",
    "SAMPLE_ID_OFFSETS",
    "VALUES",
    "ArraySpec",
    "corrupt_store",
    "digest_of",
    "presence_key",
    "require_checksums",
    "root_attributes",
    "stored_dtype",
    "view_key",
    "write_checksums",
]

FORMAT = "mscam_dask.dataset"
FORMAT_VERSION = 3

FEATURE_NAMES = "feature_names"
"""Attribute of a view's group, not of its array, whose metadata are read with every block."""

IMPUTE = "impute"
"""Attribute of a view's group: the method by which its missing cells were filled, if one was asked for."""

ORIGIN = "origin"
"""Root attribute: rows of text, what the readers decided about the files; stores may lack it."""

N_PRESENT = "n_present"
"""Attribute of the values of a view that does not have all samples: the number of those it has."""


@dataclass(frozen=True)
class ArraySpec:
    """One entry of the data dictionary.

    Attributes
    ----------
    key
        Path inside the store; `{index}` is the position of a view.
    dims
        Names of the dimensions, written into the array.
    kinds
        NumPy kind letters its dtype may have.
    required
        Whether every store has it.
    description
        Meaning of the numbers.
    """

    key: str
    dims: tuple[str, ...]
    kinds: str
    required: bool
    description: str


VALUES = ArraySpec(
    key="views/{index}/values",
    dims=("sample", "feature"),
    kinds="biuf",
    required=True,
    description=(
        "Values of one view, one row per sample, chunked by rows only. Their meaning is in the "
        "attribute `view_type`: coordinates, distances (not squared; zero diagonal, symmetric) or a "
        "kernel (symmetric). Attributes: name, view_type, source_dtype, digest (SHA-256 of the "
        "shape and of the SHA-256 of each 8192 rows as little-endian float64)."
    ),
)
PRESENCE = ArraySpec(
    key="views/{index}/presence",
    dims=("sample",),
    kinds="b",
    required=False,
    description=(
        "Whether the view has each sample, for views that do not have all. Rows of absent samples are NaN "
        "in the values, as are columns in distance and kernel views; the digest is of the other "
        "rows and columns. The attribute n_present of the values is the number of samples."
    ),
)
LABELS = ArraySpec(
    key="labels",
    dims=("sample",),
    kinds="i",
    required=False,
    description=(
        "Ground truth, int64, for evaluation only. The group's attribute label_names gives the "
        "names of 0, 1, ... where labels were text."
    ),
)
SAMPLE_ID_BYTES = ArraySpec(
    key="sample_ids/bytes",
    dims=("byte",),
    kinds="u",
    required=False,
    description="All sample ids as UTF-8, one after the other, uint8.",
)
SAMPLE_ID_OFFSETS = ArraySpec(
    key="sample_ids/offsets",
    dims=("edge",),
    kinds="i",
    required=False,
    description="Sample i's id is bytes[offsets[i]:offsets[i + 1]]; int64, n + 1 of them.",
)


def view_key(index: int) -> str:
    """Path of the values of the view at a position."""
    return VALUES.key.format(index=index)


def presence_key(index: int) -> str:
    """Path of the presence of the samples in the view at a position."""
    return PRESENCE.key.format(index=index)


def stored_dtype(source: np.dtype[Any]) -> np.dtype[Any]:
    """Little-endian type in which a view's values are stored, exact for all float64 can hold.

    Types that convert to float64 without loss are kept (bool, integers up to 32 bits, float16,
    float32, float64); wider ones (int64, uint64, extended precision) are stored as the float64
    they are computed in.
    """
    if np.can_cast(source, np.float64, casting="safe") and source.itemsize <= 8:
        exact = source.kind == "f" or source.itemsize < 8
        return source.newbyteorder("<") if exact else np.dtype("<f8")
    return np.dtype("<f8")


CHECKSUMS = "nodes"
"""Attribute of the root group: path of each node -> SHA-256 of its zarr.json."""

_CHECKSUM = "checksum"
_METADATA = "zarr.json"
_STORE_OF_RUN = "data.zarr"

# Of stores and of results.
_NODES_OF_OURS = (view_key(0), "labels", "consensus_graph")
_RESTORE = "Restore the file from a copy, or ingest the original data again."

# Fields of a group in the Zarr v3 specification, and the one that zarr-python adds.
_FIELDS = frozenset({"zarr_format", "node_type", "attributes", "consolidated_metadata"})

# What Zarr 3 raises for metadata that are cut short, altered or of another kind.
METADATA_ERRORS = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)


def corrupt_store(file: Location, what: str) -> StoreCorruptError:
    """Return the error for a damaged file."""
    return StoreCorruptError(f"{file} is damaged: {what}. {_RESTORE}")


def write_checksums(group: Any, root: Location) -> None:
    """Write the checksums of a store whose last array has been written.

    Parameters
    ----------
    group
        Its root group, writable.
    root
        Location of the store.
    """
    below = len(str(root)) + 1
    files: list[Location] = sorted(root.rglob(_METADATA), key=str)
    nodes = {
        str(file.parent)[below:]: digest_of(file.read_bytes())
        for file in files
        if file.parent != root
    }
    group.attrs.update({CHECKSUMS: nodes})
    group.attrs.update({_CHECKSUM: _own_digest((root / _METADATA).read_bytes())})


def root_attributes(root: Location) -> Mapping[str, Any]:
    """Return the attributes of a root group, after comparing metadata with their checksums.

    Raises
    ------
    DataError
        When there is no group.
    StoreCorruptError
        When its metadata, or those of a node with a checksum, are damaged or missing.
    """
    if not root.is_dir():
        raise DataError(
            f"There is no store at {root}. Give the directory that mscam-dask ingest wrote "
            "(-o data.zarr), or run it first; other files have to be ingested before they are used."
        )
    file = root / _METADATA
    if not file.is_file():
        # what lies below a directory may be anything, below a URL it is writes that have no name
        if any((root / node / _METADATA).is_file() for node in _NODES_OF_OURS) or (
            isinstance(root, ObjectPath) and any(root.rglob(_METADATA))
        ):
            raise corrupt_store(file, "it is missing, and there are arrays below it")
        of_run = root / _STORE_OF_RUN
        hint = f" The store of this run is {of_run}." if of_run.is_dir() else ""
        raise DataError(
            f"{root} is not a Zarr v3 group (it has no zarr.json). Give the directory that "
            f"mscam-dask ingest wrote, or ingest this one first.{hint}"
        )
    content = file.read_bytes()
    try:
        metadata = json.loads(content)
        if metadata["zarr_format"] != 3 or metadata["node_type"] != "group":
            raise ValueError("it does not describe a Zarr v3 group")
        if unknown := [name for name, value in metadata.items() if not _is_known(name, value)]:
            raise ValueError(f"fields that no Zarr v3 group has: {unknown}")
        attributes: dict[str, Any] = dict(metadata.get("attributes") or {})
        if _CHECKSUM in attributes and attributes[_CHECKSUM] != _own_digest(content):
            raise ValueError("its content does not match its checksum")
    except METADATA_ERRORS as error:
        raise corrupt_store(file, f"no usable group metadata: {error}") from error
    if _CHECKSUM in attributes:
        _check_nodes(root, attributes[CHECKSUMS])
    return attributes


def require_checksums(root: Location, attributes: Mapping[str, Any]) -> None:
    """Refuse a store without a checksum.

    Raises
    ------
    StoreCorruptError
        Naming the root's metadata.
    """
    if _CHECKSUM not in attributes:
        raise corrupt_store(root / _METADATA, "its checksum is missing")


def _is_known(name: str, value: Any) -> bool:
    """Whether the specification has a field, or lets readers pass over it."""
    return name in _FIELDS or (isinstance(value, dict) and value.get("must_understand") is False)


def _check_nodes(root: Location, nodes: Mapping[str, str]) -> None:
    for path, digest in nodes.items():
        file = root / path / _METADATA
        if not file.is_file():
            raise corrupt_store(file, "it is missing")
        if digest_of(file.read_bytes()) != digest:
            raise corrupt_store(file, "its content does not match its checksum (SHA-256)")


def _own_digest(content: bytes) -> str:
    """Return the digest of a root's metadata without the checksum, independent of indentation."""
    metadata = json.loads(content)
    metadata["attributes"] = {
        name: value for name, value in metadata["attributes"].items() if name != _CHECKSUM
    }
    return digest_of(json.dumps(metadata, sort_keys=True).encode())


def digest_of(content: bytes) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(content).hexdigest()
