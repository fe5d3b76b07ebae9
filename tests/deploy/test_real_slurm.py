"""The files of deploy/slurm on a real SLURM cluster of one node."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mscam_dask.data.datasets import digits_views
from mscam_dask.data.store.write import write_store
from mscam_dask.pipeline.tls import make_certificates
from tests.deploy.files import DEPLOY, script_environment
from tests.deploy.slurm_node import SlurmNode, slurm_node

pytest.importorskip("dask_jobqueue")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmNode]:
    with slurm_node(tmp_path_factory.mktemp("slurm")) as started:
        yield started


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The directory of deploy/slurm/README.md."""
    for file in (DEPLOY / "slurm").iterdir():
        shutil.copy(file, tmp_path)
    store = write_store(digits_views(["pixels", "zernike"]), tmp_path / "digits.zarr")
    (tmp_path / "nightly.toml").write_text(
        f'[data]\nsource = "{store}"\n[cluster]\nn_clusters = 10\nscale = "standard"\nalpha = 1.0\n'
        f'n_neighbors = 9\nmax_iter = 30\n[output]\ndirectory = "{tmp_path / "run"}"\n'
    )
    make_certificates(tmp_path / "certs")
    return tmp_path


def submit(node: SlurmNode, home: Path, *options: str, of_the_run: tuple[str, ...] = ()) -> str:
    variables: dict[str, Any] = {
        "MSCAM_JOBS": "1",
        "MSCAM_CORES": "1",
        "MSCAM_MEMORY": "2GiB",
        "MSCAM_PYTHON": sys.executable,
        **script_environment(),
    }
    command = ("sbatch", "--parsable", *options, "nightly.sbatch", *of_the_run)
    return node.run(*command, cwd=home, **variables).strip()


def log_of(home: Path, number: str) -> str:
    file = home / f"mscam-nightly-{number}.log"
    return file.read_text() if file.exists() else ""


def wait_for_line(home: Path, number: str, text: str) -> None:
    deadline = time.monotonic() + 120
    while text not in log_of(home, number):
        assert time.monotonic() < deadline, log_of(home, number)
        time.sleep(0.2)


def state(home: Path) -> str:
    return str(json.loads((home / "run/run.json").read_text())["state"])


def test_a_run_whose_worker_job_is_cancelled_finishes_on_another(
    node: SlurmNode, home: Path
) -> None:
    number = submit(node, home)
    wait_for_line(home, number, "iteration 1/")
    (worker,) = node.worker_jobs()
    assert plain_http_doors(node) == []
    node.run("scancel", worker)
    job = node.wait(number, "COMPLETED", "FAILED", timeout_s=240)
    assert (job["JobState"], job["ExitCode"]) == ("COMPLETED", "0:0"), log_of(home, number)
    assert state(home) == "finished"
    deadline = time.monotonic() + 60
    while node.worker_jobs():
        assert time.monotonic() < deadline
        time.sleep(0.5)


def test_scancel_stops_the_run_for_good(node: SlurmNode, home: Path) -> None:
    number = submit(node, home)
    wait_for_line(home, number, "iteration 1/")
    node.run("scancel", "--name=mscam-nightly")
    job = node.wait(number, "CANCELLED", "FAILED", "COMPLETED", timeout_s=90)
    assert (job["JobState"], job["Restarts"]) == ("CANCELLED", "0")
    deadline = time.monotonic() + 30
    while state(home) != "interrupted":
        assert time.monotonic() < deadline, log_of(home, number)
        time.sleep(0.5)
    time.sleep(5)
    assert node.job(number)["JobState"] == "CANCELLED"


def plain_http_doors(node: SlurmNode) -> list[str]:
    """Addresses beyond loopback on which a Python program answers HTTP that is not encrypted."""
    doors = [
        words[3]
        for words in map(str.split, node.run("ss", "-Htlnp").splitlines())
        if "python" in words[-1] and not words[3].startswith(("127.", "[::1]"))
    ]
    assert doors, "the scheduler and the worker listen for each other"
    return [door for door in doors if answers_http(node, door.replace("0.0.0.0", "127.0.0.1"))]


ASK = """
import http.client, sys
connection = http.client.HTTPConnection(sys.argv[1], timeout=5)
connection.request("GET", "/status")
connection.getresponse()
"""


def answers_http(node: SlurmNode, door: str) -> bool:
    try:
        node.run(sys.executable, "-c", ASK, door)
    except RuntimeError:  # a TLS alert is no HTTP
        return False
    return True


def wait_for_the_requeue(node: SlurmNode, home: Path, number: str) -> None:
    deadline = time.monotonic() + 120
    while (job := node.job(number))["Restarts"] == "0":
        assert job["JobState"] in ("RUNNING", "COMPLETING", "PENDING"), log_of(home, number)
        assert time.monotonic() < deadline, job
        time.sleep(0.5)
    assert job["JobState"] == "PENDING"


def finishes_where_it_was(node: SlurmNode, home: Path, number: str) -> None:
    job = node.wait(number, "COMPLETED", "FAILED", timeout_s=300)
    assert (job["JobState"], job["ExitCode"]) == ("COMPLETED", "0:0"), log_of(home, number)
    record = json.loads((home / "run/run.json").read_text())
    assert record["state"] == "finished"
    assert record["resumed"]


def test_the_end_of_its_time_puts_a_job_back_into_the_queue(node: SlurmNode, home: Path) -> None:
    number = submit(
        node, home, "--time=1", "--signal=B:USR1@20", of_the_run=("--workers-timeout", "300")
    )
    node.wait(number, "RUNNING", timeout_s=60)
    node.run("scontrol", "update", "PartitionName=main", "State=DOWN")  # the run waits for workers
    try:
        wait_for_the_requeue(node, home, number)
        assert state(home) == "interrupted"
        node.run("scancel", number)
    finally:
        node.run("scontrol", "update", "PartitionName=main", "State=UP")


def test_a_run_whose_workers_are_all_preempted_is_requeued_and_resumes(
    node: SlurmNode, home: Path
) -> None:
    number = submit(node, home, of_the_run=("--workers-timeout", "5"))
    wait_for_line(home, number, "iteration 1/")
    node.run("scontrol", "update", "PartitionName=main", "State=DOWN")  # no job starts
    try:
        node.run("scancel", *node.worker_jobs())
        wait_for_the_requeue(node, home, number)
        assert state(home) == "failed"
    finally:
        node.run("scontrol", "update", "PartitionName=main", "State=UP")
    finishes_where_it_was(node, home, number)


def test_everything_in_one_allocation(node: SlurmNode, home: Path) -> None:
    number = submit(node, home, "--ntasks=3", "--cpus-per-task=1", "--mem=6G")
    job = node.wait(number, "COMPLETED", "FAILED", timeout_s=240)
    assert (job["JobState"], job["ExitCode"]) == ("COMPLETED", "0:0"), log_of(home, number)
    record = json.loads((home / "run/run.json").read_text())
    assert record["state"] == "finished"
    assert record["executor"] == "1 worker(s) in the tasks of a SLURM job"
