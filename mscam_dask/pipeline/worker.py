"""Loaded by the worker processes that a run starts."""

from __future__ import annotations

import signal

__all__ = ["dask_setup"]


def dask_setup(worker: object) -> None:  # noqa: ARG001 - the signature is Dask's
    """Leave Ctrl-C, which the terminal sends to every process, to the one that runs the fit."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
