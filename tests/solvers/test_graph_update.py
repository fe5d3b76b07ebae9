"""The A-step: optimality of every row, candidates, ties, independence of the blocks; and the rank control of its weight."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

from mscam_dask.linalg.incomplete import PresentSamples, as_incomplete_blocks, with_finite_distances
from mscam_dask.linalg.orthonormal import polar_factor
from mscam_dask.solvers.graph_update import (
    Decision,
    GraphRows,
    RankControl,
    adaptive_neighbor_weights,
    candidate_neighbors,
    graph_block,
    mean_rows,
    neighbor_graph,
    neighbor_widths,
    projected_distances,
    projected_weight,
    spread_affinity,
    tied_neighbor_weights,
)
from tests import oracle
from tests.synthetic import Array

Graph: TypeAlias = "csr_array[np.float64]"  # SciPy 1.15 cannot subscript it


def points(seed: int, n: int, r: int = 3) -> Array:
    """Rows of which some are duplicates and some lie on a grid, so that ties happen."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, r))
    rows[: n // 3] = np.round(rows[: n // 3])
    rows[n // 2] = rows[0]
    return rows


problems = st.tuples(
    st.integers(0, 2**16),  # seed
    st.integers(8, 30),  # n
    st.integers(1, 5),  # k
    st.sampled_from([0.0, 0.3, 10.0]),  # weight
)


@given(problems)
@settings(max_examples=40)
def test_every_row_is_optimal_over_its_candidates(problem: tuple[int, int, int, float]) -> None:
    # min Σ_j d_j a_j + γ a_j² on the simplex, γ from Eq. (30): d_j + 2γ a_j is one number θ on
    # the support and d_j ≥ θ off it.
    seed, n, k, weight = problem
    joint, embedding = points(seed, n), points(seed + 1, n, 2)
    found = candidate_neighbors(joint, min(n - 1, k + 3), 0, n)
    summed = 0.8 * oracle.pair_distances(joint) + weight * oracle.pair_distances(embedding)
    A = graph_block(
        found, projected_distances([[embedding]], [1.0], found, ((0, n),)), k, 0.8, weight, n
    ).affinity
    for i in range(n):
        candidates = found.indices[i][found.indices[i] >= 0]
        d = np.sort(summed[i, candidates])
        width = 0.5 * (k * d[k] - d[:k].sum())
        row = A[[i]]
        a = dict(zip(row.indices.tolist(), row.data.tolist(), strict=True))
        assert set(a) <= set(candidates.tolist())
        slopes = {j: summed[i, j] + 2 * width * a.get(j, 0.0) for j in candidates.tolist()}
        support = [slopes[j] for j in a if a[j] > 1e-9]
        tolerance = 1e-9 * (1.0 + d[-1])
        assert max(support) - min(support) <= tolerance
        assert min(slopes.values()) >= max(support) - tolerance


@given(st.integers(0, 2**16), st.integers(6, 30), st.integers(1, 5))
def test_projected_weight_makes_the_mean_distance_one(seed: int, n: int, c: int) -> None:
    # F orthonormal and orthogonal to the constant: mean over all n² ordered pairs
    rng = np.random.default_rng(seed)
    F = rng.standard_normal((n, c))
    F = polar_factor(F - F.mean(axis=0))
    mean = oracle.pair_distances(F).mean()
    assert projected_weight(n, c) * mean == pytest.approx(1.0)


# -- Graphs of single views -------------------------------------------------------------------------


@given(problems)
@settings(max_examples=20)
def test_the_graph_of_one_view_is_the_step_over_all_its_rows(
    problem: tuple[int, int, int, float],
) -> None:
    seed, n, k, _ = problem
    joint = np.random.default_rng(seed).standard_normal((n, 4))
    distances = np.sort(oracle.pair_distances(joint), axis=1)[:, 1:]
    # nearer to each other than 1e-5 they count as one distance, whose samples are all kept
    assume(np.all(distances[:, k : k + 1] > (1 + 1e-4) * distances[:, k - 1 : k]))
    found = candidate_neighbors(joint, n - 1, 0, n)
    whole = graph_block(found, None, k, 0.8, 0.0, n).affinity
    # one factor on all distances changes no weight
    assert_allclose(neighbor_graph(joint, k).toarray(), whole.toarray(), atol=1e-12)


# -- Samples that are absent from views -------------------------------------------------------------


def absences(seed: int, n: int, n_views: int) -> list[PresentSamples]:
    """Samples of each view: all, or at least three quarters."""
    rng = np.random.default_rng(seed)
    return [
        PresentSamples(np.sort(rng.choice(n, n - rng.integers(0, n // 4 + 1), replace=False)), n)
        for _ in range(n_views)
    ]


@given(st.integers(0, 2**16), st.integers(9, 25), st.lists(st.sampled_from([0.5, 2.0]), min_size=2))
@settings(max_examples=20)
def test_the_mean_of_a_row_is_that_of_the_graphs_in_which_it_has_neighbors(
    seed: int, n: int, weights: list[float]
) -> None:
    present = absences(seed, n, len(weights))
    graphs = [
        spread_affinity(neighbor_graph(points(seed + number, len(own)), 2), own)
        for number, own in enumerate(present)
    ]
    found = mean_rows([GraphRows(0, graph) for graph in graphs], weights).affinity.toarray()
    for i in range(n):
        rows = [graph.toarray()[i] for graph in graphs]
        shares = [w * row.any() for w, row in zip(weights, rows, strict=True)]
        expected = sum(w * row for w, row in zip(weights, rows, strict=True)) / (sum(shares) or 1.0)
        assert_allclose(found[i], expected, atol=1e-12)


@given(st.integers(0, 2**16), st.integers(1, 4))
@settings(max_examples=20)
def test_rows_of_incomplete_views_are_those_of_the_means_over_the_shared(seed: int, k: int) -> None:
    n = 16
    present = absences(seed, n, 3)
    views = []
    for number, own in enumerate(present):
        view = np.full((n, 2), np.nan)
        view[own.samples] = points(seed + number, len(own), 2)
        views.append(view)
    for view in views[1:]:
        view[:2] = np.nan
    views[0][0] = np.nan
    views[1][0] = 1.0  # samples 0 and 1 share no view
    views[0][1] = 1.0
    joint = as_incomplete_blocks(views)
    found = candidate_neighbors(joint, n - 1, 0, n)
    has = np.array([~np.isnan(view[:, 0]) for view in views])
    assume(has.any(axis=0).all())
    shared = np.sum(has[:, :, None] & has[:, None, :], axis=0)
    everyone = np.arange(n)[:, None]
    assert_allclose(found.coverage, shared[everyone, found.indices] / 3)

    rng = np.random.default_rng(seed)
    embeddings = [rng.standard_normal((n, 2)) for _ in views]
    projected = np.zeros((n, n))  # Σ_v over the views that have both ends
    for own, embedding in zip(has, embeddings, strict=True):
        projected += np.outer(own, own) * oracle.pair_distances(embedding)
    # the mean over these, in the place of that over all
    means = 0.8 * joint.distances(everyone[:, 0], everyone[:, 0]) + 0.3 * 3 * projected / np.where(
        shared > 0, shared, 1
    )
    np.fill_diagonal(means, np.inf)
    expected = oracle.partition_graph(
        with_finite_distances(means), np.zeros(n, dtype=np.int64), k, np.isfinite(means)
    )
    rows = graph_block(found, projected[everyone, found.indices], k, 0.8, 0.3, n).affinity
    assert_allclose(rows.toarray(), expected, atol=1e-9)


sorted_distances = arrays(
    np.float64,
    st.tuples(st.integers(1, 6), st.integers(2, 9)),
    elements=st.one_of(st.floats(0, 100, allow_subnormal=False), st.integers(0, 3).map(float)),
).map(lambda d: np.sort(d, axis=1))


class TestAdaptiveNeighbors:
    @given(sorted_distances)
    def test_closed_form_as_printed(self, d: Array) -> None:
        d = d[d[:, -1] - d[:, 0] > 1e-3 * d[:, -1]]  # where the printed form loses no digits
        k = d.shape[1] - 1
        printed = (d[:, -1:] - d[:, :-1]) / (k * d[:, -1:] - d[:, :-1].sum(axis=1, keepdims=True))
        assert_allclose(adaptive_neighbor_weights(d), printed, atol=1e-10)

    @given(sorted_distances, st.integers(1, 6))
    def test_ties_are_kept_together(self, d: Array, k: int) -> None:
        k = min(k, d.shape[1] - 1)
        kth = d[:, k - 1 : k]
        # at the very edge of what counts as equal rounding says which it is
        assume(
            not np.isclose(np.abs(d - kth), 1e-5 * kth, rtol=1e-4, atol=0.0)[kth[:, 0] > 0].any()
        )
        weights = tied_neighbor_weights(d, k)
        assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-13)
        assert (weights >= 0).all()
        for row, a in zip(d, weights, strict=True):
            gaps = np.flatnonzero(row > (1 + 1e-5) * row[k - 1])
            nearer = np.count_nonzero(row < (1 - 1e-5) * row[k - 1])
            if not gaps.size and not nearer:
                assert_array_equal(a, np.full(len(row), 1 / len(row)))
                continue
            # this is k_i: Eq. (30) with k_i neighbours, and nothing beyond
            kept = gaps[0] if gaps.size else nearer
            assert kept >= k if gaps.size else kept < k
            usual = adaptive_neighbor_weights(row[None, : kept + 1])[0]
            assert_allclose(a[:kept], usual, rtol=1e-13)
            assert_array_equal(a[kept:], 0.0)

    def test_rounding_decides_nothing_among_equals(self) -> None:
        rng = np.random.default_rng(1)
        d = np.sort(np.repeat([[0.1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.9]], 30, axis=0), axis=1)
        noisy = np.sort(d * (1 + 1e-7 * rng.standard_normal(d.shape)), axis=1)
        assert_allclose(tied_neighbor_weights(noisy, 3), tied_neighbor_weights(d, 3), atol=1e-5)
        assert np.abs(adaptive_neighbor_weights(noisy[:, :4])[:, 1:]).max() < 1e-5  # as it was
        # the ties extend beyond the candidates: all are dropped
        assert_array_equal(tied_neighbor_weights(noisy[:, :6], 3), np.eye(30, 6)[[0] * 30])

    @pytest.mark.parametrize("value", [0.0, 5e-324, 0.1, 1e308])
    def test_tied_candidates_share_equally(self, value: float) -> None:
        assert_array_equal(adaptive_neighbor_weights(np.full((2, 5), value)), np.full((2, 4), 0.25))

    @pytest.mark.parametrize("unit", [1e-300, 1e-30, 1e30, 1e300])
    def test_weights_have_no_unit(self, unit: float) -> None:
        d = np.array([[1.0, 2.0, 4.0, 8.0]])
        assert_allclose(adaptive_neighbor_weights(d * unit), adaptive_neighbor_weights(d))
        assert_allclose(neighbor_widths(d * unit), neighbor_widths(d) * unit)

    def test_widths_of_eq_30(self) -> None:
        d = np.array([[1.0, 2.0, 4.0], [3.0, 3.0, 3.0]])
        assert_allclose(neighbor_widths(d), [0.5 * (2 * 4 - 3), 0.0])


GROWTH = 1.3
MOST_OUTER = 60


@dataclasses.dataclass(frozen=True)
class Walk:
    """What an outer loop saw: the decisions that ended its iterations, and all weights tried."""

    decisions: list[Decision]
    weights: list[list[float]]


def walk(components: Callable[[int, float], int], n_clusters: int, *, start: float = 0.1) -> Walk:
    """The engine's loop: `components(iteration, weight)` stands for the graph step."""
    control = RankControl(n_clusters, GROWTH, start)
    decisions: list[Decision] = []
    weights: list[list[float]] = []
    for iteration in range(MOST_OUTER):
        tried: list[float] = []
        decision = Decision.RETRY
        while decision is Decision.RETRY:
            tried.append(control.graph_weight)
            assert len(tried) < 100, f"an outer iteration without end: {tried}"
            decision, control = control.observe(components(iteration, control.graph_weight))
        decisions.append(decision)
        weights.append(tried)
        if decision is not Decision.ACCEPT:
            break
    return Walk(decisions, weights)


def staircase(steps: list[tuple[float, int]]) -> Callable[[int, float], int]:
    """Components as a function of the weight alone: `steps` are (from this weight on, count)."""
    edges = [edge for edge, _ in steps]
    counts = [count for _, count in steps]
    return lambda _, weight: counts[max(0, bisect.bisect_right(edges, weight) - 1)]


@given(
    low=st.floats(1e-3, 50.0),
    width=st.floats(1.02, 4.0),
    start=st.floats(0.01, 10.0),
    n_clusters=st.integers(2, 20),
    jump=st.integers(1, 30),
)
@settings(max_examples=80)
def test_a_monotone_function_that_takes_the_value_c_is_solved(
    low: float, width: float, start: float, n_clusters: int, jump: int
) -> None:
    # c components for weights in [low, low·width), fewer below and more above
    assume(start / low < GROWTH**18)
    function = staircase([(0.0, 1), (low, n_clusters), (low * width, n_clusters + jump)])
    result = walk(function, n_clusters, start=start)
    assert result.decisions[-1] is Decision.REACHED
    assert low <= result.weights[-1][-1] < low * width
    # up the staircase by the growth factor, and never more than one needless iteration
    assert len(result.decisions) <= 3 + max(
        0, bisect.bisect_left([start * GROWTH**i for i in range(MOST_OUTER)], low)
    )


@st.composite
def functions(draw: st.DrawFn) -> Callable[[int, float], int]:
    """Any function of the weight, another one in each outer iteration; deterministic."""
    salt = draw(st.integers(0, 2**32))
    counts = draw(st.lists(st.integers(1, 9), min_size=1, max_size=8))
    resolution = draw(st.sampled_from([1.0, 4.0, 1000.0]))

    def components(iteration: int, weight: float) -> int:
        return counts[hash((salt, iteration, round(weight * resolution))) % len(counts)]

    return components


@given(functions(), st.integers(1, 9), st.floats(1e-6, 1e3))
@settings(max_examples=100)
def test_any_function_at_all_ends_after_few_retries(
    components: Callable[[int, float], int], n_clusters: int, start: float
) -> None:
    result = walk(components, n_clusters, start=start)
    assert all(len(tried) <= 30 for tried in result.weights)
    assert all(weight > 0 for tried in result.weights for weight in tried)
    if result.decisions[-1] is Decision.ACCEPT:
        assert len(result.decisions) == MOST_OUTER


def test_a_jump_over_c_stalls_after_three_iterations() -> None:
    result = walk(staircase([(0.0, 1), (0.5, 9)]), 4)
    assert result.decisions[-1] is Decision.STALLED
    n_bisected = sum(len(tried) > 1 for tried in result.weights)
    assert n_bisected == 3
    for tried in result.weights[-3:]:
        # the graph that goes on is one with too few components: the path can continue
        assert tried[-1] < 0.5
        # bisected to a fraction of the growth factor
        below = max(weight for weight in tried if weight < 0.5)
        above = min(weight for weight in tried if weight >= 0.5)
        assert above / below < GROWTH ** (1 / 16)


def test_the_weight_is_divided_twenty_times_before_it_is_given_up() -> None:
    (tried,) = walk(lambda _, __: 7, 4).weights
    assert tried == pytest.approx([0.1 / GROWTH**i for i in range(21)])
