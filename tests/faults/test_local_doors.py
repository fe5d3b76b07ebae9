"""Clusters that a run starts are closed to other users of the computer."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import psutil
import pytest

from mscam_dask import MSCAM
from mscam_dask.data.datasets import subspace_mixture
from mscam_dask.pipeline.config.settings import ExecutionTable
from mscam_dask.pipeline.run.cluster import open_cluster
from tests.clusters import local_client
from tests.deploy.files import script_environment
from tests.synthetic import gaussian_views, save_npz

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")


def listening(pid: int | None = None) -> dict[int, str]:
    """Ports of a process (this one) and its children, with the address that each listens on."""
    here = psutil.Process(pid)
    return {
        item.laddr.port: item.laddr.ip
        for process in (here, *here.children(recursive=True))
        for item in process.net_connections(kind="inet")
        if item.status == psutil.CONN_LISTEN
    }


def reached_by_another_user(ports: set[int]) -> list[str]:
    script = Path(__file__).with_name("local_attacker.py")
    done = subprocess.run(
        [sys.executable, str(script), *map(str, sorted(ports))],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@needs_root
@pytest.mark.parametrize("n_workers", [1, 2])
@pytest.mark.thorough
def test_another_user_reaches_nothing_of_a_cluster_that_a_run_starts(n_workers: int) -> None:
    before = set(listening())
    with open_cluster(ExecutionTable(workers=n_workers)) as cluster:
        assert cluster.client is not None
        assert cluster.client.submit(abs, -1, pure=False).result() == 1
        ports = set(listening()) - before
        assert len(ports) >= 2 + 3 * n_workers  # scheduler and dashboard; worker, its page, nanny
        assert reached_by_another_user(ports) == []


@needs_root
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "command",
    [
        ("run", "--workers", "1"),
        ("run", "--adapt", "1:1"),
        ("quickstart", "--workers", "1"),
        ("compare", "--workers", "1", "--dataset", "tiny.npz", "--method", "knn-sc", "--runs", "1", "-o", "out"),
        ("sweep", "sweep.toml", "--workers", "1"),
        ("doctor",),
    ],
    ids=lambda command: "-".join(command[:2]),
)  # fmt: skip
def test_another_user_reaches_nothing_of_a_command(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    save_npz(tmp_path / "tiny.npz", subspace_mixture(40, 2, (4, 5), rng=np.random.default_rng(0)))
    (tmp_path / "run.toml").write_text(
        '[data]\nsource = "digits"\nfamilies = ["pixels"]\n[cluster]\nn_clusters = 10\n'
        '[output]\ndirectory = "out"\n'
    )
    (tmp_path / "sweep.toml").write_text(
        '[sweep]\ndatasets = ["tiny.npz"]\nalpha = [1.0]\ngraph_weight = [1.0]\n[output]\ndirectory = "out"\n'
    )
    files = {"run": ["run.toml"]}.get(command[0], [])
    sign = tmp_path / "sign"
    script = Path(__file__).with_name("held_command.py")
    arguments = [sys.executable, str(script), str(sign), *command[:1], *files, *command[1:]]
    with subprocess.Popen(
        arguments,
        cwd=tmp_path,
        env=script_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as driver:
        try:
            for _ in range(2000):
                if sign.exists() or driver.poll() is not None:
                    break
                time.sleep(0.1)
            assert sign.exists(), driver.communicate()[0].decode()
            ports = listening(driver.pid)
            assert len(ports) >= 5  # scheduler and dashboard; worker, its page, nanny
            assert {*ports.values()} <= {"127.0.0.1", "::1"}
            assert reached_by_another_user(set(ports)) == []
        finally:
            sign.unlink(missing_ok=True)
            printed = driver.communicate(timeout=300)[0].decode()
    assert driver.returncode == 0, printed


@needs_root
@pytest.mark.thorough
def test_the_same_user_reaches_a_cluster_without_certificates() -> None:
    before = set(listening())
    with local_client(1):
        ports = set(listening()) - before
        assert len(reached_by_another_user(ports)) >= 3


def test_without_worker_processes_nothing_listens() -> None:
    before = set(listening())
    with open_cluster(ExecutionTable(in_process=True)):
        MSCAM(3, n_jobs=2).fit(gaussian_views(0, n_samples=60)[0])
        assert set(listening()) == before


def test_the_dashboard_of_a_run_changes_and_forwards_nothing() -> None:
    with open_cluster(ExecutionTable(workers=1)) as cluster:
        assert cluster.client is not None
        services = cluster.client.scheduler_info(n_workers=0)["services"]
        root = f"http://127.0.0.1:{services['dashboard']}"
        assert urllib.request.urlopen(f"{root}/health", timeout=10).status == 200
        for path in ("api/v1/retire_workers", f"proxy/{services['dashboard']}/127.0.0.1/health"):
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(f"{root}/{path}", data=b"{}", timeout=10)
            assert caught.value.code == 404
