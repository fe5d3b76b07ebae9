"""Readers of file formats, of which `registry.read_sources` chooses one by the suffix of a file."""

from __future__ import annotations
