"""Hosts on one computer: network namespaces joined by a bridge that has a namespace of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

__all__ = ["Host", "hosts"]


@dataclass(frozen=True)
class Host:
    """A network stack of its own with one link to the others.

    Attributes
    ----------
    name, address
    namespace, switch, port
        Its network namespace, that of the bridge, and the bridge's end of the link.
    """

    name: str
    address: str
    namespace: str
    switch: str
    port: str

    def command(self, *arguments: str | Path) -> list[str]:
        """The command line that runs another one on this host."""
        return ["ip", "netns", "exec", self.namespace, *(str(part) for part in arguments)]

    def start(
        self, *arguments: str | Path, env: dict[str, str], log: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        """Start a program here, in a process group of its own."""
        return subprocess.Popen(
            self.command(*arguments),
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def cut_off(self) -> None:
        """Take the link down: packets are lost without an error."""
        _ip("-n", self.switch, "link", "set", self.port, "down")

    def bring_back(self) -> None:
        """Bring the link up again."""
        _ip("-n", self.switch, "link", "set", self.port, "up")


@contextmanager
def hosts(names: Sequence[str]) -> Iterator[dict[str, Host]]:
    """Make hosts that reach each other and nothing else; skips where that is not permitted."""
    if shutil.which("ip") is None:
        pytest.skip("network namespaces need the program ip (apt-get install iproute2)")
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    tag = uuid.uuid4().hex[:6]
    switch = f"ms{tag}"
    with ExitStack() as stack:
        try:
            _add_namespace(switch, stack)
            _ip("-n", switch, "link", "add", "br0", "type", "bridge", "stp_state", "0")
            _ip("-n", switch, "link", "set", "br0", "up")
            made = {
                name: _add_host(name, index, tag, switch, stack)
                for index, name in enumerate(names, start=1)
            }
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces are not permitted here: {error.stderr.strip()}")
        yield made


def _add_namespace(name: str, stack: ExitStack) -> None:
    _ip("netns", "add", name)
    stack.callback(_ip, "netns", "del", name)
    _ip("-n", name, "link", "set", "lo", "up")


def _add_host(name: str, index: int, tag: str, switch: str, stack: ExitStack) -> Host:
    host = Host(name, f"10.213.7.{index}", f"m{index}{tag}", switch, f"port{index}")
    _add_namespace(host.namespace, stack)
    _ip(
        *("-n", switch, "link", "add", host.port, "type", "veth"),
        *("peer", "name", "eth0", "netns", host.namespace),
    )
    _ip("-n", switch, "link", "set", host.port, "master", "br0", "up")
    _ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", "eth0")
    _ip("-n", host.namespace, "link", "set", "eth0", "up")
    return host


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=20)
