"""The A-step: optimality of every row, candidates, independence of the split into blocks."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.linalg.incomplete import PresentSamples, as_incomplete_blocks, with_finite_distances
from mscam_dask.linalg.orthonormal import polar_factor
from mscam_dask.solvers.admm import EmbeddedRows
from mscam_dask.solvers.graph_update import (
    GraphRows,
    candidate_neighbors,
    graph_block,
    neighbor_graph,
    projected_weight,
    spread_affinity,
)
from mscam_dask.solvers.row_graph import mean_rows, projected_distances
from tests import oracle

Array = NDArray[np.float64]
Graph: TypeAlias = "csr_array[np.float64]"  # SciPy 1.15 cannot subscript it


def points(seed: int, n: int, r: int = 3) -> Array:
    """Rows of which some are duplicates and some lie on a grid, so that ties happen."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, r))
    rows[: n // 3] = np.round(rows[: n // 3])
    rows[n // 2] = rows[0]
    return rows


def mean_graph(graphs: list[Graph], weights: list[float]) -> Graph:
    return mean_rows([GraphRows(0, graph) for graph in graphs], weights).affinity


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
        found, projected_distances([[EmbeddedRows(embedding)]], found, ((0, n),)), k, 0.8, weight, n
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


# ---------------------------------------------------------------------------------------------
# Graphs of single views
# ---------------------------------------------------------------------------------------------


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


# ---------------------------------------------------------------------------------------------
# Samples that are absent from views
# ---------------------------------------------------------------------------------------------


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
    found = mean_graph(graphs, weights).toarray()
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
    assert found.coverage is not None
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
