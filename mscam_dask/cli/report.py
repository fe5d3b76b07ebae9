"""`mscam-dask report`: the report of a run or of an experiment."""

from __future__ import annotations

from pathlib import Path

from mscam_dask.cli.console import key_values, relative, results_console, show
from mscam_dask.cli.extensions import extension_of_directory
from mscam_dask.errors import ConfigurationError, TemporaryFailure
from mscam_dask.pipeline.run.report import write_report
from mscam_dask.pipeline.run.run_directory import RunDirectory

__all__ = ["report_run"]


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
