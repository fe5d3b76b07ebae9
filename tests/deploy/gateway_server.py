"""A dask-gateway server with its local backend on loopback."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.deploy.files import script_environment

__all__ = ["gateway_server"]

_START_S = 60.0

_CONFIGURATION = """
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


@contextmanager
def gateway_server(root: Path) -> Iterator[dict[str, str]]:
    """Start it; yields the addresses of GatewayCluster, or skips where it is not installed."""
    if importlib.util.find_spec("dask_gateway_server") is None:
        pytest.skip("dask-gateway-server is not installed")
    api, proxy, tcp = _free_ports(3)
    (root / "config.py").write_text(_CONFIGURATION.format(api=api, proxy=proxy, tcp=tcp, root=root))
    command = [sys.executable, "-m", "dask_gateway_server", "-f", str(root / "config.py")]
    log = (root / "gateway.log").open("wb")
    with (
        log,
        subprocess.Popen(
            command,
            cwd=root,
            env=script_environment(),
            stdout=log,
            stderr=log,
            start_new_session=True,
        ) as server,
    ):
        try:
            deadline = time.monotonic() + _START_S
            while not all(map(_answers, (api, proxy, tcp))):
                assert server.poll() is None, (root / "gateway.log").read_text()
                assert time.monotonic() < deadline, (root / "gateway.log").read_text()
                time.sleep(0.2)
            yield {
                "address": f"http://127.0.0.1:{proxy}",
                "proxy_address": f"gateway://127.0.0.1:{tcp}",
            }
        finally:
            server.terminate()
            server.wait(30)


def _free_ports(number: int) -> list[int]:
    probes = [socket.socket() for _ in range(number)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
