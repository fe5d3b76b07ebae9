"""The n-th change of files by a checkpoint fails, or the power is cut: the last or the one before is there."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mscam_dask.data.checkpoints import Checkpoint, FileCheckpointStore
from mscam_dask.data.store.atomic_replace import POINTER
from mscam_dask.errors import TemporaryFailure
from tests.faults.memory_disk import MemoryDisk
from tests.faults.test_power_cuts import traced
from tests.faults.traced_disk import after_changes, on_disk, restore

pytestmark = pytest.mark.faults

CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir")


class _Failing:
    """Changes below a directory, of which the n-th fails once; n counts from 1."""

    def __init__(self, root: Path, nth: int, error: int) -> None:
        self.root, self.nth, self.error = str(root), nth, error
        self.n_changes = 0

    def count(self, path: object) -> None:
        if isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self.root):
            self.n_changes += 1
            if self.n_changes == self.nth:
                raise OSError(self.error, os.strerror(self.error), str(path))


_active: list[_Failing] = []
_hooks: list[str] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _active and (
        event in CHANGES or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR))
    ):
        _active[-1].count(arguments[0])


@contextmanager
def failing(root: Path, nth: int, error: int = errno.EIO) -> Iterator[_Failing]:
    """Let the n-th change below a directory fail; 0 for none."""
    if not _hooks:
        sys.addaudithook(_audit)  # for the rest of the process
        _hooks.append("added")
    failure, fsync = _Failing(root, nth, error), os.fsync

    def synced(descriptor: int) -> None:
        failure.count(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", synced)
        _active.append(failure)
        try:
            yield failure
        finally:
            _active.remove(failure)


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


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> dict[int, MemoryDisk]:
    """Disks on which states 0 ... count-1 were saved."""
    root = tmp_path_factory.mktemp("saved")
    found = {0: on_disk(root)}
    for number in range(3):
        FileCheckpointStore(root / "checkpoints").save(state(number))
        found[number + 1] = on_disk(root)
    return found


def allowed(count: int) -> set[int | None]:
    """States that may be found after saving state `count` was cut off."""
    return {count, count - 1} if count else {0, None}


def assert_goes_on(where: Path, count: int) -> None:
    """The next process sweeps, saves and finds what it saved."""
    store = FileCheckpointStore(where)
    store.save(state(count))
    assert number_in(store) == count
    assert store.damage == ()
    names = {item.name for item in where.iterdir()}
    assert POINTER in names
    assert len(names) <= 3
    assert not any(name.endswith(".partial") for name in names)


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_an_error_leaves_the_last_or_the_one_before(
    disks: dict[int, MemoryDisk], tmp_path: Path, count: int, error: int
) -> None:
    where = tmp_path / "d/checkpoints"
    restore(disks[count], tmp_path / "d")
    with failing(tmp_path / "d", 0) as counted:
        FileCheckpointStore(where).save(state(count))
    total = counted.n_changes
    assert total > 40
    seen = set()
    for nth in [*range(1, total - 12, 9), *range(total - 12, total + 1)]:
        restore(disks[count], tmp_path / "d")
        store = FileCheckpointStore(where)
        with failing(tmp_path / "d", nth, error):
            try:
                store.save(state(count))
            except TemporaryFailure as caught:
                assert str(where) in str(caught)  # noqa: PT017 - the removal of the oldest may fail
                assert isinstance(caught.__cause__, OSError)  # noqa: PT017
                assert caught.__cause__.errno == error  # noqa: PT017
                assert caught.exit_code == 75  # noqa: PT017
            else:
                assert number_in(FileCheckpointStore(where)) == count
        seen.add(number_in(FileCheckpointStore(where)))
        # the same process goes on as soon as it can, and so does the next
        store.save(state(count))
        assert number_in(FileCheckpointStore(where)) == count
        assert_goes_on(where, count + 1)
    assert seen == allowed(count)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_power_cut_leaves_the_last_or_the_one_before(
    disks: dict[int, MemoryDisk], tmp_path: Path, count: int
) -> None:
    root = tmp_path / "d"
    where = root / "checkpoints"
    restore(disks[count], root)
    trace = traced(root, lambda: FileCheckpointStore(where).save(state(count)))
    for cut in trace.cuts(most=40):
        store = FileCheckpointStore(where)
        assert number_in(store) in allowed(count), cut
        assert store.damage == () or count == 0  # before the first pointer there is none to find
        assert_goes_on(where, count)
    restore(after_changes(trace.before, trace.changes).after_power_cut("everything"), root)
    store = FileCheckpointStore(where)
    assert number_in(store) == count, "it returned before it was on the disk"
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
