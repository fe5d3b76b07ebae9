"""SMVSC: the simplex step, its constraints, descent, and the start."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import scipy.optimize

from mscam_dask.benchmark.baselines.simplex_graphs import SMVSC, _simplex_step
from mscam_dask.errors import ConfigurationError, ConvergenceWarning
from tests.messages import quotes
from tests.synthetic import gaussian_views


def test_anchor_rows_lie_on_the_simplex_and_weights_sum_to_one() -> None:
    views, _ = gaussian_views(0, n_samples=90)
    model = SMVSC(3, anchors_per_cluster=2, random_state=0).fit(views)
    assert model.anchor_graph_.shape == (90, 6)
    assert (model.anchor_graph_ >= 0).all()
    np.testing.assert_allclose(model.anchor_graph_.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(model.view_weights_.sum(), 1.0)
    assert (model.view_weights_ > 0).all()


@pytest.mark.parametrize("seed", range(4))
def test_the_objective_never_rises_with_its_own_simplex_step(seed: int) -> None:
    # dims below the number of anchors too: the view is completed by zero columns
    views, _ = gaussian_views(seed, n_samples=80, n_clusters=4, dims=(2, 9, 20))
    model = SMVSC(
        4, simplex_step="objective", start="random", tol=1e-7, max_iter=2000, random_state=seed
    ).fit(views)
    steps = np.diff(model.objective_)
    assert len(steps) >= 2
    assert (steps <= 1e-9 * model.objective_[0]).all()


def test_the_closed_form_is_the_solution_of_the_quadratic_programme() -> None:
    rng = np.random.default_rng(1)
    views = tuple(rng.standard_normal((5, d)) for d in (6, 8))
    weights = np.array([0.3, 0.7])
    m = 4
    loadings = [np.linalg.qr(rng.standard_normal((d, m)))[0] for d in (6, 8)]
    factors = weights**2 / (np.sum(weights**2) + 1.0)
    Z = _simplex_step(views, loadings, factors)

    def cost(row: int, z: np.ndarray) -> float:
        terms = [
            w**2 * np.sum((X[row] - B @ z) ** 2)
            for w, X, B in zip(weights, views, loadings, strict=True)
        ]
        return float(np.sum(terms) + z @ z)

    for row in range(5):
        found = scipy.optimize.minimize(
            functools.partial(cost, row),
            np.full(m, 1 / m),
            bounds=[(0, None)] * m,
            constraints=scipy.optimize.LinearConstraint(np.ones(m), 1.0, 1.0),
            options={"ftol": 1e-14},
        )
        np.testing.assert_allclose(Z[row], found.x, atol=1e-5)
        assert cost(row, Z[row]) <= found.fun + 1e-10


def test_blocks_of_rows_do_not_show() -> None:
    rng = np.random.default_rng(2)
    views = (rng.standard_normal((5000, 3)), rng.standard_normal((5000, 4)))
    loadings = [rng.standard_normal((3, 2)), rng.standard_normal((4, 2))]
    factors = np.array([0.5, 0.25])
    whole = _simplex_step(views, loadings, factors)
    parts = [
        _simplex_step(tuple(X[rows] for X in views), loadings, factors)
        for rows in (slice(0, 2048), slice(2048, 4096), slice(4096, None))
    ]
    np.testing.assert_allclose(whole, np.vstack(parts), atol=1e-14)


def test_the_start_is_the_first_samples_or_drawn_by_the_seed() -> None:
    views, _ = gaussian_views(3, n_samples=80, n_clusters=4, spread=1.0)
    first = [SMVSC(4, random_state=seed).fit(views).objective_ for seed in (0, 1)]
    assert first[0] == first[1]
    drawn = [SMVSC(4, start="random", random_state=seed).fit(views).objective_ for seed in (0, 1)]
    assert drawn[0] != drawn[1]


def test_more_anchors_than_samples_are_refused() -> None:
    views, _ = gaussian_views(4, n_samples=20)
    with pytest.raises(ConfigurationError, match=quotes("anchors_per_cluster=3", 21, 20)):
        SMVSC(7, anchors_per_cluster=3).fit(views)
    with pytest.raises(ConfigurationError, match=quotes("start='last'", "first", "random")):
        SMVSC(3, start="last").fit(views)  # type: ignore[arg-type]
    with pytest.raises(
        ConfigurationError, match=quotes("simplex_step='qp'", "published", "objective")
    ):
        SMVSC(3, simplex_step="qp").fit(views)  # type: ignore[arg-type]


def test_a_fit_that_does_not_converge_warns() -> None:
    views, _ = gaussian_views(5, n_samples=80, n_clusters=4)
    with pytest.warns(ConvergenceWarning, match=quotes("SMVSC", "max_iter=1", "tol")):
        SMVSC(4, max_iter=1, random_state=0).fit(views)
