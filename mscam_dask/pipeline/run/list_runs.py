"""Runs in a directory: listed, filtered, compared, as an index page, and removed when they are old."""

from __future__ import annotations

import datetime as dt
import fnmatch
import re
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from mscam_dask import __version__
from mscam_dask.data.store.filesystem import rename_durably
from mscam_dask.errors import ConfigurationError, DataError, MscamError
from mscam_dask.metrics import adjusted_rand_index
from mscam_dask.monitor.report.page import render
from mscam_dask.monitor.run_record import RunRecord
from mscam_dask.pipeline.config.settings import Settings
from mscam_dask.pipeline.run.lock import RunLock
from mscam_dask.pipeline.run.open_data import NAME_DIGITS
from mscam_dask.pipeline.run.previous_runs import last_comparable
from mscam_dask.pipeline.run.run_directory import RunDirectory, relative_url, write_whole
from mscam_dask.pipeline.run.stored_run import StoredRun, flat, scan, siblings_of

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
        "pipeline/run/runs.html.j2",
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
        with RunLock(path):
            rename_durably(path, aside)  # no longer a run, even after a power cut
    except MscamError:
        return False
    shutil.rmtree(aside)  # without its lock, which NFS would keep in it
    return True
