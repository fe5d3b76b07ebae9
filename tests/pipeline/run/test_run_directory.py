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
from typing import Any, Literal

import pytest

from mscam_dask.data.store.filesystem import LocalFilesystem, full_disk_is_temporary
from mscam_dask.errors import ConfigurationError, DataError, TemporaryFailure
from mscam_dask.monitor.run_record import RunRecord, decode_record, encode_record
from mscam_dask.pipeline.run.lock import is_locked
from mscam_dask.pipeline.run.run_directory import RunDirectory, write_whole
from tests.messages import quotes


def record(state: Literal["running", "finished", "failed"] = "finished") -> RunRecord:
    return RunRecord(
        state=state,
        pipeline="p",
        method="mscam",
        seed=0,
        started="2001-02-03",
        ended="2004-05-06",
    )


def claim(path: Path, *, overwrite: bool = False) -> RunDirectory:
    with RunDirectory.lock(path) as directory:
        directory.claim(record("running"), overwrite=overwrite)
    return directory


def ended_run(path: Path, state: Literal["running", "finished", "failed"] = "finished") -> Path:
    directory = claim(path)
    directory.labels.write_text("old")
    directory.result.mkdir()
    (directory.result / "zarr.json").write_text("old")
    directory.write_record(record(state))
    return path


@pytest.mark.parametrize("exists", [True, False])
def test_a_missing_or_empty_directory_is_taken(tmp_path: Path, exists: bool) -> None:
    path = tmp_path / "a" / "b"
    if exists:
        path.mkdir(parents=True)
    assert claim(path).read_record().state == "running"


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_a_directory_that_is_made_is_closed_to_other_users(tmp_path: Path, umask: int) -> None:
    previous = os.umask(umask)
    try:
        with RunDirectory.lock(tmp_path / "run"):
            assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
    finally:
        os.umask(previous)


def test_a_directory_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with RunDirectory.lock(tmp_path):
        assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


@pytest.mark.parametrize("overwrite", [True, False])
def test_what_is_no_run_directory_is_never_touched(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigurationError, match=quotes(tmp_path, "-o")):
        claim(tmp_path, overwrite=overwrite)
    file = tmp_path / "thesis.tex"
    with pytest.raises(ConfigurationError, match=quotes(file)):
        claim(file, overwrite=overwrite)
    assert [item.name for item in tmp_path.iterdir()] == ["thesis.tex"]
    assert file.read_text() == "years of work"


@pytest.mark.parametrize("content", [b"{}", b"not json"])
def test_a_foreign_run_json_protects_its_directory(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.json").write_bytes(content)
    (tmp_path / "labels.csv").write_text("mine")
    with pytest.raises(ConfigurationError, match=quotes(tmp_path / "run.json")):
        claim(tmp_path, overwrite=True)
    assert (tmp_path / "labels.csv").read_text() == "mine"


def test_an_ended_run_is_replaced_only_when_asked(tmp_path: Path) -> None:
    path = ended_run(tmp_path / "run")
    with pytest.raises(ConfigurationError, match=quotes(path, "2004-05-06", "--overwrite")):
        claim(path)
    assert (path / "labels.csv").read_text() == "old"
    (path / "notes.txt").write_text("mine")
    claim(path, overwrite=True)
    assert {item.name for item in path.iterdir()} == {".lock", "run.json", "notes.txt"}


@pytest.mark.parametrize("state", ["running", "failed"])
def test_a_run_that_can_go_on_is_left_alone_unless_asked(
    tmp_path: Path, state: Literal["running", "failed"]
) -> None:
    path = ended_run(tmp_path / "run", state)
    with pytest.raises(ConfigurationError, match=quotes(path, "mscam-dask resume", "--overwrite")):
        claim(path)
    assert (path / "labels.csv").read_text() == "old"
    claim(path, overwrite=True)
    assert not (path / "labels.csv").exists()


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


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_directory_that_is_held_is_left_alone(tmp_path: Path, overwrite: bool) -> None:
    path = ended_run(tmp_path / "run")
    with (
        RunDirectory.lock(path),
        pytest.raises(TemporaryFailure, match=quotes(path, os.getpid(), platform.node())),
    ):
        claim(path, overwrite=overwrite)
    assert (path / "labels.csv").read_text() == "old"
    claim(path, overwrite=True)


def test_a_file_system_without_locks_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended_run(tmp_path / "run")
    monkeypatch.setattr(fcntl, "flock", no_locks)
    assert not is_locked(tmp_path / "run")  # as far as can be told
    with pytest.raises(ConfigurationError, match=quotes(tmp_path / "run" / ".lock")):
        claim(tmp_path / "run")


def no_locks(_descriptor: int, _operation: int) -> None:
    raise OSError(errno.ENOLCK, "No locks available")


def test_the_lock_of_a_killed_driver_is_free(tmp_path: Path) -> None:
    code = (
        "import sys, time; from mscam_dask.pipeline.run.run_directory import RunDirectory\n"
        "with RunDirectory.lock(sys.argv[1]):\n    print('held', flush=True); time.sleep(60)"
    )
    path = tmp_path / "run"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(TemporaryFailure, match=quotes(path, process.pid)):
            claim(path)
        process.kill()
        process.wait()
    assert claim(path).read_record().state == "running"


def test_a_link_is_removed_and_not_what_it_points_to(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "data").write_text("x")
    path = ended_run(tmp_path / "run", "failed")
    (path / "data.zarr").symlink_to(precious)
    claim(path, overwrite=True)
    assert not (path / "data.zarr").exists()
    assert (precious / "data").read_text() == "x"


def test_files_are_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = claim(tmp_path / "run")
    before = directory.record.read_bytes()

    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(TemporaryFailure, match=quotes(directory.record)):
        directory.write_record(record())
    assert directory.record.read_bytes() == before
    assert {item.name for item in directory.path.iterdir()} == {".lock", "run.json"}


def test_files_and_their_names_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, str]] = []
    sync, rename = LocalFilesystem.sync, LocalFilesystem.rename

    def synced(self: LocalFilesystem, path: Path) -> None:
        sync(self, path)
        done.append(("sync", "aside" if path.name.endswith(".partial") else path.name))

    def renamed(self: LocalFilesystem, source: Path, target: Path) -> None:
        rename(self, source, target)
        done.append(("rename", target.name))

    monkeypatch.setattr(LocalFilesystem, "sync", synced)
    monkeypatch.setattr(LocalFilesystem, "rename", renamed)
    write_whole(tmp_path / "cells" / "ab" / "x.json", b"{}")
    made = [("sync", tmp_path.name), ("sync", "cells")]
    written = [("sync", "aside"), ("rename", "x.json"), ("sync", "ab")]
    assert done == made + written
    write_whole(tmp_path / "cells" / "ab" / "x.json", b"{}")
    assert done == made + 2 * written


def test_only_a_full_disk_is_temporary(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), full_disk_is_temporary(tmp_path):
        raise PermissionError(errno.EACCES, "no")


def test_records_read_back_the_same(tmp_path: Path) -> None:
    assert decode_record(encode_record(record()), "here") == record()
    newer = encode_record(record()).replace(b'"format_version": 1', b'"format_version": 97')
    with pytest.raises(DataError, match=quotes("here", "97")):
        decode_record(newer, "here")
    with pytest.raises(DataError, match=quotes(tmp_path, "run.json")):
        RunDirectory(tmp_path).read_record()
