"""A pipeline as a DAG of Airflow 3: one task that runs `mscam-dask run` every night.

Put this file into the folder of DAGs. MSCAM_PIPELINE, an Airflow variable or a variable of the
environment, names the pipeline file; MSCAM_DASK the command, by default mscam-dask.

The task succeeds after 0. After 75, which passes by itself, it is tried again six times, ten minutes apart, and resumes; after other codes it
fails at once. A task that is stopped tells mscam-dask to stop, which keeps its checkpoints.
"""

from __future__ import annotations

import datetime as dt
import os
import shlex
import subprocess

from airflow.sdk import Variable, dag, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException

TRY_AGAIN = 75
_SECONDS_TO_END = 60  # mscam-dask writes a checkpoint when it is stopped


def _setting(name: str, default: str) -> str:
    return os.environ.get(name) or Variable.get(name, default=default)


@dag(
    dag_id="mscam_dask",
    schedule="30 2 * * *",
    start_date=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    catchup=False,
    max_active_runs=1,  # the lock of the run directory would refuse another with 75
)
def mscam_dask() -> None:
    """Cluster every night."""

    @task(
        retries=6, retry_delay=dt.timedelta(seconds=float(_setting("MSCAM_RETRY_SECONDS", "600")))
    )
    def run() -> None:
        """Run the pipeline: nothing when it was done, the rest when it was cut off."""
        command = [*shlex.split(_setting("MSCAM_DASK", "mscam-dask")), "run"]
        pipeline = _setting("MSCAM_PIPELINE", "/etc/mscam/nightly.toml")
        with subprocess.Popen([*command, pipeline, "--plain"], stdin=subprocess.DEVNULL) as process:
            try:
                code = process.wait()
            except BaseException:  # the task was stopped
                process.terminate()
                process.wait(_SECONDS_TO_END)
                raise
        if code == TRY_AGAIN:
            raise AirflowException("mscam-dask ended with 75: it is tried again, and resumes")
        if code != 0:
            raise AirflowFailException(
                f"mscam-dask ended with exit code {code}; see its lines above"
            )

    run()


mscam_dask()
