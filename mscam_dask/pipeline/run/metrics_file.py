"""File of the metrics of a run for Prometheus, which remains after the scheduler of the run has ended.

The file is valid in the text format of Prometheus (the textfile collector of node_exporter) and in
OpenMetrics: gauges, one sample for each pipeline, and an end mark.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.run.run_directory import write_whole

if TYPE_CHECKING:
    from mscam_dask.monitor.run_record import RunRecord

__all__ = ["METRICS", "metrics_text", "read_success", "shared_file", "write_shared"]

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


def shared_file(directory: str, pipeline: str) -> Path:
    """Return the file of a pipeline in the directory of a textfile collector."""
    return Path(directory) / f"mscam-{pipeline}.prom"


def metrics_text(record: RunRecord, *, started: str, success: float | None) -> str:
    """Return the metrics of a run.

    Parameters
    ----------
    record
        Of a run that has begun, or ended in any way.
    started
        Time at which it began or was resumed.
    success
        Time of the last run before it that ended with results; None for none.
    """
    samples: dict[str, list[str]] = {name: [] for name in METRICS}

    def add(name: str, value: float | None, **labels: str) -> None:
        if value is not None:
            pairs = {"pipeline": record.pipeline, **labels}
            inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in pairs.items())
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
    return "".join(_family(name, lines) for name, lines in samples.items() if lines) + "# EOF\n"


def _family(name: str, lines: list[str]) -> str:
    head = [f"# HELP {name} {METRICS[name]}", f"# TYPE {name} gauge"]
    return "".join(f"{line}\n" for line in [*head, *lines])


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


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


def write_shared(file: Path, text: str) -> None:
    """Write the file of a textfile collector, whole, and readable for the collector.

    Raises
    ------
    ConfigurationError
        When the directory does not take it.
    """
    try:
        write_whole(file, text.encode())
        file.chmod(0o644)
    except OSError as error:
        raise ConfigurationError(
            f"[output] metrics = {str(file.parent)!r} cannot be written: {error.strerror or error}. Give "
            "a directory that this user may write in."
        ) from error
