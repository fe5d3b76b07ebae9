"""Runs, from a file to a run directory."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mscam_dask.data.ingest import ingest
from mscam_dask.data.results import read_result
from mscam_dask.data.store.dataset import open_store
from mscam_dask.errors import ClusterError, ConfigurationError
from mscam_dask.metrics import score_partition
from mscam_dask.monitor.events import Event, StepFinished, StepStarted
from mscam_dask.pipeline.run_directory import RunDirectory
from mscam_dask.types.result import Status
from tests.pipeline.runs import HERE, QUIET, Write, run, write_tiny


def test_a_run_directory_says_everything_about_its_run(pipeline: Write, tmp_path: Path) -> None:
    events: list[Event] = []
    outcome = run(pipeline(HERE), tmp_path / "out", observers=[events.append])
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
    outcome = run(write_tiny(tmp_path, QUIET, data=store), tmp_path / "out")
    assert not outcome.directory.data.exists()
    assert outcome.record.data.store == str(tmp_path / "tiny.zarr")
    data, off = f"{store}\nviews = {{view_1 = 'second'}}", "[evaluate]\nenabled = false\n"
    outcome = run(write_tiny(tmp_path, f"{QUIET}{off}", data=data), tmp_path / "other")
    assert open_store(outcome.directory.data).view_names == ("second",)
    assert outcome.record.metrics is None
    assert "evaluate" not in outcome.record.seconds


def test_one_cluster_of_the_built_in_digits(tmp_path: Path) -> None:
    data, one = "source = 'digits'\nfamilies = ['zernike']", "[cluster]\nn_clusters = 1\n"
    file = write_tiny(tmp_path, QUIET, data=data, clusters=one)
    events: list[Event] = []
    record = run(file, tmp_path / "out", observers=[events.append]).record
    assert [view.name for view in record.data.views] == ["zernike"]
    assert record.data.n_classes == 10
    assert record.fit.status == "SINGLE_CLUSTER"
    assert not any("separated" in getattr(event, "summary", "") for event in events)


def test_a_scheduler_that_is_not_there_is_worth_another_try(
    pipeline: Write, tmp_path: Path
) -> None:
    elsewhere = pipeline("[execution]\nscheduler = 'tcp://192.0.2.1:8786'\n")
    with pytest.raises(ConfigurationError):
        run(elsewhere, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(ClusterError):
        run(pipeline("[execution]\nscheduler = 'tcp://127.0.0.1:1'\n"), tmp_path / "out")
    record = RunDirectory(tmp_path / "out").read_record()
    assert (record.state, record.exit_code) == ("failed", 75)
