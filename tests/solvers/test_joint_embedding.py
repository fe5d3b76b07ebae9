"""The joint ridge embedding: distances that are means over the views, in units of their own means."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from mscam_dask.linalg.distances import WeightedBlocks
from mscam_dask.linalg.incomplete import IncompleteBlocks, PresentSamples
from mscam_dask.solvers.lda import LinearDiscriminants
from mscam_dask.solvers.ridge_view import (
    RidgeView,
    complete_embedding,
    joint_embedding,
)
from mscam_dask.types.rules import CONSTANTS
from tests import oracle
from tests.solvers.whole_rows import linear_discriminants, prepared, ridge_points

Array = NDArray[np.float64]
N = 24


def some_views(
    sizes: tuple[int, ...], *, seed: int = 0
) -> tuple[list[RidgeView], list[LinearDiscriminants]]:
    """Views that have so many samples, and their discriminants."""
    rng = np.random.default_rng(seed)
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
