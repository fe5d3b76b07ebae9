"""Large data by blocks of rows: the result of each step is that of the whole rows, whatever the blocks."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.sparse import csr_array, random_array

from mscam_dask.data.views.sources import ArrayRows
from mscam_dask.engine import graph as graphs
from mscam_dask.engine import spectrum, views
from mscam_dask.linalg import block_eigensolver as eigen
from mscam_dask.linalg.block_eigensolver import Ranges, blocks_of, halo_of, join_rows, split_rows
from mscam_dask.linalg.distances import squared_distances, squared_distances_to
from mscam_dask.linalg.eigensolver import bottom_eigenpairs
from mscam_dask.linalg.laplacian import connected_components, laplacian
from mscam_dask.linalg.ridge import Basis
from mscam_dask.solvers import admm, row_graph, row_view
from mscam_dask.solvers.cluster_tree import ward_merge
from mscam_dask.solvers.graph_update import GraphRows, candidate_neighbors, graph_block
from mscam_dask.solvers.ridge_view import RidgeView, ridge_view
from mscam_dask.solvers.row_blocks import ViewShape, gram_of_rows, moments_of_rows
from mscam_dask.solvers.spectral_cut import canonical_labels
from mscam_dask.solvers.view_svd import view_svd
from mscam_dask.types.parameters import Parameters, Scale, ViewSettings
from tests.blocks import small_blocks
from tests.solvers.discriminants import linear_discriminants
from tests.solvers.whole_rows import reduced_problem, ridge_points
from tests.synthetic import gaussian_views

N = 600
RANGES: Ranges = ((0, 170), (170, 330), (330, 600))
PARAMETERS = Parameters(n_clusters=3, n_neighbors=6)


@pytest.fixture(scope="module")
def view() -> NDArray[np.float64]:
    (rows,), _ = gaussian_views(3, n_samples=N, n_clusters=3, dims=(12,))
    return np.asarray(rows)


def ridge_rows(view: NDArray[np.float64], scale: Scale = "standard") -> list[RidgeView]:
    """Ridge view by blocks."""
    source = ArrayRows(view, "v")
    moments = [moments_of_rows(source.read, *one, view.shape[1]) for one in RANGES]
    transform = views.row_scaling(moments, scale)
    with small_blocks(4096):
        sums = [gram_of_rows(source.read, *one, transform) for one in RANGES]
    ridge = views.ridge_factor(sums, transform, ViewSettings(scale=scale, alpha=1.0), "v", 64)
    return [views.project(source, *one, ridge) for one in RANGES]


def graph_of(view: NDArray[np.float64], n_neighbors: int = 6) -> list[GraphRows]:
    """Graph by blocks."""
    return [
        graph_block(
            candidate_neighbors(view, 2 * n_neighbors, *one), None, n_neighbors, 1.0, 0.0, N
        )
        for one in RANGES
    ]


def rows_of_laplacian(graph: list[GraphRows]) -> list[eigen.LaplacianRows]:
    return [row_graph.laplacian_rows(block, graph, RANGES) for block in graph]


def whole(graph: list[GraphRows]) -> csr_array[np.float64]:
    return row_graph.whole_graph(graph, np.arange(N, dtype=np.int32))


def cut(array: NDArray[Any], rows: eigen.LaplacianRows) -> list[NDArray[Any]]:
    """Blocks of an array that a halo names."""
    return [array[slice(*RANGES[block])] for block in rows.halo.blocks]


def test_a_halo_gathers_the_rows_that_columns_name() -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((N, 3))
    columns = rng.integers(-1, N, (20, 4))
    halo, place = halo_of(columns, RANGES)
    gathered = halo.gather([values[slice(*RANGES[block])] for block in halo.blocks])
    assert halo.blocks == blocks_of(columns, RANGES)
    assert_array_equal(place < 0, columns < 0)
    assert_array_equal(gathered[place[columns >= 0]], values[columns[columns >= 0]])


def test_rows_that_are_split_and_joined_are_in_the_new_order() -> None:
    rng = np.random.default_rng(0)
    values, destinations = rng.standard_normal((N, 2)), rng.permutation(N).astype(np.int32)
    edges = (0, 330, N)
    pieces = [split_rows([values[a:b]], destinations[a:b], edges) for a, b in RANGES]
    expected = np.empty_like(values)
    expected[destinations] = values
    for start, stop in RANGES:
        group = 0 if stop <= 330 else 1
        (joined,) = join_rows([piece[group] for piece in pieces], start, stop)
        assert_array_equal(joined, expected[start:stop])


@pytest.mark.parametrize("scale", ["standard", "unit", "minmax", "none"])
def test_the_ridge_view_is_that_of_all_rows(view: NDArray[np.float64], scale: Scale) -> None:
    blocks = ridge_rows(view, scale)
    shape = ViewShape(N, view.shape[1], "features")
    svd = view_svd(lambda a, b: view[a:b], shape, scale=scale, name="v", dtype=np.float32)
    expected = ridge_view(svd, alpha=1.0)
    assert_allclose(blocks[0].weight, expected.weight, rtol=1e-5)
    assert_allclose(blocks[0].effective_rank, expected.effective_rank, rtol=1e-6)
    joined = np.concatenate([ridge_points(block) for block in blocks])
    # signs of directions differ
    assert_allclose(np.abs(joined), np.abs(ridge_points(expected)), atol=2e-5)
    encoder = blocks[0].encoder
    assert_allclose(encoder(view), joined, atol=1e-5)


@pytest.mark.parametrize("density", [0.0, 0.0005, 0.002, 0.02])
def test_components_of_forests_are_those_of_the_graph(density: float) -> None:
    rng = np.random.default_rng(1)
    graph = csr_array(random_array((N, N), density=density, rng=rng))
    blocks = [GraphRows(a, csr_array(graph[a:b])) for a, b in RANGES]
    forests = [row_graph.spanning_forest(block) for block in blocks]
    found = row_graph.components_of_forests(forests, N)
    count, labels = connected_components(graph)
    assert found.count == count
    assert_array_equal(found.labels, labels)
    assert all(
        forest.shape[1] < N + (b - a) for forest, (a, b) in zip(forests, RANGES, strict=True)
    )


def test_rows_of_the_laplacian_are_those_of_the_whole(view: NDArray[np.float64]) -> None:
    graph = graph_of(view)
    columns = np.random.default_rng(0).standard_normal((N, 4)).astype(np.float32)
    expected = laplacian(whole(graph)) @ columns
    blocks = rows_of_laplacian(graph)
    found = np.concatenate([rows.apply(cut(columns, rows)) for rows in blocks])
    assert_allclose(found, expected, atol=1e-5)
    largest = laplacian(whole(graph)).diagonal().max()
    assert_allclose(max(rows.largest_degree for rows in blocks), largest)


def spectrum_by_blocks(
    graph: list[GraphRows], view: NDArray[np.float64], n_accurate: int, n_vectors: int
) -> tuple[eigen.RitzPairs, NDArray[np.float32], int]:
    """Coarse to fine, as `mscam_dask.engine.spectrum` submits it."""
    components = row_graph.components_of_forests(
        [row_graph.spanning_forest(block) for block in graph], N
    )
    rows = rows_of_laplacian(graph)
    parts = [
        eigen.aggregate_rows(view[a:b].astype(np.float32), components.labels[a:b], N)
        for a, b in RANGES
    ]
    joined = spectrum.join_aggregates(parts)
    coarse = [spectrum.coarse_rows(block, joined, i, RANGES) for i, block in enumerate(rows)]
    vectors = eigen.coarse_vectors(coarse, joined, n_vectors)[joined]
    before, n_rounds = None, 0
    while True:
        image = np.concatenate([block.apply(cut(vectors, block)) for block in rows])
        sums = [
            eigen.ritz_sums(block, vectors[a:b], image[a:b])
            for block, (a, b) in zip(rows, RANGES, strict=True)
        ]
        found = eigen.ritz_pairs(sums)
        polynomial = eigen.next_filter(
            found, before, n_accurate, n_rounds, n_null=components.count, warm=False
        )
        previous = spectrum.ritz_vectors(vectors, found)
        if polynomial is None:
            return found, previous, n_rounds
        current = eigen.filter_first(vectors, image, found, polynomial)
        for _ in range(polynomial.degree - 1):
            following = np.concatenate(
                [
                    eigen.filter_next(block, previous[a:b], cut(current, block), polynomial)
                    for block, (a, b) in zip(rows, RANGES, strict=True)
                ]
            )
            previous, current = current, following
        vectors, before, n_rounds = current, found, n_rounds + 1


def test_eigenpairs_are_those_of_the_whole(view: NDArray[np.float64]) -> None:
    graph = graph_of(view)
    found, vectors, n_rounds = spectrum_by_blocks(graph, view, n_accurate=4, n_vectors=13)
    expected = bottom_eigenpairs(laplacian(whole(graph)), 4, rng=np.random.default_rng(0))
    assert_allclose(found.values[:4], expected.values, atol=1e-4 * found.bound)
    assert n_rounds > 0
    assert_allclose(vectors.T @ vectors, np.eye(vectors.shape[1]), atol=1e-4)
    angles = np.linalg.svd(vectors[:, :4].T @ expected.vectors, compute_uv=False)
    assert angles.min() > 1 - 1e-3
    residuals = laplacian(whole(graph)) @ vectors - vectors * found.values
    assert_allclose(np.linalg.norm(residuals, axis=0), found.residuals, atol=1e-4)


def test_admm_is_that_of_the_whole(view: NDArray[np.float64]) -> None:
    graph, own_views = graph_of(view), ridge_rows(view)
    matrix = laplacian(whole(graph))
    found = bottom_eigenpairs(matrix, 6, rng=np.random.default_rng(0))
    vectors: NDArray[Any] = found.vectors.astype(np.float32)
    rows = rows_of_laplacian(graph)
    together = 2  # blocks of a halo of three, from the block itself on
    sums, n_parts = [], []
    for number, one in enumerate(rows):
        own = slice(*RANGES[number])
        parts = [
            row_view.reduced_sums(
                [
                    *(own_views[block] for block in one.halo.blocks[a : a + together]),
                    own_views[number],
                ],
                [*cut(vectors, one)[a : a + together], vectors[own]],
                one,
                a,
                PARAMETERS,
            )
            for a in range(one.halo.blocks.index(number), len(one.halo.blocks), together)
        ]
        n_parts.append(len(parts))
        sums.append(row_view.added_sums(parts))
    assert n_parts == [2, 1, 1]
    total = row_view.added_sums(sums)
    assert total.n_rows == N
    coefficients, solution = row_view.solve_reduced(total, own_views[0], PARAMETERS, 2.0)
    embedding = np.concatenate(
        [
            row_view.embed_rows(one, vectors[a:b], coefficients, PARAMETERS)
            for one, (a, b) in zip(own_views, RANGES, strict=True)
        ]
    )
    basis = Basis(
        np.concatenate([one.basis.vectors for one in own_views]),
        own_views[0].basis.singular_values_squared,
    )
    problem = reduced_problem(
        basis,
        vectors,
        matrix,
        alpha=1.0,
        metric_ridge=PARAMETERS.constants.metric_ridge,
        graph_weight=2.0,
        min_shrinkage=PARAMETERS.constants.min_shrinkage,
    )
    expected = admm.solve_view(problem, problem.start(vectors[:, :3]), PARAMETERS.constants.admm)
    assert_allclose(solution.objective, expected.objective, rtol=1e-4)
    assert_allclose(embedding, problem.subspace @ expected.state.f, atol=2e-4)


def test_projected_distances_are_those_of_the_whole(view: NDArray[np.float64]) -> None:
    rng = np.random.default_rng(0)
    embeddings: list[NDArray[Any]] = [
        rng.standard_normal((N, 3)).astype(np.float32) for _ in range(2)
    ]
    for start, stop in RANGES:
        candidates = candidate_neighbors(view, 9, start, stop)
        candidates.indices[::7, -1] = -1
        needed = sorted({*blocks_of(candidates.indices, RANGES), RANGES.index((start, stop))})
        parts = [
            [row_view.EmbeddedRows(one[slice(*RANGES[block])]) for block in needed]
            for one in embeddings
        ]
        for part, embedding in zip(parts, embeddings, strict=True):
            distances = row_graph.projected_distances([part], candidates, RANGES)
            expected = squared_distances_to(embedding, np.arange(start, stop), candidates.indices)
            assert_array_equal(distances, np.where(candidates.indices < 0, 0.0, expected))


def test_discriminants_are_those_of_the_whole(view: NDArray[np.float64]) -> None:
    own_views = ridge_rows(view)
    labels = np.random.default_rng(0).integers(0, 4, N)
    sums = [
        views.class_sums_of(one, labels, a, b)
        for one, (a, b) in zip(own_views, RANGES, strict=True)
    ]
    metric = views.learn_metric(sums, own_views[0], "v")
    found = [views.discriminants(one, metric) for one in own_views]
    joined = own_views[0].of_rows(np.concatenate([one.basis.vectors for one in own_views]))
    expected = linear_discriminants(joined, labels)
    points = np.concatenate([one.points for one in found])
    assert_allclose(np.abs(points), np.abs(expected.points), atol=1e-5)
    assert_allclose(found[0].mean_distance, expected.mean_distance, rtol=1e-5)
    assert_allclose(found[0].separation, expected.separation, rtol=1e-9)


def test_components_are_merged_as_those_of_the_whole(view: NDArray[np.float64]) -> None:
    own_views = ridge_rows(view)
    labels = connected_components(
        csr_array(random_array((N, N), density=0.0015, rng=np.random.default_rng(3)))
    )
    components = row_graph.Components(labels[0], labels[1].astype(np.int32))
    sums = [
        graphs.component_sums([one], components, a)
        for one, (a, _) in zip(own_views, RANGES, strict=True)
    ]
    merged = graphs.merge_components(sums, components, np.arange(N, dtype=np.int32), 3)
    joined = np.concatenate([ridge_points(one) for one in own_views])
    sizes = np.bincount(labels[1]).astype(float)
    means = np.eye(len(sizes))[labels[1]].T @ joined / sizes[:, None]
    assert_array_equal(
        merged,
        canonical_labels(ward_merge(squared_distances(means, means), sizes, 3)[0][labels[1]]),
    )


def random_rows(seed: int, n: int = 40) -> tuple[csr_array[np.float64], list[GraphRows]]:
    """A graph, and its rows in two blocks."""
    rng = np.random.default_rng(seed)
    graph = csr_array(random_array((n, n), density=0.2, rng=rng))
    graph.sort_indices()
    return graph, [GraphRows(a, csr_array(graph[a:b])) for a, b in ((0, 25), (25, n))]


def test_rows_of_a_graph_that_are_split_and_joined_are_in_the_order_of_the_samples() -> None:
    graph, rows = random_rows(0)
    order = np.random.default_rng(1).permutation(40).astype(np.int32)
    expected = np.zeros((40, 40))
    expected[np.ix_(order, order)] = graph.toarray()
    edges = (0, 13, 31, 40)
    pieces = [row_graph.split_graph(block, order, edges) for block in rows]
    for group, (start, stop) in enumerate(pairwise(edges)):
        assert {len(of_block) for of_block in pieces} == {3}
        joined = row_graph.join_graph([own[group] for own in pieces], start, stop)
        assert (joined.start, joined.stop) == (start, stop)
        assert_array_equal(joined.affinity.toarray(), expected[start:stop])
        for first, last in pairwise(joined.affinity.indptr):
            assert np.all(np.diff(joined.affinity.indices[first:last]) > 0)
