"""Dask's settings for the length of a fit."""

from __future__ import annotations

import dask.config

from mscam_dask.engine.executors._refcount import RefCountedContext

__all__ = ["FIT_CONFIG"]

_CONFIG = {
    # Views held in the driver's memory travel inside their tasks; the memory plan bounds them.
    "distributed.admin.large-graph-warning-threshold": "4GiB",
    # A LocalCluster gives up a worker that is not back by then, and does not start another.
    "distributed.deploy.lost-worker-timeout": "120s",
}


FIT_CONFIG = RefCountedContext(lambda: dask.config.set(_CONFIG))
"""What fits ask of Dask's configuration, which is the process's."""
