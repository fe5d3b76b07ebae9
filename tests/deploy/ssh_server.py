"""An SSH server of the user on loopback, with keys of its own."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.files import ROOT

__all__ = ["ssh_server"]

_START_S = 20.0


@contextmanager
def ssh_server(root: Path) -> Iterator[dict[str, Any]]:
    """Start sshd; yields the connect_options of SSHCluster, or skips where there is none."""
    sshd = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
    keygen = shutil.which("ssh-keygen")
    if sshd is None or keygen is None:
        pytest.skip("sshd is not installed (apt-get install openssh-server)")
    for key in ("host", "user"):
        subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(root / key)], check=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (root / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {root}/host\nPidFile {root}/sshd.pid\n"
        f"AuthorizedKeysFile {root}/user.pub\nStrictModes no\nUsePAM no\n"
        "PermitRootLogin prohibit-password\nPasswordAuthentication no\n"
        f"SetEnv PYTHONPATH={ROOT} OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)  # where sshd of root leaves its privileges
    log = (root / "sshd.log").open("wb")
    with (
        log,
        subprocess.Popen([sshd, "-D", "-e", "-f", str(root / "sshd_config")], stderr=log) as server,
    ):
        try:
            deadline = time.monotonic() + _START_S
            while not _answers(port):
                if server.poll() is not None:
                    pytest.skip(f"sshd does not start: {(root / 'sshd.log').read_text().strip()}")
                assert time.monotonic() < deadline
                time.sleep(0.1)
            yield {
                "port": port,
                "client_keys": [str(root / "user")],
                "known_hosts": str(_known(root, port)),
            }
        finally:
            server.terminate()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _known(root: Path, port: int) -> Path:
    kind, key, *_ = (root / "host.pub").read_text().split()
    (root / "known_hosts").write_text(f"[127.0.0.1]:{port} {kind} {key}\n")
    return root / "known_hosts"
