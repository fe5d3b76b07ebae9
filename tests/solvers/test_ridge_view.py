"""Prepared views: their strongest directions, streaming, encoders, and the joint embedding."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.linalg import subspace_angles
from scipy.spatial.distance import pdist, squareform

from mscam_dask.errors import DataError
from mscam_dask.linalg.distances import WeightedBlocks
from mscam_dask.linalg.incomplete import IncompleteBlocks, PresentSamples
from mscam_dask.linalg.orthonormal import RANK_TOLERANCE, Basis, basis_from_kernel
from mscam_dask.solvers import ridge_view as module
from mscam_dask.solvers.lda import LinearDiscriminants
from mscam_dask.solvers.ridge_view import (
    RidgeView,
    ViewSVD,
    classical_scaling,
    complete_embedding,
    joint_embedding,
    truncated_eigh,
    truncated_svd,
    view_svd,
)
from mscam_dask.solvers.row_blocks import BLOCK_BYTES, ViewShape, ViewType, row_blocks
from mscam_dask.types.parameters import Scale
from mscam_dask.types.rules import CONSTANTS
from tests import oracle
from tests.messages import raises
from tests.solvers.whole_rows import linear_discriminants, prepared, ridge_points
from tests.synthetic import Array, distances_between

SCALES: tuple[Scale, ...] = ("standard", "unit", "log", "minmax", "none")


def random_view(view_type: ViewType, d: int = 6) -> Array:
    rows = np.random.default_rng(0).standard_normal((20, d)) * np.arange(1, d + 1) + 3.0
    if view_type == "distance":
        return distances_between(rows)
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
    logs = np.sign(rows) * np.log1p(np.abs(rows))
    scaled = {
        "standard": (rows - rows.mean(axis=0)) / rows.std(axis=0),
        "unit": rows / np.linalg.norm(rows, axis=1, keepdims=True),
        "log": logs / np.linalg.norm(logs, axis=1, keepdims=True),
        "minmax": (rows - rows.min(axis=0)) / np.ptp(rows, axis=0),
        "none": rows,
    }[scale]
    # a direction dropped has less than 1e-4 of the leading one's weight; for 20 samples that is
    # at most 2e-3 of the mean distance
    assert_allclose(
        oracle.pair_distances(ridge_points(view)), ridge_anchors(scaled, alpha), atol=2e-3
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


@pytest.mark.parametrize(
    ("view_type", "pairs_of"),
    [
        ("distance", lambda distances, rows: distances),
        ("distance", lambda distances, rows: 1e200 * distances),
        ("kernel", lambda distances, rows: rows @ rows.T),
        ("kernel", lambda distances, rows: np.exp(-((distances / 9.0) ** 2))),
    ],
    ids=["distances", "large distances", "linear kernel", "Gaussian kernel"],
)
def test_classical_scaling_has_the_distances_of_the_rows(
    view_type: ViewType, pairs_of: Any
) -> None:
    rows = random_view("features")
    pairs = pairs_of(distances_between(rows), rows)
    found = classical_scaling(lambda i, j: pairs[i:j], ViewShape(20, 20, view_type), 64)
    assert found.shape == (20, 6)
    own, expected = distances_between(found), distances_between(rows)
    assert_allclose(own / own.max(), expected / expected.max(), rtol=1e-9, atol=1e-12)
    assert_allclose((found**2).mean(axis=0).mean(), 1.0)


def test_samples_at_distance_zero_have_one_coordinate() -> None:
    pairs = np.zeros((5, 5))
    found = classical_scaling(lambda i, j: pairs[i:j], ViewShape(5, 5, "distance"), 64)
    np.testing.assert_array_equal(found, np.zeros((5, 1)))


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
        with raises(DataError, "'a view'", f"scale={scale!r}"):
            prepared(np.full((10, 3), value), scale=scale)


N = 24


def some_views(sizes: tuple[int, ...]) -> tuple[list[RidgeView], list[LinearDiscriminants]]:
    """Views that have so many samples, and their discriminants."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(N) % 3)
    views, learned = [], []
    for number, size in enumerate(sizes):
        samples = np.sort(rng.choice(N, size, replace=False))
        present = None if size == N else PresentSamples(samples, N)
        rows = rng.standard_normal((size, 3 + number)) * (1.0 + number)
        view = prepared(rows + labels[samples, None], alpha=0.5, present=present)
        views.append(view)
        own = linear_discriminants(dataclasses.replace(view, present=None), labels[samples])
        learned.append(dataclasses.replace(own, present=present))
    return views, learned


def stacked(views: list[RidgeView | LinearDiscriminants]) -> Array:
    points = joint_embedding(views)
    assert isinstance(points, WeightedBlocks)
    return oracle.pair_distances(points.stacked(np.arange(N)))


def own_distances(view: RidgeView | LinearDiscriminants) -> Array:
    points = ridge_points(view) if isinstance(view, RidgeView) else view.points.astype(np.float64)
    return oracle.pair_distances(points)


@pytest.mark.parametrize("n_views", [1, 2, 3])
def test_distances_are_means_over_the_views(n_views: int) -> None:
    views, _ = some_views((N,) * n_views)
    found = stacked([*views])
    assert_allclose(found, np.mean([own_distances(view) for view in views], axis=0), atol=1e-9)
    assert found.sum() / (N * (N - 1)) == pytest.approx(1.0)


def test_discriminants_count_as_much_as_all_ridge_embeddings_together() -> None:
    views, learned = some_views((N, N, N))
    of_discriminants = stacked([*views, *learned]) - stacked([*views])
    assert of_discriminants.sum() / (N * (N - 1)) == pytest.approx(1.0, rel=1e-5)
    # a view whose clusters are farther apart has more of it
    total = np.sum([own_distances(view) for view in learned], axis=0)
    assert_allclose(of_discriminants, total / total.sum() * N * (N - 1), atol=1e-5)


def test_discriminants_of_equal_samples_count_nothing() -> None:
    views, _ = some_views((N, N))
    nothing = LinearDiscriminants(np.ones((N, 2), np.float32), 0.0, 0.0)
    assert_allclose(stacked([*views, nothing]), stacked([*views]), atol=1e-12)
    assert_allclose(complete_embedding([nothing]).stacked(slice(None)), 0.0)


def test_distances_of_incomplete_views_are_means_over_those_that_have_both() -> None:
    """Each kind by itself: other views of the kind count a tenth, at their mean distance."""
    views, learned = some_views((18, N, 15))
    points = joint_embedding([*views, *learned])
    assert isinstance(points, IncompleteBlocks)
    expected = np.zeros((N, N))
    one_has_both = np.zeros((N, N), dtype=np.bool_)
    kinds: list[list[RidgeView | LinearDiscriminants]] = [[*views], [*learned]]
    for kind in kinds:
        sums, scales = np.zeros((N, N)), np.zeros((N, N))
        for view in kind:
            samples = np.arange(N) if view.present is None else view.present.samples
            both = np.ix_(samples, samples)
            weight = np.full((N, N), CONSTANTS.unknown_view_weight)
            weight[both] = 1.0
            distances = np.full((N, N), view.mean_distance)
            distances[both] = own_distances(view)
            sums += weight * distances
            scales += weight * view.mean_distance
            one_has_both[both] = True
        expected += sums / scales
    everyone = np.arange(N)
    found = points.distances(everyone, everyone)
    assert_allclose(found, np.where(one_has_both, expected, np.inf), atol=1e-5)


RANK = 5


def decaying() -> Array:
    """Rows with s = 0.7⁰, 0.7¹, … and a mean that is not zero."""
    rng = np.random.default_rng(3)
    left = np.linalg.qr(rng.standard_normal((90, 70)))[0]
    left = np.linalg.qr(left - left.mean(axis=0))[0]
    right = np.linalg.qr(rng.standard_normal((70, 70)))[0]
    return np.asarray(3.0 + 10.0 * (left * 0.7 ** np.arange(70)) @ right.T)


def found_in(rows: Array, *, block_bytes: int = BLOCK_BYTES) -> tuple[Basis, float]:
    n, d = rows.shape

    def blocks() -> Any:
        for start, stop in row_blocks(n, d, block_bytes=block_bytes):
            yield start, stop, rows[start:stop]

    return truncated_svd(blocks, ViewShape(n, d, "features"), rows.mean(axis=0), RANK)


def test_the_order_of_the_samples_and_blocks_do_not_matter() -> None:
    rows = decaying()
    expected, _ = found_in(rows)
    order = np.random.default_rng(0).permutation(len(rows))
    moved = found_in(rows[order])
    parts = found_in(rows, block_bytes=8 * rows.shape[1] * 11)
    for other, _ in (moved, parts):
        assert_allclose(other.singular_values_squared, expected.singular_values_squared, rtol=1e-8)
        assert np.max(subspace_angles(other.vectors, expected.vectors)) < 1e-6


def test_values_too_large_to_be_squared_are_refused() -> None:
    with pytest.raises(DataError):
        found_in(1e200 * decaying())


def all_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_EXACT_GRAM", 20)


def exact_and_large(
    monkeypatch: pytest.MonkeyPatch, rows: Array, shape: ViewShape, **options: Any
) -> tuple[ViewSVD, ViewSVD]:
    """A view factored by all its directions, and as one that is too large for that."""

    def factored() -> ViewSVD:
        return view_svd(lambda a, b: rows[a:b], shape, name="w", **options)

    exact = factored()
    all_are_large(monkeypatch)
    found = factored()
    assert not np.array_equal(found.basis.vectors, exact.basis.vectors)
    return exact, found


@pytest.mark.parametrize("shape", [(90, 70), (60, 140)])
@pytest.mark.parametrize("scale", ["standard", "unit", "none"])
def test_a_wide_view_is_factored_as_by_its_gram_matrix(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int], scale: Any
) -> None:
    rng = np.random.default_rng(4)
    low = rng.standard_normal((shape[0], 6)) * 8.0 * 0.6 ** np.arange(6)
    rows = low @ rng.standard_normal((6, shape[1])) + 0.2 * rng.standard_normal(shape)

    shaped = ViewShape(*shape, "features")
    exact, found = exact_and_large(monkeypatch, rows, shaped, scale=scale, max_rank=4)
    assert_allclose(
        found.basis.singular_values_squared, exact.basis.singular_values_squared, rtol=1e-3
    )
    assert np.max(subspace_angles(found.basis.vectors, exact.basis.vectors)) < 0.02
    overlap = np.abs(np.sum(found.basis.vectors * exact.basis.vectors, axis=0))
    assert_allclose(overlap, 1.0, atol=1e-3)
    encoded = (found.encoder.transform.apply(rows) - found.encoder.offset) @ found.encoder.loadings
    assert_allclose(encoded, found.basis.vectors, atol=1e-10)


def centred(kernel: Array) -> Array:
    kernel = kernel - kernel.mean(axis=0)
    return np.asarray(kernel - kernel.mean(axis=1, keepdims=True))


def kernels() -> dict[str, Array]:
    """Of many directions, of few, of fewer than wanted, and one with negative eigenvalues."""
    rng = np.random.default_rng(6)
    rows = rng.standard_normal((160, 30)) * 0.9 ** np.arange(30)
    noise = rng.standard_normal((160, 160))
    full = centred(np.exp(-squareform(pdist(rows)) / 5.0))
    return {
        "full": full,
        "thirty": centred(rows @ rows.T),
        "three": centred(rows[:, :3] @ rows[:, :3].T),
        "indefinite": full + 0.01 * centred(noise + noise.T),
    }


@pytest.mark.parametrize("kind", ["full", "thirty", "three", "indefinite"])
@pytest.mark.parametrize("is_large", [False, True])
def test_of_a_kernel_they_are_its_first_eigenvectors(
    monkeypatch: pytest.MonkeyPatch, kind: str, is_large: bool
) -> None:
    monkeypatch.setattr(module, "_RANK_SAMPLE", 70)
    if is_large:
        all_are_large(monkeypatch)
    kernel = kernels()[kind]
    exact = basis_from_kernel(kernel)
    basis, mean = truncated_eigh(kernel, RANK)
    assert basis.rank == min(RANK, exact.rank)
    s2 = exact.singular_values_squared
    assert_allclose(basis.singular_values_squared, s2[:RANK], rtol=1e-10)
    assert_allclose(basis.vectors, exact.vectors[:, :RANK], atol=1e-8)
    # the negative ones' share is estimated
    assert mean == pytest.approx(s2.mean(), rel=0.15 if kind == "indefinite" else 1e-9)


def test_directions_that_do_not_converge_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    all_are_large(monkeypatch)
    rng = np.random.default_rng(0)
    columns = np.linalg.qr(np.c_[np.ones(200), rng.normal(size=(200, 199))])[0][:, 1:]
    values = np.geomspace(1.0, 1e-13, 199) * np.resize([1.0, -1.0], 199)
    basis, _ = truncated_eigh((columns * values) @ columns.T, 200)
    found = basis.singular_values_squared
    assert 50 < len(found) < np.count_nonzero(values > RANK_TOLERANCE)
    assert_allclose(found[:50], values[:100:2], rtol=1e-6)


@pytest.mark.parametrize("view_type", ["distance", "kernel"])
def test_a_large_distance_or_kernel_view_is_factored_as_by_all_its_directions(
    monkeypatch: pytest.MonkeyPatch, view_type: ViewType
) -> None:
    points = np.random.default_rng(7).standard_normal((90, 3)) * [9.0, 4.0, 2.0]
    square = squareform(pdist(points)) if view_type == "distance" else 7.0 + points @ points.T
    shape = ViewShape(90, 90, view_type)
    exact, found = exact_and_large(monkeypatch, square, shape, scale="none", max_rank=3)
    assert_allclose(
        found.basis.singular_values_squared, exact.basis.singular_values_squared, rtol=1e-9
    )
    assert_allclose(found.basis.vectors, exact.basis.vectors, atol=1e-8)
    assert_allclose(found.encoder(square), found.basis.vectors, atol=1e-10)
