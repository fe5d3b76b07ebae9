"""A run over several hosts with TLS, one of which is cut off while it works, and brought back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from mscam_dask.data.datasets import digits_views
from mscam_dask.data.store.write import write_store
from mscam_dask.pipeline.tls import make_certificates
from tests.deploy.files import run, script_environment
from tests.deploy.hosts import Host, hosts

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(480)]

PATIENCE_S = 180.0

# Seconds instead of the half minute and the five minutes after which Dask misses somebody.
NOTICE_SOON = {
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "12s",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "20s",
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "25s",
    "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "true",
}

# As a supervisor does (restart: unless-stopped): a worker that lost its scheduler ends.
SUPERVISED = 'while true; do "$@"; sleep 0.5; done'


def wait_until(what: str, condition: Callable[[], bool], alive: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert alive.poll() is None, f"{what}: ended with {alive.returncode} before"
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_S:g} s"
        time.sleep(0.05)


@contextmanager
def running(
    host: Host, log: Path, *command: str | Path, env: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A program on a host; it and its children are gone afterwards."""
    with log.open("ab") as stream:
        process = host.start(*command, env=env, log=stream)
        try:
            yield process
        finally:
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, number)
                    process.wait(10)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    continue
            process.wait(10)


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    store = write_store(digits_views(["pixels", "profiles", "zernike"]), tmp_path / "digits.zarr")
    file = tmp_path / "nightly.toml"
    file.write_text(
        f'[data]\nsource = "{store}"\n[cluster]\nn_clusters = 10\nscale = "standard"\nalpha = 1.0\n'
        "n_neighbors = 9\nmax_iter = 6\n"
    )
    return file


def dask(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "dask", *arguments]


def mscam(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "mscam_dask.cli", *(str(part) for part in arguments)]


def test_a_host_that_is_cut_off_and_comes_back_changes_nothing(
    tmp_path: Path, pipeline: Path
) -> None:
    certs = tmp_path / "certs"
    make_certificates(certs)
    env = script_environment(**NOTICE_SOON)

    def tls(role: str, dashes: str) -> list[str]:
        return [
            *(f"--tls-{dashes}", str(certs / "ca.pem")),
            *(
                "--tls-cert",
                str(certs / f"{role}.pem"),
                "--tls-key",
                str(certs / f"{role}-key.pem"),
            ),
        ]

    log, events = tmp_path / "scheduler.log", tmp_path / "run/events.jsonl"
    with hosts(["scheduler", "north", "south", "driver"]) as places, ExitStack() as stack:
        scheduler = places["scheduler"]
        address = f"tls://{scheduler.address}:8786"
        process = stack.enter_context(
            running(
                scheduler, log,
                *dask("scheduler", "--protocol", "tls", "--host", scheduler.address, "--port", "8786",
                      "--no-dashboard", *tls("scheduler", "ca-file")),
                env=env,
            )
        )  # fmt: skip
        for name in ("north", "south"):
            stack.enter_context(
                running(
                    places[name], tmp_path / f"{name}.log",
                    "bash", "-c", SUPERVISED, "worker",
                    *dask("worker", address, "--host", places[name].address, "--name", name,
                          "--nthreads", "1", "--memory-limit", "2GiB", "--no-dashboard",
                          "--local-directory", str(tmp_path / name), *tls("worker", "ca-file")),
                    env=env,
                )
            )  # fmt: skip
        wait_until("two workers", lambda: log.read_text().count("Register worker") == 2, process)

        driver = stack.enter_context(
            running(
                places["driver"], tmp_path / "driver.log",
                *mscam("run", pipeline, "--plain", "-o", tmp_path / "run", "--scheduler", address),
                *tls("client", "ca"),
                env=env,
            )
        )  # fmt: skip
        wait_until(
            "an iteration", lambda: events.exists() and '"iteration"' in events.read_text(), driver
        )
        north = places["north"]
        north.cut_off()
        unreachable = north.command("bash", "-c", f"exec 3<>/dev/tcp/{scheduler.address}/8786")
        assert subprocess.run(
            ["timeout", "2", *unreachable], check=False, capture_output=True
        ).returncode
        wait_until("it is missed", lambda: "Remove worker" in log.read_text(), driver)
        north.bring_back()
        wait_until("it is back", lambda: log.read_text().count("Register worker") >= 3, process)
        assert driver.wait(PATIENCE_S) == 0, (tmp_path / "driver.log").read_text()

    alone = run(
        *mscam("run", pipeline, "--plain", "--in-process", "-o", tmp_path / "alone"),
        env=env,
        timeout=200,
    )
    assert alone.returncode == 0, alone.stderr
    assert (tmp_path / "run/labels.csv").read_text() == (tmp_path / "alone/labels.csv").read_text()
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert address in record["executor"]


def test_a_driver_without_a_certificate_of_the_cluster_is_turned_away(
    tmp_path: Path, pipeline: Path
) -> None:
    for name in ("certs", "others"):
        make_certificates(tmp_path / name)
    env = script_environment(**NOTICE_SOON)
    log = tmp_path / "scheduler.log"
    with hosts(["scheduler", "driver"]) as places, ExitStack() as stack:
        scheduler = places["scheduler"]
        certs, others = tmp_path / "certs", tmp_path / "others"
        process = stack.enter_context(
            running(
                scheduler, log,
                *dask("scheduler", "--protocol", "tls", "--host", scheduler.address, "--port", "8786",
                      "--no-dashboard", "--tls-ca-file", str(certs / "ca.pem"),
                      "--tls-cert", str(certs / "scheduler.pem"), "--tls-key", str(certs / "scheduler-key.pem")),
                env=env,
            )
        )  # fmt: skip
        wait_until("a scheduler", lambda: "Scheduler at" in log.read_text(), process)
        stranger = run(
            *places["driver"].command(
                *mscam("run", pipeline, "-o", tmp_path / "run", "--plain"),
                *(
                    "--scheduler",
                    f"tls://{scheduler.address}:8786",
                    "--tls-ca",
                    str(certs / "ca.pem"),
                ),
                *(
                    "--tls-cert",
                    str(others / "client.pem"),
                    "--tls-key",
                    str(others / "client-key.pem"),
                ),
            ),
            env=env,
            timeout=PATIENCE_S,
        )
    assert stranger.returncode == 4
    assert "certificate" in stranger.stderr
