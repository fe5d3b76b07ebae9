"""`mscam-dask ingest`, `predict`, `report`, `doctor` and `tls`: every command that runs no pipeline and lists no runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mscam_dask.cli.console import (
    key_values,
    origin_tables,
    relative,
    results_console,
    show,
    stored_views_table,
)
from mscam_dask.cli.options import extension_of_directory
from mscam_dask.data.ingest import IngestReport, append, ingest
from mscam_dask.errors import ConfigurationError, TemporaryFailure
from mscam_dask.monitor.messages import printable
from mscam_dask.pipeline.config.settings import DataTable
from mscam_dask.pipeline.run.doctor import CHECKS, Check, check_run
from mscam_dask.pipeline.run.load_run import predict_files
from mscam_dask.pipeline.run.open_data import write_store
from mscam_dask.pipeline.run.report import write_report
from mscam_dask.pipeline.run.run_directory import RunDirectory, write_whole
from mscam_dask.pipeline.run.sample_tables import check_suffix, table_bytes
from mscam_dask.pipeline.tls import make_certificates


def predict_samples(
    run: Path,
    sources: tuple[str, ...],
    *,
    batches: str | None,
    output: Path | None,
    overwrite: bool,
) -> int:
    """Predict the clusters of samples, write or print them, and return the exit code."""
    if output is not None:
        check_suffix(output.suffix)
        if output.exists() and not overwrite:
            raise ConfigurationError(
                f"{output} exists. Give --overwrite to replace it, or another output file (-o)."
            )
    table = predict_files(run, sources, batches)
    if output is None:
        click.echo(table_bytes(table, ".csv").decode(), nl=False)
        return 0
    write_whole(output.absolute(), table_bytes(table, output.suffix))
    sizes = sorted(Counter(table["cluster"]).items())
    counted = ", ".join(f"{size} in cluster {name}" for name, size in sizes)
    pairs = [("Samples", f"{len(table['sample'])}: {counted}"), ("Labels", relative(output))]
    show(results_console(), key_values(pairs))
    return 0


def report_run(
    directory: Path, *, output: Path | None, columns: Path | None, show_in_browser: bool
) -> int:
    """Write the report, open it in a browser if requested, and return the exit code."""
    run = RunDirectory(directory.absolute())
    extension = None if run.record.is_file() else extension_of_directory(directory)
    if extension is not None:
        if columns is not None:
            raise ConfigurationError(
                f"--columns {columns} requires the report of a run, but {directory} is not a run "
                "directory. Remove the option."
            )
        file = extension.write_report(directory, output)
    else:
        file = write_report(run, output, columns)
    size = f"{file.stat().st_size / 2**20:.1f} MiB"
    show(results_console(), key_values([("Report", f"{relative(file)} ({size})")]))
    if show_in_browser:
        import webbrowser

        if not webbrowser.open(file.as_uri()):
            raise TemporaryFailure(
                f"No browser can be started here. Open {file.as_uri()} in a browser."
            )
    return 0


_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def run_checks(run: Path | None) -> int:
    """Print the checks of this computer, or of a finished run, and return 1 if one failed."""
    console = results_console()
    if run is None:
        checks = _of_this_computer(console)
        subject, failure = "Ready", "pipelines cannot run here"
    else:
        checks = check_run(run)
        subject, failure = f"{relative(run)} is valid", f"do not use the results of {relative(run)}"
    levels = []
    for name, check in checks:
        levels.append(check.level)
        show(console, _row(name, check))
    failed, warned = levels.count("fail"), levels.count("warn")
    console.print()
    if failed:
        console.print(f"{failed} of {len(levels)} checks failed: {failure}.")
        return 1
    warnings = f", {warned} with a warning" if warned else ""
    console.print(f"{subject}: {len(levels)} checks passed{warnings}.")
    return 0


def _of_this_computer(console: Console) -> Iterator[tuple[str, Check]]:
    for name, check in CHECKS.items():
        with console.status(f"{name} ..."):
            result = check()
        yield name, result


def _row(name: str, check: Check) -> Table:
    row = Table.grid(padding=(0, 2, 0, 0))
    row.add_column(width=4, style=_STYLES[check.level])
    row.add_column(width=15, style="bold")
    row.add_column(overflow="fold")
    row.add_row(check.level, name, Text(printable(check.found)))
    if check.level != "ok":
        row.add_row("", "", Text(printable(check.remedy), style=_STYLES[check.level]))
    return row


def ingest_files(
    sources: tuple[str, ...],
    *,
    output: str,
    views: tuple[str, ...],
    view_type: tuple[str, ...],
    samples_in: tuple[str, ...],
    id_column: str | None,
    delimiter: str | None,
    overwrite: bool,
    append_samples: bool,
    **options: Any,
) -> int:
    """Write files into one store, print its content, and return the exit code; `options` are keys of [data]."""
    if append_samples and overwrite:
        raise ConfigurationError(
            "--append adds to a store and --overwrite replaces it. Keep one of them."
        )
    data = DataTable(
        source=[*sources],
        views=[*views] or None,
        view_type=_by_view("--view-type", view_type),
        samples_in=_by_view("--samples-in", samples_in),
        id_column=_position(id_column),
        delimiter="\t" if delimiter == r"\t" else delimiter,
        **options,
    )
    write = append if append_samples else partial(ingest, overwrite=overwrite)
    _show(write_store(data, output, write))
    return 0


def _position(text: str | None) -> str | int | None:
    """Name or position of the column of the ids; False for "none"."""
    if text == "none":
        return False
    return int(text) if text is not None and text.isdecimal() else text


def _by_view(option: str, texts: tuple[str, ...]) -> Any:
    """Value for all views, or a mapping from names; a name may contain "="."""
    if len(texts) == 1 and "=" not in texts[0]:
        return texts[0]
    pairs = [text.rpartition("=") for text in texts]
    if not all(equals for _, equals, _ in pairs):
        raise ConfigurationError(
            f"{' '.join(f'{option} {text}' for text in texts)} is not allowed. Give one value for all "
            "views, or VIEW=VALUE for each view that differs from the default."
        )
    return {name: value for name, _, value in pairs} or None


def _show(report: IngestReport) -> None:
    classes = "none" if report.n_classes is None else f"{report.n_classes} classes"
    rest = [
        ("Ground truth", classes),
        ("Sample ids", "yes" if report.has_sample_ids else "none, samples are identified by row"),
        ("Digest", report.digest),
        *(("Note", note) for note in report.notes),
        ("Store", f"{relative(report.output)} ({report.stored_bytes / 2**20:.1f} MiB)"),
    ]
    views = stored_views_table(report.views)
    show(results_console(), views, *origin_tables(report.origin), key_values(rest))


def make_tls_directory(directory: Path, *, hosts: tuple[str, ...], days: float, renew: bool) -> int:
    """Make certificates, print the commands that use them, and return the exit code."""
    local = ("localhost", "127.0.0.1", "::1")
    made = make_certificates(
        directory, hosts=tuple(dict.fromkeys((*local, *hosts))), days=days, renew=renew
    )
    where = relative(made.directory)

    def files(role: str) -> str:
        return (
            f"--tls-ca-file {where}/ca.pem --tls-cert {where}/{role}.pem "
            f"--tls-key {where}/{role}-key.pem"
        )

    client = (
        f"mscam-dask run PIPELINE.toml --scheduler tls://HOST:8786 --tls-ca {where}/ca.pem "
        f"--tls-cert {where}/client.pem --tls-key {where}/client-key.pem"
    )
    secret = (
        f"{where}/ca-key.pem signs new certificates (--renew). Do not copy it to other computers: "
        "anyone with a key can run code on every worker."
    )
    pairs = [
        ("Certificates", f"{where}, until {made.expires:%Y-%m-%d}"),
        ("Scheduler", f"dask scheduler --protocol tls {files('scheduler')}"),
        ("Workers", f"dask worker tls://HOST:8786 {files('worker')}"),
        ("Runs", client),
        ("Secret", secret),
    ]
    if made.ends_with_authority:
        ends = (
            f"{where}/ca.pem and its certificates expire on {made.expires:%Y-%m-%d}, before the "
            f"requested {days:g} days. Before then, make a new authority in another directory "
            "(mscam-dask tls DIR), copy its files to every computer, and restart the cluster."
        )
        pairs.insert(1, ("Warning", ends))
    show(results_console(), key_values(pairs))
    return 0
