"""Dask's settings for the length of a fit."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import ClassVar, Self

import dask.config

__all__ = ["FitConfig"]

_CONFIG = {
    # Views held in the driver's memory travel inside their tasks; the memory plan bounds them.
    "distributed.admin.large-graph-warning-threshold": "4GiB",
    # A LocalCluster gives up a worker that is not back by then, and does not start another.
    "distributed.deploy.lost-worker-timeout": "120s",
}


class FitConfig:
    """What fits ask of Dask's configuration.

    Notes
    -----
    The configuration is the process's: of fits that overlap the first to enter sets it, the last
    to leave restores it.
    """

    _lock: ClassVar[threading.Lock] = threading.Lock()
    _depth: ClassVar[int] = 0
    _set: ClassVar[dask.config.set | None] = None

    def __enter__(self) -> Self:
        with FitConfig._lock:
            if FitConfig._depth == 0:
                FitConfig._set = dask.config.set(_CONFIG)
            FitConfig._depth += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with FitConfig._lock:
            FitConfig._depth -= 1
            if FitConfig._depth == 0 and FitConfig._set is not None:
                FitConfig._set.__exit__(None, None, None)
                FitConfig._set = None
