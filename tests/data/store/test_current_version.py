"""The pointer to the current version of a store among objects, on a store in memory."""

from __future__ import annotations

import hashlib
import json
import uuid

import pytest

from mscam_dask.data.store.atomic_replace import (
    WRITES,
    is_taken,
    resolve_current,
    set_current,
)
from mscam_dask.data.store.object_store import ObjectPath
from mscam_dask.data.store.read import open_store
from mscam_dask.errors import StoreCorruptError, TemporaryFailure
from tests.data.object_servers import MemoryFiles

ROOT = ObjectPath("s3://bucket/deep/data.zarr")


@pytest.fixture
def files(object_files: MemoryFiles) -> MemoryFiles:
    return object_files


def written(metadata: bytes = b"{}") -> ObjectPath:
    """A finished write that is not published."""
    place = ROOT / WRITES / uuid.uuid4().hex
    (place / "zarr.json").write_bytes(metadata)
    (place / "values" / "c" / "0").write_bytes(b"chunk")
    return place


def pointer(place: ObjectPath, metadata: bytes) -> bytes:
    content = {"store": f"writes/{place.name}", "sha256": hashlib.sha256(metadata).hexdigest()}
    return json.dumps(content).encode()


def test_a_store_that_was_copied_there_is_removed_and_no_write_is(files: MemoryFiles) -> None:
    unfinished = written()
    assert not is_taken(ROOT)  # nothing was published
    with pytest.raises(StoreCorruptError):
        open_store(str(ROOT))
    (ROOT / "zarr.json").write_bytes(b"{}")
    (ROOT / "values" / "c" / "0").write_bytes(b"chunk")
    neighbor = ObjectPath(f"{ROOT}2") / "zarr.json"
    neighbor.write_bytes(b"{}")
    assert is_taken(ROOT)
    place = written()
    set_current(ROOT, place)
    assert resolve_current(ROOT) == place
    left = {ROOT / "current.json", *place.sizes(), *unfinished.sizes()}
    assert set(ROOT.sizes()) == left
    assert neighbor.is_file()


@pytest.mark.parametrize("n_replaced", [0, 2, 3])
def test_a_store_that_is_replaced_between_two_requests_is_looked_up_again(
    files: MemoryFiles, n_replaced: int
) -> None:
    metadata = b'{"last": true}'
    set_current(ROOT, written())
    replacements = [written(metadata) for _ in range(n_replaced)]

    def replaced(url: str) -> None:
        if url.endswith("/zarr.json") and replacements:
            old = url.removesuffix("/zarr.json")
            for name in [name for name in files.content if name.startswith(f"{old}/")]:
                del files.content[name]
            place = replacements.pop(0)
            files.content[f"{ROOT}/current.json"] = pointer(place, metadata)

    files.before_read = replaced
    if n_replaced < 3:
        place = resolve_current(ROOT)
        assert (place / "zarr.json").is_file()
    else:
        with pytest.raises(StoreCorruptError):
            resolve_current(ROOT)
    assert not replacements


def named(store: str) -> bytes:
    return json.dumps({"store": store, "sha256": 64 * "0"}).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        b'{"store": "\xff", "sha256": ""}',
        named("writes/" + 33 * "0"),
        named("../" + 32 * "0"),
        json.dumps({"store": "writes/" + 32 * "0", "sha256": "", "version": 2}).encode(),
    ],
)
def test_a_damaged_pointer_is_told(files: MemoryFiles, content: bytes) -> None:
    (ROOT / "current.json").write_bytes(content)
    with pytest.raises(StoreCorruptError):
        resolve_current(ROOT)


def test_other_content_than_the_pointer_says_is_told(files: MemoryFiles) -> None:
    place = written()
    (ROOT / "current.json").write_bytes(named(f"writes/{place.name}"))
    with pytest.raises(StoreCorruptError):
        resolve_current(ROOT)


@pytest.mark.parametrize(
    "error",
    [ConnectionResetError, type("Foreign", (Exception,), {"__module__": "botocore.exceptions"})],
)
def test_errors_of_the_libraries_are_typed_and_others_are_not(
    files: MemoryFiles, error: type[Exception]
) -> None:
    def fail(_url: str) -> None:
        raise error("the connection was reset")

    files.before_read = fail
    with pytest.raises(TemporaryFailure):
        resolve_current(ROOT)
    error = RuntimeError
    with pytest.raises(RuntimeError):
        resolve_current(ROOT)
