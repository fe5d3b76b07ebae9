"""Job scripts of the batch schedulers that dask-jobqueue knows, as it makes them of a pipeline's keys.

PBS and LSF themselves run in no test; the others do.
"""

from __future__ import annotations

import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import dask.config
import pytest

from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.cluster import configuration, new_cluster, start_errors
from mscam_dask.pipeline.settings import ExecutionTable
from tests.messages import raises

pytest.importorskip("dask_jobqueue")

QUEUE = {"queue": "long", "walltime": "08:00:00"}


@pytest.mark.parametrize(
    ("name", "options", "lines"),
    [
        ("pbs", QUEUE,
         "#PBS -q long;#PBS -l select=1:ncpus=2:mem=4096MB;#PBS -l walltime=08:00:00"),
        ("sge", {**QUEUE, "job_extra_directives": ["-pe smp 2"]},
         "#$ -q long;#$ -l h_rt=08:00:00;#$ -pe smp 2"),
        ("lsf", {**QUEUE, "lsf_units": "mb"},
         "#BSUB -q long;#BSUB -n 2;#BSUB -M 4295;#BSUB -W 08:00:00"),
        ("oar", {**QUEUE, "memory_per_core_property_name": "memcore"},
         "#OAR -q long;#OAR -l /nodes=1/core=2,walltime=08:00:00;#OAR -p memcore>=2048"),
        ("slurm", QUEUE,
         "#SBATCH -p long;#SBATCH --cpus-per-task=2;#SBATCH --mem=4G;#SBATCH -t 08:00:00"),
        ("htcondor", {"disk": "1GB"},
         "MY.DaskWorkerCores = 2;MY.DaskWorkerMemory = 4294967296;Executable = /bin/sh"),
    ],
)  # fmt: skip
def test_a_job_asks_for_its_resources_and_its_worker_is_encrypted_and_leaves_in_time(
    tmp_path: Path, name: str, options: dict[str, Any], lines: str
) -> None:
    execution = ExecutionTable(
        cluster=name, threads=2, memory_limit="4 GiB", lifetime="7 hours", lifetime_stagger="20m",
        cluster_options={**options, "interface": "lo"},
    )  # fmt: skip
    shared = {f"jobqueue.{name}.shared-temp-directory": str(tmp_path)}
    with dask.config.set(shared), new_cluster(execution, name) as cluster:
        script = cluster.job_script()
        assert set(lines.split(";")) <= set(script.splitlines()), script
        assert "export OPENBLAS_NUM_THREADS=1" in script
        for words in (
            " tls://127.0.0.1:",
            "--nthreads 2 --memory-limit 4.00GiB",
            "--dashboard-address 127.0.0.1:0",
            "--lifetime 25200s --lifetime-stagger 1200s",
            f"--tls-key {tmp_path}/",
        ):
            assert words in script, script
        keys = list(tmp_path.glob(".dask-jobqueue.*"))
        assert keys
        assert all(key.stat().st_mode & 0o077 == 0 for key in keys), "only the user can read them"


def test_a_computer_without_the_commands_of_the_scheduler_is_a_wrong_setting() -> None:
    with raises(ConfigurationError, "'lsf'", "no-bsub-here"), start_errors("lsf"):
        subprocess.run(["no-bsub-here"], check=True)


def test_the_link_to_the_dashboard_answers_though_workers_use_another_address(
    tmp_path: Path,
) -> None:
    execution = ExecutionTable(
        cluster="sge", threads=1, memory_limit="1 GiB",
        cluster_options={"scheduler_options": {"host": "127.0.0.2"}},
    )  # fmt: skip
    shared = {"jobqueue.sge.shared-temp-directory": str(tmp_path)}
    with (
        dask.config.set(shared),
        dask.config.set(configuration(execution, "sge")),
        new_cluster(execution, "sge") as cluster,
    ):
        assert cluster.scheduler_address.startswith("tls://127.0.0.2:")
        health = cluster.dashboard_link.replace("/status", "/health")
        with urllib.request.urlopen(health, timeout=10) as answer:
            assert answer.read() == b"ok"


@pytest.mark.parametrize(
    ("options", "template"),
    [
        ({"scheduler_options": {"dashboard_address": ":8787"}}, "{scheme}://{host}:{port}/status"),
        ({}, "/proxy/{port}/status"),
    ],
)
def test_a_dashboard_elsewhere_and_a_link_of_a_site_are_kept(
    options: dict[str, Any], template: str
) -> None:
    execution = ExecutionTable(cluster="slurm", cluster_options=options)
    with (
        dask.config.set({"distributed.dashboard.link": template}),
        dask.config.set(configuration(execution, "slurm")),
    ):
        assert dask.config.get("distributed.dashboard.link") == template
