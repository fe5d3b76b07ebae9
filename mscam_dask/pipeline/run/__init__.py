"""Runs of a pipeline: run directories, records, steps, resuming, retention and reports."""

from __future__ import annotations
