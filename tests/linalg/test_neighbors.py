"""Neighbors against an enumeration of all samples, and the smallest entries of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from mscam_dask.linalg.distances import WeightedBlocks
from mscam_dask.linalg.neighbors import column_facts, nearest_neighbors, top_k_columns


def nearest(points: NDArray[np.float64], k: int, **options: Any) -> NDArray[np.int64]:
    return nearest_neighbors(points, k, **options)[0]


def by_enumeration(points: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    """Every other sample, sorted by (exact distance, index)."""
    n = len(points)
    rows = []
    for i in range(n):
        distance = np.sum((points - points[i]) ** 2, axis=1)
        others = [j for j in range(n) if j != i]
        rows.append(sorted(others, key=lambda j: (distance[j], j))[:k])
    return np.array(rows, dtype=np.int64)


@settings(max_examples=30)
@given(st.integers(2, 40), st.integers(1, 4), st.data())
def test_against_enumeration(n: int, r: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, n - 1))
    points = np.random.default_rng(data.draw(st.integers(0, 999))).standard_normal((n, r))
    assert_array_equal(nearest(points, k), by_enumeration(points, k))


@settings(max_examples=30)
@given(st.integers(12, 60), st.integers(1, 3), st.integers(1, 4), st.data())
def test_ties_on_a_lattice_go_to_the_lower_index(
    n: int, r: int, side: int, data: st.DataObject
) -> None:
    # integer coordinates: exact ties everywhere, many duplicates
    k = data.draw(st.integers(1, n - 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    points = rng.integers(0, side, size=(n, r)).astype(np.float64)
    assert_array_equal(nearest(points, k), by_enumeration(points, k))


def test_far_from_the_origin_distances_are_still_exact() -> None:
    # matrix products would see nothing but rounding here
    rng = np.random.default_rng(1)
    points = np.asarray(1e9 + rng.integers(0, 1000, size=(80, 2)) * 2.0**-10, dtype=np.float64)
    points[0] = -1e9  # so that centring does not help
    assert_array_equal(nearest(points, 6), by_enumeration(points, 6))


def test_facts_of_blocks_in_different_units_are_combined() -> None:
    rng = np.random.default_rng(4)
    points = rng.standard_normal((90, 6))
    units = np.repeat((1e-15, 1.0, 1e12), 2)
    columns = points * units + np.array([0.0, 0.0, 50.0, 50.0, 0.0, 0.0])
    weighted = WeightedBlocks(
        tuple(columns[:, first : first + 2].astype(np.float32) for first in (0, 2, 4)),
        tuple(units[first : first + 2] ** -2.0 for first in (0, 2, 4)),
    )
    facts = [*column_facts(weighted, slice(0, 1)), *column_facts(weighted, slice(1, 3))]
    found, distances = nearest_neighbors(weighted, 7, row_start=20, row_stop=50, facts=facts)
    assert_array_equal(found, by_enumeration(weighted.stacked(slice(None)), 7)[20:50])
    squared = [of_block.squared_norms * 4.0**of_block.exponent for of_block in facts]
    centered = points - points.mean(axis=0)
    assert_allclose(sum(squared), np.sum(centered**2, axis=1), rtol=1e-2)
    assert_array_equal(distances, nearest_neighbors(weighted, 7)[1][20:50])


def check_top_k(values: NDArray[Any], count: int) -> NDArray[np.int64]:
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
def test_top_k_columns_are_the_smallest(n: int, count: int, dtype: type[Any]) -> None:
    values = np.random.default_rng(n + count).standard_normal((37, n)).astype(dtype)
    check_top_k(values, count)


def test_top_k_of_rising_and_spread_rows() -> None:
    n = 333
    rising = np.tile(np.arange(n, dtype=np.float64), (3, 1))
    assert_array_equal(np.sort(check_top_k(rising, 7), axis=1), np.tile(np.arange(7), (3, 1)))
    together = n // 16  # the columns that are looked at together hold all the smallest
    spread = np.ones((2, n))
    spread[:, ::together] = np.linspace(0.0, 0.5, len(range(0, n, together)))
    check_top_k(spread, 7)
    check_top_k(np.zeros((4, n)), 7)
    check_top_k(np.random.default_rng(0).integers(0, 3, (50, n)).astype(np.float32), 12)
