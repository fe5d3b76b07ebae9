"""Executors of a fit's tasks: in this process, on threads, or on a Dask cluster."""

from __future__ import annotations
