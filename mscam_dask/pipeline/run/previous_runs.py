"""What a run takes over whole from earlier runs beside it: the store, or the clusters.

Runs of a pipeline lie in one directory, each named after a digest of its settings and data. Files
of a finished run never change, so what is taken over is linked where the file system can.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.results import read_result
from mscam_dask.data.store.object_store import as_location
from mscam_dask.data.store.read import open_store
from mscam_dask.errors import DataError
from mscam_dask.pipeline.config.settings import Settings
from mscam_dask.pipeline.run.drift import DriftRecord, drift_between, moved_text
from mscam_dask.pipeline.run.run_directory import RunDirectory
from mscam_dask.pipeline.run.run_record import DataRecord, FitRecord, RunRecord

__all__ = [
    "ClusteringOutput",
    "PreviousRun",
    "glob_escaped",
    "link_tree",
    "previous_runs",
    "reusable_clustering",
    "reusable_store",
]


@dataclass(frozen=True)
class PreviousRun:
    """A finished run.

    Attributes
    ----------
    directory, record
    """

    directory: RunDirectory
    record: RunRecord

    @property
    def data(self) -> DataRecord:
        """What was clustered: a finished run has some."""
        assert self.record.data is not None
        return self.record.data

    @property
    def name(self) -> str:
        """Of its directory."""
        return self.directory.path.name

    def labels(self) -> tuple[list[str], NDArray[np.int64]]:
        """Samples and their clusters, as labels.csv has them.

        Raises
        ------
        DataError
            When the file is missing or cut short.
        """
        file = self.directory.labels
        try:
            rows = list(csv.reader(io.StringIO(file.read_text(encoding="utf-8"), newline="")))
            names = [name for name, _ in rows[1:]]
            labels = np.array([int(cluster) for _, cluster in rows[1:]], dtype=np.int64)
        except (OSError, ValueError, csv.Error) as error:
            raise DataError(f"{file} is no list of samples and clusters: {error}.") from error
        return names, labels

    def damage(self) -> str:
        """Say what is wrong with its results; nothing when they are whole."""
        files = (self.directory.labels, self.directory.result)
        missing = [file.name for file in files if not file.exists()]
        if missing:
            return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
        try:
            _, labels = self.labels()
            result = read_result(self.directory.result)
        except DataError as error:
            return str(error).partition(". ")[0].removesuffix(".")
        if not np.array_equal(labels, result.labels):
            return f"{files[0].name} has not the clusters of {files[1].name}"
        return ""


def previous_runs(settings: Settings, directory: RunDirectory) -> list[PreviousRun]:
    """Finished runs of the same pipeline beside a run directory, last ended first.

    Directories that hold no readable run are passed over: they are somebody else's.
    """
    if settings.output.root is None:
        return []
    found = []
    for path in Path(settings.output.root).glob(f"{glob_escaped(settings.name)}-*"):
        if path == directory.path:
            continue
        other = RunDirectory(path)
        with contextlib.suppress(DataError, OSError):
            record = other.read_record()
            written = other.record.stat().st_mtime_ns  # runs may end within the same second
            if record.state == "finished" and record.data and record.pipeline == settings.name:
                found.append((record.ended or "", written, path.name, PreviousRun(other, record)))
    return [run for *_, run in sorted(found, key=lambda item: item[:3], reverse=True)]


def glob_escaped(name: str) -> str:
    """A name in which nothing stands for anything else in a glob pattern."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def link_tree(source: Path, target: Path) -> None:
    """Give a tree of files that never change a second name; copied where links are not possible."""

    def link(file: str, name: str) -> str:
        try:
            os.link(file, name)
        except OSError:
            shutil.copy2(file, name)
        return name

    shutil.copytree(source, target, copy_function=link)


@dataclass(frozen=True, eq=False)
class ClusteringOutput:
    """What the step cluster gives to those after it.

    Attributes
    ----------
    labels : (n,) int64
    fit
        For run.json.
    write
        Writes the result store at a path.
    drift
        Against the earlier run; None without one.
    moved
        moved.csv; None without an earlier run.
    """

    labels: NDArray[np.int64]
    fit: FitRecord
    write: Callable[[Path], object]
    drift: DriftRecord | None = None
    moved: bytes | None = None


def reusable_store(runs: list[PreviousRun], ingest: str | None) -> PreviousRun | None:
    """A run whose own store was made of the same sources in the same way.

    Parameters
    ----------
    runs
    ingest
        `mscam_dask.pipeline.run.fingerprints.ingest_id`.
    """
    for run in runs:
        if run.record.ingest != ingest or as_location(run.data.store).is_absolute():
            continue
        with contextlib.suppress(DataError):  # gone, damaged, or of another version
            open_store(run.directory.data)
            return run
    return None


def reusable_clustering(
    runs: list[PreviousRun], clustering: str, samples: Sequence[str] | None = None
) -> tuple[PreviousRun, ClusteringOutput] | None:
    """The clusters of a run with the same views and settings, if one is whole.

    Parameters
    ----------
    runs
    clustering
        `mscam_dask.pipeline.run.fingerprints.clustering_id`.
    samples
        Their names in labels.csv, to be compared with the run's; None for no drift.
    """
    for run in runs:
        if run.record.clustering != clustering or run.record.fit is None:
            continue
        with contextlib.suppress(DataError):
            result = read_result(run.directory.result)
            drift, moved = (None, None) if samples is None else _since(run, result.labels, samples)
            clusters = ClusteringOutput(
                labels=result.labels,
                fit=run.record.fit,
                write=partial(link_tree, run.directory.result),
                drift=drift,
                moved=moved,
            )
            return run, clusters
    return None


def _since(
    run: PreviousRun, labels: NDArray[np.int64], samples: Sequence[str]
) -> tuple[DriftRecord | None, bytes | None]:
    """The drift of clusters that are those of another run, row by row: none unless rows are renamed."""
    fit, before = run.record.fit, run.record.drift
    assert fit is not None
    names, _ = run.labels()
    renamed = names != list(samples)
    if before is None and not renamed:
        return None, None
    if len(names) != len(labels):
        raise DataError(f"{run.directory.labels} has not the clusters of {run.directory.result}.")
    cluster_of = dict(zip(names, labels.tolist(), strict=True))
    known = np.array([cluster_of.get(sample, -1) for sample in samples], dtype=np.int64)
    drift = DriftRecord(
        earlier=run.name,
        start="unchanged",
        reason="",
        warm_runs=0 if before is None else before.warm_runs,
        score_before=fit.score,
        score_after=fit.score,
        **drift_between(known, labels, fit.sizes),
    )
    return drift, moved_text(samples, known, labels) if renamed else None
