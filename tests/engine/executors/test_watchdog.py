"""How long a driver waits for workers and for the scheduler."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask.config
import pytest
from distributed import Client

from mscam_dask import MSCAM
from mscam_dask.engine.executors import dask as dask_executor
from mscam_dask.engine.executors.dask import DaskExecutor, WorkerWatchdog, workers_timeout_s
from mscam_dask.errors import (
    ConfigurationError,
    NoWorkersError,
    SchedulerLostError,
    WorkersPausedError,
)
from tests.clusters import local_client, scheduler_process, worker_process
from tests.messages import raises
from tests.processes import wait_until
from tests.synthetic import gaussian_views

RUNNING: dict[str, Any] = {"status": "running"}
PAUSED: dict[str, Any] = {
    "status": "paused",
    "name": "w0",
    "memory_limit": 4 * 2**30,
    "metrics": {"memory": 3 * 2**30, "executing": 0},
}
FINISHING: dict[str, Any] = {**PAUSED, "metrics": {"memory": 3 * 2**30, "executing": 1}}


@pytest.mark.parametrize(
    ("absent", "error", "values"),
    [({}, NoWorkersError, ()), ({"a": PAUSED}, WorkersPausedError, ("1", "3.00", "4.00", "w0"))],
)
def test_only_a_time_without_any_usable_worker_ends_a_wait(
    absent: dict[str, Any],
    error: type[NoWorkersError],
    values: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[dict[str, Any]] = [{}]
    monkeypatch.setattr(dask_executor, "present_workers", lambda *_: found[0])
    client: Any = SimpleNamespace(scheduler=SimpleNamespace(address="tcp://here"))
    watchdog = WorkerWatchdog(client, 0.5)
    for present in ({"b": RUNNING}, {"a": PAUSED, "b": RUNNING}, {"b": FINISHING}):
        time.sleep(0.3)
        for found[0] in (present, absent):
            assert watchdog.check() is (found[0] is present)
    time.sleep(0.6)
    with raises(error, "tcp://here", "0.5 s", *values):
        watchdog.check()


def test_the_timeout_is_a_setting_of_dask() -> None:
    assert workers_timeout_s() == 60.0
    for value, seconds in ((5, 5.0), ("2 minutes", 120.0), (0.5, 0.5)):
        with dask.config.set({"mscam.workers-timeout": value}):
            assert workers_timeout_s() == seconds
    for wrong in ("soon", 0, -1, float("inf"), [1]):
        with (
            dask.config.set({"mscam.workers-timeout": wrong}),
            pytest.raises(ConfigurationError),
        ):
            workers_timeout_s()


@pytest.mark.faults
@pytest.mark.timeout(120)
@pytest.mark.thorough
def test_workers_paused_in_the_middle_of_a_fit_end_it() -> None:
    paused = threading.Event()
    with (
        local_client(1) as client,
        Client(client.scheduler_info()["address"], set_as_default=False) as other,
    ):

        def pause(dask_worker: Any) -> None:
            # the memory manager leaves a paused worker alone until it has measured less
            dask_worker.memory_manager.memory_pause_fraction = 0.001

        def observe(event: object) -> None:
            if not paused.is_set():
                paused.set()
                other.run(pause)
                wait_until(lambda: all(w["status"] != "running" for w in workers(other)))

        with (
            dask.config.set({"mscam.workers-timeout": "3 s"}),
            pytest.raises(WorkersPausedError),
        ):
            MSCAM(3, client=client, callbacks=[observe]).fit(gaussian_views(0, n_samples=60)[0])


def test_a_client_that_is_closed_before_tasks_start_is_lost() -> None:
    with local_client(1) as client:
        executor = DaskExecutor(client)
        client.close()
        assert not executor.shares_memory
        with pytest.raises(SchedulerLostError):
            executor.__enter__()


def workers(client: Client) -> list[dict[str, Any]]:
    return list(client.scheduler_info(n_workers=-1)["workers"].values())


def freeze(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGSTOP)


@pytest.mark.faults
@pytest.mark.timeout(120)
@pytest.mark.parametrize("moment", ["at the start", "while waiting"])
@pytest.mark.thorough
def test_a_scheduler_that_does_not_answer_is_lost(tmp_path: Path, moment: str) -> None:
    with (
        scheduler_process(tmp_path) as (scheduler, address),
        worker_process(address, tmp_path),
        Client(address, set_as_default=False) as client,
    ):
        client.wait_for_workers(1, timeout=60)
        executor = DaskExecutor(client, timeout_s=3.0)
        try:
            if moment == "at the start":
                freeze(scheduler)
                with pytest.raises(SchedulerLostError):
                    executor.__enter__()
            else:
                with executor:
                    assert executor.gather([executor.submit(abs, -2, key="before/0")]) == [2]
                    freeze(scheduler)
                    waiting = executor.submit(abs, -3, key="after/0")
                    with pytest.raises(SchedulerLostError):
                        executor.gather([waiting])
        finally:
            scheduler.send_signal(signal.SIGCONT)
