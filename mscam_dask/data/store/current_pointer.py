"""Which of the writes below a URL is the store: one small object, replaced last.

An object store has no rename. A store at ``s3://bucket/data.zarr`` is therefore written below
``writes/<id>``, read back, and named by the object ``current.json``, which is replaced in one
request: readers find the old store or the new one. A store that was copied there as it is (its
zarr.json lies at the URL itself, no ``current.json``) is read as well.
"""

from __future__ import annotations

import re
import uuid
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from mscam_dask.data.store.atomic_replace import recover
from mscam_dask.data.store.checksums import corrupt_store, digest_of
from mscam_dask.data.store.object_store import Location, ObjectPath
from mscam_dask.errors import MscamError

__all__ = ["is_name_taken", "new_version", "resolve_current", "set_current"]

_POINTER = "current.json"
_WRITES = "writes"
_METADATA = "zarr.json"
_ATTEMPTS = 3


class _Pointer(Struct, frozen=True, forbid_unknown_fields=True):
    """Content of current.json: the write, and SHA-256 of its zarr.json."""

    store: str
    sha256: str


def resolve_current(root: Location) -> Location:
    """Return where the store of this name lies now; a directory is its own, put back if need be.

    Raises
    ------
    StoreCorruptError
        When current.json or what it names is damaged.
    DataError
        When a killed writer left a directory without its name, and it cannot be put back.
    """
    if isinstance(root, Path):
        recover(root)
        return root
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            content = (root / _POINTER).read_bytes()
        except FileNotFoundError:
            return root
        place, sha256 = _decoded(root, content)
        try:
            found = digest_of((place / _METADATA).read_bytes())
        except FileNotFoundError as error:
            if attempt < _ATTEMPTS:
                continue  # replaced between the two requests
            raise corrupt_store(
                place / _METADATA, f"it is missing, and {root / _POINTER} names it"
            ) from error
        if found != sha256:
            raise corrupt_store(
                place / _METADATA, f"its content is not what {root / _POINTER} says"
            )
        return place
    raise AssertionError


def _decoded(root: ObjectPath, content: bytes) -> tuple[ObjectPath, str]:
    try:
        pointer = msgspec.json.decode(content, type=_Pointer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise corrupt_store(root / _POINTER, f"it names no store ({error})") from error
    if not re.fullmatch(rf"{_WRITES}/[0-9a-f]{{32}}", pointer.store):
        raise corrupt_store(root / _POINTER, f"it names {pointer.store!r}, which is no write")
    return root / pointer.store, pointer.sha256


def is_name_taken(root: ObjectPath) -> bool:
    """Whether there is anything but writes that were never published."""
    return any(not file.url.startswith(f"{root}/{_WRITES}/") for file in root.sizes())


def new_version(root: ObjectPath) -> ObjectPath:
    """A place below a URL that nobody writes to."""
    return root / _WRITES / uuid.uuid4().hex


def set_current(root: ObjectPath, place: ObjectPath) -> None:
    """Make a finished write the store, and remove the one it replaces.

    When replacing the pointer fails nothing is removed: the answer may have been lost only.
    """
    replaced = resolve_current(root)
    pointer = _Pointer(f"{_WRITES}/{place.name}", digest_of((place / _METADATA).read_bytes()))
    (root / _POINTER).write_bytes(msgspec.json.encode(pointer))
    kept = (f"{root}/{_WRITES}/", f"{root}/{_POINTER}")
    assert isinstance(replaced, ObjectPath)
    with suppress(MscamError):  # the store is there; what is left over costs space only
        old = list(replaced.sizes())
        if replaced == root:
            old = [file for file in old if not file.url.startswith(kept)]
        root.remove(old)
