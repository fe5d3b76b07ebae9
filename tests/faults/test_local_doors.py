"""Clusters that a run starts are closed to other users of the computer."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from mscam_dask import MSCAM
from mscam_dask.pipeline.config.settings import ExecutionTable
from mscam_dask.pipeline.run.cluster import open_cluster
from tests.clusters import local_client
from tests.synthetic import gaussian_views

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")


def listening() -> dict[int, str]:
    """Ports of this process and its children, with the address that each listens on."""
    here = psutil.Process()
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
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@needs_root
@pytest.mark.parametrize("n_workers", [1, 2])
def test_another_user_reaches_nothing_of_a_cluster_that_a_run_starts(n_workers: int) -> None:
    before = set(listening())
    with open_cluster(ExecutionTable(workers=n_workers)) as cluster:
        assert cluster.client is not None
        assert cluster.client.submit(abs, -1, pure=False).result() == 1
        ports = set(listening()) - before
        assert len(ports) >= 2 + 3 * n_workers  # scheduler and dashboard; worker, its page, nanny
        assert reached_by_another_user(ports) == []


@needs_root
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
