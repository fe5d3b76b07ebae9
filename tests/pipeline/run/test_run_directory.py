"""Claiming a run directory: what is ours is replaced when asked, nothing else is touched."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import stat
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from mscam_dask.data.store.filesystem import full_disk_is_temporary
from mscam_dask.errors import ConfigurationError, TemporaryFailure
from mscam_dask.monitor.run_record import RunRecord
from mscam_dask.pipeline.run_directory import RunDirectory, is_locked, write_whole
from tests.faults.memory_disk import failing, traced
from tests.messages import quotes, raises

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
