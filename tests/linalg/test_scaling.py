"""Streaming moments against the whole, and scalings against what they promise."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal

from mscam_dask.errors import ConfigurationError
from mscam_dask.linalg.scaling import ColumnMoments, fit_transform_from_moments, safe_exponent
from mscam_dask.types.parameters import Scale
from tests.synthetic import Array

blocks = st.lists(
    arrays(
        np.float64,
        st.tuples(st.integers(1, 5), st.just(3)),
        elements=st.floats(-100, 100, allow_subnormal=False),
    ),
    min_size=1,
    max_size=5,
)


def merged(parts: list[Array]) -> ColumnMoments:
    return reduce(ColumnMoments.merge, [ColumnMoments.from_rows(part) for part in parts])


def transformed(kind: Scale, rows: Array) -> Array:
    return fit_transform_from_moments(kind, ColumnMoments.from_rows(rows)).apply(rows)


@settings(max_examples=30)
@given(blocks)
def test_merged_moments_are_those_of_all_rows(parts: list[Array]) -> None:
    rows = np.vstack(parts)
    moments = merged(parts)
    assert moments.count == len(rows)
    assert_allclose(moments.mean, rows.mean(axis=0), atol=1e-12)
    assert_allclose(moments.standard_deviation**2, rows.var(axis=0), atol=1e-10)
    assert_allclose(moments.standard_deviation, rows.std(axis=0), atol=1e-12)
    assert_array_equal(moments.minimum, rows.min(axis=0))
    assert_array_equal(moments.maximum, rows.max(axis=0))


def test_a_large_mean_costs_no_variance() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((1000, 2)) + np.array([0.0, 1e9])
    moments = merged(list(rows.reshape(10, 100, 2)))
    # sum(x^2) - n mean^2 would keep no digit of the second
    assert_allclose(moments.standard_deviation, rows.std(axis=0), rtol=1e-6)


@pytest.mark.parametrize("unit", [1e-300, 1e-160, 1e-30, 1.0, 1e30, 1e160, 1e300])
@pytest.mark.parametrize("kind", ["standard", "minmax", "unit"])
def test_scalings_have_no_unit(kind: Scale, unit: float) -> None:
    base = np.random.default_rng(1).standard_normal((30, 4))
    assert_allclose(transformed(kind, base * unit), transformed(kind, base), atol=1e-13)


@settings(max_examples=30)
@given(blocks)
def test_unit_rows_have_norm_one_and_zero_rows_stay(parts: list[Array]) -> None:
    rows = np.vstack((*parts, np.zeros((1, 3))))
    scaled = transformed("unit", rows)
    norms = np.linalg.norm(scaled, axis=1)
    zero = ~rows.any(axis=1)
    assert_allclose(norms[~zero], 1.0)
    assert (scaled[zero] == 0).all()
    # direction kept
    largest = np.abs(rows).max(axis=1, keepdims=True)
    directions = rows / np.where(largest > 0, largest, 1)
    assert_allclose(np.abs(np.sum(directions * scaled, axis=1)), np.linalg.norm(directions, axis=1))


def test_log_scales_the_logarithms_to_unit_rows_as_it_scales_steps_from_zero() -> None:
    rows = np.array([[0.0, 3.0, 1.0], [5.0, 0.0, 200.0], [0.0, 0.0, 0.0]])
    scaling = fit_transform_from_moments("log", ColumnMoments.from_rows(rows))
    logs = np.log1p(rows)
    lengths = np.linalg.norm(logs, axis=1)
    assert_allclose(scaling.apply(rows)[:2], logs[:2] / lengths[:2, None])
    assert not scaling.apply(rows)[2].any()
    steps = scaling.of_steps(np.array([0.0, 1.0, 2.0]), rows)
    assert_allclose(steps, np.log([1.0, 2.0, 3.0]) / np.median(lengths[:2]))


@pytest.mark.parametrize("value", [0.1, -3.0, 0.0, 1e300, 1e-310])
def test_constant_columns_become_zero_however_streamed(value: float) -> None:
    rows = np.column_stack((np.full(30, value), np.arange(30.0)))
    moments = merged([rows[:7], rows[7:8], rows[8:]])
    kinds: tuple[Scale, ...] = ("standard", "minmax")
    for kind in kinds:
        scaled = fit_transform_from_moments(kind, moments).apply(rows)
        assert (scaled[:, 0] == 0).all()
        assert np.ptp(scaled[:, 1]) > 0


def test_a_scaling_that_this_process_does_not_have_is_refused() -> None:
    moments = ColumnMoments.from_rows(np.eye(3))
    unknown: Any = "largest"  # that a user added to SCALINGS on the driver alone
    with pytest.raises(ConfigurationError):
        fit_transform_from_moments(unknown, moments)


def test_none_is_a_copy() -> None:
    rows = np.asfortranarray(np.arange(6.0).reshape(3, 2))
    scaled = transformed("none", rows)
    assert_array_equal(scaled, rows)
    assert scaled.flags.c_contiguous
    assert not np.shares_memory(scaled, rows)


def test_ordinary_numbers_are_not_moved() -> None:
    np.testing.assert_array_equal(
        safe_exponent(np.array([0.0, 1.0, 1e60, 1e-60, 1e61, 1e-61, 5e-324])),
        [0, 0, 0, 0, 203, -202, -1073],
    )
