"""The files of deploy/slurm on a real SLURM of one node, in namespaces: nothing outside of them is changed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mscam_dask.pipeline.tls import make_certificates
from tests.deploy.files import DEPLOY
from tests.processes import (
    mscam,
    needed,
    run,
    script_environment,
    started,
    text_of,
    wait_until,
    write_pipeline,
)


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

    def slurm_workers(self) -> list[str]:
        """Return the worker jobs of SLURM that run."""
        return self.run(
            "squeue", "--noheader", "--name=mscam-worker", "--states=R", "--format=%i"
        ).split()


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

# With the loopback interface alone batch schedulers find no address for their own name.
_START = """
set -eu
ip link set lo up
hostname node1
ip link add v0 type veth peer name v1
ip addr add 10.99.0.1/24 dev v0
ip link set v0 up
ip link set v1 up
printf '127.0.0.1 localhost\\n10.99.0.1 node1\\n' >{root}/hosts
mount --bind {root}/hosts /etc/hosts
head -c 1024 /dev/urandom >{root}/munge.key
chmod 400 {root}/munge.key
munged --force --key-file={root}/munge.key --socket={root}/munge.socket \\
  --pid-file={root}/munge.pid --log-file={root}/munge.log --seed-file={root}/munge.seed
slurmctld
slurmd
exec sleep infinity
"""

pytest.importorskip("dask_jobqueue")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """SLURM, started by the first process of namespaces of its own."""
    needed("ip", "munged", "slurmctld", "slurmd", "sbatch", package="slurm-wlm munge iproute2")
    if os.geteuid() != 0:
        pytest.skip("namespaces need root")
    root = tmp_path_factory.mktemp("slurm")
    for name in ("state", "spool"):
        (root / name).mkdir()
    (root / "slurm.conf").write_text(_SLURM.format(root=root))
    environment = {**os.environ, "SLURM_CONF": str(root / "slurm.conf")}
    names = ("--mount", "--uts", "--ipc", "--pid", "--net", "--fork", "--mount-proc")
    command = ("unshare", *names, "--kill-child", "bash", "-c", _START.format(root=root))
    log = root / "start.log"
    with started(*command, log=log, env=environment, ends_by=(signal.SIGKILL,)) as process:

        def ready() -> Machine | None:
            if process.poll() is not None and "Operation not permitted" in text_of(log):
                pytest.skip(f"namespaces are not permitted: {text_of(log)}")
            with suppress(RuntimeError, IndexError):
                children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
                machine = Machine(int(children.split()[0]), environment)
                if "idle" in machine.run("sinfo", "--noheader", "--format=%t"):
                    return machine
            return None

        yield wait_until(ready, log, alive=process)


class Job:
    """A run that deploy/slurm/nightly.sbatch starts, submitted from the directory of its page."""

    def __init__(
        self,
        node: Machine,
        home: Path,
        *options: str,
        run: tuple[str, ...] = (),
        more: Mapping[str, str] | None = None,
    ) -> None:
        for file in (DEPLOY / "slurm").iterdir():
            shutil.copy(file, home)
        write_pipeline(home)
        make_certificates(home / "certs")
        variables = {"MSCAM_JOBS": "1", "MSCAM_CORES": "1", "MSCAM_MEMORY": "2GiB", **(more or {})}
        command = ("sbatch", "--parsable", *options, "nightly.sbatch", *run)
        environment = script_environment(MSCAM_PYTHON=sys.executable, **variables)
        self.node, self.home = node, home
        self.number = node.run(*command, cwd=home, **environment).strip()
        self.log = home / f"mscam-nightly-{self.number}.log"

    def state(self) -> dict[str, str]:
        text = self.node.run("scontrol", "--oneliner", "show", "job", self.number)
        return dict(part.split("=", 1) for part in text.split() if "=" in part)

    def record(self) -> Any:
        return json.loads((self.home / "run/run.json").read_text())

    def wait_for_line(self, text: str) -> None:
        wait_until(lambda: text in text_of(self.log), self.log)

    def wait(self, *states: str, seconds: float = 240) -> dict[str, str]:
        wait_until(lambda: self.state()["JobState"] in states, self.log, seconds=seconds)
        return self.state()

    def completes(self) -> None:
        job = self.wait("COMPLETED", "FAILED", seconds=300)
        assert (job["JobState"], job["ExitCode"]) == ("COMPLETED", "0:0"), text_of(self.log)
        assert self.record()["state"] == "finished"

    def is_requeued(self) -> None:
        wait_until(lambda: self.state()["Restarts"] != "0", self.log)
        self.wait("PENDING")


@pytest.fixture
def no_job_starts(node: Machine) -> Iterator[Any]:
    """A function after which the partition starts no job, until the end of the test."""

    def set_partition(state: str = "DOWN") -> None:
        node.run("scontrol", "update", "PartitionName=main", f"State={state}")

    yield set_partition
    set_partition("UP")


def test_a_run_whose_worker_job_is_cancelled_finishes_on_another(
    node: Machine, tmp_path: Path
) -> None:
    job = Job(node, tmp_path)
    job.wait_for_line("iteration 1/")
    (worker,) = node.slurm_workers()
    assert plain_http_doors(node) == []
    node.run("scancel", worker)
    job.completes()
    wait_until(lambda: not node.slurm_workers(), job.log)


ASK = """
import http.client, sys
connection = http.client.HTTPConnection(sys.argv[1], timeout=5)
connection.request("GET", "/status")
connection.getresponse()
"""


def plain_http_doors(node: Machine) -> list[str]:
    """Addresses beyond loopback on which a Python program answers HTTP that is not encrypted."""
    doors = [
        words[3]
        for words in map(str.split, node.run("ss", "-Htlnp").splitlines())
        if "python" in words[-1] and not words[3].startswith(("127.", "[::1]"))
    ]
    assert doors, "the scheduler and the worker listen for each other"

    def answers_http(door: str) -> bool:
        try:
            node.run(sys.executable, "-c", ASK, door.replace("0.0.0.0", "127.0.0.1"))
        except RuntimeError:  # a TLS alert is no HTTP
            return False
        return True

    return [door for door in doors if answers_http(door)]


def test_scancel_stops_the_run_for_good(node: Machine, tmp_path: Path) -> None:
    job = Job(node, tmp_path)
    job.wait_for_line("iteration 1/")
    node.run("scancel", "--name=mscam-nightly")
    ended = job.wait("CANCELLED", "FAILED", "COMPLETED")
    assert (ended["JobState"], ended["Restarts"]) == ("CANCELLED", "0")
    wait_until(lambda: job.record()["state"] == "interrupted", job.log)
    time.sleep(5)
    assert job.state()["JobState"] == "CANCELLED"


def test_the_end_of_its_time_puts_a_job_back_into_the_queue(
    node: Machine, tmp_path: Path, no_job_starts: Any
) -> None:
    job = Job(
        node, tmp_path, "--time=1", "--signal=B:USR1@20", run=("--workers-timeout", "300")
    )  # fmt: skip
    job.wait("RUNNING")
    no_job_starts()  # the run waits for workers
    job.is_requeued()
    assert job.record()["state"] == "interrupted"
    node.run("scancel", job.number)


def test_a_run_whose_workers_are_all_preempted_is_requeued_and_resumes(
    node: Machine, tmp_path: Path, no_job_starts: Any
) -> None:
    job = Job(node, tmp_path, run=("--workers-timeout", "5"))
    job.wait_for_line("iteration 1/")
    no_job_starts()
    node.run("scancel", *node.slurm_workers())
    job.is_requeued()
    assert job.record()["state"] == "failed"
    no_job_starts("UP")
    job.completes()
    assert job.record()["resumed"]


@pytest.mark.parametrize(
    ("variables", "code", "reason"),
    [
        ({"DASK_JOBQUEUE__SLURM__QUEUE": "nowhere"}, "4:0", "invalid partition"),
        ({"MSCAM_PIPELINE": "/absent.toml"}, "2:0", "/absent.toml"),
    ],
)
def test_a_run_that_would_fail_again_is_not_requeued(
    node: Machine, tmp_path: Path, variables: dict[str, str], code: str, reason: str
) -> None:
    job = Job(node, tmp_path, more=variables)
    ended = job.wait("FAILED", "COMPLETED")
    assert (ended["ExitCode"], ended["Restarts"]) == (code, "0")
    assert reason in " ".join(text_of(job.log).split())


def test_a_controller_that_does_not_answer_is_worth_another_try(
    node: Machine, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "slurm.conf"
    text = Path(node.environment["SLURM_CONF"]).read_text()
    elsewhere.write_text(f"{text}SlurmctldPort=9\nMessageTimeout=2\n")
    file = write_pipeline(tmp_path, cluster="slurm", threads=1, memory_limit="1 GiB")
    command = node.command(*mscam("run", file, "--plain"), cwd=tmp_path)
    done = run(*command, env=script_environment(SLURM_CONF=str(elsewhere)), timeout=200)
    assert done.returncode == 75, done.stderr
    assert "Unable to contact slurm controller" in " ".join(done.stderr.split())


def test_everything_in_one_allocation(node: Machine, tmp_path: Path) -> None:
    job = Job(node, tmp_path, "--ntasks=3", "--cpus-per-task=1", "--mem=6G")
    job.completes()
    assert job.record()["executor"] == "1 worker(s) in the tasks of a SLURM job"
