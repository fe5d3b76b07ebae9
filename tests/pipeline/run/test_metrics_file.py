"""Metrics of a run as a file: what it says of a run that ended well, failed, or goes on."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.pipeline.config.read_config import read_config
from mscam_dask.pipeline.run import steps
from mscam_dask.pipeline.run.report import METRICS, metrics_text, read_success
from mscam_dask.pipeline.run.run import run_pipeline
from mscam_dask.pipeline.tls import make_certificates
from tests.messages import quotes

Write = Callable[[str], Path]
IN_PROCESS = "[execution]\nin_process = true\n[report]\nenabled = false\n"

prometheus = pytest.importorskip("prometheus_client.parser")
openmetrics = pytest.importorskip("prometheus_client.openmetrics.parser")


def with_metrics(directory: Path) -> str:
    return f'{IN_PROCESS}[output]\nmetrics = "{directory}"\n'


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


def test_a_run_that_ended_well(pipeline: Write, tmp_path: Path) -> None:
    before = int(time.time())
    shared = tmp_path / "collector"
    text = pipeline(with_metrics(shared))
    outcome = run_pipeline(read_config(text), tmp_path / "out")
    content = (tmp_path / "out/metrics.prom").read_text()
    (copy,) = shared.iterdir()
    assert copy.name == f"mscam-{outcome.record.pipeline}.prom"
    assert copy.read_text() == content
    assert copy.stat().st_mode & 0o777 == 0o644
    families = {family.name for family in openmetrics.text_string_to_metric_families(content)}
    assert families <= set(METRICS)
    said, record = values(content), outcome.record
    assert record.fit is not None
    assert record.data is not None
    assert said["running"] == 0
    assert said["exit_code"] == record.exit_code == 0
    assert said["success_timestamp_seconds"] == said["end_timestamp_seconds"]
    assert before <= said["start_timestamp_seconds"] <= said["end_timestamp_seconds"] <= time.time()
    assert said["samples"] == record.data.n_samples
    assert said["clusters"] == record.fit.n_clusters
    assert said["score"] == record.fit.score
    steps_of_run = {name: said[f"seconds/{name}"] for name in record.seconds}
    assert steps_of_run == record.seconds


def test_a_run_that_failed_keeps_the_time_of_the_last_success(
    pipeline: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "collector"
    settings = read_config(pipeline(with_metrics(shared)))
    run_pipeline(settings, tmp_path / "good")
    (file,) = shared.iterdir()
    success = values(file.read_text())["success_timestamp_seconds"]

    def during(*_: object, **__: object) -> None:
        assert values(file.read_text())["running"] == 1
        raise DataError("broken")

    monkeypatch.setattr(steps, "validate_data", during)
    with pytest.raises(DataError):
        run_pipeline(settings, tmp_path / "bad")
    said = values(file.read_text())
    assert (said["running"], said["exit_code"]) == (0, 3)
    assert said["success_timestamp_seconds"] == success == read_success(file)
    assert "clusters" not in said
    alone = values((tmp_path / "bad/metrics.prom").read_text())
    assert alone == said


def test_a_directory_that_takes_no_metrics_is_an_error_before_the_work(
    pipeline: Write, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    settings = read_config(pipeline(with_metrics(tmp_path / "file")))
    with pytest.raises(ConfigurationError, match=quotes("metrics", tmp_path / "file")):
        run_pipeline(settings, tmp_path / "out")
    assert not (tmp_path / "out/data.zarr").exists()


@pytest.mark.thorough
def test_the_expiry_of_certificates(pipeline: Write, tmp_path: Path) -> None:
    made = make_certificates(tmp_path / "certs")
    outcome = run_pipeline(read_config(pipeline(IN_PROCESS)), tmp_path / "out")
    record = outcome.record
    assert record.settings is not None
    record.settings["execution"] = {
        "tls_ca": str(made.authority),
        "tls_cert": str(made.certificate("client")),
        "tls_key": None,
    }
    said = values(metrics_text(record, started=record.started, success=None))
    for key in ("tls_ca", "tls_cert"):
        left = said[f"certificate_expiry_timestamp_seconds/{key}"] - time.time()
        assert 300 * 86400 < left < 20 * 366 * 86400


def test_labels_are_escaped(pipeline: Write, tmp_path: Path) -> None:
    record = run_pipeline(read_config(pipeline(IN_PROCESS)), tmp_path / "out").record
    odd = 'a "b" \\ \n c'
    text = metrics_text(
        msgspec.structs.replace(record, pipeline=odd),
        started=dt.datetime.now(dt.UTC).isoformat(),
        success=None,
    )
    names = {
        sample.labels["pipeline"]
        for family in prometheus.text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert names == {odd}
    assert len(re.findall("^# EOF$", text, re.MULTILINE)) == 1
