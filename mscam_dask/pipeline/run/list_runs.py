"""Runs in a directory: listed, filtered, compared, as an index page, and removed when they are old."""

from __future__ import annotations

import contextlib
import datetime as dt
import fnmatch
import glob
import os
import re
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from mscam_dask import __version__
from mscam_dask.data.store.filesystem import rename_durably
from mscam_dask.errors import ConfigurationError, DataError, MscamError
from mscam_dask.metrics import adjusted_rand_index
from mscam_dask.monitor.report.page import render
from mscam_dask.monitor.run_record import RunRecord
from mscam_dask.pipeline.config.settings import Settings
from mscam_dask.pipeline.run.lock import RunLock, is_locked
from mscam_dask.pipeline.run.open_data import NAME_DIGITS
from mscam_dask.pipeline.run.previous_runs import (
    PreviousRun,
    last_comparable,
    previous_runs,
)
from mscam_dask.pipeline.run.run_directory import RunDirectory, write_whole

MOST_COMPARED = 20
"""Largest number of runs in one comparison."""

# Settings that do not change the clusters.
_NOT_COMPARED = ("execution.", "output.", "report.", "name")


@dataclass(frozen=True)
class ListedRun:
    """One run of a list."""

    directory: RunDirectory
    record: RunRecord
    state: str
    """State of the record, but "interrupted" if no process is running the run."""

    @property
    def name(self) -> str:
        """Name of its directory."""
        return self.directory.path.name


@dataclass(frozen=True)
class Comparison:
    """Settings, scores and agreement of several runs."""

    names: tuple[str, ...]
    settings: dict[str, tuple[Any, ...]]
    """Key of each setting that differs, and its value in each run."""
    scores: dict[str, tuple[float | None, ...]]
    """Name of each score that a run has, and its value in each run, None without."""
    agreement: tuple[tuple[float | None, ...], ...]
    """Adjusted Rand index of the partitions of each pair of runs on their common samples; None with
    fewer than two common samples."""
    n_common: tuple[tuple[int, ...], ...]
    """Number of common samples of each pair."""


def run_directories(root: Path) -> list[RunDirectory]:
    """Return the run directories directly below a directory, by name; links are followed."""
    if not root.is_dir():
        return []
    runs = (RunDirectory(child.absolute()) for child in sorted(root.iterdir()))
    return [run for run in runs if os.path.lexists(run.record)]


def list_runs(
    root: Path,
    *,
    status: Sequence[str] = (),
    since: str | None = None,
    names: Sequence[str] = (),
) -> tuple[list[ListedRun], dict[str, str]]:
    """List the runs directly below a directory in the order in which they started."""
    first = None if since is None else _time(since, "--since")
    directories = run_directories(root)
    if not directories:
        state = "contains no runs" if root.is_dir() else "is not a directory"
        raise DataError(
            f"{root} {state}. Give the directory of run directories, such as runs or [output] root; "
            "mscam-dask describe shows a single run."
        )
    runs, unreadable = [], {}
    for directory in directories:
        name = directory.path.name
        if names and not any(fnmatch.fnmatchcase(name, pattern) for pattern in names):
            continue
        try:
            record = directory.read_record()
        except DataError as error:
            unreadable[name] = str(error)
            continue
        is_cut_off = record.state == "running" and not is_locked(directory.path)
        state = "interrupted" if is_cut_off else record.state
        is_late = first is None or _time(record.started, str(directory.record)) >= first
        if is_late and (not status or state in status):
            runs.append(ListedRun(directory, record, state))
    return sorted(runs, key=lambda run: (run.record.started, run.record.number)), unreadable


def _time(text: str, where: str) -> dt.datetime:
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError(
            f"{where}: {text!r} is not a time. Give a date such as 2026-11-24, or 2026-11-24T09:30."
        ) from error
    return time if time.tzinfo is not None else time.replace(tzinfo=dt.UTC)


def compare_runs(runs: Sequence[ListedRun]) -> Comparison:
    """Compare the settings, scores and partitions of runs."""
    finished = [run for run in runs if run.state == "finished" and run.record.fit is not None]
    if not 2 <= len(finished) <= MOST_COMPARED:
        raise ConfigurationError(
            f"{len(finished)} finished runs cannot be compared: allowed are 2 to {MOST_COMPARED}. Select "
            "them with --name or --since."
        )
    settings = [flat_settings(run.record) for run in finished]
    keys = dict.fromkeys(key for each in settings for key in each)
    values = {key: tuple(each.get(key) for each in settings) for key in keys}
    scores = [run_scores(run.record) for run in finished]
    partitions = [PreviousRun(run.directory, run.record).labels() for run in finished]
    pairs = [[_agreement(one, other) for other in partitions] for one in partitions]
    return Comparison(
        names=tuple(run.name for run in finished),
        settings={key: each for key, each in values.items() if any(one != each[0] for one in each)},
        scores={
            name: tuple(each.get(name) for each in scores)
            for name in dict.fromkeys(name for each in scores for name in each)
        },
        agreement=tuple(tuple(index for index, _ in row) for row in pairs),
        n_common=tuple(tuple(count for _, count in row) for row in pairs),
    )


def flat_settings(record: RunRecord) -> dict[str, Any]:
    """Return the settings of a run that its clusters depend on, by dotted keys."""
    return _flat(record.settings or {})


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in settings.items():
        name = f"{prefix}{key}"
        if name.startswith(_NOT_COMPARED):
            continue
        if isinstance(value, Mapping):
            found |= _flat(value, prefix if key == "parameters" else f"{name}.")
        else:
            found[name] = value
    return found


def run_scores(record: RunRecord) -> dict[str, float | None]:
    """Return the sizes and scores of a run with results, its drift and its seconds."""
    fit, drift = record.fit, record.drift
    assert fit is not None
    return {
        "n_samples": None if record.data is None else record.data.n_samples,
        "n_clusters": fit.n_clusters,
        "cross_view_information": fit.score,
        **(record.metrics or {}),
        **({} if drift is None else {"share_moved": drift.share_moved}),
        "seconds": record.seconds.get("total"),
    }


def _agreement(
    one: tuple[list[str], NDArray[np.int64]], other: tuple[list[str], NDArray[np.int64]]
) -> tuple[float | None, int]:
    """Adjusted Rand index on the common samples, and their number."""
    place = {sample: index for index, sample in enumerate(other[0])}
    common = [(index, place[sample]) for index, sample in enumerate(one[0]) if sample in place]
    if len(common) < 2:
        return None, len(common)
    rows, others = np.array(common).T
    return adjusted_rand_index(one[1][rows], other[1][others]), len(common)


def write_index(root: Path, runs: Sequence[ListedRun], output: Path) -> Path:
    """Write an HTML page of runs, with links to their reports, that needs no network."""
    target = output.absolute()
    if target.is_dir():
        raise DataError(f"{target} is a directory; the index is one file. Give a file name.")
    finished = [run for run in runs if run.state == "finished" and run.record.fit is not None]
    compared = finished[-MOST_COMPARED:]
    page = render(
        files(__package__).joinpath("runs.html.j2").read_text(encoding="utf-8"),
        {
            "root": root.absolute().name,
            "runs": [{"run": run, "href": _link(run, target.parent)} for run in reversed(runs)],
            "comparison": compare_runs(compared) if len(compared) > 1 else None,
            "n_finished": len(finished),
            "version": __version__,
        },
    )
    write_whole(target, page.encode())
    return target


def _link(run: ListedRun, base: Path) -> str:
    """Relative URL of the report of a run; empty without one."""
    report = run.directory.report
    return quote(Path(os.path.relpath(report, base)).as_posix()) if report.is_file() else ""


def remove_old_runs(settings: Settings, directory: RunDirectory) -> tuple[str, ...]:
    """Remove finished runs of the same pipeline except the last [output] keep.

    Notes
    -----
    These stay too: the run that the next one would start from, those that an unfinished run started
    from, those that another driver holds, and directories with other files.
    """
    table = settings.output
    if table.keep is None or table.root is None:
        return ()
    root = Path(table.root)
    for aside in root.glob(f".{glob.escape(settings.name)}-*.old"):  # after a kill
        if _is_aside(aside, settings.name):
            shutil.rmtree(aside)
    found = previous_runs(settings, directory)
    runs = [run for run in found if not run.directory.path.is_symlink()]
    needed = _started_from(root)
    record = directory.read_record()
    last = last_comparable([PreviousRun(directory, record), *runs], settings)
    if last is not None:
        needed.add(last.name)
    old = [run for run in runs[table.keep - 1 :] if run.name not in needed]
    return tuple(run.name for run in old if _removed(run.directory))


def _started_from(root: Path) -> set[str]:
    """Return the names of the runs that unfinished runs started from."""
    names = set()
    for path in root.iterdir():
        with contextlib.suppress(DataError, OSError):
            record = RunDirectory(path).read_record()
            if record.state != "finished" and record.started_from:
                names.add(record.started_from)
    return names


def _is_aside(path: Path, name: str) -> bool:
    """Return whether `_removed` gave it that name and it holds no other files."""
    made = rf"\.{re.escape(name)}-[0-9a-f]{{{NAME_DIGITS}}}\.[0-9a-f]{{8}}\.old"
    if not re.fullmatch(made, path.name) or path.is_symlink():
        return False
    return path.is_dir() and RunDirectory(path).holds_only_own()


def _removed(directory: RunDirectory) -> bool:
    path = directory.path
    if not directory.holds_only_own():
        return False
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.old")
    with contextlib.suppress(MscamError), RunLock(path):
        rename_durably(path, aside)  # no longer a run, even after a power cut
        shutil.rmtree(aside)
        return True
    return False
