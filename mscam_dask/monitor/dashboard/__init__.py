"""The page "mscam" of the Dask dashboard, and its metrics for Prometheus.

`plugin` sends the events of a fit to the scheduler and keeps them there, `page` draws them in a
browser, and `metrics` exports them to Prometheus. The scheduler needs this package. The first fit
on a cluster installs the plugin, or ``dask scheduler --preload mscam_dask.monitor`` at its start.
"""

from __future__ import annotations
