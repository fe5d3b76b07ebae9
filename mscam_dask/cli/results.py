"""`mscam-dask predict` and `mscam-dask report`: what a finished run is used for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from mscam_dask.cli.console import key_values, relative, results_console, show
from mscam_dask.cli.extensions import extension_of_directory
from mscam_dask.errors import ConfigurationError, TemporaryFailure
from mscam_dask.pipeline.run.load_run import predict_files
from mscam_dask.pipeline.run.report import write_report
from mscam_dask.pipeline.run.run_directory import RunDirectory, write_whole
from mscam_dask.pipeline.run.sample_tables import check_suffix, table_bytes

__all__ = ["predict_samples", "report_run"]


def predict_samples(
    run: Path, sources: tuple[str, ...], *, output: Path | None, overwrite: bool
) -> int:
    """Predict the clusters of samples, write or print them, and return the exit code."""
    if output is not None:
        check_suffix(output.suffix)
        if output.exists() and not overwrite:
            raise ConfigurationError(
                f"{output} exists. Give --overwrite to replace it, or another output file (-o)."
            )
    table = predict_files(run, sources)
    if output is None:
        click.echo(table_bytes(table, ".csv").decode(), nl=False)
        return 0
    write_whole(output.absolute(), table_bytes(table, output.suffix))
    sizes = sorted(Counter(table["label"]).items())
    counted = ", ".join(f"{size} in cluster {name}" for name, size in sizes)
    pairs = [("Samples", f"{len(table['id'])}: {counted}"), ("Labels", relative(output))]
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
