"""Adaptive neighbours: optimality conditions of their problems."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from mscam_dask.solvers.graph_update import (
    adaptive_neighbor_weights,
    neighbor_widths,
    select_neighbors,
    tied_neighbor_weights,
)

sorted_distances = arrays(
    np.float64,
    st.tuples(st.integers(1, 6), st.integers(2, 9)),
    elements=st.one_of(st.floats(0, 100, allow_subnormal=False), st.integers(0, 3).map(float)),
).map(lambda d: np.sort(d, axis=1))


def _is_tied(d: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.asarray(d[:, -1] - d[:, 0] <= 1e-12 * d[:, -1], dtype=np.bool_)


class TestAdaptiveNeighbors:
    @given(sorted_distances)
    def test_closed_form_as_printed(self, d: NDArray[np.float64]) -> None:
        d = d[~_is_tied(d)]
        d = d[d[:, -1] - d[:, 0] > 1e-3 * d[:, -1]]  # where the printed form loses no digits
        k = d.shape[1] - 1
        printed = (d[:, -1:] - d[:, :-1]) / (k * d[:, -1:] - d[:, :-1].sum(axis=1, keepdims=True))
        assert_allclose(adaptive_neighbor_weights(d), printed, atol=1e-10)

    @given(sorted_distances, st.integers(1, 6))
    def test_ties_are_kept_together(self, d: NDArray[np.float64], k: int) -> None:
        k = min(k, d.shape[1] - 1)
        kth = d[:, k - 1 : k]
        # at the very edge of what counts as equal rounding says which it is
        assume(
            not np.isclose(np.abs(d - kth), 1e-5 * kth, rtol=1e-4, atol=0.0)[kth[:, 0] > 0].any()
        )
        weights = tied_neighbor_weights(d, k)
        assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-13)
        assert (weights >= 0).all()
        for row, a in zip(d, weights, strict=True):
            gaps = np.flatnonzero(row > (1 + 1e-5) * row[k - 1])
            nearer = np.count_nonzero(row < (1 - 1e-5) * row[k - 1])
            if not gaps.size and not nearer:
                assert_array_equal(a, np.full(len(row), 1 / len(row)))
                continue
            # this is k_i: Eq. (30) with k_i neighbours, and nothing beyond
            kept = gaps[0] if gaps.size else nearer
            assert kept >= k if gaps.size else kept < k
            usual = adaptive_neighbor_weights(row[None, : kept + 1])[0]
            assert_allclose(a[:kept], usual, rtol=1e-13)
            assert_array_equal(a[kept:], 0.0)

    def test_rounding_decides_nothing_among_equals(self) -> None:
        rng = np.random.default_rng(1)
        d = np.sort(np.repeat([[0.1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.9]], 30, axis=0), axis=1)
        noisy = np.sort(d * (1 + 1e-7 * rng.standard_normal(d.shape)), axis=1)
        assert_allclose(tied_neighbor_weights(noisy, 3), tied_neighbor_weights(d, 3), atol=1e-5)
        assert np.abs(adaptive_neighbor_weights(noisy[:, :4])[:, 1:]).max() < 1e-5  # as it was
        # the ties extend beyond the candidates: all are dropped
        assert_array_equal(tied_neighbor_weights(noisy[:, :6], 3), np.eye(30, 6)[[0] * 30])

    @pytest.mark.parametrize("value", [0.0, 5e-324, 0.1, 1e308])
    def test_tied_candidates_share_equally(self, value: float) -> None:
        assert_array_equal(adaptive_neighbor_weights(np.full((2, 5), value)), np.full((2, 4), 0.25))

    @pytest.mark.parametrize("unit", [1e-300, 1e-30, 1e30, 1e300])
    def test_weights_have_no_unit(self, unit: float) -> None:
        d = np.array([[1.0, 2.0, 4.0, 8.0]])
        assert_allclose(adaptive_neighbor_weights(d * unit), adaptive_neighbor_weights(d))
        assert_allclose(neighbor_widths(d * unit), neighbor_widths(d) * unit)

    def test_widths_of_eq_30(self) -> None:
        d = np.array([[1.0, 2.0, 4.0], [3.0, 3.0, 3.0]])
        assert_allclose(neighbor_widths(d), [0.5 * (2 * 4 - 3), 0.0])


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 3), st.integers(0, 999))
def test_select_takes_the_k_nearest_present(m: int, k: int, absent: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    width = k + 1 + absent + 2
    indices = np.stack([rng.permutation(50)[:width] for _ in range(m)])
    indices[:, :absent] = -1
    distances = rng.integers(0, 4, size=(m, width)).astype(np.float64)
    distances[:, :absent] = np.nan  # ignored where absent
    order = rng.permutation(width)
    chosen, weights = select_neighbors(indices[:, order], distances[:, order], k)
    for row in range(m):
        pairs = sorted(zip(distances[row, absent:], indices[row, absent:], strict=True))
        assert chosen[row].tolist() == [index for _, index in pairs[:k]]
        nearest = np.array([[distance for distance, _ in pairs[: k + 1]]])
        assert_array_equal(weights[row], adaptive_neighbor_weights(nearest)[0])


def test_all_other_samples_as_neighbours() -> None:
    # k = n - 1: there is no (k + 1)-th distance, d_{k+1} = d_k
    indices, weights = select_neighbors(np.array([[2, 1, 3]]), np.array([[2.0, 1.0, 4.0]]), 3)
    assert_array_equal(indices, [[1, 2, 3]])
    assert_allclose(weights, [[0.6, 0.4, 0.0]])
    assert_array_equal(select_neighbors(np.array([[1]]), np.array([[5.0]]), 1)[1], [[1.0]])
