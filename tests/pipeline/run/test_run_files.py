"""Files of a run that are links, pipes, sockets, too large or changed: refused where the run is asked for, passed over elsewhere."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mscam_dask.cli import main
from mscam_dask.errors import StoreCorruptError
from mscam_dask.monitor.events import StepFinished
from mscam_dask.monitor.run_record import RUN_FORMAT
from mscam_dask.pipeline.config.read_config import read_config
from mscam_dask.pipeline.run.list_runs import list_runs
from mscam_dask.pipeline.run.load_run import load_run
from mscam_dask.pipeline.run.resume import resume_run
from mscam_dask.pipeline.run.run import run_pipeline
from mscam_dask.pipeline.run.run_directory import RunDirectory
from tests.messages import quotes
from tests.pipeline.runs import QUIET, again, stopped_run

pytestmark = pytest.mark.usefixtures("own_directory")

Write = Callable[[str], Path]

CONTENT = b"of somebody else"


@pytest.fixture
def stopped(pipeline: Write, tmp_path: Path) -> RunDirectory:
    return stopped_run(pipeline(QUIET), tmp_path / "out")


@pytest.fixture
def finished(pipeline: Write, tmp_path: Path) -> RunDirectory:
    return run_pipeline(read_config(pipeline(QUIET)), tmp_path / "out").directory


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Path]:
    """A file outside of the run, which keeps its content."""
    file = tmp_path / "other"
    file.write_bytes(CONTENT)
    yield file
    assert file.read_bytes() == CONTENT


def _link(file: Path, other: Path) -> None:
    file.symlink_to(other)


def _second_name(file: Path, other: Path) -> None:
    file.hardlink_to(other)


def _dangling(file: Path, other: Path) -> None:
    file.symlink_to(other.with_name("absent"))


def _pipe(file: Path, other: Path) -> None:
    os.mkfifo(file)


def _socket(file: Path, other: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(file.parent)  # a socket has a short path
        server.bind(file.name)
        os.chdir(here)


def _directory(file: Path, other: Path) -> None:
    file.mkdir()


def _large(file: Path, other: Path) -> None:
    with file.open("wb") as stream:
        stream.truncate(6 * 2**30)


def _damaged(file: Path, other: Path) -> None:
    file.write_bytes(f'{{"format": "{RUN_FORMAT}"'.encode())


def in_place_of(file: Path, kind: Callable[[Path, Path], None], other: Path) -> None:
    if file.is_dir():
        shutil.rmtree(file)
    else:
        file.unlink(missing_ok=True)
    kind(file, other)


@pytest.mark.parametrize("kind", [_link, _dangling, _pipe, _directory, _large])
@pytest.mark.parametrize("name", [".lock", "events.jsonl", "run.json", "pipeline.toml"])
def test_resume_neither_writes_nor_waits_elsewhere(
    stopped: RunDirectory, other: Path, name: str, kind: Any
) -> None:
    in_place_of(stopped.path / name, kind, other)
    result = CliRunner().invoke(main, ["resume", str(stopped.path)])
    assert result.exit_code in (2, 3), result.output
    assert name in result.stderr
    assert not other.with_name("absent").exists()


@pytest.mark.parametrize("name", [".lock", "events.jsonl"])
def test_a_file_with_a_second_name_is_not_written(
    stopped: RunDirectory, other: Path, name: str
) -> None:
    in_place_of(stopped.path / name, _second_name, other)
    with pytest.raises(StoreCorruptError, match=quotes(stopped.path / name, "hard link")):
        resume_run(stopped.path)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("labels.csv", _socket),
        ("metrics.prom", _pipe),
        *((name, _link) for name in ("data.zarr", "result.zarr", "checkpoints", "report.html")),
    ],
)
def test_no_file_of_a_run_is_a_link_or_device(
    stopped: RunDirectory, other: Path, name: str, kind: Any
) -> None:
    in_place_of(stopped.path / name, kind, other)
    with pytest.raises(StoreCorruptError, match=quotes(stopped.path / name, "allowed are regular")):
        resume_run(stopped.path)


@pytest.mark.parametrize("name", [".lock", "run.json", "data.zarr"])
def test_a_new_run_replaces_links_but_never_a_lock(
    stopped: RunDirectory, other: Path, name: str, pipeline: Write
) -> None:
    in_place_of(stopped.path / name, _link, other)
    settings = read_config(pipeline(QUIET))
    if name == ".lock":
        with pytest.raises(StoreCorruptError, match=quotes(stopped.path / name, "symbolic link")):
            run_pipeline(settings, stopped.path, overwrite=True)
    else:
        outcome = run_pipeline(settings, stopped.path, overwrite=True)
        assert outcome.record.state == "finished"
        assert not (stopped.path / name).is_symlink()


@pytest.mark.parametrize("name", ["current.json", "a link", "a chunk"])
@pytest.mark.parametrize("kind", [_link, _pipe])
def test_checkpoints_have_only_files(
    stopped: RunDirectory, other: Path, name: str, kind: Any
) -> None:
    place = max(stopped.checkpoints.glob("0*-*"))
    chunk = next(file for file in place.rglob("0") if file.is_file())
    file = {"current.json": place.with_name(name), "a chunk": chunk, "a link": place / name}[name]
    in_place_of(file, kind, other)
    with pytest.raises(StoreCorruptError, match=quotes(file)):
        resume_run(stopped.path)


@pytest.mark.parametrize("kind", [_dangling, _pipe, _large, _damaged])
def test_one_record_that_cannot_be_read_stops_nobody_else(
    pipeline: Write, other: Path, kind: Any
) -> None:
    first = again(pipeline(QUIET)).directory
    in_place_of(first.record, kind, other)
    notes: list[str] = []

    def note(event: object) -> None:
        if isinstance(event, StepFinished) and event.step == "ingest":
            notes.extend(event.notes)

    nightly = f"alpha = 2.0\n{QUIET}[output]\nkeep = 1\n[incremental]\nenabled = true\n"
    outcome = again(pipeline(nightly), observers=(note,))
    assert outcome.record.state == "finished"
    assert any(str(first.record) in text and "passed over" in text for text in notes)
    runs, unreadable = list_runs(first.path.parent)
    assert [run.name for run in runs] == [outcome.directory.path.name]
    assert [*unreadable] == [first.path.name]
    for command in (["describe"], ["report"], ["resume"], ["predict", "tiny.npz"]):
        result = CliRunner().invoke(main, [command[0], str(first.path), *command[1:]])
        assert result.exit_code == 3, (command, result.output)
        assert "run.json" in result.stderr


@pytest.mark.parametrize("name", ["labels.csv", "samples.csv", "samples.parquet"])
def test_a_changed_cell_is_noticed(finished: RunDirectory, name: str) -> None:
    file = finished.path / name
    if not file.exists():
        pytest.skip("pyarrow is not installed")
    content = file.read_bytes()
    changed = bytearray(content)
    changed[len(changed) // 2] ^= 1
    file.write_bytes(changed)
    assert name in resume_run(finished.path).record.resumed[-1].warnings[0]
    assert file.read_bytes() == content
    assert not resume_run(finished.path).resumed


@pytest.mark.parametrize("kind", [_link, _pipe, _large])
@pytest.mark.parametrize("name", ["labels.csv", "samples.csv"])
def test_a_table_that_is_no_file_or_too_large_is_written_again(
    finished: RunDirectory, other: Path, name: str, kind: Any
) -> None:
    in_place_of(finished.path / name, kind, other)
    if kind is not _large:
        with pytest.raises(StoreCorruptError, match=quotes(finished.path / name)):
            load_run(finished.path)
        return
    assert resume_run(finished.path).resumed
    assert (finished.path / name).stat().st_size < 2**20


@pytest.mark.parametrize("name", ["labels", "labels/c/0", "more"])
def test_a_result_with_links_is_not_loaded(
    finished: RunDirectory, name: str, tmp_path: Path
) -> None:
    """Links to what was there, so that all values are right."""
    file = finished.result / name
    if file.exists():
        shutil.move(file, tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreCorruptError, match=quotes(file, "symbolic link")):
        load_run(finished.path)
    result = CliRunner().invoke(main, ["report", str(finished.path)])
    assert (result.exit_code, str(file) in result.stderr) == (3, True), result.output
