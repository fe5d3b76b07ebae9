"""Readers: one file format per module, chosen by `registry.read_source`."""

from __future__ import annotations
