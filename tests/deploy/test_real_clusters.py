"""Runs on real clusters of one computer, through the command line: SSH, dask-gateway, and hosts of which one is cut off while it works."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import dask.config
import psutil
import pytest

from mscam_dask.pipeline.tls import make_certificates
from tests.clusters import tls_options
from tests.deploy.files import ROOT
from tests.processes import (
    answers,
    free_ports,
    mscam,
    needed,
    run,
    script_environment,
    started,
    text_of,
    wait_until,
    write_pipeline,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(480)]


def execute(home: Path, **execution: Any) -> subprocess.CompletedProcess[str]:
    """Run three iterations of the pipeline in a directory."""
    file = write_pipeline(home, max_iter=3, **execution)
    return run(*mscam("run", file, "--plain"), env=script_environment(), timeout=200)


def record(home: Path) -> Any:
    return json.loads((home / "run/run.json").read_text())


def labels(home: Path) -> bytes:
    return (home / "run/labels.csv").read_bytes()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """labels.csv of a run in one process."""
    home = tmp_path_factory.mktemp("here")
    assert execute(home, in_process=True).returncode == 0
    return labels(home)


# -- SSH ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """connect_options of SSHCluster for a server of the user on loopback, with keys of its own."""
    pytest.importorskip("asyncssh")
    root = tmp_path_factory.mktemp("ssh")
    sshd, keygen = needed("sshd", "ssh-keygen", package="openssh-server")
    for key in ("host", "user"):
        subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(root / key)], check=True)
    (port,) = free_ports(1)
    (root / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {root}/host\nPidFile {root}/sshd.pid\n"
        f"AuthorizedKeysFile {root}/user.pub\nStrictModes no\nUsePAM no\n"
        "PermitRootLogin prohibit-password\nPasswordAuthentication no\n"
        f"SetEnv PYTHONPATH={ROOT} OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1\n"
    )
    kind, key, *_ = (root / "host.pub").read_text().split()
    (root / "known_hosts").write_text(f"[127.0.0.1]:{port} {kind} {key}\n")
    Path("/run/sshd").mkdir(exist_ok=True)  # where sshd of root leaves its privileges
    log = root / "sshd.log"
    command = (sshd, "-D", "-e", "-f", root / "sshd_config")
    with started(*command, log=log, env=os.environ) as server:
        wait_until(lambda: answers(port), log, alive=server)
        known = {"client_keys": [str(root / "user")], "known_hosts": str(root / "known_hosts")}
        yield {"port": port, **known}


def dask_processes() -> list[psutil.Process]:
    """Schedulers and workers that SSHCluster has started."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any("dask_spec" in part for part in process.info["cmdline"] or ())
    ]


SECRET = "c4n4ry-D0-not-sh0w"
# Dask's configuration, which SSHCluster hands over on command lines that all users can list.
CONFIGURED = {
    "MY_API_KEY": SECRET,
    "DASK_MSCAM__API_KEY": SECRET,
    "DASK_MSCAM__CARRIED": f"as {SECRET}",
    "DASK_MSCAM__STORAGE": f"s3://user:{SECRET}@host/bucket",
    "DASK_MSCAM__ARGUMENTS": f"['--verbose', '--header={SECRET}']",
    "DASK_MSCAM__PUBLIC": "kept-as-it-is",
}


def test_a_run_over_ssh_with_certificates_hands_no_secret_over(
    tmp_path: Path, ssh: dict[str, Any], expected: bytes
) -> None:
    made = make_certificates(tmp_path / "certs")
    options = {"hosts": ["127.0.0.1"] * 3, "connect_options": ssh}
    file = write_pipeline(
        tmp_path, max_iter=3, cluster="ssh", cluster_options=options, tls_ca=str(made.certificate("ca")),
        tls_cert=str(made.certificate("client")), tls_key=str(made.key("client")),
    )  # fmt: skip
    log, env = tmp_path / "log", script_environment(**CONFIGURED)
    with started(*mscam("run", file, "--plain"), log=log, env=env) as driver:
        wait_until(lambda: "iteration 1/" in text_of(log), log, alive=driver)
        processes = dask_processes()
        assert len(processes) >= 3
        for process in processes:
            assert SECRET not in str(process.environ()) + str(process.cmdline())
            handed_over = process.environ()["DASK_INTERNAL_INHERIT_CONFIG"]
            configuration = repr(dask.config.deserialize(handed_over))
            assert "kept-as-it-is" in configuration
            assert SECRET not in configuration
        assert driver.wait(200) == 0, text_of(log)
    assert record(tmp_path)["executor"] == "2 workers of a ssh cluster"
    assert labels(tmp_path) == expected
    wait_until(lambda: not dask_processes(), log)


def test_a_host_that_refuses_the_key_is_no_case_for_another_try(
    tmp_path: Path, ssh: dict[str, Any]
) -> None:
    other = tmp_path / "other"
    other.write_bytes(Path(ssh["client_keys"][0]).with_name("host").read_bytes())
    other.chmod(0o600)
    options = {
        "hosts": ["127.0.0.1"] * 2, "connect_options": {**ssh, "client_keys": [str(other)]}
    }  # fmt: skip
    result = execute(tmp_path, cluster="ssh", cluster_options=options)
    assert result.returncode == 4, result.stderr
    assert "Permission denied" in " ".join(result.stderr.split())


# -- dask-gateway ------------------------------------------------------------------------------

GATEWAY = """
import sys
c.DaskGateway.address = "127.0.0.1:{api}"
c.Proxy.address = "127.0.0.1:{proxy}"
c.Proxy.tcp_address = "127.0.0.1:{tcp}"
c.DaskGateway.backend_class = "dask_gateway_server.backends.local.UnsafeLocalBackend"
c.DaskGateway.authenticator_class = "dask_gateway_server.auth.SimpleAuthenticator"
c.LocalBackend.clusters_directory = "{root}/clusters"
c.ClusterConfig.worker_memory = "2 G"
c.ClusterConfig.worker_cores = 1
c.ClusterConfig.adaptive_period = 1
c.ClusterConfig.scheduler_cmd = [sys.executable, "-m", "dask", "scheduler"]
c.ClusterConfig.worker_cmd = [sys.executable, "-m", "dask", "worker"]
c.LocalBackend.inherited_environment = [
    "PATH", "PYTHONPATH", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"
]
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Addresses of a server with its local backend, as options of GatewayCluster."""
    pytest.importorskip("dask_gateway")
    if importlib.util.find_spec("dask_gateway_server") is None:
        pytest.skip("dask-gateway-server is not installed")
    root = tmp_path_factory.mktemp("gateway")
    ports = dict(zip(("api", "proxy", "tcp"), free_ports(3), strict=True))
    (root / "config.py").write_text(GATEWAY.format(root=root, **ports))
    command = (sys.executable, "-m", "dask_gateway_server", "-f", root / "config.py")
    log = root / "log"
    with started(*command, log=log, env=script_environment(), cwd=root) as server:
        wait_until(lambda: all(map(answers, ports.values())), log, alive=server)
        yield {
            "address": f"http://127.0.0.1:{ports['proxy']}",
            "proxy_address": f"gateway://127.0.0.1:{ports['tcp']}",
        }


@pytest.mark.parametrize(
    ("size", "executor"),
    [
        ({"workers": 2}, "2 workers of a gateway cluster"),
        ({"adapt": {"minimum": 0, "maximum": 2}}, "0 to 2 workers of a gateway cluster"),
    ],
    ids=["fixed", "adaptive"],
)
def test_a_run_on_a_gateway(
    tmp_path: Path, gateway: dict[str, str], expected: bytes, size: dict[str, Any], executor: str
) -> None:
    result = execute(
        tmp_path, cluster="gateway", start_timeout=120.0, cluster_options=gateway, **size
    )
    assert result.returncode == 0, result.stderr
    assert record(tmp_path)["executor"] == executor
    assert labels(tmp_path) == expected


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Gateway.__del__
def test_a_run_that_is_stopped_leaves_no_cluster_on_the_gateway(
    tmp_path: Path, gateway: dict[str, str]
) -> None:
    from dask_gateway import Gateway

    options: dict[str, Any] = {"start_timeout": 120.0, "cluster_options": gateway}
    file, log = write_pipeline(tmp_path, cluster="gateway", **options), tmp_path / "log"
    with started(*mscam("run", file, "--plain"), log=log, env=script_environment()) as driver:
        wait_until(lambda: "iteration 1/" in text_of(log), log, alive=driver)
        driver.send_signal(signal.SIGTERM)
        assert driver.wait(60) == 75, text_of(log)
    assert record(tmp_path)["state"] == "interrupted"
    with Gateway(gateway["address"]) as server:
        wait_until(lambda: not server.list_clusters(), log)


def test_a_gateway_that_does_not_answer_is_worth_another_try(tmp_path: Path) -> None:
    pytest.importorskip("dask_gateway")
    options = {"address": "http://127.0.0.1:9"}
    result = execute(tmp_path, cluster="gateway", cluster_options=options)
    assert result.returncode == 75, result.stderr
    assert "127.0.0.1:9" in result.stderr


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


@pytest.mark.faults
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
