"""pipelines/nightly.toml started by a timer, on a store that grows in between.

The timer is a shell's loop over deploy/cron/mscam-nightly, as cron starts it: every second, with its
lock and log, whatever the last start ended with.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mscam_dask.data.datasets import digits_views
from tests.deploy.files import DEPLOY, ROOT, run, script_environment, write_program
from tests.processes import mscam, needed, started, text_of, wait_until

N_FIRST, N_NEW = 600, 6

# Each start says its process before it becomes mscam-dask, so that it can be killed.
COMMAND = f'#!/bin/bash\necho "$$" >"$PID"\nexec {sys.executable} -m mscam_dask.cli "$@"\n'
TIMER = 'while sleep 1; do code=0; "$@" >/dev/null || code=$?; echo "$code" >>"$CODES"; done'


def write_digits(directory: Path) -> None:
    """first.npz with N_FIRST digits, new.npz with N_NEW others."""
    digits = digits_views(["pixels", "zernike"])
    rows = np.random.default_rng(0).permutation(digits.n_samples)[: N_FIRST + N_NEW]
    arrays: dict[str, Any] = {
        view.name: view.read(0, digits.n_samples)[rows] for view in digits.views
    }
    arrays["labels"] = np.asarray(digits.labels)[rows]
    for name, part in (("first", slice(0, N_FIRST)), ("new", slice(N_FIRST, None))):
        parts = {key: values[part] for key, values in arrays.items()}
        np.savez(directory / name, allow_pickle=False, **parts)


def ingest(*arguments: str | Path) -> None:
    done = run(*arguments, env=script_environment(), timeout=120)
    assert done.returncode == 0, done.stderr


def records(home: Path) -> list[dict[str, Any]]:
    """Records of all runs, oldest first."""
    found = [
        json.loads(file.read_text()) | {"where": file.parent}
        for file in home.glob("runs/nightly-*/run.json")
    ]
    return sorted(found, key=lambda record: str(record["started"]))


def codes(home: Path) -> list[int]:
    """How each start ended."""
    return [int(line) for line in text_of(home / "codes").split()]


def finished(home: Path, n_runs: int) -> list[dict[str, Any]]:
    """Wait for a number of runs, the last of them finished and found finished by a further start."""
    log = home / "mscam/nightly.log"
    wait_until(
        lambda: [record["state"] for record in records(home)] == ["finished"] * n_runs,
        log, seconds=150,
    )  # fmt: skip
    n_codes = len(codes(home))
    wait_until(lambda: len(codes(home)) >= n_codes + 2, log)
    return records(home)


def setting_of(record: dict[str, Any]) -> dict[str, Any]:
    """The setting of a run's fit, without how clearly it was chosen; a warm start has no initial graph."""
    setting = {**record["fit"]["setting"], "initial_graph": None}
    views = setting["views"].items()
    setting["views"] = {view: (chosen["scale"], chosen["alpha"]) for view, chosen in views}
    return setting


def labels(record: dict[str, Any]) -> Any:
    file = record["where"] / "labels.csv"
    return np.loadtxt(file, delimiter=",", skiprows=1, usecols=1, dtype=int)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_nightly_runs_are_resumed_and_follow_the_store(tmp_path: Path) -> None:
    needed("flock", package="util-linux")
    write_digits(tmp_path)
    store, log = tmp_path / "data.zarr", tmp_path / "mscam/nightly.log"
    ingest(*mscam("ingest", tmp_path / "first.npz", "-o", store))
    program = write_program(tmp_path / "mscam-dask", COMMAND)
    env = script_environment(
        XDG_STATE_HOME=str(tmp_path),
        MSCAM_DASK=str(program),
        PID=str(tmp_path / "pid"),
        CODES=str(tmp_path / "codes"),
        MSCAM_DATA__SOURCE=str(store),
        MSCAM_OUTPUT__ROOT=str(tmp_path / "runs"),
    )
    nightly = (DEPLOY / "cron/mscam-nightly", ROOT / "pipelines/nightly.toml", "--in-process")
    with started("bash", "-c", TIMER, "timer", *nightly, log=tmp_path / "timer.log", env=env):

        def iterates() -> bool:
            events = list(tmp_path.glob("runs/nightly-*/events.jsonl"))
            return bool(events) and text_of(events[-1]).count('"iteration_finished"') >= 2

        wait_until(iterates, log)
        os.kill(int(text_of(tmp_path / "pid")), signal.SIGKILL)
        wait_until(lambda: 128 + signal.SIGKILL in codes(tmp_path), log)
        (cold,) = finished(tmp_path, 1)
        assert cold["resumed"][0]["after_iteration"] >= 1, "what was killed half-way goes on"
        assert (cold["drift"], sum(cold["fit"]["cluster_sizes"])) == (None, N_FIRST)

        lock = tmp_path / "mscam/nightly.lock"  # not while a run reads the store
        ingest("flock", lock, *mscam("ingest", tmp_path / "new.npz", "--append", "-o", store))
        same, warm = finished(tmp_path, 2)
    assert same == cold, "a finished run is left alone"
    drift = warm["drift"]
    assert (drift["start"], drift["earlier"]) == ("warm", cold["where"].name)
    assert (drift["n_common"], drift["n_new"], drift["n_gone"]) == (N_FIRST, N_NEW, 0)
    assert drift["sizes_before"] == cold["fit"]["cluster_sizes"]
    assert setting_of(warm) == setting_of(cold), "taken over, not chosen again"
    assert warm["fit"]["n_outer_iterations"] < cold["fit"]["n_outer_iterations"]
    n_moved = np.count_nonzero(labels(cold) != labels(warm)[:N_FIRST])
    assert n_moved == drift["n_moved"]
    assert n_moved < 0.05 * N_FIRST, "cluster 3 is still cluster 3"
    page = text_of(warm["where"] / "report.html")
    assert 'id="drift"' in page
    assert 'href="moved.csv"' in page
    assert 'id="drift"' not in text_of(cold["where"] / "report.html")
    assert set(codes(tmp_path)) <= {0, 75, 128 + signal.SIGKILL}
