"""Run a pipeline in a directory of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from mscam_dask.monitor.events import JsonLines
from mscam_dask.pipeline.config.settings import Settings, settings_text
from mscam_dask.pipeline.config.validate import check_execution
from mscam_dask.pipeline.run.graceful_shutdown import GracefulShutdown
from mscam_dask.pipeline.run.open_data import OpenData, check_sources_outside
from mscam_dask.pipeline.run.run_directory import RunDirectory
from mscam_dask.pipeline.run.run_record import RunRecord
from mscam_dask.pipeline.run.running import Observer, Run, now
from mscam_dask.pipeline.run.versions import blas_libraries, software_versions

__all__ = ["RunOutcome", "execute", "run_pipeline"]


@dataclass(frozen=True)
class RunOutcome:
    """A run that ended with results.

    Attributes
    ----------
    directory
    record
        As in its run.json.
    resumed
        False when there was nothing to resume, the run having finished before.
    """

    directory: RunDirectory
    record: RunRecord
    resumed: bool = True


def run_pipeline(
    settings: Settings,
    output: str | Path,
    *,
    run_fingerprint: str | None = None,
    overwrite: bool = False,
    insecure: bool = False,
    observers: Sequence[Observer] = (),
) -> RunOutcome:
    """Do what a pipeline says, in a run directory.

    Parameters
    ----------
    settings
        From `mscam_dask.pipeline.config.read_config.read_config`.
    output
        The run directory: missing, empty, or (with `overwrite`) of an earlier run.
    run_fingerprint
        `mscam_dask.pipeline.run.fingerprints.run_fingerprint`, for the record.
    overwrite
        Replace the files of an earlier run.
    insecure
        Allow a scheduler on another computer without encryption.
    observers
        Called with each event, in order.

    Returns
    -------
    RunOutcome

    Raises
    ------
    MscamError
        Of any kind; run.json then says so too, unless the directory could not be claimed.
        `TemporaryFailure` after SIGTERM: `mscam_dask.pipeline.run.resume.resume_run` continues.
    KeyboardInterrupt
        After Ctrl-C; the run can be resumed too.
    """
    check_execution(settings.execution, insecure=insecure)
    check_sources_outside(settings.data, Path(output).absolute())
    seed = settings.cluster.parameters.get("random_state")
    record = RunRecord(
        state="running",
        pipeline=settings.name,
        method=settings.cluster.method,
        seed=seed if isinstance(seed, int) else None,
        started=now(),
        versions=software_versions(),
        blas=blas_libraries(),
        settings=msgspec.to_builtins(settings),
        run_fingerprint=run_fingerprint,
    )
    with RunDirectory.hold(output) as directory:
        directory.claim(record, overwrite=overwrite)
        directory.write(directory.pipeline, settings_text(settings).encode())
        return execute(settings, directory, record, observers=observers, fresh=overwrite)


def execute(
    settings: Settings,
    directory: RunDirectory,
    record: RunRecord,
    *,
    observers: Sequence[Observer],
    opened: OpenData | None = None,
    fresh: bool = False,
) -> RunOutcome:
    """Take every step that is still to be taken, in a directory that the caller holds.

    Parameters
    ----------
    settings, directory, record
        The record was just written there.
    observers
        Called with each event, in order.
    opened
        Data of an earlier start, verified; they are ingested without.
    fresh
        Remove checkpoints of the same fit that another run directory left.
    """
    with directory.append_events() as stream:
        run = Run(settings, directory, record, (*observers, JsonLines(stream)))
        run.fresh = fresh
        with GracefulShutdown(run.on_deadline) as interruption:
            run.interruption = interruption
            try:
                run.all_steps(opened)
            except BaseException as error:
                run.failed(error)
                if isinstance(error, KeyboardInterrupt):
                    raise run.interrupted() from error
                raise
    return RunOutcome(directory, run.record)
