"""Whole machines on this one: root trees of Debian, and namespaces in which their programs run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

__all__ = [
    "CLUSTER_TABLE",
    "BatchNode",
    "Machine",
    "base_image",
    "copied",
    "folder",
    "machine",
    "marks",
    "node1",
    "pivot_root",
    "tree",
    "wait_until",
]

marks = [pytest.mark.slow, pytest.mark.machines, pytest.mark.timeout(1500)]

_MIRROR = "http://deb.debian.org/debian"
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")

CLUSTER_TABLE = """\
[cluster]
n_clusters = 10
scale = "standard"
alpha = 1.0
n_neighbors = 9
max_iter = 12
"""

# Libraries that an interpreter of another tree needs.
_PYTHON_NEEDS = (
    "ca-certificates", "libbz2-1.0", "libexpat1", "libffi8", "liblzma5", "libncursesw6", "libsqlite3-0",
    "libuuid1", "zlib1g",
)  # fmt: skip


@dataclass(frozen=True)
class Machine:
    """A machine that runs.

    Attributes
    ----------
    pid
        A process inside its namespaces.
    environment
        For its programs.
    """

    pid: int
    environment: Mapping[str, str]

    def run(
        self, *command: str | Path, cwd: Path | str = "/", timeout: float = 60, **variables: str
    ) -> str:
        """Run a command inside; its standard output."""
        done = self.attempt(*command, cwd=cwd, timeout=timeout, **variables)
        if done.returncode != 0:
            raise RuntimeError(f"{command}: {done.returncode} {done.stdout}{done.stderr}")
        return done.stdout

    def attempt(
        self, *command: str | Path, cwd: Path | str = "/", timeout: float = 60, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside, whatever its exit code."""
        return subprocess.run(
            self.command(*command, cwd=cwd),
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def command(self, *command: str | Path, cwd: Path | str = "/") -> list[str]:
        """Return the command line that runs a command inside."""
        enter = ["nsenter", "--target", str(self.pid), "--all", f"--wdns={cwd}"]
        return [*enter, *map(str, command)]


class BatchNode(Machine):
    """A batch scheduler and its node, which run."""

    def jobs(self) -> dict[str, str]:
        """Return the state of each job by its number."""
        raise NotImplementedError

    def wait(self, n_jobs: int, *, timeout_s: float) -> None:
        """Wait until a number of jobs is left."""
        deadline = time.monotonic() + timeout_s
        while len(jobs := self.jobs()) != n_jobs:
            assert time.monotonic() < deadline, jobs
            time.sleep(0.5)


@contextmanager
def machine(
    start: str,
    root: Path,
    ready: Callable[[Machine], bool],
    *,
    environment: Mapping[str, str],
    network: bool = True,
    depth: int = 1,
    timeout_s: float = 90,
) -> Iterator[Machine]:
    """Start a shell script as the first process of its own namespaces; skips where that is forbidden.

    `network=False` shares the network of this computer, which registries are reached by. `depth` is how
    many generations below the first process the machine is: an init system in a container has two.
    """
    if os.geteuid() != 0:
        pytest.skip("namespaces need root")
    names = ["--mount", "--uts", "--ipc", "--pid", *(["--net"] if network else [])]
    log = root / "start.log"
    with log.open("wb") as out, subprocess.Popen(
        ["unshare", *names, "--fork", "--mount-proc", "--kill-child", "bash", "-c", start],
        env=dict(environment), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
    ) as process:  # fmt: skip
        try:
            deadline = time.monotonic() + timeout_s
            while True:
                if process.poll() is not None:
                    text = log.read_text(errors="replace").strip()
                    if "Operation not permitted" in text:
                        pytest.skip(f"namespaces are not permitted: {text}")
                    raise RuntimeError(f"the machine did not start: {text}")
                with suppress(RuntimeError, IndexError):
                    started = Machine(_descendant(process.pid, depth), environment)
                    if ready(started):
                        break
                assert time.monotonic() < deadline, log.read_text(errors="replace")
                time.sleep(0.5)
            yield started
        finally:
            process.send_signal(signal.SIGKILL)  # and with it all processes inside


def _descendant(pid: int, depth: int) -> int:
    for _ in range(depth):
        pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    return pid


def wait_until(
    condition: Callable[[], bool], why: Callable[[], str], timeout_s: float = 120
) -> None:
    """Wait until a condition holds, and otherwise fail with a text."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, why()
        time.sleep(0.5)


def pivot_root(root: Path, *bound: Path) -> str:
    """Return a shell script that makes a tree the root, with directories of this computer in their places."""
    lines = [
        "set -eu",
        f"mount --bind {root} {root}",
        f"cd {root}",
        "mkdir -p oldroot dev proc sys run tmp",
        "mount --rbind /dev dev",
        "mount --rbind /sys sys",
        "mount -t tmpfs tmpfs run",
    ]
    for place in bound:
        lines += [f"mkdir -p .{place}", f"mount --rbind {place} .{place}"]
    lines += ["pivot_root . oldroot", "cd /", "mount -t proc proc /proc", "umount -l /oldroot"]
    return "\n".join([*lines, "ip link set lo up", ""])


def node1(root: Path) -> str:
    """Return a shell script that gives a machine the name node1 and an address beyond loopback.

    With the loopback interface alone batch schedulers find no address for their own name.
    """
    return f"""
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


def folder() -> Path:
    """Where trees and programs are kept from one run of the tests to the next."""
    named = os.environ.get("MSCAM_TEST_MACHINES")
    if not named:
        pytest.skip("MSCAM_TEST_MACHINES (a directory for root trees) is not set")
    return Path(named)


def tree(name: str, suite: str, packages: Sequence[str]) -> Path:
    """A root tree of Debian, made once."""
    made = folder() / name
    if not made.is_dir():
        if shutil.which("mmdebstrap") is None:
            pytest.skip("mmdebstrap is not installed (apt-get install mmdebstrap)")
        partial = made.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        wanted = ",".join((*_PYTHON_NEEDS, *packages))
        command = [
            "mmdebstrap",
            "--variant=minbase",
            f"--include={wanted}",
            suite,
            str(partial),
            _MIRROR,
        ]
        subprocess.run(command, check=True, capture_output=True)
        shutil.copy(_CERTIFICATES, partial / "etc/ssl/certs")
        partial.rename(made)
    return made


@contextmanager
def copied(made: Path) -> Iterator[Path]:
    """A copy of a tree for one use, on the disk: /tmp may be memory."""
    with tempfile.TemporaryDirectory(dir=folder(), prefix="run-") as scratch:
        root = Path(scratch) / "root"
        subprocess.run(["cp", "-a", made, root], check=True)
        yield root


def base_image() -> Path:
    """A stand-in for python:3.13-slim-bookworm, as a tar: Debian and this computer's Python 3.13."""
    made = folder() / "python-3.13-slim-bookworm.tar"
    if not made.is_file():
        pythons = sorted(Path.home().glob(".pyenv/versions/3.13*"))
        if not pythons:
            pytest.skip("there is no Python 3.13 in ~/.pyenv to make a base image of")
        root = tree("base", "bookworm", ("libreadline8", "libssl3", "netbase", "tzdata"))
        shutil.copytree(
            pythons[-1], root / "usr/local", symlinks=True, dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("__pycache__", "test", "site-packages", "share"),
        )  # fmt: skip
        for name in ("python", "python3"):
            (root / "usr/local/bin" / name).unlink(missing_ok=True)
            (root / "usr/local/bin" / name).symlink_to("python3.13")
        (root / "etc/pip.conf").write_text(f"[global]\ncert = {_CERTIFICATES}\n")
        for command in ("ldconfig", "python -m ensurepip"):
            subprocess.run(["chroot", root, *command.split()], check=True, capture_output=True)
        with tarfile.open(made.with_suffix(".partial"), "w") as archive:
            archive.add(root, arcname=".")
        made.with_suffix(".partial").rename(made)
    return made
