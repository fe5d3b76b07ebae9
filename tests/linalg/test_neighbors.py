"""Distances and neighbors against an enumeration of all samples, also of incomplete points; approximate neighbors, and how many of the true ones they find."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mscam_dask.linalg.distances import (
    WeightedBlocks,
    squared_distances,
    squared_distances_to,
    subtract_twice_products,
)
from mscam_dask.linalg.incomplete import (
    SharedDistances,
    as_incomplete_blocks,
    nearest_sharing,
    with_finite_distances,
)
from mscam_dask.linalg.ivf import (
    IVFIndex,
    assign_to_cells,
    cut_cells,
    ivf_search,
    train_centers,
    training_rows,
)
from mscam_dask.linalg.laplacian import induced_laplacian, laplacian
from mscam_dask.linalg.neighbors import column_facts, nearest_neighbors
from mscam_dask.types.rules import CONSTANTS


def nearest(points: NDArray[np.float64], k: int, **options: Any) -> NDArray[np.int64]:
    return nearest_neighbors(points, k, **options)[0]


def by_enumeration(points: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    """Every other sample, sorted by (exact distance, index)."""
    n = len(points)
    rows = []
    for i in range(n):
        distance = np.sum((points - points[i]) ** 2, axis=1)
        others = [j for j in range(n) if j != i]
        rows.append(sorted(others, key=lambda j: (distance[j], j))[:k])
    return np.array(rows, dtype=np.int64)


@settings(max_examples=60)
@given(st.integers(2, 60), st.integers(1, 4), st.integers(0, 4), st.data())
def test_against_enumeration_where_ties_go_to_the_lower_index(
    n: int, r: int, side: int, data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, n - 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    points = rng.standard_normal((n, r))
    if side:  # integer coordinates: exact ties everywhere, many duplicates
        points = rng.integers(0, side, size=(n, r)).astype(np.float64)
    assert_array_equal(nearest(points, k), by_enumeration(points, k))


def test_far_from_the_origin_distances_are_still_exact() -> None:
    # matrix products would see nothing but rounding here
    rng = np.random.default_rng(1)
    points = np.asarray(1e9 + rng.integers(0, 1000, size=(80, 8)) * 2.0**-10, dtype=np.float64)
    points[0] = -1e9  # so that centring does not help
    assert_array_equal(nearest(points, 6), by_enumeration(points, 6))


def test_facts_of_blocks_in_different_units_are_combined() -> None:
    rng = np.random.default_rng(4)
    points = rng.standard_normal((90, 6))
    units = np.repeat((1e-15, 1.0, 1e12), 2)
    columns = points * units + np.array([0.0, 0.0, 50.0, 50.0, 0.0, 0.0])
    weighted = WeightedBlocks(
        tuple(columns[:, first : first + 2].astype(np.float32) for first in (0, 2, 4)),
        tuple(units[first : first + 2] ** -2.0 for first in (0, 2, 4)),
    )
    facts = [*column_facts(weighted, slice(0, 1)), *column_facts(weighted, slice(1, 3))]
    found, distances = nearest_neighbors(weighted, 7, row_start=20, row_stop=50, facts=facts)
    assert_array_equal(found, by_enumeration(weighted.stacked(slice(None)), 7)[20:50])
    squared = [of_block.squared_norms * 4.0**of_block.exponent for of_block in facts]
    centered = points - points.mean(axis=0)
    assert_allclose(sum(squared), np.sum(centered**2, axis=1), rtol=1e-2)
    assert_array_equal(distances, nearest_neighbors(weighted, 7)[1][20:50])


def by_definition(rows: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    result = np.zeros((len(rows), len(others)))
    for i, x in enumerate(rows):
        for j, y in enumerate(others):
            result[i, j] = sum((a - b) ** 2 for a, b in zip(x, y, strict=True))
    return result


@settings(max_examples=30)
@given(st.integers(0, 6), st.integers(0, 7), st.integers(0, 5), st.integers(0, 1000))
def test_all_pairs(m: int, n: int, r: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, others = rng.standard_normal((m, r)), rng.standard_normal((n, r))
    assert_allclose(squared_distances(rows, others), by_definition(rows, others), atol=1e-13)


def test_a_common_offset_costs_no_digits() -> None:
    rng = np.random.default_rng(0)
    points = np.round(rng.standard_normal((20, 3)), 3)
    shifted = squared_distances(points + 2.0**20, points + 2.0**20)
    assert_allclose(shifted, by_definition(points, points), atol=1e-8)
    assert (shifted >= 0).all()


def test_bits_of_edges_are_symmetric_and_do_not_depend_on_blocks() -> None:
    points = np.random.default_rng(3).standard_normal((64, 37))
    rows, everyone = np.arange(64), np.tile(np.arange(64), (64, 1))
    whole = squared_distances_to(points, rows, everyone)
    assert_array_equal(whole, whole.T)
    parts = [
        squared_distances_to(points, rows[start : start + 7], everyone[start : start + 7])
        for start in range(0, 64, 7)
    ]
    assert_array_equal(np.vstack(parts), whole)


def test_products_are_subtracted_from_a_part_of_an_array_too() -> None:
    rng = np.random.default_rng(0)
    rows, others = (rng.standard_normal((m, 2)).astype(np.float32) for m in (3, 4))
    whole = np.zeros((3, 8), dtype=np.float32)
    subtract_twice_products(whole[:, ::2], rows, others)
    assert_allclose(whole[:, ::2], -2.0 * rows @ others.T, rtol=1e-5, atol=1e-6)
    assert_array_equal(whole[:, 1::2], 0.0)


N = 23


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def views_with_gaps(rng: np.random.Generator) -> list[NDArray[np.float64]]:
    """Three views, NaN for absent samples; samples 0 and 1 share none."""
    views = [rng.standard_normal((N, r)) for r in (2, 3, 1)]
    for view in views:
        view[rng.random(N) < 0.4] = np.nan
    views[0][:2], views[1][:2], views[2][:2] = 1.0, np.nan, np.nan
    views[0][1], views[1][1] = np.nan, 1.0
    views[2][2:] = np.nan_to_num(views[2][2:], nan=0.5)
    return views


def mean_over_shared_views(views: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Mean over the shared views; every other one counts a tenth at distance one."""
    n = len(views[0])
    distances = np.full((n, n), np.inf)
    for i in range(n):
        for j in range(n):
            own = [np.sum((view[i] - view[j]) ** 2) for view in views]
            shared = [d for d in own if not np.isnan(d)]
            unknown = CONSTANTS.unknown_view_weight * (len(views) - len(shared))
            if shared:
                distances[i, j] = (sum(shared) + unknown) / (len(shared) + unknown)
    return distances


def test_distances_are_means_over_the_shared_views(rng: np.random.Generator) -> None:
    views = views_with_gaps(rng)
    points, expected = as_incomplete_blocks(views), mean_over_shared_views(views)
    everyone = np.arange(N)
    assert_allclose(points.distances(everyone, everyone), expected, atol=1e-12)
    between = SharedDistances(tuple(view.shape[1] for view in views))
    joint = np.hstack(views)
    assert_allclose(between(joint[:4], joint[4:]), expected[:4, 4:], atol=1e-12)
    assert expected[0, 1] == np.inf


@pytest.mark.parametrize("k", [1, 5, N - 1])
def test_neighbors_are_the_nearest_and_those_without_a_common_view_come_last(
    rng: np.random.Generator, k: int
) -> None:
    views = views_with_gaps(rng)
    indices, distances = nearest_sharing(as_incomplete_blocks(views), k, 0, N)
    expected = mean_over_shared_views(views)
    np.fill_diagonal(expected, np.nan)  # sorted last
    assert_allclose(distances, np.sort(expected, axis=1)[:, :k], atol=1e-12)
    assert not (indices == np.arange(N)[:, None]).any()
    assert all(len(set(row)) == k for row in indices.tolist())
    part, _ = nearest_sharing(as_incomplete_blocks(views), k, 7, 12)
    assert_array_equal(part, indices[7:12])


def test_infinite_distances_become_the_largest_of_their_row() -> None:
    distances = np.array([[1.0, 3.0, np.inf], [np.inf, np.inf, np.inf], [0.0, 1.0, 2.0]])
    expected = [[1.0, 3.0, 6.0], [1.0, 1.0, 1.0], [0.0, 1.0, 2.0]]
    assert_array_equal(with_finite_distances(distances), expected)


def test_induced_laplacian_is_that_of_the_subgraph(rng: np.random.Generator) -> None:
    affinity = np.where(rng.random((9, 9)) < 0.5, rng.random((9, 9)), 0.0)
    np.fill_diagonal(affinity, 0.0)
    samples = np.array([0, 3, 4, 8])
    found = induced_laplacian(laplacian(csr_array(affinity)), samples)
    expected = laplacian(csr_array(affinity[np.ix_(samples, samples)]))
    assert_allclose(found.toarray(), expected.toarray(), atol=1e-14)


Array = NDArray[Any]


def blobs(n: int = 1500) -> WeightedBlocks:
    rng, dims = np.random.default_rng(0), (6, 10)
    labels = rng.integers(0, 5, n)
    slabs = tuple(
        (rng.standard_normal((n, d)) + 2 * rng.standard_normal((5, d))[labels]).astype(np.float32)
        for d in dims
    )
    return WeightedBlocks(slabs, tuple(rng.uniform(0.5, 2.0, d) for d in dims))


def cells_of(points: WeightedBlocks, n_candidates: int = 10) -> IVFIndex:
    """The steps of the engine, for one block."""
    rows, n, seed, cell_points = points.stacked(slice(None), np.float32), len(points), 3, 40
    sample = rows[training_rows(0, n, n, seed, cell_points)]
    centers = train_centers([sample], max(1, n // cell_points), seed)
    return cut_cells([assign_to_cells(rows, centers)], centers, n_candidates, cell_points)


def searched(
    points: WeightedBlocks, cells: IVFIndex, n_candidates: int
) -> tuple[Array, Array, Array]:
    """Points in the order of the cells, and the neighbors and distances of each, by number of the point."""
    ordered = points.stacked(cells.order, np.float32)
    positions, squared = ivf_search([ordered], cells, n_candidates, 0, len(points))
    return cells.order, np.where(positions < 0, -1, cells.order[positions]), squared


def test_cells_hold_every_point_once_and_probe_themselves_first() -> None:
    points = blobs()
    cells = cells_of(points)
    assert_array_equal(np.sort(cells.order), np.arange(len(points)))
    assert_array_equal([probes[0] for probes in cells.probes], np.arange(len(cells.probes)))
    assert all(len(np.unique(probes)) == len(probes) for probes in cells.probes)
    assert len(cells.probes) > 20


def test_most_true_neighbours_are_found_and_all_distances_are_right() -> None:
    points = blobs()
    cells = cells_of(points)
    samples, indices, squared = searched(points, cells, 10)
    exact, distances = nearest_neighbors(points, 10)
    shares = [
        len(set(row.tolist()) & set(exact[sample].tolist())) / 10
        for sample, row in zip(samples, indices, strict=True)
    ]
    assert np.mean(shares) > 0.9
    assert np.all(squared >= distances[samples] - 1e-3)
    assert np.all(np.diff(squared, axis=1) >= 0)
    whole = points.stacked(slice(None))
    for sample, row, found in zip(samples[:50], indices[:50], squared[:50], strict=True):
        assert sample not in row
        assert_allclose(
            found, np.sum((whole[row] - whole[sample]) ** 2, axis=1), rtol=1e-4, atol=1e-4
        )


def test_parts_find_the_neighbors_of_the_whole_and_those_of_whole_cells_its_bits() -> None:
    points = blobs(700)
    cells = cells_of(points)
    ordered = points.stacked(cells.order, np.float32)

    def search(start: int, stop: int) -> tuple[Array, Array]:
        return ivf_search([ordered[cells.searched(start, stop)]], cells, 8, start, stop)

    indices, squared = search(0, 700)
    for first, rtol in ((int(cells.bounds[4]), 0.0), (233, 1e-6)):  # the second is within a cell
        edges = (0, first, int(cells.bounds[9]), 700)
        parts = [search(a, b) for a, b in pairwise(edges)]
        assert_array_equal(np.concatenate([part[0] for part in parts]), indices)
        assert_allclose(np.concatenate([part[1] for part in parts]), squared, rtol=rtol)


def test_a_pool_smaller_than_what_is_asked_for_says_so() -> None:
    points = blobs(12)
    cells = cells_of(points, 20)
    _, indices, squared = searched(points, cells, 20)
    assert np.all(np.count_nonzero(indices >= 0, axis=1) == 11)
    assert_array_equal(np.isinf(squared), indices < 0)


def test_many_centers_are_trained_in_groups() -> None:
    points = blobs(6000).stacked(slice(None), np.float32)
    few, many = (train_centers([points], n, 0) for n in (30, 300))
    assert 290 <= len(many) <= 330

    def spread(centers: Array) -> float:
        own = centers[assign_to_cells(points, centers)]
        return float(np.square(points - own).sum(axis=1).mean())

    assert spread(many) < 0.75 * spread(few)


def test_many_centers_are_compared_by_groups() -> None:
    rng = np.random.default_rng(0)
    centers = np.sort(
        rng.standard_normal((5000, 1)).astype(np.float32), axis=0
    )  # near ones in a row
    points = rng.standard_normal((200, 1)).astype(np.float32)
    gaps = np.abs(points - centers.T)
    found = gaps[np.arange(200), assign_to_cells(points, centers)]
    assert np.mean(found <= gaps.min(axis=1) + 1e-3) > 0.95
