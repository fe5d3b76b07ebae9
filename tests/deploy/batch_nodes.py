"""A real SLURM of one node, in namespaces: nothing outside of them is changed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.processes import needed, text_of

# With the loopback interface alone batch schedulers find no address for their own name.
_NODE_1 = """
set -eu
ip link set lo up
hostname node1
ip link add v0 type veth peer name v1
ip addr add 10.99.0.1/24 dev v0
ip link set v0 up
ip link set v1 up
printf '127.0.0.1 localhost\\n10.99.0.1 node1\\n' >{root}/hosts
mount --bind {root}/hosts /etc/hosts
"""


class Machine:
    """A machine that runs: its first process, and the environment of its programs."""

    def __init__(self, pid: int, environment: Mapping[str, str]) -> None:
        self.pid = pid
        self.environment = environment

    def command(self, *command: str | Path, cwd: Path | str = "/") -> list[str]:
        """Return the command line that runs a command inside."""
        enter = ["nsenter", "--target", str(self.pid), "--all", f"--wdns={cwd}"]
        return [*enter, *map(str, command)]

    def run(self, *command: str | Path, cwd: Path | str = "/", **variables: str) -> str:
        """Run a command inside; its standard output."""
        done = subprocess.run(
            self.command(*command, cwd=cwd), env={**self.environment, **variables},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"{command}: {done.returncode} {done.stdout}{done.stderr}")
        return done.stdout

    def slurm_job(self, number: str) -> dict[str, str]:
        """Return what SLURM says of a job."""
        text = self.run("scontrol", "--oneliner", "show", "job", number)
        return dict(part.split("=", 1) for part in text.split() if "=" in part)

    def slurm_workers(self) -> list[str]:
        """Return the worker jobs of SLURM that run."""
        return self.run(
            "squeue", "--noheader", "--name=mscam-worker", "--states=R", "--format=%i"
        ).split()


@contextmanager
def _machine(
    start: str, root: Path, ready: Callable[[Machine], bool], environment: Mapping[str, str]
) -> Iterator[Machine]:
    """Run a shell script as the first process of its own namespaces; skips where that is forbidden."""
    if os.geteuid() != 0:
        pytest.skip("namespaces need root")
    names = ["--mount", "--uts", "--ipc", "--pid", "--net", "--fork", "--mount-proc"]
    script = _NODE_1.format(root=root) + start
    log = root / "start.log"
    with log.open("wb") as out, subprocess.Popen(
        ["unshare", *names, "--kill-child", "bash", "-c", script],
        env=dict(environment), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
    ) as process:  # fmt: skip
        try:
            deadline = time.monotonic() + 90
            while True:
                if process.poll() is not None:
                    if "Operation not permitted" in text_of(log):
                        pytest.skip(f"namespaces are not permitted: {text_of(log)}")
                    raise RuntimeError(f"the machine did not start: {text_of(log)}")
                with suppress(RuntimeError, IndexError):
                    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
                    started = Machine(int(children.split()[0]), environment)
                    if ready(started):
                        break
                assert time.monotonic() < deadline, text_of(log)
                time.sleep(0.5)
            yield started
        finally:
            process.send_signal(signal.SIGKILL)  # and with it all processes inside


_SLURM = """
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

_START_SLURM = """
head -c 1024 /dev/urandom >{root}/munge.key
chmod 400 {root}/munge.key
munged --force --key-file={root}/munge.key --socket={root}/munge.socket \\
  --pid-file={root}/munge.pid --log-file={root}/munge.log --seed-file={root}/munge.seed
slurmctld
slurmd
exec sleep infinity
"""


@contextmanager
def slurm_node(root: Path) -> Iterator[Machine]:
    """Start SLURM with its files in `root`; skips where that is not possible."""
    needed("ip", "munged", "slurmctld", "slurmd", "sbatch", package="slurm-wlm munge iproute2")
    for name in ("state", "spool"):
        (root / name).mkdir()
    (root / "slurm.conf").write_text(_SLURM.format(root=root))

    def ready(started: Machine) -> bool:
        return "idle" in started.run("sinfo", "--noheader", "--format=%t")

    environment = {**os.environ, "SLURM_CONF": str(root / "slurm.conf")}
    with _machine(_START_SLURM.format(root=root), root, ready, environment) as node:
        yield node
