"""How long a driver waits for workers."""

from __future__ import annotations

import time

import pytest

from mscam_dask.engine.executors._watchdog import WorkerWatchdog
from mscam_dask.errors import NoWorkersError
from tests.messages import quotes


def test_only_a_time_without_any_worker_ends_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, workers = [0.0], [2]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    watchdog = WorkerWatchdog(lambda: workers[0], "tcp://here", 60.0)
    for clock[0], workers[0] in ((90.0, 2), (149.0, 0), (150.0, 1), (209.0, 0)):
        watchdog.check()
    clock[0] = 210.1
    with pytest.raises(NoWorkersError, match=quotes("tcp://here", "60 s")):
        watchdog.check()
