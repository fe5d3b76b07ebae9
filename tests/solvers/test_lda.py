"""Fisher's discriminants of a view: their definition, invariances and limit cases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.linalg import solve

from mscam_dask.solvers.lda import LinearDiscriminants, class_sums, discriminant_loadings
from mscam_dask.types.rules import CONSTANTS
from tests import oracle
from tests.solvers.whole_rows import linear_discriminants, prepared, ridge_points

Array = NDArray[np.float64]


def distances(found: LinearDiscriminants) -> Array:
    return oracle.pair_distances(found.points.astype(np.float64))


def example(
    seed: int = 0, *, n: int = 60, d: int = 5, c: int = 3, apart: float = 2.0
) -> tuple[Array, NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(n) % c)
    return rng.standard_normal((n, d)) + apart * rng.standard_normal((c, d))[labels], labels


def covariances(points: Array, labels: NDArray[np.int64]) -> tuple[Array, Array]:
    """Between clusters and within, sample by sample; the second one shrunk."""
    n, r = points.shape
    mean = points.mean(axis=0)
    between, within = np.zeros((r, r)), np.zeros((r, r))
    for row, label in zip(points, labels, strict=True):
        own = points[labels == label].mean(axis=0)
        between += np.outer(own - mean, own - mean) / n
        within += np.outer(row - own, row - own) / n
    share = CONSTANTS.shrinkage
    return between, (1 - share) * within + share * np.trace(within) / r * np.eye(r)


@given(seed=st.integers(0, 10**6), c=st.integers(2, 5))
def test_distances_are_those_of_the_definition(seed: int, c: int) -> None:
    """‖t_i − t_j‖² = (z_i − z_j)ᵀ S⁻¹ B (S + B)⁻¹ (z_i − z_j); the separation is tr (S + B)⁻¹ B."""
    rows, labels = example(seed, c=c)
    view = prepared(rows)
    points = ridge_points(view)
    between, within = covariances(points, labels)
    form = solve(within, between) @ np.linalg.inv(within + between)
    gaps = points[:, None] - points[None]
    expected = np.einsum("ijk,kl,ijl->ij", gaps, form, gaps)
    found = linear_discriminants(view, labels)
    assert found.points.shape == (60, min(c - 1, 5))
    assert_allclose(distances(found), expected, rtol=1e-4, atol=1e-4)
    off = ~np.eye(60, dtype=bool)
    assert found.mean_distance == pytest.approx(expected[off].mean(), rel=1e-4)
    vectors, weights = view.coordinates()
    _, separation = discriminant_loadings(class_sums(vectors, labels), np.sqrt(weights))
    assert separation == pytest.approx(np.trace(solve(within + between, between)), rel=1e-4)


def test_clusters_without_any_spread() -> None:
    labels = np.arange(30) % 3
    found = linear_discriminants(prepared(np.eye(3, 4)[labels] * [1.0, 2.0, 3.0, 0.0]), labels)
    assert np.isfinite(found.points).all()
    assert found.mean_distance > 0
    within = distances(found)[labels[:, None] == labels]
    assert_allclose(within, 0.0, atol=1e-3 * found.mean_distance)


def test_a_view_that_says_nothing_has_no_distances() -> None:
    """Means of the clusters that are all the same."""
    rows = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]] * 5)
    labels = np.repeat(np.arange(5), 4)
    found = linear_discriminants(prepared(rows), labels)
    assert found.mean_distance == pytest.approx(0.0, abs=1e-12)
