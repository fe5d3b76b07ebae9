"""Approximate neighbours: what they are made of, and how many of the true ones they find."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from mscam_dask.linalg.distances import WeightedBlocks
from mscam_dask.linalg.ivf import (
    IVFIndex,
    assign_to_cells,
    cut_cells,
    ivf_search,
    train_centers,
    training_rows,
)
from mscam_dask.linalg.neighbors import nearest_neighbors

Array = NDArray[Any]


def build_ivf(
    points: NDArray[np.float32], *, n_candidates: int, seed: int, cell_points: int
) -> IVFIndex:
    """The steps of the engine, for one block."""
    n = len(points)
    sample = points[training_rows(0, n, n, seed, cell_points)]
    centers = train_centers([sample], max(1, n // cell_points), seed)
    cells = assign_to_cells(points, centers)
    return cut_cells([cells], centers, n_candidates, cell_points)


def blobs(n: int = 1500, dims: Sequence[int] = (6, 10), seed: int = 0) -> WeightedBlocks:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 5, n)
    slabs = tuple(
        (rng.standard_normal((n, d)) + 2 * rng.standard_normal((5, d))[labels]).astype(np.float32)
        for d in dims
    )
    return WeightedBlocks(slabs, tuple(rng.uniform(0.5, 2.0, d) for d in dims))


def cells_of(points: WeightedBlocks, n_candidates: int = 10) -> IVFIndex:
    rows = points.stacked(slice(None), np.float32)
    return build_ivf(rows, n_candidates=n_candidates, seed=3, cell_points=40)


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


def test_duplicates_do_not_swell_a_cell() -> None:
    rng = np.random.default_rng(1)
    points = np.vstack([np.zeros((900, 3)), rng.standard_normal((300, 3))]).astype(np.float32)
    coordinates = WeightedBlocks((points,), (np.ones(3),))
    cells = cells_of(coordinates)
    assert np.diff(cells.bounds).max() <= 2 * 40
    _, indices, squared = searched(coordinates, cells, 5)
    assert np.all(indices >= 0)
    samples = cells.order
    assert_allclose(squared[samples < 900], 0.0, atol=1e-5)


@pytest.mark.parametrize("n_candidates", [10, 60, 150])
def test_a_pool_holds_four_times_the_neighbours_where_cells_hold_few_points(
    n_candidates: int,
) -> None:
    rng = np.random.default_rng(4)
    # lengths over many magnitudes: far out, cells of a point or two have only their like nearby
    far = np.exp(5 * rng.standard_normal((1200, 1))) * rng.standard_normal((1200, 20))
    points = WeightedBlocks((far,), (np.ones(20),))
    cells = cells_of(points, n_candidates)
    sizes = np.diff(cells.bounds)
    assert sizes.min() < 4
    assert min(sizes[probes].sum() for probes in cells.probes) >= 4 * n_candidates
    _, indices, _ = searched(points, cells, n_candidates)
    assert np.all(indices >= 0)


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
