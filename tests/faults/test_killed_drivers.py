"""A driver that is killed at a random moment or stopped: the resumed run gives the same bits."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mscam_dask.pipeline.resume import resume_run
from tests.faults.kill_driver import outcome_of, write_pipeline
from tests.processes import wait_until

pytestmark = pytest.mark.faults

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param("--runs 3", marks=[pytest.mark.thorough, pytest.mark.timeout(600)]),
        pytest.param("--runs 50 --seed 1", marks=[pytest.mark.slow, pytest.mark.timeout(3600)]),
        pytest.param(
            "--runs 5 --seed 2 --workers 2", marks=[pytest.mark.slow, pytest.mark.timeout(3600)]
        ),
    ],
)
def test_runs_killed_at_random_moments_end_with_the_same_bits(arguments: str) -> None:
    command = [sys.executable, "-m", "tests.faults.kill_driver", *arguments.split()]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    n_runs = arguments.split()[1]
    assert f"{n_runs}/{n_runs} identical" in done.stdout


def iterations_in(events: Path) -> int:
    return events.read_text().count('"event":"iteration_finished"') if events.exists() else 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
@pytest.mark.thorough
def test_a_driver_that_is_stopped_leaves_a_run_that_resumes(
    number: signal.Signals, code: int, whole: Any, tmp_path: Path
) -> None:
    file = write_pipeline(tmp_path)
    root = tmp_path / "cut"
    command = [sys.executable, "-m", "mscam_dask.cli", "run", str(file), "-o", str(root), "--plain"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        wait_until(lambda: iterations_in(root / "events.jsonl") >= 2, alive=process)
        process.send_signal(number)
        rest = process.stderr.read()
        # the deadline of the package is 5 s; what is over is the end of the interpreter
        assert process.wait(timeout=10) == code
    assert f"mscam-dask resume {root}" in rest
    record = json.loads((root / "run.json").read_text())
    assert (record["state"], record["exit_code"]) == ("interrupted", code)
    assert number.name in record["error"]["message"]
    outcome = resume_run(root)
    assert outcome.record.resumed[0].after_iteration >= 2
    assert outcome_of(root) == whole
