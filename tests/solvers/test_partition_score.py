"""Which of some partitions is better: by information, by neutral graphs, by borders; none is preferred for its sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.metrics import adjusted_rand_score

from mscam_dask.linalg.incomplete import PresentSamples
from mscam_dask.solvers.borders import JointPoints, borders
from mscam_dask.solvers.choice import (
    Linkage,
    Search,
    best_by_borders,
    best_by_known,
    best_by_p_value,
    candidate_partitions,
    diffusion_coordinates,
    graph_linkages,
    linkage_of,
    linkage_partition,
    point_linkages,
    principal_scores,
    views_separate,
)
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
from mscam_dask.solvers.row_blocks import ViewShape, ViewType
from mscam_dask.types.parameters import Constants, Parameters
from mscam_dask.types.rules import RULES
from tests import oracle
from tests.solvers.test_borders import as_points, normals, rings
from tests.synthetic import Array, gaussian_views

TIE = Constants().score_tie


def partition_score(information: float) -> PartitionScore:
    return PartitionScore((information - 0.1, information + 0.1))


def test_more_information_is_better_by_more_than_a_share() -> None:
    one, more, little_more = (partition_score(value) for value in (0.5, 0.51, 0.5004))
    assert is_better(more, one, TIE)
    assert not is_better(little_more, one, TIE)
    assert not is_better(one, more, TIE)
    assert is_worse(one, more, 0.015)
    assert not is_worse(one, more, 0.025)
    assert argbest([one, more, little_more]) == 1


def test_partitions_of_no_information_are_alike() -> None:
    nothing = PartitionScore((0.0, 0.0))
    assert not is_better(nothing, nothing, TIE)
    assert not is_worse(nothing, nothing, 0.0)
    assert is_better(partition_score(0.5), nothing, TIE)


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


@pytest.mark.parametrize(
    "labels",
    [np.repeat([0, 1], 60), np.repeat([0, 1, 2], [100, 12, 8])],
    ids=["equal", "unequal"],
)
def test_the_explained_share_does_not_depend_on_the_sizes(labels: np.ndarray) -> None:
    views = [ReferenceGraphs((random_view(labels, 0.5, seed),)) for seed in range(3)]
    assert explained_share(views, labels) > 0.9
    rng = np.random.default_rng(0)
    by_chance = [explained_share(views, rng.permutation(labels)) for _ in range(5)]
    assert max(by_chance) < 0.2
    assert explained_share(views, 0 * labels) == 0.0


def graphs_of(rows: Array, view_type: ViewType = "features", *, k: int = 5) -> ReferenceGraphs:
    shape = ViewShape(len(rows), rows.shape[1], view_type)
    return reference_graphs(lambda start, stop: rows[start:stop], shape, k)


def symmetric_graph(distances: Array, k: int) -> Array:
    """(A + Aᵀ)/2."""
    A = oracle.a_step(distances, k)
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
            graph.toarray(), symmetric_graph(oracle.pair_distances(transformed), k), atol=1e-9
        )


@given(st.integers(0, 2**16), st.integers(1, 11))
@settings(max_examples=25)
def test_pair_views_give_the_graph_of_their_distances(seed: int, k: int) -> None:
    rows = np.random.default_rng(seed).standard_normal((12, 3))
    squared = oracle.pair_distances(rows)
    (from_distances,) = graphs_of(squared, "distance", k=k).graphs
    assert_allclose(from_distances.toarray(), symmetric_graph(squared, k), atol=1e-9)
    (from_kernel,) = graphs_of(rows @ rows.T, "kernel", k=k).graphs
    assert_allclose(from_kernel.toarray(), symmetric_graph(squared, k), atol=1e-9)


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


def test_samples_that_a_view_lacks_have_no_evidence_and_the_others_all_of_it() -> None:
    (rows,), labels = gaussian_views(0, n_samples=40, spread=6.0, dims=(4,))
    whole = graphs_of(rows)
    has = np.flatnonzero(np.arange(60) % 3)
    everybody = np.zeros(60, dtype=np.int64)
    everybody[has] = labels
    lacking = ReferenceGraphs(whole.graphs, PresentSamples(has, 60), weight=2 / 3)
    (score,) = view_scores(lacking, [everybody])
    (expected,) = view_scores(whole, [labels])
    assert score == pytest.approx(2 / 3 * expected)


@pytest.mark.parametrize(("n", "p"), [(400, 10), (400, 100), (100, 300)])
def test_of_noise_one_direction_is_kept_and_of_a_few_samples_apart_theirs(n: int, p: int) -> None:
    rng = np.random.default_rng(0)
    noise = 7.0 * rng.normal(size=(n, p))
    assert principal_scores(noise).shape[1] <= 2
    noise[:20] += 70.0 * rng.permutation(np.eye(p)[0])
    scores = principal_scores(noise)
    assert scores.shape[1] <= 3
    assert np.abs(scores[:20].mean(axis=0) - scores[20:].mean(axis=0)).max() > 7.0
    assert scores[20:].std(axis=0).min() == pytest.approx(1.0, rel=0.6)  # in units of the noise


def candidates(rows: Array, c: int) -> list[NDArray[np.int64]]:
    points = JointPoints(rows, (rows.shape[1],))
    return candidate_partitions(points, point_linkages(points), c)


@pytest.mark.parametrize("sizes", [(300, 300), (500, 20), (400, 60, 8)])
def test_a_candidate_is_the_true_partition_whatever_the_sizes(sizes: tuple[int, ...]) -> None:
    points, labels = normals(0, sizes, 9.0, 6)
    found = candidates(points, len(sizes))
    assert max(adjusted_rand_score(labels, one) for one in found) == 1.0
    assert all(len(np.unique(one)) == len(sizes) for one in found)


def test_a_tree_without_so_many_groups_of_enough_samples_has_no_partition() -> None:
    linked = linkage_of(np.arange(16.0)[:, None] ** 3, "average")
    assert linkage_partition(linked, 4, 5) == []
    (labels,) = linkage_partition(linked, 1, 5)
    assert not labels.any()


def test_a_candidate_has_clusters_that_factors_of_larger_variance_hide() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), (150, 100, 80, 40))
    points = 7.0 * np.eye(4, 30)[labels] + rng.normal(size=(370, 30))
    points += rng.normal(size=(370, 2)) @ rng.normal(size=(2, 30)) * 4.0
    scores = [adjusted_rand_score(labels, one) for one in candidates(points, 4)]
    assert scores[0] > 0.95  # the cut of the sphered scores
    assert max(scores[1:]) < 0.5


def graphs(labels: NDArray[np.int64]) -> list[ReferenceGraphs]:
    """Graphs of two views that join all samples of a cluster, and no others."""
    blocks = csr_array(np.equal.outer(labels, labels).astype(float))
    return [ReferenceGraphs((blocks,)), ReferenceGraphs((blocks,))]


def best(
    points: JointPoints,
    partitions: list[NDArray[np.int64]],
    views: list[ReferenceGraphs],
    c: int,
    linkages: Sequence[Linkage] = (),
    earlier: Sequence[Search] = (),
) -> int:
    own = borders(points, partitions[0], c)
    return best_by_borders(points, partitions, views, own, linkages, earlier)


def separated_pairs(points: JointPoints, labels: NDArray[np.int64], c: int) -> list[bool]:
    return views_separate(points, labels, borders(points, labels, c))


def halves_of(score: Array) -> NDArray[np.int64]:
    """Labels of the samples below and above the median."""
    return (score > np.median(score)).astype(np.int64)


def test_a_candidate_takes_the_place_of_the_first_if_it_misses_clearly_fewer_known_samples() -> (
    None
):
    true = np.repeat([0, 1], 20)
    views = graphs(true)
    known = np.where(np.arange(40) % 2 == 0, true, -1)
    halves, other_halves, nearly = true.copy(), 1 - true, true.copy()
    nearly[:2] = 1  # misses one of 20
    odd = np.arange(40) // 10 % 2  # misses half
    assert best_by_known([odd, nearly, halves], views, known) == 2
    assert (
        best_by_known([nearly, halves], views, known) == 0
    )  # one sample more is no clear difference
    shifted = np.where(known < 0, 0, true)
    shifted[-1] = 1
    assert best_by_known([odd, shifted, other_halves], views, known) == 2  # neighbors explain it


def test_a_candidate_with_a_border_takes_the_place_of_halves_if_neighbors_explain_it() -> None:
    rows, three = normals(0, (300, 60, 60), 9.0, 6)
    points, halves = JointPoints(rows, (3, 3)), halves_of(rows[:, 0])
    labels, more = three // 2, [linkage_of(rows, "ward")]
    assert best(points, [halves, labels], graphs(labels), 2, more) == 1
    assert borders(points, labels, 2).of_several(1).support
    assert best(points, [halves, labels], graphs(halves), 2, more) == 0
    assert best(points, [halves, halves], graphs(labels), 2, more) == 0  # it has no border


@pytest.mark.parametrize("size", [4, 5])
def test_pairs_with_a_cluster_of_few_samples_do_not_count(size: int) -> None:
    rows = np.random.default_rng(0).normal(size=(60 + size, 4))
    labels = np.repeat([0, 1], (60, size))
    assert len(separated_pairs(JointPoints(rows, (2, 2)), labels, 2)) == (size >= 5)


def test_clusters_that_views_separate_are_kept_if_neighbors_explain_more_nats_of_them() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(420, 6))
    rows[200:400] += 1.2
    rows[400:] -= 9.0
    rows[410:, ::3] -= 9.0
    points, first = JointPoints(rows, (3, 3)), np.repeat([0, 1, 0], (200, 200, 20))
    apart = np.repeat([0, 1], (400, 20))
    more = [linkage_of(np.eye(3)[np.repeat([0, 1, 2], (400, 10, 10))], "ward")]
    assert separated_pairs(points, first, 2) == [True]
    # neighbors explain 0.9 of the entropy of the candidate, and 0.65 of that of the fit, which is twice the nats or more, or little
    draws = rng.random(420)
    groups = np.where(draws > 0.99, 2 - 2 * apart, np.where(apart == 1, 2, first))
    few, many = (np.where((draws < q) & (groups < 2), 1 - groups, groups) for q in (0.06, 0.3))
    assert explained_share(graphs(few), apart) > explained_share(graphs(few), first)
    assert best(points, [first, apart], graphs(few), 2, more) == 0
    assert best(points, [first, apart], graphs(many), 2, more) == 1


def test_clusters_that_views_separate_give_way_to_borders_that_neighbors_explain_better() -> None:
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], (200, 100, 40))
    gradient = rng.normal(size=340)  # in all views
    rows = 0.3 * rng.normal(size=(340, 6)) + 1.2 * gradient[:, None]
    rows[:, [0, 3]] += 6.0 * (truth == 1)[:, None]
    rows[:, [1, 4]] += 6.0 * (truth == 2)[:, None]
    first = np.where(truth == 2, 2, (gradient > 0.0).astype(np.int64))
    points, own = JointPoints(rows, (3, 3)), borders(JointPoints(rows, (3, 3)), first, 3)
    assert not own.support
    assert own.stand.any()
    assert all(views_separate(points, first, own))
    draws = rng.random(340) < 0.2
    noisy = np.where(draws, (truth + 1) % 3, truth)  # it does not explain nearly all
    assert best(points, [first, truth], graphs(noisy), 3) == 1
    assert best(points, [first, truth], graphs(first), 3) == 0
    earlier: list[Search] = [(points, graphs(first), [])]  # whose neighbors explain the fit better
    assert best(points, [first, truth], graphs(noisy), 3, earlier=earlier) == 0


@pytest.mark.parametrize("sizes", [(150, 100, 50), (288, 6, 6)])
def test_clusters_hidden_by_a_factor_take_the_place_of_its_parts_unless_there_are_more(
    sizes: tuple[int, ...],
) -> None:
    rng = np.random.default_rng(0)
    truth, factor = np.repeat(np.arange(3), sizes), rng.normal(size=300)
    rows = 0.5 * rng.normal(size=(300, 6)) + 12.0 * factor[:, None]  # in all views
    for cluster in (1, 2):
        rows[truth == cluster, cluster] += 6.0
        rows[truth == cluster, 3 + cluster] += 6.0
    points = JointPoints(rows, (3, 3))
    linkages = [linkage_of(np.eye(3)[truth], "ward")]
    for c, clusters in ((3, truth), (2, truth // 2)):
        parts = np.digitize(factor, np.quantile(factor, np.arange(1, c) / c))
        noisy = np.where(rng.random(300) < 0.1, rng.integers(0, c, 300), clusters)
        views = graphs(c * parts + noisy)  # neighbors explain the parts completely
        assert explained_share(views, parts) > explained_share(views, clusters)
        assert not borders(points, parts, c).stand.any()
        assert all(separated_pairs(points, parts, c))
        assert borders(points, clusters, c).of_several(1).p_values.max() <= 0.05
        assert (best(points, [parts, clusters], views, c, linkages) == 1) == (c == 3)
        assert best(points, [parts, clusters], views, c) == 1
        found = best(points, [parts, clusters], views, c, earlier=[(points, views, linkages)])
        assert (found == 1) == (c == 3)


def test_clusters_with_few_samples_between_them_take_the_place_of_parts_of_a_cluster() -> None:
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(4), (140, 30, 14, 14))
    rows = rng.normal(size=(198, 6))
    rows[truth == 1, 0] += 9.0
    rows[truth > 1, 1] += 9.0
    rows[truth == 3, 2] += 3.0
    rows[truth == 3, 4] += 2.0
    parts = np.where(truth == 0, np.where(rows[:, 5] > 0.0, 3, 0), np.minimum(truth, 2))
    points = JointPoints(rows, (3, 3))
    for partition in (parts, truth):
        assert not borders(points, partition, 4).support
        assert borders(points, partition, 4).n_supported == 3
    assert best(points, [parts, truth], graphs(truth), 4) == 1
    assert best(points, [parts, truth], graphs(parts), 4) == 0
    apart = rows + 9.0 * np.eye(6)[4] * (parts == 3)[:, None]  # all clusters of the fit stand
    assert best(JointPoints(apart, (3, 3)), [parts, truth], graphs(truth), 4) == 0


def test_clusters_of_one_sample_are_refused() -> None:
    rng = np.random.default_rng(0)
    halves = halves_of(rng.normal(size=400)).astype(np.int64)
    one = rng.normal(size=(400, 6))
    one[:60] += 9.0
    one[399] -= 30.0
    single = np.repeat([0, 1, 2], (60, 339, 1))
    assert borders(JointPoints(one, (3, 3)), single, 3).support
    assert best(JointPoints(one, (3, 3)), [halves, single], graphs(single), 3) == 0


def test_of_candidates_with_as_many_clusters_left_the_one_with_the_largest_share_is_taken() -> None:
    rows, labels = normals(0, (300, 60, 60), 9.0, 6)
    points, halves = JointPoints(rows, (3, 3)), halves_of(rows[:, 0])
    pairs = np.where(labels == 2, 1, labels)
    small, large = pairs.copy(), pairs.copy()
    small[:3] = 2
    large[:10] = 2
    assert best(points, [halves, small, large], graphs(small), 3) == 1
    assert best(points, [halves, small, large], graphs(large), 3) == 2
    assert best(points, [halves, small, large, labels], graphs(small), 3) == 3


def test_a_candidate_that_neighbors_explain_nearly_completely_is_taken() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 6))
    rows[:, 0] += 12.0 * (np.arange(400) % 2)
    rows[:40, 3] += 14.0
    points = JointPoints(rows, (3, 3))
    even, rare = np.arange(400) % 2, (np.arange(400) < 40).astype(np.int64)
    assert borders(points, even, 2).support
    assert borders(points, rare, 2).support
    assert best(points, [even, rare], graphs(rare), 2) == 1
    assert best(points, [even, rare], graphs(even), 2) == 0
    noisy = np.where(rng.random(400) < 0.1, 1 - rare, rare)  # it does not explain nearly all
    assert best(points, [even, rare], graphs(noisy), 2) == 0


def test_a_candidate_with_fewer_clusters_that_have_borders_is_refused() -> None:
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(5), (100, 100, 100, 60, 60))
    rows = rng.normal(size=(420, 6))
    for cluster, column in enumerate((0, 1, 2, 3)):
        rows[truth == cluster, column] += 12.0
    rows[truth == 4, 3] += 10.5  # one view separates it from cluster 3, without a valley
    rows[truth == 4, 4] += 1.5
    merged = np.choose(truth, (0, 0, 1, 2, 2))
    merged[:4], merged[100:104] = 3, 4
    points = JointPoints(rows, (3, 3))
    assert borders(points, truth, 5).n_supported == 4
    assert borders(points, merged, 5).n_supported == 3
    assert borders(points, merged, 5).support
    assert separated_pairs(points, truth, 5) == [False]
    assert best(points, [truth, merged], graphs(merged), 5) == 0


@pytest.mark.parametrize("n", [150, 420])  # by a dense and by a sparse eigensolver
def test_diffusion_coordinates_have_the_products_of_the_normalized_graph(n: int) -> None:
    rng = np.random.default_rng(0)
    low_rank = rng.random((n, 8))
    graph = csr_array(low_rank @ low_rank.T)
    degrees = graph.toarray().sum(axis=1)
    rows = diffusion_coordinates([ReferenceGraphs((graph,))], 20)
    expected = graph.toarray() / np.outer(degrees, degrees)
    np.testing.assert_allclose(rows @ rows.T, expected, atol=1e-10)


def test_the_p_value_of_a_number_is_that_of_its_best_partition() -> None:
    rows, labels = normals(0, (200, 100, 50), 9.0, 6)
    points = JointPoints(rows, (rows.shape[1],))
    linkages = [*graph_linkages(graphs(labels), 5), *point_linkages(points)]
    p_values = [best_by_p_value(points, linkages, [], number)[0] for number in (2, 3, 4, 5)]
    assert max(p_values[:2]) <= 0.05 < min(p_values[2:])
    value, found = best_by_p_value(points, linkages, [labels], 3)
    assert value <= p_values[1]
    assert adjusted_rand_score(labels, found) == 1.0


def test_a_cut_into_curved_clusters_is_tested_as_it_is() -> None:
    rows, labels = rings(0, 600)
    rng = np.random.default_rng(0)
    points = as_points(rows @ rng.normal(size=(2, 8)) + 0.1 * rng.normal(size=(600, 8)))
    value, found = best_by_p_value(points, [], [labels], 2)
    assert value <= RULES.level
    np.testing.assert_array_equal(found, labels)
