"""The n-th operation of a checkpoint fails, for every n: the last or the one before is there."""

from __future__ import annotations

import errno
import functools
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mscam_dask.data.checkpoint_format import decode_arrays, encode_array
from mscam_dask.data.checkpoints import CURRENT, Checkpoint, FileCheckpointStore
from mscam_dask.errors import TemporaryFailure
from tests.faults.memory_disk import FailingFiles, Loss, MemoryDisk, PowerCut
from tests.messages import quotes

pytestmark = pytest.mark.faults

WHERE = Path("/runs/1/checkpoints")


@pytest.fixture(autouse=True, scope="module")
def encoded_once() -> Iterator[None]:
    """The same three states are written hundreds of times: their Zarr bytes are kept."""
    encode, decode = encode_array, decode_arrays

    @functools.cache
    def encoded(name: str, dtype: str, shape: tuple[int, ...], content: bytes) -> Any:
        return tuple(encode(name, np.frombuffer(content, dtype=dtype).reshape(shape)))

    @functools.cache
    def decoded(content: bytes) -> Any:
        return decode(pickle.loads(content))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "mscam_dask.data.checkpoint_format.encode_array",
            lambda name, values: encoded(name, values.dtype.str, values.shape, values.tobytes()),
        )
        patch.setattr(
            "mscam_dask.data.checkpoint_format.decode_arrays",
            lambda files: decoded(pickle.dumps(files)),
        )
        yield


@functools.cache
def state(number: int) -> Checkpoint:
    rng = np.random.default_rng(number)
    arrays = {"graph_data": rng.standard_normal(30), "best_labels": np.arange(9) + number}
    return Checkpoint(arrays, {"iteration": number})


def number_in(store: FileCheckpointStore) -> int | None:
    """Which state a store gives back, all of it of that state; None for none."""
    found = store.load()
    if found is None:
        return None
    expected = state(found.record["iteration"])
    assert found.arrays.keys() == expected.arrays.keys()
    for name, values in expected.arrays.items():
        assert found.arrays[name].tobytes() == values.tobytes()
    return int(found.record["iteration"])


@functools.cache
def disk_with(count: int) -> MemoryDisk:
    """A disk on which states 0 .. count-1 were saved."""
    disk = MemoryDisk()
    for number in range(count):
        FileCheckpointStore(WHERE, files=disk).save(state(number))
    return disk


def changes_of_save(count: int) -> list[str]:
    """The operations of saving state `count` after those before it."""
    files = FailingFiles(disk_with(count).copy(), 0, errno.EIO)
    FileCheckpointStore(WHERE, files=files).save(state(count))
    return files.changes


def allowed(count: int) -> set[int | None]:
    """States that may be found after saving state `count` was cut off."""
    return {count, count - 1} if count else {0, None}


def assert_goes_on(disk: MemoryDisk, count: int) -> None:
    """The next process sweeps, saves and finds what it saved."""
    store = FileCheckpointStore(WHERE, files=disk)
    store.save(state(count))
    assert number_in(store) == count
    assert store.damage == ()
    names = disk.names(WHERE)
    assert CURRENT in names
    assert len(names) <= 3
    assert not any(name.endswith(".partial") for name in names)


def test_every_kind_of_operation_is_among_them() -> None:
    assert set(changes_of_save(0)) == {"mkdir", "write", "sync", "rename"}
    assert set(changes_of_save(2)) == {"mkdir", "write", "sync", "rename", "unlink", "rmdir"}


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_an_error_leaves_the_last_or_the_one_before(count: int, error: int) -> None:
    total = len(changes_of_save(count))
    for nth in range(1, total + 1):
        disk = disk_with(count).copy()
        failing = FailingFiles(disk, nth, error)
        full = error in (errno.ENOSPC, errno.EDQUOT)
        with pytest.raises(TemporaryFailure, match=quotes(WHERE)) as caught:
            FileCheckpointStore(WHERE, files=failing).save(state(count))
        assert full or os.strerror(error) in str(caught.value)
        assert isinstance(caught.value.__cause__, OSError)
        assert caught.value.__cause__.errno == error
        assert caught.value.exit_code == 75
        reopened = FileCheckpointStore(WHERE, files=disk)
        assert number_in(reopened) in allowed(count), failing.changes
        # the same process goes on as soon as it can, and so does the next
        FileCheckpointStore(WHERE, files=failing).save(state(count))
        assert number_in(FileCheckpointStore(WHERE, files=disk)) == count
        assert_goes_on(disk, count + 1)


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("loss", ["nothing", "contents", "everything"])
def test_a_power_cut_leaves_the_last_or_the_one_before(count: int, loss: Loss) -> None:
    for nth in range(1, len(changes_of_save(count)) + 1):
        disk = disk_with(count).copy()
        failing = FailingFiles(disk, nth, "power cut")
        with pytest.raises(PowerCut):
            FileCheckpointStore(WHERE, files=failing).save(state(count))
        found = disk.after_power_cut(loss)
        store = FileCheckpointStore(WHERE, files=found)
        assert number_in(store) in allowed(count), (nth, failing.changes)
        assert store.damage == () or count == 0  # before the first CURRENT there is none to find
        assert_goes_on(found, count)


def test_what_was_saved_survives_any_power_cut() -> None:
    for loss in ("nothing", "contents", "everything"):
        store = FileCheckpointStore(WHERE, files=disk_with(3).after_power_cut(loss))
        assert number_in(store) == 2
        assert store.damage == ()


def test_the_disk_of_these_tests_does_forget() -> None:
    """Without this the power cuts above would prove nothing."""
    disk = MemoryDisk()
    disk.mkdir(Path("/a"))
    disk.write(Path("/a/b"), b"x")
    assert disk.after_power_cut("nothing").read(Path("/a/b")) == b"x"
    assert disk.after_power_cut("contents").read(Path("/a/b")) == b""
    assert disk.after_power_cut("everything").names(Path("/")) == []
    disk.sync(Path("/a/b"))
    disk.sync(Path("/"))
    assert disk.after_power_cut("everything").names(Path("/a")) == []
    disk.sync(Path("/a"))
    assert disk.after_power_cut("everything").read(Path("/a/b")) == b"x"
