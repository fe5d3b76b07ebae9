"""Monitoring of runs: progress, events as JSON lines, the dashboard, and reports.

The module is also a preload of Dask: ``dask scheduler --preload mscam_dask.monitor`` installs the
page "mscam", and requires the token of ``MSCAM_DASHBOARD_TOKEN`` if one is set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Scheduler

__all__ = ["dask_setup"]


def dask_setup(dask_scheduler: Scheduler) -> None:
    """Install the page and the metrics; called by Dask for ``--preload``."""
    import logging

    from mscam_dask.monitor.dashboard import access
    from mscam_dask.monitor.dashboard.plugin import install

    access.dask_setup(dask_scheduler)
    problem = install(dask_scheduler)
    if problem is not None:
        logging.getLogger(__name__).warning("No page 'mscam' on the dashboard: %s", problem)
