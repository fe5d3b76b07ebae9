"""Row sources: the same float64 rows, whatever holds them."""

from __future__ import annotations

import hashlib
import struct
from typing import Any
from unittest.mock import patch

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mscam_dask.data.views import sources
from mscam_dask.data.views.sources import ArrayRows, DaskRows, row_ranges, view_digest
from mscam_dask.errors import DataError
from tests.clusters import local_client
from tests.data.conftest import dask_array, finite_tables


def digest_by_definition(values: NDArray[Any]) -> str:
    """SHA-256 of the shape and of that of each block: values as little-endian doubles, zero without sign."""
    digest = hashlib.sha256(f"{values.shape[0]}x{values.shape[1]};".encode())
    for start in range(0, len(values), sources.DIGEST_ROWS):
        block = hashlib.sha256()
        for value in values[start : start + sources.DIGEST_ROWS].ravel():
            block.update(struct.pack("<d", float(value) or 0.0))
        digest.update(block.digest())
    return digest.hexdigest()


@given(table=finite_tables(), data=st.data())
def test_array_rows_are_float64_c_ordered_read_only_and_equal(
    table: NDArray[Any], data: st.DataObject
) -> None:
    source = ArrayRows(table, "v")
    start = data.draw(st.integers(0, len(table)))
    stop = data.draw(st.integers(start, len(table)))
    before = table.copy()
    rows = source.read(start, stop)
    assert rows.dtype == np.float64
    assert rows.dtype.isnative
    assert rows.flags.c_contiguous
    assert not rows.flags.writeable
    np.testing.assert_array_equal(rows, table[start:stop].astype(np.float64))
    np.testing.assert_array_equal(table, before)
    assert source.shape == table.shape
    assert source.dtype == table.dtype


@settings(max_examples=30)
@given(table=finite_tables(), chunks=st.tuples(st.integers(1, 9), st.integers(1, 9)))
def test_dask_rows_equal_array_rows_for_any_chunks(
    table: NDArray[Any], chunks: tuple[int, int]
) -> None:
    source = DaskRows(dask_array(table, chunks), "v")
    rows = source.read(0, len(table))
    assert rows.flags.c_contiguous
    np.testing.assert_array_equal(rows, ArrayRows(table, "v").read(0, len(table)))
    assert view_digest(source) == view_digest(ArrayRows(table, "v"))


@given(table=finite_tables(), rows_of_block=st.integers(1, 8))
def test_digest_is_that_of_little_endian_doubles_in_row_order(
    table: NDArray[Any], rows_of_block: int
) -> None:
    with patch.object(sources, "DIGEST_ROWS", rows_of_block):
        assert view_digest(ArrayRows(table, "v")) == digest_by_definition(table)


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


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (0, 5), (3, 2)])
def test_rows_outside_the_view_are_refused(start: int, stop: int) -> None:
    with pytest.raises(IndexError):
        ArrayRows(np.zeros((4, 2)), "v").read(start, stop)


@pytest.mark.parametrize(
    "values",
    [
        *(np.zeros((2, 2), dtype) for dtype in ("O", "c16", "m8[s]", "U3", [("x", "f8")])),
        *(np.zeros(3), np.zeros((2, 3, 4))),
    ],
)
def test_arrays_that_are_no_tables_of_real_numbers_are_refused(values: NDArray[Any]) -> None:
    with pytest.raises(DataError):
        ArrayRows(values, "colour")


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


def test_masked_dask_values_are_refused_like_masked_numpy_values() -> None:
    values = np.arange(12.0).reshape(6, 2)
    mask = np.zeros_like(values, dtype=bool)
    mask[4] = True
    lazy = DaskRows(da.from_array(np.ma.array(values, mask=mask), chunks=(3, 2)), "v")
    np.testing.assert_array_equal(lazy.read(0, 4), values[:4])
    with pytest.raises(DataError):
        lazy.read(3, 6)
    unmasked = DaskRows(da.from_array(np.ma.array(values), chunks=3), "v")
    np.testing.assert_array_equal(unmasked.read(0, 6), values)


@pytest.mark.parametrize(
    "change",
    [lambda block: block[:1], lambda block: block[:, :1], lambda block: block * 1j],
    ids=["rows", "columns", "dtype"],
)
def test_dask_blocks_are_what_the_array_says(change: Any) -> None:
    array = da.ones((6, 2), chunks=(3, 2)).map_blocks(change, dtype=float, meta=np.empty((0, 0)))
    with pytest.raises(DataError):
        DaskRows(array, "v").read(0, 6)
