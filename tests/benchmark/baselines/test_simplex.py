"""Projection onto the simplex, and adaptive neighbors of one width: optimality conditions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from mscam_dask.benchmark.baselines.simplex_graphs import (
    adaptive_neighbor_weights_global,
    project_rows_to_simplex,
)
from mscam_dask.errors import ConfigurationError, DataError
from tests.messages import quotes

matrices = arrays(
    np.float64,
    array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=8),
    elements=st.floats(-10, 10, allow_subnormal=False),
)

sorted_distances = arrays(
    np.float64,
    st.tuples(st.integers(1, 6), st.integers(2, 9)),
    elements=st.one_of(st.floats(0, 100, allow_subnormal=False), st.integers(0, 3).map(float)),
).map(lambda d: np.sort(d, axis=1))


class TestProjection:
    @given(matrices)
    def test_result_is_on_the_simplex(self, rows: NDArray[np.float64]) -> None:
        projected = project_rows_to_simplex(rows)
        assert (projected >= 0).all()
        assert_allclose(projected.sum(axis=1), 1.0, rtol=1e-14)

    @given(matrices)
    def test_variational_inequality_at_every_vertex(self, rows: NDArray[np.float64]) -> None:
        # a is the projection of v iff (v - a).(b - a) <= 0 for every b on the simplex;
        # the left side is linear in b, so the vertices suffice
        a = project_rows_to_simplex(rows)
        residual = rows - a
        at_vertices = residual - np.sum(residual * a, axis=1, keepdims=True)
        assert at_vertices.max() <= 1e-12

    @given(matrices)
    def test_is_idempotent_and_ignores_a_common_shift(self, rows: NDArray[np.float64]) -> None:
        projected = project_rows_to_simplex(rows)
        assert_allclose(project_rows_to_simplex(projected), projected, atol=1e-14)
        assert_allclose(project_rows_to_simplex(rows + 7.0), projected, atol=1e-13)

    @given(matrices, st.integers(0, 10_000))
    def test_commutes_with_a_permutation_of_columns(
        self, rows: NDArray[np.float64], seed: int
    ) -> None:
        order = np.random.default_rng(seed).permutation(rows.shape[1])
        assert_allclose(
            project_rows_to_simplex(rows[:, order]),
            project_rows_to_simplex(rows)[:, order],
            atol=1e-15,
        )

    def test_input_is_left_alone(self) -> None:
        rows = np.array([[3.0, 1.0, 2.0]])
        project_rows_to_simplex(rows)
        assert_array_equal(rows, [[3.0, 1.0, 2.0]])

    def test_extreme_and_absent_entries(self) -> None:
        rows = np.array([[1e308, -1e308, 0.0], [-np.inf, 0.25, 0.25], [1e-300, 0.0, -1e-300]])
        expected = np.array([[1, 0, 0], [0, 0.5, 0.5], [1 / 3, 1 / 3, 1 / 3]])
        assert_allclose(project_rows_to_simplex(rows), expected, rtol=1e-15)

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_not_finite_is_refused_with_the_row(self, value: float) -> None:
        rows = np.zeros((4, 2))
        rows[2, 1] = value
        with pytest.raises(DataError, match=quotes(1, 4, [2])):
            project_rows_to_simplex(rows)

    def test_a_row_without_any_finite_entry_is_refused(self) -> None:
        with pytest.raises(DataError, match=quotes(1, [0])):
            project_rows_to_simplex(np.full((1, 2), -np.inf))

    def test_rows_without_columns_are_refused(self) -> None:
        with pytest.raises(DataError, match=quotes((3, 0))):
            project_rows_to_simplex(np.zeros((3, 0)))


class TestGlobalWidth:
    @given(sorted_distances, st.floats(0.01, 100))
    def test_optimality_conditions_of_eq_31(self, d: NDArray[np.float64], width: float) -> None:
        a = adaptive_neighbor_weights_global(d, width)
        gradient = d + 2 * width * a
        level = gradient.min(axis=1, keepdims=True)
        assert_allclose(a.sum(axis=1), 1.0, rtol=1e-13)
        assert ((gradient - level) * a <= 1e-11 * (d[:, -1:] + width)).all()

    def test_absent_candidates_get_nothing(self) -> None:
        a = adaptive_neighbor_weights_global(np.array([[1.0, np.inf, 1.0]]), 1.0)
        assert_array_equal(a, [[0.5, 0.0, 0.5]])

    def test_limits_of_the_width(self) -> None:
        d = np.array([[0.0, 1.0, 2.0]])
        assert_array_equal(adaptive_neighbor_weights_global(d, 1e-320), [[1.0, 0.0, 0.0]])
        assert_allclose(adaptive_neighbor_weights_global(d, 1e15), np.full((1, 3), 1 / 3))

    @pytest.mark.parametrize("width", [0.0, -1.0, np.nan, np.inf])
    def test_width_must_be_positive(self, width: float) -> None:
        with pytest.raises(ConfigurationError, match=quotes(width)):
            adaptive_neighbor_weights_global(np.ones((1, 2)), width)
