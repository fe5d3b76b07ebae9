"""Retention: removal of old run directories that no run needs."""

from __future__ import annotations

import contextlib
import re
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from mscam_dask.data.store.filesystem import LOCAL, rename_durably
from mscam_dask.errors import DataError, MscamError
from mscam_dask.monitor.events import Event, StepFinished, StepStarted
from mscam_dask.pipeline.config.settings import Settings
from mscam_dask.pipeline.run.fingerprints import NAME_DIGITS
from mscam_dask.pipeline.run.lock import RunLock
from mscam_dask.pipeline.run.previous_runs import (
    PreviousRun,
    glob_escaped,
    last_comparable,
    previous_runs,
)
from mscam_dask.pipeline.run.run_directory import RunDirectory

__all__ = ["remove_old_runs", "retain_step"]


def retain_step(settings: Settings, directory: RunDirectory, tell: Callable[[Event], None]) -> None:
    """Remove old runs as the last step of a run; a failure is only noted."""
    started = time.perf_counter()
    tell(StepStarted(step="retain"))
    notes: tuple[str, ...] = ()
    try:
        removed = remove_old_runs(settings, directory)
        summary = f"removed {', '.join(removed)}" if removed else "nothing to remove"
    except (MscamError, OSError) as error:
        summary = "could not remove all old runs"
        notes = (f"The results are complete, but old runs could not be removed: {error}",)
    seconds = time.perf_counter() - started
    tell(StepFinished(step="retain", summary=summary, notes=notes, seconds=seconds))


def remove_old_runs(settings: Settings, directory: RunDirectory) -> tuple[str, ...]:
    """Remove finished runs of the same pipeline except the last [output] keep.

    Parameters
    ----------
    settings
        With [output] root and keep.
    directory
        Directory of the run that has just finished, which stays.

    Returns
    -------
    tuple of str
        Names of the removed runs.

    Notes
    -----
    These stay too: the run that the next one would start from, those that an unfinished run started
    from, those that another driver holds, and directories with other files.
    """
    table = settings.output
    if table.keep is None or table.root is None:
        return ()
    root = Path(table.root)
    for aside in root.glob(f".{glob_escaped(settings.name)}-*.old"):  # after a kill
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
        rename_durably(LOCAL, path, aside)  # no longer a run, even after a power cut
        shutil.rmtree(aside)
        return True
    return False
