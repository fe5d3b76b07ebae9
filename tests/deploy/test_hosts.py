"""A run over several hosts with TLS, one of which is cut off while it works, and brought back.

Hosts are network namespaces of this computer, joined by a bridge that has one of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from mscam_dask.pipeline.tls import make_certificates
from tests.clusters import tls_options
from tests.deploy.files import run, script_environment
from tests.processes import mscam, needed, started, text_of, wait_until, write_pipeline

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(480)]

# Seconds instead of the half minute and the five minutes after which Dask misses somebody.
NOTICE_SOON = {
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "12s",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "20s",
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "25s",
    "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "true",
}
ADDRESSES = {"scheduler": "10.213.7.1", "north": "10.213.7.2", "driver": "10.213.7.3"}
SCHEDULER = f"tls://{ADDRESSES['scheduler']}:8786"

# As a supervisor does (restart: unless-stopped): a worker that lost its scheduler ends.
SUPERVISED = ("bash", "-c", 'while true; do "$@"; sleep 0.5; done', "worker")


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=20)


class Hosts:
    """Hosts of the names in ADDRESSES, which reach each other and nothing else."""

    def __init__(self, stack: ExitStack) -> None:
        self.tag = uuid.uuid4().hex[:6]
        self.switch = f"ms{self.tag}"
        for name in (self.switch, *map(self.namespace, ADDRESSES)):
            ip("netns", "add", name)
            stack.callback(ip, "netns", "del", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", self.switch, "link", "add", "br0", "type", "bridge", "stp_state", "0")
        ip("-n", self.switch, "link", "set", "br0", "up")
        for name, address in ADDRESSES.items():
            inside = self.namespace(name)
            end = ("peer", "name", "eth0", "netns", inside)
            ip("-n", self.switch, "link", "add", name, "type", "veth", *end)
            ip("-n", self.switch, "link", "set", name, "master", "br0", "up")
            ip("-n", inside, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", inside, "link", "set", "eth0", "up")

    def namespace(self, name: str) -> str:
        return f"{name}{self.tag}"

    def on(self, name: str, *command: str | Path) -> list[str]:
        """Return the command line that runs another one on a host."""
        return ["ip", "netns", "exec", self.namespace(name), *map(str, command)]

    def set_link(self, name: str, state: str) -> None:
        """Take the link of a host down, which loses packets without an error, or up again."""
        ip("-n", self.switch, "link", "set", name, state)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    needed("ip", package="iproute2")
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    with ExitStack() as stack:
        try:
            made = Hosts(stack)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces are not permitted here: {error.stderr.strip()}")
        yield made


def test_a_host_that_is_cut_off_and_comes_back_changes_nothing(
    hosts: Hosts, tmp_path: Path
) -> None:
    pipeline = write_pipeline(tmp_path, max_iter=6)
    events, printed = tmp_path / "run/events.jsonl", tmp_path / "driver.log"
    env = script_environment(**NOTICE_SOON)
    start = partial(started, env=env)
    made, log = make_certificates(tmp_path / "certs"), tmp_path / "scheduler.log"
    here = ("--host", ADDRESSES["scheduler"], "--port", "8786", "--no-dashboard")
    dask = (sys.executable, "-m", "dask")
    scheduler = (*dask, "scheduler", "--protocol", "tls", *here, *tls_options(made, "scheduler"))
    with ExitStack() as stack:
        stack.enter_context(start(*hosts.on("scheduler", *scheduler), log=log))
        for host, name in (("scheduler", "south"), ("north", "north")):
            worker = (*dask, "worker", SCHEDULER, "--name", name)
            options = ("--host", ADDRESSES[host], "--nthreads", "1", "--memory-limit", "2GiB")
            place = (
                "--local-directory",
                str(tmp_path / name),
                "--no-dashboard",
                *tls_options(made, "worker"),
            )
            command = hosts.on(host, *SUPERVISED, *worker, *options, *place)
            stack.enter_context(start(*command, log=tmp_path / f"{name}.log"))
        wait_until(lambda: text_of(log).count("Register worker") == 2, log)
        command = mscam("run", pipeline, "--plain", "--scheduler", SCHEDULER)
        secured = (*command, *tls_options(made, "client", "--tls-ca"))
        driver = stack.enter_context(start(*hosts.on("driver", *secured), log=printed))
        wait_until(lambda: '"iteration"' in text_of(events), printed, alive=driver)
        hosts.set_link("north", "down")
        knock = f"exec 3<>/dev/tcp/{ADDRESSES['scheduler']}/8786"
        assert run("timeout", "2", *hosts.on("north", "bash", "-c", knock)).returncode != 0
        wait_until(lambda: "Remove worker" in text_of(log), printed, alive=driver)
        hosts.set_link("north", "up")
        wait_until(lambda: text_of(log).count("Register worker") >= 3, log)
        assert driver.wait(180) == 0, text_of(printed)
    alone = mscam("run", pipeline, "--plain", "--in-process", "-o", tmp_path / "alone")
    assert run(*alone, env=env, timeout=200).returncode == 0
    assert text_of(tmp_path / "run/labels.csv") == text_of(tmp_path / "alone/labels.csv")
    assert SCHEDULER in json.loads(text_of(tmp_path / "run/run.json"))["executor"]
