"""What Dask sets for its workers' allocator is undone there, and nobody else's choice is."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from mscam_dask.engine.allocator import DASK_TRIM, without_dask_trim

# Page faults while arrays of 1 MiB come and go.
_PROGRAM = """
import json, resource, sys
import numpy as np
from mscam_dask.engine.allocator import keep_freed_memory
undone = keep_freed_memory() if sys.argv[1] == "undo" else None
def churn():
    for _ in range(200):
        np.ones(2**17)
churn()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
churn()
print(json.dumps([undone, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before]))
"""


def run(what: str, value: str | None) -> tuple[bool | None, int]:
    """Whether something was undone, and page faults, with this value of Dask's variable."""
    environment = {key: text for key, text in os.environ.items() if key != DASK_TRIM[0]}
    if value is not None:
        environment[DASK_TRIM[0]] = value
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, what],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    undone, faults = json.loads(done.stdout)
    return undone, faults


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator is what is set")
def test_arrays_that_come_and_go_are_not_fetched_from_the_system_each_time() -> None:
    _, before = run("leave", DASK_TRIM[1])
    if before < 10_000:
        pytest.skip("this C library does not give blocks back at once")
    undone, after = run("undo", DASK_TRIM[1])
    assert undone is True
    assert after < before / 20


def test_another_value_is_somebodys_choice() -> None:
    assert run("undo", "1000000")[0] is False
    assert run("undo", None)[0] is False


def test_processes_that_a_worker_starts_have_the_usual_allocator() -> None:
    given = {"PATH": "/bin", DASK_TRIM[0]: DASK_TRIM[1]}
    assert without_dask_trim(given) == {"PATH": "/bin"}
    chosen = {DASK_TRIM[0]: "131072"}
    assert without_dask_trim(chosen) == chosen
