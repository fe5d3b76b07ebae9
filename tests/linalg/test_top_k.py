"""The smallest entries of rows, by definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from mscam_dask.linalg.top_k import top_k_columns


def check(values: NDArray[Any], count: int) -> NDArray[np.int64]:
    columns = top_k_columns(values, count)
    assert columns.shape == (len(values), count)
    assert columns.dtype == np.int64
    ordered = np.sort(columns, axis=1)
    assert (ordered[:, 1:] > ordered[:, :-1]).all()  # every column once
    taken = np.sort(np.take_along_axis(values, columns, axis=1), axis=1)
    assert_array_equal(taken, np.sort(values, axis=1)[:, :count])
    return columns


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "count"), [(1, 1), (9, 9), (40, 11), (40, 3), (997, 20), (1600, 1)])
def test_they_are_the_smallest(n: int, count: int, dtype: type[Any]) -> None:
    values = np.random.default_rng(n + count).standard_normal((37, n)).astype(dtype)
    check(values, count)


def test_neighbours_in_a_row_ties_and_equal_rows_are_told_apart() -> None:
    n = 333
    rising = np.tile(np.arange(n, dtype=np.float64), (3, 1))
    assert_array_equal(np.sort(check(rising, 7), axis=1), np.tile(np.arange(7), (3, 1)))
    together = n // 16  # the columns that are looked at together hold all the smallest
    spread = np.ones((2, n))
    spread[:, ::together] = np.linspace(0.0, 0.5, len(range(0, n, together)))
    check(spread, 7)
    check(np.zeros((4, n)), 7)
    check(np.random.default_rng(0).integers(0, 3, (50, n)).astype(np.float32), 12)


def test_infinite_entries_come_last() -> None:
    values = np.full((2, 200), np.inf)
    values[0, 150], values[0, 20], values[1, 199] = 1.0, -np.inf, 5.0
    columns = check(values, 3)
    assert {20, 150} <= set(columns[0].tolist())
    assert 199 in columns[1]


def test_a_matrix_without_rows_has_none() -> None:
    assert top_k_columns(np.empty((0, 100)), 4).shape == (0, 4)


def test_the_matrix_is_left_alone_and_need_not_be_contiguous() -> None:
    whole = np.random.default_rng(1).standard_normal((300, 20))
    kept = whole.copy()
    check(whole.T, 5)
    check(whole.T[::2, ::3], 5)
    assert_array_equal(whole, kept)
