"""Dask clusters for tests: on loopback, any free port, gone at the end of the block."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import dask
import psutil
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context

from mscam_dask.engine import fit
from mscam_dask.pipeline.tls import CertificateSet
from tests.processes import started, wait_until


@functools.cache
def _prepare_forks() -> None:
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        context = get_mp_context()
    context.set_forkserver_preload(["distributed", fit.__name__])


@contextmanager
def local_client(
    n_workers: int, *, threads_per_worker: int = 1, processes: bool = True, **options: Any
) -> Iterator[Client]:
    """A client of a new cluster; `options` go to LocalCluster.

    Worker processes are forked from one that has imported everything, which takes a tenth of the
    time of starting them afresh, as `mscam-dask run` does (tests/cli/test_run.py has that).
    """
    _prepare_forks()
    options = {"protocol": "tcp", "dashboard_address": "127.0.0.1:0"} | options
    with (
        dask.config.set(
            {
                "distributed.deploy.lost-worker-timeout": "120s",
                "distributed.worker.multiprocessing-method": "forkserver",
            }
        ),
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=threads_per_worker,
            processes=processes,
            host="127.0.0.1",
            **options,
        ) as cluster,
        # as the default client it would change how xarray and Dask behave in other tests
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def tls_options(made: CertificateSet, role: str, authority: str = "--tls-ca-file") -> list[str]:
    """Options of a command of Dask, or of ours, for encryption with these certificates."""
    files = {authority: made.certificate("ca"), "--tls-cert": made.certificate(role)}
    return [str(part) for pair in {**files, "--tls-key": made.key(role)}.items() for part in pair]


@contextmanager
def scheduler_process(
    directory: Path, *arguments: str
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A `dask scheduler` of its own, as people start it, and its address."""
    file = directory / "scheduler.json"
    file.unlink(missing_ok=True)
    command = ["scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-show"]
    command += ["--scheduler-file", str(file), *arguments]
    with _dask(command, directory) as process:
        yield process, wait_until(lambda: _address(file), directory / "log", alive=process)


def _address(file: Path) -> str:
    with suppress(FileNotFoundError, ValueError):  # not there, or not whole yet
        return str(json.loads(file.read_bytes())["address"])
    return ""


@contextmanager
def worker_process(
    address: str, directory: Path, *arguments: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A `dask worker` without nanny: nothing starts it again."""
    command = ["worker", address, "--no-nanny", "--nthreads", "1", "--no-dashboard"]
    local = ["--local-directory", str(directory)]
    with _dask([*command, *local, *arguments], directory) as process:
        yield process


def _dask(arguments: list[str], directory: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
    command = (sys.executable, "-m", "dask", *arguments)
    return started(*command, log=directory / "log", env=os.environ, ends_by=(signal.SIGKILL,))


def listening(pid: int | None = None) -> dict[int, set[str]]:
    """Ports of a process (this one) and its children, with the addresses that each listens on."""
    here = psutil.Process(pid)
    ports: dict[int, set[str]] = {}
    for process in (here, *here.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # ended meanwhile
            for item in process.net_connections(kind="inet"):
                if item.status == psutil.CONN_LISTEN:
                    ports.setdefault(item.laddr.port, set()).add(item.laddr.ip)
    return ports
