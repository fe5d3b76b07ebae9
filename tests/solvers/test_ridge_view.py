"""Prepared views: streaming, the two sides of the factorisation, encoders, invariances."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.linalg
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from mscam_dask.errors import DataError
from mscam_dask.solvers.row_blocks import ViewType, row_blocks
from mscam_dask.types.parameters import Scale
from tests import oracle
from tests.blocks import small_blocks
from tests.messages import quotes
from tests.solvers.whole_rows import prepared, ridge_points

Array = NDArray[np.float64]
SCALES: tuple[Scale, ...] = ("standard", "unit", "minmax", "none")


def euclidean(rows: Array) -> Array:
    distances = np.sqrt(oracle.pair_distances(rows))
    np.fill_diagonal(distances, 0.0)
    return distances


def random_view(view_type: ViewType, seed: int = 0, *, n: int = 20, d: int = 6) -> Array:
    rows = np.random.default_rng(seed).standard_normal((n, d)) * np.arange(1, d + 1) + 3.0
    if view_type == "distance":
        return euclidean(rows)
    return rows @ rows.T if view_type == "kernel" else rows


def ridge_anchors(transformed: Array, alpha: float) -> Array:
    """Pairwise ‖z_i − z_j‖² of Z = (K + α s̄² I)⁻¹ K, X centred, K = XXᵀ, over their mean."""
    centred = transformed - transformed.mean(axis=0)
    K = centred @ centred.T
    values = scipy.linalg.eigvalsh(K)
    mean = values[values > 1e-10 * values[-1]].mean()
    Z = scipy.linalg.solve(K + alpha * mean * np.eye(len(K)), K)
    distances = oracle.pair_distances(Z.T)
    n = len(K)
    return np.asarray(distances * (n * (n - 1)) / distances.sum())


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("alpha", [0.1, 1e4])
@pytest.mark.parametrize("d", [6, 45])
def test_anchors_have_the_distances_of_the_ridge_self_representation(
    scale: Scale, alpha: float, d: int
) -> None:
    rows = random_view("features", d=d)
    view = prepared(rows, scale=scale, alpha=alpha)
    scaled = {
        "standard": (rows - rows.mean(axis=0)) / rows.std(axis=0),
        "unit": rows / np.linalg.norm(rows, axis=1, keepdims=True),
        "minmax": (rows - rows.min(axis=0)) / np.ptp(rows, axis=0),
        "none": rows,
    }[scale]
    # a direction dropped has less than 1e-4 of the leading one's weight; for 20 samples that is
    # at most 2e-3 of the mean distance
    assert_allclose(
        oracle.pair_distances(ridge_points(view)), ridge_anchors(scaled, alpha), atol=2e-3
    )


@pytest.mark.parametrize("view_type", ["features", "kernel", "distance"])
@pytest.mark.parametrize("n_block_rows", [1, 7])
def test_streaming_equals_one_block(view_type: ViewType, n_block_rows: int) -> None:
    rows = random_view(view_type)
    whole = prepared(rows, view_type=view_type)
    block_bytes = 8 * rows.shape[1] * n_block_rows
    assert len(list(row_blocks(*rows.shape, block_bytes=block_bytes))) == -(-20 // n_block_rows)
    with small_blocks(block_bytes):
        streamed = prepared(rows, view_type=view_type)
    assert_allclose(ridge_points(streamed), ridge_points(whole), atol=1e-9)
    assert_allclose(
        streamed.basis.singular_values_squared, whole.basis.singular_values_squared, rtol=1e-10
    )
    assert streamed.weight == pytest.approx(whole.weight)
    assert streamed.effective_rank == pytest.approx(whole.effective_rank)


@given(st.integers(1, 10**6), st.integers(1, 10**7))
def test_row_blocks_cover_every_row_once_and_stay_small(n: int, d: int) -> None:
    assume(n * d < 10**9)
    blocks = list(row_blocks(n, d))
    assert blocks[0][0] == 0
    assert blocks[-1][1] == n
    assert all(a[1] == b[0] for a, b in pairwise(blocks))
    assert all(
        stop - start > 0 and (stop - start - 1) * d * 8 <= 64 * 2**20 for start, stop in blocks
    )


@pytest.mark.parametrize("view_type", ["features", "kernel", "distance"])
@pytest.mark.parametrize("alpha", [0.01, 100.0])
def test_encoder_of_the_training_rows_gives_the_anchors(view_type: ViewType, alpha: float) -> None:
    for d in (6, 40):
        rows = random_view(view_type, d=d)
        view = prepared(rows, view_type=view_type, alpha=alpha)
        assert_allclose(view.encoder(rows), ridge_points(view), atol=1e-8)
        # row by row as well: an encoder knows no other rows
        assert_allclose(view.encoder(rows[3:4]), ridge_points(view)[3:4], atol=1e-8)


def test_distance_view_is_its_exponential_kernel() -> None:
    distances = random_view("distance")
    n = len(distances)
    unit = distances.sum() / (n * (n - 1))
    assert_allclose(
        ridge_points(prepared(distances, view_type="distance")),
        ridge_points(prepared(np.exp(-distances / unit), view_type="kernel")),
        atol=1e-10,
    )


def test_indefinite_kernel_uses_its_positive_part() -> None:
    values = np.array([5.0, 3.0, 1.0, -2.0, -4.0])
    # centred in feature space already: the vectors are orthogonal to the constant
    vectors = scipy.linalg.null_space(np.ones((1, 6)))
    whole = (vectors * values) @ vectors.T
    positive = (vectors[:, :3] * values[:3]) @ vectors[:, :3].T
    view = prepared(whole, view_type="kernel")
    assert_allclose(
        oracle.pair_distances(ridge_points(view)),
        oracle.pair_distances(ridge_points(prepared(positive, view_type="kernel"))),
        atol=1e-10,
    )
    assert_allclose(view.encoder(whole), ridge_points(view), atol=1e-10)


@pytest.mark.parametrize("d", [6, 40])
def test_what_all_samples_share_changes_nothing(d: int) -> None:
    rows = random_view("features", d=d)
    moved = rows + 1e4 * np.random.default_rng(1).standard_normal(d)
    plain = oracle.pair_distances(ridge_points(prepared(rows, scale="none")))
    assert_allclose(
        oracle.pair_distances(ridge_points(prepared(moved, scale="none"))), plain, atol=1e-7
    )
    kernel = moved @ moved.T
    assert_allclose(
        oracle.pair_distances(ridge_points(prepared(kernel, view_type="kernel"))), plain, atol=1e-4
    )


@pytest.mark.parametrize("exponent", [-900, 900])
@pytest.mark.parametrize(
    ("view_type", "scale"),
    [*(("features", scale) for scale in SCALES), ("kernel", "none"), ("distance", "none")],
)
def test_the_unit_of_a_view_does_not_matter_even_if_values_cannot_be_squared(
    view_type: ViewType, scale: Scale, exponent: int
) -> None:
    rows = random_view(view_type)
    plain = prepared(rows, view_type=view_type, scale=scale)
    moved = prepared(np.ldexp(rows, exponent), view_type=view_type, scale=scale)
    assert moved.weight == pytest.approx(plain.weight)
    np.testing.assert_allclose(ridge_points(moved), ridge_points(plain), atol=1e-12)
    np.testing.assert_allclose(
        moved.encoder(np.ldexp(rows, exponent)), plain.encoder(rows), atol=1e-12
    )


@given(st.integers(0, 2**16), st.integers(1, 8))
@settings(max_examples=20)
def test_basis_is_orthonormal_and_its_spectrum_normalised(seed: int, d: int) -> None:
    rows = np.random.default_rng(seed).standard_normal((18, d))
    view = prepared(rows, scale="none")
    Q, s2 = view.basis.vectors, view.basis.singular_values_squared
    assert_allclose(Q.T @ Q, np.eye(len(s2)), atol=1e-12)
    values = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False) ** 2
    kept = values / values.mean()
    assert_allclose(s2, kept[: len(s2)], rtol=1e-8)
    gains = kept / (kept + 1.0)
    assert np.all(gains[len(s2) :] <= 0.011 * gains[0])
    assert view.effective_rank == pytest.approx(values.sum() ** 2 / np.sum(values**2))


@pytest.mark.parametrize("scale", SCALES)
def test_constant_view_is_refused_by_name(scale: Scale) -> None:
    for value in (2.5, 0.1, -1e-200, 1e17 / 3):
        with pytest.raises(DataError, match=quotes("'a view'", f"scale={scale!r}")):
            prepared(np.full((10, 3), value), scale=scale)
