"""Watching a run: progress in the terminal or in logs, and its events as JSON lines.

Observers are callables that receive every event of a run in order: the steps of a pipeline
(`events`) and the records of a fit (`mscam_dask.model.records`).
"""

from __future__ import annotations
