"""What a run leaves for readers and monitors: its report and its metrics, and what is said without them."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest

from mscam_dask.errors import ConfigurationError
from mscam_dask.monitor.events import Event, StepFinished, StepStarted
from mscam_dask.pipeline.report import METRICS, metrics_text, read_success, write_report
from mscam_dask.pipeline.run_directory import RunDirectory
from mscam_dask.pipeline.tls import make_certificates
from tests.messages import quotes, raises
from tests.pipeline.runs import HERE, QUIET, Stopped, Write, again, at, stop

prometheus = pytest.importorskip("prometheus_client.parser")
openmetrics = pytest.importorskip("prometheus_client.openmetrics.parser")

# --------------------------------------------------------------------------- report


def test_labels_and_sample_ids_come_from_the_data_or_are_missed_aloud(
    pipeline: Write, tiny: Path, tmp_path: Path
) -> None:
    with np.load(tiny) as archive:
        arrays = dict(archive)
    names = np.array([f"leaf-{row:03}" for row in range(60)])
    np.savez(tiny, allow_pickle=False, **arrays, sample_ids=names)
    outcome = again(pipeline(HERE), output=tmp_path / "named")
    page = outcome.directory.report.read_text(encoding="utf-8")
    assert 'id="labels"' in page
    assert str(outcome.directory.data) not in page
    assert ("leaf-017" in page) == bool(outcome.record.data and outcome.record.data.has_sample_ids)
    shutil.rmtree(outcome.directory.data)
    page = write_report(outcome.directory).read_text(encoding="utf-8")
    assert str(outcome.directory.data) in page
    assert 'id="labels"' not in page


def test_a_report_that_fails_does_not_fail_the_run(pipeline: Write, tmp_path: Path) -> None:
    events: list[Event] = []
    block = at((tmp_path / "out/report.html").mkdir, StepFinished, "write")
    outcome = again(pipeline(HERE), output=tmp_path / "out", observers=[events.append, block])
    assert outcome.record.state == "finished"
    notes = [note for event in events for note in getattr(event, "notes", ())]
    said = quotes("report.html", "mscam-dask report")
    assert any(re.search(said, note) for note in notes)


# --------------------------------------------------------------------------- metrics


def values(text: str) -> dict[str, float]:
    """Samples by name, and by name and step or file where there are several."""
    found = {}
    for family in prometheus.text_string_to_metric_families(text):
        assert family.documentation == METRICS[family.name]
        assert family.type == "gauge"
        for sample in family.samples:
            detail = sample.labels.get("step") or sample.labels.get("file")
            found[sample.name + (f"/{detail}" if detail else "")] = sample.value
    return {name.removeprefix("mscam_batch_"): value for name, value in found.items()}


def test_runs_that_ended_well_go_on_or_failed(pipeline: Write, tmp_path: Path) -> None:
    before = int(time.time())
    shared = tmp_path / "collector"
    file = pipeline(f'{QUIET}[output]\nmetrics = "{shared}"\n')
    outcome = again(file, output=tmp_path / "out")
    content = (tmp_path / "out/metrics.prom").read_text()
    (copy,) = shared.iterdir()
    assert copy.name == f"mscam-{outcome.record.pipeline}.prom"
    assert copy.read_text() == content
    assert copy.stat().st_mode & 0o777 == 0o644
    families = {family.name for family in openmetrics.text_string_to_metric_families(content)}
    assert families <= set(METRICS)
    said, record = values(content), outcome.record
    assert said["running"] == 0
    assert said["exit_code"] == record.exit_code == 0
    success = said["success_timestamp_seconds"]
    assert success == said["end_timestamp_seconds"]
    assert before <= said["start_timestamp_seconds"] <= success <= time.time()
    assert said["samples"] == record.data.n_samples
    assert said["clusters"] == record.fit.n_clusters
    assert said["score"] == record.fit.score
    assert {name: said[f"seconds/{name}"] for name in record.seconds} == record.seconds

    def during() -> None:
        assert values(copy.read_text())["running"] == 1
        stop()

    with pytest.raises(Stopped):
        again(file, output=tmp_path / "bad", observers=[at(during, StepStarted, "validate")])
    said = values(copy.read_text())
    assert said["running"] == 0
    assert said["exit_code"] == RunDirectory(tmp_path / "bad").read_record().exit_code != 0
    assert said["success_timestamp_seconds"] == success == read_success(copy)
    assert "clusters" not in said
    assert values((tmp_path / "bad/metrics.prom").read_text()) == said


def test_a_directory_that_takes_no_metrics_is_an_error_before_the_work(
    pipeline: Write, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with raises(ConfigurationError, "metrics", tmp_path / "file"):
        again(pipeline(f"{QUIET}[output]\nmetrics = 'file'\n"), output=tmp_path / "out")
    assert not (tmp_path / "out/data.zarr").exists()


def test_certificates_and_odd_names_of_pipelines(finished: RunDirectory, tmp_path: Path) -> None:
    made = make_certificates(tmp_path / "certs")
    odd = 'a "b" \\ \n c'
    record = msgspec.structs.replace(finished.read_record(), pipeline=odd)
    files = {"tls_ca": str(made.certificate("ca")), "tls_cert": str(made.certificate("client"))}
    record.settings["execution"] = {**files, "tls_key": None}
    text = metrics_text(record, None)
    said = values(text)
    for key in files:
        left = said[f"certificate_expiry_timestamp_seconds/{key}"] - time.time()
        assert 300 * 86400 < left < 20 * 366 * 86400
    families = prometheus.text_string_to_metric_families(text)
    assert {each.labels["pipeline"] for family in families for each in family.samples} == {odd}
    assert len(re.findall("^# EOF$", text, re.MULTILINE)) == 1
