"""Blocks, parts and cells so small that small data are split as large ones."""

from __future__ import annotations

import dataclasses

import pytest

from mscam_dask.engine import blocks, neighbors, prepare
from mscam_dask.types.rules import SIZES


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in blocks of 100, parts of 40 and cells of 50; partitions scored on 250 samples."""
    monkeypatch.setattr(blocks, "_BLOCK_ROWS", 100)
    monkeypatch.setattr(neighbors, "_MIN_PART", 40)
    monkeypatch.setattr(neighbors, "CELL_POINTS", 50)
    monkeypatch.setattr(prepare, "SIZES", dataclasses.replace(SIZES, n_scored=250))
