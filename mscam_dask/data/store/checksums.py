"""Checksums of a store's metadata, in attributes of its root group.

A chunk carries a checksum, but a `zarr.json` does not: with one bit flipped it can name another
view, another number of views or another type. The root's attribute ``nodes`` has the SHA-256 of
every other zarr.json, and ``checksum`` that of the root's own content without this attribute.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from mscam_dask.data.store.object_store import Location, ObjectPath
from mscam_dask.data.store.schema import view_key
from mscam_dask.errors import DataError, StoreCorruptError

__all__ = [
    "CHECKSUMS",
    "METADATA_ERRORS",
    "corrupt_store",
    "digest_of",
    "require_checksums",
    "root_attributes",
    "write_checksums",
]

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
