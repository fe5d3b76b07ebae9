"""pipelines/nightly.toml started by a timer, on a store that grows in between.

The timer is a shell's loop over deploy/cron/mscam-nightly, as cron starts it: every second, with its
lock and log, whatever the last start ended with.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mscam_dask.data.datasets import digits_views
from tests.deploy.files import DEPLOY, ROOT, run, script_environment

N_FIRST, N_NEW = 600, 6

# Each start says its process before it becomes mscam-dask, so that it can be killed.
COMMAND = f'#!/bin/bash\necho "$$" >"$PID"\nexec {sys.executable} -m mscam_dask.cli "$@"\n'
TIMER = 'while sleep 1; do code=0; "$@" >/dev/null || code=$?; echo "$code" >>"$CODES"; done'


def write_digits(directory: Path) -> None:
    """first.npz with N_FIRST digits, new.npz with N_NEW others."""
    digits = digits_views(["pixels", "zernike"])
    rows = np.random.default_rng(0).permutation(digits.n_samples)[: N_FIRST + N_NEW]
    views = {view.name: view.read(0, digits.n_samples)[rows] for view in digits.views}
    labels = np.asarray(digits.labels)[rows]
    for name, part in (("first", slice(0, N_FIRST)), ("new", slice(N_FIRST, None))):
        parts = {view: values[part] for view, values in views.items()}
        np.savez(directory / name, allow_pickle=False, labels=labels[part], **parts)


class Timer:
    """Files that the timer's starts left in a directory."""

    def __init__(self, directory: Path, process: subprocess.Popen[str]) -> None:
        self.directory = directory
        self.process = process

    def codes(self) -> list[int]:
        """How each start ended."""
        file = self.directory / "codes"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def records(self) -> list[dict[str, Any]]:
        """Records of all runs, oldest first."""
        files = self.directory.glob("runs/nightly-*/run.json")
        found = [json.loads(file.read_text()) | {"where": file.parent} for file in files]
        return sorted(found, key=lambda record: str(record["started"]))

    def wait_for(self, what: str, happened: Callable[[], Any], seconds: float = 150) -> Any:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self.process.poll() is None
            if found := happened():
                return found
            time.sleep(0.01)
        log = self.directory / "mscam/nightly.log"
        raise AssertionError(f"no {what} within {seconds} s:\n{log.read_text()[-4000:]}")

    def kill_once_it_iterates(self) -> None:
        """SIGKILL the run that goes on, after its second outer iteration."""

        def iterates() -> bool:
            events = list(self.directory.glob("runs/nightly-*/events.jsonl"))
            return bool(events) and events[-1].read_text().count('"iteration_finished"') >= 2

        self.wait_for("outer iteration", iterates)
        os.kill(int((self.directory / "pid").read_text()), signal.SIGKILL)
        self.wait_for("end of what was killed", lambda: 128 + signal.SIGKILL in self.codes())

    def finished(self, n_runs: int) -> list[dict[str, Any]]:
        """Wait for a number of runs, the last of them finished and found finished by a further start."""

        def settled() -> bool:
            records = self.records()
            states = [record["state"] for record in records]
            return len(states) >= n_runs and set(states) == {"finished"}

        self.wait_for(f"finished run {n_runs}", settled)
        n_codes = len(self.codes())
        self.wait_for("further start", lambda: len(self.codes()) >= n_codes + 2)
        return self.records()


@pytest.fixture
def timer(tmp_path: Path) -> Iterator[Timer]:
    if shutil.which("flock") is None:
        pytest.skip("flock is not installed (util-linux)")
    write_digits(tmp_path)
    ingest = run(
        sys.executable, "-m", "mscam_dask.cli", "ingest", tmp_path / "first.npz",
        "-o", tmp_path / "data.zarr", env=script_environment(),
    )  # fmt: skip
    assert ingest.returncode == 0, ingest.stderr
    program = tmp_path / "mscam-dask"
    program.write_text(COMMAND)
    program.chmod(0o755)
    env = script_environment(
        XDG_STATE_HOME=str(tmp_path),
        MSCAM_DASK=str(program),
        PID=str(tmp_path / "pid"),
        CODES=str(tmp_path / "codes"),
        MSCAM_DATA__SOURCE=str(tmp_path / "data.zarr"),
        MSCAM_OUTPUT__ROOT=str(tmp_path / "runs"),
    )
    nightly = [str(DEPLOY / "cron/mscam-nightly"), str(ROOT / "pipelines/nightly.toml")]
    with subprocess.Popen(
        ["bash", "-c", TIMER, "timer", *nightly, "--in-process"],
        env=env,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield Timer(tmp_path, process)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def setting_of(record: dict[str, Any]) -> dict[str, Any]:
    """The setting of a run's fit, without how clearly it was chosen."""
    setting = dict(record["fit"]["setting"])
    setting["views"] = {
        view: (chosen["scale"], chosen["alpha"]) for view, chosen in setting["views"].items()
    }
    return setting


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_nightly_runs_are_resumed_and_follow_the_store(timer: Timer) -> None:
    timer.kill_once_it_iterates()
    (cold,) = timer.finished(1)
    assert cold["resumed"][0]["after_iteration"] >= 1, "what was killed half-way goes on"
    assert (cold["drift"], sum(cold["fit"]["cluster_sizes"])) == (None, N_FIRST)

    append = (
        sys.executable, "-m", "mscam_dask.cli", "ingest", timer.directory / "new.npz",
        "--append", "-o", timer.directory / "data.zarr",
    )  # fmt: skip
    lock = timer.directory / "mscam/nightly.lock"  # not while a run reads the store
    grown = run("flock", lock, *append, env=script_environment(), timeout=120)
    assert grown.returncode == 0, grown.stderr
    same, warm = timer.finished(2)
    assert same == cold, "a finished run is left alone"
    drift = warm["drift"]
    assert (drift["start"], drift["earlier"]) == ("warm", cold["where"].name)
    assert (drift["n_common"], drift["n_new"], drift["n_gone"]) == (N_FIRST, N_NEW, 0)
    assert drift["sizes_before"] == cold["fit"]["cluster_sizes"]
    assert setting_of(warm) == setting_of(cold), "taken over, not chosen again"
    assert warm["fit"]["n_outer_iterations"] < cold["fit"]["n_outer_iterations"]

    before, after = (
        np.loadtxt(record["where"] / "labels.csv", delimiter=",", skiprows=1, usecols=1, dtype=int)
        for record in (cold, warm)
    )
    n_moved = np.count_nonzero(before != after[:N_FIRST])
    assert n_moved == drift["n_moved"]
    assert n_moved < 0.05 * N_FIRST, "cluster 3 is still cluster 3"
    page = (warm["where"] / "report.html").read_text()
    assert 'id="drift"' in page
    assert 'href="moved.csv"' in page
    assert 'id="drift"' not in (cold["where"] / "report.html").read_text()
    assert set(timer.codes()) <= {0, 5, 75, 128 + signal.SIGKILL}
