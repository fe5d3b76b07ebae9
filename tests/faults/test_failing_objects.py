"""The n-th request of a checkpoint on an object store fails, for every n: one is there, whole."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Literal, get_args

import pytest

from mscam_dask.data.checkpoints import FileCheckpointStore
from mscam_dask.data.store.atomic_replace import POINTER
from mscam_dask.data.store.object_store import ObjectPath
from mscam_dask.errors import TemporaryFailure
from tests.data.object_servers import MemoryFiles
from tests.faults.checkpoint_states import number_in, state
from tests.messages import raises

# Zarr writes some files at the same time, and does not wait for the others when one fails.
pytestmark = [
    pytest.mark.faults,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
]

WHERE = ObjectPath("s3://bucket/runs/nightly-0123")


RESET = "the connection was reset"
How = Literal["undone", "half done", "done"]
Content = dict[str, bytes]


class FailingFiles(MemoryFiles):
    """Objects in memory of which request `position` (from 0) fails."""

    def __init__(
        self, content: Content | None = None, position: int | None = None, how: How = "undone"
    ) -> None:
        super().__init__(content)
        self._position = position
        self._share = {"done": 1.0, "half done": 0.5, "undone": 0.0}[how]
        self.done = 0

    def request(self, url: str, do: Callable[[float], Any]) -> Any:
        self.done += 1
        if self.done - 1 != self._position:
            return do(1.0)
        with suppress(FileNotFoundError):
            do(self._share)
        raise OSError(errno.EIO, RESET, url)


_current: list[FailingFiles] = []


def use(files: FailingFiles) -> FailingFiles:
    """Make these the objects of all buckets."""
    _current[:] = [files]
    return files


@pytest.fixture(scope="module", autouse=True)
def no_server() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ObjectPath, "files", lambda _self: _current[0])
        yield


def number_of(content: Content) -> int | None:
    """Which state objects give back."""
    use(FailingFiles(content))
    return number_in(FileCheckpointStore(WHERE))


@pytest.fixture(scope="module")
def stores(no_server: None) -> list[Content]:
    """After 0, 1, 2 and 3 states were saved."""
    found: list[Content] = [{}]
    files = use(FailingFiles())
    checkpoints = FileCheckpointStore(WHERE)
    for number in range(3):
        checkpoints.save(state(number))
        found.append(dict(files.content))
    return found


def prefixes(content: Content) -> set[str]:
    return {name.removeprefix(f"{WHERE}/").partition("/")[0] for name in content}


def requests_of_save(content: Content, number: int) -> int:
    files = use(FailingFiles(content))
    FileCheckpointStore(WHERE).save(state(number))
    return files.done


@pytest.mark.parametrize("saved", [0, 2])
@pytest.mark.parametrize("how", get_args(How))
def test_whatever_request_fails_the_last_or_the_one_before_is_there(
    stores: list[Content], saved: int, how: How
) -> None:
    before = None if saved == 0 else saved - 1
    n_requests = requests_of_save(stores[saved], saved)
    assert n_requests > 15
    seen = set()
    last = range(n_requests - 8, n_requests)  # of which some replace current.json and remove
    for position in sorted({*range(0, n_requests, 7), *last}):
        files = use(FailingFiles(stores[saved], position, how))
        try:
            FileCheckpointStore(WHERE).save(state(saved))
        except TemporaryFailure as error:
            assert RESET in str(error)  # noqa: PT017 - not every request raises
            assert number_of(files.content) in (before, saved)
        else:
            assert number_of(files.content) == saved  # a removal was cut off, or an answer
        seen.add(number_of(files.content))
        files = use(FailingFiles(files.content))
        again = FileCheckpointStore(WHERE)
        again.load()
        again.save(state(saved + 1))
        assert number_of(files.content) == saved + 1
        assert len(prefixes(files.content) - {POINTER}) <= 2
    assert before in seen
    if saved == 2 or how == "done":  # the removal of the oldest comes after current.json
        assert saved in seen


def test_the_same_writer_goes_on_after_a_request_without_an_answer(stores: list[Content]) -> None:
    for position in range(0, requests_of_save(stores[2], 2), 3):
        files = use(FailingFiles(stores[2], position, "done"))
        writer = FileCheckpointStore(WHERE)
        for _ in range(2):
            try:
                writer.save(state(2))
            except TemporaryFailure:
                continue
        assert number_of(files.content) == 2


def test_a_second_driver_is_noticed(stores: list[Content]) -> None:
    files = use(FailingFiles(stores[2]))
    first, second = (FileCheckpointStore(WHERE) for _ in range(2))
    assert first.load() is not None
    assert second.load() is not None
    second.save(state(2))
    before = dict(files.content)
    with raises(TemporaryFailure, WHERE):
        first.save(state(2))
    assert files.content == before
    second.save(state(3))
    assert number_of(files.content) == 3


def test_clearing_leaves_nothing_and_cut_off_nothing_damaged(stores: list[Content]) -> None:
    counted = use(FailingFiles(stores[3]))
    FileCheckpointStore(WHERE).clear()
    for position in range(counted.done):
        files = use(FailingFiles(stores[3], position, "half done"))
        with pytest.raises(TemporaryFailure, match=RESET):
            FileCheckpointStore(WHERE).clear()
        assert number_of(files.content) in (None, 1, 2)
        files = use(FailingFiles(files.content))
        FileCheckpointStore(WHERE).clear()
        assert files.content == {}
