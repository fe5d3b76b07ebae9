"""Squared distances against their definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from mscam_dask.linalg.distances import (
    squared_distances,
    squared_distances_to,
    subtract_twice_products,
)


def by_definition(rows: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    result = np.zeros((len(rows), len(others)))
    for i, x in enumerate(rows):
        for j, y in enumerate(others):
            result[i, j] = sum((a - b) ** 2 for a, b in zip(x, y, strict=True))
    return result


@settings(max_examples=30)
@given(st.integers(0, 6), st.integers(0, 7), st.integers(0, 5), st.integers(0, 1000))
def test_all_pairs(m: int, n: int, r: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, others = rng.standard_normal((m, r)), rng.standard_normal((n, r))
    assert_allclose(squared_distances(rows, others), by_definition(rows, others), atol=1e-13)


def test_a_common_offset_costs_no_digits() -> None:
    rng = np.random.default_rng(0)
    points = np.round(rng.standard_normal((20, 3)), 3)
    shifted = squared_distances(points + 2.0**20, points + 2.0**20)
    assert_allclose(shifted, by_definition(points, points), atol=1e-8)
    assert (shifted >= 0).all()


@settings(max_examples=30)
@given(st.integers(1, 9), st.integers(1, 6), st.integers(0, 4), st.integers(0, 1000))
def test_edges(n: int, k: int, r: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((n, r))
    indices = rng.integers(n, size=(n, k))
    expected = np.take_along_axis(by_definition(points, points), indices, axis=1)
    assert_allclose(squared_distances_to(points, np.arange(n), indices), expected, rtol=1e-13)


def test_bits_of_edges_are_symmetric_and_do_not_depend_on_blocks() -> None:
    points = np.random.default_rng(3).standard_normal((64, 37))
    rows, everyone = np.arange(64), np.tile(np.arange(64), (64, 1))
    whole = squared_distances_to(points, rows, everyone)
    assert_array_equal(whole, whole.T)
    parts = [
        squared_distances_to(points, rows[start : start + 7], everyone[start : start + 7])
        for start in range(0, 64, 7)
    ]
    assert_array_equal(np.vstack(parts), whole)


def test_products_are_subtracted_from_a_part_of_an_array_too() -> None:
    rng = np.random.default_rng(0)
    rows, others = (rng.standard_normal((m, 2)).astype(np.float32) for m in (3, 4))
    whole = np.zeros((3, 8), dtype=np.float32)
    subtract_twice_products(whole[:, ::2], rows, others)
    assert_allclose(whole[:, ::2], -2.0 * rows @ others.T, rtol=1e-5, atol=1e-6)
    assert_array_equal(whole[:, 1::2], 0.0)
