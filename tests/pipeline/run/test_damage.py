"""Files of a run that are damaged, links, pipes or too large: refused where the run is asked for, passed over elsewhere."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from mscam_dask.cli import main
from mscam_dask.data.views.sample_ids import decoded_id, encoded_id
from mscam_dask.errors import ConfigurationError, DataError, StoreCorruptError, TemporaryFailure
from mscam_dask.monitor.events import StepFinished
from mscam_dask.monitor.run_record import RUN_FORMAT, decode_record
from mscam_dask.pipeline.load_run import load_run
from mscam_dask.pipeline.resume import resume_run
from mscam_dask.pipeline.run import RunOutcome
from mscam_dask.pipeline.run_directory import RunDirectory
from mscam_dask.pipeline.stored_run import list_runs
from tests.messages import raises
from tests.pipeline.runs import QUIET, Write, again, at

CONTENT = b"of somebody else"

# --------------------------------------------------------------------------- records


def test_every_flipped_bit_of_a_record_is_noticed_or_harmless(finished: RunDirectory) -> None:
    before, record = finished.record.read_bytes(), finished.read_record()
    turned = json.dumps(dict(reversed(json.loads(before).items()))).encode()
    assert decode_record(turned, "here") == record  # whatever the order of its keys
    rng = np.random.default_rng(0)
    n_noticed = 0
    for position in rng.choice(len(before), 400, replace=False):
        damaged = bytearray(before)
        damaged[position] ^= 1 << int(rng.integers(8))
        try:
            assert decode_record(bytes(damaged), "here") == record
        except DataError:
            n_noticed += 1
    assert n_noticed > 200


def test_a_missing_report_is_written_again(finished: RunDirectory, fits: list[Any]) -> None:
    before = finished.report.read_bytes()
    finished.report.unlink()
    steps: list[Any] = []
    outcome = resume_run(finished.path, observers=[steps.append])
    assert (outcome.resumed, fits) == (False, [])
    assert [event.step for event in steps if isinstance(event, StepFinished)] == ["report"]
    assert finished.report.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "has_own_field"),
    [("labels.csv", False), ("labels.csv", True), ("samples.parquet", False)],
)
def test_a_changed_cell_is_noticed(first: RunOutcome, name: str, *, has_own_field: bool) -> None:
    path = first.directory.path
    if has_own_field:  # as in earlier records
        record = first.directory.read_record()
        digests = dict(record.files_sha256)
        earlier = {"labels_sha256": digests.pop(name), "files_sha256": digests}
        first.directory.write_record(msgspec.structs.replace(record, **earlier))
    file = path / name
    content = file.read_bytes()
    changed = bytearray(content)
    changed[len(changed) // 2] ^= 1
    file.write_bytes(changed)
    assert name in resume_run(path).record.resumed[-1].warnings[0]
    assert file.read_bytes() == content
    assert not resume_run(path).resumed


HOSTILE = [
    *("=cmd()", "+1+1", "-1+1", "@SUM(A1)", "\tx", "\rx", "a\x1b[31mb", "a\nb", "'=x", "\x9bx"),
    *("|calc", "  =1+1", "\uff1d1+1", "\uff5cx", " -7"),
    *("\\x1b", "'a\\b", "=a\\b", "", "-7", "+3.5", "plain", "Zürich, 8"),
]


def test_sample_ids_are_harmless_and_read_back() -> None:
    for sample in HOSTILE:
        text = encoded_id(sample)
        assert decoded_id(text) == sample
        assert text.isprintable()
        start = unicodedata.normalize("NFKC", text).lstrip()[:1]
        assert start not in {*"=@|\t\r"}
        assert start not in {*"+-"} or (float(text) and text[0] == start)
        if sample in ("plain", "-7", "+3.5", "\\x1b", "Zürich, 8"):
            assert text == sample
    assert len({encoded_id(other) for other in HOSTILE}) == len(HOSTILE)


# --------------------------------------------------------------------------- no regular files


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Path]:
    """A file outside of the run, which keeps its content."""
    file = tmp_path / "other"
    file.write_bytes(CONTENT)
    yield file
    assert file.read_bytes() == CONTENT


def _socket(file: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(file.parent):
        server.bind(file.name)  # a socket has a short path


def _large(file: Path) -> None:
    file.touch()
    os.truncate(file, 6 * 2**30)


KINDS: dict[str, Callable[[Path, Path], object]] = {
    "link": lambda file, other: file.symlink_to(other),
    "second name": lambda file, other: file.hardlink_to(other),
    "dangling": lambda file, other: file.symlink_to(other.with_name("absent")),
    "pipe": lambda file, _: os.mkfifo(file),
    "socket": lambda file, _: _socket(file),
    "directory": lambda file, _: file.mkdir(),
    "large": lambda file, _: _large(file),
    "empty": lambda file, _: file.touch(),
    "damaged": lambda file, _: file.write_text(f'{{"format": "{RUN_FORMAT}"'),
}


@contextlib.contextmanager
def replaced(file: Path, kind: str, other: Path) -> Iterator[None]:
    """Something else in the place of a file, which is there again at the end."""
    kept = other.with_name("kept")
    if file.exists():
        file.rename(kept)
    KINDS[kind](file, other)
    try:
        yield
    finally:
        file.rmdir() if kind == "directory" else file.unlink()
        if kept.exists():
            kept.rename(file)


@pytest.mark.parametrize("name", [".lock", "events.jsonl", "run.json", "pipeline.toml"])
def test_resume_neither_writes_nor_waits_elsewhere(
    stopped: RunDirectory, other: Path, name: str
) -> None:
    kinds = ["link", "dangling", "pipe", "directory", "large"]
    if name in (".lock", "events.jsonl"):
        kinds.append("second name")
    for kind in kinds:
        with replaced(stopped.path / name, kind, other):
            result = CliRunner().invoke(main, ["resume", str(stopped.path)])
        assert result.exit_code in (2, 3), (kind, result.output)
        assert name in result.stderr
        assert not other.with_name("absent").exists()


def test_no_file_of_a_run_or_a_checkpoint_is_a_link_or_device(
    stopped: RunDirectory, other: Path
) -> None:
    place = max(stopped.checkpoints.glob("0*-*"))
    cases = [
        (stopped.labels, "socket"),
        (stopped.path / "metrics.prom", "pipe"),
        *((file, "link") for file in (stopped.data, stopped.result, stopped.checkpoints)),
        *((place / name, kind) for name in ("a", "record/c/0") for kind in ("link", "pipe")),
        (place.with_name("00000099-0123abcd"), "link"),
    ]
    for file, kind in cases:
        with replaced(file, kind, other), raises(StoreCorruptError, file):
            resume_run(stopped.path)


def test_a_new_run_replaces_links_but_never_a_lock(
    stopped: RunDirectory, other: Path, pipeline: Write
) -> None:
    with (
        replaced(stopped.path / ".lock", "link", other),
        raises(StoreCorruptError, stopped.path / ".lock"),
    ):
        again(pipeline(QUIET), output=stopped.path, overwrite=True)
    shutil.rmtree(stopped.data)
    for file in (stopped.record, stopped.data):
        file.unlink(missing_ok=True)
        file.symlink_to(other)
    outcome = again(pipeline(QUIET), output=stopped.path, overwrite=True)
    assert outcome.record.state == "finished"
    assert not any(file.is_symlink() for file in stopped.path.iterdir())


def test_records_that_cannot_be_read_stop_nobody_else(
    first: RunOutcome, pipeline: Write, other: Path
) -> None:
    root = first.directory.path.parent
    records = []
    for kind in ("dangling", "pipe", "large", "damaged", "empty"):
        copy = RunDirectory(shutil.copytree(first.directory.path, root / f"tiny-{kind}"))
        copy.record.unlink()
        KINDS[kind](copy.record, other)
        records.append(copy.record)
    events: list[Any] = []
    nightly = f"alpha = 2.0\n{QUIET}[output]\nkeep = 1\n[incremental]\nenabled = true\n"
    outcome = again(pipeline(nightly), observers=(events.append,))
    assert outcome.record.state == "finished"
    notes = [note for event in events for note in getattr(event, "notes", ())]
    for record in records:
        assert any(str(record) in note for note in notes)
    runs, unreadable = list_runs(root)
    assert [each.name for each in runs] == [outcome.directory.path.name]
    assert {*unreadable} == {record.parent.name for record in records}
    for record in records:
        for command in (["describe"], ["report"], ["resume"], ["predict", "tiny.npz"]):
            result = CliRunner().invoke(main, [command[0], str(record.parent), *command[1:]])
            assert result.exit_code == 3, (command, result.output)
            assert "run.json" in result.stderr
            assert ("--overwrite" in result.stderr) == ("damaged" in record.parent.name)
            assert ("move its directory away" in result.stderr) == ("empty" in record.parent.name)


def test_tables_and_results_with_links_are_not_loaded(finished: RunDirectory, other: Path) -> None:
    for name in ("labels.csv", "samples.csv"):
        with (
            replaced(finished.path / name, "pipe", other),
            raises(StoreCorruptError, finished.path / name),
        ):
            load_run(finished.path)
    kept = other.with_name("kept")  # what was there, so that all values are right
    for name in ("labels", "labels/c/0", "more"):
        file = finished.result / name
        with replaced(file, "link", kept), raises(StoreCorruptError, file):
            load_run(finished.path)
    assert CliRunner().invoke(main, ["report", str(finished.path)]).exit_code == 0
    finished.samples.unlink()
    KINDS["large"](finished.samples, other)
    assert resume_run(finished.path).resumed
    assert finished.samples.stat().st_size < 2**20


# --------------------------------------------------------------------------- locks and paths


def test_a_run_that_goes_on_lets_no_second_driver_in(pipeline: Write, tmp_path: Path) -> None:
    iterations = []

    def second() -> None:
        with raises(TemporaryFailure, tmp_path / "out"):
            resume_run(tmp_path / "out")
        with raises(TemporaryFailure, tmp_path / "out"):
            again(pipeline(QUIET), output=tmp_path / "out", overwrite=True)
        iterations.append("refused")

    outcome = again(pipeline(QUIET), output=tmp_path / "out", observers=(at(second),))
    assert outcome.record.state == "finished"
    assert len(iterations) == 3


def test_a_damaged_lock_file_still_locks(tmp_path: Path) -> None:
    with RunDirectory.lock(tmp_path / "out") as directory:
        (directory.path / ".lock").write_bytes(b"process \xff")
        with raises(TemporaryFailure, directory.path):
            resume_run(directory.path)


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_lock_file_that_is_removed_or_replaced_ends_the_run(
    pipeline: Write, tmp_path: Path, is_replaced: bool
) -> None:
    def replace() -> None:
        lock = tmp_path / "out" / ".lock"
        lock.unlink(missing_ok=True)
        if is_replaced:
            lock.touch()

    with raises(TemporaryFailure, ".lock"):
        again(pipeline(QUIET), output=tmp_path / "out", observers=(at(replace),))
    assert not (tmp_path / "out" / "labels.csv").exists()


def test_a_directory_that_is_moved_ends_the_run(pipeline: Write, tmp_path: Path) -> None:
    def harm() -> None:
        if (tmp_path / "out").exists():
            (tmp_path / "out").rename(tmp_path / "moved")

    with raises(TemporaryFailure, tmp_path / "out"):
        again(pipeline(QUIET), output=tmp_path / "out", observers=(at(harm),))
    assert not (tmp_path / "out").exists()
    assert resume_run(tmp_path / "moved").record.state == "finished"


@pytest.mark.thorough
def test_links_in_the_paths_of_runs_and_checkpoints_are_followed(
    pipeline: Write, tmp_path: Path
) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "scratch").symlink_to(tmp_path / "disk")
    file = pipeline(f"{QUIET}[output]\ncheckpoints = 'scratch/c'\n")
    for overwrite in (False, True):
        outcome = again(file, output=tmp_path / "scratch" / "run", overwrite=overwrite)
        assert outcome.directory.path == tmp_path / "disk" / "run"
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "run")
    assert again(file, output=tmp_path / "link", overwrite=True).record.state == "finished"
    assert (tmp_path / "link").is_symlink()
    assert not resume_run(tmp_path / "link").resumed


def test_named_runs_below_a_link_find_each_other(
    first: RunOutcome, pipeline: Write, fits: list[Any], tmp_path: Path
) -> None:
    (tmp_path / "scratch").symlink_to(tmp_path / "runs")
    output = "[output]\nroot = 'scratch'\n"
    assert not again(pipeline(f"{QUIET}{output}")).resumed
    second = again(pipeline(f"{QUIET}{output}[evaluate]\nenabled = false\n"))
    assert second.directory.path.parent == first.directory.path.parent
    assert fits == []


def test_a_link_that_leads_nowhere_is_refused(pipeline: Write, tmp_path: Path) -> None:
    (tmp_path / "scratch").symlink_to(tmp_path / "unmounted")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    (tmp_path / "a").symlink_to(tmp_path / "b")
    for name in ("scratch", "a"):
        with raises(ConfigurationError, tmp_path / name):
            again(pipeline(QUIET), output=tmp_path / name)
    assert not (tmp_path / "unmounted").exists()
