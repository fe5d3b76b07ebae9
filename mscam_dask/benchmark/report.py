"""The report of an experiment's directory: one HTML file from its record."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mscam_dask.benchmark.experiment_page import experiment_page
from mscam_dask.errors import DataError
from mscam_dask.monitor.report.page import FileLink
from mscam_dask.pipeline.run.run_directory import RunDirectory

__all__ = ["write_experiment_report"]

_FILES = (
    ("results.md", "the tables, for a text editor"),
    ("results.csv", "the rows, one a line"),
    ("experiment.json", "everything on this page, for programs"),
    ("pipeline.toml", "the settings as they were understood"),
    ("cells", "one record for each fit"),
)


def write_experiment_report(
    directory: Path, record: Mapping[str, Any], output: Path | None = None
) -> Path:
    """Write the report of an experiment, finished or under way.

    Parameters
    ----------
    directory
        Of the experiment; the report links to its files.
    record
        Content of its experiment.json; docs/experiments.md says what is in it.
    output
        File to write; by default report.html in the directory.

    Returns
    -------
    Path
        The file, absolute.

    Raises
    ------
    DataError
        When the output is a directory.
    """
    root = directory.absolute()
    target = root / "report.html" if output is None else output.absolute()
    if target.is_dir():
        raise DataError(f"{target} is a directory; the report is one file. Give a file name.")
    links = [
        FileLink(
            name=name,
            href=quote(Path(os.path.relpath(root / name, target.parent)).as_posix()),
            what=what,
        )
        for name, what in _FILES
        if (root / name).exists()
    ]
    page = experiment_page(record, links)
    target.parent.mkdir(parents=True, exist_ok=True)
    RunDirectory(root).write(target, page.encode())
    return target
