"""A checkpoint whose n-th change of files or n-th request fails, or whose power is cut: it or the one before is there."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from mscam_dask.data.checkpoints import FileCheckpointStore
from mscam_dask.data.store.object_store import ObjectPath
from mscam_dask.errors import TemporaryFailure
from tests.data.object_servers import MemoryFiles
from tests.faults.checkpoint_states import number_in, state
from tests.faults.memory_disk import MemoryDisk, failing, traced
from tests.messages import raises

# Zarr writes some objects at the same time, and does not wait for the others when one fails.
pytestmark = [
    pytest.mark.faults,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
]

# Changes, or requests, at the end of a save, which finish it and remove the oldest; of the others some fail.
_LAST = 12


class Disk:
    """Checkpoints in a directory; failures are error numbers."""

    def __init__(self, root: Path) -> None:
        self.root, self.place = root, root / "checkpoints"
        self._saved = [MemoryDisk.of(root)]
        for number in range(3):
            FileCheckpointStore(self.place).save(state(number))
            self._saved.append(MemoryDisk.of(root))

    def restore(self, count: int) -> None:
        """Have the states 0 ... count-1 saved, and no others."""
        self._saved[count].restore(self.root)

    def failing(self, nth: int, how: int) -> AbstractContextManager[Any]:
        return failing(self.root, nth, how)

    def names(self) -> set[str]:
        return {item.name for item in self.place.iterdir()}


class FailingFiles(MemoryFiles):
    """Objects of which the n-th request fails, from 1 on, after a share of it was carried out; 0 for none."""

    n_changes = 0
    nth = 0
    share = 1.0

    def request(self, url: str, do: Callable[[float], Any]) -> Any:
        self.n_changes += 1
        if self.n_changes != self.nth:
            return do(1.0)
        with suppress(FileNotFoundError):
            do(self.share)
        raise OSError(errno.EIO, "the connection was reset", url)


class Objects:
    """Checkpoints below a URL; failures are shares of a request that is carried out although there is no answer."""

    def __init__(self) -> None:
        self.files, self.place = FailingFiles(), ObjectPath("s3://bucket/runs/nightly-0123")
        self._saved = [dict(self.files.content)]

    def save(self, number: int) -> None:
        FileCheckpointStore(self.place).save(state(number))
        self._saved.append(dict(self.files.content))

    def restore(self, count: int) -> None:
        self.files = FailingFiles(self._saved[count])

    @contextmanager
    def failing(self, nth: int, how: float) -> Iterator[Any]:
        self.files.n_changes, self.files.nth, self.files.share = 0, nth, how
        yield self.files
        # what was not waited for goes to the old ones
        self.files = FailingFiles(self.files.content)

    def names(self) -> set[str]:
        urls = self.files.content
        return {url.removeprefix(f"{self.place}/").partition("/")[0] for url in urls}


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Disk:
    return Disk(tmp_path_factory.mktemp("d"))


@pytest.fixture(scope="module")
def objects() -> Iterator[Objects]:
    made = Objects()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ObjectPath, "files", lambda _self: made.files)
        for number in range(3):
            made.save(number)
        yield made


def number_there(medium: Disk | Objects) -> int | None:
    return number_in(FileCheckpointStore(medium.place))


def assert_goes_on(medium: Disk | Objects, count: int) -> None:
    """The next process sweeps, saves and finds what it saved."""
    store = FileCheckpointStore(medium.place)
    store.save(state(count))
    assert number_in(store) == count
    assert store.damage == ()
    names = medium.names()
    assert len(names) <= 2
    assert not any(name.endswith(".partial") for name in names)


@pytest.mark.parametrize(
    ("name", "how", "count"),
    [
        *(("disk", errno.ENOSPC, 0), ("disk", errno.EIO, 2), ("objects", 0.5, 0)),
        *(("objects", share, 2) for share in (0.0, 0.5, 1.0)),
    ],
)
def test_a_failure_leaves_the_last_or_the_one_before(
    request: pytest.FixtureRequest, name: str, how: Any, count: int
) -> None:
    medium: Disk | Objects = request.getfixturevalue(name)
    before = count - 1 if count else None
    medium.restore(count)
    with medium.failing(0, how) as counted:
        FileCheckpointStore(medium.place).save(state(count))
    total = counted.n_changes
    assert total > 15
    seen = set()
    for nth in [*range(1, total - _LAST, 9), *range(max(1, total - _LAST), total + 1)]:
        medium.restore(count)
        store = FileCheckpointStore(medium.place)
        with medium.failing(nth, how):
            try:
                store.save(state(count))
            except TemporaryFailure as caught:
                assert str(medium.place) in str(caught)  # noqa: PT017 - not every failure raises
                cause = caught.__cause__
                assert isinstance(cause, OSError)
                assert name == "objects" or cause.errno == how
            else:
                assert number_there(medium) == count
        seen.add(number_there(medium))
        assert seen <= {before, count}
        # the same process goes on as soon as it can, and so does the next
        store.save(state(count))
        assert number_there(medium) == count
        assert_goes_on(medium, count + 1)
    assert before in seen
    if count or how == 1.0:  # the removal of the oldest comes last
        assert count in seen


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_power_cut_leaves_the_last_or_the_one_before(disk: Disk, count: int) -> None:
    disk.restore(count)
    trace = traced(disk.root, lambda: FileCheckpointStore(disk.place).save(state(count)))
    for cut in trace.cuts(most=40):
        store = FileCheckpointStore(disk.place)
        assert number_in(store) in ({count, count - 1} if count else {0, None}), cut
        assert store.damage == ()
        assert_goes_on(disk, count)
    trace.synced()
    store = FileCheckpointStore(disk.place)
    assert number_in(store) == count, "it returned before it was on the disk"
    assert store.damage == ()


def test_a_second_driver_is_noticed(objects: Objects) -> None:
    objects.restore(2)
    first, second = (FileCheckpointStore(objects.place) for _ in range(2))
    assert first.load() is not None
    assert second.load() is not None
    second.save(state(2))
    before = dict(objects.files.content)
    with raises(TemporaryFailure, objects.place):
        first.save(state(2))
    assert objects.files.content == before
    second.save(state(3))
    assert number_there(objects) == 3


def test_clearing_leaves_nothing_and_cut_off_nothing_damaged(objects: Objects) -> None:
    objects.restore(3)
    with objects.failing(0, 0.5) as counted:
        FileCheckpointStore(objects.place).clear()
    for nth in range(1, counted.n_changes + 1):
        objects.restore(3)
        with objects.failing(nth, 0.5), pytest.raises(TemporaryFailure):
            FileCheckpointStore(objects.place).clear()
        assert number_there(objects) in (None, 1, 2)
        FileCheckpointStore(objects.place).clear()
        assert objects.files.content == {}
