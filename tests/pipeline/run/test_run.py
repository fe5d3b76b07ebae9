"""Runs from a file to a run directory: the plan says what is done, and what was done is not done again."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest

from mscam_dask.cli.console import relative
from mscam_dask.cli.run import plan_run
from mscam_dask.data.ingest import ingest
from mscam_dask.data.results import read_result
from mscam_dask.data.store.dataset import open_store
from mscam_dask.engine.memory import plan_memory
from mscam_dask.errors import ClusterError, ConfigurationError
from mscam_dask.metrics import score_partition
from mscam_dask.monitor.events import Event, StepFinished, StepStarted
from mscam_dask.pipeline.open_data import open_data
from mscam_dask.pipeline.read_config import read_config
from mscam_dask.pipeline.resume import resolve_target, resume_run
from mscam_dask.pipeline.run import RunOutcome
from mscam_dask.pipeline.run_directory import RunDirectory
from mscam_dask.types.result import Status
from mscam_dask.types.rules import SIZES
from tests.messages import quotes
from tests.pipeline.runs import (
    HERE,
    QUIET,
    THREE,
    Write,
    a_chunk,
    again,
    labels_of,
    write_tiny,
)
from tests.synthetic import save_npz, three_subspaces


def test_a_run_directory_says_everything_about_its_run(pipeline: Write, tmp_path: Path) -> None:
    events: list[Event] = []
    outcome = again(pipeline(HERE), output=tmp_path / "out", observers=[events.append])
    root = tmp_path / "out"
    record = json.loads((root / "run.json").read_text())
    assert record["format"] == "mscam_dask.run"
    assert (record["method"], record["seed"], record["error"]) == ("mscam", 0, None)
    software = {"numpy", "scipy", "dask", "zarr", "scikit-learn", "python", "mscam_dask"}
    assert software <= set(record["versions"])
    assert record["started"] <= record["ended"]
    steps = ("ingest", "validate", "cluster", "evaluate", "write")
    assert set(record["seconds"]) == {*steps, "total"}
    assert record["seconds"]["total"] >= record["seconds"]["cluster"] > 0
    assert all("filepath" not in library for library in record["blas"])

    stored = open_store(root / "data.zarr")
    assert record["data"]["digest"] == stored.digest()
    assert [view["shape"] for view in record["data"]["views"]] == [[60, 5], [60, 8]]
    assert len(record["sources"][0]["sha256"]) == 64

    result = read_result(root / "result.zarr")
    header, *rows = (root / "labels.csv").read_text().splitlines()
    assert header == "sample,cluster"
    assert rows == [f"{row},{label}" for row, label in enumerate(result.labels)]
    fit = record["fit"]
    assert fit["n_connected_components"] == fit["n_clusters"] == 3
    assert fit["message"] == Status[fit["status"]].message
    assert sum(fit["view_contributions"].values()) == pytest.approx(1)
    assert fit["assessment"] == {
        "structure": result.assessment.structure.name,
        "message": result.assessment.message,
        "standing_clusters": list(result.assessment.standing_clusters),
        "largest_p_values": result.assessment.borders.p_values.max(axis=1).tolist(),
    }
    assert fit["cluster_sizes"] == np.bincount(result.labels).tolist()
    scores = score_partition(stored.labels, result.labels)
    assert record["metrics"]["accuracy"] == scores.accuracy
    assert record["metrics"]["adjusted_rand_index"] == scores.adjusted_rand_index

    kinds = [json.loads(line)["event"] for line in (root / "events.jsonl").read_text().splitlines()]
    assert kinds.count("iteration_finished") == fit["n_outer_iterations"]
    assert len(kinds) == len(events)
    assert outcome.record == outcome.directory.read_record()
    marks = [event for event in events if isinstance(event, StepStarted | StepFinished)]
    assert [(type(event), event.step) for event in marks] == [
        (kind, step) for step in (*steps, "report") for kind in (StepStarted, StepFinished)
    ]
    n_standing = len(result.assessment.standing_clusters)
    (summary,) = [
        event.summary
        for event in marks
        if isinstance(event, StepFinished) and event.step == "cluster"
    ]
    assert summary.endswith(f", {n_standing} of 3 clusters separated")


def test_a_store_is_used_where_it_is_unless_other_views_are_asked_for(
    tiny: Path, tmp_path: Path
) -> None:
    ingest(tiny, tmp_path / "tiny.zarr")
    store = "source = 'tiny.zarr'"
    outcome = again(write_tiny(tmp_path, QUIET, data=store), output=tmp_path / "out")
    assert not outcome.directory.data.exists()
    assert outcome.record.data.store == str(tmp_path / "tiny.zarr")
    data, off = f"{store}\nviews = {{view_1 = 'second'}}", "[evaluate]\nenabled = false\n"
    outcome = again(write_tiny(tmp_path, f"{QUIET}{off}", data=data), output=tmp_path / "other")
    assert open_store(outcome.directory.data).view_names == ("second",)
    assert outcome.record.metrics is None
    assert "evaluate" not in outcome.record.seconds


def test_one_cluster_of_the_built_in_digits(tmp_path: Path) -> None:
    data, one = "source = 'digits'\nfamilies = ['zernike']", "[cluster]\nn_clusters = 1\n"
    file = write_tiny(tmp_path, QUIET, data=data, clusters=one)
    events: list[Event] = []
    record = again(file, output=tmp_path / "out", observers=[events.append]).record
    assert [view.name for view in record.data.views] == ["zernike"]
    assert record.data.n_classes == 10
    assert record.fit.status == "SINGLE_CLUSTER"
    assert not any("separated" in getattr(event, "summary", "") for event in events)


def test_a_scheduler_that_is_not_there_is_worth_another_try(
    pipeline: Write, tmp_path: Path
) -> None:
    elsewhere = pipeline("[execution]\nscheduler = 'tcp://192.0.2.1:8786'\n")
    with pytest.raises(ConfigurationError):
        again(elsewhere, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(ClusterError):
        again(pipeline("[execution]\nscheduler = 'tcp://127.0.0.1:1'\n"), output=tmp_path / "out")
    record = RunDirectory(tmp_path / "out").read_record()
    assert (record.state, record.exit_code) == ("failed", 75)


NO_SCORES = f"{QUIET}[evaluate]\nenabled = false\n"


def times(directory: Path) -> dict[Path, int]:
    """When each file was written; the lock says who held the directory last."""
    files = (file for file in directory.rglob("*") if file.name != ".lock")
    return {file: file.stat().st_mtime_ns for file in files}


def test_the_same_twice_is_done_once(first: RunOutcome, pipeline: Write, fits: list[Any]) -> None:
    before = times(first.directory.path)
    second = again(pipeline(QUIET))
    assert not second.resumed
    assert second.record == first.record
    assert fits == []
    assert times(first.directory.path) == before
    fingerprint = resolve_target(read_config(pipeline(QUIET))).run_fingerprint
    assert second.directory.path == first.directory.path
    assert first.directory.path.name == f"tiny-{fingerprint[:12]}"


def test_where_and_by_what_a_run_is_computed_is_no_part_of_it(
    pipeline: Write, tmp_path: Path, tiny: Path
) -> None:
    def fingerprint(more: str, old: str = "", new: str = "") -> str:
        file = pipeline(more)
        file.write_text(file.read_text().replace(old, new))
        return resolve_target(read_config(file)).run_fingerprint

    here = fingerprint(HERE)
    assert fingerprint("[execution]\nworkers = 2\n[output]\nroot = 'x'\n") == here
    assert fingerprint(HERE, "[cluster]", "max_bytes = '1 GB'\n[cluster]") == here
    (tmp_path / "elsewhere").mkdir()
    shutil.copy(tiny, tmp_path / "elsewhere")
    assert fingerprint(HERE, f"'{tiny.name}'", f"'elsewhere/{tiny.name}'") == here
    assert fingerprint(f"alpha = 2.0\n{HERE}") != here
    with np.load(tiny) as arrays:
        np.savez(tiny, allow_pickle=False, **{name: arrays[name][::-1] for name in arrays})
    assert fingerprint(HERE) != here


def test_only_what_depends_on_a_change_is_done_again(
    first: RunOutcome, pipeline: Write, fits: list[Any], tiny: Path
) -> None:
    off = again(pipeline(NO_SCORES))
    assert off.directory.path != first.directory.path
    assert off.record.metrics is None
    labels = labels_of(first)
    np.testing.assert_array_equal(labels_of(off), labels)
    other = again(pipeline(f"alpha = 2.0\n{QUIET}"))
    assert len(fits) == 1
    for name in ("data.zarr/zarr.json", "data.zarr/views/0/values/c/0/0"):  # links, not copies
        assert (other.directory.path / name).samefile(first.directory.path / name)

    content = tiny.read_bytes()
    with np.load(tiny) as arrays:  # other labels, same views
        held = {name: arrays[name] for name in arrays}
    np.savez(tiny, allow_pickle=False, **{**held, "labels": np.roll(held["labels"], 1)})
    relabelled = again(pipeline(QUIET))
    assert len(fits) == 1
    assert relabelled.record.metrics is not None
    assert relabelled.record.metrics != first.record.metrics

    tiny.write_bytes(content)
    for file in sorted(first.directory.path.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    assert not again(pipeline(NO_SCORES)).resumed  # it outlives the run it came from
    np.testing.assert_array_equal(labels_of(off), labels)


def _cut_short(directory: RunDirectory) -> None:
    chunk = a_chunk(directory.result / "labels")
    chunk.write_bytes(chunk.read_bytes()[:-2])


def _with_the_data(directory: RunDirectory) -> None:
    directory.labels.unlink()
    shutil.rmtree(directory.result)
    shutil.rmtree(directory.data)


@pytest.mark.parametrize(
    ("command", "harm", "names"),
    [
        ("run", _cut_short, ["result.zarr/labels/c"]),
        ("resume", _with_the_data, ["labels.csv", "result.zarr"]),
    ],
)
def test_results_that_are_gone_or_damaged_are_made_again(
    finished: RunDirectory,
    pipeline: Write,
    fits: list[Any],
    command: str,
    harm: Callable[[RunDirectory], None],
    names: list[str],
) -> None:
    before = RunOutcome(finished, finished.read_record())
    expected = labels_of(before)
    harm(finished)
    if command == "run":
        assert resolve_target(read_config(pipeline(HERE)), finished.path).action == "resume"
        outcome = again(pipeline(HERE), output=finished.path)
    else:
        outcome = resume_run(finished.path)
    assert outcome.resumed
    assert len(fits) == 1
    assert (outcome.record.state, outcome.record.fit) == ("finished", before.record.fit)
    (entry,) = outcome.record.resumed
    assert entry.state == "finished"
    assert re.search(quotes(*names), entry.warnings[0])
    np.testing.assert_array_equal(labels_of(outcome), expected)
    np.testing.assert_array_equal(read_result(outcome.directory.result).labels, expected)
    assert not again(pipeline(HERE), output=finished.path).resumed


def test_a_damaged_result_is_not_taken_over(
    first: RunOutcome, pipeline: Write, fits: list[Any]
) -> None:
    _cut_short(first.directory)
    again(pipeline(NO_SCORES))
    assert len(fits) == 1


def test_a_plan_leaves_nothing_behind_and_names_where_the_run_then_is(
    pipeline: Write, tmp_path: Path
) -> None:
    settings = read_config(pipeline(QUIET))
    before = sorted(tmp_path.rglob("*"))
    plan = dict(plan_run(settings))
    assert sorted(tmp_path.rglob("*")) == before
    assert plan["To do"] == "cluster"
    assert plan["Data"].startswith("60 samples, 2 views: ")
    assert plan["Bytes"].startswith(f"{8 * 60 * 13 / 2**20:.1f} MiB of data, at most ")
    assert relative(again(pipeline(QUIET)).directory.path) == plan["Run"]
    assert dict(plan_run(settings))["To do"] == "nothing: this run has finished"


def test_a_plan_knows_what_would_be_taken_over(first: RunOutcome, pipeline: Write) -> None:
    name = first.directory.path.name
    plan = dict(plan_run(read_config(pipeline(f"{QUIET}[evaluate]\nenabled = false\n"))))
    assert plan["To do"] == f"reuse the clustering of {name}, evaluate and write"
    fresh = dict(plan_run(read_config(pipeline(f"alpha = 2.0\n{QUIET}"))))
    assert fresh["To do"] == "cluster"
    assert fresh["Last time"].endswith(f" for 60 samples in {name}")


def test_a_plan_says_whether_results_are_spilled(
    pipeline: Write, tiny: Path, tmp_path: Path
) -> None:
    def workers(memory: str) -> str:
        lines = f"[execution]\nworkers = 1\nmemory_limit = '{memory}'\n"
        return dict(plan_run(read_config(pipeline(lines))))["Workers"]

    assert workers("100MiB").endswith("and HAS ONLY 0.10 GiB: the fit would be refused")
    save_npz(tiny, three_subspaces(SIZES.exact_samples + 300))
    settings = read_config(pipeline(""))
    data = open_data(settings.data, tmp_path / "data.zarr").data
    tried = settings.cluster.estimator().candidate_settings(data)
    auto = tried[0].constants.auto_settings
    need = max(plan_memory(data, one, view_graphs=auto).worker_bytes(1) for one in tried)
    gib, refused = f"{need / 2**30:.2f} GiB", "the fit would be refused"
    with dask.config.set({"distributed.worker.memory.target": 1e-6}):
        assert workers(f"{need}B") == f"1, each needs up to {gib} and has {gib}"
        spilled = "it spills results to its disk"
        assert workers(f"{need - 1}B").endswith(f"and HAS ONLY {gib}: {spilled}")
        assert workers("100MiB").endswith(f"and HAS ONLY 0.10 GiB: {refused}")
    with dask.config.set({"distributed.worker.memory.target": False}):
        assert workers(f"{need - 1}B").endswith(refused)


@pytest.mark.parametrize(
    ("lines", "selected"),
    [
        ("constants.auto_settings = true\n", ": scale, alpha, the initial graph"),
        ("constants.auto_settings = true\nalpha = 2.0\nscale = 'unit'\n", ": the initial graph"),
        ("constants.auto_settings = false\n", ""),
    ],
)
def test_a_plan_names_what_the_fit_selects(
    tiny: Path, tmp_path: Path, lines: str, selected: str
) -> None:
    save_npz(tiny, three_subspaces(200))
    clusters = THREE.replace("constants.auto_settings = false\n", lines)
    settings = read_config(write_tiny(tmp_path, HERE, clusters=clusters))
    plan = dict(plan_run(settings, tmp_path / "out"))
    assert plan["Settings"].partition("; selected during the fit")[2] == selected
