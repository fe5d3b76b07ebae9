"""Whether there is still somebody to do the work, asked again and again while one waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable

from mscam_dask.errors import NoWorkersError

__all__ = ["POLL_S", "WorkerWatchdog"]

POLL_S = 2.0
"""Seconds between two looks of a driver that waits."""


class WorkerWatchdog:
    """The workers of a cluster during one wait.

    Parameters
    ----------
    n_workers : callable
        Says how many there are now.
    address : str
        Of the cluster, for the message.
    timeout_s : float
        How long there may be none.
    """

    def __init__(self, n_workers: Callable[[], int], address: str, timeout_s: float) -> None:
        self._n_workers = n_workers
        self._address = address
        self._timeout_s = timeout_s
        self._last_seen = time.monotonic()

    def check(self) -> None:
        """Look whether there are workers left.

        Raises
        ------
        NoWorkersError
            When there have been none for too long.
        ClusterError
            What `n_workers` raises, when the cluster does not answer.
        """
        if self._n_workers():
            self._last_seen = time.monotonic()
        elif time.monotonic() - self._last_seen > self._timeout_s:
            raise NoWorkersError(
                f"every worker of {self._address} is gone, and none came back within "
                f"{self._timeout_s:g} s. Start workers and repeat the command; what was kept so far "
                "is intact"
            )
