"""LMVSC: the quadratic programmes on the simplex, and the joined graph."""

from __future__ import annotations

import numpy as np
import pytest

from mscam_dask.benchmark.baselines.simplex_graphs import LMVSC, simplex_least_squares
from mscam_dask.errors import ConfigurationError, ConvergenceWarning
from tests.messages import quotes
from tests.synthetic import gaussian_views


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("alpha", [1e-3, 1.0, 100.0])
def test_rows_meet_the_optimality_conditions(seed: int, alpha: float) -> None:
    rng = np.random.default_rng(seed)
    anchors = rng.standard_normal((7, 12)) + 5.0  # far from centred: badly conditioned along 1
    gram = anchors @ anchors.T + alpha * np.eye(7)
    linear = (rng.standard_normal((40, 12)) + 5.0) @ anchors.T
    rows, unfinished = simplex_least_squares(gram, linear, max_iter=20_000, tol=1e-12)
    assert unfinished == 0
    assert (rows >= 0).all()
    np.testing.assert_allclose(rows.sum(axis=1), 1.0, atol=1e-12)
    gradient = rows @ gram - linear
    lowest = gradient.min(axis=1, keepdims=True)
    # used anchors share the lowest gradient: nothing is gained by moving weight
    assert np.abs((gradient - lowest) * rows).max() <= 1e-6


def test_anchor_graphs_of_all_views_stand_side_by_side() -> None:
    views, _ = gaussian_views(1, n_samples=90)
    model = LMVSC(3, n_anchors=5, random_state=0).fit(views)
    assert model.anchor_graph_.shape == (90, 15)
    assert [anchors.shape for anchors in model.anchors_] == [(5, 5), (5, 12), (5, 30)]
    for part in np.split(model.anchor_graph_, 3, axis=1):
        assert (part >= 0).all()
        np.testing.assert_allclose(part.sum(axis=1), 1.0, atol=1e-12)


def test_a_large_ridge_makes_rows_uniform_and_a_small_one_finds_the_anchor() -> None:
    anchors = np.random.default_rng(2).standard_normal((4, 9))
    for alpha, expected in ((1e9, np.full((4, 4), 0.25)), (1e-9, np.eye(4))):
        gram = anchors @ anchors.T + alpha * np.eye(4)
        rows, _ = simplex_least_squares(gram, anchors @ anchors.T, max_iter=20_000, tol=1e-12)
        np.testing.assert_allclose(rows, expected, atol=1e-6)


def test_a_fit_that_does_not_converge_warns() -> None:
    views, _ = gaussian_views(3, n_samples=60)
    with pytest.warns(ConvergenceWarning, match=quotes("LMVSC", 180, "tol=1e-09", "max_iter=1")):
        LMVSC(3, max_iter=1, tol=1e-9, random_state=0).fit(views)


def test_too_few_or_too_many_anchors_are_refused() -> None:
    views, _ = gaussian_views(4, n_samples=30)
    with pytest.raises(ConfigurationError, match=quotes("n_anchors=31", 30)):
        LMVSC(3, n_anchors=31).fit(views)
    with pytest.raises(ConfigurationError, match=quotes("n_anchors=1", 3, 5)):
        LMVSC(5, n_anchors=1).fit(views)
