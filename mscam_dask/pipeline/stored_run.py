"""Runs as their directories hold them: one run, those of a root, their comparison, the removal of old ones, and tables of samples."""

from __future__ import annotations

import datetime as dt
import fnmatch
import glob
import hashlib
import io
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mscam_dask import __version__
from mscam_dask.data.results import read_model, read_result
from mscam_dask.data.store.filesystem import MAX_BYTES, read_regular, rename_durably
from mscam_dask.data.store.object_store import Location, as_location
from mscam_dask.data.views.sample_ids import decoded_id, encoded_id
from mscam_dask.errors import ConfigurationError, DataError, MscamError
from mscam_dask.estimators._stored import FittedModel
from mscam_dask.metrics import adjusted_rand_index
from mscam_dask.monitor.report.page import render
from mscam_dask.monitor.run_record import DataRecord, FitRecord, RunRecord
from mscam_dask.pipeline.open_data import NAME_DIGITS
from mscam_dask.pipeline.run_directory import (
    NEXT_SUFFIX,
    RunDirectory,
    hold_lock,
    is_locked,
    relative_url,
    resolved,
    write_whole,
)
from mscam_dask.pipeline.settings import Settings

_MAX_ROW_BYTES = 2**13


@dataclass(frozen=True)
class StoredRun:
    """A run directory and the content of its run.json."""

    directory: RunDirectory
    record: RunRecord

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read the record of a run directory, or of the one that a link leads to."""
        place = os.fspath(path)
        if "://" in place:
            raise ConfigurationError(
                f"{place} is a URL, but a run directory is on a file system. Copy it to a directory first."
            )
        directory = RunDirectory(resolved(place))
        return cls(directory, directory.read_record())

    @property
    def name(self) -> str:
        """Name of the run directory."""
        return self.directory.path.name

    @cached_property
    def state(self) -> str:
        """State that run.json records, but "interrupted" if no process is running the run."""
        is_cut_off = self.record.state == "running" and not is_locked(self.directory.path)
        return "interrupted" if is_cut_off else self.record.state

    @property
    def data(self) -> DataRecord:
        """Record of the clustered data, which a finished run has."""
        assert self.record.data is not None
        return self.record.data

    @property
    def fit(self) -> FitRecord:
        """Record of the fit, which a finished run has."""
        assert self.record.fit is not None
        return self.record.fit

    @property
    def store(self) -> Location:
        """Store of the clustered data."""
        place = as_location(self.data.store)
        return self.directory.path / place if isinstance(place, Path) else place

    @property
    def has_results(self) -> bool:
        """Whether the run has finished."""
        return self.record.state == "finished" and None not in (self.record.data, self.record.fit)

    def finished(self) -> Self:
        """Return the run; refuse one that has not finished."""
        if self.has_results:
            return self
        error = self.record.error
        cause = "" if error is None else f" ({error.message})"
        raise DataError(
            f"{self.directory.path} holds a run that has not finished: its state is {self.state!r}{cause}. "
            f"{self.to_finish}"
        )

    @property
    def to_finish(self) -> str:
        """Remedy for a run that has not finished."""
        if self.state == "running":
            return "Wait until it ends."
        return f"Continue it with {self.directory.command('resume')}."

    @property
    def to_repair(self) -> str:
        """Remedy for a finished run whose files are damaged."""
        return f"{self.directory.command('resume')} writes them again."

    def labels(self) -> pd.Series[int]:
        """Return the clusters of labels.csv, by sample."""
        names, labels = self.clusters(self.directory.labels)
        return pd.Series(labels[:, 0], index=names)

    def clusters(self, file: Path) -> tuple[list[str], NDArray[np.int64]]:
        """Return the samples of a table and its columns of clusters, (n, k)."""
        content = self.content(file)
        try:
            table: Any = pd.read_csv(
                io.BytesIO(content), dtype=str, na_filter=False, index_col=False
            )
            if "sample" not in table:
                raise ValueError("no column sample")
            names = [decoded_id(name) for name in table.pop("sample")]
            return names, table.to_numpy().astype(np.int64)
        except ValueError as error:
            raise DataError(
                f"{file} is not a list of samples and clusters: {error}. {self.to_repair}"
            ) from error

    def content(self, file: Path) -> bytes:
        """Return the content of a file, which for a table of samples is as the run wrote it."""
        limit = MAX_BYTES + _MAX_ROW_BYTES * self.data.n_samples
        try:
            content = read_regular(file, max_bytes=limit)
        except OSError as error:
            raise DataError(f"{file} cannot be read: {error.strerror}. {self.to_repair}") from error
        written = {"labels.csv": self.record.labels_sha256, **self.record.files_sha256}
        if written.get(file.name) not in (None, hashlib.sha256(content).hexdigest()):
            raise DataError(
                f"{file} has changed since the run wrote it (another SHA-256). {self.to_repair}"
            )
        return content

    def integrity_problem(self) -> str:
        """Return how the results are damaged, or an empty text if they are intact."""
        files = (self.directory.labels, self.directory.result, self.directory.samples)
        missing = [file.name for file in files if not file.exists()]
        if missing:
            return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
        try:
            for name in self.record.files_sha256:
                if (self.directory.path / name).exists():
                    self.content(self.directory.path / name)
            labels = self.labels().to_numpy()
            result = read_result(self.directory.result)
            read_model(self.directory.result, FittedModel)
        except DataError as error:
            return str(error).partition(". ")[0].removesuffix(".")
        if not np.array_equal(labels, result.labels):
            return f"{files[0].name} does not have the clusters of {files[1].name}"
        return ""


def last_started(directory: RunDirectory, fingerprint: str | None = None) -> StoredRun | None:
    """Return the run that was started last, with the fingerprint if given; an unfinished one that is to replace another comes first."""
    following = directory.next()
    for place in (directory,) if following is None else (following, directory):
        with suppress(DataError):
            run = StoredRun(place, place.read_record())
            is_replaced_next = place is following and run.record.state == "finished"
            if fingerprint in (None, run.record.run_fingerprint) and not is_replaced_next:
                return run
    return None


def scan(paths: Iterable[Path]) -> Iterator[tuple[RunDirectory, StoredRun | DataError]]:
    """Yield the run directories among paths, by name, each with its run or why it cannot be read."""
    for path in sorted(paths):
        directory = RunDirectory(path.absolute())
        if os.path.lexists(directory.record):
            try:
                yield directory, StoredRun(directory, directory.read_record())
            except DataError as error:
                yield directory, error


@dataclass(frozen=True)
class Siblings:
    """Other runs of the same pipeline in the root of a run directory."""

    finished: list[StoredRun]  # the last one first, by their numbers, whatever the clock says
    next_number: int  # of a run that finishes now
    notes: tuple[str, ...]  # on runs that are passed over as unreadable


def siblings_of(settings: Settings, directory: RunDirectory) -> Siblings:
    """Read the other runs of the pipeline in the root of a run directory."""
    root, pattern = settings.output.root, f"{glob.escape(settings.name)}-*"
    paths = Path(root).resolve().glob(pattern) if root else ()  # as the directory: links followed
    others = [
        run
        for place, run in scan(paths)
        if place.path not in (directory.path, directory.place)
        and not place.path.name.endswith(NEXT_SUFFIX)
    ]
    runs = [
        run for run in others if isinstance(run, StoredRun) and run.record.pipeline == settings.name
    ]
    numbers = [run.record.number for run in runs]
    with suppress(DataError):
        numbers.append(RunDirectory(directory.place).read_record().number)
    finished = [run for run in runs if run.has_results]
    finished.sort(
        key=lambda run: (run.record.number, run.record.ended or "", run.name), reverse=True
    )
    unreadable = [run for run in others if isinstance(run, DataError)]
    notes = tuple(f"A previous run is passed over: {error}" for error in unreadable)
    return Siblings(finished, max(numbers, default=0) + 1, notes)


def last_comparable(runs: list[StoredRun], settings: Settings) -> StoredRun | None:
    """Return the run that the next run with these settings starts from; `runs` has the last first."""
    if not settings.incremental.enabled:
        return None
    for run in runs:
        if run.has_results:
            requested = ((run.record.settings or {}).get("cluster") or {}).get("parameters") or {}
            n_clusters = None if requested.get("n_clusters") == "auto" else run.fit.n_clusters
            table = settings.cluster
            if (run.record.method, n_clusters) == (table.method, table.n_clusters):
                return run
    return None


def flat(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested tables by dotted keys."""
    found: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


# runs of a root ----------------------------------------------------------------------------------


MOST_COMPARED = 20
"""Largest number of runs in one comparison."""

# Settings that do not change the clusters.
_NOT_COMPARED = ("execution.", "output.", "report.", "name")


@dataclass(frozen=True)
class Comparison:
    """Settings, scores and agreement of several runs."""

    names: tuple[str, ...]
    settings: dict[str, tuple[Any, ...]]  # values in each run of each setting that differs
    scores: dict[str, tuple[float | None, ...]]  # values in each run, None without
    # of each pair of runs: adjusted Rand index on their common samples, None with fewer than two
    agreement: tuple[tuple[float | None, ...], ...]
    n_common: tuple[tuple[int, ...], ...]  # number of common samples of each pair


def list_runs(
    root: Path,
    *,
    status: Sequence[str] = (),
    since: str | None = None,
    names: Sequence[str] = (),
) -> tuple[list[StoredRun], dict[str, str]]:
    """List the runs directly below a directory in the order in which they started."""
    first = None if since is None else _time(since, "--since")
    runs, unreadable = [], {}
    found = list(scan(root.iterdir())) if root.is_dir() else []
    if not found:
        state = "contains no runs" if root.is_dir() else "is not a directory"
        raise DataError(
            f"{root} {state}. Give the directory of run directories, such as runs or [output] root; "
            "mscam-dask describe shows a single run."
        )
    for directory, run in found:
        name = directory.path.name
        if names and not any(fnmatch.fnmatchcase(name, pattern) for pattern in names):
            continue
        if isinstance(run, DataError):
            unreadable[name] = str(run)
            continue
        is_late = first is None or _time(run.record.started, str(directory.record)) >= first
        if is_late and (not status or run.state in status):
            runs.append(run)
    return sorted(runs, key=lambda run: (run.record.started, run.record.number)), unreadable


def _time(text: str, where: str) -> dt.datetime:
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError(
            f"{where}: {text!r} is not a time. Give a date such as 2026-11-24, or 2026-11-24T09:30."
        ) from error
    return time if time.tzinfo is not None else time.replace(tzinfo=dt.UTC)


def compare_runs(runs: Sequence[StoredRun]) -> Comparison:
    """Compare the settings, scores and partitions of runs."""
    finished = [run for run in runs if run.has_results]
    if not 2 <= len(finished) <= MOST_COMPARED:
        raise ConfigurationError(
            f"{len(finished)} finished runs cannot be compared: allowed are 2 to {MOST_COMPARED}. Select "
            "them with --name or --since."
        )
    settings = _by_name([flat_settings(run.record) for run in finished])
    partitions = [run.labels() for run in finished]
    pairs = [[_agreement(one, other) for other in partitions] for one in partitions]
    return Comparison(
        names=tuple(run.name for run in finished),
        settings={key: row for key, row in settings.items() if any(one != row[0] for one in row)},
        scores=_by_name([run_scores(run) for run in finished]),
        agreement=tuple(tuple(index for index, _ in row) for row in pairs),
        n_common=tuple(tuple(count for _, count in row) for row in pairs),
    )


def _by_name(runs: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Any, ...]]:
    """Return the values in each run, None without, by name."""
    names = dict.fromkeys(name for values in runs for name in values)
    return {name: tuple(values.get(name) for values in runs) for name in names}


def flat_settings(record: RunRecord) -> dict[str, Any]:
    """Return the settings of a run that its clusters depend on, by dotted keys."""
    return {
        key.replace("cluster.parameters.", "cluster.", 1): value
        for key, value in flat(record.settings or {}).items()
        if not key.startswith(_NOT_COMPARED)
    }


def run_scores(run: StoredRun) -> dict[str, float | None]:
    """Return the sizes and scores of a run with results, its drift and its seconds."""
    drift = run.record.drift
    return {
        "n_samples": run.data.n_samples,
        "n_clusters": run.fit.n_clusters,
        "cross_view_information": run.fit.score,
        **(run.record.metrics or {}),
        **({} if drift is None else {"share_moved": drift.share_moved}),
        "seconds": run.record.seconds.get("total"),
    }


def _agreement(one: pd.Series[int], other: pd.Series[int]) -> tuple[float | None, int]:
    """Adjusted Rand index on the common samples, and their number."""
    first, second = one.align(other, join="inner")
    if len(first) < 2:
        return None, len(first)
    return adjusted_rand_index(first.to_numpy(), second.to_numpy()), len(first)


def write_index(root: Path, runs: Sequence[StoredRun], output: Path) -> Path:
    """Write an HTML page of runs, with links to their reports, that needs no network."""
    target = output.absolute()
    finished = [run for run in runs if run.has_results]
    compared = finished[-MOST_COMPARED:]
    page = render(
        "pipeline/runs.html.j2",
        {
            "root": root.absolute().name,
            "runs": [
                {"run": run, "href": relative_url(report, target) if report.is_file() else ""}
                for run, report in ((run, run.directory.report) for run in reversed(runs))
            ],
            "comparison": compare_runs(compared) if len(compared) > 1 else None,
            "n_finished": len(finished),
            "version": __version__,
        },
    )
    write_whole(target, page.encode())
    return target


def remove_old_runs(settings: Settings, directory: RunDirectory) -> tuple[str, ...]:
    """Remove finished runs of the same pipeline except the last [output] keep.

    The run that the next one would start from stays, those that an unfinished run started from, those
    that another driver holds, and directories with other files.
    """
    table = settings.output
    if table.keep is None or table.root is None:
        return ()
    root = Path(table.root)
    made = rf"\.{re.escape(settings.name)}-[0-9a-f]{{{NAME_DIGITS}}}\.[0-9a-f]{{8}}\.old"
    for aside in root.iterdir():  # by `_removed`, before a kill
        is_ours = re.fullmatch(made, aside.name) and aside.is_dir() and not aside.is_symlink()
        if is_ours and RunDirectory(aside).holds_only_own():
            shutil.rmtree(aside)
    found = siblings_of(settings, directory).finished
    runs = [run for run in found if not run.directory.path.is_symlink()]
    needed = {
        run.record.started_from
        for _, run in scan(root.iterdir())
        if isinstance(run, StoredRun) and run.record.state != "finished"
    }
    own = StoredRun(directory, directory.read_record())
    last = last_comparable([own, *runs], settings)
    if last is not None:
        needed.add(last.name)
    old = [run for run in runs[table.keep - 1 :] if run.name not in needed]
    return tuple(run.name for run in old if _removed(run.directory))


def _removed(directory: RunDirectory) -> bool:
    path = directory.path
    if not directory.holds_only_own():
        return False
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.old")
    try:
        with hold_lock(path):
            rename_durably(path, aside)  # no longer a run, even after a power cut
    except MscamError:
        return False
    shutil.rmtree(aside)  # without its lock, which NFS would keep in it
    return True


# tables with a row for each sample ---------------------------------------------------------------


FORMATS = (".csv", ".parquet")

_NONE = -1  # no cluster
_MAX_ENTRIES = 2**20  # of a block of memberships


def has_parquet() -> bool:
    """Return whether Parquet files can be written here."""
    return find_spec("pyarrow") is not None


def check_suffix(suffix: str) -> None:
    """Refuse a file format of a table that cannot be written here."""
    if suffix not in FORMATS:
        raise ConfigurationError(
            f"The output file ends in {suffix!r}; allowed are {' and '.join(FORMATS)}. Choose another "
            "output file (-o)."
        )
    if suffix == ".parquet" and not has_parquet():
        raise ConfigurationError(
            "Parquet files need pyarrow. Install it (pip install 'mscam-dask[parquet]'), or write a "
            ".csv file."
        )


def sample_table(
    sample_ids: Sequence[str] | None,
    labels: NDArray[np.int64],
    membership: NDArray[np.float64],
    cluster_names: NDArray[np.int64],
    view_votes: Mapping[str, NDArray[np.int64]] | None = None,
) -> pd.DataFrame:
    """Return the columns sample, cluster, confidence, next_cluster, and vote_VIEW for each view.

    `membership` is (n, c), with a column for each of the ascending `cluster_names`.
    """
    rows, own = np.arange(len(labels)), np.searchsorted(cluster_names, labels)
    following = np.full(len(labels), _NONE)
    if len(cluster_names) > 1:
        following = cluster_names[_next_clusters(membership, own)]
    optional = {"next_cluster": following}
    optional |= {f"vote_{view}": votes for view, votes in (view_votes or {}).items()}
    return pd.DataFrame(
        {
            "sample": rows if sample_ids is None else list(sample_ids),
            "cluster": labels,
            "confidence": membership[rows, own],
            **{
                name: pd.arrays.IntegerArray(column.astype(np.int64), column == _NONE)
                for name, column in optional.items()
            },
        }
    )


def _next_clusters(membership: NDArray[np.float64], own: NDArray[np.int64]) -> NDArray[np.int64]:
    """Column (n,) of the largest of at least two memberships (n, c) outside the own column (n,)."""
    found = np.empty(len(own), dtype=np.int64)
    step = max(1, _MAX_ENTRIES // membership.shape[1])
    for start in range(0, len(own), step):
        others = membership[start : start + step].copy()
        np.put_along_axis(others, own[start : start + step, None], -np.inf, axis=1)
        found[start : start + step] = others.argmax(axis=1)
    return found


def table_bytes(table: pd.DataFrame, suffix: str = ".csv") -> bytes:
    """Return a table as the content of a file; CSV files are harmless to spreadsheets and have confidences of six decimals."""
    if suffix == ".csv":
        safe = table.assign(sample=[encoded_id(str(sample)) for sample in table["sample"]])
        safe = safe.rename(columns=encoded_id)
        return str(safe.to_csv(index=False, float_format="%.6f", lineterminator="\n")).encode()
    stream = io.BytesIO()
    table.to_parquet(stream, engine="pyarrow", index=False)
    return stream.getvalue()
