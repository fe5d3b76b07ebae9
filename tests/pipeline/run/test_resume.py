"""Runs that go on: to the same bits, from every step, and never on other data."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from mscam_dask.data.ingest import ingest
from mscam_dask.data.store.read import open_store
from mscam_dask.data.store.write import write_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.errors import ConfigurationError, DataError, TemporaryFailure
from mscam_dask.monitor.events import Event, FitResumed, StepFinished, StepStarted
from mscam_dask.pipeline.config.read_config import read_config
from mscam_dask.pipeline.config.toml_document import parse_override
from mscam_dask.pipeline.run.resume import resume_run
from mscam_dask.pipeline.run.run import RunOutcome, run_pipeline
from mscam_dask.pipeline.run.run_directory import RunDirectory
from mscam_dask.types.events import FitFinished, IterationFinished, SettingsSelected
from tests.faults.kill_driver import outcome_of
from tests.messages import quotes

Write = Callable[[str], Path]
Stop = Callable[[Event], bool]

IN_PROCESS = "[execution]\nin_process = true\nthreads = 1\n"


class Undisturbed:
    """What the run of these tests ends with; computed once."""

    _outcome: Any = None

    def __init__(self, file: Path, output: Path) -> None:
        self._file, self._output = file, output

    @property
    def outcome(self) -> Any:
        if Undisturbed._outcome is None:
            run_pipeline(read_config(self._file), self._output)
            Undisturbed._outcome = outcome_of(self._output)
        return Undisturbed._outcome


@pytest.fixture
def undisturbed(pipeline: Write, tmp_path: Path) -> Undisturbed:
    return Undisturbed(pipeline(IN_PROCESS), tmp_path / "whole")


class Stopped(Exception):
    """What a test stops a run with."""


def stop_at(when: Stop) -> Callable[[Event], None]:
    def observer(event: Event) -> None:
        if when(event):
            raise Stopped

    return observer


def stopped_run(file: Path, output: Path, when: Stop) -> Path:
    with pytest.raises(Stopped):
        run_pipeline(read_config(file), output, observers=[stop_at(when)])
    return output


def begins(step: str) -> Stop:
    return lambda event: isinstance(event, StepStarted) and event.step == step


def ends(step: str) -> Stop:
    return lambda event: isinstance(event, StepFinished) and event.step == step


STOPS: dict[str, Stop] = {
    "ingest begins": begins("ingest"),
    "ingest ends": ends("ingest"),
    "validate ends": ends("validate"),
    "setting is known": lambda event: isinstance(event, SettingsSelected),
    "first iteration": lambda event: isinstance(event, IterationFinished) and event.iteration == 0,
    "last iteration": lambda event: isinstance(event, FitFinished),
    "write begins": begins("write"),
    "write ends": ends("write"),
}


@pytest.mark.parametrize("stop", STOPS)
def test_a_run_stopped_anywhere_ends_with_the_same_bits(
    stop: str, pipeline: Write, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    file = pipeline(IN_PROCESS)
    killed = len(stop) % 2 == 0
    root = stopped_run(file, tmp_path / "cut", STOPS[stop])
    directory = RunDirectory(root)
    if killed:  # a process that is gone writes no end
        record = msgspec.structs.replace(directory.read_record(), state="running", exit_code=None)
        directory.write_record(record)
        (root / ".data.zarr.0123abcd.partial").mkdir()
        with directory.events.open("ab") as stream:
            stream.write(b'{"event": "cut sho')
    events: list[Event] = []
    outcome = resume_run(root, observers=[events.append])
    assert outcome.resumed
    assert outcome_of(root) == undisturbed.outcome
    record = outcome.record
    assert (record.state, record.exit_code, record.error) == ("finished", 0, None)
    (entry,) = record.resumed
    assert entry.state == ("running" if killed else "failed")
    assert entry.warnings == ()
    lines = directory.events.read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines][-1] == "step_finished"
    assert {item.name for item in root.iterdir()} == {
        *(".lock", "pipeline.toml", "run.json", "events.jsonl", "metrics.prom"),
        *("data.zarr", "labels.csv", "report.html", "result.zarr"),
        *("samples.csv", "samples.parquet"),
    }
    resumed = [event for event in events if isinstance(event, FitResumed)]
    assert bool(resumed) == (stop not in ("ingest begins", "ingest ends", "validate ends"))


def test_a_finished_run_is_left_as_it_is(pipeline: Write, tmp_path: Path) -> None:
    first = run_pipeline(read_config(pipeline(IN_PROCESS)), tmp_path / "out")
    before = first.directory.record.read_bytes()
    again = resume_run(tmp_path / "out")
    assert not again.resumed
    assert again.record == first.record
    assert first.directory.record.read_bytes() == before


def test_what_is_no_run_is_refused(pipeline: Write, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=quotes(tmp_path / "absent")):
        resume_run(tmp_path / "absent")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ConfigurationError, match=quotes(empty)):
        resume_run(empty)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    with pytest.raises(ConfigurationError, match=quotes(tmp_path / "mine")):
        resume_run(tmp_path / "mine")
    assert [item.name for item in (tmp_path / "mine").iterdir()] == ["file"]


def test_a_run_that_is_going_on_is_refused(pipeline: Write, tmp_path: Path) -> None:
    file, root = pipeline(IN_PROCESS), tmp_path / "out"
    refusals = []

    def second(event: Event) -> None:
        if isinstance(event, IterationFinished):
            with pytest.raises(TemporaryFailure, match=quotes(root, os.getpid())) as caught:
                resume_run(root)
            refusals.append(caught.value.exit_code)
            with pytest.raises(TemporaryFailure, match=quotes(root, os.getpid())) as caught:
                run_pipeline(read_config(file), root, overwrite=True)
            refusals.append(caught.value.exit_code)

    run_pipeline(read_config(file), root, observers=[second])
    assert set(refusals) == {75}
    assert len(refusals) >= 2


# ----------------------------------------------------------------------------- the same data


def after_first_iteration(file: Path, output: Path) -> Path:
    return stopped_run(file, output, STOPS["first iteration"])


def test_a_source_with_other_content_is_refused(
    pipeline: Write, tiny: Path, tmp_path: Path
) -> None:
    root = after_first_iteration(pipeline(IN_PROCESS), tmp_path / "out")
    before = (root / "run.json").read_bytes()
    content = tiny.read_bytes()
    with np.load(tiny) as archive:
        arrays = dict(archive)
    arrays["view_0"] += 1.0
    np.savez(tiny, allow_pickle=False, **arrays)
    with pytest.raises(DataError, match=quotes(tiny, "SHA-256")):
        resume_run(root)
    assert (root / "run.json").read_bytes() == before
    tiny.write_bytes(content)
    assert resume_run(root).record.state == "finished"


def test_a_source_that_is_gone_is_said(pipeline: Write, tiny: Path, tmp_path: Path) -> None:
    root = after_first_iteration(pipeline(IN_PROCESS), tmp_path / "out")
    tiny.unlink()
    events: list[Event] = []
    outcome = resume_run(root, observers=[events.append])
    assert str(tiny) in outcome.record.resumed[0].warnings[0]
    notes = [event.notes for event in events if isinstance(event, StepFinished)]
    assert outcome.record.resumed[0].warnings in notes


def test_a_store_with_other_values_is_refused(tiny: Path, tmp_path: Path) -> None:
    ingest(tiny, tmp_path / "tiny.zarr")
    file = tmp_path / "store.toml"
    file.write_text(
        "[data]\nsource = 'tiny.zarr'\n[cluster]\nn_clusters = 3\nconstants.auto_settings = false\n"
        "max_iter = 3\n" + IN_PROCESS
    )
    root = after_first_iteration(file, tmp_path / "out")
    stored = open_store(tmp_path / "tiny.zarr")
    views = {view.name: view.read(0, 60).copy() for view in stored.views}
    views["view_1"][0, 0] += 1.0
    write_store(as_multi_view(views), tmp_path / "tiny.zarr", overwrite=True)
    with pytest.raises(DataError, match=quotes(tmp_path / "tiny.zarr", "'view_1'")):
        resume_run(root)


def test_the_runs_own_copy_is_read_and_compared(pipeline: Write, tmp_path: Path) -> None:
    root = after_first_iteration(pipeline(IN_PROCESS), tmp_path / "out")
    chunk = next(item for item in (root / "data.zarr").rglob("c/*/0") if item.is_file())
    content = bytearray(chunk.read_bytes())
    content[0] ^= 1
    chunk.write_bytes(bytes(content))
    with pytest.raises(DataError, match=quotes(chunk)):
        resume_run(root)


# ----------------------------------------------------------------------------- the same software


def test_other_software_is_said_and_recorded(pipeline: Write, tmp_path: Path) -> None:
    root = after_first_iteration(pipeline(IN_PROCESS), tmp_path / "out")
    directory = RunDirectory(root)
    record = directory.read_record()
    blas = tuple({**library, "version": "0.1"} for library in record.blas)
    versions = {**record.versions, "numpy": "1.0"}
    directory.write_record(msgspec.structs.replace(record, versions=versions, blas=blas))
    events: list[Event] = []
    outcome = resume_run(root, observers=[events.append])
    (warning,) = outcome.record.resumed[0].warnings
    assert re.search(quotes("numpy", "1.0", np.__version__, "BLAS", "0.1"), warning)
    said = [event for event in events if isinstance(event, StepFinished) and event.step == "resume"]
    assert said[0].notes == (warning,)
    assert outcome.record.versions["numpy"] == np.__version__


def test_what_runs_the_tasks_can_be_changed(
    pipeline: Write, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    root = after_first_iteration(pipeline(IN_PROCESS), tmp_path / "out")
    resume_run(root, execution=[parse_override("execution.threads=2")])
    assert outcome_of(root) == undisturbed.outcome


# ----------------------------------------------------------------------------- damage


def newest(root: Path) -> Path:
    return max((root / "checkpoints").glob("0*"))


def test_a_damaged_checkpoint_is_passed_over_and_said(
    pipeline: Write, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    root = stopped_run(pipeline(IN_PROCESS), tmp_path / "out", STOPS["last iteration"])
    damaged = newest(root) / "record/c/0"
    damaged.write_bytes(b"")
    events: list[Event] = []
    outcome = resume_run(root, observers=[events.append])
    assert outcome_of(root) == undisturbed.outcome
    (resumed,) = [event for event in events if isinstance(event, FitResumed)]
    assert str(damaged) in resumed.notes[0]
    assert outcome.record.resumed[0].warnings == resumed.notes
    assert outcome.record.resumed[0].after_iteration == resumed.after_iteration


def test_without_a_whole_checkpoint_the_run_says_what_to_do(
    pipeline: Write, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    root = after_first_iteration(pipeline(IN_PROCESS), tmp_path / "out")
    states = sorted((root / "checkpoints").glob("0*/record/c/0"))
    for state in states:
        state.unlink()
    with pytest.raises(DataError, match=quotes(*states)):
        resume_run(root)
    shutil.rmtree(root / "checkpoints")
    outcome: RunOutcome = resume_run(root)
    assert outcome_of(root) == undisturbed.outcome
    assert [entry.state for entry in outcome.record.resumed] == ["failed", "failed"]


@pytest.mark.parametrize("change", [{"settings": None}, {"settings": {"name": 3}}])
def test_settings_that_cannot_be_read_are_refused(
    change: dict[str, Any], pipeline: Write, tmp_path: Path
) -> None:
    root = after_first_iteration(pipeline(IN_PROCESS), tmp_path / "out")
    directory = RunDirectory(root)
    directory.write_record(msgspec.structs.replace(directory.read_record(), **change))
    with pytest.raises((ConfigurationError, DataError), match=quotes(root)):
        resume_run(root)
