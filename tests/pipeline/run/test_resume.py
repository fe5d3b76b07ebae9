"""Runs that go on: to the same bits, from every step, and never on other data."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mscam_dask.data.ingest import append, ingest
from mscam_dask.data.store.dataset import open_store, write_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.errors import ConfigurationError, DataError, StoreCorruptError, TemporaryFailure
from mscam_dask.monitor.events import Event, FitResumed, StepFinished, StepStarted
from mscam_dask.pipeline.resume import resume_run
from mscam_dask.pipeline.run_directory import RunDirectory
from mscam_dask.pipeline.toml_document import parse_override
from mscam_dask.types.events import FitFinished, IterationFinished, SettingsSelected
from tests.faults.kill_driver import outcome_of
from tests.messages import quotes, raises
from tests.pipeline.runs import (
    HERE,
    QUIET,
    Stopped,
    Write,
    a_chunk,
    again,
    at,
    rewritten,
    stop,
    stopped_run,
    write_tiny,
)


@pytest.fixture(scope="session")
def undisturbed(original: Callable[[str], Path]) -> Any:
    return outcome_of(original("finished"))


# (event, step, was it killed, has the fit a checkpoint by then)
STOPS = {
    "ingest begins": (StepStarted, "ingest", True, False),
    "ingest ends": (StepFinished, "ingest", False, False),
    "setting is known": (SettingsSelected, None, True, True),
    "first iteration": (IterationFinished, None, False, True),
    "write begins": (StepStarted, "write", True, True),
    "write ends": (StepFinished, "write", False, True),
}


@pytest.mark.parametrize("moment", STOPS)
def test_a_run_stopped_anywhere_ends_with_the_same_bits(
    moment: str, pipeline: Write, undisturbed: Any, tmp_path: Path
) -> None:
    kind, step, killed, has_checkpoint = STOPS[moment]
    root = tmp_path / "cut"
    with pytest.raises(Stopped):
        again(pipeline(HERE), output=root, observers=[at(stop, kind, step)])
    directory = RunDirectory(root)
    if killed:  # a process that is gone writes no end
        rewritten(directory, state="running", exit_code=None)
        (root / ".data.zarr.0123abcd.partial").mkdir()
        with directory.events.open("ab") as stream:
            stream.write(b'{"event": "cut sho')
    events: list[Event] = []
    outcome = resume_run(root, observers=[events.append])
    assert outcome.resumed
    assert outcome_of(root) == undisturbed
    record = outcome.record
    assert (record.state, record.exit_code, record.error) == ("finished", 0, None)
    (entry,) = record.resumed
    assert (entry.state, entry.warnings) == ("running" if killed else "failed", ())
    lines = directory.events.read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines][-1] == "step_finished"
    assert {item.name for item in root.iterdir()} == {
        *(".lock", "pipeline.toml", "run.json", "events.jsonl", "metrics.prom", "labels.csv"),
        *("samples.csv", "samples.parquet", "data.zarr", "result.zarr", "report.html"),
    }
    assert any(isinstance(event, FitResumed) for event in events) == has_checkpoint


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    for name in ("absent", "empty", "mine"):
        with raises(ConfigurationError, tmp_path / name):
            resume_run(tmp_path / name)
    assert [item.name for item in (tmp_path / "mine").iterdir()] == ["file"]


# ----------------------------------------------------------------------------- the same data


@pytest.mark.parametrize("key", ["labels", "batches", "partial_labels"])
@pytest.mark.parametrize("moment", ["ingest begins", "ingest ends", "first iteration"])
def test_values_of_samples_that_changed_are_refused_by_the_name_of_their_file(
    tiny: Path, tmp_path: Path, key: str, moment: str
) -> None:
    column = tmp_path / "column.txt"
    column.write_text("\n".join(map(str, np.arange(60) % 3)))
    file = write_tiny(tmp_path, QUIET, data=f"source = 'tiny.npz'\n{key} = 'column.txt'")
    kind, step, _, _ = STOPS[moment]
    with pytest.raises(Stopped):
        again(file, output=tmp_path / "out", observers=[at(stop, kind, step)])
    content = column.read_text()
    column.write_text(f"2{content[1:]}")
    with raises(DataError, column):
        resume_run(tmp_path / "out")
    column.write_text(content)
    assert resume_run(tmp_path / "out").record.state == "finished"


def test_the_runs_own_copy_is_made_again_where_it_is_gone(
    stopped: RunDirectory, undisturbed: Any
) -> None:
    shutil.rmtree(stopped.data)
    assert resume_run(stopped.path).record.state == "finished"
    assert outcome_of(stopped.path) == undisturbed


def test_a_source_with_other_content_is_refused_and_one_that_is_gone_is_said(
    pipeline: Write, tiny: Path, tmp_path: Path
) -> None:
    root = stopped_run(pipeline(QUIET), tmp_path / "out").path
    before = (root / "run.json").read_bytes()
    with np.load(tiny) as archive:
        arrays = dict(archive)
    arrays["view_0"] += 1.0
    np.savez(tiny, allow_pickle=False, **arrays)
    with raises(DataError, tiny, "SHA-256"):
        resume_run(root)
    assert (root / "run.json").read_bytes() == before
    tiny.unlink()
    events: list[Event] = []
    (entry,) = resume_run(root, observers=[events.append]).record.resumed
    assert str(tiny) in entry.warnings[0]
    assert entry.warnings in [event.notes for event in events if isinstance(event, StepFinished)]


@pytest.fixture
def store(tiny: Path, tmp_path: Path) -> Path:
    """A store, and tiny.toml over it."""
    write_tiny(tmp_path, QUIET, data="source = 'data.zarr'")
    return Path(str(ingest([tiny], tmp_path / "data.zarr").output))


def test_a_store_with_other_values_is_refused(store: Path, tmp_path: Path) -> None:
    root = stopped_run(tmp_path / "tiny.toml", tmp_path / "out").path
    views = {view.name: view.read(0, 60).copy() for view in open_store(store).views}
    views["view_1"][0, 0] += 1.0
    write_store(as_multi_view(views), store, overwrite=True)
    with raises(DataError, store, "'view_1'"):
        resume_run(root)


def test_the_runs_own_copy_is_read_and_compared(stopped: RunDirectory) -> None:
    chunk = a_chunk(stopped.data)
    content = bytearray(chunk.read_bytes())
    content[0] ^= 1
    chunk.write_bytes(bytes(content))
    with raises(DataError, chunk):
        resume_run(stopped.path)


@pytest.mark.parametrize("step", ["ingest", "cluster"])
def test_a_store_that_grows_under_a_run_is_to_be_tried_again(
    step: str, tiny: Path, store: Path, tmp_path: Path
) -> None:
    view, more = open_store(store).views[0], tmp_path / "more.npz"
    with np.load(tiny) as arrays:
        np.savez(more, allow_pickle=False, **{name: arrays[name][:9] for name in arrays})
    growing = at(lambda: append([more], store), StepStarted, step)
    with raises(TemporaryFailure, store):
        again(tmp_path / "tiny.toml", output=tmp_path / "run", observers=[growing])
    record = RunDirectory(tmp_path / "run").read_record()
    assert (record.state, record.exit_code) == ("failed", 75)
    with raises(StoreCorruptError, "'view_0'", store):
        view.read(0, 5)
    record = again(tmp_path / "tiny.toml", output=tmp_path / "next").record
    assert (record.data.n_samples, record.exit_code) == (69, 0)


def test_damage_is_no_change(store: Path, tmp_path: Path) -> None:
    (chunk,) = (store / "views/1/values/c").rglob("0/0")
    damage = at(
        lambda: chunk.write_bytes(chunk.read_bytes()[:-9] + bytes(9)), StepStarted, "cluster"
    )
    with raises(StoreCorruptError, chunk):
        again(tmp_path / "tiny.toml", output=tmp_path / "run", observers=[damage])
    assert RunDirectory(tmp_path / "run").read_record().exit_code == 3


def test_a_file_that_is_written_while_it_is_ingested(
    pipeline: Write, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(*arguments: Any, **options: Any) -> Any:
        report = ingest(*arguments, **options)
        tiny.write_bytes(tiny.read_bytes())
        return report

    monkeypatch.setattr("mscam_dask.pipeline.open_data.ingest", slowly)
    with raises(TemporaryFailure, tiny):
        again(pipeline(QUIET), output=tmp_path / "run")
    monkeypatch.undo()
    assert again(pipeline(QUIET), output=tmp_path / "run").record.exit_code == 0


# ----------------------------------------------------------------------------- the same settings


def test_other_software_is_said_and_what_runs_the_tasks_can_be_changed(
    stopped: RunDirectory, undisturbed: Any
) -> None:
    record = stopped.read_record()
    blas = tuple({**library, "version": "0.1"} for library in record.blas)
    rewritten(stopped, versions={**record.versions, "numpy": "1.0"}, blas=blas)
    events: list[Event] = []
    threads = parse_override("execution.threads=2")
    outcome = resume_run(stopped.path, execution=[threads], observers=[events.append])
    (warning,) = outcome.record.resumed[0].warnings
    assert re.search(quotes("numpy", "1.0", np.__version__, "BLAS", "0.1"), warning)
    said = [event for event in events if isinstance(event, StepFinished) and event.step == "resume"]
    assert said[0].notes == (warning,)
    assert outcome.record.versions["numpy"] == np.__version__
    assert outcome_of(stopped.path) == undisturbed


def test_a_pipeline_file_with_other_settings_is_refused(stopped: RunDirectory) -> None:
    kept = stopped.pipeline.read_text()
    other = kept.replace("n_clusters = 3", "n_clusters = 2").encode()
    said = ["cluster.n_clusters", 2, 3]
    for content, values in ((b"\xff", []), (b"[cluster\n", []), (other, said)):
        stopped.pipeline.write_bytes(content)
        with raises(ConfigurationError, stopped.pipeline, *values):
            resume_run(stopped.path)
    stopped.pipeline.unlink()
    assert resume_run(stopped.path).record.state == "finished"
    assert stopped.pipeline.read_text() == kept


def test_settings_that_cannot_be_read_are_refused(stopped: RunDirectory) -> None:
    settings = stopped.read_record().settings
    later = {**settings, "data": {**settings["data"], "of_a_later_version": 3}}
    settings["cluster"]["parameters"]["n_klusters"] = 3
    for other, value in (
        (None, "settings"),
        ({"name": 3}, "name"),
        (settings, "n_klusters"),
        (later, "of_a_later_version"),
    ):
        rewritten(stopped, settings=other)
        with raises(DataError, stopped.record, value, "--overwrite"):
            resume_run(stopped.path)


# ----------------------------------------------------------------------------- checkpoints


def test_a_damaged_checkpoint_is_passed_over_and_said(
    pipeline: Write, undisturbed: Any, tmp_path: Path
) -> None:
    root = tmp_path / "out"
    with pytest.raises(Stopped):
        again(pipeline(QUIET), output=root, observers=[at(stop, FitFinished)])
    damaged = max((root / "checkpoints").glob("0*")) / "record/c/0"
    damaged.write_bytes(b"")
    events: list[Event] = []
    (entry,) = resume_run(root, observers=[events.append]).record.resumed
    assert outcome_of(root) == undisturbed
    (resumed,) = [event for event in events if isinstance(event, FitResumed)]
    assert str(damaged) in resumed.notes[0]
    assert entry.warnings == resumed.notes
    assert entry.after_iteration == resumed.after_iteration


def test_without_a_whole_checkpoint_the_run_says_what_to_do(
    stopped: RunDirectory, undisturbed: Any
) -> None:
    states = sorted(stopped.checkpoints.glob("0*/record/c/0"))
    for state in states:
        state.unlink()
    with raises(DataError, *states):
        resume_run(stopped.path)
    shutil.rmtree(stopped.checkpoints)
    outcome = resume_run(stopped.path)
    assert outcome_of(stopped.path) == undisturbed
    assert [entry.state for entry in outcome.record.resumed] == ["interrupted", "failed"]
