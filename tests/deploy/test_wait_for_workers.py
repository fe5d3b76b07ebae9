"""The program with which the runner's pod waits, against a real scheduler."""

from __future__ import annotations

import errno
import os
import sys
import time
from types import SimpleNamespace

import pytest
from distributed import LocalCluster

from tests.deploy.files import DEPLOY, imported, run, script_environment

PROGRAM = DEPLOY / "k8s/wait_for_workers.py"


def test_it_waits_for_the_first_worker() -> None:
    program = imported(PROGRAM)
    pauses: list[float] = []

    def joined_meanwhile(seconds: float) -> None:
        pauses.append(seconds)
        cluster.scale(1)
        cluster.wait_for_workers(1, timeout=60)

    with LocalCluster(
        n_workers=0, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
    ) as cluster:
        url = f"http://127.0.0.1:{cluster.scheduler.http_server.port}"
        none = run(sys.executable, PROGRAM, url, "0.1", env=script_environment())
        assert none.returncode == 75
        assert url in none.stderr
        assert os.strerror(errno.ECONNREFUSED) not in none.stderr
        vars(program)["time"] = SimpleNamespace(monotonic=time.monotonic, sleep=joined_meanwhile)
        assert program.main([url, "60"]) == 0
        assert pauses == [program.POLL_S]


def test_nothing_that_answers_is_tried_again_later() -> None:
    result = run(sys.executable, PROGRAM, "http://127.0.0.1:9", "0.1", env=script_environment())
    assert result.returncode == 75
    assert "http://127.0.0.1:9" in result.stderr
    assert os.strerror(errno.ECONNREFUSED) in result.stderr


@pytest.mark.parametrize("arguments", [(), ("scheduler:8787",), ("http://scheduler:8787", "soon")])
def test_wrong_arguments(arguments: tuple[str, ...]) -> None:
    result = run(sys.executable, PROGRAM, *arguments, env=script_environment())
    assert result.returncode == 2
    assert "python wait_for_workers.py http://SCHEDULER" in result.stderr
