"""nightly.sbatch, where programs of a few lines stand for SLURM's (test_real_slurm.py has the real ones)."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.deploy.files import DEPLOY, run, script_environment, write_program
from tests.deploy.processes import started, text_of, wait_until, write_pipeline

pytest.importorskip("dask_jobqueue")

NIGHTLY = ("bash", DEPLOY / "slurm/nightly.sbatch")

PROGRAMS = {
    "scontrol": 'echo "$*" >>"$FAKE/controlled"',
    # in the place of the interpreter of a run, where a test says so
    "python-that-ends": "exit $CODE",
    "python-that-waits": (
        "trap 'touch $FAKE/stopped; exit 75' TERM; touch $FAKE/started; while sleep 0.05; do :; done"
    ),
}


@pytest.fixture
def slurm(tmp_path: Path) -> dict[str, str]:
    """An environment with these programs first on the path."""
    for name, text in PROGRAMS.items():
        write_program(tmp_path / name, f"#!/usr/bin/env bash\n{text}\n")
    settings = (DEPLOY / "slurm/slurm.dask.yaml").read_text()
    (tmp_path / "slurm.dask.yaml").write_text(settings.replace("interface: null", "interface: lo"))
    return script_environment(
        FAKE=str(tmp_path),
        PATH=f"{tmp_path}:{os.environ['PATH']}",
        DASK_CONFIG=str(tmp_path / "slurm.dask.yaml"),
        DASK_JOBQUEUE__SLURM__SHARED_TEMP_DIRECTORY=str(tmp_path),
        DASK_JOBQUEUE__SLURM__LOG_DIRECTORY=str(tmp_path),
        MSCAM_PYTHON=sys.executable,
        MSCAM_HOME=str(tmp_path),
        MSCAM_JOBS="2",
        MSCAM_CORES="1",
        MSCAM_MEMORY="2GiB",
        SLURM_JOB_ID="7",
    )


def controlled(slurm: dict[str, str]) -> list[str]:
    return text_of(Path(slurm["FAKE"]) / "controlled").splitlines()


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_a_request_that_slurm_refuses_and_one_that_it_cannot_take_now(
    slurm: dict[str, str], tmp_path: Path
) -> None:
    write_pipeline(tmp_path)
    for reason, code in (
        ("error: Batch job submission failed: Invalid account or partition", 4),
        ("error: Unable to contact slurm controller (connect failure)", 75),
    ):
        write_program(tmp_path / "sbatch", f"#!/bin/sh\necho '{reason}' >&2\nexit 1\n")
        result = run(*NIGHTLY, env=slurm, timeout=110)
        assert result.returncode == code, result.stdout + result.stderr
        assert reason in " ".join(result.stderr.split())
    slurm["PATH"] = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    if shutil.which("sbatch", path=slurm["PATH"]) is None:
        assert run(*NIGHTLY, env=slurm).returncode == 2


@pytest.mark.parametrize(("code", "requeued"), [(0, []), (3, []), (75, ["requeue 7"])])
def test_the_batch_script_ends_as_the_run_does_and_goes_back_into_the_queue_with_75(
    slurm: dict[str, str], code: int, requeued: list[str]
) -> None:
    fake = {"MSCAM_PYTHON": "python-that-ends", "CODE": str(code)}
    assert run(*NIGHTLY, env={**slurm, **fake}).returncode == code
    assert controlled(slurm) == requeued


@pytest.mark.parametrize(
    ("number", "requeued"),
    [(signal.SIGUSR1, ["requeue 7"]), (signal.SIGTERM, [])],
    ids=["time is over", "scancel"],
)
def test_a_signal_stops_the_run_and_only_the_end_of_its_time_requeues_it(
    slurm: dict[str, str], tmp_path: Path, number: signal.Signals, requeued: list[str]
) -> None:
    log, env = tmp_path / "log", {**slurm, "MSCAM_PYTHON": "python-that-waits"}
    with started(*NIGHTLY, log=log, env=env) as batch:
        wait_until((tmp_path / "started").exists, log, alive=batch)
        batch.send_signal(number)
        assert batch.wait(30) == 75
    assert (tmp_path / "stopped").exists()
    assert controlled(slurm) == requeued


def test_the_signal_before_the_time_is_over_reaches_the_batch_script() -> None:
    for file, mark in (("nightly.sbatch", "#SBATCH"), ("mscam.scrontab", "#SCRON")):
        script = (DEPLOY / "slurm" / file).read_text()
        assert re.findall(rf"^{mark} --signal=(.*)$", script, re.M) == ["B:USR1@300"]
    text = (DEPLOY / "slurm/mscam.scrontab").read_text()
    # --signal=B: tells the first shell only, which becomes the script
    (command,) = re.findall(r"^30 2 \* \* \* (.*)$", text, re.M)
    assert re.fullmatch(r"exec env MSCAM_HOME=\S+ bash \S+/nightly.sbatch", command)
