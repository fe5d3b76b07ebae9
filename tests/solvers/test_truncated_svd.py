"""The strongest directions of a wide view or a large kernel, by definition and beside the exact ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.linalg import subspace_angles
from scipy.spatial.distance import pdist, squareform

from mscam_dask.errors import DataError
from mscam_dask.linalg.orthonormal import Basis, basis_from_kernel
from mscam_dask.solvers import ridge_view as module
from mscam_dask.solvers.ridge_view import ViewSVD, truncated_eigh, truncated_svd, view_svd
from mscam_dask.solvers.row_blocks import BLOCK_BYTES, ViewShape, ViewType, row_blocks

Array = NDArray[np.float64]
RANK = 5


def decaying(seed: int = 0, *, n: int = 90, d: int = 70, fall: float = 0.7) -> Array:
    """Rows with s = fall⁰, fall¹, … and a mean that is not zero."""
    rng = np.random.default_rng(seed)
    left = np.linalg.qr(rng.standard_normal((n, d)))[0]
    left = np.linalg.qr(left - left.mean(axis=0))[0]
    right = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return np.asarray(3.0 + 10.0 * (left * fall ** np.arange(min(n, d))) @ right.T)


def found_in(
    rows: Array, rank: int = RANK, *, block_bytes: int = BLOCK_BYTES
) -> tuple[Basis, float]:
    n, d = rows.shape

    def blocks() -> Any:
        for start, stop in row_blocks(n, d, block_bytes=block_bytes):
            yield start, stop, rows[start:stop]

    return truncated_svd(blocks, ViewShape(n, d, "features"), rows.mean(axis=0), rank)


def test_they_are_the_first_singular_vectors() -> None:
    rows = decaying()
    centred = rows - rows.mean(axis=0)
    _, singular, right = np.linalg.svd(centred, full_matrices=False)
    found, total = found_in(rows)
    assert found.vectors.shape == (70, RANK)
    assert_allclose(found.vectors.T @ found.vectors, np.eye(RANK), atol=1e-12)
    assert_allclose(found.singular_values_squared, singular[:RANK] ** 2, rtol=1e-4)
    assert total == pytest.approx(np.sum(singular**2))
    assert np.max(subspace_angles(found.vectors, right[:RANK].T)) < 1e-3


def test_a_view_with_fewer_directions_gives_those() -> None:
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 50))
    found, total = found_in(rows)
    assert found.vectors.shape == (50, 2)
    assert np.sum(found.singular_values_squared) == pytest.approx(total)


def test_the_order_of_the_samples_and_blocks_do_not_matter() -> None:
    rows = decaying(3)
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


@pytest.mark.parametrize("shape", [(90, 70), (60, 140)])
@pytest.mark.parametrize("scale", ["standard", "unit", "none"])
def test_a_wide_view_is_factored_as_by_its_gram_matrix(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int], scale: Any
) -> None:
    rng = np.random.default_rng(4)
    low = rng.standard_normal((shape[0], 6)) * 8.0 * 0.6 ** np.arange(6)
    rows = low @ rng.standard_normal((6, shape[1])) + 0.2 * rng.standard_normal(shape)

    def factored() -> Any:
        shaped = ViewShape(*shape, "features")
        return view_svd(lambda a, b: rows[a:b], shaped, scale=scale, name="w", max_rank=4)

    exact = factored()
    monkeypatch.setattr(module, "MAX_EXACT_GRAM", 20)
    found = factored()
    assert not np.array_equal(found.basis.vectors, exact.basis.vectors)
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
def test_of_a_kernel_they_are_its_first_eigenvectors(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(module, "_RANK_SAMPLE", 70)
    kernel = kernels()[kind]
    exact = basis_from_kernel(kernel)
    basis, mean = truncated_eigh(kernel, RANK)
    assert basis.rank == min(RANK, exact.rank)
    s2 = exact.singular_values_squared
    assert_allclose(basis.singular_values_squared, s2[:RANK], rtol=1e-10)
    assert_allclose(basis.vectors, exact.vectors[:, :RANK], atol=1e-8)
    # the negative ones' share is estimated
    assert mean == pytest.approx(s2.mean(), rel=0.15 if kind == "indefinite" else 1e-9)


@pytest.mark.parametrize("view_type", ["distance", "kernel"])
def test_a_large_distance_or_kernel_view_is_factored_as_by_all_its_directions(
    monkeypatch: pytest.MonkeyPatch, view_type: ViewType
) -> None:
    points = np.random.default_rng(7).standard_normal((90, 3)) * [9.0, 4.0, 2.0]
    square = squareform(pdist(points)) if view_type == "distance" else 7.0 + points @ points.T

    def factored() -> ViewSVD:
        shape = ViewShape(90, 90, view_type)
        return view_svd(lambda a, b: square[a:b], shape, scale="none", name="w", max_rank=3)

    exact = factored()
    monkeypatch.setattr(module, "MAX_EXACT_GRAM", 20)
    found = factored()
    assert not np.array_equal(found.basis.vectors, exact.basis.vectors)
    assert_allclose(
        found.basis.singular_values_squared, exact.basis.singular_values_squared, rtol=1e-9
    )
    assert_allclose(found.basis.vectors, exact.basis.vectors, atol=1e-8)
    assert_allclose(found.encoder(square), found.basis.vectors, atol=1e-10)
