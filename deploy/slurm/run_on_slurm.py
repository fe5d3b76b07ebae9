"""Run a pipeline on workers that SLURM starts, through dask-jobqueue.

    python run_on_slurm.py PIPELINE.toml --jobs 4 --cores 8 --memory 32GiB --tls certs [-- OPTION...]

The scheduler lives in this process, each worker job is one `sbatch`; the run itself is
`mscam-dask run PIPELINE.toml --scheduler tls://...`, and its exit code is ours. Options after -- go
to it. What SLURM itself needs (partition, account, walltime, interface) comes from
slurm.dask.yaml or from dask's own configuration; README.md.

Worker jobs that end while the run goes on (cancelled, preempted, out of time) are replaced by new
ones. All connections are encrypted, and the dashboards are on the loopback interface of each node.

A SIGTERM (which nightly.sbatch sends before the time is over) is passed on to the run, which writes
its last checkpoint and ends with 75. Before the first worker has started it ends this program
itself, also with 75; in both cases the worker jobs are cancelled.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

import dask.config
import yaml
from dask_jobqueue import SLURMCluster
from distributed import Client, Security

FILES = ("ca.pem", "scheduler.pem", "scheduler-key.pem", "worker.pem", "worker-key.pem")
CLIENT = ("client.pem", "client-key.pem")
EXIT_LATER = 75
PROLOGUE = "jobqueue.slurm.job-script-prologue"
LOOPBACK = "127.0.0.1:0"
REPLACE_EVERY = "5 s"
THREADS = "export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1"


class Termination:
    """Handler of SIGTERM: it ends this program with 75, or the run once there is one."""

    def __init__(self) -> None:
        self._has_come = False
        self._is_starting = False
        self._child: subprocess.Popen[bytes] | None = None

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        is_first, self._has_come = not self._has_come, True
        if self._child is not None:
            self._child.send_signal(number)
        elif is_first and not self._is_starting:  # a second one must not disturb the closing
            sys.stderr.write("Stopped before a worker joined; worker jobs are cancelled.\n")
            raise SystemExit(EXIT_LATER)

    def run(self, command: list[str]) -> int:
        """Run a command; its exit code, 75 when the signal ended it."""
        self._is_starting = True  # a signal now waits until there is somebody to pass it on to
        with subprocess.Popen(command) as self._child:
            if self._has_come:
                self._child.send_signal(signal.SIGTERM)
            code = self._child.wait()
        return EXIT_LATER if code == -signal.SIGTERM else code


def arguments(given: list[str]) -> argparse.Namespace:
    """Read the command line."""
    ours, _, theirs = "\0".join(given).partition("\0--\0")
    parser = argparse.ArgumentParser(prog="run_on_slurm.py", description=__doc__.splitlines()[0])
    parser.add_argument("pipeline", type=Path)
    parser.add_argument("--jobs", type=int, default=2, help="worker jobs, each one node or less")
    parser.add_argument("--cores", type=int, default=4, help="of a job; one worker thread each")
    parser.add_argument("--memory", default="16GiB", help="of a job")
    parser.add_argument(
        "--tls", type=Path, required=True, help="directory that mscam-dask tls made"
    )
    parser.add_argument("--config", type=Path, help="YAML with [jobqueue.slurm] settings")
    parser.add_argument("--wait", type=float, default=3600, help="seconds for the first worker")
    options = parser.parse_args(ours.split("\0") if ours else [])
    options.theirs = theirs.split("\0") if theirs else []
    missing = [name for name in (*FILES, *CLIENT) if not (options.tls / name).is_file()]
    if missing:
        parser.error(f"{options.tls} lacks {', '.join(missing)}; mscam-dask tls DIR makes them")
    if not options.pipeline.is_file():
        parser.error(f"there is no pipeline {options.pipeline}")
    if options.jobs < 1 or options.cores < 1:
        parser.error("--jobs and --cores are at least 1")
    return options


def security(tls: Path) -> Security:
    """Return encryption for scheduler and workers; the files lie where all nodes see them."""
    root = tls.absolute()
    return Security(
        require_encryption=True,
        tls_ca_file=str(root / "ca.pem"),
        tls_scheduler_cert=str(root / "scheduler.pem"),
        tls_scheduler_key=str(root / "scheduler-key.pem"),
        tls_worker_cert=str(root / "worker.pem"),
        tls_worker_key=str(root / "worker-key.pem"),
        tls_client_cert=str(root / "client.pem"),
        tls_client_key=str(root / "client-key.pem"),
    )


def open_cluster(options: argparse.Namespace) -> SLURMCluster:
    """Start the scheduler here; worker jobs are submitted afterwards."""
    return SLURMCluster(
        cores=options.cores,
        processes=options.cores,
        memory=options.memory,
        security=security(options.tls),
        protocol="tls://",
        scheduler_options={
            "dashboard_address": LOOPBACK,
            **(dask.config.get("jobqueue.slurm.scheduler-options", None) or {}),
        },
        job_script_prologue=[THREADS, *(dask.config.get(PROLOGUE, None) or ())],
        worker_extra_args=["--death-timeout", "300", "--dashboard-address", LOOPBACK],
    )


def command(options: argparse.Namespace, address: str) -> list[str]:
    """Return the command that runs the pipeline against the scheduler."""
    tls = options.tls.absolute()
    return [
        *(sys.executable, "-m", "mscam_dask.cli", "run", str(options.pipeline), "--plain"),
        *("--scheduler", address, "--tls-ca", str(tls / "ca.pem")),
        *("--tls-cert", str(tls / "client.pem"), "--tls-key", str(tls / "client-key.pem")),
        *options.theirs,
    ]


def main(given: list[str]) -> int:
    """Start the cluster, run, close it."""
    options = arguments(given)
    termination = Termination()
    signal.signal(signal.SIGTERM, termination)
    if options.config is not None:
        dask.config.update(dask.config.config, yaml.safe_load(options.config.read_text()))
    with open_cluster(options) as cluster:
        cluster.scale(jobs=options.jobs)
        # the number stays the same; it is this that replaces jobs that were lost
        cluster.adapt(minimum_jobs=options.jobs, maximum_jobs=options.jobs, interval=REPLACE_EVERY)
        try:
            with Client(cluster, set_as_default=False) as client:
                client.wait_for_workers(1, timeout=options.wait)
        except TimeoutError:
            sys.stderr.write(
                f"No worker job started within {options.wait:g} s: SLURM has no room, or the jobs "
                "end at once (their output is where slurm.dask.yaml says). Try again later.\n"
            )
            return EXIT_LATER
        return termination.run(command(options, cluster.scheduler_address))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
