"""MLAN: view weights, the row problem, exactly c components."""

from __future__ import annotations

import numpy as np
import pytest

from mscam_dask.benchmark.baselines.simplex_graphs import MLAN
from mscam_dask.errors import ConfigurationError, ConvergenceWarning
from mscam_dask.linalg.laplacian import connected_components
from tests.messages import quotes
from tests.synthetic import gaussian_views


def squared(view: np.ndarray) -> np.ndarray:
    return np.asarray(np.sum((view[:, None] - view[None]) ** 2, axis=2))


@pytest.mark.parametrize("spread", [1.2, 2.0, 6.0])
def test_the_components_of_the_graph_are_exactly_the_clusters(spread: float) -> None:
    views, _ = gaussian_views(0, n_samples=120, n_clusters=4, spread=spread)
    model = MLAN(4, random_state=0).fit(views)
    count, labels = connected_components(model.similarity_graph_)
    assert count == model.n_connected_components_ == 4
    np.testing.assert_array_equal(labels, model.labels_)
    np.testing.assert_allclose(model.similarity_graph_.sum(axis=1), 1.0, atol=1e-12)
    assert (model.similarity_graph_.data >= 0).all()
    np.testing.assert_array_equal(model.similarity_graph_.diagonal(), 0.0)


def test_view_weights_follow_the_root_of_each_views_cost() -> None:
    # overlapping clusters: the loop runs, and the weights are those of the graph before the last
    views, _ = gaussian_views(1, n_samples=100, spread=6.0)
    noise = np.random.default_rng(0).standard_normal((100, 12))
    model = MLAN(3, n_neighbors=12, scale="none", random_state=0).fit([*views, noise])
    assert model.view_weights_.shape == (4,)
    np.testing.assert_allclose(model.view_weights_.sum(), 1.0)
    graph = model.similarity_graph_.toarray()
    costs = [np.sum(squared(view) * graph) for view in [*views, noise]]
    expected = 1.0 / np.sqrt(costs)
    if model.n_iter_ == 0:
        np.testing.assert_allclose(model.view_weights_, 0.25)
    else:
        np.testing.assert_allclose(model.view_weights_, expected / expected.sum(), rtol=0.05)


def test_rows_of_the_initial_graph_solve_their_problem() -> None:
    # clear clusters: no step is taken, so S solves min Σ d s + α s² over the k nearest
    (view,), _ = gaussian_views(2, n_samples=60, spread=8.0, dims=(6,))
    model = MLAN(3, n_neighbors=7, scale="none", random_state=0).fit([view])
    assert model.n_iter_ == 0
    distances = squared(view)
    np.fill_diagonal(distances, np.inf)
    order = np.sort(distances, axis=1)[:, :8]
    width = np.mean(0.5 * (7 * order[:, 7] - order[:, :7].sum(axis=1)))
    graph = model.similarity_graph_.toarray()
    for row, weights in zip(distances, graph, strict=True):
        allowed = row <= np.sort(row)[6]
        gradient = row + 2.0 * width * weights
        used = weights > 0
        assert not used[~allowed].any()
        price = gradient[used].mean()
        np.testing.assert_allclose(gradient[used], price, rtol=1e-9)
        assert (gradient[allowed & ~used] >= price - 1e-9).all()


def test_what_cannot_reach_c_components_says_so() -> None:
    views, _ = gaussian_views(3, n_samples=90, n_clusters=6, spread=9.0)
    with pytest.warns(ConvergenceWarning, match=quotes("MLAN", 6, 2)):
        model = MLAN(2, n_neighbors=5, random_state=0).fit(views)
    assert model.n_connected_components_ == 6
    assert len(np.unique(model.labels_)) == 6


def test_neighbours_leave_room_for_the_next_one() -> None:
    views, _ = gaussian_views(4, n_samples=20)
    with pytest.raises(ConfigurationError, match=quotes("n_neighbors=19", 18)):
        MLAN(2, n_neighbors=19).fit(views)
