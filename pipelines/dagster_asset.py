"""A pipeline as an asset of Dagster: one step that runs `mscam-dask run`, and a schedule.

    dagster dev --python-file dagster_asset.py

MSCAM_PIPELINE names the pipeline file, MSCAM_DASK the command, by default mscam-dask.

The asset is materialized after 0. After 75, which passes by itself, it is tried again six times, ten minutes apart,
and resumes; after other codes the step fails at once.
"""

from __future__ import annotations

import os
import shlex
import subprocess

import dagster as dg

TRY_AGAIN = 75
RETRIES = 6
_SECONDS_TO_END = 60  # mscam-dask writes a checkpoint when it is stopped


# No annotation of the context (no-untyped-def): Dagster reads it at run time, and here annotations are texts.
@dg.asset(name="clusters", pool="mscam_dask")
def clusters(context):  # type: ignore[no-untyped-def]
    """Clusters of the samples, in the run directory of the pipeline."""
    command = [*shlex.split(os.environ.get("MSCAM_DASK", "mscam-dask")), "run"]
    pipeline = os.environ.get("MSCAM_PIPELINE", "/etc/mscam/nightly.toml")
    with subprocess.Popen([*command, pipeline, "--plain"], stdin=subprocess.DEVNULL) as process:
        try:
            code = process.wait()
        except BaseException:  # the step was stopped
            process.terminate()
            process.wait(_SECONDS_TO_END)
            raise
    if code == 0:
        return dg.MaterializeResult(metadata={"pipeline": pipeline})
    if code == TRY_AGAIN:
        seconds = float(os.environ.get("MSCAM_RETRY_SECONDS", "600"))
        raise dg.RetryRequested(max_retries=RETRIES, seconds_to_wait=seconds)
    context.log.error("mscam-dask ended with exit code %d; see its lines above", code)
    raise dg.Failure(f"mscam-dask ended with exit code {code}", allow_retries=False)


nightly = dg.ScheduleDefinition(
    name="nightly",
    job=dg.define_asset_job("mscam_dask", selection=[clusters]),
    cron_schedule="30 2 * * *",
    execution_timezone="UTC",
)

defs = dg.Definitions(assets=[clusters], schedules=[nightly])
