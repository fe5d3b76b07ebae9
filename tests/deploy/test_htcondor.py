"""Runs on a real pool of HTCondor on one machine."""

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
from tests.deploy.files import ROOT, script_environment
from tests.deploy.machines import Machine, copied, machine, marks, pivot_root, tree, wait_until

pytest.importorskip("dask_jobqueue")

pytestmark = marks

USER = "alice"  # HTCondor runs no jobs of root
POOL = """
use ROLE: CentralManager
use ROLE: Submit
use ROLE: Execute
use SECURITY: HOST_BASED
CONDOR_HOST = 127.0.0.1
COLLECTOR_HOST = 127.0.0.1
NETWORK_INTERFACE = 127.0.0.1
BIND_ALL_INTERFACES = False
ALLOW_WRITE = *
ALLOW_READ = *
ALLOW_DAEMON = *
ALLOW_NEGOTIATOR = *
ALLOW_ADMINISTRATOR = *
SEC_DEFAULT_AUTHENTICATION = OPTIONAL
SEC_DEFAULT_AUTHENTICATION_METHODS = FS, CLAIMTOBE
NUM_CPUS = 4
MEMORY = 8000
NEGOTIATOR_INTERVAL = 5
NEGOTIATOR_CYCLE_DELAY = 2
SCHEDD_INTERVAL = 5
UID_DOMAIN = vm
FILESYSTEM_DOMAIN = vm
DISCARD_SESSION_KEYRING_ON_STARTUP = False
BASE_CGROUP =
CREATE_CGROUP_WITHOUT_ROOT = False
"""


@pytest.fixture(scope="module")
def pool() -> Iterator[Machine]:
    made = tree(
        "htcondor", "trixie", ("condor", "iproute2", "libreadline8t64", "libssl3t64", "procps")
    )

    def up(started: Machine) -> bool:
        return "slot1" in started.run("condor_status", "-af", "Name")

    with copied(made) as root:
        (root / "etc/condor/config.d/99-pool").write_text(POOL)
        (root / "etc/hosts").write_text("127.0.0.1 localhost vm\n")
        start = (
            pivot_root(root, ROOT, Path(sys.prefix), Path(sys.base_prefix))
            + f"hostname vm\nchmod 755 /root\nuseradd --create-home {USER}\n"
            + f"install -d -o {USER} /home/{USER}/logs\ninstall -d -o condor /run/lock/condor /run/condor\nexec condor_master -f"
        )
        with machine(start, root.parent, up, environment=script_environment()) as started:
            yield started


def test_a_run_whose_worker_job_is_removed_finishes_on_another(pool: Machine) -> None:
    home = Path(f"/proc/{pool.pid}/root/home/{USER}")
    store = write_store(digits_views(["pixels", "zernike"]), home / "digits.zarr")
    pipeline: dict[str, dict[str, Any]] = {
        "data": {"source": f"/home/{USER}/{store.name}"},
        "cluster": {
            "n_clusters": 10, "scale": "standard", "alpha": 1.0, "n_neighbors": 9, "max_iter": 30
        },
        "execution": {
            "cluster": "htcondor",
            "workers": 1,
            "threads": 1,
            "memory_limit": "2 GiB",
            "workers_timeout": 180.0,
            "cluster_options": {
                "disk": "100MB", "interface": "lo", "log_directory": f"/home/{USER}/logs"
            },
        },
        "output": {"directory": f"/home/{USER}/run"},
    }  # fmt: skip
    (home / "p.toml").write_text(toml_text(pipeline))
    log = home / "log"
    log.touch()
    pool.run("chown", "-R", USER, f"/home/{USER}")
    line = f"cd && exec {sys.executable} -m mscam_dask.cli run p.toml --plain >log 2>&1"
    su = ("runuser", "--user", USER, "--", "env", f"HOME=/home/{USER}")
    with subprocess.Popen(
        pool.command(*su, "sh", "-c", line), env=dict(pool.environment)
    ) as driver:
        wait_until(lambda: "iteration 1/" in log.read_text(), log.read_text, timeout_s=240)
        (job,) = pool.run("condor_q", "-allusers", "-af", "ClusterId").split()
        pool.run("condor_rm", job)
        assert driver.wait(300) in (0, 5), log.read_text()
    record = json.loads((home / "run/run.json").read_text())
    assert record["executor"] == "1 worker of a htcondor cluster"
    assert record["state"] == "finished"
    wait_until(
        lambda: not pool.run("condor_q", "-allusers", "-af", "ClusterId").split(), log.read_text
    )
    past = pool.run("condor_history", "-af", "ClusterId").split()
    assert len(set(past)) == 2, "a worker job took the place of the other"
