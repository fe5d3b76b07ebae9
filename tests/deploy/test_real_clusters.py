"""Runs on real clusters of one computer: SSH and dask-gateway, through the command line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from mscam_dask.data.datasets import digits_views
from mscam_dask.data.store.write import write_store
from mscam_dask.pipeline.config.toml_document import toml_text
from mscam_dask.pipeline.tls import make_certificates
from tests.deploy.files import run, script_environment
from tests.deploy.gateway_server import gateway_server
from tests.deploy.ssh_server import ssh_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

CLUSTER = {
    "n_clusters": 10, "scale": "standard", "alpha": 1.0, "n_neighbors": 9, "max_iter": 3
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("data") / "digits.zarr"
    write_store(digits_views(["pixels", "zernike"]), place)
    return place


@pytest.fixture(scope="module")
def expected(store: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """labels.csv of a run in one process."""
    root = tmp_path_factory.mktemp("here")
    result = start(root, store, {"in_process": True})
    assert result.returncode in (0, 5), result.stderr
    return (root / "run/labels.csv").read_bytes()


def command(root: Path, store: Path, execution: dict[str, Any], *options: str) -> list[str]:
    (root / "p.toml").write_text(
        toml_text(
            {
                "data": {"source": str(store)},
                "cluster": CLUSTER,
                "execution": execution,
                "output": {"directory": str(root / "run")},
            }
        )
    )
    return [
        sys.executable, "-m", "mscam_dask.cli", "run", str(root / "p.toml"), "--plain", *options
    ]  # fmt: skip


def start(
    root: Path, store: Path, execution: dict[str, Any], *options: str
) -> subprocess.CompletedProcess[str]:
    line: Sequence[str] = command(root, store, execution, *options)
    return run(*line, env=script_environment(), timeout=200)


def record(root: Path) -> Any:
    return json.loads((root / "run/run.json").read_text())


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    pytest.importorskip("asyncssh")
    with ssh_server(tmp_path_factory.mktemp("ssh")) as connect_options:
        yield connect_options


def test_a_run_over_ssh_with_certificates(
    tmp_path: Path, ssh: dict[str, Any], store: Path, expected: bytes
) -> None:
    made = make_certificates(tmp_path / "certs")
    execution = {
        "cluster": "ssh",
        "tls_ca": str(made.authority),
        "tls_cert": str(made.certificate("client")),
        "tls_key": str(made.key("client")),
        "cluster_options": {"hosts": ["127.0.0.1"] * 3, "connect_options": ssh},
    }
    with subprocess.Popen(
        command(tmp_path, store, execution), env=script_environment(), stderr=subprocess.PIPE, text=True
    ) as driver:  # fmt: skip
        assert driver.stderr is not None
        lines = []
        for line in driver.stderr:
            lines.append(line)
            if "iteration 1/" in line:
                break
        doors = [
            (item.laddr.ip, process.cmdline())
            for process in psutil.process_iter()
            if any("dask_spec" in part for part in _command_line(process))
            for item in process.net_connections(kind="inet")
            if item.status == psutil.CONN_LISTEN
        ]
        lines += driver.stderr.readlines()
        assert driver.wait(200) in (0, 5), "".join(lines)
    assert len(doors) >= 3
    assert record(tmp_path)["executor"] == "2 worker host(s) of a ssh cluster"
    assert (tmp_path / "run/labels.csv").read_bytes() == expected
    deadline = time.monotonic() + 30
    while any("dask_spec" in " ".join(_command_line(item)) for item in psutil.process_iter()):
        assert time.monotonic() < deadline
        time.sleep(0.5)


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def test_a_host_that_refuses_the_key_is_no_case_for_another_try(
    tmp_path: Path, ssh: dict[str, Any], store: Path
) -> None:
    (tmp_path / "other").write_bytes(Path(ssh["client_keys"][0]).with_name("host").read_bytes())
    (tmp_path / "other").chmod(0o600)
    options = {**ssh, "client_keys": [str(tmp_path / "other")]}
    execution = {
        "cluster": "ssh",
        "cluster_options": {"hosts": ["127.0.0.1"] * 2, "connect_options": options},
    }
    result = start(tmp_path, store, execution)
    assert result.returncode == 4, result.stderr
    assert "Permission denied" in " ".join(result.stderr.split())


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    pytest.importorskip("dask_gateway")
    with gateway_server(tmp_path_factory.mktemp("gateway")) as addresses:
        yield addresses


@pytest.mark.parametrize(
    "size", [{"workers": 2}, {"adapt": {"minimum": 0, "maximum": 2}}], ids=["fixed", "adaptive"]
)
def test_a_run_on_a_gateway(
    tmp_path: Path, gateway: dict[str, str], store: Path, expected: bytes, size: dict[str, Any]
) -> None:
    execution = {"cluster": "gateway", "start_timeout": 120.0, **size, "cluster_options": gateway}
    result = start(tmp_path, store, execution)
    assert result.returncode in (0, 5), result.stderr
    number = "2" if "workers" in size else "0 to 2"
    assert record(tmp_path)["executor"] == f"{number} workers of a gateway cluster"
    assert (tmp_path / "run/labels.csv").read_bytes() == expected


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Gateway.__del__
def test_a_run_that_is_stopped_leaves_no_cluster_on_the_gateway(
    tmp_path: Path, gateway: dict[str, str], store: Path
) -> None:
    from dask_gateway import Gateway

    execution = {"cluster": "gateway", "start_timeout": 120.0, "cluster_options": gateway}
    line = command(tmp_path, store, execution, "--set", "cluster.max_iter=30")
    with subprocess.Popen(
        line, env=script_environment(), stderr=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stderr is not None
        for text in driver.stderr:
            if "iteration 1/" in text:
                driver.send_signal(signal.SIGTERM)
                break
        driver.stderr.read()
        assert driver.wait(60) == 75
    assert record(tmp_path)["state"] == "interrupted"
    with Gateway(gateway["address"]) as server:
        deadline = time.monotonic() + 60
        while server.list_clusters():
            assert time.monotonic() < deadline
            time.sleep(0.5)


def test_a_gateway_that_does_not_answer_is_worth_another_try(tmp_path: Path, store: Path) -> None:
    pytest.importorskip("dask_gateway")
    execution = {"cluster": "gateway", "cluster_options": {"address": "http://127.0.0.1:9"}}
    result = start(tmp_path, store, execution)
    assert result.returncode == 75, result.stderr
    assert "127.0.0.1:9" in result.stderr
