"""Each baseline by the problem that its paper states: optimality conditions, closed forms, objectives that never rise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from mscam_dask.benchmark.baselines.self_representation import (
    SSC,
    DiMSC,
    smallest_reach,
    solve_view,
)
from mscam_dask.benchmark.baselines.simplex_graphs import (
    MLAN,
    SMVSC,
    project_rows_to_simplex,
    simplex_least_squares,
)
from mscam_dask.benchmark.baselines.spectral import (
    MMSC,
    CoReg,
    neighbor_affinity,
    normalized_affinity,
)
from mscam_dask.errors import ConvergenceWarning, DataError
from mscam_dask.linalg.laplacian import connected_components
from mscam_dask.linalg.orthonormal import basis_from_rows
from tests.synthetic import gaussian_views


def test_columns_solve_their_lasso() -> None:
    (view,), _ = gaussian_views(0, n_samples=40, dims=(15,))
    model = SSC(3, scale="none", tol=1e-10, max_iter=50_000, random_state=0).fit([view])
    C = model.coefficients_
    np.testing.assert_array_equal(np.diag(C), 0.0)
    fidelity = 20.0 / smallest_reach(view)
    gradient = fidelity * view @ (view.T @ C - view.T)  # of λ_z/2 ‖X − CᵀX‖², samples in rows
    others = ~np.eye(40, dtype=bool)
    used = (np.abs(C) > 1e-7) & others
    np.testing.assert_allclose(gradient[used], -np.sign(C[used]), atol=1e-5)
    assert np.abs(gradient[others]).max() <= 1 + 1e-5


def test_samples_that_no_other_can_represent_are_refused() -> None:
    with pytest.raises(DataError):
        SSC(2, scale="none").fit([np.eye(6)])


@pytest.mark.parametrize("width", [6, 40])
def test_the_view_step_solves_the_sylvester_equation(width: int) -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((25, width))
    root = rng.standard_normal((25, 10))
    coupling = root @ root.T + 0.1 * np.eye(25)
    basis = basis_from_rows(rows)
    Z = basis.vectors @ solve_view(basis, coupling)
    gram = rows @ rows.T
    np.testing.assert_allclose(gram @ Z + Z @ coupling, gram, atol=1e-8)
    if width > 25:  # XᵀX regular: the solution is the only one
        np.testing.assert_allclose(Z, scipy.linalg.solve_sylvester(gram, coupling, gram), atol=1e-8)


@pytest.mark.parametrize(
    ("model", "direction"),
    [
        (DiMSC(4, diversity=20.0, tol=1e-6, max_iter=3000, random_state=0), -1),
        (CoReg(4, consensus_weight=0.05, tol=1e-9, max_iter=500, random_state=0), 1),
        (SMVSC(4, simplex_step="objective", start="random", tol=1e-7, random_state=0), -1),
    ],
    ids=["DiMSC", "CoReg", "SMVSC"],
)
def test_the_objective_is_monotone(model: Any, direction: int) -> None:
    # one view has fewer columns than SMVSC has anchors: it is completed by columns of zeros
    views, _ = gaussian_views(0, n_samples=80, n_clusters=4, spread=1.0, dims=(2, 9, 20))
    values = direction * np.array(model.set_params(max_iter=3000).fit(views).objective_)
    assert len(values) >= 3
    assert (np.diff(values) >= -1e-9 * abs(values[0])).all()
    assert values[-1] - values[0] > 0.001 * abs(values[0])


def summed_resolvents(views: list[np.ndarray], alpha: float) -> np.ndarray:
    total = np.zeros((len(views[0]),) * 2)
    for view in views:
        similar = normalized_affinity(neighbor_affinity(view, 10).toarray())
        total += np.linalg.solve((1 + alpha) * np.eye(len(view)) - similar, np.eye(len(view)))
    return total


def test_the_update_ends_where_the_conditions_of_optimality_hold() -> None:
    views, _ = gaussian_views(1, n_samples=80, spread=1.5)
    model = MMSC(3, alpha=5.0, scale="none", tol=1e-12, max_iter=50_000, random_state=0).fit(views)
    G = model.indicator_
    SG = summed_resolvents(views, 5.0) @ G
    gap = G * (SG - G @ (G.T @ SG))  # G ∘ gradient of the Lagrangian
    assert np.abs(gap).max() <= 1e-4 * np.abs(G * SG).max()


def squared(view: np.ndarray) -> np.ndarray:
    return np.asarray(np.sum((view[:, None] - view[None]) ** 2, axis=2))


@pytest.mark.parametrize("spread", [1.2, 6.0])
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
    with pytest.warns(ConvergenceWarning):
        model = MLAN(2, n_neighbors=5, random_state=0).fit(views)
    assert model.n_connected_components_ == 6
    assert len(np.unique(model.labels_)) == 6


@pytest.mark.parametrize("alpha", [1e-3, 100.0])
def test_rows_meet_the_optimality_conditions(alpha: float) -> None:
    rng = np.random.default_rng(0)
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


matrices = arrays(
    np.float64,
    array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=8),
    elements=st.floats(-10, 10, allow_subnormal=False),
)


class TestProjection:
    @given(matrices)
    def test_variational_inequality_at_every_vertex(self, rows: NDArray[np.float64]) -> None:
        # a on the simplex is the projection of v iff (v - a).(b - a) <= 0 for every b on it;
        # the left side is linear in b, so the vertices suffice
        a = project_rows_to_simplex(rows)
        assert (a >= 0).all()
        assert_allclose(a.sum(axis=1), 1.0, rtol=1e-14)
        residual = rows - a
        at_vertices = residual - np.sum(residual * a, axis=1, keepdims=True)
        assert at_vertices.max() <= 1e-12
