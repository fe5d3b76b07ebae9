"""The n-th change of files by a checkpoint fails, or the power is cut: the last or the one before is there."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from mscam_dask.data.checkpoints import FileCheckpointStore
from mscam_dask.data.store.atomic_replace import POINTER
from mscam_dask.errors import TemporaryFailure
from tests.faults.checkpoint_states import number_in, state
from tests.faults.memory_disk import MemoryDisk, failing, traced

pytestmark = [pytest.mark.faults, pytest.mark.parametrize("count", [0, 1, 3])]


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> dict[int, MemoryDisk]:
    """Disks on which states 0 ... count-1 were saved."""
    root = tmp_path_factory.mktemp("saved")
    found = {0: MemoryDisk.of(root)}
    for number in range(3):
        FileCheckpointStore(root / "checkpoints").save(state(number))
        found[number + 1] = MemoryDisk.of(root)
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


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_an_error_leaves_the_last_or_the_one_before(
    disks: dict[int, MemoryDisk], tmp_path: Path, count: int, error: int
) -> None:
    root = tmp_path / "d"
    where = root / "checkpoints"
    disks[count].restore(root)
    with failing(root, 0) as counted:
        FileCheckpointStore(where).save(state(count))
    total = counted.n_changes
    assert total > 40
    seen = set()
    for nth in [*range(1, total - 12, 9), *range(total - 12, total + 1)]:
        disks[count].restore(root)
        store = FileCheckpointStore(where)
        with failing(root, nth, error):
            try:
                store.save(state(count))
            except TemporaryFailure as caught:
                assert str(where) in str(caught)  # noqa: PT017 - the removal of the oldest may fail
                assert isinstance(caught.__cause__, OSError)  # noqa: PT017
                assert caught.__cause__.errno == error  # noqa: PT017
            else:
                assert number_in(FileCheckpointStore(where)) == count
        seen.add(number_in(FileCheckpointStore(where)))
        # the same process goes on as soon as it can, and so does the next
        store.save(state(count))
        assert number_in(FileCheckpointStore(where)) == count
        assert_goes_on(where, count + 1)
    assert seen == allowed(count)


def test_a_power_cut_leaves_the_last_or_the_one_before(
    disks: dict[int, MemoryDisk], tmp_path: Path, count: int
) -> None:
    root = tmp_path / "d"
    where = root / "checkpoints"
    disks[count].restore(root)
    trace = traced(root, lambda: FileCheckpointStore(where).save(state(count)))
    for cut in trace.cuts(most=40):
        store = FileCheckpointStore(where)
        assert number_in(store) in allowed(count), cut
        assert store.damage == () or count == 0  # before the first pointer there is none to find
        assert_goes_on(where, count)
    trace.synced()
    store = FileCheckpointStore(where)
    assert number_in(store) == count, "it returned before it was on the disk"
    assert store.damage == ()
