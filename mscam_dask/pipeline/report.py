"""Reports of a run: the HTML page, and metrics in the text format of Prometheus that are valid OpenMetrics too."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.combine import read_sample_columns
from mscam_dask.data.results import read_model, read_result
from mscam_dask.data.store.dataset import open_store
from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.estimators._stored import FittedModel
from mscam_dask.monitor.dashboard.run_state import escaped
from mscam_dask.monitor.report.page import FileLink, RunContent, run_page
from mscam_dask.monitor.run_record import RunRecord
from mscam_dask.pipeline.run_directory import FILES, RunDirectory, relative_url, write_whole
from mscam_dask.pipeline.stored_run import StoredRun, sample_table


def write_report(
    directory: RunDirectory, output: Path | None = None, columns: Path | None = None
) -> Path:
    """Write the report of a run that ended with results, colored by `columns` of its samples."""
    target = directory.report if output is None else output.absolute()
    run = StoredRun(directory, directory.read_record()).finished()
    labels_true, label_names, notes = _truth(run)
    result, model = read_result(directory.result), read_model(directory.result, FittedModel)
    sample_ids = list(run.labels().index) if run.data.has_sample_ids else None
    properties, more_notes = _columns(run.record, columns, sample_ids, len(result.labels))
    names = np.unique(result.labels)
    moved: list[tuple[str, int, int]] = []
    if directory.moved.is_file():
        samples, clusters = run.clusters(directory.moved)
        moved = list(zip(samples, *clusters.T.tolist(), strict=True))
    files = {name: directory.path / name for name in FILES if (directory.path / name).exists()}
    content = RunContent(
        record=run.record,
        result=result,
        settings_text=run.content(directory.pipeline).decode(errors="replace"),
        sample_ids=sample_ids,
        labels_true=labels_true,
        label_names=label_names,
        files=tuple(
            FileLink(
                name=name,
                href=relative_url(file, target) + "/" * file.is_dir(),
                what=FILES[name],
            )
            for name, file in files.items()
        ),
        moved=moved,
        notes=(*notes, *more_notes),
        samples=sample_table(sample_ids, result.labels, model.membership, names),
        columns=properties,
    )
    directory.write(target, run_page(content).encode())
    return target


def _columns(
    record: RunRecord, given: Path | None, sample_ids: Sequence[str] | None, n_samples: int
) -> tuple[dict[str, NDArray[Any]], tuple[str, ...]]:
    """Return properties of the samples, and a note if the table of the settings cannot be used."""
    place = given or (record.settings or {}).get("report", {}).get("columns")
    if place is None:
        return {}, ()
    try:
        return read_sample_columns(Path(place), sample_ids, n_samples), ()
    except DataError as error:
        if given is not None:
            raise
        return {}, (f"The plots are not colored by columns of the samples: {error}",)


def _truth(
    run: StoredRun,
) -> tuple[NDArray[np.int64] | None, tuple[str, ...] | None, tuple[str, ...]]:
    """Return the ground truth from the store of the run, if it is still there and unchanged."""
    if run.record.metrics is None:
        return None, None, ()
    try:
        data = open_store(run.store)
    except DataError as error:
        return None, None, (f"The labels are not shown: {error}",)
    if data.digest() != run.data.digest or data.labels is None:
        return None, None, (f"The labels are not shown: {run.store} has changed since the run.",)
    return data.labels, data.label_names, ()


_SUCCESS_METRIC = "mscam_batch_success_timestamp_seconds"

METRICS: Mapping[str, str] = {
    "mscam_batch_running": "Whether the last run of the pipeline has begun and not ended",
    "mscam_batch_start_timestamp_seconds": "Time at which the last run began or resumed",
    "mscam_batch_end_timestamp_seconds": "Time at which the last run ended",
    _SUCCESS_METRIC: "Time at which a run last ended with results",
    "mscam_batch_exit_code": "Exit code of the last run",
    "mscam_batch_resumes": "Times that the last run was resumed",
    "mscam_batch_seconds": "Seconds of a step of the last run",
    "mscam_batch_samples": "Samples of the last run",
    "mscam_batch_clusters": "Clusters of the last run",
    "mscam_batch_connected_components": "Connected components of the graph of the last run",
    "mscam_batch_outer_iterations": "Outer iterations of the last run",
    "mscam_batch_score": "Cross-view information of the partition of the last run, in nats",
    "mscam_batch_moved_share": "Share of the common samples that moved to another cluster",
    "mscam_batch_certificate_expiry_timestamp_seconds": "Time at which a certificate expires",
}
"""Metrics and their help texts."""


def write_metrics(directory: RunDirectory, record: RunRecord, shared: str | None) -> None:
    """Write the metrics of the run so far, and for a textfile collector a copy that it may read."""
    copy = None if shared is None else Path(shared) / f"mscam-{record.pipeline}.prom"
    text = metrics_text(record, None if copy is None else read_success(copy))
    directory.write(directory.metrics, text.encode())
    if copy is not None:
        try:
            write_whole(copy, text.encode())
            copy.chmod(0o644)
        except OSError as error:
            raise ConfigurationError(
                f"[output] metrics = {shared!r} cannot be written: {error.strerror or error}. Give "
                "a directory that this user may write in."
            ) from error


def metrics_text(record: RunRecord, success: float | None) -> str:
    """Return the metrics of a run; `success` is the time of the last one with results."""
    started = record.resumed[-1].time if record.resumed else record.started
    samples: dict[str, list[str]] = {name: [] for name in METRICS}

    def add(name: str, value: float | None, **labels: str) -> None:
        if value is not None:
            pairs = {"pipeline": record.pipeline, **labels}
            inside = ",".join(f'{key}="{escaped(text)}"' for key, text in pairs.items())
            samples[name].append(f"{name}{{{inside}}} {float(value)!r}")

    ended = None if record.ended is None else _seconds(record.ended)
    add("mscam_batch_running", float(record.ended is None))
    add("mscam_batch_start_timestamp_seconds", _seconds(started))
    add("mscam_batch_end_timestamp_seconds", ended)
    add(_SUCCESS_METRIC, ended if record.state == "finished" else success)
    add("mscam_batch_exit_code", record.exit_code)
    add("mscam_batch_resumes", len(record.resumed))
    for step, seconds in record.seconds.items():
        add("mscam_batch_seconds", seconds, step=step)
    if record.data is not None:
        add("mscam_batch_samples", record.data.n_samples)
    if record.fit is not None:
        add("mscam_batch_clusters", record.fit.n_clusters)
        add("mscam_batch_connected_components", record.fit.n_connected_components)
        add("mscam_batch_outer_iterations", record.fit.n_outer_iterations)
        add("mscam_batch_score", record.fit.score)
    if record.drift is not None and record.drift.n_common:
        add("mscam_batch_moved_share", record.drift.n_moved / record.drift.n_common)
    for file, expiry in _expiries((record.settings or {}).get("execution", {})):
        add("mscam_batch_certificate_expiry_timestamp_seconds", expiry, file=file)
    families = [
        [f"# HELP {name} {METRICS[name]}", f"# TYPE {name} gauge", *lines]
        for name, lines in samples.items()
        if lines
    ]
    return "".join(f"{line}\n" for lines in families for line in lines) + "# EOF\n"


def _seconds(time: str) -> float:
    return dt.datetime.fromisoformat(time).timestamp()


def _expiries(execution: Mapping[str, object]) -> Iterator[tuple[str, float]]:
    """Yield the expiry of each certificate of [execution]."""
    for key in ("tls_ca", "tls_cert"):
        file = execution.get(key)
        if isinstance(file, str):
            from cryptography.x509 import load_pem_x509_certificates

            with suppress(OSError, ValueError):
                found = load_pem_x509_certificates(Path(file).read_bytes())
                yield key, min(item.not_valid_after_utc.timestamp() for item in found)


def read_success(file: Path) -> float | None:
    """Return the time of the last run with results from a file of metrics; None for none."""
    with suppress(OSError, ValueError):
        found = re.search(rf"^{_SUCCESS_METRIC}{{.*}} (\S+)$", file.read_text(), re.MULTILINE)
        return None if found is None else float(found[1])
    return None
