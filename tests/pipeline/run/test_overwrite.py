"""Runs that replace another: its results stay until the new ones are complete, whatever happens."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from mscam_dask import load_run
from mscam_dask.cli import main
from mscam_dask.data.store.filesystem import LocalFilesystem
from mscam_dask.errors import ConfigurationError, DataError, MscamError, TemporaryFailure
from mscam_dask.monitor.events import Event, StepFinished, StepStarted
from mscam_dask.pipeline.resume import resume_run
from mscam_dask.pipeline.run import RunOutcome
from mscam_dask.pipeline.run_directory import RunDirectory
from tests.faults.memory_disk import traced
from tests.messages import quotes, raises
from tests.pipeline.runs import QUIET, Observer, Stopped, Write, again, at, labels_of, run, stop


class Night:
    """Last night's run in a directory, and tonight's of other settings that is to replace it."""

    def __init__(self, pipeline: Write, root: Path) -> None:
        self.pipeline, self.root = pipeline, root
        (root / "notes.txt").write_text("mine")
        directory = RunDirectory(root)
        self.labels = directory.labels.read_bytes()
        self.fingerprint = directory.read_record().run_fingerprint

    def run(self, more: str, **options: Any) -> RunOutcome:
        return again(self.pipeline(f"{more}\n{QUIET}"), output=self.root, **options)

    def tonight(self, *observers: Observer) -> RunOutcome:
        return self.run("alpha = 2.0", overwrite=True, observers=observers)

    def assert_first_is_intact(self) -> None:
        record = self.finished()
        assert record.run_fingerprint == self.fingerprint
        assert (self.root / "labels.csv").read_bytes() == self.labels

    def assert_second_is_there(self) -> None:
        record = self.finished()
        assert record.run_fingerprint != self.fingerprint
        assert record.replaces is None
        assert (self.root / "notes.txt").read_text() == "mine"
        assert [item.name for item in self.root.parent.glob("out*")] == ["out"]
        assert not (self.root / "next").exists()

    def finished(self) -> Any:
        record = RunDirectory(self.root).read_record()
        assert record.state == "finished"
        load_run(self.root)  # its files are as they were written
        return record


@pytest.fixture
def night(pipeline: Write, first: RunOutcome, tmp_path: Path) -> Night:
    return Night(pipeline, shutil.copytree(first.directory.path, tmp_path / "d" / "out"))


def test_the_new_run_takes_the_place_of_the_old_one(night: Night) -> None:
    states: list[str] = []

    def look() -> None:
        night.assert_first_is_intact()
        states.append(RunDirectory(night.root.with_name("out.next")).read_record().state)

    outcome = night.tonight(at(look, StepFinished), at(look))
    assert outcome.directory.path == night.root
    assert outcome.record == outcome.directory.read_record()
    assert "running" in states
    night.assert_second_is_there()
    assert "out.next" not in outcome.directory.events.read_text()


def test_data_that_cannot_be_used_leave_the_old_results(night: Night, tiny: Path) -> None:
    good = tiny.read_bytes()
    with np.load(tiny) as arrays:
        held = {name: arrays[name].copy() for name in arrays}
    held["view_0"][3, 1] = np.nan
    np.savez(tiny, allow_pickle=False, **held)
    with pytest.raises(DataError):
        night.tonight()
    night.assert_first_is_intact()
    following = RunDirectory(night.root).next()
    failure = following.read_record()
    assert (failure.state, failure.exit_code) == ("failed", 3)
    assert failure.error.type == "DataError"
    assert "view_0" in failure.error.message
    assert not following.result.exists()
    described = CliRunner().invoke(main, ["describe", str(night.root)]).stdout
    assert re.search(quotes("out.next", "view_0", "failed"), described)
    tiny.write_bytes(good)
    night.tonight()
    night.assert_second_is_there()


@pytest.mark.parametrize(
    ("step", "kind", "error"),
    [
        pytest.param("ingest", StepStarted, KeyboardInterrupt, id="ingest"),
        pytest.param("write", StepStarted, Stopped, id="write"),
        pytest.param("write", StepFinished, KeyboardInterrupt, id="written"),
    ],
)
def test_a_run_that_ends_early_leaves_the_old_results_and_is_resumed(
    step: str, kind: type[Event], error: type[BaseException], night: Night
) -> None:
    with pytest.raises((KeyboardInterrupt, Stopped, TemporaryFailure)):
        night.tonight(at(lambda: stop(error), kind, step))
    night.assert_first_is_intact()
    assert not night.run("").resumed  # nothing changes for the finished run
    following = RunDirectory(night.root).next()
    assert resume_run(following.path if error is Stopped else night.root).resumed
    night.assert_second_is_there()
    assert not resume_run(night.root).resumed


@pytest.mark.parametrize(
    "way",
    [
        *("exchange", "rename then exchange", "inside"),
        pytest.param("rename", marks=pytest.mark.thorough),
    ],
)
def test_a_kill_at_any_point_of_the_swap_is_repaired(
    way: str, night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "inside":  # as in a mount point
        monkeypatch.setattr("os.path.ismount", lambda path: str(path) == str(night.root))
    elif way == "rename":
        monkeypatch.setattr(LocalFilesystem, "exchange", lambda *_: False)
    elsewhere = again(night.pipeline(f"alpha = 2.0\n{QUIET}"), output=night.root / "../../x")
    with RunDirectory.lock(night.root) as directory, directory.lock_next() as following:
        for item in elsewhere.directory.path.iterdir():
            if item.name not in (".lock", "run.json"):
                shutil.move(item, following.path / item.name)
        record = msgspec.structs.replace(elsewhere.record, replaces=night.root.name)
        following.write_record(record)
        trace = traced(
            night.root.parent,
            lambda: directory.replace_with(following),
            can_exchange=not way.startswith("rename"),
        )
    for cut in trace.cuts(most=4, kills=True):
        if way == "exchange":
            night.finished()
        inode = night.root.stat().st_ino
        assert not resume_run(night.root).resumed, cut
        night.assert_second_is_there()
        assert way != "inside" or night.root.stat().st_ino == inode


def test_something_else_by_the_name_of_the_next_run_is_never_touched(night: Night) -> None:
    other = Path(shutil.copytree(night.root, night.root.with_name("out.next")))
    with raises(ConfigurationError, other):
        night.tonight()
    assert (other / "labels.csv").read_bytes() == night.labels
    night.assert_first_is_intact()


def test_a_damaged_record_can_be_replaced_and_its_results_stay_until_then(night: Night) -> None:
    record = night.root / "run.json"
    record.write_bytes(record.read_bytes().replace(b'"n_samples": 60', b'"n_samples": 61'))
    with pytest.raises(MscamError, match="--overwrite"):
        night.run("alpha = 2.0")
    with pytest.raises(Stopped):
        night.tonight(at(stop, StepStarted, "write"))
    assert (night.root / "labels.csv").read_bytes() == night.labels
    night.tonight()
    night.assert_second_is_there()


def test_a_named_run_is_computed_again_and_not_reused(
    first: RunOutcome, pipeline: Write, fits: list[Any]
) -> None:
    second = again(pipeline(QUIET), overwrite=True)
    assert len(fits) == 1
    assert second.directory == first.directory
    assert second.record.number == first.record.number + 1
    assert labels_of(second).tolist() == labels_of(first).tolist()


def test_a_run_that_never_finished_is_replaced_in_place(
    stopped: RunDirectory, pipeline: Write
) -> None:
    def look(_event: Event) -> None:
        assert not stopped.path.with_name("out.next").exists()

    outcome = run(pipeline(QUIET), stopped.path, overwrite=True, observers=[look])
    assert outcome.record.state == "finished"
