"""The dense oracle: each step against the derivative of what it minimises, then the loops."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.benchmark.baselines.simplex_graphs import project_rows_to_simplex
from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.linalg.distances import squared_distances
from mscam_dask.linalg.laplacian import connected_components, laplacian
from mscam_dask.linalg.orthonormal import polar_factor, stiefel_objective
from mscam_dask.linalg.ridge import basis_from_rows
from mscam_dask.solvers import admm, reference
from mscam_dask.solvers.mscan import smooth_self_representation
from mscam_dask.solvers.reference import ReferenceSolution, solve_mscam, solve_mscan
from mscam_dask.solvers.reference_steps import (
    ReferenceCorrections,
    ReferenceOptions,
    ViewState,
    a_step,
    initial_state,
    m_step,
    multipliers,
    p_step,
    view_iteration,
    w_step,
    z_step,
    z_step_mscan,
)
from mscam_dask.types.parameters import AdmmSettings
from tests.messages import quotes
from tests.solvers.reduced_core import self_representation_core
from tests.solvers.whole_rows import reduced_problem

Matrix = NDArray[np.float64]

WITH_SPLIT = ReferenceCorrections(keep_metric_split=True, keep_second_multiplier=True)


def random_state(n: int, c: int, rng: np.random.Generator) -> ViewState:
    def normal(*shape: int) -> Matrix:
        return rng.standard_normal(shape)

    W = polar_factor(normal(n, c))
    return ViewState(normal(n, n), normal(n, c), normal(n, c), W, normal(n, c), normal(n, c), 1.7)


def penalised(X: Matrix, s: ViewState, *, alpha: float, ridge: float, split: float) -> float:
    """The augmented Lagrangian of one view, term by term (without the W-step's trace)."""
    mu = s.penalty
    return float(
        np.sum((X - X @ s.Z) ** 2)
        + alpha * np.sum(s.Z**2)
        + ridge * np.sum(s.P**2)
        + mu / 2 * np.sum((s.W - s.Z.T @ s.P + s.Y1 / mu) ** 2)
        + split * mu / 2 * np.sum((s.M - s.P + s.Y2 / mu) ** 2)
    )


def numerical_gradient(function: Callable[[Matrix], float], point: Matrix) -> Matrix:
    """Central differences; exact but for rounding where the function is quadratic."""
    gradient = np.zeros_like(point)
    step = 1e-3
    for index in np.ndindex(*point.shape):
        up, down = point.copy(), point.copy()
        up[index] += step
        down[index] -= step
        gradient[index] = (function(up) - function(down)) / (2 * step)
    return gradient


def ring_graph(n: int, seed: int) -> csr_array[np.float64]:
    """A connected weighted graph: a ring with random chords."""
    rng = np.random.default_rng(seed)
    weights = (rng.random((n, n)) < 0.3) * rng.random((n, n))
    weights[np.arange(n), (np.arange(n) + 1) % n] = 1.0
    np.fill_diagonal(weights, 0.0)
    graph: csr_array[np.float64] = csr_array(weights)
    return graph


@pytest.mark.parametrize("seed", range(3))
class TestStepsAreStationary:
    def test_z_step(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        X, state = rng.standard_normal((3, 6)), random_state(6, 2, rng)
        Z = z_step(X.T @ X, state, ridge=0.8)

        def lagrangian(point: Matrix) -> float:
            moved = dataclasses.replace(state, Z=point)
            return penalised(X, moved, alpha=0.8, ridge=0.0, split=1.0)

        assert_allclose(numerical_gradient(lagrangian, Z), 0.0, atol=1e-8)

    @pytest.mark.parametrize("ridge", [0.0, 0.6])
    @pytest.mark.parametrize("split", [False, True])
    def test_p_step(self, seed: int, ridge: float, split: bool) -> None:
        rng = np.random.default_rng(seed)
        X, state = rng.standard_normal((3, 6)), random_state(6, 2, rng)
        corrections = ReferenceCorrections(metric_ridge=ridge, keep_metric_split=split)
        P = p_step(state.Z, state, corrections=corrections)

        def lagrangian(point: Matrix) -> float:
            moved = dataclasses.replace(state, P=point)
            return penalised(X, moved, alpha=1.0, ridge=ridge, split=float(split))

        assert_allclose(numerical_gradient(lagrangian, P), 0.0, atol=1e-7)

    def test_m_step(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        X, state = rng.standard_normal((3, 6)), random_state(6, 2, rng)

        def lagrangian(point: Matrix) -> float:
            moved = dataclasses.replace(state, M=point)
            return penalised(X, moved, alpha=1.0, ridge=0.0, split=1.0)

        assert_allclose(numerical_gradient(lagrangian, m_step(state.P, state)), 0.0, atol=1e-8)

    def test_z_step_of_mscan(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((3, 6))
        L = laplacian(ring_graph(6, seed)).toarray()
        Z = z_step_mscan(X.T @ X, L, alpha=0.5, graph_weight=0.9)

        def objective(point: Matrix) -> float:
            fidelity = np.sum((X - X @ point) ** 2)
            return float(fidelity + 0.5 * np.sum(point**2) + 0.9 * np.trace(point @ L @ point.T))

        assert_allclose(numerical_gradient(objective, Z), 0.0, atol=1e-8)


def test_p_step_without_any_diagonal_is_the_least_norm_solution() -> None:
    rng = np.random.default_rng(0)
    state = random_state(6, 2, rng)
    Z = rng.standard_normal((6, 3)) @ rng.standard_normal((3, 6))  # singular
    P = p_step(Z, state, corrections=ReferenceCorrections(metric_ridge=0.0))
    assert_allclose(P, np.linalg.pinv(Z.T) @ (state.W + state.Y1 / state.penalty), atol=1e-10)


def test_multipliers_are_scaled_residuals() -> None:
    state = random_state(5, 2, np.random.default_rng(0))
    first, second = multipliers(state, keep_second=True)
    assert_allclose(first - state.Y1, state.penalty * (state.W - state.Z.T @ state.P))
    assert_allclose(second - state.Y2, state.penalty * (state.M - state.P))
    assert_array_equal(multipliers(state, keep_second=False)[1], np.zeros((5, 2)))


class TestWStep:
    @settings(max_examples=25)
    @given(st.integers(3, 9), st.floats(0.01, 10), st.integers(0, 999))
    def test_descends_on_the_manifold(self, n: int, eta: float, seed: int) -> None:
        rng = np.random.default_rng(seed)
        L = laplacian(ring_graph(n, seed)).toarray()
        E, start = rng.standard_normal((n, 2)), polar_factor(rng.standard_normal((n, 2)))
        W = w_step(L, E, start=start, eta=eta, settings=ReferenceOptions(n_clusters=2))
        assert_allclose(W.T @ W, np.eye(2), atol=1e-12)
        before = stiefel_objective(L, eta * E, point=start)
        assert stiefel_objective(L, eta * E, point=W) <= before + 1e-10 * (1 + abs(before))

    def test_subspace_holds_the_answer(self) -> None:
        rng = np.random.default_rng(0)
        L = laplacian(ring_graph(8, 0)).toarray()
        H = polar_factor(rng.standard_normal((8, 4)))
        E, start = rng.standard_normal((8, 2)), H @ polar_factor(rng.standard_normal((4, 2)))
        numbers = ReferenceOptions(n_clusters=2, stiefel_iterations=3000)
        W = w_step(L, E, start=start, eta=0.7, settings=numbers, w_subspace=H)
        assert_allclose(H @ (H.T @ W), W, atol=1e-12)
        # stationary among the W in span(H)
        gradient = H.T @ (L @ W - 0.7 * E)
        w = H.T @ W
        inner = w.T @ gradient
        assert_allclose(gradient - w @ (inner + inner.T) / 2, 0.0, atol=1e-6)

    def test_whole_space_as_subspace_changes_nothing(self) -> None:
        rng = np.random.default_rng(1)
        L = laplacian(ring_graph(7, 1)).toarray()
        E, start = rng.standard_normal((7, 2)), polar_factor(rng.standard_normal((7, 2)))
        Q = polar_factor(rng.standard_normal((7, 7)))
        numbers = ReferenceOptions(n_clusters=2)
        plain = w_step(L, E, start=start, eta=0.3, settings=numbers)
        rotated = w_step(L, E, start=start, eta=0.3, settings=numbers, w_subspace=Q)
        assert_allclose(rotated, plain, atol=1e-12)


class TestAStep:
    @given(st.integers(2, 9), st.integers(0, 999), st.data())
    def test_rows_solve_eq_29(self, n: int, seed: int, data: st.DataObject) -> None:
        k = data.draw(st.integers(1, n - 1))
        points = np.random.default_rng(seed).standard_normal((n, 2))
        d = squared_distances(points, points)
        A = a_step(d, k).toarray()
        assert_allclose(A.sum(axis=1), 1.0)
        assert_array_equal(np.diag(A), np.zeros(n))
        for i in range(n):
            others = np.delete(np.arange(n), i)
            ascending = np.sort(d[i, others])
            farther = ascending[k] if k < n - 1 else ascending[k - 1]
            gamma = 0.5 * np.sum(farther - ascending[:k])
            if gamma > 1e-9:
                row = project_rows_to_simplex(-d[i, others][None, :] / (2 * gamma))
                assert_allclose(A[i, others], row[0], atol=1e-8)

    def test_duplicates_share_equally_and_ties_go_to_the_lower_index(self) -> None:
        A = a_step(np.zeros((5, 5)), 2).toarray()
        assert_array_equal(A[0], [0, 0.5, 0.5, 0, 0])
        assert_array_equal(A[4], [0.5, 0.5, 0, 0, 0])

    def test_input_is_left_alone(self) -> None:
        d = np.ones((4, 4))
        a_step(d, 2)
        assert_array_equal(d, np.ones((4, 4)))


def two_views(n: int, seed: int) -> tuple[list[Matrix], NDArray[np.int64]]:
    """Three groups of samples, apart from each other in both views."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    views = []
    for d in (5, 8):
        directions = np.asarray(scipy.linalg.qr(rng.standard_normal((d, d)))[0])[:3]
        rows = 6.0 * directions[labels] + 0.3 * rng.standard_normal((n, d))
        views.append(rows * np.sqrt(min(n, d)) / np.linalg.norm(rows))
    return views, labels


class TestAgainstTheReducedSpace:
    """Restricted to span(H) the full ADMM is the reduced one, in other coordinates."""

    @pytest.mark.parametrize("metric_ridge", [1.0, 0.05])
    @pytest.mark.parametrize("n_features", [3, 6])
    def test_iterates_agree(self, n_features: int, metric_ridge: float) -> None:
        n, c, alpha, graph_weight = 24, 4, 0.6, 0.3
        rng = np.random.default_rng(0)
        rows = rng.standard_normal((n, n_features))
        L = laplacian(ring_graph(n, 0))
        vectors = scipy.linalg.eigh(L.toarray())[1]
        problem = reduced_problem(
            basis_from_rows(rows),
            vectors[:, : 2 * c],
            L,
            alpha=alpha,
            metric_ridge=metric_ridge,
            graph_weight=graph_weight,
        )
        H = problem.subspace
        numbers = ReferenceOptions(
            n_clusters=c,
            alpha=alpha,
            graph_weight=graph_weight,
            admm=AdmmSettings(penalty=2.0, penalty_growth=1.1),
            corrections=ReferenceCorrections(metric_ridge=metric_ridge),
        )
        full = initial_state(vectors[:, :c], 2.0)
        reduced = admm.initial_state(problem, vectors[:, :c], 2.0)
        for _ in range(8):
            full = view_iteration(
                rows @ rows.T,
                L.toarray(),
                full,
                settings=numbers,
                graph_weight=graph_weight,
                w_subspace=H,
            )
            reduced = admm.step(problem, reduced, 1.1)
            core = self_representation_core(problem, reduced)
            assert_allclose(H @ core @ H.T, full.Z, atol=1e-10)
            assert_allclose(H @ reduced.p, full.P, atol=1e-10)
            assert_allclose(H @ reduced.f, full.embedding, atol=1e-10)
            assert_allclose(H @ reduced.w, full.W, atol=1e-10)
            assert_allclose(H @ reduced.y, full.Y1, atol=1e-9)
        assert reduced.penalty == pytest.approx(full.penalty)

    def test_mscan_distances_agree(self) -> None:
        n = 20
        rows = np.random.default_rng(0).standard_normal((n, 4))
        L = laplacian(ring_graph(n, 3))
        vectors = scipy.linalg.eigh(L.toarray())[1]
        smooth = smooth_self_representation(
            basis_from_rows(rows), L, vectors[:, :5], alpha=0.7, graph_weight=0.4
        )
        columns = z_step_mscan(rows @ rows.T, L.toarray(), alpha=0.7, graph_weight=0.4).T
        assert_allclose(
            squared_distances(smooth.embedding, smooth.embedding),
            squared_distances(columns, columns),
            atol=1e-5,
        )


class TestLoops:
    @pytest.mark.parametrize("solve", [solve_mscam, solve_mscan])
    @pytest.mark.parametrize("n_views", [1, 2])
    def test_separated_groups_are_found(
        self,
        solve: Callable[[Sequence[Matrix], ReferenceOptions], ReferenceSolution],
        n_views: int,
    ) -> None:
        views, labels = two_views(45, 0)
        grams = [rows @ rows.T for rows in views[:n_views]]
        found = solve(grams, ReferenceOptions(n_clusters=3, n_neighbors=5))
        assert found.converged
        assert found.n_connected_components == 3
        assert_array_equal(found.labels, labels)  # both are numbered by first appearance
        assert_allclose(found.consensus_graph.sum(axis=1), 1.0)
        assert connected_components(found.consensus_graph)[0] == 3
        assert len(found.view_embeddings) == n_views
        assert found.history[-1].n_connected_components == 3

    def test_embeddings_are_nearly_orthonormal(self) -> None:
        views, _ = two_views(30, 1)
        grams = [rows @ rows.T for rows in views]
        numbers = ReferenceOptions(
            n_clusters=3, n_neighbors=5, admm=AdmmSettings(max_iterations=200, tolerance=1e-3)
        )
        for F in solve_mscam(grams, numbers).view_embeddings:
            assert_allclose(F.T @ F, np.eye(3), atol=0.02)

    def test_order_of_samples_does_not_matter(self) -> None:
        views, labels = two_views(30, 2)
        order = np.random.default_rng(0).permutation(30)
        grams = [rows[order] @ rows[order].T for rows in views]
        found = solve_mscam(grams, ReferenceOptions(n_clusters=3, n_neighbors=5)).labels
        same_found = found[:, None] == found[None, :]
        assert_array_equal(same_found, labels[order][:, None] == labels[order][None, :])

    def test_each_view_has_its_own_alpha(self) -> None:
        views, _ = two_views(30, 3)
        grams, alphas = [rows @ rows.T for rows in views], (0.3, 4.0)
        distances = np.zeros((30, 30))
        for gram, alpha in zip(grams, alphas, strict=True):
            columns = np.asarray(scipy.linalg.solve(gram + alpha * np.eye(30), gram).T)
            d = squared_distances(columns, columns)
            distances += d / d[~np.eye(30, dtype=bool)].mean()
        L = laplacian(a_step(distances, 5)).toarray()
        numbers = ReferenceOptions(
            n_clusters=3, n_neighbors=5, view_alphas=alphas, graph_weight=0.4, max_iter=1
        )
        found = solve_mscan(grams, numbers)
        for gram, alpha, columns in zip(grams, alphas, found.view_embeddings, strict=True):
            Z = columns.T
            assert_allclose(gram @ Z + alpha * Z + 0.4 * Z @ L, gram, atol=1e-9)

    def test_alphas_belong_to_their_views(self) -> None:
        views, _ = two_views(30, 4)
        grams = [views[0] @ views[0].T] * 2
        numbers = ReferenceOptions(n_clusters=3, n_neighbors=5, max_iter=1)
        small, large = (
            solve_mscam(grams, dataclasses.replace(numbers, view_alphas=alphas)).view_embeddings
            for alphas in ((0.1, 10.0), (10.0, 0.1))
        )
        assert_array_equal(small[0], large[1])
        assert_array_equal(small[1], large[0])
        assert np.linalg.norm(small[0] - small[1]) > 1e-2
        one = solve_mscam(grams, dataclasses.replace(numbers, alpha=2.0))
        each = solve_mscam(grams, dataclasses.replace(numbers, view_alphas=(2.0, 2.0)))
        assert_array_equal(one.view_embeddings[0], each.view_embeddings[0])

    def test_budget_is_kept(self) -> None:
        gram = np.random.default_rng(0).standard_normal((20, 20))
        numbers = ReferenceOptions(n_clusters=7, n_neighbors=9, max_iter=2)
        for algorithm in (solve_mscam, solve_mscan):
            found = algorithm([gram @ gram.T], numbers)
            assert not found.converged
            assert len(found.history) == 2

    def test_rank_control_moves_the_graph_weight_the_right_way(self) -> None:
        # one cloud, three clusters wanted: too few components, so the weight must grow
        cloud = np.random.default_rng(0).standard_normal((30, 6))
        numbers = ReferenceOptions(n_clusters=3, n_neighbors=8, max_iter=4, graph_weight=1e-3)
        for algorithm in (solve_mscam, solve_mscan):
            weights = [
                step.graph_weight
                for step in algorithm([cloud @ cloud.T / 30], numbers).history
                if step.n_connected_components < 3
            ]
            assert_allclose(weights, 1e-3 * 1.3 ** np.arange(len(weights)))
            assert len(weights) >= 2

    def test_mscan_lowers_the_graph_weight_while_there_are_too_many_components(self) -> None:
        views, _ = two_views(30, 0)  # three groups
        numbers = ReferenceOptions(n_clusters=2, n_neighbors=4, max_iter=4, graph_weight=5.0)
        history = solve_mscan([rows @ rows.T for rows in views], numbers).history
        n_many = sum(step.n_connected_components > 2 for step in history)
        assert n_many >= 2
        weights = [step.graph_weight for step in history[:n_many]]
        assert_allclose(weights, 5.0 / 1.3 ** np.arange(n_many))

    def test_projected_distances_count_in_units_of_their_mean(self) -> None:
        views, _ = two_views(30, 5)
        grams = [rows @ rows.T for rows in views]
        numbers = ReferenceOptions(n_clusters=3, n_neighbors=5, max_iter=1, graph_weight=0.2)
        found = solve_mscam(grams, numbers)
        distances = numbers.corrections.identity_weight * reference._data_distances(
            grams, numbers.of_views(2)
        )
        for F in found.view_embeddings:
            # the mean of ‖F_i − F_j‖² over all pairs is 2c/n
            distances += found.history[0].graph_weight * squared_distances(F, F) * (30 / 6) / 2
        graph = a_step(distances, 5).toarray()
        assert_allclose(found.consensus_graph.toarray(), graph, atol=1e-12)

    @pytest.mark.parametrize("stop", [3, 10, 40])
    def test_the_admm_of_a_view_ends_when_both_residuals_are_small(self, stop: int) -> None:
        views, _ = two_views(30, 6)
        gram = views[0] @ views[0].T
        L = laplacian(ring_graph(30, 3)).toarray()
        start = scipy.linalg.eigh(L, subset_by_index=[0, 2])[1]
        plain = ReferenceOptions(n_clusters=3, n_neighbors=5)
        state, embeddings, residuals = initial_state(start, plain.admm.penalty), [], []
        for _ in range(stop):
            before = state.embedding
            state = view_iteration(gram, L, state, settings=plain, graph_weight=0.3)
            embeddings.append(state.embedding)
            gaps = (state.W - state.embedding, state.embedding - before)
            residuals.append(max(np.linalg.norm(gap) for gap in gaps) / np.sqrt(3))
        # residuals may rise: the first iteration below the tolerance is the last one
        tolerance = 1.001 * residuals[-1]
        first = int(np.argmax(np.array(residuals) <= tolerance))
        numbers = dataclasses.replace(
            plain, admm=AdmmSettings(max_iterations=1000, tolerance=tolerance)
        )
        found = reference._solve_view(gram, L, start, settings=numbers, graph_weight=0.3)
        assert_array_equal(found.embedding, embeddings[first])

    @pytest.mark.parametrize("graph_weight", [1e-3, 0.1, 1.0])
    def test_the_graph_weight_falls_until_there_are_no_more_than_c_components(
        self, graph_weight: float
    ) -> None:
        rng = np.random.default_rng(1)
        cloud = rng.standard_normal((24, 2))
        groups = np.repeat(np.eye(4), 6, axis=0) * 10.0
        data, projected = squared_distances(cloud, cloud), squared_distances(groups, groups)
        numbers = ReferenceOptions(n_clusters=2, n_neighbors=4)

        def n_components(weight: float) -> int:
            return int(connected_components(a_step(data + weight * projected, 4))[0])

        graph, raised, used = reference._steered_a_step(
            data, projected, graph_weight, settings=numbers
        )
        assert_allclose(graph.toarray(), a_step(data + used * projected, 4).toarray())
        n_reductions = round(np.log(graph_weight / used) / np.log(1.3))
        tried = graph_weight / 1.3 ** np.arange(n_reductions + 1)
        assert tried[-1] == pytest.approx(used)
        assert all(n_components(weight) > 2 for weight in tried[:-1])
        count = n_components(used)
        assert count <= 2
        assert raised == pytest.approx(used * (1.3 if count < 2 else 1.0))

    def test_the_graph_weight_falls_twenty_times_at_most(self) -> None:
        groups = np.repeat(np.eye(4), 6, axis=0)
        distances = squared_distances(groups, groups)
        numbers = ReferenceOptions(n_clusters=2, n_neighbors=4)
        _, raised, used = reference._steered_a_step(distances, distances, 1.0, settings=numbers)
        assert used == pytest.approx(1.3**-20)
        assert raised == used


class TestRefusals:
    def test_shapes(self) -> None:
        numbers = ReferenceOptions(n_clusters=2, n_neighbors=2)
        with pytest.raises(DataError, match=quotes([])):
            solve_mscam([], numbers)
        with pytest.raises(DataError, match=quotes((4, 4), (5, 5))):
            solve_mscan([np.eye(4), np.eye(5)], numbers)

    def test_sizes(self) -> None:
        with pytest.raises(ConfigurationError, match=quotes("n_clusters=5", 4)):
            solve_mscam([np.eye(4)], ReferenceOptions(n_clusters=5, n_neighbors=2))
        with pytest.raises(ConfigurationError, match=quotes("n_neighbors=4", 3)):
            solve_mscam([np.eye(4)], ReferenceOptions(n_clusters=2, n_neighbors=4))

    def test_alphas_of_other_views(self) -> None:
        numbers = ReferenceOptions(n_clusters=2, n_neighbors=2, view_alphas=(1.0, 1.0))
        for algorithm in (solve_mscam, solve_mscan):
            with pytest.raises(ConfigurationError, match=quotes("view_alphas", 2, 1)):
                algorithm([np.eye(4)], numbers)
        with pytest.raises(ConfigurationError, match=quotes("view_alphas=(1.0, 0.0)")):
            ReferenceOptions(n_clusters=2, view_alphas=(1.0, 0.0))

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("n_clusters", 0),
            ("n_neighbors", 0),
            ("max_iter", 0),
            ("stiefel_iterations", 0),
            ("alpha", 0.0),
            ("graph_weight", float("nan")),
            ("graph_weight_growth", 1.0),
        ],
    )
    def test_settings(self, name: str, value: float) -> None:
        with pytest.raises(ConfigurationError, match=quotes(f"{name}={value}")):
            ReferenceOptions(**{"n_clusters": 2, name: value})  # type: ignore[arg-type]

    def test_corrections(self) -> None:
        with pytest.raises(ConfigurationError, match=quotes("identity_weight=-1.0")):
            ReferenceCorrections(identity_weight=-1.0)
        with pytest.raises(
            ConfigurationError, match=quotes("keep_second_multiplier=True", "keep_metric_split")
        ):
            ReferenceCorrections(keep_second_multiplier=True)
        with pytest.raises(
            ConfigurationError, match=quotes("rank_control=True", "identity_weight=0")
        ):
            ReferenceCorrections(identity_weight=0.0)
