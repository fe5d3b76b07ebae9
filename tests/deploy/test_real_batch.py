"""Runs on a real Grid Engine and on a real OAR, of one node each."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mscam_dask.data.datasets import digits_views
from mscam_dask.data.store.write import write_store
from mscam_dask.pipeline.config.toml_document import toml_text
from tests.deploy.files import script_environment
from tests.deploy.machines import wait_until
from tests.deploy.oar_node import OarNode, oar_node
from tests.deploy.sge_node import SgeNode, sge_node

pytest.importorskip("dask_jobqueue")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module", params=["sge", pytest.param("oar", marks=pytest.mark.machines)])
def node(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SgeNode | OarNode]:
    root = tmp_path_factory.mktemp(request.param)
    with sge_node(root) if request.param == "sge" else oar_node(root) as started:
        yield started


def pipeline_in(node: SgeNode | OarNode, home: Path, **options: Any) -> Path:
    store = write_store(digits_views(), home / "digits.zarr")
    pipeline: dict[str, dict[str, Any]] = {
        "data": {"source": str(store)},
        "cluster": {
            "n_clusters": 10, "scale": "standard", "alpha": 1.0, "n_neighbors": 9, "max_iter": 30
        },
        "execution": {
            "cluster": node.kind,
            "workers": 1,
            "threads": 1,
            "memory_limit": "2 GiB",
            "workers_timeout": 180.0,
            "cluster_options": {
                "log_directory": str(home), **node.cluster_options, **options
            },
        },
        "output": {"directory": str(home / "run")},
    }  # fmt: skip
    file = home / "p.toml"
    file.write_text(toml_text(pipeline))
    return file


def command(node: SgeNode | OarNode, file: Path) -> list[str]:
    here = f"PWD={file.parent}"  # that OAR takes for the directory of a job
    return node.command(
        "env", here, sys.executable, "-m", "mscam_dask.cli", "run", file, "--plain", cwd=file.parent
    )


def test_a_run_whose_worker_job_is_deleted_finishes_on_another(
    node: SgeNode | OarNode, tmp_path: Path
) -> None:
    file, log = pipeline_in(node, tmp_path), tmp_path / "log"
    environment = {**node.environment, **script_environment()}
    with (
        log.open("wb") as out,
        subprocess.Popen(command(node, file), env=environment, stdout=out, stderr=out) as driver,
    ):
        wait_until(lambda: " start: " in log.read_text(), log.read_text)
        ((job, state),) = node.jobs().items()
        assert state == "running"
        node.delete(job)
        assert driver.wait(240) in (0, 5), log.read_text()
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert (record["state"], record["executor"]) == (
        "finished",
        f"1 worker of a {node.kind} cluster",
    )
    node.wait(0, timeout_s=60)
    assert node.n_past_jobs(tmp_path) == 2, "a worker job took the place of the other"


def test_a_run_that_is_stopped_leaves_no_job(node: SgeNode | OarNode, tmp_path: Path) -> None:
    file, log = pipeline_in(node, tmp_path), tmp_path / "log"
    environment = {**node.environment, **script_environment()}
    with (
        log.open("wb") as out,
        subprocess.Popen(command(node, file), env=environment, stdout=out, stderr=out) as driver,
    ):
        wait_until(lambda: "iteration 1/" in log.read_text(), log.read_text)
        node.run("pkill", "-TERM", "-f", f"mscam_dask.cli run {file}")
        assert driver.wait(60) == 75, log.read_text()
    node.wait(0, timeout_s=60)
    resumed = subprocess.run(
        command(node, file),
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert resumed.returncode in (0, 5), resumed.stderr
    assert json.loads((tmp_path / "run/run.json").read_text())["resumed"]


def test_a_queue_that_does_not_exist_is_a_wrong_setting(
    node: SgeNode | OarNode, tmp_path: Path
) -> None:
    file = pipeline_in(node, tmp_path, queue="missing.q")
    environment = {**node.environment, **script_environment()}
    done = subprocess.run(
        command(node, file),
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (2, 4), done.stdout + done.stderr
    assert "missing.q" in done.stderr
    assert node.jobs() == {}
