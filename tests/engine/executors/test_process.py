"""Processes of workers: Dask's setting of the allocator is undone, and arrays that arrive misplaced are copied."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.engine.executors._process import DASK_TRIM, aligned, without_dask_trim
from mscam_dask.linalg.orthonormal import Basis
from tests import processes

# Page faults while arrays of 1 MiB come and go.
_PROGRAM = """
import json, resource, sys
import numpy as np
from mscam_dask.engine.executors._process import keep_freed_memory
undone = keep_freed_memory() if sys.argv[1] == "undo" else None
def churn():
    for _ in range(200):
        np.ones(2**17)
churn()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
churn()
print(json.dumps([undone, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before]))
"""

# Resident memory where all but the last of many arrays are freed, before and after a task's end.
_HOLES = """
import json, psutil
import numpy as np
from mscam_dask.engine.executors._process import return_freed_memory, keep_freed_memory
keep_freed_memory()
idle = return_freed_memory()
arrays = [np.ones(2**17) for _ in range(200)]
last = arrays.pop()
del arrays
before = psutil.Process().memory_info().rss
given = return_freed_memory()
print(json.dumps([given, (before - psutil.Process().memory_info().rss) / 2**20, return_freed_memory()]))
"""


def run(what: str, value: str | None, program: str = _PROGRAM) -> list[Any]:
    """Output of a program with this value of Dask's variable."""
    environment = {key: text for key, text in os.environ.items() if key != DASK_TRIM[0]}
    if value is not None:
        environment[DASK_TRIM[0]] = value
    done = processes.run(sys.executable, "-c", program, what, env=environment)
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator is what is set")
def test_arrays_that_come_and_go_are_not_fetched_from_the_system_each_time() -> None:
    _, before = run("leave", DASK_TRIM[1])
    if before < 10_000:
        pytest.skip("this C library does not give blocks back at once")
    undone, after = run("undo", DASK_TRIM[1])
    assert undone is True
    assert after < before / 20


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator is what is set")
def test_what_is_free_below_a_used_block_is_given_back_once_it_is_much() -> None:
    given, mib, again = run("", DASK_TRIM[1], _HOLES)
    if not given:
        pytest.skip("this C library has no malloc_trim")
    assert mib > 150
    assert not again
    assert run("", None, _HOLES)[0] is False


def test_processes_that_a_worker_starts_have_the_usual_allocator() -> None:
    given = {"PATH": "/bin", DASK_TRIM[0]: DASK_TRIM[1]}
    assert without_dask_trim(given) == {"PATH": "/bin"}
    chosen = {DASK_TRIM[0]: "131072"}
    assert without_dask_trim(chosen) == chosen


def misplaced(array: NDArray[Any]) -> NDArray[Any]:
    """The same numbers and memory order, one byte off."""
    order: Literal["C", "F"] = "C" if array.flags.c_contiguous else "F"
    buffer = np.empty(array.nbytes + 1, dtype=np.uint8)[1:]
    moved: NDArray[Any] = np.ndarray(array.shape, array.dtype, buffer=buffer.data, order=order)
    moved[...] = array
    assert not moved.flags.aligned
    return moved


def test_what_is_aligned_is_the_same_object() -> None:
    basis = Basis(np.eye(3), np.ones(3))
    value = [basis, (csr_array(np.eye(2)), {"a": np.ones(2)}), "word", 3]
    assert aligned(value) is value


@pytest.mark.parametrize("order", ["C", "F"])
def test_misplaced_arrays_are_copied_in_their_order_wherever_they_are(order: Any) -> None:
    graph, vectors = csr_array(np.eye(3)), np.array(np.arange(6.0).reshape(3, 2), order=order)
    odd = csr_array((misplaced(graph.data), graph.indices, graph.indptr), shape=(3, 3))
    basis = Basis(misplaced(vectors), np.ones(2))
    first, (second, third), fourth = aligned([basis, (odd, {"a": misplaced(np.arange(2))}), 3])
    assert first.vectors.flags.aligned
    assert first.vectors.strides == vectors.strides
    np.testing.assert_array_equal(first.vectors, vectors)
    assert first.singular_values_squared is basis.singular_values_squared
    assert not basis.vectors.flags.aligned, "nothing is changed in place"
    assert second.data.flags.aligned
    assert third["a"].flags.aligned
    assert third["a"].tolist() == [0, 1]
    assert fourth == 3
