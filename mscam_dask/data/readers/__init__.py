"""Readers: one file format per module, chosen by `combine.read_sources`."""

from __future__ import annotations
