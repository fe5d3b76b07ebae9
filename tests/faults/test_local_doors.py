"""Clusters that a run starts are closed to other users of the computer."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from mscam_dask import MSCAM
from mscam_dask.data.datasets import subspace_mixture
from mscam_dask.pipeline.cluster import open_cluster
from mscam_dask.pipeline.settings import ExecutionTable
from tests.clusters import listening, local_client
from tests.deploy.files import script_environment
from tests.processes import started, text_of, wait_until
from tests.synthetic import gaussian_views, save_npz

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")

# The command line, held while its cluster is open: it writes a file, and goes on when that is gone.
HELD = """
import pathlib, sys, time
from mscam_dask.cli import main
from mscam_dask.pipeline import cluster
sign, opened = pathlib.Path("sign"), cluster.OpenCluster
def held(*arguments):
    sign.write_text("open")
    while sign.exists():
        time.sleep(0.1)
    return opened(*arguments)
cluster.OpenCluster = held
main(sys.argv[1:])
"""


def reached_by_another_user(ports: set[int]) -> list[str]:
    script = Path(__file__).with_name("local_attacker.py")
    command = [sys.executable, str(script), *map(str, sorted(ports))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@needs_root
@pytest.mark.thorough
def test_another_user_reaches_nothing_of_a_cluster_that_a_run_starts() -> None:
    before = set(listening())
    with open_cluster(ExecutionTable(workers=2)) as cluster:
        assert cluster.client.submit(abs, -1, pure=False).result() == 1
        ports = set(listening()) - before
        assert len(ports) >= 2 + 3 * 2  # scheduler and dashboard; workers, their pages, nannies
        assert reached_by_another_user(ports) == []
    before = set(listening())
    with local_client(1):  # without certificates it is reached
        assert len(reached_by_another_user(set(listening()) - before)) >= 3


@needs_root
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "command",
    [
        "run run.toml --workers 1",
        "run run.toml --adapt 1:1",
        "quickstart --workers 1",
        "compare --workers 1 --dataset tiny.npz --method knn-sc --runs 1 -o out",
        "sweep sweep.toml --workers 1",
        "doctor",
    ],
)
def test_another_user_reaches_nothing_of_a_command(tmp_path: Path, command: str) -> None:
    save_npz(tmp_path / "tiny.npz", subspace_mixture(40, 2, (4, 5), rng=np.random.default_rng(0)))
    output = '[output]\ndirectory = "out"\n'
    (tmp_path / "run.toml").write_text(
        f'[data]\nsource = "digits"\nfamilies = ["pixels"]\n[cluster]\nn_clusters = 10\n{output}'
    )
    (tmp_path / "sweep.toml").write_text(
        f'[sweep]\ndatasets = ["tiny.npz"]\nalpha = [1.0]\ngraph_weight = [1.0]\n{output}'
    )
    sign, log = tmp_path / "sign", tmp_path / "log"
    held = (sys.executable, "-c", HELD, *command.split())
    with started(*held, log=log, env=script_environment(), cwd=tmp_path) as driver:
        wait_until(sign.exists, log, seconds=200, alive=driver)
        ports = listening(driver.pid)
        assert len(ports) >= 5  # scheduler and dashboard; worker, its page, nanny
        assert set().union(*ports.values()) <= {"127.0.0.1", "::1"}
        assert reached_by_another_user(set(ports)) == []
        sign.unlink()
        assert driver.wait(300) == 0, text_of(log)


def test_without_worker_processes_nothing_listens() -> None:
    before = set(listening())
    with open_cluster(ExecutionTable(in_process=True)):
        MSCAM(3, n_jobs=2).fit(gaussian_views(0, n_samples=60)[0])
        assert set(listening()) <= before  # those of earlier tests may close meanwhile


def test_the_dashboard_of_a_run_changes_and_forwards_nothing() -> None:
    with open_cluster(ExecutionTable(workers=1)) as cluster:
        services = cluster.client.scheduler_info(n_workers=0)["services"]
        root = f"http://127.0.0.1:{services['dashboard']}"
        assert urllib.request.urlopen(f"{root}/health", timeout=10).status == 200
        for path in ("api/v1/retire_workers", f"proxy/{services['dashboard']}/127.0.0.1/health"):
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(f"{root}/{path}", data=b"{}", timeout=10)
            assert caught.value.code == 404
