"""`mscam-dask predict`, `report` and `doctor`: commands on a finished run, and checks of this computer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mscam_dask.cli.console import key_values, relative, results_console, show
from mscam_dask.cli.options import extension_of_directory
from mscam_dask.errors import ConfigurationError, TemporaryFailure
from mscam_dask.monitor.messages import printable
from mscam_dask.pipeline.run.doctor import CHECKS, Check, check_run
from mscam_dask.pipeline.run.load_run import predict_files
from mscam_dask.pipeline.run.report import write_report
from mscam_dask.pipeline.run.run_directory import RunDirectory, write_whole
from mscam_dask.pipeline.run.sample_tables import check_suffix, table_bytes


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
