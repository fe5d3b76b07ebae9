"""A real SLURM cluster of one node, in namespaces of its own: nothing outside of it is changed."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.deploy.machines import Machine, machine, node1

__all__ = ["SlurmNode", "slurm_node"]

_PROGRAMS = ("unshare", "nsenter", "ip", "munged", "slurmctld", "slurmd", "sbatch")

_CONFIGURATION = """
ClusterName=test
SlurmctldHost=node1
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge.socket
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,requeue_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=30
MpiDefault=none
NodeName=node1 CPUs=12 RealMemory=64000 State=UNKNOWN
PartitionName=main Nodes=node1 Default=YES MaxTime=INFINITE State=UP
"""

_START = """
head -c 1024 /dev/urandom >{root}/munge.key
chmod 400 {root}/munge.key
munged --force --key-file={root}/munge.key --socket={root}/munge.socket \\
  --pid-file={root}/munge.pid --log-file={root}/munge.log --seed-file={root}/munge.seed
slurmctld
slurmd
exec sleep infinity
"""


class SlurmNode(Machine):
    """A cluster that runs."""

    def job(self, number: str) -> dict[str, str]:
        """Return what SLURM says of a job."""
        text = self.run("scontrol", "--oneliner", "show", "job", number)
        return dict(part.split("=", 1) for part in text.split() if "=" in part)

    def wait(self, number: str, *states: str, timeout_s: float) -> dict[str, str]:
        """Wait until a job is in one of some states."""
        deadline = time.monotonic() + timeout_s
        while (job := self.job(number))["JobState"] not in states:
            assert time.monotonic() < deadline, job
            time.sleep(0.5)
        return job

    def worker_jobs(self) -> list[str]:
        """Numbers of the worker jobs that run."""
        return self.run(
            "squeue", "--noheader", "--name=mscam-worker", "--states=R", "--format=%i"
        ).split()


@contextmanager
def slurm_node(root: Path) -> Iterator[SlurmNode]:
    """Start the cluster with its files in `root`; skips where that is not possible."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(
            f"{', '.join(missing)} not installed (apt-get install slurm-wlm munge iproute2)"
        )
    for name in ("state", "spool"):
        (root / name).mkdir()
    configuration = root / "slurm.conf"
    configuration.write_text(_CONFIGURATION.format(root=root))
    with machine(
        node1(root) + _START.format(root=root),
        root,
        lambda started: "idle" in started.run("sinfo", "--noheader", "--format=%t"),
        environment={**os.environ, "SLURM_CONF": str(configuration)},
    ) as started:
        yield SlurmNode(started.pid, started.environment)
