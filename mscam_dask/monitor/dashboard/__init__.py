"""The page "mscam" of the Dask dashboard, and metrics for Prometheus, from events that a fit sends to the scheduler."""

from __future__ import annotations
