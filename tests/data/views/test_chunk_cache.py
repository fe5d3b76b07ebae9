"""Views that are passed over again and again: the same rows, every chunk decoded once a pass."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

from mscam_dask.data.store.read import open_store
from mscam_dask.data.store.write import write_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.sampling import (
    KEPT_CHUNK_BYTES,
    CachedChunkRows,
    SampledRows,
    cache_chunks,
)
from mscam_dask.data.views.sources import ArrayRows, DaskRows
from tests.messages import quotes

TABLE = np.random.default_rng(0).random((23, 3))


@dataclasses.dataclass(frozen=True, eq=False)
class InChunks(ArrayRows):
    """Rows in chunks, which counts how often each is decoded."""

    chunk_size: int = 5
    decoded: list[int] = dataclasses.field(default_factory=list)

    def read(self, start: int, stop: int) -> Any:
        rows = super().read(start, stop)
        self.decoded.extend(range(start // self.chunk_size, -(-stop // self.chunk_size)))
        return rows


def blocks(size: int) -> list[tuple[int, int]]:
    return [(start, min(start + size, len(TABLE))) for start in range(0, len(TABLE), size)]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 10, 12, 23])
def test_a_pass_decodes_each_chunk_once_whatever_the_blocks(size: int) -> None:
    stored = InChunks(TABLE, "v")
    view = CachedChunkRows(stored)
    for _ in range(2):
        stored.decoded.clear()
        for start, stop in blocks(size):
            rows = view.read(start, stop)
            np.testing.assert_array_equal(rows, TABLE[start:stop])
            assert rows.flags.c_contiguous
            assert not rows.flags.writeable
        assert stored.decoded == sorted(set(stored.decoded))
        assert set(stored.decoded) == set(range(5))


def test_without_it_a_chunk_is_decoded_for_every_block() -> None:
    stored = InChunks(TABLE, "v")
    for start, stop in blocks(2):
        stored.read(start, stop)
    assert len(stored.decoded) > 2 * 5


def test_a_view_in_one_chunk_is_decoded_once_for_all_passes() -> None:
    stored = InChunks(TABLE, "v", chunk_size=30)
    view = CachedChunkRows(stored)
    for _ in range(3):
        for start, stop in blocks(4):
            view.read(start, stop)
    assert stored.decoded == [0]


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (5, 5), (23, 23), (4, 6), (4, 16), (22, 23)])
def test_any_rows_are_those_of_the_view(start: int, stop: int) -> None:
    view = CachedChunkRows(InChunks(TABLE, "v"))
    view.read(11, 13)
    np.testing.assert_array_equal(view.read(start, stop), TABLE[start:stop])


def test_it_is_the_view_in_all_else() -> None:
    stored = InChunks(TABLE[:, :1].astype(np.float32), "v")
    view = CachedChunkRows(stored)
    assert (view.name, view.view_type) == ("v", "features")
    assert (view.shape, view.dtype) == ((23, 1), np.dtype(np.float32))
    with pytest.raises(IndexError, match=quotes("'v'", "20:24", "0:23")):
        view.read(20, 24)


def test_read_once_keeps_a_chunk_of_what_has_chunks_and_takes_a_sample_whole(
    tmp_path: Path,
) -> None:
    write_store(as_multi_view([TABLE]), tmp_path / "s.zarr", chunk_size=6)
    (stored,) = open_store(tmp_path / "s.zarr").views
    lazy = DaskRows(da.from_array(TABLE, chunks=(6, 3)), "v")
    for view in (stored, lazy):
        again = cache_chunks(view)
        assert isinstance(again, CachedChunkRows)
        np.testing.assert_array_equal(again.read(3, 20), TABLE[3:20])
    array = ArrayRows(TABLE, "v")
    assert cache_chunks(array) is array
    drawn = cache_chunks(SampledRows(stored, np.array([1, 8, 22])))
    assert isinstance(drawn, ArrayRows)
    np.testing.assert_array_equal(drawn.read(0, 3), TABLE[[1, 8, 22]])


def test_chunks_too_large_for_the_memory_plan_are_not_kept() -> None:
    most = KEPT_CHUNK_BYTES // (8 * 3)
    assert isinstance(cache_chunks(InChunks(TABLE, "v", chunk_size=most)), CachedChunkRows)
    larger = InChunks(TABLE, "v", chunk_size=most + 1)
    assert cache_chunks(larger) is larger
