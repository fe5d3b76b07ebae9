"""Workers that die: a typed error that names the task, or the result as if nothing had happened."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import dask.config
import pytest

from mscam_dask.engine.executors.dask import DaskExecutor
from mscam_dask.errors import ClusterError, DataError, WorkerLostError
from tests.clusters import local_client
from tests.messages import quotes
from tests.processes import wait_until

pytestmark = [
    pytest.mark.faults,
    # what distributed says of a worker process that was killed on purpose
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def die(_: float) -> float:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0.0


def value(number: float) -> float:
    return number


def test_a_task_that_kills_its_worker_is_named() -> None:
    """One worker, and no second chance for a task that kills it."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        local_client(1) as client,
        DaskExecutor(client) as executor,
    ):
        handle = executor.submit(die, 0.0, key="solved_view/3/colour")
        named = quotes("'solved_view 3/colour'", 1, "tcp://")
        with pytest.raises(WorkerLostError, match=named) as caught:
            executor.gather([handle])
    assert isinstance(caught.value, ClusterError)


def fail_once(marker: str) -> str:
    path = Path(marker)
    if not path.exists():
        path.touch()
        raise OSError("the disk of this worker had a bad moment")
    return "read"


def fail_always(_: int) -> None:
    raise DataError("these rows cannot be used")


def test_nothing_stays_on_the_workers_while_an_error_is_kept() -> None:
    with local_client(1, processes=False) as client:
        with DaskExecutor(client) as executor:
            held = executor.submit(value, 3.0, key="held/0")
            fails = executor.submit(fail_always, held, key="fails/0")
            with pytest.raises(DataError) as kept:
                executor.gather([fails])
        wait_until(lambda: not client.who_has())
        assert kept.value is not None
        assert held.key is not None  # still referred to here


def test_an_exception_is_tried_again(tmp_path: Path) -> None:
    with local_client(1) as client, DaskExecutor(client) as executor:
        handle = executor.submit(fail_once, str(tmp_path / "failed"), key="reads/0")
        assert executor.gather([handle]) == ["read"]
        with pytest.raises(DataError):
            executor.gather([executor.submit(fail_always, 0, key="refuses/0")])


def test_a_key_that_was_given_before_is_another_task() -> None:
    # a view may be called "0/colour", and its key look like that of a repeated sub-solve
    with local_client(1, processes=False) as client, DaskExecutor(client) as executor:
        handles = [executor.submit(value, float(i), key="solved_view/0/colour") for i in range(4)]
        handles.append(executor.submit(value, 9.0, key="solved_view/0/colour #2"))
        assert executor.gather(handles) == [0.0, 1.0, 2.0, 3.0, 9.0]
