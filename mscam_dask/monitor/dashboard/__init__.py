"""The page "mscam" of the Dask dashboard, and the metrics beside it.

`client` sends a fit's events to the scheduler, `plugin` keeps them there, `page` draws them in
a browser, `metrics` hands them to Prometheus. The scheduler needs this package installed; it is
set up by the first fit on a cluster, or at its start by ``dask scheduler --preload
mscam_dask.monitor``.
"""

from __future__ import annotations
