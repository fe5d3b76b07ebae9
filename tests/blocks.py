"""Blocks of rows and constants as small as a test wants them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from mscam_dask.solvers import row_blocks


@contextmanager
def small_blocks(n_bytes: int = row_blocks.BLOCK_BYTES) -> Iterator[None]:
    """Read rows by blocks of at most this many bytes."""
    with mock.patch.object(row_blocks, "BLOCK_BYTES", n_bytes):
        yield


@contextmanager
def other_values(constants: object, **values: Any) -> Iterator[None]:
    """Other values of fields of a frozen object, such as `SIZES`, in every module that reads it."""
    before = {name: getattr(constants, name) for name in values}
    try:
        for name, value in values.items():
            object.__setattr__(constants, name, value)
        yield
    finally:
        for name, value in before.items():
            object.__setattr__(constants, name, value)
