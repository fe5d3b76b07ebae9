"""Blocks of rows as small as a test wants them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from mscam_dask.solvers import row_blocks


@contextmanager
def small_blocks(n_bytes: int = row_blocks.BLOCK_BYTES) -> Iterator[None]:
    """Read rows by blocks of at most this many bytes."""
    with mock.patch.object(row_blocks, "BLOCK_BYTES", n_bytes):
        yield
