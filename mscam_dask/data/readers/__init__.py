"""Readers: one file format per module, chosen by `registry.read_sources`."""

from __future__ import annotations
