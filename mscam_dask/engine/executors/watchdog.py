"""Check, during a wait for results, that a Dask cluster has workers that can run tasks.

A client of Dask waits without end for workers that do not come back, or are paused for good.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from mscam_dask.errors import NoWorkersError, WorkersPausedError

GIB = 2.0**30


def _is_usable(worker: Mapping[str, Any]) -> bool:
    """Return whether a worker starts tasks or runs one; Dask pauses it when its memory is full."""
    metrics = worker.get("metrics") or {}
    return worker["status"] == "running" or bool(metrics.get("executing"))


class WorkerWatchdog:
    """Check, repeated during a wait, that the cluster has a worker that can run tasks."""

    def __init__(
        self,
        workers: Callable[[], Mapping[str, Mapping[str, Any]]],
        address: str,
        timeout_s: float,
    ) -> None:
        self._workers = workers
        self._address = address
        self._timeout_s = timeout_s
        self._last_seen = time.monotonic()

    def check(self) -> bool:
        """Check for usable workers; whether there is one. An error if there has been none for too long."""
        workers = self._workers().values()
        if any(map(_is_usable, workers)):
            self._last_seen = time.monotonic()
            return True
        if time.monotonic() - self._last_seen > self._timeout_s:
            raise self._error(list(workers))
        return False

    def _error(self, workers: list[Mapping[str, Any]]) -> NoWorkersError:
        if not workers:
            return NoWorkersError(
                f"the Dask scheduler {self._address} has had no worker for {self._timeout_s:g} s. "
                f"Start workers, for example dask worker {self._address}, and repeat the command."
            )
        fullest = max(workers, key=lambda worker: _used_bytes(worker) / _limit_bytes(worker))
        memory = (
            f"{_used_bytes(fullest) / GIB:.2f} of {_limit_bytes(fullest) / GIB:.2f} GiB in use "
            f"on {fullest.get('name', 'one')}"
        )
        return WorkersPausedError(
            f"all {len(workers)} Dask workers of {self._address} have been paused for "
            f"{self._timeout_s:g} s, because their memory is full ({memory}). Give workers more "
            "memory (--memory-limit) or use fewer of them, and repeat the command."
        )


def _used_bytes(worker: Mapping[str, Any]) -> float:
    return float((worker.get("metrics") or {}).get("memory") or 0)


def _limit_bytes(worker: Mapping[str, Any]) -> float:
    return float(worker.get("memory_limit") or float("inf"))
