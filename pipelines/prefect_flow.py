"""A pipeline on a schedule of Prefect 3: `pip install '.[prefect]'` from a clone.

    python prefect_flow.py PIPELINE.toml [--set TABLE.KEY=VALUE]... [--cron "30 2 * * *"]

serves one deployment until it is stopped; deploy/prefect/README.md tells how to start the server, see
that it works, and stop. Each run of the flow is `mscam-dask run` in a process of its own, so it ends,
resumes and takes over as it does from cron. Credentials come from the environment of this program
and are neither parameters, which Prefect's server keeps, nor in what is logged.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_markdown_artifact
from prefect.client.schemas.objects import State, TaskRun
from prefect.schedules import Cron, Interval

from mscam_dask.errors import MscamError, without_credentials
from mscam_dask.monitor.run_record import RunRecord
from mscam_dask.pipeline.read_config import read_config
from mscam_dask.pipeline.resume import resolve_target
from mscam_dask.pipeline.run_directory import RunDirectory
from mscam_dask.pipeline.toml_document import environment_overrides, parse_override

TRY_AGAIN = 75

_SECONDS_TO_END = 60  # mscam-dask writes a checkpoint when it is stopped


class RunFailed(Exception):
    """mscam-dask ended with an exit code that the same start would end with again."""


class TryAgain(Exception):
    """mscam-dask ended with 75: the lock is held, the disk is full, workers were lost, it was stopped."""


def _passes(_task: Any, _task_run: TaskRun, state: State[Any]) -> bool:
    """Return whether a failure may be gone the next time."""
    try:
        state.result()
    except TryAgain:
        return True
    except Exception:  # noqa: BLE001 - whatever else it was, Prefect reports it
        return False
    return False


@task(name="plan")
def plan(pipeline: str, assignments: list[str]) -> str:
    """Say what the run will do; the place where it belongs. Mistakes in the file end here."""
    _mscam_dask("run", pipeline, *_options(assignments), "--dry-run")
    return str(_place(pipeline, assignments))


@task(name="run", retry_condition_fn=_passes)
def run(pipeline: str, assignments: list[str]) -> None:
    """Run the pipeline: nothing when it was done, the rest when it was cut off."""
    _mscam_dask("run", pipeline, *_options(assignments), "--plain")


@task(name="summary")
def summary(pipeline: str, assignments: list[str], planned: str) -> dict[str, Any]:
    """Show clusters and drift as an artifact of the flow run; the same numbers, for other flows."""
    places = [Path(planned), _place(pipeline, assignments)]  # two where data arrived meanwhile
    directory, record = next(_finished(places), (None, None))
    if directory is None or record is None or record.fit is None:
        raise RunFailed(f"No finished run is at {' or '.join(map(str, dict.fromkeys(places)))}.")
    drift = record.drift
    numbers = {
        "run_directory": str(directory),
        "exit_code": record.exit_code,
        "n_clusters": record.fit.n_connected_components,
        "cluster_names": list(record.fit.sizes),
        "cluster_sizes": list(record.fit.sizes.values()),
        "n_new": None if drift is None else drift.n_new,
        "n_moved": None if drift is None else drift.n_moved,
        "start": "first" if drift is None else drift.start,
        "metrics": record.metrics,
    }
    lines = [f"| {key.replace('_', ' ')} | {value} |" for key, value in numbers.items()]
    create_markdown_artifact(
        key="mscam-dask-run",
        markdown="\n".join(["| | |", "|---|---|", *lines]),
        description=f"Run of {record.pipeline}, ended {record.ended}",
    )
    return numbers


@flow(name="mscam-dask")
def pipeline_flow(
    pipeline: str,
    assignments: list[str] | None = None,
    retries: int = 6,
    retry_seconds: float = 600,
) -> dict[str, Any]:
    """One run of a pipeline file.

    Parameters
    ----------
    pipeline
        Path of the TOML file, absolute.
    assignments
        As of `--set`: "cluster.n_clusters=12".
    retries, retry_seconds
        After exit code 75 only.
    """
    assignments = _without_secrets(assignments or [])
    planned = plan(pipeline, assignments)
    again = run.with_options(retries=retries, retry_delay_seconds=retry_seconds)
    again(pipeline, assignments)
    return summary(pipeline, assignments, planned)


def _mscam_dask(*arguments: str) -> None:
    """Run the command, its lines into the log; raise an error where it fails."""
    logger = get_run_logger()
    named = os.environ.get("MSCAM_DASK")
    command = shlex.split(named) if named else [sys.executable, "-m", "mscam_dask.cli"]
    last = ""
    with subprocess.Popen(
        [*command, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                text = without_credentials(line.rstrip(), os.environ)
                last = text or last
                logger.info("%s", text)
            code = process.wait()
        except BaseException:  # the flow run was cancelled: mscam-dask keeps what it has
            _stop(process)
            raise
    if code != 0:
        what = f"mscam-dask {arguments[0]} ended with exit code {code}: {last}"
        raise TryAgain(what) if code == TRY_AGAIN else RunFailed(what)


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.communicate(timeout=_SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        process.kill()


def _options(assignments: Sequence[str]) -> list[str]:
    return [part for text in assignments for part in ("--set", text)]


def _place(pipeline: str, assignments: Sequence[str]) -> Path:
    overrides = environment_overrides(os.environ)
    overrides += [parse_override(text) for text in assignments]
    return resolve_target(read_config(Path(pipeline), overrides)).directory


def _finished(places: Sequence[Path]) -> Iterator[tuple[Path, RunRecord]]:
    for place in places:
        if RunDirectory(place).record.is_file():
            record = RunDirectory(place).read_record()
            if record.state == "finished":
                yield place, record


def _without_secrets(assignments: Sequence[str]) -> list[str]:
    for text in assignments:
        if without_credentials(text, os.environ) != text:
            key = text.partition("=")[0]
            raise ValueError(
                f"--set {key} carries a credential, and Prefect's server keeps and shows parameters. "
                "Put it where its library looks for it: the environment of this program "
                "(AWS_SECRET_ACCESS_KEY, ...) or a file of your own."
            )
    return list(assignments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve a pipeline on its schedule, until stopped."""
    parser = argparse.ArgumentParser(
        prog="prefect_flow.py", description="Run a pipeline file on a schedule of Prefect."
    )
    parser.add_argument("pipeline", type=Path, help="TOML file, as of mscam-dask run")
    parser.add_argument(
        "--set", action="append", default=[], dest="assignments", metavar="TABLE.KEY=VALUE",
        help="as of mscam-dask run; may be given more than once",
    )  # fmt: skip
    parser.add_argument("--name", help="of the deployment; by default the file's without .toml")
    schedule = parser.add_mutually_exclusive_group()
    schedule.add_argument("--cron", default="30 2 * * *", help="default: %(default)s")
    schedule.add_argument("--every", type=float, metavar="SECONDS", help="instead of --cron")
    parser.add_argument("--timezone", help="of --cron, such as Europe/Berlin; default UTC")
    parser.add_argument("--retries", type=int, default=6, help="after 75; default: %(default)s")
    parser.add_argument(
        "--retry-seconds", type=float, default=600, help="between them; default: %(default)s"
    )
    options = parser.parse_args(arguments)
    pipeline = options.pipeline.absolute()
    try:
        assignments = _without_secrets(options.assignments)
        overrides = [parse_override(text) for text in assignments]
        read_config(pipeline, environment_overrides(os.environ) + overrides)
        when = (
            Cron(options.cron, timezone=options.timezone or "UTC")
            if options.every is None
            else Interval(options.every)
        )
    except (MscamError, ValueError) as error:
        parser.error(str(error))
    pipeline_flow.serve(
        name=options.name or pipeline.stem,
        schedule=when,
        limit=1,  # never two at a time; the lock of the run directory would refuse it too
        parameters={
            "pipeline": str(pipeline),
            "assignments": assignments,
            "retries": options.retries,
            "retry_seconds": options.retry_seconds,
        },
    )


if __name__ == "__main__":
    main()
