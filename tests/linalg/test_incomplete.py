"""Distances and neighbors of points that do not have all blocks, by their definition."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.linalg.incomplete import (
    IncompleteBlocks,
    PresentSamples,
    SharedDistances,
    as_incomplete_blocks,
    nearest_sharing,
    with_finite_distances,
)
from mscam_dask.linalg.laplacian import induced_laplacian, laplacian
from mscam_dask.types.rules import CONSTANTS

N = 23


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def views_with_gaps(rng: np.random.Generator, n: int = N) -> list[NDArray[np.float64]]:
    """Three views, NaN for absent samples; samples 0 and 1 share none."""
    views = [rng.standard_normal((n, r)) for r in (2, 3, 1)]
    for view in views:
        view[rng.random(n) < 0.4] = np.nan
    views[0][:2], views[1][:2], views[2][:2] = 1.0, np.nan, np.nan
    views[0][1], views[1][1] = np.nan, 1.0
    views[2][2:] = np.nan_to_num(views[2][2:], nan=0.5)
    return views


def by_definition(views: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Mean over the shared views; every other one counts a tenth at distance one."""
    n = len(views[0])
    distances = np.full((n, n), np.inf)
    for i in range(n):
        for j in range(n):
            own = [np.sum((view[i] - view[j]) ** 2) for view in views]
            shared = [d for d in own if not np.isnan(d)]
            unknown = CONSTANTS.unknown_view_weight * (len(views) - len(shared))
            if shared:
                distances[i, j] = (sum(shared) + unknown) / (len(shared) + unknown)
    return distances


def test_distances_are_means_over_the_shared_views(rng: np.random.Generator) -> None:
    views = views_with_gaps(rng)
    points, expected = as_incomplete_blocks(views), by_definition(views)
    everyone = np.arange(N)
    assert_allclose(points.distances(everyone, everyone), expected, atol=1e-12)
    between = SharedDistances(tuple(view.shape[1] for view in views))
    joint = np.hstack(views)
    assert_allclose(between(joint[:4], joint[4:]), expected[:4, 4:], atol=1e-12)
    assert expected[0, 1] == np.inf


def test_points_that_are_taken_keep_their_distances(rng: np.random.Generator) -> None:
    views = views_with_gaps(rng)
    rows = np.array([1, 5, 2, 20])
    taken = as_incomplete_blocks(views).take(rows)
    expected = by_definition([view[rows] for view in views])
    assert_allclose(taken.distances(np.arange(4), np.arange(4)), expected, atol=1e-12)


@pytest.mark.parametrize("k", [1, 5, N - 1])
def test_neighbors_are_the_nearest_and_those_without_a_common_view_come_last(
    rng: np.random.Generator, k: int
) -> None:
    views = views_with_gaps(rng)
    indices, distances = nearest_sharing(as_incomplete_blocks(views), k, 0, N)
    expected = by_definition(views)
    np.fill_diagonal(expected, np.nan)  # sorted last
    assert_allclose(distances, np.sort(expected, axis=1)[:, :k], atol=1e-12)
    assert not (indices == np.arange(N)[:, None]).any()
    assert all(len(set(row)) == k for row in indices.tolist())
    part, _ = nearest_sharing(as_incomplete_blocks(views), k, 7, 12)
    assert_array_equal(part, indices[7:12])


def test_groups_of_blocks_add_up_in_units_of_their_own_means(rng: np.random.Generator) -> None:
    n = 8
    rows, learned = rng.standard_normal((n, 2)), 3.0 * rng.standard_normal((n, 1))
    everyone = PresentSamples(np.arange(n), n)
    points = IncompleteBlocks(n, (rows, learned), (everyone, everyone), (0, 1), (2.0, 5.0))
    found = points.distances(np.arange(n), np.arange(n))
    expected = np.sum((rows[:, None] - rows) ** 2, axis=2) / 2.0
    expected += np.sum((learned[:, None] - learned) ** 2, axis=2) / 5.0
    assert_allclose(found, expected, atol=1e-12)


def test_infinite_distances_become_the_largest_of_their_row() -> None:
    distances = np.array([[1.0, 3.0, np.inf], [np.inf, np.inf, np.inf], [0.0, 1.0, 2.0]])
    expected = [[1.0, 3.0, 6.0], [1.0, 1.0, 1.0], [0.0, 1.0, 2.0]]
    assert_array_equal(with_finite_distances(distances), expected)


def test_induced_laplacian_is_that_of_the_subgraph(rng: np.random.Generator) -> None:
    affinity = np.where(rng.random((9, 9)) < 0.5, rng.random((9, 9)), 0.0)
    np.fill_diagonal(affinity, 0.0)
    samples = np.array([0, 3, 4, 8])
    found = induced_laplacian(laplacian(csr_array(affinity)), samples)
    expected = laplacian(csr_array(affinity[np.ix_(samples, samples)]))
    assert_allclose(found.toarray(), expected.toarray(), atol=1e-14)
