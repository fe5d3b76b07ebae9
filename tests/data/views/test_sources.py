"""Row sources: the same float64 rows, whatever holds them."""

from __future__ import annotations

import dataclasses
import hashlib
import struct
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from mscam_dask.benchmark.datasets import shuffled_data
from mscam_dask.data.store.dataset import open_store, write_store
from mscam_dask.data.views import sources
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.multi_view import MultiViewData, presence_table
from mscam_dask.data.views.rows import (
    CachedChunkRows,
    SampledRows,
    cache_chunks,
    restrict_to_present,
    sampled_view,
)
from mscam_dask.data.views.sources import ArrayRows, DaskRows, row_ranges, view_digest
from mscam_dask.errors import DataError
from tests.clusters import local_client
from tests.data.conftest import finite_tables


def digest_by_definition(values: NDArray[Any]) -> str:
    """SHA-256 of the shape and of that of each block: values as little-endian doubles, zero without sign."""
    digest = hashlib.sha256(f"{values.shape[0]}x{values.shape[1]};".encode())
    for start in range(0, len(values), sources.DIGEST_ROWS):
        block = hashlib.sha256()
        for value in values[start : start + sources.DIGEST_ROWS].ravel():
            block.update(struct.pack("<d", float(value) or 0.0))
        digest.update(block.digest())
    return digest.hexdigest()


@settings(max_examples=60)
@given(table=finite_tables(), chunks=st.tuples(*[st.integers(1, 9)] * 2), data=st.data())
def test_rows_are_float64_c_ordered_read_only_and_equal(
    table: NDArray[Any], chunks: tuple[int, int], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(table)))
    stop = data.draw(st.integers(start, len(table)))
    before = table.copy()
    for source in (ArrayRows(table, "v"), DaskRows(da.from_array(table, chunks=chunks), "v")):
        rows = source.read(start, stop)
        assert rows.dtype == np.float64
        assert rows.dtype.isnative
        assert rows.flags.c_contiguous
        assert not rows.flags.writeable
        np.testing.assert_array_equal(rows, table[start:stop].astype(np.float64))
        assert (source.shape, source.dtype) == (table.shape, table.dtype)
        with patch.object(sources, "DIGEST_ROWS", data.draw(st.integers(1, 8))):
            assert view_digest(source) == digest_by_definition(table)
    np.testing.assert_array_equal(table, before)


@given(n_samples=st.integers(1, 50), n_columns=st.integers(1, 20), block_bytes=st.integers(1, 4000))
def test_row_ranges_partition_the_rows_within_the_block_size(
    n_samples: int, n_columns: int, block_bytes: int
) -> None:
    source = ArrayRows(np.zeros((n_samples, n_columns)), "v")
    ranges = list(row_ranges(source, block_bytes=block_bytes))
    assert [row for start, stop in ranges for row in range(start, stop)] == list(range(n_samples))
    assert all(
        stop - start == 1 or 8 * n_columns * (stop - start) <= block_bytes for start, stop in ranges
    )


def test_dask_array_of_unknown_length_is_refused() -> None:
    array = da.ones((6, 2), chunks=3)
    unknown = array[array[:, 0] > 0]
    with pytest.raises(DataError):
        DaskRows(unknown, "v")


def test_dask_array_persisted_on_a_cluster_is_refused() -> None:
    with local_client(1, processes=False) as client, client.as_current():
        persisted = da.ones((6, 2), chunks=3).persist()
        with pytest.raises(DataError):
            DaskRows(persisted, "v")


@pytest.mark.parametrize(
    "change",
    [lambda block: block[:1], lambda block: block[:, :1], lambda block: block * 1j],
    ids=["rows", "columns", "dtype"],
)
def test_dask_blocks_are_what_the_array_says(change: Any) -> None:
    array = da.ones((6, 2), chunks=(3, 2)).map_blocks(change, dtype=float, meta=np.empty((0, 0)))
    with pytest.raises(DataError):
        DaskRows(array, "v").read(0, 6)


@pytest.mark.parametrize("is_lazy", [False, True])
def test_shuffled_samples_keep_their_rows_pairs_ids_labels_and_absences(is_lazy: bool) -> None:
    points = np.arange(24.0).reshape(12, 2)
    table = points.copy()
    table[[0, 1, 5]] = np.nan
    rows = DaskRows(da.from_array(table, chunks=(5, 2)), "a") if is_lazy else ArrayRows(table, "a")
    pairs = np.abs(points[:, :1] - points[:, 0])
    views = (
        restrict_to_present(rows, np.array([0, 1, 5])),
        ArrayRows(points, "b"),
        ArrayRows(pairs, "d", "distance"),
    )
    ids = tuple(f"{number:02d}" for number in range(12))
    data = MultiViewData(views, ids, np.repeat([0, 1], 6))
    drawn, again, other = (shuffled_data(data, seed) for seed in (1, 1, 2))
    assert again.digest() == drawn.digest() != other.digest()
    kept = [ids.index(name) for name in drawn.sample_ids]
    assert sorted(kept) == list(range(12)) != kept
    np.testing.assert_array_equal(drawn.labels, np.repeat([0, 1], 6)[kept])
    has = ~np.isnan(table[kept]).any(axis=1)
    np.testing.assert_array_equal(presence_table(drawn.views)[:, 0], has)
    found = [view.read(0, view.shape[0]) for view in drawn.views]
    expected = table[kept][has], points[kept], pairs[np.ix_(kept, kept)]
    for values, own in zip(found, expected, strict=True):
        np.testing.assert_array_equal(values, own)


@pytest.mark.parametrize(
    ("view_type", "dtype"), [("features", np.float32), ("distance", np.float64)]
)
def test_sampled_rows_are_those_of_the_view_and_may_be_had_in_memory(
    view_type: Any, dtype: Any
) -> None:
    table = np.random.default_rng(0).random((12, 12)).astype(dtype)
    rows = np.array([1, 4, 5, 11])
    expected = table[np.ix_(rows, rows)] if view_type == "distance" else table[rows]
    lazy = DaskRows(da.from_array(table, chunks=(5, 12)), "v", view_type)
    drawn = sampled_view(lazy, rows)
    assert isinstance(drawn, SampledRows)
    assert (drawn.name, drawn.view_type, drawn.dtype) == ("v", view_type, dtype)
    at_hand = sampled_view(ArrayRows(table, "v", view_type), rows)
    assert isinstance(at_hand, ArrayRows)
    for start, stop in ((1, 3), (0, 4), (2, 2)):
        for view in (drawn, drawn.in_memory(), at_hand):
            np.testing.assert_array_equal(view.read(start, stop), expected[start:stop])
    with pytest.raises(IndexError):
        drawn.read(3, 5)
    few = sampled_view(ArrayRows(sparse.csr_array(table), "v", view_type), rows)
    assert isinstance(few, ArrayRows)
    assert sparse.issparse(few.array)
    np.testing.assert_array_equal(few.read(0, 4), expected)


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


@pytest.mark.parametrize("size", [1, 3, 5, 7, 12, 23])
def test_a_pass_decodes_each_chunk_once_whatever_the_blocks(size: int) -> None:
    stored = InChunks(TABLE, "v")
    view = CachedChunkRows(stored)
    for _ in range(2):
        stored.decoded.clear()
        for start in range(0, len(TABLE), size):
            rows = view.read(start, min(start + size, len(TABLE)))
            np.testing.assert_array_equal(rows, TABLE[start : start + size])
            assert rows.flags.c_contiguous
            assert not rows.flags.writeable
        assert stored.decoded == sorted(set(stored.decoded))
        assert set(stored.decoded) == set(range(5))


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


def test_chunks_of_more_than_16_mib_are_not_kept() -> None:
    most = 16 * 2**20 // (8 * 3)
    assert isinstance(cache_chunks(InChunks(TABLE, "v", chunk_size=most)), CachedChunkRows)
    larger = InChunks(TABLE, "v", chunk_size=most + 1)
    assert cache_chunks(larger) is larger
