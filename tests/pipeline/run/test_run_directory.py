"""Run directories: claimed, replaced when asked, and never anything else; old results stay until the new ones are complete."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from mscam_dask import load_run
from mscam_dask.cli import main
from mscam_dask.data.store.filesystem import LocalFilesystem, full_disk_is_temporary
from mscam_dask.errors import ConfigurationError, DataError, MscamError, TemporaryFailure
from mscam_dask.monitor.events import Event, StepFinished, StepStarted
from mscam_dask.monitor.run_record import RunRecord
from mscam_dask.pipeline.resume import resume_run
from mscam_dask.pipeline.run import RunOutcome
from mscam_dask.pipeline.run_directory import RunDirectory, is_locked, write_whole
from mscam_dask.pipeline.stored_run import StoredRun
from tests.faults.memory_disk import failing, traced
from tests.messages import quotes, raises
from tests.pipeline.runs import QUIET, Observer, Stopped, Write, again, at, stop

State = Literal["running", "finished", "failed"]


def record(state: State = "finished") -> RunRecord:
    ended = "2004-05-06"
    return RunRecord(
        state=state, pipeline="p", method="mscam", seed=0, started="2001-02-03", ended=ended
    )


def claim(path: Path, *, overwrite: bool = False) -> RunDirectory:
    with RunDirectory.lock(path) as directory:
        directory.claim(record("running"), overwrite=overwrite)
    return directory


def ended_run(path: Path, state: State = "finished") -> Path:
    directory = claim(path)
    directory.labels.write_text("old")
    directory.result.mkdir()
    (directory.result / "zarr.json").write_text("old")
    directory.write_record(record(state))
    return path


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_a_directory_that_is_made_is_closed_to_other_users(tmp_path: Path, umask: int) -> None:
    there = tmp_path / "there"
    there.mkdir(mode=0o755)
    previous = os.umask(umask)
    try:
        for path, mode in ((tmp_path / "run", 0o700), (there, 0o755)):
            assert claim(path).read_record().state == "running"
            assert stat.S_IMODE(path.stat().st_mode) == mode
    finally:
        os.umask(previous)


@pytest.mark.parametrize("overwrite", [True, False])
def test_what_is_no_run_directory_is_never_touched(tmp_path: Path, overwrite: bool) -> None:
    file = tmp_path / "thesis.tex"
    file.write_text("years of work")
    for path in (tmp_path, file):
        with raises(ConfigurationError, path, "-o"):
            claim(path, overwrite=overwrite)
    assert [item.name for item in tmp_path.iterdir()] == ["thesis.tex"]
    assert file.read_text() == "years of work"
    for content in (b"{}", b"not json"):  # of somebody else
        (tmp_path / "run.json").write_bytes(content)
        with raises(ConfigurationError, tmp_path / "run.json"):
            claim(tmp_path, overwrite=overwrite)
    assert file.read_text() == "years of work"


@pytest.mark.parametrize("state", ["running", "failed", "finished"])
def test_a_run_is_replaced_only_when_asked(tmp_path: Path, state: State) -> None:
    path = ended_run(tmp_path / "run", state)
    remedy = "2004-05-06" if state == "finished" else "mscam-dask resume"
    with raises(ConfigurationError, path, remedy, "--overwrite"):
        claim(path)
    assert (path / "labels.csv").read_text() == "old"
    (path / "notes.txt").write_text("mine")
    precious = tmp_path / "precious"
    precious.mkdir()
    (path / "data.zarr").symlink_to(precious)
    claim(path, overwrite=True)
    assert {item.name for item in path.iterdir()} == {".lock", "run.json", "notes.txt"}
    assert precious.is_dir()


def test_results_that_cannot_be_replaced_are_said_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ended_run(tmp_path / "run", "finished")
    monkeypatch.setattr(os, "access", lambda place, mode: place != path or mode != os.W_OK)
    with (
        RunDirectory.lock(path) as directory,
        raises(ConfigurationError, path, "not writable"),
        directory.lock_next(),
    ):
        pass


def test_a_command_of_a_run_is_for_a_shell(tmp_path: Path) -> None:
    path = ended_run(tmp_path / "a run's", "failed")
    with raises(DataError, path) as caught:
        StoredRun.read(path).finished()
    told = str(caught.value).partition("Continue it with ")[2].removesuffix(".")
    assert shlex.split(told) == ["mscam-dask", "resume", str(path)]


def test_what_a_killed_run_was_still_writing_is_swept(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.mkdir()
    (path / ".lock").touch()
    (path / ".run.json.0123abcd.partial").write_text("{")
    claim(path)  # killed before its first record: as good as empty
    (path / ".data.zarr.0123abcd.partial").mkdir()
    (path / ".mine.partial").touch()
    claim(path, overwrite=True)
    assert {item.name for item in path.iterdir()} == {".lock", "run.json", ".mine.partial"}


def test_a_file_system_without_locks_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    ended_run(tmp_path / "run")
    monkeypatch.setattr(fcntl, "flock", no_locks)
    assert not is_locked(tmp_path / "run")  # as far as can be told
    with raises(ConfigurationError, tmp_path / "run" / ".lock"):
        claim(tmp_path / "run")


def test_a_directory_is_held_until_its_driver_ends_or_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from mscam_dask.pipeline.run_directory import RunDirectory\n"
        "with RunDirectory.lock(sys.argv[1]):\n    print('held', flush=True); time.sleep(60)"
    )
    path = ended_run(tmp_path / "run")
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        holder = quotes(path, process.pid, platform.node())
        for overwrite in (False, True):
            with pytest.raises(TemporaryFailure, match=holder):
                claim(path, overwrite=overwrite)
        assert (path / "labels.csv").read_text() == "old"
        process.kill()
        process.wait()
    assert claim(path, overwrite=True).read_record().state == "running"


def test_files_are_whole_or_not_there(tmp_path: Path) -> None:
    directory = claim(tmp_path / "run")
    before = directory.record.read_bytes()
    for nth in (1, 2):
        with (
            failing(directory.path, nth, errno.ENOSPC),
            raises(TemporaryFailure, directory.record),
        ):
            directory.write_record(record())
        assert directory.record.read_bytes() == before
        assert {item.name for item in directory.path.iterdir()} == {".lock", "run.json"}
    with pytest.raises(PermissionError), full_disk_is_temporary(tmp_path):
        raise PermissionError(errno.EACCES, "no")


def test_files_and_their_names_are_on_the_disk(tmp_path: Path) -> None:
    root = tmp_path / "d"
    root.mkdir()
    file = root / "cells" / "ab" / "x.json"
    for content in (b"old", b"new"):
        trace = traced(root, lambda content=content: write_whole(file, content))  # type: ignore[misc]
        for cut in trace.cuts():
            assert not file.exists() or file.read_bytes() in (b"old", content), cut
        trace.synced()
        assert file.read_bytes() == content


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
