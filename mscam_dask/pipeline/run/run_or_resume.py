"""Running a pipeline so that it is safe to run twice.

A run is named after a digest of its settings and data. What is there under that name, finished and
whole, is the answer; what was cut off or lost its results is gone on with; anything else is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.pipeline.config.settings import Settings
from mscam_dask.pipeline.run.fingerprints import NAME_DIGITS, run_fingerprint
from mscam_dask.pipeline.run.open_data import settled
from mscam_dask.pipeline.run.previous_runs import PreviousRun
from mscam_dask.pipeline.run.resume import resume_run
from mscam_dask.pipeline.run.run import RunOutcome, run_pipeline
from mscam_dask.pipeline.run.run_directory import RunDirectory
from mscam_dask.pipeline.run.running import Observer

__all__ = ["RunTarget", "resolve_target", "run_or_resume"]

Action = Literal["run", "resume", "nothing"]


@dataclass(frozen=True)
class RunTarget:
    """Where a run belongs, and what is to be done there.

    Attributes
    ----------
    directory
        Run directory.
    run_fingerprint
        `mscam_dask.pipeline.run.fingerprints.run_fingerprint`.
    settings
        With the place filled in.
    action
        "run": nothing of this run is there; "resume": it was begun, or its results are gone or
        damaged; "nothing": it has finished.
    """

    directory: Path
    run_fingerprint: str
    settings: Settings
    action: Action


def resolve_target(
    settings: Settings, output: Path | None = None, *, verify: bool = True
) -> RunTarget:
    """Say where a run belongs and whether it was done before.

    Parameters
    ----------
    settings
    output
        Run directory given on the command line; it wins over [output].
    verify
        Whether the results of a finished run are read; `resume_run` does so by itself.

    Raises
    ------
    ConfigurationError
        When one directory is named for runs of which each starts from the one before.
    DataError
        When a source is missing or cannot be read.
    """
    table = settings.output
    named = output or (None if table.directory is None else Path(table.directory))
    if named is not None and settings.incremental.enabled:
        raise ConfigurationError(
            f"{'[output] directory' if output is None else '-o'} names a single run directory, "
            f"{named}, and with [incremental] a run starts from the one before it, which lies beside "
            "it. Leave it out: runs are named by themselves below [output] root (--set "
            "output.root=DIR). Or say --set incremental.enabled=false to start afresh every time."
        )
    identity = settled(lambda: run_fingerprint(settings))
    if named is not None:
        directory = named.absolute()
        table = msgspec.structs.replace(table, directory=str(directory), root=None)
    else:
        root = Path.cwd() / "runs" if table.root is None else Path(table.root)
        directory = root.absolute() / f"{settings.name}-{identity[:NAME_DIGITS]}"
        table = msgspec.structs.replace(table, root=str(root.absolute()))
    placed = msgspec.structs.replace(settings, output=table)
    return RunTarget(
        directory, identity, placed, _action(RunDirectory(directory), identity, verify=verify)
    )


def _action(directory: RunDirectory, identity: str, *, verify: bool) -> Action:
    try:
        record = directory.read_record()
    except DataError:
        return "run"  # nothing there, or nothing that can be read: run_pipeline says what
    if record.run_fingerprint != identity:
        return "run"
    if record.state != "finished" or (verify and PreviousRun(directory, record).damage()):
        return "resume"
    return "nothing"


def run_or_resume(
    settings: Settings,
    output: Path | None = None,
    *,
    overwrite: bool = False,
    insecure: bool = False,
    observers: Sequence[Observer] = (),
) -> RunOutcome:
    """Do what a pipeline says, unless it was done; go on with what was cut off.

    Parameters
    ----------
    settings
        From `mscam_dask.pipeline.config.read_config.read_config`.
    output
        Run directory; by default named after the run's digest in the root of [output].
    overwrite
        Run in any case, replacing what is there.
    insecure, observers
        See `mscam_dask.pipeline.run.run.run_pipeline`.

    Returns
    -------
    RunOutcome
        With ``resumed=False`` when there was nothing to do.

    Raises
    ------
    MscamError
        As `run_pipeline` and `resume_run`.
    """
    place = resolve_target(settings, output, verify=False)
    if place.action == "run" or overwrite:
        return run_pipeline(
            place.settings,
            place.directory,
            run_fingerprint=place.run_fingerprint,
            overwrite=overwrite,
            insecure=insecure,
            observers=observers,
        )
    return resume_run(
        place.directory,
        execution=settings.execution,
        output=place.settings.output,
        insecure=insecure,
        observers=observers,
    )
