"""Which of two partitions is better: the one with more information, by neutral graphs that no naming, order or unit can change."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.linalg.incomplete import PresentSamples
from mscam_dask.solvers.partition_score import (
    PartitionScore,
    ReferenceGraphs,
    argbest,
    explained_share,
    is_better,
    is_nearly_perfect,
    is_worse,
    reference_graphs,
    view_scores,
)
from mscam_dask.solvers.row_blocks import BLOCK_BYTES, ViewShape, ViewType
from mscam_dask.solvers.spectral_cut import canonical_labels
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.rules import RULES
from tests import oracle
from tests.blocks import small_blocks
from tests.synthetic import gaussian_views

GIVEN = Parameters(n_clusters=3)


def partition_score(information: float) -> PartitionScore:
    return PartitionScore((information - 0.1, information + 0.1))


def test_more_information_is_better_by_more_than_a_share() -> None:
    one, more, little_more = (partition_score(value) for value in (0.5, 0.51, 0.5004))
    assert is_better(more, one, GIVEN)
    assert not is_better(little_more, one, GIVEN)
    assert not is_better(one, more, GIVEN)
    assert is_worse(one, more, 0.015)
    assert not is_worse(one, more, 0.025)
    assert argbest([one, more, little_more]) == 1


def test_partitions_of_no_information_are_alike() -> None:
    nothing = PartitionScore((0.0, 0.0))
    assert not is_better(nothing, nothing, GIVEN)
    assert not is_worse(nothing, nothing, 0.0)
    assert is_better(partition_score(0.5), nothing, GIVEN)


def test_nearly_perfect_is_a_share_of_the_most_information_of_c_clusters() -> None:
    for c in (2, 3, 50):
        parameters = Parameters(n_clusters=c)
        most, least = math.log(c), (1 - RULES.level) * math.log(c)
        assert is_nearly_perfect(PartitionScore((most,)), parameters)
        assert is_nearly_perfect(PartitionScore((least,)), parameters)
        assert not is_nearly_perfect(PartitionScore((0.99 * least,)), parameters)
        assert not is_nearly_perfect(PartitionScore((most,), n_missed=1), parameters)


def random_view(labels: np.ndarray, within: float, seed: int) -> csr_array:
    """Symmetric graph whose edges are within clusters with this probability each, and rarely between."""
    rng = np.random.default_rng(seed)
    share = np.where(np.equal.outer(labels, labels), within, 0.01)
    upper = np.triu(rng.random(share.shape) < share, 1).astype(float)
    return csr_array(upper + upper.T)


SIZES = (np.repeat([0, 1], 60), np.repeat([0, 1, 2], [100, 12, 8]))


@pytest.mark.parametrize("labels", SIZES, ids=["equal", "unequal"])
def test_the_explained_share_does_not_depend_on_the_sizes(labels: np.ndarray) -> None:
    views = [ReferenceGraphs((random_view(labels, 0.5, seed),)) for seed in range(3)]
    assert explained_share(views, labels) > 0.9
    rng = np.random.default_rng(0)
    by_chance = [explained_share(views, rng.permutation(labels)) for _ in range(5)]
    assert max(by_chance) < 0.2
    assert explained_share(views, 0 * labels) == 0.0


Array = NDArray[np.float64]
Labels = NDArray[np.int64]


def graphs_of(
    rows: Array, view_type: ViewType = "features", *, k: int = 5, block_bytes: int = BLOCK_BYTES
) -> ReferenceGraphs:
    shape = ViewShape(len(rows), rows.shape[1], view_type)
    with small_blocks(block_bytes):
        return reference_graphs(lambda start, stop: rows[start:stop], shape, k)


def view_score(view: ReferenceGraphs, labels: Labels) -> float:
    (score,) = view_scores(view, [labels])
    return score


def blobs(seed: int = 0, *, n: int = 60, c: int = 3, spread: float = 6.0) -> tuple[Array, Labels]:
    (rows,), labels = gaussian_views(seed, n_samples=n, n_clusters=c, spread=spread, dims=(4,))
    return rows, labels


def naive_graph(distances: Array, k: int) -> Array:
    """(A + Aᵀ)/2 with rows of A from Eq. (29)–(30), ties to the lower index."""
    n = len(distances)
    A = np.zeros((n, n))
    for i in range(n):
        d = distances[i].copy()
        d[i] = np.inf
        order = np.lexsort((np.arange(n), d))
        farthest = d[order[k]] if k < n - 1 else d[order[k - 1]]
        gaps = farthest - d[order[:k]]
        A[i, order[:k]] = gaps / gaps.sum() if gaps.sum() > 1e-12 * farthest else 1 / k
    return 0.5 * (A + A.T)


@given(st.integers(0, 2**16), st.integers(1, 11))
@settings(max_examples=25)
def test_feature_views_give_the_graphs_of_unit_rows_and_of_standardised_columns(
    seed: int, k: int
) -> None:
    rows = np.random.default_rng(seed).standard_normal((12, 3)) * [1.0, 5.0, 25.0]
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    standard = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    graphs = graphs_of(rows, k=k).graphs
    assert len(graphs) == 2
    for graph, transformed in zip(graphs, (unit, standard), strict=True):
        assert_allclose(
            graph.toarray(), naive_graph(oracle.pair_distances(transformed), k), atol=1e-9
        )


@given(st.integers(0, 2**16), st.integers(1, 11))
@settings(max_examples=25)
def test_pair_views_give_the_graph_of_their_distances(seed: int, k: int) -> None:
    rows = np.random.default_rng(seed).standard_normal((12, 3))
    squared = oracle.pair_distances(rows)
    (from_distances,) = graphs_of(squared, "distance", k=k).graphs
    assert_allclose(from_distances.toarray(), naive_graph(squared, k), atol=1e-9)
    (from_kernel,) = graphs_of(rows @ rows.T, "kernel", k=k).graphs
    assert_allclose(from_kernel.toarray(), naive_graph(squared, k), atol=1e-9)


def test_rounding_below_zero_in_a_distance_view_is_no_obstacle() -> None:
    # validation lets differences of 1e-6 of the largest distance pass
    distances = oracle.pair_distances(np.arange(12.0)[:, None] // 3)
    noisy = distances - 1e-9 * (1.0 - np.eye(12))
    assert noisy.min() < 0
    (graph,) = graphs_of(noisy, "distance", k=3).graphs
    assert np.all(graph.data >= 0)


@pytest.mark.parametrize(
    ("view_type", "exponent"),
    [
        *(("features", -900), ("features", 900)),
        *(("distance", -1060), ("distance", 1015)),
        *(("kernel", -1060), ("kernel", 1015)),
    ],
)
def test_the_unit_of_a_view_does_not_matter(view_type: ViewType, exponent: int) -> None:
    """Also near the ends of the range of doubles, where sums of two values overflow."""
    rng = np.random.default_rng(5)
    rows = rng.integers(-8, 9, (12, 3)).astype(np.float64)
    table = {
        "features": rows,
        "distance": np.abs(rows[:, None] - rows).sum(axis=2),
        "kernel": rows @ rows.T,
    }[view_type]
    plain, scaled = (
        graphs_of(values, view_type).graphs for values in (table, np.ldexp(table, exponent))
    )
    for graph, expected in zip(scaled, plain, strict=True):
        assert_allclose(graph.toarray(), expected.toarray(), atol=1e-12)


@pytest.mark.parametrize("n_block_rows", [1, 7])
def test_reading_by_blocks_changes_rounding_alone(n_block_rows: int) -> None:
    rows, _ = blobs(4)
    whole = graphs_of(rows)
    streamed = graphs_of(rows, block_bytes=8 * rows.shape[1] * n_block_rows)
    for left, right in zip(streamed.graphs, whole.graphs, strict=True):
        assert_allclose(left.toarray(), right.toarray(), rtol=1e-12)


def test_awkward_views_have_graphs() -> None:
    # one column: unit rows are ±1; zero rows; half of the samples identical; k = n − 1
    one_column = np.linspace(-1.0, 2.0, 30)[:, None]
    zero_rows = np.random.default_rng(0).standard_normal((30, 3))
    zero_rows[::3] = 0.0
    identical = np.random.default_rng(1).standard_normal((30, 3))
    identical[:15] = identical[0]
    labels = canonical_labels(np.arange(30) // 10)
    for rows in (one_column, zero_rows, identical):
        for k in (1, 5, 29):
            view = graphs_of(rows, k=k)
            assert np.isfinite(view_score(view, labels))
            for graph in view.graphs:
                assert_allclose(graph.toarray(), graph.toarray().T)
                assert graph.sum() == pytest.approx(30.0)


def test_samples_that_a_view_lacks_have_no_evidence_and_the_others_all_of_it() -> None:
    rows, labels = blobs(n=40)
    whole = graphs_of(rows)
    has = np.flatnonzero(np.arange(60) % 3)
    everybody = np.zeros(60, dtype=np.int64)
    everybody[has] = labels
    lacking = ReferenceGraphs(whole.graphs, PresentSamples(has, 60), weight=2 / 3)
    (score,) = view_scores(lacking, [everybody])
    (expected,) = view_scores(whole, [labels])
    assert score == pytest.approx(2 / 3 * expected)
