"""Reports of run directories: what they are made from, and what is said when that is not there."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from mscam_dask.errors import DataError
from mscam_dask.monitor.events import Event, StepFinished
from mscam_dask.monitor.run_record import RunRecord
from mscam_dask.pipeline.config.read_config import read_config
from mscam_dask.pipeline.run.report import write_report
from mscam_dask.pipeline.run.run import run_pipeline
from mscam_dask.pipeline.run.run_directory import RunDirectory
from tests.messages import quotes

Write = Callable[[str], Path]

IN_PROCESS = "[execution]\nin_process = true\nthreads = 1\n"


@pytest.fixture
def directory(pipeline: Write, tmp_path: Path) -> RunDirectory:
    return run_pipeline(read_config(pipeline(IN_PROCESS)), tmp_path / "out").directory


def test_it_links_to_the_files_from_where_it_is(directory: RunDirectory, tmp_path: Path) -> None:
    page = directory.report.read_text(encoding="utf-8")
    assert 'href="result.zarr/"' in page
    elsewhere = tmp_path / "a b" / "page.html"
    assert write_report(directory, elsewhere) == elsewhere
    assert 'href="../out/labels.csv"' in elsewhere.read_text(encoding="utf-8")
    assert [item.name for item in elsewhere.parent.iterdir()] == ["page.html"]


def test_sample_ids_come_from_the_run_and_labels_from_its_data(
    pipeline: Write, tmp_path: Path
) -> None:
    with np.load(tmp_path / "tiny.npz") as archive:
        arrays = dict(archive)
    names = np.array([f"leaf-{row:03}" for row in range(60)])
    np.savez(tmp_path / "tiny.npz", allow_pickle=False, **arrays, sample_ids=names)
    outcome = run_pipeline(read_config(pipeline(IN_PROCESS)), tmp_path / "named")
    page = outcome.directory.report.read_text(encoding="utf-8")
    assert 'id="labels"' in page
    assert ("leaf-017" in page) == bool(outcome.record.data and outcome.record.data.has_sample_ids)


def test_labels_that_are_gone_are_missed_aloud(directory: RunDirectory) -> None:
    assert str(directory.path / "data.zarr") not in directory.report.read_text(encoding="utf-8")
    shutil.rmtree(directory.path / "data.zarr")
    page = write_report(directory).read_text(encoding="utf-8")
    assert str(directory.path / "data.zarr") in page
    assert 'id="labels"' not in page


def test_a_run_without_results_is_told_so(directory: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=quotes(tmp_path / "absent", "run.json")):
        write_report(RunDirectory(tmp_path / "absent"))
    record = msgspec.to_builtins(directory.read_record())
    record.update(state="failed", fit=None, error={"type": "DataError", "message": "view a is odd"})
    rewrite(directory, record)
    with pytest.raises(DataError, match=quotes(directory.path, "view a is odd")):
        write_report(directory)


def test_a_directory_is_no_file(directory: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=quotes(tmp_path)):
        write_report(directory, tmp_path)


def test_it_can_be_switched_off(pipeline: Write, tmp_path: Path) -> None:
    settings = read_config(pipeline(IN_PROCESS + "[report]\nenabled = false\n"))
    assert not run_pipeline(settings, tmp_path / "out").directory.report.exists()


def test_a_report_that_fails_does_not_fail_the_run(pipeline: Write, tmp_path: Path) -> None:
    notes: list[str] = []

    def note(event: Event) -> None:
        if isinstance(event, StepFinished) and event.step == "write":
            (tmp_path / "out" / "report.html").mkdir()
        notes.extend(getattr(event, "notes", ()))

    outcome = run_pipeline(read_config(pipeline(IN_PROCESS)), tmp_path / "out", observers=[note])
    assert outcome.record.state == "finished"
    said = quotes("report.html is a directory", "mscam-dask report")
    assert any(re.search(said, note) for note in notes)


def rewrite(directory: RunDirectory, record: dict[str, Any]) -> None:
    directory.write_record(msgspec.convert(record, RunRecord))


def test_samples_that_moved_are_read_from_the_run(directory: RunDirectory) -> None:
    record = msgspec.to_builtins(directory.read_record())
    sizes = record["fit"]["cluster_sizes"]
    record["drift"] = {
        **dict.fromkeys(("n_new", "n_gone", "warm_runs"), 0),
        "earlier": "tiny-0",
        "start": "cold",
        "reason": "of a test",
        "n_common": 60,
        "n_moved": 1,
        "cluster_names": [0, 1, 2],
        "sizes_before": sizes,
        "sizes_after": sizes,
        "score_before": None,
        "score_after": None,
    }
    rewrite(directory, record)
    directory.moved.write_text("sample,before,after\nleaf-17,0,2\n")
    page = write_report(directory).read_text(encoding="utf-8")
    assert "leaf-17" in page
    assert 'href="moved.csv"' in page
    directory.moved.write_text("sample,before,after\nleaf-17,0\n")
    with pytest.raises(DataError, match=quotes(directory.moved)):
        write_report(directory)
