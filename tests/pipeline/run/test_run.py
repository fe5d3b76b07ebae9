"""Runs, from a file to a run directory."""

from __future__ import annotations

import csv
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from mscam_dask import MSCAM
from mscam_dask.data.ingest import ingest
from mscam_dask.data.results import read_result
from mscam_dask.data.store.read import open_store
from mscam_dask.errors import ClusterError, ConfigurationError, DataError
from mscam_dask.metrics import score_partition
from mscam_dask.monitor.events import Event, StepFinished, StepStarted
from mscam_dask.monitor.report.formatting import number
from mscam_dask.monitor.run_record import AssessmentEntry
from mscam_dask.pipeline.config.read_config import read_config
from mscam_dask.pipeline.config.toml_document import parse_override
from mscam_dask.pipeline.run import steps
from mscam_dask.pipeline.run.report import write_report
from mscam_dask.pipeline.run.run import RunOutcome, run_pipeline
from mscam_dask.pipeline.run.run_directory import RunDirectory
from mscam_dask.types.events import NClustersSelected
from mscam_dask.types.result import Status
from tests.messages import quotes
from tests.synthetic import three_subspaces

Write = Callable[[str], Path]

IN_PROCESS = "[execution]\nin_process = true\nthreads = 1\n"


def run(file: Path, output: Path, **options: Any) -> RunOutcome:
    return run_pipeline(read_config(file), output, **options)


def test_a_run_directory_says_everything_about_its_run(pipeline: Write, tmp_path: Path) -> None:
    events: list[Event] = []
    outcome = run(pipeline(IN_PROCESS), tmp_path / "out", observers=[events.append])
    root = tmp_path / "out"
    names = {item.name for item in root.iterdir()}
    assert names == {
        ".lock",
        "pipeline.toml",
        "run.json",
        "events.jsonl",
        "metrics.prom",
        "labels.csv",
        "samples.csv",
        "samples.parquet",
        "data.zarr",
        "result.zarr",
        "report.html",
    }

    record = json.loads((root / "run.json").read_text())
    assert record["format"] == "mscam_dask.run"
    assert (record["state"], record["exit_code"]) == ("finished", 0)
    assert (record["method"], record["seed"]) == ("mscam", 0)
    assert record["error"] is None
    assert {"numpy", "scipy", "dask", "zarr", "scikit-learn", "python", "mscam_dask"} <= set(
        record["versions"]
    )
    assert record["started"] <= record["ended"]
    assert set(record["seconds"]) == {
        *("ingest", "validate", "cluster", "evaluate", "write"),
        "total",
    }
    assert record["seconds"]["total"] >= record["seconds"]["cluster"] > 0
    assert all("filepath" not in library for library in record["blas"])

    stored = open_store(root / "data.zarr")
    assert record["data"]["digest"] == stored.digest()
    assert [view["shape"] for view in record["data"]["views"]] == [[60, 5], [60, 8]]
    assert record["data"]["store"] == "data.zarr"
    assert len(record["sources"][0]["sha256"]) == 64

    result = read_result(root / "result.zarr")
    with (root / "labels.csv").open(newline="") as stream:
        rows = list(csv.reader(stream))
    assert rows[0] == ["sample", "cluster"]
    assert [row[0] for row in rows[1:]] == [str(index) for index in range(60)]
    assert [int(row[1]) for row in rows[1:]] == result.labels.tolist()

    fit = record["fit"]
    assert fit["n_connected_components"] == fit["n_clusters"] == 3
    assert fit["has_requested_components"]
    assert fit["setting"]["n_neighbors"] >= 1
    assert len(fit["candidate_settings"]) >= 1
    assert fit["message"] == Status[fit["status"]].message
    assert sum(fit["view_contributions"].values()) == pytest.approx(1)
    assert result.assessment is not None
    assert result.assessment.borders is not None
    assert fit["assessment"] == {
        "structure": result.assessment.structure.name,
        "message": result.assessment.message,
        "standing_clusters": list(result.assessment.standing_clusters),
        "largest_p_values": result.assessment.borders.p_values.max(axis=1).tolist(),
    }
    assert fit["cluster_sizes"] == np.bincount(result.labels).tolist()
    assert stored.labels is not None
    scores = score_partition(stored.labels, result.labels)
    assert record["metrics"]["accuracy"] == scores.accuracy
    assert record["metrics"]["adjusted_rand_index"] == scores.adjusted_rand_index

    lines = [json.loads(line) for line in (root / "events.jsonl").read_text().splitlines()]
    kinds = [line["event"] for line in lines]
    assert kinds.count("iteration_finished") == fit["n_outer_iterations"]
    assert len(lines) == len(events)
    assert outcome.record == outcome.directory.read_record()


def test_steps_begin_and_end_in_order(pipeline: Write, tmp_path: Path) -> None:
    events: list[Event] = []
    run(pipeline(IN_PROCESS), tmp_path / "out", observers=[events.append])
    marks = [
        (type(event).__name__, event.step)
        for event in events
        if isinstance(event, StepStarted | StepFinished)
    ]
    steps_in_order = ("ingest", "validate", "cluster", "evaluate", "write", "report")
    assert marks == [
        (kind, step) for step in steps_in_order for kind in ("StepStarted", "StepFinished")
    ]


@pytest.mark.thorough
def test_the_copy_of_the_pipeline_runs_again_to_the_same_clusters(
    pipeline: Write, tmp_path: Path
) -> None:
    first = run(pipeline(IN_PROCESS), tmp_path / "first")
    assert (
        tomllib.loads(first.directory.pipeline.read_text())["cluster"]["constants"]["graph_weight"]
        == 0.1
    )
    second = run(first.directory.pipeline, tmp_path / "second")
    assert second.directory.labels.read_bytes() == first.directory.labels.read_bytes()
    assert first.record.data is not None
    assert second.record.data is not None
    assert second.record.data.digest == first.record.data.digest


def test_a_store_is_used_where_it_is(tiny: Path, tmp_path: Path) -> None:
    ingest(tiny, tmp_path / "tiny.zarr")
    file = tmp_path / "store.toml"
    file.write_text("[data]\nsource = 'tiny.zarr'\n[cluster]\nn_clusters = 3\n" + IN_PROCESS)
    outcome = run(file, tmp_path / "out")
    assert not outcome.directory.data.exists()
    assert outcome.record.data is not None
    assert outcome.record.data.store == str(tmp_path / "tiny.zarr")


def test_a_store_with_other_views_asked_for_is_ingested(tiny: Path, tmp_path: Path) -> None:
    ingest(tiny, tmp_path / "tiny.zarr")
    file = tmp_path / "store.toml"
    file.write_text(
        "[data]\nsource = 'tiny.zarr'\nviews = {view_1 = 'second'}\n"
        "[cluster]\nn_clusters = 3\n[evaluate]\nenabled = false\n" + IN_PROCESS
    )
    outcome = run(file, tmp_path / "out")
    assert open_store(outcome.directory.data).view_names == ("second",)
    assert outcome.record.metrics is None
    assert "evaluate" not in outcome.record.seconds


def test_settings_that_the_file_leaves_open_are_chosen_and_recorded(
    tiny: Path, tmp_path: Path
) -> None:
    file = tmp_path / "open.toml"
    file.write_text("[data]\nsource = 'tiny.npz'\n[cluster]\nn_clusters = 3\n" + IN_PROCESS)
    fit = run(file, tmp_path / "out").record.fit
    assert fit is not None
    assert (fit.setting.scale, fit.setting.alpha) == ("by view", None)
    assert fit.setting.views is not None
    assert set(fit.setting.views) == set(fit.view_contributions)
    assert {view.scale for view in fit.setting.views.values()} <= {"unit", "standard"}
    for view in fit.setting.views.values():
        assert view.agreement is not None
        assert view.margin_se is not None
        assert -1 <= view.agreement <= 1
        assert view.margin_se >= 0
    assert {setting["scale"] for setting in fit.candidate_settings} == {"by view"}
    graphs = [setting["initial_graph"] for setting in fit.candidate_settings]
    assert graphs == ["mean", "mixed"]
    assert [setting["n_neighbors"] for setting in fit.candidate_settings] == [20, 20]
    assert fit.selected_setting is not None
    assert fit.setting.initial_graph == graphs[fit.selected_setting]
    ways = [[name, view.scale, view.alpha] for name, view in fit.setting.views.items()]
    assert fit.candidate_settings[fit.selected_setting]["view_settings"] == ways


def test_a_number_of_clusters_that_is_chosen_is_recorded_with_its_curves(
    pipeline: Write, tmp_path: Path
) -> None:
    settings = read_config(pipeline(IN_PROCESS), [parse_override("cluster.n_clusters=auto")])
    events: list[Event] = []
    outcome = run_pipeline(settings, tmp_path / "out", observers=[events.append])
    fit = outcome.record.fit
    assert fit is not None
    (counted,) = [event for event in events if isinstance(event, NClustersSelected)]
    curves = fit.n_clusters_curves
    assert curves is not None
    assert tuple(curves["p_values"]) == counted.p_values
    assert tuple(curves["counts"]) == tuple(range(2, 7))  # a tenth of 60 samples
    assert curves["n_clusters"] == fit.n_clusters == len(fit.cluster_sizes)
    lines = (tmp_path / "out" / "events.jsonl").read_text().splitlines()
    assert "n_clusters_selected" in [json.loads(line)["event"] for line in lines]
    again = write_report(outcome.directory, tmp_path / "again.html").read_text(encoding="utf-8")
    head = '<th scope="row" class="n">'
    assert f'<tr class="taken">{head}{fit.n_clusters}</th>' in again
    largest = re.escape(number(counted.p_values[3]))
    assert re.search(rf'\b5\b[^<>"]*\b{largest}', again)  # of five clusters, in one text


def test_built_in_digits(tmp_path: Path) -> None:
    file = tmp_path / "digits.toml"
    file.write_text(
        "[data]\nsource = 'digits'\nfamilies = ['zernike']\n"
        "[cluster]\nn_clusters = 1\n" + IN_PROCESS
    )
    record = run(file, tmp_path / "out").record
    assert record.data is not None
    assert [view.name for view in record.data.views] == ["zernike"]
    assert record.data.n_classes == 10
    assert record.fit is not None
    assert record.fit.status == "SINGLE_CLUSTER"


def test_a_failed_run_says_why(pipeline: Write, tiny: Path, tmp_path: Path) -> None:
    with np.load(tiny) as archive:
        arrays = dict(archive)
    arrays["view_0"][7, 2] = np.nan
    np.savez(tiny, allow_pickle=False, **arrays)
    with pytest.raises(DataError, match="NaN"):
        run(pipeline(IN_PROCESS), tmp_path / "out")
    record = RunDirectory(tmp_path / "out").read_record()
    assert (record.state, record.exit_code) == ("failed", 3)
    assert record.error is not None
    assert record.error.type == "DataError"
    assert "NaN" in record.error.message
    assert not (tmp_path / "out" / "result.zarr").exists()


def test_more_clusters_than_samples_is_said_before_a_cluster_starts(
    pipeline: Write, tmp_path: Path
) -> None:
    file = pipeline("[execution]\nworkers = 1\n")
    file.write_text(file.read_text().replace("n_clusters = 3", "n_clusters = 61"))
    with pytest.raises(ConfigurationError, match=quotes("n_clusters", 61, 60)):
        run(file, tmp_path / "out")
    record = RunDirectory(tmp_path / "out").read_record()
    assert record.exit_code == 2
    assert "start" not in record.seconds


def test_a_source_inside_the_run_directory_is_refused(pipeline: Write, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=quotes(tmp_path / "tiny.npz")):
        run(pipeline(IN_PROCESS), tmp_path)


def test_an_unencrypted_scheduler_elsewhere_is_refused_before_anything_is_made(
    pipeline: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = pipeline("[execution]\nscheduler = 'tcp://192.0.2.1:8786'\n")
    with pytest.raises(ConfigurationError, match=quotes("'tcp://192.0.2.1:8786'", "--insecure")):
        run(file, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(
        "mscam_dask.pipeline.run.run.open_data", lambda *args: pytest.fail("reached")
    )
    with pytest.raises(pytest.fail.Exception, match="reached"):
        run(file, tmp_path / "out", insecure=True)


def test_a_scheduler_that_is_not_there_is_worth_another_try(
    pipeline: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mscam_dask.pipeline.run.cluster._CONNECT_TIMEOUT_S", 0.5)
    file = pipeline("[execution]\nscheduler = 'tcp://127.0.0.1:1'\n")
    with pytest.raises(ClusterError, match=quotes("tcp://127.0.0.1:1")):
        run(file, tmp_path / "out")
    assert RunDirectory(tmp_path / "out").read_record().exit_code == 75


@pytest.mark.parametrize(
    ("assessment", "words"),
    [
        (
            AssessmentEntry(structure="PARTLY", message="", standing_clusters=(0, 2)),
            "2 of 3 clusters",
        ),
        (AssessmentEntry(structure="TRIVIAL", message=""), None),
        (None, None),
    ],
)
def test_the_summary_of_a_fit_counts_separated_clusters(
    assessment: AssessmentEntry | None, words: str | None
) -> None:
    record = steps.fit_record(MSCAM(3, n_jobs=1).fit(three_subspaces()).solution_)
    summary = steps.fit_summary(msgspec.structs.replace(record, assessment=assessment))
    assert ("separated" in summary) == (words is not None)
    assert words is None or summary.endswith(f", {words} separated")
