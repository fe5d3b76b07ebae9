"""Neighbours against an enumeration of all samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.linalg.neighbors import nearest_neighbors
from tests.messages import quotes


def nearest(points: NDArray[np.float64], k: int, **options: int) -> NDArray[np.int64]:
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


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_all_samples_equal(offset: float) -> None:
    found = nearest(np.full((40, 2), offset), 3)
    expected = [[j for j in range(5) if j != i][:3] for i in range(40)]
    assert_array_equal(found, expected)


def test_duplicates_hide_no_one_else() -> None:
    # 30 copies of one point, and a ring of distinct ones around it
    rng = np.random.default_rng(0)
    points = np.vstack((np.zeros((30, 2)), rng.standard_normal((30, 2))))[rng.permutation(60)]
    assert_array_equal(nearest(points, 5), by_enumeration(points, 5))


def test_far_from_the_origin_distances_are_still_exact() -> None:
    # matrix products would see nothing but rounding here
    rng = np.random.default_rng(1)
    points = np.asarray(1e9 + rng.integers(0, 1000, size=(80, 2)) * 2.0**-10, dtype=np.float64)
    points[0] = -1e9  # so that centring does not help
    assert_array_equal(nearest(points, 6), by_enumeration(points, 6))


def test_row_blocks_agree_with_the_whole() -> None:
    rng = np.random.default_rng(2)
    points = rng.integers(0, 3, size=(70, 3)).astype(np.float64)
    whole = nearest(points, 7)
    blocks = [
        nearest(points, 7, row_start=start, row_stop=min(70, start + 16), block_bytes=1)
        for start in range(0, 70, 16)
    ]
    assert_array_equal(np.vstack(blocks), whole)
    assert_array_equal(nearest(points, 7, block_bytes=1), whole)
    assert nearest(points, 7, row_start=9, row_stop=9).shape == (0, 7)


def test_embedding_is_left_alone() -> None:
    points = np.arange(12.0).reshape(6, 2)
    points.flags.writeable = False
    nearest(points, 2)
    assert_array_equal(points, np.arange(12.0).reshape(6, 2))


@pytest.mark.parametrize("k", [0, 5])
def test_number_of_candidates_must_fit(k: int) -> None:
    with pytest.raises(ConfigurationError, match=quotes(k, 1, 4)):
        nearest(np.zeros((5, 1)), k)


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (0, 6), (4, 3)])
def test_rows_must_exist(start: int, stop: int) -> None:
    with pytest.raises(ConfigurationError, match=quotes(start, stop, 0, 5)):
        nearest(np.zeros((5, 1)), 2, row_start=start, row_stop=stop)


def test_not_finite_is_refused_with_the_row() -> None:
    points = np.zeros((5, 2))
    points[3, 1] = np.nan
    with pytest.raises(DataError, match=quotes(1, 5, [3])):
        nearest(points, 2)
    with pytest.raises(DataError, match=quotes((5, 0))):
        nearest(np.zeros((5, 0)), 2)
