"""Stores: chunked Zarr data sets with checksums, on disks and object stores."""

from __future__ import annotations
