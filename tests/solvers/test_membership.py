"""Votes of neighbors in the joint embedding and in each view's discriminants."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from mscam_dask.solvers.predict import (
    N_FOLDS,
    as_membership,
    fit_votes,
    folds_of,
    n_voting_neighbors,
)
from tests.synthetic import gaussian_views


def naive_shares(points: np.ndarray, voters: np.ndarray, labels: np.ndarray, k: int) -> np.ndarray:
    shares = np.zeros((len(points), labels.max() + 1))
    for i, point in enumerate(points):
        nearest = np.argsort(((voters - point) ** 2).sum(axis=1))[:k]
        for j in nearest:
            shares[i, labels[j]] += 1 / k
    return shares


def test_a_quarter_of_the_votes_is_of_the_joint_embedding_the_rest_of_the_views() -> None:
    (first, second), labels = gaussian_views(0, n_samples=120, dims=(4, 7))
    model = fit_votes([first, second], labels, 3, 9)
    rng = np.random.default_rng(1)
    new = [rng.normal(size=(10, 4)), rng.normal(size=(10, 7))]
    joint = naive_shares(np.hstack(new), np.hstack([first, second]), labels, 9)
    by_view = [
        naive_shares(points @ loadings, view @ loadings, labels, 9)
        for points, view, loadings in zip(new, [first, second], model.loadings, strict=True)
    ]
    assert_allclose(model(new), joint / 4 + 3 * (by_view[0] + by_view[1]) / 8, atol=1e-12)


def test_discriminants_solve_the_generalized_eigenproblem() -> None:
    (view,), labels = gaussian_views(0, n_samples=200, n_clusters=4, dims=(6,))
    (loadings,) = fit_votes([view], labels, 4, 5).loadings
    assert loadings.shape == (6, 3)
    means = np.stack([view[labels == c].mean(axis=0) for c in range(4)])
    within = sum(np.cov(view[labels == c].T, bias=True) * (labels == c).mean() for c in range(4))
    centers = means - view.mean(axis=0)
    between = (centers.T * np.bincount(labels)) @ centers / len(labels)
    shrunk = 0.7 * within + 0.3 * np.trace(within) / 6 * np.eye(6)
    for direction in loadings.T:
        ratio = (direction @ between @ direction) / (direction @ shrunk @ direction)
        assert_allclose(between @ direction, ratio * shrunk @ direction, atol=1e-8)
        assert_allclose(direction @ shrunk @ direction, ratio / (1 + ratio))


def test_a_direction_without_clusters_has_no_say_in_the_discriminants() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(200) % 2
    view = rng.normal(size=(200, 21))
    view[:, 0] += 3.0 * labels
    model = fit_votes([view], labels, 2, 15)
    new = rng.normal(size=(40, 21))
    new[:, 0] = 3.0
    by_view = naive_shares(new @ model.loadings[0], model.discriminants[0], labels, 15)
    plain = naive_shares(new, view, labels, 15)
    assert by_view[:, 1].mean() - 0.1 > plain[:, 1].mean()


def test_one_cluster_and_empty_clusters() -> None:
    points = np.random.default_rng(0).normal(size=(8, 3))
    assert_array_equal(fit_votes([points], np.zeros(8, np.int64), 1, 5)([points]), np.ones((8, 1)))
    votes = fit_votes([points], np.repeat([0, 2], 4), 4, 20)([points])
    assert votes.shape == (8, 4)
    assert_allclose(votes.sum(axis=1), 1.0)
    assert_array_equal(votes[:, [1, 3]], 0.0)


def test_memberships_have_one_vote_more_for_all_clusters() -> None:
    votes = np.array([[1.0, 0.0], [0.25, 0.75]])
    assert_allclose(as_membership(votes, 4), [[4.5 / 5, 0.5 / 5], [1.5 / 5, 3.5 / 5]])


@pytest.mark.parametrize(
    ("n_voters", "n_clusters", "expected"),
    [(2000, 10, 40), (210, 7, 7), (30, 10, 5), (3, 2, 3), (12_000, 4, 40)],
)
def test_voting_neighbors(n_voters: int, n_clusters: int, expected: int) -> None:
    assert n_voting_neighbors(n_voters, n_clusters) == expected


def test_folds_are_equally_large() -> None:
    sizes = np.bincount(folds_of(203), minlength=N_FOLDS)
    assert sizes.max() - sizes.min() <= 1
    assert len(sizes) == N_FOLDS
