"""An experiment that is killed resumes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import mscam_dask
from mscam_dask.benchmark.results import read_record
from tests.benchmark.conftest import Write
from tests.processes import wait_until

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(mscam_dask.__file__).parents[1])}

TEXT = """
[compare]
datasets = ['tiny.npz', 'other.npz']
methods = ['knn-sc', 'smvsc']
runs = 5
"""


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("where", [["--in-process"], ["--workers", "1"]])
def test_a_killed_experiment_computes_only_the_missing_trials(
    write: Write, here: Path, where: list[str]
) -> None:
    command = [sys.executable, "-m", "mscam_dask.cli", "compare", str(write(TEXT)), "-o", "out"]
    trials = here / "out" / "trials"
    with subprocess.Popen(
        [*command, *where], env=ENVIRONMENT, start_new_session=True, stderr=subprocess.DEVNULL
    ) as process:
        wait_until(lambda: len(list(trials.glob("*/*.json"))) >= 6, alive=process)
        os.killpg(process.pid, signal.SIGKILL)
    finished = {file: file.stat().st_mtime_ns for file in trials.glob("*/*.json")}
    assert 6 <= len(finished) < 20
    done = subprocess.run(
        [*command, *where], env=ENVIRONMENT, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    record = read_record(here / "out")
    assert record.state == "finished"
    assert record.n_reused == len(finished)
    assert len(record.trials) == 20
    assert all(row.n_failed == 0 for row in record.rows)
    assert {file: file.stat().st_mtime_ns for file in finished} == finished
