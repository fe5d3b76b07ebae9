"""Runs that replace another: its results stay until the new ones are complete, whatever happens."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from mscam_dask.cli import main
from mscam_dask.data.store.filesystem import LocalFilesystem
from mscam_dask.errors import ConfigurationError, DataError, MscamError, TemporaryFailure
from mscam_dask.monitor.events import Event, StepFinished, StepStarted
from mscam_dask.pipeline.config.read_config import read_config
from mscam_dask.pipeline.run.resume import resume_run
from mscam_dask.pipeline.run.run import RunOutcome, run_pipeline
from mscam_dask.pipeline.run.run_directory import RunDirectory
from mscam_dask.pipeline.run.stored_run import StoredRun
from mscam_dask.types.events import IterationFinished
from tests.kept import emptied, kept_or_made
from tests.messages import quotes
from tests.pipeline.runs import QUIET, again, labels_of

pytestmark = pytest.mark.usefixtures("own_directory")

Write = Callable[[str], Path]


class Killed(BaseException):
    """Stands for a process that is gone at once."""


class Night:
    """Last night's run in a directory, and tonight's of other settings that is to replace it."""

    def __init__(self, pipeline: Write, root: Path, copies: Path) -> None:
        self.pipeline, self.root, self.copies = pipeline, root, copies
        kept_or_made(copies / "first", root, self._first)
        directory = RunDirectory(root)
        self.labels = directory.labels.read_bytes()
        self.fingerprint = directory.read_record().run_fingerprint

    def _first(self) -> None:
        self.run("")
        (self.root / "notes.txt").write_text("mine")

    def run(self, more: str, **options: Any) -> RunOutcome:
        return again(self.pipeline(f"{more}\n{QUIET}"), output=self.root, **options)

    def tonight(self, **options: Any) -> RunOutcome:
        return self.run("alpha = 2.0", overwrite=True, **options)

    def assert_first_is_intact(self) -> None:
        directory = RunDirectory(self.root)
        record = directory.read_record()
        assert (record.state, record.run_fingerprint) == ("finished", self.fingerprint)
        assert StoredRun(directory, record).integrity_problem() == ""
        assert directory.labels.read_bytes() == self.labels

    def assert_second_is_there(self) -> None:
        directory = RunDirectory(self.root)
        record = directory.read_record()
        assert record.state == "finished"
        assert record.run_fingerprint != self.fingerprint
        assert record.replaces is None
        assert StoredRun(directory, record).integrity_problem() == ""
        assert (self.root / "notes.txt").read_text() == "mine"
        assert [item.name for item in self.root.parent.glob("out*")] == ["out"]
        assert not (self.root / "next").exists()


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("copies")


@pytest.fixture
def tmp_path(copies: Path) -> Path:
    """The same path in every test, empty, for `kept_or_made`."""
    return emptied(copies / "here")


@pytest.fixture
def night(pipeline: Write, tmp_path: Path, copies: Path) -> Night:
    return Night(pipeline, tmp_path / "out", copies)


def at(step: str, kind: type = StepStarted) -> Callable[[Event], bool]:
    return lambda event: isinstance(event, kind) and getattr(event, "step", None) == step


def raising(when: Callable[[Event], bool], error: BaseException) -> Callable[[Event], None]:
    def observer(event: Event) -> None:
        if when(event):
            raise error

    return observer


def test_the_new_run_takes_the_place_of_the_old_one(night: Night) -> None:
    states: list[str] = []

    def look(event: Event) -> None:
        night.assert_first_is_intact()
        states.append(RunDirectory(night.root.with_name("out.next")).read_record().state)

    outcome = night.tonight(observers=[look])
    assert outcome.directory.path == night.root
    assert outcome.record == outcome.directory.read_record()
    assert "running" in states
    night.assert_second_is_there()
    text = outcome.directory.events.read_text()
    assert "out.next" not in text


def test_data_that_cannot_be_used_leave_the_old_results(night: Night, tiny: Path) -> None:
    with np.load(tiny) as arrays:
        held = {name: arrays[name].copy() for name in arrays}
    good = tiny.read_bytes()
    held["view_0"][3, 1] = np.nan
    np.savez(tiny, allow_pickle=False, **held)
    with pytest.raises(DataError):
        night.tonight()
    night.assert_first_is_intact()
    following = RunDirectory(night.root).next()
    assert following is not None
    failure = following.read_record()
    assert failure.state == "failed"
    assert failure.error is not None
    assert "view_0" in failure.error.message
    described = CliRunner().invoke(main, ["describe", str(night.root)]).stdout
    assert re.search(quotes("out.next", "view_0", "failed"), described)
    tiny.write_bytes(good[: len(good) // 2])
    with pytest.raises(DataError):
        night.tonight()
    night.assert_first_is_intact()
    tiny.unlink()
    with pytest.raises(DataError):
        night.tonight()
    night.assert_first_is_intact()
    tiny.write_bytes(good)
    night.tonight()
    night.assert_second_is_there()


STOPS = {
    "ingest": at("ingest"),
    "validate": at("validate", StepFinished),
    "iteration": lambda event: isinstance(event, IterationFinished),
    "write": at("write"),
    "written": at("write", StepFinished),
}


@pytest.mark.parametrize(
    ("stop", "error"),
    [
        ("ingest", KeyboardInterrupt),
        ("validate", ValueError),
        ("iteration", KeyboardInterrupt),
        ("write", ValueError),
        ("written", KeyboardInterrupt),
    ],
)
def test_a_run_that_ends_early_leaves_the_old_results_and_is_resumed(
    stop: str, error: type[BaseException], night: Night
) -> None:
    with pytest.raises((KeyboardInterrupt, ValueError, TemporaryFailure)):
        night.tonight(observers=[raising(STOPS[stop], error("test"))])
    night.assert_first_is_intact()
    following = RunDirectory(night.root).next()
    assert following is not None
    assert resume_run(following.path if error is ValueError else night.root).resumed
    night.assert_second_is_there()
    assert not resume_run(night.root).resumed


def test_an_unfinished_replacement_changes_nothing_for_the_finished_run(night: Night) -> None:
    with pytest.raises(ValueError, match="test"):
        night.tonight(observers=[raising(STOPS["iteration"], ValueError("test"))])
    assert not night.run("").resumed
    night.assert_first_is_intact()


# Operations of the swap: a kill before the n-th of them.
@contextmanager
def killed_before(monkeypatch: pytest.MonkeyPatch, n: int, *, can_exchange: bool) -> Iterator[None]:
    done = iter(range(10**6))
    exchange, rename = LocalFilesystem.exchange, LocalFilesystem.rename
    unlink, rmdir, move = os.unlink, os.rmdir, os.rename

    def count() -> None:
        if next(done) == n:
            raise Killed

    def swap(self: LocalFilesystem, first: Path, second: Path) -> bool:
        count()
        return can_exchange and exchange(self, first, second)

    def named(self: LocalFilesystem, source: Path, target: Path) -> None:
        count()
        rename(self, source, target)

    def removed(path: Any, **options: Any) -> None:
        count()
        unlink(path, **options)

    def emptied(path: Any, **options: Any) -> None:
        count()
        rmdir(path, **options)

    def moved(source: Any, target: Any, **options: Any) -> None:
        count()
        move(source, target, **options)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFilesystem, "exchange", swap)
        patch.setattr(LocalFilesystem, "rename", named)
        patch.setattr(os, "unlink", removed)
        patch.setattr(os, "rmdir", emptied)
        patch.setattr(os, "rename", moved)
        yield


@pytest.mark.parametrize("way", ["exchange", "rename", "inside"])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 8, 21])
def test_a_kill_at_any_point_of_the_swap_is_repaired(
    way: str, n: int, night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "inside":
        monkeypatch.setattr("os.path.ismount", lambda path: str(path) == str(night.root))
    with RunDirectory.lock(night.root) as directory, directory.lock_next() as following:
        record = run_elsewhere(night, following)
        following.write_record(record)
        with killed_before(monkeypatch, n, can_exchange=way == "exchange"):
            try:
                directory.replace_with(following)
            except Killed:
                pass
            else:
                assert n > 2
    if way == "exchange":
        there = RunDirectory(night.root).read_record()
        assert there.state == "finished"
        assert StoredRun(RunDirectory(night.root), there).integrity_problem() == ""
    assert not resume_run(night.root).resumed
    night.assert_second_is_there()


def run_elsewhere(night: Night, following: RunDirectory) -> Any:
    """Fill a locked directory with a finished run of other settings."""
    place = night.root.with_name("elsewhere")
    file = night.pipeline(f"alpha = 2.0\n{QUIET}")
    kept_or_made(night.copies / "second", place, lambda: again(file, output=place))
    record = RunDirectory(place).read_record()
    for item in place.iterdir():
        if item.name not in (".lock", "run.json"):
            shutil.move(item, following.path / item.name)
    shutil.rmtree(place)
    return msgspec.structs.replace(record, replaces=night.root.name)


@pytest.mark.thorough
def test_a_directory_that_is_a_mount_point_is_filled_in_place(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    inode = night.root.stat().st_ino
    monkeypatch.setattr("os.path.ismount", lambda path: str(path) == str(night.root))
    with pytest.raises(ValueError, match="test"):
        night.tonight(observers=[raising(STOPS["written"], ValueError("test"))])
    night.assert_first_is_intact()
    night.tonight(observers=[lambda _event: night.assert_first_is_intact()])
    night.assert_second_is_there()
    assert night.root.stat().st_ino == inode


def test_something_else_by_the_name_of_the_next_run_is_never_touched(night: Night) -> None:
    other = night.root.with_name("out.next")
    again(night.pipeline(f"alpha = 3.0\n{QUIET}"), output=other)
    before = (other / "labels.csv").read_bytes()
    with pytest.raises(ConfigurationError, match=quotes(other)):
        night.tonight()
    assert (other / "labels.csv").read_bytes() == before
    night.assert_first_is_intact()


def test_a_damaged_record_can_be_replaced_and_its_results_stay_until_then(night: Night) -> None:
    record = RunDirectory(night.root).record
    record.write_bytes(record.read_bytes().replace(b'"n_samples": 60', b'"n_samples": 61'))
    with pytest.raises(MscamError, match="--overwrite"):
        night.run("alpha = 2.0")
    with pytest.raises(ValueError, match="test"):
        night.tonight(observers=[raising(STOPS["write"], ValueError("test"))])
    assert (night.root / "labels.csv").read_bytes() == night.labels
    night.tonight()
    night.assert_second_is_there()


def test_a_named_run_is_computed_again_and_not_reused(pipeline: Write, fits: list[Any]) -> None:
    first = again(pipeline(QUIET))
    labels = labels_of(first)
    second = again(pipeline(QUIET), overwrite=True)
    assert len(fits) == 2
    assert second.directory == first.directory
    assert second.record.number == first.record.number + 1
    assert labels_of(second).tolist() == labels.tolist()


def test_a_run_that_never_finished_is_replaced_in_place(pipeline: Write, tmp_path: Path) -> None:
    file = pipeline(QUIET)
    with pytest.raises(ValueError, match="test"):
        run_pipeline(
            read_config(file),
            tmp_path / "out",
            observers=[raising(STOPS["iteration"], ValueError("test"))],
        )

    def look(_event: Event) -> None:
        assert not (tmp_path / "out.next").exists()

    outcome = run_pipeline(
        read_config(file),
        tmp_path / "out",
        overwrite=True,
        observers=[look],
    )
    assert outcome.record.state == "finished"
