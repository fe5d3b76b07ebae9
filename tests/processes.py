"""Programs that tests start: their output is in a file, and they end with the test."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from mscam_dask.data.datasets import digits_views
from mscam_dask.data.store.dataset import write_store
from mscam_dask.pipeline.toml_document import toml_text

Found = TypeVar("Found")


@contextmanager
def started(
    *command: str | Path,
    log: Path,
    env: Mapping[str, str],
    cwd: Path | None = None,
    ends_by: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGKILL),
) -> Iterator[subprocess.Popen[bytes]]:
    """A program in a session of its own; it and its children are gone afterwards."""
    with log.open("ab") as stream:
        process = subprocess.Popen(
            [str(part) for part in command],
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        for number in ends_by:
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, number)
                process.wait(10)


def run(
    *command: str | Path, timeout: float = 60, env: Mapping[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command; its output is in the result, whatever its exit code."""
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=None if env is None else dict(env),
        check=False,
        **options,
    )


def printed(code: str, *arguments: str | Path, **environment: str) -> str:
    """Standard output of a program in Python, which has to succeed."""
    done = run(sys.executable, "-c", code, *arguments, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


def script_environment(**changes: str) -> dict[str, str]:
    """The environment of this process with this checkout first and one numerical thread."""
    return {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        **changes,
    }


def text_of(file: Path) -> str:
    """What a program has written to a file so far."""
    return file.read_text(errors="replace") if file.exists() else ""


def wait_until(
    condition: Callable[[], Found],
    log: Path | None = None,
    *,
    seconds: float = 100,
    alive: subprocess.Popen[Any] | None = None,
) -> Found:
    """What holds once it holds; fails with the end of a log if it does not, or a program ends before."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        said = "" if log is None else text_of(log)[-4000:]
        assert alive is None or alive.poll() is None, f"ended with {alive.returncode}: {said}"
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {said}"
        time.sleep(0.02)
    return found


def free_ports(number: int) -> list[int]:
    """Ports of the loopback interface on which nothing listens."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(number)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def answers(port: int) -> bool:
    """Whether something listens on a port of the loopback interface."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def needed(*programs: str, package: str) -> list[str]:
    """Paths of programs; skips where one is missing, with the package of Debian that has it."""
    path = f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin"
    found = {name: shutil.which(name, path=path) for name in programs}
    missing = [name for name, place in found.items() if place is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed (apt-get install {package})")
    return [place for place in found.values() if place is not None]


def mscam(*arguments: str | Path) -> list[str]:
    """The command line, run by this interpreter."""
    return [sys.executable, "-m", "mscam_dask.cli", *map(str, arguments)]


def write_pipeline(home: Path, *, max_iter: int = 30, **execution: object) -> Path:
    """A pipeline of handwritten digits whose run directory is `home`/run."""
    store = write_store(digits_views(["pixels", "zernike"]), home / "digits.zarr")
    cluster = {"n_clusters": 10, "scale": "standard", "alpha": 1.0, "n_neighbors": 9}
    tables: dict[str, dict[str, object]] = {
        "data": {"source": str(store)},
        "cluster": cluster | {"max_iter": max_iter},
        "execution": execution,
        "output": {"directory": str(home / "run")},
    }
    (home / "nightly.toml").write_text(toml_text({key: one for key, one in tables.items() if one}))
    return home / "nightly.toml"
