"""Readers: one file format per module, chosen by `registry.read_source`."""

from __future__ import annotations

from mscam_dask.data.readers.base import Selection, Source, SourceContents
from mscam_dask.data.readers.registry import FORMATS, read_source
from mscam_dask.data.readers.text import read_labels

__all__ = ["FORMATS", "Selection", "Source", "SourceContents", "read_labels", "read_source"]
