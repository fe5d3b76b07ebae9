"""The units of deploy/systemd and the crontab, on a machine that systemd has booted by its own nspawn."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.files import DEPLOY, ROOT
from tests.deploy.machines import CLUSTER_TABLE, Machine, copied, machine, marks, tree, wait_until

pytestmark = marks

UNIT = "mscam-nightly.service"
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
PIPELINE = f"""
[data]
source = "digits"
{CLUSTER_TABLE}"""


@pytest.fixture(scope="module")
def booted() -> Iterator[Machine]:
    """A machine with the package and the units installed by the commands of the page."""
    if shutil.which("systemd-nspawn") is None:
        pytest.skip("systemd-nspawn is not installed (apt-get install systemd-container)")
    made = tree(
        "systemd", "bookworm",
        ("cron", "dbus", "iproute2", "procps", "python3", "python3-venv", "systemd", "systemd-sysv"),
    )  # fmt: skip
    environment = {"PATH": PATH, "LANG": "C.UTF-8"}

    def up(started: Machine) -> bool:
        return started.attempt("systemctl", "is-system-running").stdout.strip() in (
            "running", "degraded",
        )  # fmt: skip

    with copied(made) as root:
        install(root)
        start = (
            "set -eu\nip link set lo up\nmkdir -p /run/systemd\n"
            f"exec systemd-nspawn --boot --directory={root} --machine=mscam --private-network "
            "--register=no --keep-unit --console=pipe"
        )
        with machine(start, root.parent, up, environment=environment, depth=2) as started:
            for command in commands_of_the_page():
                started.run("sh", "-c", command, cwd="/src/deploy/systemd")
            started.run("systemctl", "stop", "mscam-nightly.timer")
            yield started


def install(root: Path) -> None:
    """Make /opt/mscam from a clone at /src, while there is a network."""
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "mscam_dask", "deploy", "docs", "pyproject.toml", "README.md", "LICENSE"],
        cwd=ROOT, capture_output=True, check=True,
    ).stdout.decode()  # fmt: skip
    for name in filter(None, tracked.split("\0")):
        (root / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / "src" / name)
    shutil.copy("/etc/ssl/certs/ca-certificates.crt", root / "etc/ssl/certs")
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    make = "python3 -m venv /opt/mscam && /opt/mscam/bin/pip install --quiet /src"
    subprocess.run(["chroot", root, "sh", "-c", make], check=True, capture_output=True, timeout=600)
    (root / "etc/mscam").mkdir()
    (root / "etc/mscam/nightly.toml").write_text(PIPELINE)
    again = root / f"etc/systemd/system/{UNIT}.d/again.conf"
    again.parent.mkdir(parents=True)
    again.write_text("[Service]\nRestartSec=2s\n")  # not ten minutes


def commands_of_the_page() -> list[str]:
    """Commands under "Start" of deploy/systemd/README.md."""
    page = (DEPLOY / "systemd/README.md").read_text()
    found = re.findall(r"^    (.*)$", page.split("**Start**")[1].split("**See")[0], re.M)
    assert any("enable --now" in line for line in found)
    return found


def show(booted: Machine, *names: str) -> dict[str, str]:
    text = booted.run("systemctl", "show", f"--property={','.join(names)}", UNIT)
    return dict(line.split("=", 1) for line in text.splitlines())


def journal(booted: Machine, unit: str = UNIT) -> str:
    return booted.run("journalctl", "--no-pager", "--output=cat", f"--unit={unit}")


def started_with(booted: Machine, settings: str) -> None:
    """Start the unit with an environment file, and wait for its second iteration."""
    booted.run("sh", "-c", f"printf '{settings}\\n' >/etc/mscam/environment")
    booted.run("systemctl", "start", UNIT)
    before = journal(booted).count("iteration 2/")
    wait_until(
        lambda: journal(booted).count("iteration 2/") > before, lambda: journal(booted)[-2000:]
    )


def wait_for_the_end(booted: Machine) -> dict[str, str]:
    wait_until(
        lambda: show(booted, "ActiveState")["ActiveState"] in ("inactive", "failed"),
        lambda: journal(booted)[-2000:],
        timeout_s=300,
    )
    return show(booted, "ActiveState", "Result", "ExecMainStatus", "NRestarts")


def test_a_night_runs_under_the_restrictions_of_its_unit(booted: Machine) -> None:
    started_with(booted, "MSCAM_CLUSTER__N_CLUSTERS=9")
    (pid,) = show(booted, "MainPID").values()
    status = booted.run("cat", f"/proc/{pid}/status")
    assert re.search(r"^CapEff:\s+0+$", status, re.M)
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.M)
    assert re.search(r"^Seccomp:\s+2$", status, re.M)
    doors = booted.run("ss", "-Htln").split("\n")
    assert all(line.split()[3].startswith(("127.", "[::1]")) for line in doors if line)
    end = wait_for_the_end(booted)
    assert (end["ActiveState"], end["Result"]) == ("inactive", "success")
    assert "Results" in journal(booted)


def test_a_run_that_is_terminated_is_started_again_and_resumes(booted: Machine) -> None:
    started_with(booted, "MSCAM_CLUSTER__N_CLUSTERS=8")
    booted.run("systemctl", "kill", "--signal=TERM", "--kill-whom=main", UNIT)
    end = wait_for_the_end(booted)
    while end["NRestarts"] == "0":
        end = wait_for_the_end(booted)
    assert (end["ActiveState"], end["NRestarts"]) == ("inactive", "1")


def test_stop_leaves_no_failed_unit_and_the_next_start_resumes(booted: Machine) -> None:
    started_with(booted, "MSCAM_CLUSTER__N_CLUSTERS=7")
    booted.run("systemctl", "stop", UNIT, timeout=130)
    end = show(booted, "ActiveState", "Result", "ExecMainStatus", "NRestarts")
    assert (end["ActiveState"], end["Result"], end["ExecMainStatus"]) == (
        "inactive",
        "success",
        "75",
    )
    resumed = journal(booted).count("resume")
    booted.run("systemctl", "start", UNIT)
    assert wait_for_the_end(booted)["Result"] == "success"
    assert journal(booted).count("resume") > resumed


def test_a_bad_setting_fails_for_good_and_is_reported(booted: Machine) -> None:
    booted.run("sh", "-c", "echo MSCAM_CLUSTER__N_CLUSTERS=zero >/etc/mscam/environment")
    booted.run("systemctl", "start", UNIT)
    end = wait_for_the_end(booted)
    assert (end["Result"], end["ExecMainStatus"], end["NRestarts"]) == ("exit-code", "2", "0")
    wait_until(
        lambda: "mscam-failed" in booted.run("journalctl", "--no-pager", "--priority=err"),
        lambda: booted.run("journalctl", "--no-pager", "--lines=40"),
    )


def test_the_timer_starts_the_unit(booted: Machine) -> None:
    booted.run("systemctl", "reset-failed", UNIT)
    booted.run("sh", "-c", "echo MSCAM_CLUSTER__N_CLUSTERS=6 >/etc/mscam/environment")
    soon = "/etc/systemd/system/mscam-nightly.timer.d"
    booted.run("mkdir", "-p", soon)
    text = "[Timer]\\nOnCalendar=\\nOnCalendar=*:*:0/5\\nRandomizedDelaySec=0\\nAccuracySec=1s\\n"
    booted.run("sh", "-c", f"printf '{text}' >{soon}/soon.conf")
    booted.run("systemctl", "daemon-reload")
    booted.run("systemctl", "restart", "mscam-nightly.timer")
    wait_until(
        lambda: show(booted, "ActiveState")["ActiveState"] == "active",
        lambda: journal(booted)[-2000:],
    )
    booted.run("systemctl", "stop", "mscam-nightly.timer")
    assert wait_for_the_end(booted)["Result"] == "success"


def test_a_cron_daemon_runs_the_crontab(booted: Machine) -> None:
    home = "/home/bob"
    booted.run("useradd", "--create-home", "bob")
    booted.run("install", "-d", "-o", "bob", "/var/lib/cron-runs")
    booted.run(
        "install", "-D", "mscam-nightly", "/opt/mscam/libexec/mscam-nightly", cwd="/src/deploy/cron"
    )
    ours = (DEPLOY / "cron/mscam.crontab").read_text()
    soon = ours.replace("30 2,4 * * *", "* * * * *").replace(
        "/var/lib/mscam/runs", "/var/lib/cron-runs"
    )
    assert soon.count("* * * * * /opt") == 1
    booted.run("sh", "-c", f"cat >{home}/crontab <<'end'\n{soon}end")
    assert booted.run("systemctl", "is-active", "cron").strip() == "active"
    booted.run("runuser", "--user", "bob", "--", "crontab", f"{home}/crontab")
    log = f"{home}/.local/state/mscam/nightly.log"
    try:
        wait_until(
            lambda: "Results" in booted.attempt("cat", log).stdout,
            lambda: booted.attempt("cat", log).stdout + journal(booted, "cron"),
            timeout_s=400,
        )
    finally:
        booted.run("crontab", "-r", "-u", "bob")
