"""HTML report of a run directory, from the files that the run wrote."""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.text import read_sample_columns
from mscam_dask.data.results import read_model, read_result
from mscam_dask.data.store.object_store import as_location
from mscam_dask.data.store.read import open_store
from mscam_dask.errors import DataError, MscamError
from mscam_dask.monitor.events import Event, StepFinished, StepStarted
from mscam_dask.monitor.report.page import FileLink, RunContent, run_page
from mscam_dask.monitor.run_record import RunRecord
from mscam_dask.pipeline.run.previous_runs import PreviousRun
from mscam_dask.pipeline.run.run_directory import RunDirectory, decoded_id

__all__ = ["report_html", "report_step", "write_report"]

_FILES = (
    ("labels.csv", "each sample and its cluster"),
    ("samples.csv", "each sample: cluster, confidence, next best cluster, vote of each view"),
    ("samples.parquet", "the same as a Parquet file"),
    ("moved.csv", "samples that changed cluster since the previous run"),
    ("result.zarr", "labels, consensus graph, view embeddings, history, model"),
    ("run.json", "this record, for programs"),
    ("pipeline.toml", "the settings, defaults included; runs again"),
    ("events.jsonl", "events with their times, one JSON record a line"),
    ("data.zarr", "clustered data"),
)


def report_step(directory: RunDirectory, tell: Callable[[Event], None]) -> None:
    """Write the report as the last step of a run, which has its results whether or not it works."""
    started = time.perf_counter()
    tell(StepStarted(step="report"))
    notes: tuple[str, ...] = ()
    try:
        summary = str(write_report(directory))
    except (MscamError, OSError) as error:
        summary = "not written"
        again = f"Try again with mscam-dask report {directory.path}."
        notes = (f"The results are complete, but not their report: {error} {again}",)
    seconds = time.perf_counter() - started
    tell(StepFinished(step="report", summary=summary, notes=notes, seconds=seconds))


def write_report(
    directory: RunDirectory, output: Path | None = None, columns: Path | None = None
) -> Path:
    """Write the report of a run that ended with results.

    Parameters
    ----------
    directory
        Directory of the run.
    output
        File to write; by default report.html in the run directory.
    columns
        Table of properties of the samples to color the plots by; by default that of the settings of
        the run ([report] columns).

    Returns
    -------
    Path
        The file, absolute.

    Raises
    ------
    DataError
        When there is no run, it has no results, or one of its files is damaged; when `columns` is
        no table of its samples.
    """
    target = directory.report if output is None else output.absolute()
    if target.is_dir():
        raise DataError(f"{target} is a directory; the report is one file. Give a file name.")
    page = report_html(directory, target.parent, columns)
    target.parent.mkdir(parents=True, exist_ok=True)
    directory.write(target, page.encode())
    return target


def report_html(directory: RunDirectory, base: Path, columns: Path | None = None) -> str:
    """Return the page; its links are relative to `base`. For `columns` see `write_report`."""
    record = directory.read_record()
    if record.fit is None or record.data is None or not directory.result.is_dir():
        reason = "is still running" if record.state == "running" else f"{record.state}"
        cause = f": {record.error.message}" if record.error is not None else "."
        raise DataError(
            f"{directory.path} holds a run without results: it {reason}{cause} mscam-dask describe "
            "shows its state."
        )
    labels_true, label_names, notes = _truth(directory, record)
    result, model = read_result(directory.result), read_model(directory.result)
    sample_ids = _sample_ids(directory, record)
    properties, more_notes = _columns(record, columns, sample_ids, len(result.labels))
    return run_page(
        RunContent(
            record=record,
            result=result,
            settings_text=_settings_text(directory),
            sample_ids=sample_ids,
            labels_true=labels_true,
            label_names=label_names,
            files=_links(directory, base),
            moved=_moved(directory),
            notes=(*notes, *more_notes),
            membership=None if model is None else model.arrays.get("membership"),
            columns=properties,
        )
    )


def _columns(
    record: RunRecord, given: Path | None, sample_ids: Sequence[str] | None, n_samples: int
) -> tuple[dict[str, NDArray[Any]], tuple[str, ...]]:
    """Return properties of the samples, and a note if the table of the settings cannot be used."""
    if given is not None:
        return read_sample_columns(given, sample_ids, n_samples), ()
    listed = (record.settings or {}).get("report", {}).get("columns")
    if listed is None:
        return {}, ()
    try:
        return read_sample_columns(Path(listed), sample_ids, n_samples), ()
    except DataError as error:
        return {}, (f"The plots are not colored by columns of the samples: {error}",)


def _settings_text(directory: RunDirectory) -> str:
    try:
        return directory.pipeline.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise DataError(
            f"{directory.pipeline} cannot be read: {error}. Delete it; mscam-dask resume writes it "
            "again."
        ) from error


def _links(directory: RunDirectory, base: Path) -> tuple[FileLink, ...]:
    links = []
    for name, what in _FILES:
        file = directory.path / name
        if file.exists():
            href = quote(Path(os.path.relpath(file, base)).as_posix())
            links.append(FileLink(name=name, href=href + "/" * file.is_dir(), what=what))
    return tuple(links)


def _sample_ids(directory: RunDirectory, record: RunRecord) -> list[str] | None:
    """Return the sample ids from labels.csv; None where samples have no ids."""
    assert record.data is not None
    if not record.data.has_sample_ids:
        return None
    return PreviousRun(directory, record).labels()[0]


def _moved(directory: RunDirectory) -> list[tuple[str, int, int]]:
    """Return the lines of moved.csv; none without a previous run."""
    if not directory.moved.is_file():
        return []
    try:
        with directory.moved.open(encoding="utf-8", newline="") as stream:
            return [
                (decoded_id(name), int(old), int(new))
                for name, old, new in list(csv.reader(stream))[1:]
            ]
    except ValueError as error:
        raise DataError(
            f"{directory.moved} is damaged ({error}). Delete it; the report is then written without it."
        ) from error


def _truth(
    directory: RunDirectory, record: RunRecord
) -> tuple[NDArray[np.int64] | None, tuple[str, ...] | None, tuple[str, ...]]:
    """Return the ground truth from the store of the run, if it is still there and unchanged."""
    assert record.data is not None
    if record.metrics is None:
        return None, None, ()
    recorded = as_location(record.data.store)
    store = directory.path / recorded if isinstance(recorded, Path) else recorded
    try:
        data = open_store(store)
    except DataError as error:
        note = f"The labels are not shown: {error}"
        return None, None, (note,)
    if data.digest() != record.data.digest or data.labels is None:
        note = f"The labels are not shown: {store} has changed since the run."
        return None, None, (note,)
    return data.labels, data.label_names, ()
