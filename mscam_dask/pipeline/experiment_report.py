"""The report of an experiment's directory: one HTML file from experiment.json."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

import msgspec

from mscam_dask.errors import DataError
from mscam_dask.monitor.report.content import FileLink
from mscam_dask.monitor.report.experiment_page import experiment_page
from mscam_dask.pipeline.experiments.results import decode_experiment
from mscam_dask.pipeline.run_directory import RunDirectory

__all__ = ["RECORD_NAME", "write_experiment_report"]

RECORD_NAME = "experiment.json"

_FILES = (
    ("results.md", "the tables, for a text editor"),
    ("results.csv", "the rows, one a line"),
    (RECORD_NAME, "everything on this page, for programs"),
    ("pipeline.toml", "the settings as they were understood"),
    ("cells", "one record for each fit"),
)


def write_experiment_report(directory: Path, output: Path | None = None) -> Path:
    """Write the report of an experiment, finished or under way.

    Parameters
    ----------
    directory
        With an experiment.json; docs/experiments.md says what is in it.
    output
        File to write; by default report.html in the directory.

    Returns
    -------
    Path
        The file, absolute.

    Raises
    ------
    DataError
        When there is no experiment, or its document cannot be read.
    """
    root = directory.absolute()
    target = root / "report.html" if output is None else output.absolute()
    if target.is_dir():
        raise DataError(f"{target} is a directory; the report is one file. Give a file name.")
    document = root / RECORD_NAME
    try:
        content = document.read_bytes()
    except OSError as error:
        raise DataError(f"{document} cannot be read ({error.strerror}).") from error
    record = decode_experiment(content, str(document))
    links = [
        FileLink(
            name=name,
            href=quote(Path(os.path.relpath(root / name, target.parent)).as_posix()),
            what=what,
        )
        for name, what in _FILES
        if (root / name).exists()
    ]
    page = experiment_page(msgspec.to_builtins(record), links)
    target.parent.mkdir(parents=True, exist_ok=True)
    RunDirectory(root).write(target, page.encode())
    return target
