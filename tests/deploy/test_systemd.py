"""Unit files, checked by systemd itself where it is installed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from mscam_dask.errors import (
    ClusterError,
    ConfigurationError,
    DataError,
    NoWorkersError,
    SchedulerLostError,
    TemporaryFailure,
)
from mscam_dask.pipeline.run import EXIT_DRIFT
from tests.deploy.files import DEPLOY, run

UNITS = DEPLOY / "systemd"
EXPOSED = 15
"""Tenths of systemd's exposure level, 0 (sealed) to 100, that the service stays below."""

pytestmark = pytest.mark.skipif(
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


def test_systemd_accepts_service_and_timer(units: Path) -> None:
    result = run("systemd-analyze", "verify", "--man=no", *sorted(units.glob("mscam-nightly.*")))
    said = (result.stdout + result.stderr).splitlines()
    assert (result.returncode, [line for line in said if "mscam" in line]) == (0, [])


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
